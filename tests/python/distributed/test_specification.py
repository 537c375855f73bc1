"""The specifications, section by section: what their code blocks, tables and formulas say holds as it stands there.

Names and docstrings give the section: plain numbers are those of the ragged specification, "placement" is the older one
on placements and tensor maps. Blocks on checkpoints, `shard` and `custom_shard` are not here. Two things differ on
purpose: a Layout is immutable, so that setting placements hands out another one, and a redistribution that the
specification routes through Replicate takes the direct way to the same result.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

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
from hyper_parallel.platform import differentiable_all_to_all_single, differentiable_variable_all_gather
from support.checks import assert_consistent, assert_equal, assert_raises
from support.ranks import ranks
from support.values import numbered
from support.worker import Rank

SHAPE = (6, 4, 8)
EXAMPLE = RaggedShard((0, 1), (1, 2))
NUMEL = {0: 64, 1: 128}


def line(size: int = 2) -> DeviceMesh:
    return DeviceMesh((size,), ("fsdp",))


def spread(whole: torch.Tensor, placement: Placement = EXAMPLE) -> DTensor:
    return distribute_tensor(whole, line(), (placement,))


# --- The specification on placements and tensor maps -----------------------------------------------------------------


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


# --- The specification on RaggedShard --------------------------------------------------------------------------------


def test_1_ragged_shard_says_prefix_dims_and_units_per_rank() -> None:
    placement = RaggedShard(
        dims=(0, 1),
        local_units=(2, 3, 0, 5),
    )
    assert (placement.dims, placement.local_units) == ((0, 1), (2, 3, 0, 5))
    assert placement == RaggedShard((0, 1), (2, 3, 0, 5))
    assert placement != RaggedShard((0,), (2, 3, 0, 5))
    assert eval(repr(placement)) == placement  # the text is the constructor's call
    layout = Layout((4,), ("fsdp",))([placement])
    assert layout.ragged_shard == RaggedShardInfo(0, placement)


CONSTRUCTION_FAULTS: dict[str, tuple[Any, Any]] = {
    "dims empty": ((), (1, 2)),
    "dims no tuple": ([0], (1, 2)),
    "dims not of ints": ((0.0,), (1, 2)),
    "dims not from 0": ((1,), (1, 2)),
    "dims with a gap": ((0, 2), (1, 2)),
    "units empty": ((0,), ()),
    "units no tuple": ((0,), [1, 2]),
    "a unit that is no int": ((0,), (1, 2.0)),
    "a negative unit": ((0,), (1, -2)),
    "all units zero": ((0,), (0, 0)),
}


@pytest.mark.parametrize("fault", list(CONSTRUCTION_FAULTS))
def test_3_1_the_placement_itself_refuses(fault: str) -> None:
    dims, units = CONSTRUCTION_FAULTS[fault]
    with pytest.raises((ValueError, TypeError), match="dims" if fault.startswith("dims") else "local_units"):
        RaggedShard(dims, units)


def interval(shape: tuple[int, ...], placement: RaggedShard, r: int) -> tuple[int, int]:
    """3.2, letter by letter."""
    k, units = len(placement.dims), placement.local_units
    prefix_cells = math.prod(shape[:k])
    suffix_numel = math.prod(shape[k:])
    cells_per_unit = prefix_cells // sum(units)
    prefix_start = sum(units[:r]) * cells_per_unit
    local_prefix = units[r] * cells_per_unit
    return prefix_start * suffix_numel, (prefix_start + local_prefix) * suffix_numel


@pytest.mark.parametrize(
    ("shape", "placement"),
    [
        ((6, 4, 8), RaggedShard((0,), (1, 0, 2, 3))),
        ((6, 4, 8), RaggedShard((0, 1), (2, 3, 0, 3))),
        ((5, 2, 3), RaggedShard((0, 1, 2), (1, 2, 0, 3))),
        ((10,), RaggedShard((0,), (2, 3, 0, 5))),
        ((4, 0, 3), RaggedShard((0,), (1, 0, 2, 1))),
    ],
    ids=str,
)
@ranks(4)
def test_3_2_each_rank_holds_the_interval_of_the_formula(
    rank: Rank, shape: tuple[int, ...], placement: RaggedShard
) -> None:
    whole = numbered(shape)
    start, end = interval(shape, placement, rank.index)
    x = distribute_tensor(whole, line(4), (placement,))
    assert x.local_numel == end - start
    assert_equal(x._local_tensor, whole.flatten()[start:end])


@ranks(2)
def test_3_3_the_table_of_the_example(rank: Rank) -> None:
    begin, end = {0: (0, 64), 1: (64, 192)}[rank.index]
    whole = numbered(SHAPE)
    local = spread(whole)._local_tensor
    assert local.shape == {0: (64,), 1: (128,)}[rank.index]
    assert_equal(local, whole.flatten()[begin:end])
    # What the flat share means, were it a block.
    assert_equal(local.view(-1, 4, 8), whole[{0: slice(0, 2), 1: slice(2, 6)}[rank.index]])


def test_4_2_a_layout_has_three_views() -> None:
    placements = (Replicate(), EXAMPLE)
    layout = Layout((2, 2), ("dp", "tp"))(placements)
    assert layout.placements == placements
    assert layout.ragged_shard == RaggedShardInfo(mesh_dim=1, placement=EXAMPLE)
    assert layout.ragged_shard is not None
    assert (layout.ragged_shard.mesh_dim, layout.ragged_shard.placement) == (1, EXAMPLE)
    assert layout.normal_placements == (Replicate(), Replicate())


def test_4_2_core_behaviour_of_the_views() -> None:
    """The block on set_placements, normal_placements and alias_placements, and the list below it."""
    layout = Layout((2, 2), ("dp", "tp"))
    ragged = layout((EXAMPLE, Replicate()))
    assert ragged.normal_placements == tuple(Replicate() if p.is_ragged_shard() else p for p in ragged.placements)
    assert ragged.alias_placements == ragged.placements == (EXAMPLE, Replicate())
    assert ragged.placement_to_tensor_map(3) == (-1, -1, -1), "no axis of an ordinary Shard"
    assert ragged.tensor_map_to_placement() == (EXAMPLE, Replicate()), "the ragged placement comes back"
    normal = layout((Shard(0), Partial()))
    assert normal.normal_placements == normal.alias_placements == normal.placements
    assert normal.ragged_shard is None


def test_4_2_and_4_9_unlike_ragged_layouts_are_unlike_keys() -> None:
    layout = Layout((2,), ("fsdp",))
    placements = [EXAMPLE, RaggedShard((0,), (1, 2)), RaggedShard((0, 1), (2, 1)), RaggedShard((0, 1), (2, 4))]
    assert len(set(placements)) == len({hash(placement) for placement in placements}) == len(placements)
    assert len({layout([placement]) for placement in placements}) == len(placements)
    assert hash(layout([EXAMPLE])) == hash(layout([RaggedShard((0, 1), (1, 2))]))


@ranks(2)
def test_4_3_a_ragged_tensor_keeps_shape_and_flat_storage_apart(rank: Rank) -> None:
    """The invariants and the block on from_local; 5.3 is the same block."""
    mesh = line()
    local_flat = torch.full((NUMEL[rank.index],), float(rank.index))
    dt = DTensor.from_local(
        local_flat,
        mesh,
        (RaggedShard((0, 1), (1, 2)),),
        shape=(6, 4, 8),
    )
    assert dt._global_shape == tuple(dt.shape) == SHAPE
    assert dt._local_tensor.dim() == 1
    assert dt._local_tensor.is_contiguous()
    assert dt._local_tensor.numel() == dt.local_numel == NUMEL[rank.index]
    assert_consistent(dt)
    assert_equal(dt.full_tensor().flatten(), torch.cat([torch.zeros(64), torch.ones(128)]))


@ranks(2)
def test_4_3_an_ordinary_tensor_derives_its_shape(rank: Rank) -> None:
    dt = DTensor.from_local(torch.zeros(3, 4), line(), (Shard(0),))
    assert dt._global_shape == (6, 4)


@ranks(2)
def test_4_4_1_without_a_source_each_rank_clones_its_slice(rank: Rank) -> None:
    global_tensor = numbered(SHAPE)
    x = distribute_tensor(global_tensor, line(), (EXAMPLE,), src_data_rank=None)
    global_tensor.zero_()
    start, end = interval(SHAPE, EXAMPLE, rank.index)
    assert_equal(x._local_tensor, numbered(SHAPE).flatten()[start:end])


@pytest.mark.parametrize("source", [0, 1])
@ranks(4)
def test_4_4_2_the_source_counts_inside_the_ragged_group(rank: Rank, source: int) -> None:
    mesh = DeviceMesh((2, 2), ("dp", "tp"))
    x = distribute_tensor(numbered(SHAPE) + 1000 * rank.index, mesh, (Replicate(), EXAMPLE), src_data_rank=source)
    row, column = divmod(rank.index, 2)
    start, end = interval(SHAPE, EXAMPLE, column)
    assert_equal(x._local_tensor, numbered(SHAPE).flatten()[start:end] + 1000 * (2 * row + source))
    y = distribute_tensor(numbered(SHAPE).requires_grad_(), mesh, (Replicate(), EXAMPLE), src_data_rank=source)
    (y * y).full_tensor(grad_placements=[Replicate(), Replicate()]).sum().backward()
    assert isinstance(y.grad, DTensor)
    assert_equal(y.grad._local_tensor, 2 * numbered(SHAPE).flatten()[start:end])


@ranks(2)
def test_4_4_3_full_tensor_gathers_in_rank_order_and_reshapes(rank: Rank) -> None:
    whole = numbered(SHAPE)
    x = spread(whole)
    replicated = Layout.from_device_mesh(x.device_mesh)
    assert replicated.placement_to_tensor_map(len(x._global_shape)) == (-1, -1, -1)
    full = x.full_tensor()
    assert type(full) is torch.Tensor
    assert_equal(full, whole)
    gathered = differentiable_variable_all_gather(x._local_tensor, [64, 128], x.device_mesh.get_group())
    assert_equal(gathered.reshape(SHAPE), full)


@ranks(2)
def test_4_5_the_primitives_take_these_arguments_in_this_order(rank: Rank) -> None:
    assert list(inspect.signature(differentiable_variable_all_gather).parameters) == [
        "input_tensor",
        "output_splits",
        "group",
    ]
    assert list(inspect.signature(differentiable_all_to_all_single).parameters) == [
        "input_tensor",
        "input_splits",
        "output_splits",
        "group",
    ]
    group = line().get_group("fsdp")
    rows = [1, 3]
    own = torch.full((rows[rank.index], 2), float(rank.index))
    gathered = torch.cat([torch.zeros(1, 2), torch.ones(3, 2)])
    assert_equal(differentiable_variable_all_gather(own, rows, group), gathered)
    assert_equal(differentiable_variable_all_gather(input_tensor=own, output_splits=rows, group=group), gathered)
    sent, received = {0: ([0, 1], [0, 1]), 1: ([1, 2], [1, 2])}[rank.index]
    expected = {0: [1.0], 1: [0.0, 1.0, 1.0]}[rank.index]
    for given in (
        differentiable_all_to_all_single(own, sent, received, group),
        differentiable_all_to_all_single(input_tensor=own, input_splits=sent, output_splits=received, group=group),
    ):
        assert_equal(given, torch.tensor(expected).unsqueeze(1).expand(-1, 2))


@ranks(2)
def test_4_5_backward_of_the_gather_is_the_slice_of_the_summed_gradient(rank: Rank) -> None:
    """The table's backward columns: reduce and slice; the exchange goes back with its splits swapped."""
    group = line().get_group()
    own = torch.zeros(64 * (1 + rank.index), requires_grad=True)
    weights = [numbered((192,)), numbered((192,)).square()]
    (differentiable_variable_all_gather(own, [64, 128], group) * weights[rank.index]).sum().backward()
    start, end = interval(SHAPE, EXAMPLE, rank.index)
    assert_equal(own.grad, (weights[0] + weights[1])[start:end])
    x = torch.zeros(3, requires_grad=True)
    sent, received = {0: ([1, 2], [1, 0]), 1: ([0, 3], [2, 3])}[rank.index]
    (differentiable_all_to_all_single(x, sent, received, group) * (10 + rank.index)).sum().backward()
    assert_equal(x.grad, torch.tensor([[10.0, 11.0, 11.0], [11.0, 11.0, 11.0]][rank.index]))


