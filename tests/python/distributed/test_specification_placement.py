"""The specification on placements and tensor maps, section by section: its code blocks, tables and rules hold.

Docstrings give the section. Blocks on checkpoints, `shard` and `custom_shard` are not here. One thing differs on
purpose: a Layout is immutable, so that setting placements hands out another one.
"""

from __future__ import annotations

import pytest
import torch

from hyper_parallel import (
    DeviceMesh,
    DTensor,
    Layout,
    Partial,
    Placement,
    RaggedShard,
    RaggedShardInfo,
    Replicate,
    Shard,
    distribute_tensor,
)
from support.checks import assert_equal
from support.ranks import ranks
from support.values import numbered
from support.worker import Rank


def test_placement_paths_name_the_same_objects() -> None:
    """placement, all imports; 4.2, 4.3 and 4.5, code locations."""
    from hyper_parallel import platform  # noqa: PLC0415
    from hyper_parallel.core import device_mesh, dtensor, layout, placement_types  # noqa: PLC0415
    from hyper_parallel.core.dtensor import device_mesh as new_device_mesh  # noqa: PLC0415
    from hyper_parallel.core.dtensor import dtensor as new_dtensor  # noqa: PLC0415
    from hyper_parallel.core.dtensor import layout as new_layout  # noqa: PLC0415
    from hyper_parallel.core.dtensor import placement_types as new_placement_types  # noqa: PLC0415
    from hyper_parallel.platform import platform as platform_module  # noqa: PLC0415

    assert device_mesh.DeviceMesh is new_device_mesh.DeviceMesh is DeviceMesh
    for module in (dtensor, new_dtensor):
        assert module.DTensor is DTensor
        assert module.distribute_tensor is distribute_tensor
    for module in (layout, new_layout):
        assert module.Layout is Layout
        assert module.RaggedShardInfo is RaggedShardInfo
    for module in (placement_types, new_placement_types):
        assert (module.Shard, module.Replicate, module.Partial) == (Shard, Replicate, Partial)
        assert module.RaggedShard is RaggedShard
    for name in ("differentiable_variable_all_gather", "differentiable_all_to_all_single"):
        assert getattr(platform_module, name) is getattr(platform, name)


@ranks(4)
def test_placement_both_notations_describe_one_distribution(rank: Rank) -> None:
    """placement, the block on tensor_map and placement."""
    device_mesh = DeviceMesh((2, 2), ("dp", "tp"))
    tensor = torch.randn((3, 4, 5))
    placements = [Shard(0), Shard(1)]
    t_map = (1, 0, -1)
    layout = Layout.from_device_mesh(device_mesh)
    assert layout(placements) == layout(t_map)
    assert (len(t_map), len(placements)) == (tensor.dim(), device_mesh.ndim)
    x = distribute_tensor(tensor, device_mesh, placements)
    row, column = divmod(rank.index, 2)
    assert_equal(x.to_local(), tensor.chunk(2, 0)[row].chunk(2, 1)[column])


def test_placement_each_tensor_dim_names_the_mesh_axis_counted_from_the_innermost() -> None:
    """placement, from placements to the tensor map, rules 1, 2 and 4."""
    for mesh_shape in ((2,), (2, 3), (2, 3, 2)):
        layout = Layout(mesh_shape)
        for mesh_dim in range(len(mesh_shape)):
            placements: list[Placement] = [Replicate()] * len(mesh_shape)
            placements[mesh_dim] = Shard(1)
            assert layout(placements).placement_to_tensor_map(dim=3) == (-1, len(mesh_shape) - 1 - mesh_dim, -1)


def test_placement_a_pending_reduction_is_kept_beside_the_tensor_map() -> None:
    """placement, rule 3 and the way back from a tensor map."""
    layout = Layout((2, 2), ("dp", "tp"))([Partial("max"), Shard(0)])
    assert layout.placement_to_tensor_map(dim=2) == (0, -1)
    assert layout.partial == ("max", None)
    assert layout.tensor_map_to_placement() == (Partial("max"), Shard(0))
    assert Layout((2, 2), ("dp", "tp"))((0, -1)).tensor_map_to_placement() == (Replicate(), Shard(0))


def test_placement_layout_converts_both_ways() -> None:
    """placement, the block on Layout; its layout is the one that calling it hands out."""
    device_mesh = DeviceMesh((2, 2), ("dp", "tp"))
    layout = Layout.from_device_mesh(device_mesh)
    assert layout == Layout((2, 2), ("dp", "tp"))
    called = layout([Shard(0), Shard(1)])
    assert called == layout((1, 0, -1))
    assert called.placement_to_tensor_map(dim=3) == (1, 0, -1)
    assert called.tensor_map_to_placement() == (Shard(0), Shard(1))
    assert layout.placements == (Replicate(), Replicate()), "calling a layout leaves it as it is"


def test_placement_alias_names_describe_the_plans_of_tensor_parallelism() -> None:
    """placement, interface changes: what the aliases meant is what the placements mean."""
    layout = Layout((2, 2), ("dp", "tp"))
    assert layout("None", "tp").placements == (Replicate(), Shard(1))
    assert layout("dp", "None").placements == (Shard(0), Replicate())
    assert layout("dp", "tp").placements == (Shard(0), Shard(1))


@ranks(4)
def test_placement_dtensors_are_made_and_redistributed_by_mesh_and_placements(rank: Rank) -> None:
    """placement, interface changes: from_local, the constructor, redistribute."""
    device_mesh = DeviceMesh((2, 2), ("dp", "tp"))
    whole = numbered((4, 6))
    row, column = divmod(rank.index, 2)
    local_tensor = whole.chunk(2, 0)[row].chunk(2, 1)[column].clone()
    placements = (Shard(0), Shard(1))
    for made in (
        DTensor.from_local(local_tensor, device_mesh, placements),
        DTensor(local_tensor, device_mesh, placements),
    ):
        assert made.shape == (4, 6)
        moved = made.redistribute(device_mesh, (Shard(1), Replicate()))
        assert_equal(moved.to_local(), whole.chunk(2, 1)[row])
        assert_equal(DTensor.redistribute(made, device_mesh, (Replicate(), Replicate())).to_local(), whole)
    with pytest.raises(TypeError, match="placements"):
        DTensor.from_local(local_tensor, made.layout)  # type: ignore[call-arg, arg-type]
