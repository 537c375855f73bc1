"""The pool of ranks itself, on plain torch.distributed: what a test may rely on when a rank raises, hangs or dies."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from hypothesis import strategies as st

from support.drawing import drawn
from support.pool import RankPool, RanksFailed
from support.ranks import ranks
from support.worker import Rank

SUPPORT_FOLDER = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def pool() -> Iterator[RankPool]:
    """A pool of these tests' own, which they may break."""
    with RankPool(2) as own:
        yield own


def sum_of_ranks(rank: Rank, factor: int = 1) -> float:
    total = torch.tensor([float(rank.index * factor)])
    dist.all_reduce(total)
    return total.item()


def raise_on(rank: Rank, failing: int) -> None:
    if rank.index == failing:
        raise KeyError("the body's own text")


def leave_a_message_behind(rank: Rank) -> None:
    if rank.index == 0:
        dist.isend(torch.full((1,), 13.0), dst=1)
    raise ValueError("a message is on its way")


def receive(rank: Rank) -> float:
    if rank.index == 0:
        dist.send(torch.full((1,), 42.0), dst=1)
        return 42.0
    received = torch.zeros(1)
    dist.recv(received, src=0)
    return received.item()


def return_a_lock(rank: Rank) -> object:
    return threading.Lock()


def fail_an_assertion(rank: Rank) -> None:
    answer = 6 * 7
    assert answer == rank.index - 1


def pid(rank: Rank) -> int:
    return os.getpid()


def random_numbers(rank: Rank) -> tuple[float, float]:
    return torch.rand(1).item(), random.random()


def read_check_variable(rank: Rank) -> str | None:
    return os.environ.get("HYPER_PARALLEL_CHECK")


def time_out_in_a_barrier(rank: Rank) -> str:
    if rank.index == 1:
        return "did not come"
    with pytest.raises(RuntimeError) as caught:
        dist.barrier()
    return str(caught.value)


def threads_of_the_fork_server(rank: Rank) -> list[str]:
    return os.listdir(f"/proc/{os.getppid()}/task")


def what_runs_here(rank: Rank) -> tuple[str, int, str]:
    return dist.get_backend(), torch.get_num_threads(), os.environ["GLOO_SOCKET_IFNAME"]


def test_run_returns_what_each_rank_returned(pool: RankPool) -> None:
    assert pool.run(sum_of_ranks, factor=5) == [5.0, 5.0]
    assert pool.run(what_runs_here) == [("gloo", 1, "lo")] * 2


def test_ranks_are_forked_from_a_process_without_other_threads(pool: RankPool) -> None:
    assert [len(tasks) for tasks in pool.run(threads_of_the_fork_server)] == [1, 1]


def test_processes_live_from_call_to_call(pool: RankPool) -> None:
    first = pool.run(pid)
    assert pool.run(pid) == first == pool.pids


def test_an_exception_names_rank_text_and_line_and_keeps_the_processes(pool: RankPool) -> None:
    first = pool.run(pid)
    with pytest.raises(RanksFailed) as caught:
        pool.run(raise_on, 1)
    assert 'rank 1 raised KeyError: "the body\'s own text"' in str(caught.value)
    assert 'raise KeyError("the body\'s own text")' in str(caught.value)
    assert list(caught.value.failures) == [1]
    assert caught.value.failures[1].kind == "KeyError"
    assert pool.run(pid) == first
    assert pool.run(sum_of_ranks) == [1.0, 1.0]


def test_ranks_that_fail_alike_are_named_together(pool: RankPool) -> None:
    with pytest.raises(RanksFailed) as caught:
        pool.run(leave_a_message_behind)
    assert str(caught.value).count("rank 0, 1 raised ValueError: a message is on its way") == 1


def test_a_failed_assertion_shows_its_values(pool: RankPool) -> None:
    with pytest.raises(RanksFailed, match=r"assert 42 == \(0 - 1\)"):
        pool.run(fail_an_assertion)


def test_a_message_of_a_failed_call_does_not_reach_the_next(pool: RankPool) -> None:
    with pytest.raises(RanksFailed):
        pool.run(leave_a_message_behind)
    assert pool.run(receive) == [42.0, 42.0]


def test_a_value_that_cannot_be_sent_is_a_failure(pool: RankPool) -> None:
    with pytest.raises(RanksFailed, match="the value that the body returned cannot be sent"):
        pool.run(return_a_lock)
    assert pool.run(sum_of_ranks) == [1.0, 1.0]


def test_seeds_are_fixed_by_the_body_or_given(pool: RankPool) -> None:
    first = pool.run(random_numbers)
    assert first[0] == first[1]
    assert pool.run(random_numbers) == first
    assert pool.run(random_numbers, seed=5) != first


def test_the_check_is_on_for_one_call(pool: RankPool) -> None:
    assert pool.run(read_check_variable, check=True) == ["1", "1"]
    assert pool.run(read_check_variable) == [None, None]


def test_a_group_of_its_own_has_its_timeout_and_ends_with_the_call(pool: RankPool) -> None:
    started = time.monotonic()
    texts = pool.run(time_out_in_a_barrier, group_timeout=timedelta(seconds=1))
    assert time.monotonic() - started < 8
    assert texts[1] == "did not come"
    assert texts[0] != ""
    assert pool.run(sum_of_ranks) == [1.0, 1.0]


def test_ranks_die_with_the_process_that_started_them(tmp_path: Path) -> None:
    program = tmp_path / "starts_and_dies.py"
    program.write_text(
        textwrap.dedent(
            f"""
            import os, sys
            sys.path[:0] = [{str(SUPPORT_FOLDER)!r}, {str(Path(__file__).parent)!r}]
            import test_pool
            from support.pool import RankPool
            if __name__ == "__main__":
                pool = RankPool(2)
                pool.run(test_pool.pid)
                print(*pool.pids, flush=True)
                os._exit(0)
            """
        )
    )
    output = subprocess.run(
        [sys.executable, program],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
        timeout=50,
    ).stdout
    pids = [int(text) for text in output.split()]
    assert len(pids) == 2
    deadline = time.monotonic() + 5
    while any(Path(f"/proc/{process}/cmdline").exists() for process in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not [process for process in pids if is_running(process)]


def is_running(process: int) -> bool:
    """Whether it is there and no zombie, which its new parent may leave for a while."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


@ranks(2, 4)
@pytest.mark.parametrize("factor", [1, 3])
def test_decorated_body_runs_on_every_rank(rank: Rank, factor: int) -> None:
    assert sum_of_ranks(rank, factor) == factor * rank.size * (rank.size - 1) / 2


@drawn(examples=5, factor=st.integers(0, 9))
@ranks(2)
def test_drawn_values_are_the_same_on_every_rank(rank: Rank, factor: int) -> None:
    seen: list[int] = [0] * rank.size
    dist.all_gather_object(seen, factor)
    assert seen == [factor] * rank.size


@ranks(2, check=True)
def test_decorated_body_has_the_check_on(rank: Rank) -> None:
    assert os.environ["HYPER_PARALLEL_CHECK"] == "1"
