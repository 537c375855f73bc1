"""The specification on RaggedShard, up to section 4.6: code blocks, tables and formulas hold as they stand there.

Names and docstrings give the section; 4.7 and what follows are in test_specification_interface. Blocks on checkpoints
are not here. Two things differ on purpose: a Layout is immutable, so that setting placements hands out another one, and
a redistribution that the specification routes through Replicate takes the direct way to the same result.
"""

from __future__ import annotations

import inspect
import math
from typing import Any

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
from hyper_parallel.platform import differentiable_all_to_all_single, differentiable_variable_all_gather
from support.checks import assert_consistent, assert_equal, assert_raises
from support.ranks import ranks
from support.specification import EXAMPLE, NUMEL, SHAPE, line, spread
from support.values import numbered
from support.worker import Rank


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
