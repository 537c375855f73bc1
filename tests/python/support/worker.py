"""One rank of a pool: what its process runs.

It says that it is ready, then runs the calls that come until the connection is closed, and dies with the test process.
The process group lives from call to call; it is made anew when a call names another one. What depends on torch or
MindSpore in this is in `support.frameworks`.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import functools
import importlib
import multiprocessing
import os
import random
import signal
import sys
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from support.frameworks import framework
from support.protocol import Answer, Call, Failure, Group

_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Rank:
    """What a test body knows of its place: `index` of `size` ranks, and a `folder` that they all share."""

    index: int
    size: int
    folder: Path


def die_with_the_test_process() -> None:
    """Has the kernel kill this process when the fork server ends, which ends with the test process, however it does."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    parent = multiprocessing.parent_process()
    if parent is None or not parent.is_alive():
        sys.exit("the test process ended before this rank had started")


def write_to(log: Path) -> None:
    """Sends what this process and its C++ code print to a file."""
    with log.open("wb") as file:
        os.dup2(file.fileno(), sys.stdout.fileno())
        os.dup2(file.fileno(), sys.stderr.fileno())


def rewrite_assertions() -> None:
    """Lets a failed `assert` of a test module show its values here as it does under pytest."""
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    pytest.Config.fromdictargs({}, ["--noconftest", "-p", "no:cacheprovider", "-c", os.devnull])
    pytest.register_assert_rewrite("support.checks", "support.common", "support.platform_checks")


def join(group: Group, current: Group | None, rank: Rank) -> Group:
    """Makes `group` the default process group unless it is already."""
    if group != current:
        framework.join(group, rank.index, rank.size)
    return group


@contextlib.contextmanager
def environment(variables: dict[str, str]) -> Iterator[None]:
    """Sets environment variables, seen by C++ as well, for the duration of one call."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def run(call: Call, rank: Rank) -> Any:
    """Runs the function that `call` names; of a test decorated with `ranks` its body."""
    module = importlib.import_module(call.module)
    function: Any = functools.reduce(getattr, call.qualname.split("."), module)
    function = getattr(function, "body_on_ranks", function)
    random.seed(call.seed)
    framework.seed(call.seed)
    with environment(call.environment):
        return function(rank, *call.args, **call.kwargs)


def failed(error: BaseException, what: str = "") -> Answer:
    """The answer of a rank that raised, without the frames of this module."""
    here = [frame.filename for frame in traceback.extract_stack(limit=1)]
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename not in here]
    shown = "".join([*traceback.format_list(frames), *traceback.format_exception_only(error)])
    return Answer(failure=Failure(type(error).__name__, f"{what}{error}", shown))


def answer(call: Call, rank: Rank) -> Answer:
    """Runs `call`; whatever leaves the function is a failure of this rank, not the end of it."""
    try:
        return Answer(run(call, rank))
    except BaseException as error:
        return failed(error)


def send(connection: Connection, given: Answer) -> None:
    """Sends the answer; a value that cannot be pickled is this rank's failure."""
    try:
        connection.send(given)
    except Exception as error:
        connection.send(failed(error, "the value that the body returned cannot be sent: "))


def serve(connection: Connection, rank: Rank, log: Path) -> None:
    """Serves the test process until it closes the connection."""
    die_with_the_test_process()
    write_to(log)
    os.environ.pop("HYPER_PARALLEL_CHECK", None)
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    framework.prepare()
    rewrite_assertions()
    os.environ["HYPER_PARALLEL_STRICT"] = "1"  # a test that means the fallback says so
    send(connection, Answer())
    current: Group | None = None
    while True:
        try:
            call = connection.recv()
        except EOFError:
            return
        try:
            current = join(call.group, current, rank)
        except BaseException as error:
            current = None
            send(connection, failed(error, "the process group could not be made: "))
            continue
        send(connection, answer(call, rank))
