"""HYPER_PARALLEL_CHECK=1: what differs between ranks raises on every one of them and prints both sides."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

from hyper_parallel import DTensor, HyperParallelError, RaggedShard, Replicate, Shard, distribute_tensor
from hyper_parallel.platform import differentiable_all_to_all_single, differentiable_variable_all_gather
from support.checks import assert_equal, make_mesh
from support.ranks import ranks
from support.worker import Rank

SHORT = timedelta(seconds=2)


def world() -> dist.ProcessGroup:
    group = dist.group.WORLD
    assert group is not None
    return group


def raised_everywhere(rank: Rank, action: Callable[[], object]) -> str:
    """The text with which `action` raised, after making sure that it raised soon and on every rank."""
    started = time.monotonic()
    with pytest.raises(HyperParallelError) as caught:
        action()
    assert time.monotonic() - started < 5, "the check raises at once, not at the group's timeout"
    texts: list[str] = [""] * rank.size
    dist.all_gather_object(texts, str(caught.value))
    assert all(texts)
    return str(caught.value)


DIFFERENCES: dict[str, tuple[Callable[[Rank], object], tuple[str, str]]] = {
    "units of redistribute": (
        lambda rank: distribute_tensor(torch.arange(8.0), make_mesh(2), [Shard(0)]).redistribute(
            [RaggedShard((0,), (1, 3) if rank.index == 0 else (3, 1))]
        ),
        ("(1, 3)", "(3, 1)"),
    ),
    "layouts of full_tensor": (
        lambda rank: distribute_tensor(
            torch.arange(4.0), make_mesh(2), [Shard(0) if rank.index == 0 else RaggedShard((0,), (1, 3))]
        ).full_tensor(),
        ("Shard(0)", "RaggedShard((0,), (1, 3))"),
    ),
    "dtype of full_tensor": (
        lambda rank: distribute_tensor(
            torch.arange(4, dtype=torch.float32 if rank.index == 0 else torch.float64), make_mesh(2), [Shard(0)]
        ).full_tensor(),
        ("Float", "Double"),
    ),
    "requires_grad of full_tensor": (
        lambda rank: distribute_tensor(
            torch.arange(4.0, requires_grad=rank.index == 0), make_mesh(2), [Shard(0)]
        ).full_tensor(),
        ("with gradient", "without gradient"),
    ),
    "shape of from_local": (
        lambda rank: (
            DTensor.from_local(torch.zeros(2), make_mesh(2), [Shard(0)], shape=(4 - rank.index,))
            if rank.index == 0
            else DTensor.from_local(torch.zeros(1), make_mesh(2), [Shard(0)], shape=(3,))
        ),
        ("(4,)", "(3,)"),
    ),
    "placements of from_local without a shape": (
        lambda rank: DTensor.from_local(torch.zeros(2), make_mesh(2), [Shard(0) if rank.index == 0 else Replicate()]),
        ("Shard(0)", "Replicate()"),
    ),
    "dtype of from_local without a shape": (
        lambda rank: DTensor.from_local(
            torch.zeros(2, dtype=torch.float32 if rank.index == 0 else torch.float64), make_mesh(2), [Shard(0)]
        ),
        ("Float", "Double"),
    ),
    "dims of from_local without a shape": (
        lambda rank: DTensor.from_local(torch.zeros((2,) * (1 + rank.index)), make_mesh(2), [Shard(0)]),
        ("1 dims", "2 dims"),
    ),
    "shape of from_local on one rank alone": (
        lambda rank: DTensor.from_local(
            torch.zeros(2), make_mesh(2), [Shard(0)], shape=(4,) if rank.index == 0 else None
        ),
        ("shape (4,)", "no shape"),
    ),
    "operations": (
        lambda rank: (
            distribute_tensor(torch.arange(4.0), make_mesh(2), [Shard(0)]).full_tensor()
            if rank.index == 0
            else distribute_tensor(torch.arange(4.0), make_mesh(2), [Shard(0)]).redistribute([Replicate()])
        ),
        ("full_tensor", "redistribute"),
    ),
    "source of distribute_tensor": (
        lambda rank: distribute_tensor(torch.arange(4.0), make_mesh(2), [Shard(0)], src_data_rank=rank.index),
        ("from 0", "from 1"),
    ),
    "row index": (
        lambda rank: distribute_tensor(torch.zeros(4, 2), make_mesh(2), [Shard(0)])[rank.index],
        ("0 of", "1 of"),
    ),
    "splits of the gather": (
        lambda rank: differentiable_variable_all_gather(torch.zeros(2), [2, 2] if rank.index == 0 else [1, 2], world()),
        ("(2, 2)", "(1, 2)"),
    ),
    "dtype of the gather": (
        lambda rank: differentiable_variable_all_gather(
            torch.zeros(2, dtype=torch.float32 if rank.index == 0 else torch.int64), [2, 2], world()
        ),
        ("float", "long"),
    ),
    "row shape of the exchange": (
        lambda rank: differentiable_all_to_all_single(torch.zeros(2, 1 + rank.index), [1, 1], [1, 1], world()),
        ("(1,)", "(2,)"),
    ),
    "splits of the exchange": (
        lambda rank: differentiable_all_to_all_single(
            torch.zeros(4), [1, 3] if rank.index == 0 else [2, 2], [1, 2] if rank.index == 0 else [2, 2], world()
        ),
        ("sends 3 rows", "expects 2"),
    ),
}


@pytest.mark.parametrize("difference", list(DIFFERENCES))
@ranks(2, check=True)
def test_a_difference_raises_on_every_rank_and_prints_both_sides(rank: Rank, difference: str) -> None:
    action, sides = DIFFERENCES[difference]
    text = raised_everywhere(rank, lambda: action(rank))
    assert "rank 0" in text
    assert "rank 1" in text
    for side in sides:
        assert side.lower() in text.lower()


@ranks(4, check=True)
def test_the_odd_one_out_is_told_from_the_others(rank: Rank) -> None:
    placement = Shard(0) if rank.index == 2 else Replicate()
    text = raised_everywhere(rank, lambda: distribute_tensor(torch.zeros(4), make_mesh(4), [placement]).full_tensor())
    assert "rank 0, 1, 3" in text
    assert "rank 2" in text


@ranks(2, check=True)
def test_a_fault_of_one_rank_raises_on_all_and_says_whose_it_is(rank: Rank) -> None:
    local = torch.zeros(4 if rank.index == 0 else 5)
    text = raised_everywhere(rank, lambda: DTensor(local, make_mesh(2), [RaggedShard((0,), (1, 1))], shape=(8,)))
    assert "local has 5 elements but rank 1 owns 4" in text


@ranks(2, check=True)
def test_a_kind_of_local_that_is_none_raises_on_all_without_a_shape(rank: Rank) -> None:
    local = torch.ones(2, dtype=torch.complex64)
    odd = local.conj() if rank.index == 1 else local
    text = raised_everywhere(rank, lambda: DTensor.from_local(odd, make_mesh(2), [Shard(0)]))
    assert "rank 1" in text or rank.index == 1
    assert "lazy conjugate" in text


@ranks(2, check=True)
def test_equal_calls_pass_and_give_the_same_values(rank: Rank) -> None:
    mesh = make_mesh(2)
    x = distribute_tensor(torch.arange(8.0, requires_grad=True), mesh, [RaggedShard((0,), (1, 3))], src_data_rank=1)
    for _ in range(20):
        assert_equal(x.redistribute([Shard(0)]).full_tensor().detach(), torch.arange(8.0))
    (x * x).full_tensor().sum().backward()
    assert x.grad is not None
    assert_equal(x.grad.full_tensor(), torch.arange(8.0) * 4)


@ranks(2, check=True, group_timeout=SHORT)
def test_a_rank_that_never_came_is_named(rank: Rank) -> None:
    x = distribute_tensor(torch.arange(4.0), make_mesh(2), [Shard(0)])
    if rank.index == 1:
        return
    started = time.monotonic()
    with pytest.raises(RuntimeError, match="rank 1 of 2 did not come within 2000 ms") as caught:
        x.full_tensor()
    assert isinstance(caught.value, HyperParallelError)
    assert time.monotonic() - started < 6


@ranks(2, group_timeout=SHORT)
def test_without_the_check_the_peers_raise_at_the_groups_timeout(rank: Rank) -> None:
    x = distribute_tensor(torch.arange(4.0), make_mesh(2), [Shard(0)])
    if rank.index == 1:
        return
    with pytest.raises(RuntimeError) as caught:
        x.full_tensor()
    assert isinstance(caught.value, HyperParallelError)
    assert "rank 1" in str(caught.value)


@ranks(2)
def test_the_variable_is_read_at_each_call_and_checked(rank: Rank) -> None:
    x = distribute_tensor(torch.arange(4.0), make_mesh(2), [Shard(0)])
    before = os.environ.get("HYPER_PARALLEL_CHECK")
    os.environ["HYPER_PARALLEL_CHECK"] = "yes"
    try:
        with pytest.raises(ValueError, match="HYPER_PARALLEL_CHECK is 'yes' but must be 0 or 1"):
            x.full_tensor()
    finally:
        del os.environ["HYPER_PARALLEL_CHECK"]
        if before is not None:
            os.environ["HYPER_PARALLEL_CHECK"] = before
    assert_equal(x.full_tensor(), torch.arange(4.0))


@ranks(4, check=True)
def test_ranks_outside_the_mesh_are_not_waited_for(rank: Rank) -> None:
    mesh = type(make_mesh(4))((2,), ("dp",), rank_list=[1, 3])
    x = distribute_tensor(torch.arange(4.0), mesh, [Shard(0)])
    if rank.index in (1, 3):
        assert_equal(x.full_tensor(), torch.arange(4.0))
