"""HYPER_PARALLEL_CHECK=1: what differs between ranks raises on every one of them and prints both sides."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import timedelta

import numpy as np
import pytest

from hyper_parallel import DeviceMesh, DTensor, HyperParallelError, RaggedShard, Replicate, Shard, distribute_tensor
from hyper_parallel.platform import (
    differentiable_all_to_all_single,
    differentiable_variable_all_gather,
    differentiable_variable_reduce_scatter,
    world_group,
)
from support.common import make_mesh
from support.frameworks import framework
from support.platform_checks import assert_values
from support.pool import RankPools
from support.ranks import ranks
from support.worker import Rank

SHORT = timedelta(seconds=2)


def arange(count: int, dtype: str = "float32") -> object:
    return framework.tensor(np.arange(count), dtype)


def placed(*placements: Shard | Replicate | RaggedShard, dtype: str = "float32") -> DTensor:
    return distribute_tensor(arange(8, dtype), make_mesh(2), placements)


def by_rank(rank: Rank, first: object, second: object) -> object:
    return first if rank.index == 0 else second


DIFFERENCES: dict[str, tuple[Callable[[Rank], object], tuple[str, str]]] = {
    "units of redistribute": (
        lambda rank: placed(Shard(0)).redistribute([RaggedShard((0,), by_rank(rank, (1, 3), (3, 1)))]),
        ("(1, 3)", "(3, 1)"),
    ),
    "layouts of full_tensor": (
        lambda rank: placed(by_rank(rank, Shard(0), RaggedShard((0,), (1, 3)))).full_tensor(),
        ("Shard(0)", "RaggedShard((0,), (1, 3))"),
    ),
    "dtype of full_tensor": (
        lambda rank: placed(Shard(0), dtype=by_rank(rank, "float32", "float64")).full_tensor(),
        framework.FLOAT32_AND_FLOAT64,
    ),
    "shape of from_local": (
        lambda rank: DTensor.from_local(
            framework.tensor(np.zeros(2 - rank.index)), make_mesh(2), [Shard(0)], shape=(4 - rank.index,)
        ),
        ("(4,)", "(3,)"),
    ),
    "placements of from_local without a shape": (
        lambda rank: DTensor.from_local(
            framework.tensor(np.zeros(2)), make_mesh(2), [by_rank(rank, Shard(0), Replicate())]
        ),
        ("Shard(0)", "Replicate()"),
    ),
    "dtype of from_local without a shape": (
        lambda rank: DTensor.from_local(
            framework.tensor(np.zeros(2), by_rank(rank, "float32", "float64")), make_mesh(2), [Shard(0)]
        ),
        framework.FLOAT32_AND_FLOAT64,
    ),
    "dims of from_local without a shape": (
        lambda rank: DTensor.from_local(
            framework.tensor(np.zeros((2,) * (1 + rank.index))), make_mesh(2), [Shard(0)]
        ),
        ("1 dims", "2 dims"),
    ),
    "operations": (
        lambda rank: placed(Shard(0)).full_tensor() if rank.index else placed(Shard(0)).redistribute([Replicate()]),
        ("full_tensor", "redistribute"),
    ),
    "source of distribute_tensor": (
        lambda rank: distribute_tensor(arange(4), make_mesh(2), [Shard(0)], src_data_rank=rank.index),
        ("from 0", "from 1"),
    ),
    "row index": (
        lambda rank: distribute_tensor(framework.tensor(np.zeros((4, 2))), make_mesh(2), [Shard(0)])[rank.index],
        ("0 of", "1 of"),
    ),
    "splits of the gather": (
        lambda rank: differentiable_variable_all_gather(arange(2), by_rank(rank, [2, 2], [1, 2]), world_group()),
        ("(2, 2)", "(1, 2)"),
    ),
    "splits of the reduce-scatter": (
        lambda rank: differentiable_variable_reduce_scatter(arange(4), by_rank(rank, [2, 2], [1, 3]), world_group()),
        ("(2, 2)", "(1, 3)"),
    ),
    "row shape of the exchange": (
        lambda rank: differentiable_all_to_all_single(
            framework.tensor(np.zeros((2, 1 + rank.index))), [1, 1], [1, 1], world_group()
        ),
        ("(1,)", "(2,)"),
    ),
    "splits of the exchange": (
        lambda rank: differentiable_all_to_all_single(
            arange(4), by_rank(rank, [1, 3], [2, 2]), by_rank(rank, [1, 2], [2, 2]), world_group()
        ),
        ("sends 3 rows", "expects 2"),
    ),
}  # fmt: skip


def text_of_difference(rank: Rank, difference: str) -> str:
    """The text with which the ranks' unlike calls raise here, soon."""
    started = time.monotonic()
    with pytest.raises(HyperParallelError) as caught:
        DIFFERENCES[difference][0](rank)
    assert time.monotonic() - started < 5, "the check raises at once, not at the group's timeout"
    return str(caught.value)


