"""Every transition of the design's table, forward and backward, against one process.

Layouts, shapes, units (zeros included) and dtypes are drawn. In the backward every rank has a loss of its own, so that
a gradient which is summed too often, or not at all, shows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from hyper_parallel import DTensor, Partial, RaggedShard, Replicate, Shard
from support.arrays import Array, random_values, small_integers
from support.common import assert_raises, make_mesh
from support.drawing import drawn
from support.frameworks import framework
from support.layout_strategies import PAIRS, Transition, transitions
from support.platform_checks import assert_part, assert_values, distributed
from support.pool import RankPools
from support.ranks import ranks
from support.spread import PendingShares, Spread
from support.worker import Rank

MESHES = [(1,), (2,), (3,), (4,), (2, 2)]
ITEM_BYTES = {
    "float64": 8,
    "float32": 4,
    "bfloat16": 2,
    "float16": 2,
    "int64": 8,
    "int32": 4,
    "int16": 2,
    "int8": 1,
    "uint8": 1,
}

on_every_mesh = pytest.mark.parametrize(
    "mesh_shape", MESHES, ids=["mesh" + "x".join(map(str, shape)) for shape in MESHES]
)
every_pair = pytest.mark.parametrize(("source", "target"), PAIRS, ids=[f"{a}-{b}" for a, b in PAIRS])


def shares_of(spread: Spread, dtype: str) -> PendingShares:
    """Shares with ties, whose sums are exact."""
    pending = [
        size for size, placement in zip(spread.mesh_shape, spread.placements, strict=True) if placement.is_partial()
    ]
    return PendingShares(spread, small_integers((*pending, *spread.shape), dtype, seed=1))


def whole_and_part(rank: Rank, transition: Transition) -> tuple[Array, Array]:
    """The value of the source as one process has it, and what this rank holds of it."""
    spread, dtype = transition.source, transition.dtype
    if spread.is_pending:
        shares = shares_of(spread, dtype)
        return shares.value(), spread.part_of(shares.of(rank.index), rank.index)
    whole = random_values(spread.shape, dtype)
    return whole, spread.part_of(whole, rank.index)


def from_local(local: Any, spread: Spread) -> DTensor:
    return DTensor.from_local(local, make_mesh(*spread.mesh_shape), spread.placements, shape=spread.shape)


def is_exact(transition: Transition) -> bool:
    """Whether the values are copied; the quotient of a mean is rounded."""
    return Partial("avg") not in transition.source.placements


def check_forward(rank: Rank, transition: Transition) -> None:
    whole, part = whole_and_part(rank, transition)
    dtype, exact = transition.dtype, is_exact(transition)
    source = from_local(framework.tensor(part, dtype), transition.source)
    target = source.redistribute(source.device_mesh, transition.target.placements)
    assert_part(target, whole, transition.target, rank.index, dtype, exact=exact)
    assert_values(target.full_tensor(), whole, dtype, exact=exact)
    assert_values(source.full_tensor(), whole, dtype, exact=exact)
    assert source.placements == transition.source.placements
    assert_values(source.to_local(), part, dtype)


@every_pair
@on_every_mesh
@drawn(examples=framework.EXAMPLES, data=st.data())
def test_values_are_those_of_one_process(
    rank_pools: RankPools, mesh_shape: tuple[int, ...], source: str, target: str, data: st.DataObject
) -> None:
    transition = data.draw(transitions(source, target, mesh_shape))
    rank_pools[transition.source.size].run(check_forward, transition)


def weights_of(transition: Transition) -> Callable[[int], Array]:
    """Unlike weights of the ranks' losses."""
    return lambda rank: small_integers(transition.source.shape, transition.dtype, seed=100 + rank)


def expected_gradient(rank: Rank, transition: Transition, gradient: Array) -> Array:
    """Of this rank's part of the source, from the gradient of the whole."""
    if not transition.source.is_pending:
        return transition.source.part_of(gradient, rank.index)
    of_shares = PendingShares(transition.source, shares_of(transition.source, transition.dtype).gradients(gradient))
    return transition.source.part_of(of_shares.of(rank.index), rank.index)


def check_backward(rank: Rank, transition: Transition, exit_by: str) -> None:
    replicated = (Replicate(),) * len(transition.target.mesh_shape)
    target = transition.target
    left_as = Spread(target.shape, target.mesh_shape, replicated) if exit_by == "full_tensor" else target
    weights = weights_of(transition)

    def loss(local: Any) -> Any:
        there = from_local(local, transition.source).redistribute(list(target.placements))
        left = there.full_tensor() if exit_by == "full_tensor" else there.to_local()
        return framework.weighted_sum(left, left_as.part_of(weights(rank.index), rank.index))

    _, part = whole_and_part(rank, transition)
    (gradient,) = framework.gradients(loss, [framework.tensor(part, transition.dtype)])
    expected = expected_gradient(rank, transition, left_as.gradient_by_losses(weights))
    # Ties of max and min share a gradient in thirds; all else is exact.
    tolerance = 0.0 if is_exact(transition) and not has_ties(transition) else 1e-2
    np.testing.assert_allclose(gradient, expected, rtol=tolerance, atol=0)


def has_ties(transition: Transition) -> bool:
    return any(operation in transition.source.placements for operation in (Partial("max"), Partial("min")))


