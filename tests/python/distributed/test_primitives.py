"""The differentiable collectives of `hyper_parallel.platform`: functions of ranks, whose gradients are adjoints."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from hyper_parallel.platform import (
    differentiable_all_to_all_single,
    differentiable_variable_all_gather,
    differentiable_variable_reduce_scatter,
)
from support.checks import assert_equal, assert_raises
from support.drawing import drawn
from support.pool import RankPools
from support.ranks import ranks
from support.values import DTYPES, FLOATS, random_values, small_integers
from support.worker import Rank


def world() -> dist.ProcessGroup:
    group = dist.group.WORLD
    assert group is not None
    return group


@st.composite
def splits(draw: DrawFn, size: int) -> list[int]:
    return draw(st.lists(st.integers(0, 5), min_size=size, max_size=size))


row_shapes = st.lists(st.sampled_from((0, 1, 2, 3)), max_size=2).map(tuple)


def gather(rank: Rank, rows: list[int], row_shape: tuple[int, ...], dtype: torch.dtype) -> None:
    parts = [random_values((count, *row_shape), dtype, seed=index) for index, count in enumerate(rows)]
    gathered = differentiable_variable_all_gather(parts[rank.index], rows, world())
    assert_equal(gathered, torch.cat(parts))


@pytest.mark.parametrize("world_size", [2, 4])
@drawn(examples=20, data=st.data(), row_shape=row_shapes, dtype=st.sampled_from(DTYPES))
def test_all_gather_concatenates_in_rank_order(
    rank_pools: RankPools, world_size: int, data: st.DataObject, row_shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    rank_pools[world_size].run(gather, data.draw(splits(world_size)), row_shape, dtype)


def gather_backward(rank: Rank, rows: list[int], row_shape: tuple[int, ...], dtype: torch.dtype) -> None:
    own = small_integers((rows[rank.index], *row_shape), dtype, seed=rank.index).requires_grad_()
    weights = [small_integers((sum(rows), *row_shape), dtype, seed=100 + index) for index in range(rank.size)]
    (differentiable_variable_all_gather(own, rows, world()) * weights[rank.index]).sum().backward()
    total = torch.stack(weights).sum(0, dtype=dtype)
    begin = sum(rows[: rank.index])
    assert own.grad is not None
    assert_equal(own.grad, total[begin : begin + rows[rank.index]])


@pytest.mark.parametrize("world_size", [2, 4])
@drawn(examples=20, data=st.data(), row_shape=row_shapes, dtype=st.sampled_from(FLOATS))
def test_the_gradient_of_all_gather_is_the_sum_of_all_ranks_gradients(
    rank_pools: RankPools, world_size: int, data: st.DataObject, row_shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    rank_pools[world_size].run(gather_backward, data.draw(splits(world_size)), row_shape, dtype)


def exchange(rank: Rank, table: list[list[int]], row_shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """`table[s][r]` rows go from s to r."""
    sent = [random_values((sum(row), *row_shape), dtype, seed=index) for index, row in enumerate(table)]
    column = [row[rank.index] for row in table]
    received = differentiable_all_to_all_single(sent[rank.index], table[rank.index], column, world())
    pieces = [sent[index].split(table[index])[rank.index] for index in range(rank.size)]
    assert_equal(received, torch.cat(pieces))


@pytest.mark.parametrize("world_size", [2, 4])
@drawn(examples=20, data=st.data(), row_shape=row_shapes, dtype=st.sampled_from(DTYPES))
def test_all_to_all_delivers_each_pair_of_ranks_its_rows(
    rank_pools: RankPools, world_size: int, data: st.DataObject, row_shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    table = [data.draw(splits(world_size)) for _ in range(world_size)]
    rank_pools[world_size].run(exchange, table, row_shape, dtype)


def exchange_backward(rank: Rank, table: list[list[int]], dtype: torch.dtype) -> None:
    columns = [[row[index] for row in table] for index in range(rank.size)]
    own = small_integers((sum(table[rank.index]), 2), dtype, seed=rank.index).requires_grad_()
    weights = [small_integers((sum(column), 2), dtype, seed=100 + index) for index, column in enumerate(columns)]
    received = differentiable_all_to_all_single(own, table[rank.index], columns[rank.index], world())
    (received * weights[rank.index]).sum().backward()
    # What came back from each receiver is its weight of the rows that this rank had sent it.
    pieces = [weights[index].split(columns[index])[rank.index] for index in range(rank.size)]
    assert own.grad is not None
    assert_equal(own.grad, torch.cat(pieces))


@pytest.mark.parametrize("world_size", [2, 4])
@drawn(examples=20, data=st.data(), dtype=st.sampled_from(FLOATS))
def test_the_gradient_of_all_to_all_goes_back_to_its_sender(
    rank_pools: RankPools, world_size: int, data: st.DataObject, dtype: torch.dtype
) -> None:
    table = [data.draw(splits(world_size)) for _ in range(world_size)]
    rank_pools[world_size].run(exchange_backward, table, dtype)


def scatter(rank: Rank, rows: list[int], row_shape: tuple[int, ...], dtype: torch.dtype) -> None:
    parts = [small_integers((sum(rows), *row_shape), dtype, seed=index) for index in range(rank.size)]
    own = parts[rank.index].requires_grad_(dtype.is_floating_point)
    kept = differentiable_variable_reduce_scatter(own, rows, world())
    begin = sum(rows[: rank.index])
    total = torch.stack([part.detach() for part in parts]).sum(0, dtype=dtype)
    assert_equal(kept.detach(), total[begin : begin + rows[rank.index]])
    if dtype.is_floating_point:
        weights = [small_integers((count, *row_shape), dtype, seed=100 + index) for index, count in enumerate(rows)]
        (kept * weights[rank.index]).sum().backward()
        assert own.grad is not None
        assert_equal(own.grad, torch.cat(weights))


@pytest.mark.parametrize("world_size", [2, 4])
@drawn(examples=20, data=st.data(), row_shape=row_shapes, dtype=st.sampled_from((*FLOATS, torch.int64)))
def test_reduce_scatter_keeps_each_rank_its_rows_of_the_sum_and_gathers_their_gradients(
    rank_pools: RankPools, world_size: int, data: st.DataObject, row_shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    rank_pools[world_size].run(scatter, data.draw(splits(world_size)), row_shape, dtype)


@ranks(2)
def test_reduce_scatter_and_all_gather_are_each_others_adjoints(rank: Rank) -> None:
    x = torch.arange(6.0, dtype=torch.float64).reshape(3, 2).requires_grad_()
    there = differentiable_variable_reduce_scatter(x * (rank.index + 1), [1, 2], world())
    back = differentiable_variable_all_gather(there, [1, 2], world())
    assert_equal(back.detach(), x.detach() * 3)
    first = torch.autograd.grad((back**2).sum(), x, create_graph=True)[0]
    # Both ranks' losses are the sum of (3x)^2; this rank's x counts index + 1 times.
    assert_equal(first.detach(), 2 * 2 * 3 * x.detach() * (rank.index + 1))


@ranks(2)
def test_faulty_splits_of_reduce_scatter_raise_before_anything_is_sent(rank: Rank) -> None:
    x = torch.arange(4.0)
    for given in ([3, 3], [4], [2, 2, 0], [5, -1], []):
        assert_raises(
            ValueError, "input_splits", lambda given=given: differentiable_variable_reduce_scatter(x, given, world())
        )
    for odd in (None, [1.0, 3.0], 4):
        with pytest.raises(TypeError, match="input_splits"):
            differentiable_variable_reduce_scatter(x, odd, world())
    assert_equal(differentiable_variable_reduce_scatter(x, [1, 3], world()), [x[:1], x[1:]][rank.index] * 2)


@ranks(2, 4)
def test_second_derivatives_exist(rank: Rank) -> None:
    rows = list(range(1, rank.size + 1))
    own = torch.arange(1.0, rows[rank.index] + 1, dtype=torch.float64).requires_grad_()
    whole = differentiable_variable_all_gather(own, rows, world())
    first = torch.autograd.grad((whole**3).sum(), own, create_graph=True)[0]
    second = torch.autograd.grad(first.sum(), own)[0]
    # Every rank's loss is the sum of all cubes: the sum over ranks has size * x^3.
    assert_equal(second, rank.size * 6 * own.detach())


@ranks(2)
def test_none_for_a_group_is_a_type_error(rank: Rank) -> None:
    x = torch.ones(2)
    for group in (None, "world"):
        for action in (
            lambda group=group: differentiable_variable_all_gather(x, [2, 2], group),
            lambda group=group: differentiable_all_to_all_single(x, [1, 1], [1, 1], group),
            lambda group=group: differentiable_variable_reduce_scatter(x, [1, 1], group),
        ):
            with pytest.raises(TypeError, match="group"):
                action()


@ranks(2)
def test_a_sub_group_counts_its_own_ranks(rank: Rank) -> None:
    alone = [dist.new_group([index]) for index in range(rank.size)]
    x = torch.full((3,), float(rank.index))
    assert_equal(differentiable_variable_all_gather(x, [3], alone[rank.index]), x)
    assert_raises(
        ValueError,
        "output_splits",
        lambda: differentiable_variable_all_gather(x, [3, 3], alone[rank.index]),
    )


@ranks(2)
def test_faulty_split_lists_raise_before_anything_is_sent(rank: Rank) -> None:
    x = torch.arange(4.0)
    faults = [
        ([3, 3], "output_splits"),  # its own entry is not its rows
        ([4], "output_splits"),
        ([4, 4, 0], "output_splits"),
        ([4, -4], "output_splits"),
        ([], "output_splits"),
    ]
    for output_splits, text in faults:
        assert_raises(
            ValueError, text, lambda given=output_splits: differentiable_variable_all_gather(x, given, world())
        )
    with pytest.raises(TypeError):
        differentiable_variable_all_gather(x, None, world())
    assert_equal(differentiable_variable_all_gather(x, [4, 4], world()), torch.cat([x, x]))
