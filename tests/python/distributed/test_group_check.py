"""HYPER_PARALLEL_CHECK=1 where torch has more to compare; the rest is in `test_shared_group_check.py`."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

from hyper_parallel import DTensor, HyperParallelError, RaggedShard, Shard, distribute_tensor
from hyper_parallel.platform import differentiable_variable_all_gather
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
    "requires_grad of full_tensor": (
        lambda rank: distribute_tensor(
            torch.arange(4.0, requires_grad=rank.index == 0), make_mesh(2), [Shard(0)]
        ).full_tensor(),
        ("with gradient", "without gradient"),
    ),
    "shape of from_local on one rank alone": (
        lambda rank: DTensor.from_local(
            torch.zeros(2), make_mesh(2), [Shard(0)], shape=(4,) if rank.index == 0 else None
        ),
        ("shape (4,)", "no shape"),
    ),
    "dtype of the gather": (
        lambda rank: differentiable_variable_all_gather(
            torch.zeros(2, dtype=torch.float32 if rank.index == 0 else torch.int64), [2, 2], world()
        ),
        ("float", "long"),
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


@ranks(2, group_timeout=SHORT)
def test_without_the_check_the_peers_raise_at_the_groups_timeout(rank: Rank) -> None:
    x = distribute_tensor(torch.arange(4.0), make_mesh(2), [Shard(0)])
    if rank.index == 1:
        return
    with pytest.raises(RuntimeError) as caught:
        x.full_tensor()
    assert isinstance(caught.value, HyperParallelError)
    assert "rank 1" in str(caught.value)