@every_pair
@on_every_mesh
@pytest.mark.parametrize("exit_by", ["full_tensor", "to_local"])
@drawn(examples=2, data=st.data())
def test_gradients_are_those_of_one_process(
    rank_pools: RankPools,
    mesh_shape: tuple[int, ...],
    source: str,
    target: str,
    exit_by: str,
    data: st.DataObject,
) -> None:
    transition = data.draw(transitions(source, target, mesh_shape, dtypes=framework.COMPUTED_DTYPES))
    rank_pools[transition.source.size].run(check_backward, transition, exit_by)


def check_round_trip(rank: Rank, transition: Transition) -> None:
    whole, part = whole_and_part(rank, transition)
    spread, dtype = transition.source, transition.dtype

    def there_and_back(local: Any) -> DTensor:
        return from_local(local, spread).redistribute(transition.target.placements).redistribute(spread.placements)

    assert_part(there_and_back(framework.tensor(part, dtype)), whole, spread, rank.index, dtype)
    weights = weights_of(transition)
    (gradient,) = framework.gradients(
        lambda local: framework.weighted_sum(there_and_back(local).full_tensor(), weights(rank.index)),
        [framework.tensor(part, dtype)],
    )
    total = np.sum([weights(other) for other in range(rank.size)], axis=0)
    np.testing.assert_array_equal(gradient, spread.part_of(total, rank.index))


@pytest.mark.parametrize(("source", "target"), [pair for pair in PAIRS if pair[0] != "partial"])
@on_every_mesh
@drawn(examples=2, data=st.data())
def test_there_and_back_keeps_values_and_gradients(
    rank_pools: RankPools, mesh_shape: tuple[int, ...], source: str, target: str, data: st.DataObject
) -> None:
    transition = data.draw(transitions(source, target, mesh_shape, dtypes=framework.COMPUTED_DTYPES))
    rank_pools[transition.source.size].run(check_round_trip, transition)


def check_partial_refused(rank: Rank, transition: Transition) -> None:
    source = from_local(framework.tensor(whole_and_part(rank, transition)[1], transition.dtype), transition.source)
    assert_raises(ValueError, "Partial", lambda: source.redistribute(source.device_mesh, transition.target.placements))


@pytest.mark.parametrize("source", ["ragged", "shard", "replicate"])
@on_every_mesh
@drawn(examples=2, data=st.data())
def test_nothing_becomes_partial(
    rank_pools: RankPools, mesh_shape: tuple[int, ...], source: str, data: st.DataObject
) -> None:
    transition = data.draw(transitions(source, "partial", mesh_shape, dtypes=framework.COMPUTED_DTYPES))
    rank_pools[transition.source.size].run(check_partial_refused, transition)


def check_equal_layout(rank: Rank, transition: Transition) -> None:
    local = framework.tensor(whole_and_part(rank, transition)[1], transition.dtype)
    source = from_local(local, transition.source)
    if rank.index == 0:  # alone, so that any communication would time out
        assert source.redistribute(source.device_mesh, transition.source.placements) is source
        assert source.redistribute(list(transition.source.placements)) is source
        assert source.redistribute() is source


@pytest.mark.parametrize("source", ["ragged", "shard", "replicate", "partial"])
@on_every_mesh
@drawn(examples=2, data=st.data())
def test_an_equal_layout_is_the_same_object_without_communication(
    rank_pools: RankPools, mesh_shape: tuple[int, ...], source: str, data: st.DataObject
) -> None:
    transition = data.draw(transitions(source, "replicate", mesh_shape, dtypes=framework.COMPUTED_DTYPES))
    rank_pools[transition.source.size].run(check_equal_layout, transition)


@ranks(4)
def test_another_mesh_over_the_same_ranks_is_taken_by_normal_layouts_alone(rank: Rank) -> None:
    whole = random_values((5, 7), "float32")
    source = distributed(whole, Spread((5, 7), (2, 2), (Shard(0), Shard(1))))
    line = make_mesh(4)
    target = source.redistribute(line, [Shard(1)])
    assert_part(target, whole, Spread((5, 7), (4,), (Shard(1),)), rank.index)
    assert_raises(ValueError, "mesh", lambda: source.redistribute(line, [RaggedShard((0,), (1, 1, 1, 2))]))


@ranks(2)
def test_reduce_partial_does_the_pending_reductions(rank: Rank) -> None:
    share = framework.tensor(np.full(3, rank.index + 1.0))
    pending = DTensor(share, make_mesh(2), [Partial("sum")])
    reduced = pending.reduce_partial()
    assert reduced.placements == (Replicate(),)
    assert_values(reduced.full_tensor(), np.full(3, 3.0))
    assert pending.placements == (Partial("sum"),)
    sharded = distributed(np.arange(3.0), Spread((3,), (2,), (Shard(0),)))
    assert sharded.reduce_partial() is sharded


@pytest.mark.parametrize("dtype", list(ITEM_BYTES))
@ranks(3)
def test_bits_survive_every_move(rank: Rank, dtype: str) -> None:
    """-0.0, infinities, NaNs with payloads, extreme integers: what is moved is not computed with."""
    patterns = np.random.default_rng(5).integers(0, 256, (6, 5, ITEM_BYTES[dtype]), np.uint8)
    own_rows = patterns[2 * rank.index : 2 * rank.index + 2]
    local = framework.from_bytes(own_rows.tobytes(), (2, 5), dtype)
    placed = DTensor.from_local(local, make_mesh(3), [Shard(0)], shape=(6, 5))
    for target in (RaggedShard((0,), (1, 0, 2)), Shard(1), RaggedShard((0, 1), (3, 2, 5)), Replicate()):
        placed = placed.redistribute([target])
    assert framework.to_bytes(placed.to_local()) == patterns.tobytes()
    assert framework.to_bytes(placed.full_tensor()) == patterns.tobytes()
