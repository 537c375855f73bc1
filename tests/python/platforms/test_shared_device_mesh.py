"""DeviceMesh: the questions that depend on the process, on 4 ranks."""

from __future__ import annotations

import numpy as np

from hyper_parallel import DeviceMesh, init_device_mesh
from hyper_parallel.platform import differentiable_variable_all_gather, get_rank, get_world_size, world_group
from support.common import assert_raises
from support.frameworks import framework
from support.ranks import ranks
from support.worker import Rank


def members(mesh: DeviceMesh, dim: str | int | None, rank: Rank) -> list[int]:
    """The ranks of the group, as each of them says; it would hang or be wrong if they were others."""
    group = mesh.get_group(dim)
    size = mesh.size() if dim is None else mesh.size(dim)
    told = differentiable_variable_all_gather(framework.tensor(np.array([rank.index]), "int64"), [1] * size, group)
    return list(framework.array(told))


@ranks(4)
def test_rank_knows_where_it_is(rank: Rank) -> None:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    assert (get_rank(), get_world_size()) == (rank.index, 4)
    assert mesh.get_rank() == rank.index
    assert mesh.get_coordinate() == (rank.index // 2, rank.index % 2)
    assert (mesh.get_local_rank("dp"), mesh.get_local_rank(1)) == mesh.get_coordinate()
    assert mesh["tp"] == DeviceMesh((2,), ("tp",), [rank.index // 2 * 2, rank.index // 2 * 2 + 1])
    assert mesh["tp"].get_local_rank() == rank.index % 2
    assert mesh["dp", "tp"] is mesh
    assert mesh["tp", "dp"].shape == (2, 2)
    assert mesh["tp", "dp"].mesh_dim_names == ("tp", "dp")
    assert_raises(ValueError, "'ep' is not a dim of the mesh; its dims are (dp, tp)", lambda: mesh["ep"])


@ranks(4)
def test_size_unlike_the_job_raises(rank: Rank) -> None:
    text = "mesh_shape (3,) has 3 ranks but the job has 4 processes"
    assert_raises(ValueError, text, lambda: init_device_mesh("cpu", (3,)))


@ranks(4)
def test_members_of_a_group_stand_in_mesh_order(rank: Rank) -> None:
    for rank_list in ([0, 1, 2, 3], [3, 1, 0, 2]):
        mesh = DeviceMesh((2, 2), ("dp", "tp"), rank_list)
        for dim in ("dp", "tp"):
            assert members(mesh, dim, rank) == list(mesh.group(dim, rank.index))
            assert mesh.get_group(dim) is mesh.get_group(dim)
    assert DeviceMesh((4,)).get_group() == world_group()
    backwards = DeviceMesh((4,), None, [3, 2, 1, 0])
    assert backwards.get_group() != world_group()
    assert members(backwards, None, rank) == [3, 2, 1, 0]


@ranks(4)
def test_case08_ranks_outside_a_mesh_take_no_part(rank: Rank) -> None:
    mesh = DeviceMesh((2,), ("dp",), [2, 3])
    if rank.index < 2:
        assert mesh.get_coordinate() is None
        text = f"rank {rank.index} is not in DeviceMesh((2,), ('dp',), [2, 3])"
        assert_raises(ValueError, text, mesh.get_local_rank)
        assert_raises(ValueError, text, mesh.get_group)
    else:
        assert mesh.get_coordinate() == (rank.index - 2,)
        assert members(mesh, None, rank) == [2, 3]
