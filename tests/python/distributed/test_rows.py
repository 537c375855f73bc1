"""x[i] of a tensor sharded on dim 0 as torch has it; the rest is in `test_shared_rows.py`."""

from __future__ import annotations

import pytest
import torch

from hyper_parallel import DTensor, RaggedShard, Replicate, Shard, distribute_tensor
from support.checks import assert_consistent, assert_equal, assert_raises, gradient_of, make_mesh, whole_of
from support.ranks import ranks
from support.worker import Rank


def square(*, requires_grad: bool = False) -> DTensor:
    """[[1..4], [5..8], [9..12], [13..16]] over two ranks."""
    whole = (torch.arange(16.0) + 1).view(4, 4).requires_grad_(requires_grad)
    return distribute_tensor(whole, make_mesh(2), [Shard(0)])


@ranks(2)
def test_case29_slices_raise_and_change_nothing(rank: Rank) -> None:
    for index in (slice(2, 3), slice(None, 2)):
        x = square()
        assert_raises(ValueError, "would not reach that tensor", lambda given=x, i=index: given[i].zero_())
        assert x.full_tensor().sum(1).tolist() == [10, 26, 42, 58]


@ranks(2)
def test_a_row_is_ragged_with_one_unit_on_its_owner(rank: Rank) -> None:
    x = square()
    for index, units in ((0, (1, 0)), (1, (1, 0)), (2, (0, 1)), (3, (0, 1)), (-1, (0, 1)), (-4, (1, 0))):
        row = x[index]
        assert row.placements == (RaggedShard((0,), units),)
        assert tuple(row.shape) == (4,)
        assert_consistent(row)
        assert_equal(row.full_tensor(), x.full_tensor()[index])


@ranks(2)
def test_a_row_shares_storage_with_its_tensor_in_both_directions(rank: Rank) -> None:
    x = square()
    row = x[3]
    before = x._version
    row.mul_(2).add_(1)
    assert_equal(x.full_tensor()[3], torch.tensor([27.0, 29.0, 31.0, 33.0]))
    assert x._version > before, "on every rank, also where nothing is written"
    x.fill_(5)
    assert_equal(row.full_tensor(), torch.full((4,), 5.0))
    row.copy_(distribute_tensor(torch.arange(4.0), x.device_mesh, [Replicate()]))
    assert_equal(x.full_tensor()[3], torch.arange(4.0))


@ranks(2)
def test_what_has_no_rows_raises_on_every_rank(rank: Rank) -> None:
    mesh = make_mesh(2)
    assert_raises(NotImplementedError, "1-D", lambda: distribute_tensor(torch.zeros(4), mesh, [Shard(0)])[0])
    ragged = distribute_tensor(torch.zeros(4, 4), mesh, [RaggedShard((0,), (1, 1))])
    assert_raises(NotImplementedError, "x[i]", lambda: ragged[0])
    for index in ([0], torch.tensor([0, 1]), True, "0", 1.0):
        assert_raises(NotImplementedError, "x[i]", lambda given=index: square()[given])


@ranks(2, check=True)
def test_a_row_that_is_not_contiguous_raises_on_every_rank_under_the_check(rank: Rank) -> None:
    local = torch.arange(8.0).view(4, 2).t()
    x = DTensor.from_local(local, make_mesh(2), [Shard(0)], shape=(4, 4))
    with pytest.raises((ValueError, RuntimeError), match="contiguous"):
        x[0]


@ranks(2)
def test_reductions_products_and_further_indexing_of_a_row_raise(rank: Rank) -> None:
    row = square()[1]
    for action in (row.sum, row.mean, lambda: row @ row, lambda: row[0], lambda: row.view(2, 2)):
        with pytest.raises(NotImplementedError):
            action()


@ranks(2)
def test_gradients_of_a_row_reach_its_row(rank: Rank) -> None:
    x = square(requires_grad=True)
    row = x[2]
    assert row.requires_grad, "on every rank"
    ((row * row).full_tensor() * (rank.index + 1)).sum().backward()
    expected = torch.zeros(4, 4)
    expected[2] = 3 * 2 * torch.arange(9.0, 13.0)
    assert_equal(whole_of(gradient_of(x)), expected)


@ranks(2)
def test_gradients_through_a_written_row(rank: Rank) -> None:
    leaf = square(requires_grad=True)
    x = leaf * 1
    x[1].zero_()
    x[2].mul_(10)
    x.backward(distribute_tensor(torch.ones(4, 4), x.device_mesh, x.placements))
    expected = torch.ones(4, 4)
    expected[1], expected[2] = 0, 10
    assert_equal(whole_of(gradient_of(leaf)), expected)
