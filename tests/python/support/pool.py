"""A pool of ranks: processes that form one group of their framework, started once and used by many tests.

`RankPool.run` runs a function on every rank and returns what each returned. A rank that raises, dies or does not answer
in time makes `run` raise `RanksFailed`. What is left of a pool after that is not trusted: a rank that is still inside a
call is killed together with its peers and the pool starts anew with the next call; if all have answered they keep their
processes and get a fresh process group, in which no message of the failed call can be on its way. Where a process can
be in one group only, a fresh group takes fresh processes.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import shutil
import signal
import tempfile
import time
import zlib
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, Self

from support.frameworks import framework
from support.protocol import GROUP_TIMEOUT, Answer, Call, Failure, Group
from support.worker import Rank, serve

CALL_LIMIT = 30.0
"""Seconds that one call may take on all ranks."""
START_LIMIT = 180.0
"""Seconds until every process has imported its framework, which may wait for the disk."""
GRACE_AFTER_FAILURE = 2.0
"""Seconds that the others get once a rank has failed: they may be waiting for it in a collective."""
_STACK_DUMP_SECONDS = 0.3
_LOG_TAIL = 4000

# Forks the ranks from a process that has imported the framework and nothing has run in: no thread is lost by the fork,
# and a killed pool is there again in no time.
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(framework.PRELOAD)


class RanksFailed(Exception):
    """Some ranks raised, died or did not answer. `failures` holds those that raised, by rank."""

    def __init__(self, message: str, failures: dict[int, Failure]) -> None:
        super().__init__(message)
        self.failures = failures


class _Process:
    """One rank's process, the connection to it and its log."""

    def __init__(self, index: int, size: int, folder: Path) -> None:
        self.index = index
        self.log = folder / f"rank{index}.log"
        self.connection, theirs = _CONTEXT.Pipe()
        self.process = _CONTEXT.Process(
            target=serve, args=(theirs, Rank(index, size, folder), self.log), name=f"rank {index} of {size}"
        )
        self.process.start()
        theirs.close()

    def dump_stacks(self) -> None:
        if self.process.is_alive() and self.process.pid is not None:
            with contextlib.suppress(ProcessLookupError):  # it may die at any moment
                os.kill(self.process.pid, signal.SIGUSR1)

    def log_tail(self) -> str:
        return self.log.read_bytes()[-_LOG_TAIL:].decode(errors="replace") if self.log.exists() else ""

    def kill(self) -> None:
        self.process.kill()
        self.process.join()
        self.connection.close()