RAGGED_TARGETS = [RaggedShard((0, 1), (2, 1)), RaggedShard((0,), (1, 2)), RaggedShard((0, 1, 2), (0, 1))]
STATES: list[Placement] = [Replicate(), Shard(0), Shard(1), Shard(2), EXAMPLE, *RAGGED_TARGETS]


@pytest.mark.parametrize("target", STATES, ids=str)
@pytest.mark.parametrize("source", STATES, ids=str)
@ranks(2)
def test_4_6_every_transition_keeps_value_and_gradient(rank: Rank, source: Placement, target: Placement) -> None:
    """The table of the four transitions, which stand for these pairs; 9.1 asks for the gradients."""
    whole = numbered(SHAPE)
    x = distribute_tensor(whole.clone().requires_grad_(), line(), (source,))
    y = x.redistribute(line(), (target,))
    assert y.placements == (target,)
    assert_equal(y._local_tensor.detach(), spread(whole, target)._local_tensor)
    (y * y).full_tensor(grad_placements=[Replicate()]).sum().backward()
    assert isinstance(x.grad, DTensor)
    assert x.grad.placements == (source,)
    assert_equal(x.grad.full_tensor(), 2 * whole)


@pytest.mark.parametrize("reduction", ["sum", "avg", "max", "min"])
@ranks(2)
def test_4_6_partial_is_reduced_on_its_way_to_ragged(rank: Rank, reduction: str) -> None:
    shares = [numbered(SHAPE), 100 - numbered(SHAPE)]
    p = DTensor.from_local(shares[rank.index], line(), (Partial(reduction),))
    both = torch.stack(shares)
    value = {"sum": both.sum(0), "avg": both.mean(0), "max": both.amax(0), "min": both.amin(0)}[reduction]
    assert_equal(p.redistribute(line(), (EXAMPLE,)).full_tensor(), value)
    assert_equal(p.reduce_partial().redistribute(line(), (EXAMPLE,)).full_tensor(), value)
    assert p.placements == (Partial(reduction),)


