"""x[i] of a tensor sharded on dim 0: a view of the row on its owner, and nothing elsewhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hyper_parallel import DTensor, Placement, RaggedShard, Replicate, Shard, distribute_tensor
from support.arrays import Array, numbered
from support.common import assert_raises, make_mesh
from support.frameworks import framework
from support.platform_checks import assert_part, assert_values, distributed
from support.ranks import ranks
from support.spread import Spread
from support.worker import Rank

WHOLE = numbered((4, 4)) + 1
ROWS = Spread((4, 4), (2,), (Shard(0),))


def square() -> DTensor:
    """[[1..4], [5..8], [9..12], [13..16]] over two ranks."""
    return distributed(WHOLE, ROWS)


def with_row(index: int, row: float | Array) -> Array:
    changed = WHOLE.copy()
    changed[index] = row
    return changed


@ranks(2)
def test_case29_writing_a_row_changes_the_owner_and_nothing_else(rank: Rank) -> None:
    for index in (2, 0, -1):
        x = square()
        x[index].zero_()
        assert_part(x, with_row(index, 0), ROWS, rank.index)
        assert_values(x.full_tensor(), with_row(index, 0))
    row = square()[2]
    assert_values(row.to_local(), WHOLE[2, : 4 * rank.index])


@ranks(2)
def test_a_row_is_ragged_with_one_unit_on_its_owner(rank: Rank) -> None:
    x = square()
    for index, units in ((0, (1, 0)), (1, (1, 0)), (2, (0, 1)), (3, (0, 1)), (-1, (0, 1)), (-4, (1, 0))):
        row = x[index]
        assert_part(row, WHOLE[index], Spread((4,), (2,), (RaggedShard((0,), units),)), rank.index)
        assert_values(row.full_tensor(), WHOLE[index])


@ranks(2)
def test_a_row_shares_storage_with_its_tensor_in_both_directions(rank: Rank) -> None:
    x = square()
    row = x[3]
    row.mul_(2).add_(1)
    assert_values(x.full_tensor(), with_row(3, 2 * WHOLE[3] + 1))
    x.fill_(5)
    assert_values(row.full_tensor(), np.full(4, 5.0))
    row.copy_(distributed(numbered((4,)), Spread((4,), (2,), (Replicate(),))))
    assert_values(x.full_tensor()[3], numbered((4,)))


@ranks(2)
def test_an_index_out_of_range_raises_on_every_rank(rank: Rank) -> None:
    for index in (4, -5, 10**12):
        assert_raises(IndexError, f"index {index}", lambda i=index: square()[i])
    empty = distribute_tensor(framework.tensor(np.zeros((0, 3))), make_mesh(2), [Shard(0)])
    assert_raises(IndexError, "index 0", lambda: empty[0])


@ranks(2)
def test_what_has_no_rows_raises_on_every_rank(rank: Rank) -> None:
    flat = distributed(np.zeros(4), Spread((4,), (2,), (Shard(0),)))
    assert_raises(NotImplementedError, "x[i] of a 1-D DTensor is not supported", lambda: flat[0])
    ragged = distributed(WHOLE, Spread((4, 4), (2,), (RaggedShard((0,), (1, 1)),)))
    assert_raises(NotImplementedError, "x[i]", lambda: ragged[0])
    row = square()[1]
    for action in (row.sum, row.mean, lambda: row[0], lambda: row.view(2, 2)):
        assert_raises(NotImplementedError, "", action)


@ranks(2)
def test_gradients_of_a_row_reach_its_row(rank: Rank) -> None:
    def loss(local: Any) -> Any:
        row = DTensor.from_local(local, make_mesh(2), [Shard(0)], shape=(4, 4))[2]
        return framework.weighted_sum((row * row).full_tensor(), np.full(4, rank.index + 1.0))

    (gradient,) = framework.gradients(loss, [framework.tensor(ROWS.part_of(WHOLE, rank.index))])
    expected = np.zeros((4, 4))
    expected[2] = 3 * 2 * WHOLE[2]
    np.testing.assert_array_equal(gradient, ROWS.part_of(expected, rank.index))


@ranks(2)
def test_gradients_through_a_written_row(rank: Rank) -> None:
    def loss(local: Any) -> Any:
        x = DTensor.from_local(local, make_mesh(2), [Shard(0)], shape=(4, 4)) * 1
        x[1].zero_()
        x[2].mul_(10)
        return framework.weighted_sum(x.full_tensor(), np.ones((4, 4)))

    (gradient,) = framework.gradients(loss, [framework.tensor(ROWS.part_of(WHOLE, rank.index))])
    expected = np.full((4, 4), 2.0)
    expected[1], expected[2] = 0, 20
    np.testing.assert_array_equal(gradient, ROWS.part_of(expected, rank.index))


@pytest.mark.parametrize("rows", [4, 1])
@pytest.mark.parametrize("operation", ["mul_", "copy_", "add_", "fill_"])
@ranks(2)
def test_gradients_of_what_is_written_to_a_row_reach_it_through_every_rank(
    rank: Rank, operation: str, rows: int
) -> None:
    """Also where the written tensor was a constant, and where a rank has no row at all."""
    whole = WHOLE[:rows]

    def written(scale: Any, base: DTensor) -> Any:
        x, row = base, distributed(WHOLE[0], Spread((4,), (2,), (Replicate(),))) * scale
        target = x[rows - 1]
        getattr(target, operation)(row.redistribute(target.placements) if operation == "copy_" else scale)
        return framework.weighted_sum(x.full_tensor([Replicate()]), np.ones((rows, 4)))

    last = whole[-1].sum()
    constant = {"mul_": last, "copy_": WHOLE[0].sum(), "add_": 4.0, "fill_": 4.0}[operation]
    tracked = {"mul_": 2 * 3 * last, "add_": last + 4}.get(operation, constant) + whole[:-1].sum()
    spread = Spread((rows, 4), (2,), (Shard(0),))
    three = framework.tensor(np.array(3.0))
    (gradient,) = framework.gradients(lambda scale: written(scale, distributed(whole, spread)), [three])
    np.testing.assert_allclose(gradient, constant, rtol=1e-6)
    (gradient,) = framework.gradients(lambda scale: written(scale, distributed(whole, spread) * scale), [three])
    np.testing.assert_allclose(gradient, tracked, rtol=1e-6)


@ranks(4)
def test_rows_beside_replicate_dims_and_of_uneven_shards(rank: Rank) -> None:
    whole = numbered((5, 3, 2))
    cases: list[tuple[tuple[int, ...], tuple[Placement, ...]]] = [
        ((4,), (Shard(0),)),
        ((2, 2), (Replicate(), Shard(0))),
        ((2, 2), (Shard(0), Replicate())),
    ]
    for mesh_shape, placements in cases:
        x = distributed(whole, Spread((5, 3, 2), mesh_shape, placements))
        for index in range(-5, 5):
            assert_values(x[index].full_tensor(), whole[index])
        x[4].zero_()
        expected = whole.copy()
        expected[4] = 0
        assert_values(x.full_tensor(), expected)
    both = distributed(whole, Spread((5, 3, 2), (2, 2), (Shard(0), Shard(0))))
    assert_raises(NotImplementedError, "x[i]", lambda: both[0])
