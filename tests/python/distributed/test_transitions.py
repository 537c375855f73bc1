"""Every transition of the design's table, forward and backward, against one process.

Layouts, shapes, units (zeros included) and dtypes are drawn. In the backward every rank has a loss of its own, so that
a gradient which is summed too often, or not at all, shows.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import strategies as st

from hyper_parallel import DTensor, Partial, RaggedShard, Replicate, Shard, distribute_tensor
from support.checks import assert_consistent, assert_equal, assert_part, assert_raises, gradient_of, make_mesh
from support.drawing import drawn
from support.pool import RankPools
from support.strategies import Transition, transitions
from support.truth import Shares, Spread
from support.values import FLOATS, random_values, small_integers
from support.worker import Rank

PAIRS = [
    ("ragged", "ragged"),
    ("ragged", "shard"),
    ("ragged", "replicate"),
    ("shard", "ragged"),
    ("shard", "shard"),
    ("shard", "replicate"),
    ("replicate", "ragged"),
    ("replicate", "shard"),
    ("partial", "ragged"),
    ("partial", "shard"),
    ("partial", "replicate"),
]
EXAMPLES = 14

on_every_mesh = pytest.mark.parametrize("mesh_shape", [(2,), (4,), (2, 2)], ids=["mesh2", "mesh4", "mesh2x2"])
every_pair = pytest.mark.parametrize(("source", "target"), PAIRS, ids=[f"{a}-{b}" for a, b in PAIRS])


def shares_of(spread: Spread, dtype: torch.dtype) -> Shares:
    """Shares with ties, whose reductions are exact."""
    pending = [
        size for size, placement in zip(spread.mesh_shape, spread.placements, strict=True) if placement.is_partial()
    ]
    return Shares(spread, small_integers((*pending, *spread.shape), dtype, seed=1))


def make_source(rank: Rank, transition: Transition, *, requires_grad: bool) -> tuple[DTensor, torch.Tensor]:
    """The tensor in its first layout, and its value as one process has it."""
    spread, dtype = transition.source, transition.dtype
    mesh = make_mesh(*spread.mesh_shape)
    if not any(placement.is_partial() for placement in spread.placements):
        whole = random_values(spread.shape, dtype)
        return distribute_tensor(whole.requires_grad_(requires_grad), mesh, spread.placements), whole.detach()
    shares = shares_of(spread, dtype)
    local = spread.part(shares.of(rank.index), rank.index).requires_grad_(requires_grad)
    return DTensor.from_local(local, mesh, spread.placements, shape=spread.shape), shares.value()


def weights_of(shape: tuple[int, ...], dtype: torch.dtype) -> Callable[[int], torch.Tensor]:
    """Unlike weights of the ranks' losses."""
    return lambda rank: small_integers(shape, dtype, seed=100 + rank)


def expected_gradient(rank: Rank, transition: Transition, gradient: torch.Tensor) -> torch.Tensor:
    """This rank's part of the gradient of the source, from the gradient of the whole."""
    spread = transition.source
    if not any(placement.is_partial() for placement in spread.placements):
        return spread.part(gradient, rank.index)
    shares = shares_of(spread, transition.dtype)
    of_shares = Shares(spread, shares.gradients(gradient))
    return spread.part(of_shares.of(rank.index), rank.index)


def check_forward(rank: Rank, transition: Transition) -> None:
    source, whole = make_source(rank, transition, requires_grad=False)
    before = source._local_tensor.clone()
    target = source.redistribute(source.device_mesh, transition.target.placements)
    assert_part(target, whole, transition.target, rank.index)
    assert_equal(target.full_tensor(), whole)
    assert_equal(source.full_tensor(), whole)
    assert source.placements == transition.source.placements
    assert_equal(source._local_tensor, before)


def check_backward(rank: Rank, transition: Transition, exit_by: str) -> None:
    source, _ = make_source(rank, transition, requires_grad=True)
    target = source.redistribute(source.device_mesh, transition.target.placements)
    assert_consistent(target)
    assert target.requires_grad
    weights = weights_of(transition.source.shape, transition.dtype)
    if exit_by == "full_tensor":
        left_as = Spread(
            transition.target.shape, transition.target.mesh_shape, (Replicate(),) * source.device_mesh.ndim
        )
        left = target.full_tensor()
    else:
        left_as = transition.target
        left = target.to_local()
    (left * left_as.part(weights(rank.index), rank.index)).sum().backward()
    expected = expected_gradient(rank, transition, left_as.gradient_of_losses(weights))
    # Ties of max and min share a gradient in thirds; all else is exact.
    torch.testing.assert_close(gradient_of(source)._local_tensor, expected)


@every_pair
@on_every_mesh
@drawn(examples=EXAMPLES, data=st.data())
def test_values_are_those_of_one_process(
    rank_pools: RankPools, mesh_shape: tuple[int, ...], source: str, target: str, data: st.DataObject
) -> None:
    transition = data.draw(transitions(source, target, mesh_shape))
    rank_pools[transition.source.size].run(check_forward, transition)


