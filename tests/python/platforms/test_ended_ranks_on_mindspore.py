"""What the others see of a rank whose process ends or stands still, and what a save that was cut short leaves."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hyper_parallel import checkpoint

LIMIT = 100.0
"""Seconds that a job may take; three processes import MindSpore one after the other where there are few cores."""
SOON = 20.0
"""Seconds within which the end of a process is noticed: a second to ask, five for messages on their way, and load."""

BEGINNING = """
import ctypes, os, signal, sys, time
import mindspore
import numpy as np
from hyper_parallel import RaggedShard, checkpoint, distribute_tensor, init_device_mesh, platform
from hyper_parallel.mindspore._tensor_planners import TensorSavePlanner

folder, size = sys.argv[1], int(os.environ["WORLD_SIZE"])
mesh = init_device_mesh("cpu", (size,))
whole = mindspore.Tensor(np.arange(6.0 * size, dtype=np.float32).reshape(size, 6))
x = distribute_tensor(whole, mesh, [RaggedShard((0,), (1,) * size)])


def tell_error(call):
    begin = time.monotonic()
    try:
        call()
        print("done")
    except Exception as error:
        print(f"{time.monotonic() - begin:.1f} {type(error).__name__} {error}")
"""


def run_job(program: str, ranks: int, *arguments: object) -> list[str]:
    """What each rank prints last."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    where = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    settings = {"GLOG_v": "4", "OMP_NUM_THREADS": "1"}
    started = [
        subprocess.Popen(
            [sys.executable, "-c", program, *map(str, arguments)],
            env={**os.environ, **where, **settings, "RANK": str(index)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for index in range(ranks)
    ]
    end = time.monotonic() + LIMIT
    try:
        printed = [process.communicate(timeout=max(1.0, end - time.monotonic()))[0] for process in started]
    finally:
        for process in started:
            process.kill()
    said = [[line for line in text.splitlines() if line and "DISTRIBUTED(" not in line] for text in printed]
    return [lines[-1] if lines else "" for lines in said]


DIES = """
checkpoint.save({"x": x, "step": 1}, folder)
if mesh.get_rank() == 1:
    # A child that lives on has a copy of every connection.
    if os.fork() == 0:
        for number in (0, 1, 2):
            os.close(number)
        time.sleep(20)
        os._exit(0)
    os.kill(os.getpid(), signal.SIGKILL)
"""
CALLS = {
    "save": "checkpoint.save({'x': x * 2, 'step': 2}, folder)",
    "load": "checkpoint.load({'x': x}, folder, allow_extra=['*'])",
    "async_save": "checkpoint.async_save({'x': x * 2, 'step': 2}, folder).wait()",
}


@pytest.mark.timeout(LIMIT + 30)
@pytest.mark.parametrize("call", list(CALLS))
def test_those_who_wait_for_a_rank_that_has_died_soon_name_it(tmp_path: Path, call: str) -> None:
    program = f"{BEGINNING}{DIES}\ntell_error(lambda: {CALLS[call]})"
    printed = run_job(program, 3, tmp_path / "d")
    for index, waits_for in ((0, 1), (2, 0)):
        seconds, kind, text = printed[index].split(maxsplit=2)
        assert kind == "FailedPreconditionError", printed
        assert f"rank {index} got no message from rank {waits_for}: the process of rank" in text
        assert text.endswith("has ended")
        assert float(seconds) < SOON
    assert checkpoint.read(tmp_path / "d")["step"] == 1


DIES_WRITING = """
if mesh.get_rank() == 1:
    TensorSavePlanner.get_data = lambda planner, item: os.kill(os.getpid(), signal.SIGKILL)
tell_error(lambda: checkpoint.save({"x": x * 2, "step": 2}, folder))
"""


@pytest.mark.timeout(2 * LIMIT + 60)
def test_a_save_that_is_cut_short_is_never_seen_and_the_next_one_succeeds(tmp_path: Path) -> None:
    folder, fresh = tmp_path / "d", tmp_path / "fresh"
    save = f"{BEGINNING}\nfor at in (folder, folder + '2'): checkpoint.save({{'x': x, 'step': 1}}, at)\nprint('done')"
    assert run_job(save, 2, folder) == ["done", "done"]
    before = checkpoint.read(folder)["x"].asnumpy().tolist()
    for at in (folder, fresh):
        assert "the process of rank 1 has ended" in run_job(BEGINNING + DIES_WRITING, 2, at)[0]
    stored = checkpoint.read(folder)
    assert (stored["step"], stored["x"].asnumpy().tolist()) == (1, before)
    with pytest.raises(ValueError, match="there is no checkpoint"):
        checkpoint.read(fresh)
    again = f"{BEGINNING}\nfor at in sys.argv[1:]: checkpoint.save({{'x': x * 3, 'step': 3}}, at)\nprint('done')"
    assert run_job(again, 2, folder, fresh) == ["done", "done"]
    for at in (folder, fresh):
        assert checkpoint.read(at)["step"] == 3
    assert sorted(path.suffix for path in fresh.iterdir()) == sorted(
        path.suffix for path in Path(f"{folder}2").iterdir()
    ), "nothing is left of the save that was cut short"


STANDS_STILL = """
if mesh.get_rank() == 1:
    own = TensorSavePlanner.get_data
    # By this way to call it C's sleep lets no other thread of this Python run.
    TensorSavePlanner.get_data = lambda planner, item: (ctypes.PyDLL(None).sleep(12), own(planner, item))[1]
begin = time.monotonic()
checkpoint.save({"x": x}, folder)
assert time.monotonic() - begin > 11
print("done")
"""


@pytest.mark.timeout(LIMIT + 30)
def test_a_rank_that_is_slow_and_answers_nobody_is_waited_for(tmp_path: Path) -> None:
    assert run_job(BEGINNING + STANDS_STILL, 2, tmp_path / "d") == ["done", "done"]


COMES_LATE = """
import os, sys, time
from hyper_parallel import init_device_mesh
if os.environ["RANK"] == sys.argv[1]:
    time.sleep(8)
mesh = init_device_mesh("cpu", (3,))
print("in", flush=True)
"""


@pytest.mark.timeout(LIMIT + 30)
def test_rank_0_may_leave_first_for_it_stays_until_all_have_joined() -> None:
    assert run_job(COMES_LATE, 3, 2) == ["in", "in", "in"]


NEVER_COMES = """
import os, time
from datetime import timedelta
from hyper_parallel import init_device_mesh
from hyper_parallel.platform import _mindspore_launch
_mindspore_launch._JOIN = timedelta(seconds=5)
try:
    if os.environ["RANK"] != "1":
        init_device_mesh("cpu", (2,))
except Exception as error:
    print(type(error).__name__, error)
"""


@pytest.mark.timeout(LIMIT + 30)
def test_a_rank_that_never_comes_is_the_librarys_own_error() -> None:
    assert run_job(NEVER_COMES, 2)[0].startswith("FailedPreconditionError rank 0 of 2: rank 1 did not join the job")