@ranks(2)
def test_4_6_ragged_to_partial_is_refused(rank: Rank) -> None:
    x = spread(numbered(SHAPE))
    assert_raises(ValueError, "Partial", lambda: x.redistribute(line(), (Partial(),)))


@ranks(4)
def test_4_6_changing_the_mesh_dim_of_the_ragged_placement(rank: Rank) -> None:
    mesh = DeviceMesh((2, 2), ("dp", "tp"))
    x = distribute_tensor(numbered(SHAPE), mesh, (EXAMPLE, Replicate()))
    y = x.redistribute(mesh, (Replicate(), RaggedShard((0,), (2, 1))))
    assert y.placements == (Replicate(), RaggedShard((0,), (2, 1)))
    assert_equal(y.full_tensor(), numbered(SHAPE))


@ranks(2)
def test_4_6_the_splits_are_overlaps_of_intervals(rank: Rank) -> None:
    """The formula of both split lists: exchanging by them is the redistribution."""
    source, target = RaggedShard((0, 1), (1, 2)), RaggedShard((0, 1), (2, 1))

    def overlap(sender: int, receiver: int) -> int:
        held, wanted = interval(SHAPE, source, sender), interval(SHAPE, target, receiver)
        return max(0, min(held[1], wanted[1]) - max(held[0], wanted[0]))

    x = spread(numbered(SHAPE), source)
    exchanged = differentiable_all_to_all_single(
        x._local_tensor,
        [overlap(rank.index, receiver) for receiver in range(rank.size)],
        [overlap(sender, rank.index) for sender in range(rank.size)],
        line().get_group(),
    )
    assert_equal(x.redistribute(line(), (target,))._local_tensor, exchanged)