@every_pair
@on_every_mesh
@pytest.mark.parametrize("exit_by", ["full_tensor", "to_local"])
@drawn(examples=EXAMPLES // 2, data=st.data())
def test_gradients_are_those_of_one_process(
    rank_pools: RankPools,
    mesh_shape: tuple[int, ...],
    source: str,
    target: str,
    exit_by: str,
    data: st.DataObject,
) -> None:
    transition = data.draw(transitions(source, target, mesh_shape, dtypes=FLOATS))
    rank_pools[transition.source.size].run(check_backward, transition, exit_by)


def check_round_trip(rank: Rank, transition: Transition) -> None:
    source, whole = make_source(rank, transition, requires_grad=True)
    back = source.redistribute(placements=transition.target.placements).redistribute(transition.source.placements)
    assert_part(back, whole, transition.source, rank.index)
    weight = small_integers(transition.source.shape, transition.dtype, seed=rank.index)
    (back.full_tensor() * weight).sum().backward()
    total = sum(small_integers(transition.source.shape, transition.dtype, seed=other) for other in range(rank.size))
    assert isinstance(total, torch.Tensor)
    assert_equal(gradient_of(source)._local_tensor, transition.source.part(total, rank.index))


@pytest.mark.parametrize(("source", "target"), [pair for pair in PAIRS if pair[0] != "partial"])
@on_every_mesh
@drawn(examples=5, data=st.data())
def test_there_and_back_keeps_values_and_gradients(
    rank_pools: RankPools, mesh_shape: tuple[int, ...], source: str, target: str, data: st.DataObject
) -> None:
    transition = data.draw(transitions(source, target, mesh_shape, dtypes=FLOATS))
    rank_pools[transition.source.size].run(check_round_trip, transition)


def check_partial_refused(rank: Rank, transition: Transition) -> None:
    source, _ = make_source(rank, transition, requires_grad=False)
    assert_raises(ValueError, "Partial", lambda: source.redistribute(source.device_mesh, transition.target.placements))


@pytest.mark.parametrize("source", ["ragged", "shard", "replicate"])
@on_every_mesh
@drawn(examples=5, data=st.data())
def test_nothing_becomes_partial(
    rank_pools: RankPools, mesh_shape: tuple[int, ...], source: str, data: st.DataObject
) -> None:
    transition = data.draw(transitions(source, "partial", mesh_shape, dtypes=FLOATS))
    rank_pools[transition.source.size].run(check_partial_refused, transition)


def check_equal_layout(rank: Rank, transition: Transition) -> None:
    source, _ = make_source(rank, transition, requires_grad=True)
    if rank.index == 0:  # alone, so that any communication would time out
        assert source.redistribute(source.device_mesh, transition.source.placements) is source
        assert source.redistribute(list(transition.source.placements)) is source
        assert source.redistribute() is source


@pytest.mark.parametrize("source", ["ragged", "shard", "replicate", "partial"])
@on_every_mesh
@drawn(examples=3, data=st.data())
def test_an_equal_layout_is_the_same_object_without_communication(
    rank_pools: RankPools, mesh_shape: tuple[int, ...], source: str, data: st.DataObject
) -> None:
    transition = data.draw(transitions(source, "replicate", mesh_shape, dtypes=FLOATS))
    rank_pools[transition.source.size].run(check_equal_layout, transition)


def check_another_mesh(rank: Rank) -> None:
    whole = random_values((5, 7), torch.float32)
    source = distribute_tensor(whole, make_mesh(2, 2), [Shard(0), Shard(1)])
    line = make_mesh(4)
    target = source.redistribute(line, [Shard(1)])
    assert target.device_mesh == line
    assert_part(target, whole, Spread((5, 7), (4,), (Shard(1),)), rank.index)
    assert_raises(ValueError, "mesh", lambda: source.redistribute(line, [RaggedShard((0,), (1, 1, 1, 2))]))


def test_another_mesh_over_the_same_ranks_is_taken_by_normal_layouts_alone(rank_pools: RankPools) -> None:
    rank_pools[4].run(check_another_mesh)


def check_reduce_partial(rank: Rank) -> None:
    share = torch.full((3,), float(rank.index + 1), requires_grad=True)
    pending = DTensor(share, make_mesh(2), [Partial("sum")])
    reduced = pending.reduce_partial()
    assert reduced.placements == (Replicate(),)
    assert_equal(reduced.full_tensor(), torch.full((3,), 3.0))
    assert pending.placements == (Partial("sum"),)
    sharded = distribute_tensor(torch.arange(3.0), make_mesh(2), [Shard(0)])
    assert sharded.reduce_partial() is sharded


def test_reduce_partial_does_the_pending_reductions(rank_pools: RankPools) -> None:
    rank_pools[2].run(check_reduce_partial)