class RankPool:
    """`size` processes, started by the first call."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._folder: Path | None = None
        self._processes: list[_Process] = []
        self._group: Group | None = None
        self._groups_made = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pids(self) -> list[int]:
        """The processes, by rank; empty before the first call and after a kill."""
        return [process.process.pid for process in self._processes if process.process.pid is not None]

    def run(
        self,
        body: Callable[..., Any],
        *args: Any,
        check: bool = False,
        group_timeout: timedelta | None = None,
        limit: float = CALL_LIMIT,
        seed: int | None = None,
        **kwargs: Any,
    ) -> list[Any]:
        """Runs `body(rank, *args, **kwargs)` on every rank.

        Args:
            body: A function of a module, found in the ranks' processes by module and name.
            args: Handed on, pickled.
            check: Sets HYPER_PARALLEL_CHECK=1 for this call.
            group_timeout: A group of this call's own with that timeout. For bodies that leave the group unusable.
            limit: Seconds after which the ranks that have not answered are killed.
            seed: Of the framework and random on every rank; by default a fixed one for each body.
            kwargs: Handed on, pickled.

        Returns:
            What each rank returned, by rank.

        Raises:
            RanksFailed: A rank raised, died or did not answer.
        """
        self._start(needs_group=self._group is None or group_timeout is not None)
        call = Call(
            body.__module__,
            body.__qualname__,
            args,
            kwargs,
            self._group_of_call(group_timeout),
            zlib.crc32(body.__qualname__.encode()) if seed is None else seed,
            {"HYPER_PARALLEL_CHECK": "1"} if check else {},
        )
        for process in self._processes:
            # A rank that has died since its last answer is reported as one that gave none.
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                process.connection.send(call)
        answers = self._collect(limit)
        self._check(body.__qualname__, answers, limit)
        return [answers[rank].value for rank in range(self.size)]

    def stop(self) -> None:
        """Kills the processes, each by its pid."""
        for process in self._processes:
            process.kill()
        self._processes = []
        self._group = None
        self._groups_made = 0
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def _start(self, *, needs_group: bool) -> None:
        """Starts processes unless those that are there will do."""
        spent = needs_group and self._groups_made > 0 and not framework.REJOINS
        if self._processes and not spent:
            return
        self.stop()
        self._folder = Path(tempfile.mkdtemp(prefix="hyper_parallel_ranks_"))
        self._processes = [_Process(index, self.size, self._folder) for index in range(self.size)]
        self._check("the start", self._collect(START_LIMIT), START_LIMIT)

    def _group_of_call(self, own_timeout: timedelta | None) -> Group:
        """The group that the calls share, or a fresh one."""
        if self._group is not None and own_timeout is None:
            return self._group
        assert self._folder is not None
        self._groups_made += 1
        fresh = Group(str(self._folder / f"rendezvous{self._groups_made}"), own_timeout or GROUP_TIMEOUT)
        self._group = fresh if own_timeout is None else None
        return fresh

    def _collect(self, limit: float) -> dict[int, Answer]:
        """The answers that come in time. Ends early where a rank is dead, and soon after one has failed."""
        waiting = {process.connection: process for process in self._processes}
        answers: dict[int, Answer] = {}
        deadline = time.monotonic() + limit
        while waiting and (left := deadline - time.monotonic()) > 0:
            for connection in wait(list(waiting), timeout=left):
                process = waiting.pop(connection)  # type: ignore[call-overload]
                try:
                    answers[process.index] = process.connection.recv()
                    failed = answers[process.index].failure is not None
                except (EOFError, ConnectionResetError):
                    failed = True
                if failed:
                    deadline = min(deadline, time.monotonic() + GRACE_AFTER_FAILURE)
        return answers

    def _check(self, what: str, answers: dict[int, Answer], limit: float) -> None:
        """Raises unless every rank has answered, and none with a failure."""
        failures = {rank: given.failure for rank, given in answers.items() if given.failure is not None}
        if len(answers) == self.size and not failures:
            return
        self._group = None
        message = self._describe(what, answers, failures, limit)
        if len(answers) < self.size:
            self.stop()
        raise RanksFailed(message, failures)

    def _describe(self, what: str, answers: dict[int, Answer], failures: dict[int, Failure], limit: float) -> str:
        parts = [f"{what} failed on {self.size} ranks"]
        silent = [process for process in self._processes if process.index not in answers]
        if silent:
            for process in silent:
                process.dump_stacks()
            time.sleep(_STACK_DUMP_SECONDS)
            answered = ", ".join(str(rank) for rank in sorted(answers)) or "none"
            parts[0] += f"; answered: {answered}; not: {', '.join(str(process.index) for process in silent)}"
        alike: dict[Failure, list[int]] = {}
        for rank, failure in sorted(failures.items()):
            alike.setdefault(failure, []).append(rank)
        for failure, ranks in alike.items():
            who = ", ".join(str(rank) for rank in ranks)
            parts.append(f"rank {who} raised {failure.kind}: {failure.text}\n{failure.traceback}")
        for process in silent:
            code = process.process.exitcode
            state = f"was still running ({limit:g} s limit)" if code is None else f"died with exit code {code}"
            parts.append(f"rank {process.index} {state}\n{process.log_tail()}")
        return "\n".join(parts)


class RankPools:
    """The pools of a test session, by size."""

    def __init__(self) -> None:
        self._pools: dict[int, RankPool] = {}

    def __getitem__(self, size: int) -> RankPool:
        return self._pools.setdefault(size, RankPool(size))

    def stop(self) -> None:
        """Kills all processes of all pools."""
        for pool in self._pools.values():
            pool.stop()