UNARY: dict[str, Callable[[Any], Any]] = {
    "abs": torch.abs,
    "absolute": torch.absolute,
    "clone": torch.clone,
    "cos": torch.cos,
    "exp": torch.exp,
    "gelu": F.gelu,
    "isinf": torch.isinf,
    "isnan": torch.isnan,
    "log": torch.log,
    "neg": torch.neg,
    "negative": torch.negative,
    "relu": torch.relu,
    "rsqrt": torch.rsqrt,
    "sigmoid": torch.sigmoid,
    "silu": F.silu,
    "sin": torch.sin,
    "sqrt": torch.sqrt,
    "square": torch.square,
}
# torch has no real_div: its division of ints is real.
BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": torch.add,
    "div": torch.div,
    "mul": torch.mul,
    "pow": torch.pow,
    "real_div": lambda x, y: x / y,
    "sub": torch.sub,
    "true_divide": torch.true_divide,
}
REVERSED: dict[str, Callable[[Any], Any]] = {
    "__rsub__": lambda x: 1 - x,
    "__rpow__": lambda x: 2**x,
}


@pytest.mark.parametrize("operation", [*UNARY, *BINARY, *REVERSED])
@ranks(2)
def test_4_7_the_whitelist_runs_on_shares_and_keeps_layout_and_shape(rank: Rank, operation: str) -> None:
    generator = torch.Generator().manual_seed(1)
    a, b = (torch.rand(SHAPE, generator=generator) - 0.25 for _ in range(2))
    function = (UNARY | BINARY | REVERSED)[operation]
    operands = (a, b) if operation in BINARY else (a,)
    result = function(*(spread(operand) for operand in operands))
    assert isinstance(result, DTensor)
    assert (result._global_shape, result.layout) == (SHAPE, spread(a).layout)
    assert_consistent(result)
    torch.testing.assert_close(result.full_tensor(), function(*operands), equal_nan=True)


