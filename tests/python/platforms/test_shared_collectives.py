"""The differentiable collectives of `hyper_parallel.platform`: functions of ranks, whose gradients are adjoints."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from hyper_parallel import DeviceMesh
from hyper_parallel.platform import (
    differentiable_all_to_all_single,
    differentiable_variable_all_gather,
    differentiable_variable_reduce_scatter,
    world_group,
)
from support.arrays import DTYPES, Array, random_values, small_integers
from support.common import assert_raises
from support.drawing import drawn
from support.frameworks import framework
from support.platform_checks import assert_values
from support.pool import RankPools
from support.ranks import ranks
from support.worker import Rank

every_size = pytest.mark.parametrize("world_size", [1, 2, 3, 4])
row_shapes = st.lists(st.sampled_from((0, 1, 2, 3)), max_size=2).map(tuple)
computed_dtypes = st.sampled_from(framework.COMPUTED_DTYPES)


@st.composite
def splits(draw: DrawFn, size: int) -> list[int]:
    return draw(st.lists(st.integers(0, 5), min_size=size, max_size=size))


def summed(arrays: list[Array]) -> Array:
    return np.sum(arrays, axis=0, dtype=arrays[0].dtype)


def own_rows(whole: Array, rows: list[int], rank: Rank) -> Array:
    begin = sum(rows[: rank.index])
    return whole[begin : begin + rows[rank.index]]


def gather(rank: Rank, rows: list[int], row_shape: tuple[int, ...], dtype: str) -> None:
    parts = [random_values((count, *row_shape), dtype, seed=index) for index, count in enumerate(rows)]
    gathered = differentiable_variable_all_gather(framework.tensor(parts[rank.index], dtype), rows, world_group())
    assert_values(gathered, np.concatenate(parts), dtype)


@every_size
@drawn(examples=framework.EXAMPLES, data=st.data(), row_shape=row_shapes, dtype=st.sampled_from(DTYPES))
def test_all_gather_concatenates_in_rank_order(
    rank_pools: RankPools, world_size: int, data: st.DataObject, row_shape: tuple[int, ...], dtype: str
) -> None:
    rank_pools[world_size].run(gather, data.draw(splits(world_size)), row_shape, dtype)


def gather_backward(rank: Rank, rows: list[int], row_shape: tuple[int, ...], dtype: str) -> None:
    own = small_integers((rows[rank.index], *row_shape), dtype, seed=rank.index)
    weights = [small_integers((sum(rows), *row_shape), dtype, seed=100 + index) for index in range(rank.size)]

    def loss(x: Any) -> Any:
        return framework.weighted_sum(differentiable_variable_all_gather(x, rows, world_group()), weights[rank.index])

    (gradient,) = framework.gradients(loss, [framework.tensor(own, dtype)])
    np.testing.assert_array_equal(gradient, own_rows(summed(weights), rows, rank))


@every_size
@drawn(examples=framework.EXAMPLES, data=st.data(), row_shape=row_shapes, dtype=computed_dtypes)
def test_the_gradient_of_all_gather_is_the_sum_of_all_ranks_gradients(
    rank_pools: RankPools, world_size: int, data: st.DataObject, row_shape: tuple[int, ...], dtype: str
) -> None:
    rank_pools[world_size].run(gather_backward, data.draw(splits(world_size)), row_shape, dtype)


def pieces_for(rank: Rank, table: list[list[int]], sent: list[Array]) -> Array:
    """`table[s][r]` rows go from s to r: what this rank gets."""
    pieces = [np.split(rows, np.cumsum(row)[:-1])[rank.index] for row, rows in zip(table, sent, strict=True)]
    return np.concatenate(pieces)


def exchange(rank: Rank, table: list[list[int]], row_shape: tuple[int, ...], dtype: str) -> None:
    sent = [random_values((sum(row), *row_shape), dtype, seed=index) for index, row in enumerate(table)]
    column = [row[rank.index] for row in table]
    received = differentiable_all_to_all_single(
        framework.tensor(sent[rank.index], dtype), table[rank.index], column, world_group()
    )
    assert_values(received, pieces_for(rank, table, sent), dtype)


@every_size
@drawn(examples=framework.EXAMPLES, data=st.data(), row_shape=row_shapes, dtype=st.sampled_from(DTYPES))
def test_all_to_all_delivers_each_pair_of_ranks_its_rows(
    rank_pools: RankPools, world_size: int, data: st.DataObject, row_shape: tuple[int, ...], dtype: str
) -> None:
    table = [data.draw(splits(world_size)) for _ in range(world_size)]
    rank_pools[world_size].run(exchange, table, row_shape, dtype)


def exchange_backward(rank: Rank, table: list[list[int]], dtype: str) -> None:
    columns = [[row[index] for row in table] for index in range(rank.size)]
    own = small_integers((sum(table[rank.index]), 2), dtype, seed=rank.index)
    weights = [small_integers((sum(column), 2), dtype, seed=100 + index) for index, column in enumerate(columns)]

    def loss(x: Any) -> Any:
        received = differentiable_all_to_all_single(x, table[rank.index], columns[rank.index], world_group())
        return framework.weighted_sum(received, weights[rank.index])

    (gradient,) = framework.gradients(loss, [framework.tensor(own, dtype)])
    # What came back from each receiver is its weight of the rows that this rank had sent it.
    np.testing.assert_array_equal(gradient, pieces_for(rank, columns, weights))


@every_size
@drawn(examples=framework.EXAMPLES, data=st.data(), dtype=computed_dtypes)
def test_the_gradient_of_all_to_all_goes_back_to_its_sender(
    rank_pools: RankPools, world_size: int, data: st.DataObject, dtype: str
) -> None:
    table = [data.draw(splits(world_size)) for _ in range(world_size)]
    rank_pools[world_size].run(exchange_backward, table, dtype)


def scatter(rank: Rank, rows: list[int], row_shape: tuple[int, ...], dtype: str) -> None:
    parts = [small_integers((sum(rows), *row_shape), dtype, seed=index) for index in range(rank.size)]
    kept = differentiable_variable_reduce_scatter(framework.tensor(parts[rank.index], dtype), rows, world_group())
    assert_values(kept, own_rows(summed(parts), rows, rank), dtype)


@every_size
@drawn(examples=framework.EXAMPLES, data=st.data(), row_shape=row_shapes, dtype=st.sampled_from(DTYPES[:-1]))
def test_reduce_scatter_keeps_each_rank_its_rows_of_the_sum(
    rank_pools: RankPools, world_size: int, data: st.DataObject, row_shape: tuple[int, ...], dtype: str
) -> None:
    rank_pools[world_size].run(scatter, data.draw(splits(world_size)), row_shape, dtype)


def scatter_backward(rank: Rank, rows: list[int], row_shape: tuple[int, ...], dtype: str) -> None:
    own = small_integers((sum(rows), *row_shape), dtype, seed=rank.index)
    weights = [small_integers((count, *row_shape), dtype, seed=100 + index) for index, count in enumerate(rows)]

    def loss(x: Any) -> Any:
        kept = differentiable_variable_reduce_scatter(x, rows, world_group())
        return framework.weighted_sum(kept, weights[rank.index])

    (gradient,) = framework.gradients(loss, [framework.tensor(own, dtype)])
    np.testing.assert_array_equal(gradient, np.concatenate(weights))


@every_size
@drawn(examples=framework.EXAMPLES, data=st.data(), row_shape=row_shapes, dtype=computed_dtypes)
def test_the_gradient_of_reduce_scatter_gathers(
    rank_pools: RankPools, world_size: int, data: st.DataObject, row_shape: tuple[int, ...], dtype: str
) -> None:
    rank_pools[world_size].run(scatter_backward, data.draw(splits(world_size)), row_shape, dtype)


@ranks(2)
def test_reduce_scatter_and_all_gather_are_each_others_adjoints(rank: Rank) -> None:
    x = np.arange(6.0).reshape(3, 2)

    def there_and_back(x: Any) -> Any:
        there = differentiable_variable_reduce_scatter(x * (rank.index + 1), [1, 2], world_group())
        return differentiable_variable_all_gather(there, [1, 2], world_group())

    assert_values(there_and_back(framework.tensor(x)), x * 3)
    (gradient,) = framework.gradients(
        lambda x: framework.weighted_sum(there_and_back(x) * there_and_back(x), np.ones((3, 2))), [framework.tensor(x)]
    )
    # Both ranks' losses are the sum of (3x)^2; this rank's x counts index + 1 times.
    np.testing.assert_array_equal(gradient, 2 * 2 * 3 * x * (rank.index + 1))


@ranks(2, 4)
def test_second_derivatives_exist(rank: Rank) -> None:
    rows = list(range(1, rank.size + 1))
    own = np.arange(1.0, rows[rank.index] + 1)

    def cubes(x: Any) -> Any:
        whole = differentiable_variable_all_gather(x, rows, world_group())
        return framework.weighted_sum(whole * whole * whole, np.ones(sum(rows)))

    second = framework.second_derivative(cubes, framework.tensor(own))
    # Every rank's loss is the sum of all cubes: the sum over ranks has size * x^3.
    np.testing.assert_array_equal(second, rank.size * 6 * own)


@ranks(2)
def test_none_for_a_group_is_a_type_error(rank: Rank) -> None:
    x = framework.tensor(np.ones(2))
    for group in (None, 3):
        for action in (
            lambda group=group: differentiable_variable_all_gather(x, [2, 2], group),
            lambda group=group: differentiable_all_to_all_single(x, [1, 1], [1, 1], group),
            lambda group=group: differentiable_variable_reduce_scatter(x, [1, 1], group),
        ):
            with pytest.raises(TypeError, match="group"):
                action()


@ranks(3)
def test_a_sub_group_counts_its_own_ranks_in_its_own_order(rank: Rank) -> None:
    mesh = DeviceMesh((2,), ("dp",), rank_list=[2, 0])
    if rank.index == 1:
        return
    group = mesh.get_group()
    own = np.full(2 - rank.index // 2, float(rank.index))
    assert_values(differentiable_variable_all_gather(framework.tensor(own), [1, 2], group), np.array([2.0, 0.0, 0.0]))
    kept = differentiable_variable_reduce_scatter(framework.tensor(np.arange(3.0)), [1, 2], group)
    assert_values(kept, np.array([0.0]) if rank.index == 2 else np.array([2.0, 4.0]))
    swapped = differentiable_all_to_all_single(framework.tensor(np.array([rank.index, 9.0])), [1, 1], [1, 1], group)
    assert_values(swapped, np.array([2.0, 0.0]) if rank.index == 2 else np.array([9.0, 9.0]))
    assert_raises(
        ValueError,
        "output_splits",
        lambda: differentiable_variable_all_gather(framework.tensor(own), [1, 2, 3], group),
    )


FAULTY_GATHERS = [[3, 3], [4], [4, 4, 0], [4, -4], []]
FAULTY_SCATTERS = [[3, 3], [4], [2, 2, 0], [5, -1], []]
FAULTY_EXCHANGES = [
    ([3, 3], [2, 2], "input_splits"),
    ([4], [2, 2], "input_splits"),
    ([5, -1], [2, 2], "input_splits"),
    ([2, 2], [2], "output_splits"),
    ([2, 2], [2, -2], "output_splits"),
]


@ranks(2)
def test_faulty_split_lists_raise_before_anything_is_sent(rank: Rank) -> None:
    x = framework.tensor(np.arange(4.0))
    for given in FAULTY_GATHERS:
        assert_raises(
            ValueError,
            "output_splits",
            lambda given=given: differentiable_variable_all_gather(x, given, world_group()),
        )
    for given in FAULTY_SCATTERS:
        assert_raises(
            ValueError,
            "input_splits",
            lambda given=given: differentiable_variable_reduce_scatter(x, given, world_group()),
        )
    for sent, received, text in FAULTY_EXCHANGES:
        assert_raises(
            ValueError,
            text,
            lambda sent=sent, received=received: differentiable_all_to_all_single(x, sent, received, world_group()),
        )
    for odd in (None, [1.0, 3.0], 4):
        with pytest.raises(TypeError, match="output_splits"):
            differentiable_variable_all_gather(x, odd, world_group())
        with pytest.raises(TypeError, match="input_splits"):
            differentiable_variable_reduce_scatter(x, odd, world_group())
    # Nothing is on its way that the next call would take for its own.
    doubled = np.concatenate([np.arange(4.0)] * 2)
    assert_values(differentiable_variable_all_gather(x, [4, 4], world_group()), doubled)
    own = [np.array([0.0]), np.array([2.0, 4.0, 6.0])][rank.index]
    assert_values(differentiable_variable_reduce_scatter(x, [1, 3], world_group()), own)
