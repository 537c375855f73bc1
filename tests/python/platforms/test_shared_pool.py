"""What a test may rely on when a rank raises, hangs or dies, on either platform."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterator

import pytest

from support.frameworks import framework
from support.pool import RankPool, RanksFailed
from support.worker import Rank


@pytest.fixture(scope="module")
def pool() -> Iterator[RankPool]:
    """A pool of these tests' own, which they may break."""
    with RankPool(2) as own:
        yield own


def sum_of_ranks(rank: Rank, factor: int = 1) -> float:
    return framework.sum_over_ranks(float(rank.index * factor))


def raise_on(rank: Rank, failing: int) -> None:
    if rank.index == failing:
        raise KeyError("the body's own text")


def hang_on(rank: Rank, hanging: int) -> None:
    if rank.index == hanging:
        threading.Event().wait()


def die_on(rank: Rank, dying: int) -> None:
    if rank.index == dying:
        os._exit(7)


def wait_for_a_rank_that_raised(rank: Rank) -> None:
    if rank.index == 1:
        raise ValueError("not coming")
    framework.sum_over_ranks(1.0)


def pid_and_random(rank: Rank) -> tuple[int, float]:
    return os.getpid(), random.random()


def test_run_returns_what_each_rank_returned_from_processes_that_live_on(pool: RankPool) -> None:
    assert pool.run(sum_of_ranks, factor=5) == [5.0, 5.0]
    first = pool.run(pid_and_random)
    assert first == pool.run(pid_and_random)
    assert [process for process, _ in first] == pool.pids
    assert first[0][1] == first[1][1], "one seed on all ranks"


def test_an_exception_names_rank_text_and_line(pool: RankPool) -> None:
    with pytest.raises(RanksFailed) as caught:
        pool.run(raise_on, 1)
    assert 'rank 1 raised KeyError: "the body\'s own text"' in str(caught.value)
    assert 'raise KeyError("the body\'s own text")' in str(caught.value)
    assert list(caught.value.failures) == [1]
    assert pool.run(sum_of_ranks) == [1.0, 1.0]


def test_a_rank_that_hangs_is_named_and_the_next_call_has_a_new_pool(pool: RankPool) -> None:
    pool.run(sum_of_ranks)
    before = pool.pids
    started = time.monotonic()
    with pytest.raises(
        RanksFailed, match=r"answered: 0; not: 1(.|\n)*rank 1 was still running \(0.5 s limit\)"
    ) as caught:
        pool.run(hang_on, 1, limit=0.5)
    assert "in hang_on" in str(caught.value), "the stack of the rank that hangs"
    assert time.monotonic() - started < 5
    for process in before:
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)
    assert pool.run(sum_of_ranks) == [1.0, 1.0]


def test_a_rank_that_dies_is_named_with_its_exit_code(pool: RankPool) -> None:
    with pytest.raises(RanksFailed, match=r"answered: 0; not: 1(.|\n)*rank 1 died with exit code 7"):
        pool.run(die_on, 1)
    assert pool.run(sum_of_ranks) == [1.0, 1.0]


def test_ranks_that_wait_for_a_failed_one_are_given_up_soon(pool: RankPool) -> None:
    pool.run(sum_of_ranks)
    started = time.monotonic()
    with pytest.raises(RanksFailed, match=r"answered: 1; not: 0(.|\n)*rank 1 raised ValueError: not coming"):
        pool.run(wait_for_a_rank_that_raised)
    assert time.monotonic() - started < 6
    assert pool.run(sum_of_ranks) == [1.0, 1.0]