@ranks(2)
def test_4_7_a_row_lies_on_its_owner_and_is_written_in_place(rank: Rank) -> None:
    """The special case: x[i] on Shard(0)."""
    full_x = torch.tensor([[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12], [13, 14, 15, 16]])
    tp_mesh = DeviceMesh((2,), ("tp",))
    x = distribute_tensor(full_x, tp_mesh, (Shard(0),))
    assert_equal(x[2]._local_tensor, {0: full_x[2][:0], 1: full_x[2]}[rank.index])
    assert x[2].shape == (4,)
    assert x[2].placements == (RaggedShard((0,), (0, 1)),)
    x[2].zero_()
    assert_equal(x[2]._local_tensor, torch.zeros(4 * rank.index, dtype=full_x.dtype))
    assert_equal(x.full_tensor(), torch.tensor([[1, 2, 3, 4], [5, 6, 7, 8], [0, 0, 0, 0], [13, 14, 15, 16]]))


FAIL_CLOSED: dict[str, Callable[[Any], Any]] = {
    "mean": torch.mean,
    "sum": torch.sum,
    "view": lambda x: x.view(-1),
    "reshape": lambda x: x.reshape(-1),
    "flatten": torch.flatten,
    "indexing": lambda x: x[0],
    "matmul": lambda x: x @ x,
    "norm": lambda x: x.norm(),
    "layer norm": lambda x: F.layer_norm(x, (8,)),
    "attention": lambda x: F.scaled_dot_product_attention(x, x, x),
    "an operation on no list": torch.erf,
}


@pytest.mark.parametrize("operation", list(FAIL_CLOSED))
@ranks(2)
def test_4_7_everything_else_is_refused(rank: Rank, operation: str) -> None:
    x = spread(numbered(SHAPE))
    advice = "redistribute it first" if operation == "indexing" else "to_local()"
    assert_raises(NotImplementedError, advice, lambda: FAIL_CLOSED[operation](x))
    assert_equal(x.full_tensor(), numbered(SHAPE))


# --- 5, the interface ------------------------------------------------------------------------------------------------


def test_5_1_placement() -> None:
    from hyper_parallel import RaggedShard as Exported  # noqa: PLC0415

    placement = Exported(
        dims=(0, 1),
        local_units=(1, 2),
    )
    assert placement == EXAMPLE
    assert isinstance(placement, Placement)
    assert placement.is_ragged_shard()
    assert not (placement.is_shard() or placement.is_replicate() or placement.is_partial())


@ranks(2)
def test_5_2_from_a_whole_tensor(rank: Rank) -> None:
    global_tensor = numbered(SHAPE) if rank.index == 0 else torch.zeros(SHAPE)
    mesh = line()
    dt = distribute_tensor(
        global_tensor,
        mesh,
        (RaggedShard((0, 1), (1, 2)),),
        src_data_rank=0,
    )
    assert_equal(dt.full_tensor(), numbered(SHAPE))


@ranks(2)
def test_5_4_laying_out_otherwise_and_the_whole(rank: Rank) -> None:
    mesh = line()
    whole = numbered(SHAPE)
    dt = spread(whole)
    full = dt.full_tensor()
    changed = dt.redistribute(
        mesh,
        (RaggedShard((0, 1), (2, 1)),),
    )
    replicated = dt.redistribute(mesh, (Replicate(),))
    sharded = dt.redistribute(mesh, (Shard(0),))
    assert_equal(full, whole)
    assert_equal(changed._local_tensor, whole.flatten().split([128, 64])[rank.index])
    assert_equal(replicated._local_tensor, whole)
    assert_equal(sharded._local_tensor, whole.chunk(2)[rank.index])