@pytest.mark.parametrize("difference", list(DIFFERENCES))
def test_a_difference_raises_on_every_rank_and_prints_both_sides(rank_pools: RankPools, difference: str) -> None:
    texts = rank_pools[2].run(text_of_difference, difference, check=True)
    for text in texts:
        for part in ("rank 0", "rank 1", *DIFFERENCES[difference][1]):
            assert part.lower() in text.lower()


@ranks(4, check=True)
def test_the_odd_one_out_is_told_from_the_others(rank: Rank) -> None:
    placement = Shard(0) if rank.index == 2 else Replicate()
    x = distribute_tensor(arange(4), make_mesh(4), [placement])
    with pytest.raises(HyperParallelError, match=r"disagree(.|\n)*rank 0, 1, 3(.|\n)*rank 2"):
        x.full_tensor()


@ranks(2, check=True)
def test_a_fault_of_one_rank_raises_on_all_and_says_whose_it_is(rank: Rank) -> None:
    local = arange(4 + rank.index)
    with pytest.raises(HyperParallelError, match="local has 5 elements but rank 1 owns 4"):
        DTensor(local, make_mesh(2), [RaggedShard((0,), (1, 1))], shape=(8,))


@ranks(2, check=True)
def test_equal_calls_pass_and_give_the_same_values(rank: Rank) -> None:
    whole = np.arange(8.0)
    x = distribute_tensor(framework.tensor(whole), make_mesh(2), [RaggedShard((0,), (1, 3))], src_data_rank=1)
    for _ in range(5):
        assert_values(x.redistribute([Shard(0)]).full_tensor(), whole)

    def loss(local: object) -> object:
        y = DTensor.from_local(local, make_mesh(2), [RaggedShard((0,), (1, 3))], shape=(8,))
        return framework.weighted_sum((y * y).full_tensor(), np.ones(8))

    (gradient,) = framework.gradients(loss, [x.to_local()])
    np.testing.assert_array_equal(gradient, 4 * (whole[:2] if rank.index == 0 else whole[2:]))


@ranks(2, check=True, group_timeout=SHORT)
def test_a_rank_that_never_came_is_named(rank: Rank) -> None:
    x = distribute_tensor(arange(4), make_mesh(2), [Shard(0)])
    if rank.index == 1:
        return
    started = time.monotonic()
    with pytest.raises(RuntimeError, match="rank 1 of 2 did not come within 2000 ms") as caught:
        x.full_tensor()
    assert isinstance(caught.value, HyperParallelError)
    assert time.monotonic() - started < 6


@ranks(2)
def test_the_variable_is_read_at_each_call_and_checked(rank: Rank) -> None:
    x = distribute_tensor(arange(4), make_mesh(2), [Shard(0)])
    os.environ["HYPER_PARALLEL_CHECK"] = "yes"
    try:
        with pytest.raises(ValueError, match="HYPER_PARALLEL_CHECK is 'yes' but must be 0 or 1"):
            x.full_tensor()
    finally:
        del os.environ["HYPER_PARALLEL_CHECK"]
    assert_values(x.full_tensor(), np.arange(4.0))


@ranks(4, check=True)
def test_ranks_outside_the_mesh_are_not_waited_for(rank: Rank) -> None:
    mesh = DeviceMesh((2,), ("dp",), rank_list=[1, 3])
    x = distribute_tensor(arange(4), mesh, [Shard(0)])
    if rank.index in (1, 3):
        assert_values(x.full_tensor(), np.arange(4.0))