# --- 9, acceptance ---------------------------------------------------------------------------------------------------


@ranks(4)
def test_9_1_a_rank_without_units_takes_part_everywhere(rank: Rank) -> None:
    whole = numbered((8, 3))
    units = RaggedShard((0,), (2, 3, 0, 3))
    others = (RaggedShard((0,), (0, 0, 5, 3)), RaggedShard((0, 1), (0, 1, 2, 5)), Shard(0), Replicate())
    for source in (None, 2):
        x = distribute_tensor(whole, line(4), (units,), src_data_rank=source)
        assert_equal(x._local_tensor, whole.split(units.local_units)[rank.index].flatten())
        assert_equal((x * 2 + x).full_tensor(), whole * 3)
        for other in others:
            there = x.redistribute(line(4), (other,))
            assert_equal(there.full_tensor(), whole)
            assert_equal(there.redistribute(line(4), (units,))._local_tensor, x._local_tensor)


LAYOUT_FAULTS: dict[str, tuple[tuple[int, ...], tuple[Placement, ...], str]] = {
    "several ragged placements": (SHAPE, (EXAMPLE, EXAMPLE), "RaggedShard"),
    "prefix cells that the units do not divide": ((5, 5), (Replicate(), EXAMPLE), "25"),
    "units that are not as many as the ranks": (SHAPE, (Replicate(), RaggedShard((0,), (1, 2, 3))), "local_units"),
    "a Shard beside": (SHAPE, (EXAMPLE, Shard(1)), "Replicate"),
    "a Partial beside": (SHAPE, (Partial(), EXAMPLE), "Replicate"),
    "more dims than the tensor": ((6,), (Replicate(), EXAMPLE), "dims"),
}


@pytest.mark.parametrize("fault", list(LAYOUT_FAULTS))
@ranks(4)
def test_9_3_layouts_that_are_refused_on_every_rank(rank: Rank, fault: str) -> None:
    mesh = DeviceMesh((2, 2), ("dp", "tp"))
    shape, placements, text = LAYOUT_FAULTS[fault]
    x = distribute_tensor(numbered(shape), mesh, (Replicate(), Replicate()))
    local = torch.zeros(math.prod(shape) // 2)
    assert_raises(ValueError, text, lambda: distribute_tensor(numbered(shape), mesh, placements))
    assert_raises(ValueError, text, lambda: distribute_tensor(numbered(shape), mesh, placements, src_data_rank=0))
    assert_raises(ValueError, text, lambda: DTensor.from_local(local, mesh, placements, shape=shape))
    assert_raises(ValueError, text, lambda: x.redistribute(mesh, placements))


@ranks(2)
def test_9_3_local_tensors_that_are_refused(rank: Rank) -> None:
    mesh, own = line(), NUMEL[rank.index]

    def make(local: torch.Tensor, shape: Any = SHAPE) -> DTensor:
        return DTensor.from_local(local, mesh, (EXAMPLE,), shape=shape)

    assert_raises(ValueError, "shape", lambda: make(torch.zeros(own), None))
    assert_raises(ValueError, "1-D", lambda: make(torch.zeros(own // 8, 8)))
    assert_raises(ValueError, "contiguous", lambda: make(torch.zeros(2 * own)[::2]))
    assert_raises(ValueError, str(own), lambda: make(torch.zeros(own + 1)))
    assert_raises(ValueError, "shape", lambda: make(torch.zeros(own), (-6, 4, 8)))
    assert_raises(TypeError, "shape", lambda: make(torch.zeros(own), (6.0, 4, 8)))
    assert_raises(ValueError, "dims", lambda: make(torch.zeros(own), (192,)))


@ranks(2)
def test_9_3_ragged_factories_are_refused(rank: Rank) -> None:
    x = spread(numbered(SHAPE))
    for name, factory in {
        "new_zeros": lambda: x.new_zeros(SHAPE),
        "new_ones": lambda: x.new_ones(SHAPE),
        "new_empty": lambda: x.new_empty(SHAPE),
        "new_full": lambda: x.new_full(SHAPE, 1.0),
        "rand_like": lambda: torch.rand_like(x),
    }.items():
        assert_raises(NotImplementedError, f"operation '{name}'", factory)
