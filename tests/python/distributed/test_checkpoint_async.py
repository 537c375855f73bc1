"""Saving in the background: the snapshot, the handle, what waits for what, and errors."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from hyper_parallel import (
    DTensor,
    FailedPreconditionError,
    Partial,
    RaggedShard,
    Replicate,
    Shard,
    checkpoint,
    distribute_tensor,
)
from support.checkpoints import (
    FailingWriter,
    ForwardingWriter,
    GatedWriter,
    content_of,
    data_files,
    local_of,
    raised_everywhere,
    random_bits,
    stored_bytes,
)
from support.checks import assert_equal, make_mesh
from support.ranks import ranks
from support.values import numbered
from support.worker import Rank


def all_kinds(size: int) -> dict[str, torch.Tensor]:
    """The same values under every kind of layout."""
    mesh = make_mesh(size)
    whole = numbered((8, 3))
    units = {1: (4,), 2: (1, 3), 4: (0, 3, 0, 1)}[size]
    return {
        "plain": whole.clone(),
        "transposed": whole.t().contiguous().t(),
        "slice of a slice": numbered((10, 5))[1:9, 1:4],
        "replicated": distribute_tensor(whole, mesh, [Replicate()]),
        "sharded": distribute_tensor(whole, mesh, [Shard(0)]),
        "columns": distribute_tensor(whole, mesh, [Shard(1)]),
        "ragged": distribute_tensor(whole, mesh, [RaggedShard((0,), units)]),
        "parameter": torch.nn.Parameter(distribute_tensor(whole, mesh, [RaggedShard((0,), units)])),
    }


@pytest.mark.parametrize("gated", [True, False], ids=["slow", "fast"])
@ranks(1, 2, 4)
def test_the_snapshot_is_taken_before_the_call_returns(rank: Rank, gated: bool, tmp_path: Path) -> None:
    state = all_kinds(rank.size)
    expected = {name: numbered((8, 3)) for name in state} | {"slice of a slice": numbered((10, 5))[1:9, 1:4].clone()}
    writer = GatedWriter(tmp_path / "d") if gated else checkpoint.FileSystemWriter(tmp_path / "d")
    handle = checkpoint.async_save(state, storage_writer=writer)
    with torch.no_grad():
        for tensor in state.values():
            local_of(tensor).fill_(-9)
    if isinstance(writer, GatedWriter):
        writer.may_write.set()
    handle.wait()
    loaded = checkpoint.read(tmp_path / "d")
    for name, whole in expected.items():
        assert_equal(loaded[name], whole)


@ranks(2)
def test_values_and_containers_are_taken_too(rank: Rank, tmp_path: Path) -> None:
    items, groups = [torch.ones(1), 1], [{"lr": 0.1}]
    state: dict[str, Any] = {"items": items, "groups": groups, "n": 1}
    writer = GatedWriter(tmp_path / "d")
    handle = checkpoint.async_save(state, storage_writer=writer)
    items[1] = 2
    items.append(3)
    groups[0]["lr"] = 0.5
    state["n"] = 2
    del state["items"]
    writer.may_write.set()
    handle.wait()
    loaded = checkpoint.read(tmp_path / "d")
    assert loaded["items"][0].tolist() == [1]
    assert loaded["items"][1:] == [1]
    assert loaded["groups"] == [{"lr": 0.1}]
    assert loaded["n"] == 1


@ranks(2)
def test_the_next_snapshot_does_not_write_over_the_last(rank: Rank, tmp_path: Path) -> None:
    """They use one piece of memory."""
    w = torch.zeros(1000)
    handles = []
    for step in range(6):
        w.fill_(step)
        handles.append(checkpoint.async_save({"w": w, "step": step}, tmp_path / f"d{step}"))
        w.fill_(-9)
    for step, handle in enumerate(handles):
        handle.wait()
        assert_equal(checkpoint.read(tmp_path / f"d{step}")["w"], torch.full((1000,), float(step)))


@ranks(2)
def test_a_handle_says_when_it_has_ended(rank: Rank, tmp_path: Path) -> None:
    writer = GatedWriter(tmp_path / "d")
    handle = checkpoint.async_save({"w": torch.ones(2)}, storage_writer=writer)
    assert not handle.done()
    started = time.monotonic()
    with pytest.raises(TimeoutError):
        handle.wait(timeout=0.2)
    assert 0.1 < time.monotonic() - started < 2
    assert not handle.done()
    assert not (tmp_path / "d" / ".metadata").exists()
    writer.may_write.set()
    assert handle.wait(timeout=20) is None
    assert handle.done()
    assert handle.exception() is None
    assert handle.wait() is None
    assert checkpoint.read(tmp_path / "d")["w"].tolist() == [1, 1]


@pytest.mark.parametrize("failing", [0, 1])
@ranks(2)
def test_an_error_surfaces_on_every_rank_and_each_time(rank: Rank, failing: int, tmp_path: Path) -> None:
    checkpoint.save({"w": torch.ones(2)}, tmp_path / "d")
    before = content_of(tmp_path / "d")
    kind = FailingWriter if rank.index == failing else ForwardingWriter
    handle = checkpoint.async_save({"w": torch.zeros(2)}, storage_writer=kind(tmp_path / "d"))
    first = raised_everywhere(rank, Exception, handle.wait, f"rank {failing}", "the disk of a test is full")
    assert handle.done()
    assert str(handle.exception()) == first
    assert raised_everywhere(rank, Exception, lambda: handle.wait(timeout=1)) == first
    assert content_of(tmp_path / "d") == before
    # It is over: the next one runs.
    checkpoint.async_save({"w": torch.full((2,), 5.0)}, tmp_path / "d").wait()
    assert checkpoint.read(tmp_path / "d")["w"].tolist() == [5, 5]


@ranks(2)
def test_what_can_be_known_before_raises_at_once(rank: Rank, tmp_path: Path) -> None:
    pending = DTensor.from_local(torch.ones(2), make_mesh(2), [Partial()])
    raised_everywhere(rank, ValueError, lambda: checkpoint.async_save({"p": pending}, tmp_path / "d"), "'p'", "Partial")
    (tmp_path / "file").touch()
    raised_everywhere(rank, ValueError, lambda: checkpoint.async_save({"w": torch.ones(1)}, tmp_path / "file"))
    checkpoint.async_save({"w": torch.ones(2)}, tmp_path / "d").wait()
    assert checkpoint.read(tmp_path / "d")["w"].tolist() == [1, 1]


@pytest.mark.parametrize("second", ["save", "async_save", "load", "read"])
@ranks(2)
def test_whatever_comes_second_waits_for_the_first(rank: Rank, second: str, tmp_path: Path) -> None:
    """`read` belongs to no job and sees the old checkpoint or the new one."""
    checkpoint.save({"w": torch.zeros(2)}, tmp_path / "d")
    writer = GatedWriter(tmp_path / "d")
    first = checkpoint.async_save({"w": torch.ones(2)}, storage_writer=writer)
    if second == "read":
        assert checkpoint.read(tmp_path / "d")["w"].tolist() == [0, 0]
        writer.may_write.set()
        first.wait()
        assert checkpoint.read(tmp_path / "d")["w"].tolist() == [1, 1]
        return
    threading.Timer(0.4, writer.may_write.set).start()
    if second == "load":
        state = {"w": torch.full((2,), -9.0)}
        checkpoint.load(state, tmp_path / "d")
        assert first.done()
        assert state["w"].tolist() == [1, 1]
    else:
        handle = getattr(checkpoint, second)({"w": torch.full((2,), 2.0)}, tmp_path / "d")
        assert first.done()
        if handle is not None:
            handle.wait()
        assert checkpoint.read(tmp_path / "d")["w"].tolist() == [2, 2]
    first.wait()


@ranks(2)
def test_the_second_runs_though_the_first_failed(rank: Rank, tmp_path: Path) -> None:
    first = checkpoint.async_save({"w": torch.ones(2)}, storage_writer=FailingWriter(tmp_path / "d"))
    second = checkpoint.async_save({"w": torch.zeros(2)}, tmp_path / "d")
    second.wait()
    raised_everywhere(rank, Exception, first.wait, "the disk of a test is full")
    assert checkpoint.read(tmp_path / "d")["w"].tolist() == [0, 0]


@ranks(2)
def test_communication_of_the_program_does_not_mix_with_that_of_the_save(rank: Rank, tmp_path: Path) -> None:
    """The ranks' background threads reach their rounds at different times, between any of the program's operations."""
    x = distribute_tensor(numbered((6, 4)), make_mesh(2), [RaggedShard((0,), (1, 2))])
    for repeat in range(3):
        writer = GatedWriter(tmp_path / "d")
        handle = checkpoint.async_save({"x": x, "repeat": repeat}, storage_writer=writer)
        late = threading.Timer(0.02 + 0.1 * (rank.index == repeat % 2), writer.may_write.set)
        late.start()
        count = 0
        deadline = time.monotonic() + 0.3
        while True:
            total = torch.tensor([float(rank.index + count)])
            dist.all_reduce(total)
            assert total.item() == 2 * count + 1
            assert_equal(x.full_tensor(), numbered((6, 4)))
            count += 1
            more = torch.tensor([float(time.monotonic() < deadline)])
            dist.all_reduce(more)
            if more.item() == 0:
                break
        handle.wait()
        late.join()
        assert count > 5
        assert checkpoint.read(tmp_path / "d")["repeat"] == repeat
        dist.barrier()


@ranks(4)
def test_ranks_without_a_byte_take_part(rank: Rank, tmp_path: Path) -> None:
    whole = random_bits((8, 3), torch.float32)
    x = distribute_tensor(whole, make_mesh(4), [RaggedShard((0,), (0, 0, 1, 0))])
    checkpoint.async_save({"x": x}, tmp_path / "d").wait()
    assert len(data_files(tmp_path / "d")) == 1
    assert stored_bytes(tmp_path / "d") == whole.nbytes


@ranks(2)
def test_a_handle_that_nobody_keeps_is_a_save_all_the_same(rank: Rank, tmp_path: Path) -> None:
    for step in range(3):
        checkpoint.async_save({"step": step, "w": torch.full((1000,), float(step))}, tmp_path / "d")
    state = {"step": -1, "w": torch.zeros(1000)}
    checkpoint.load(state, tmp_path / "d")
    assert state["step"] == 2
    assert (state["w"] == 2).all()


PROGRAM = """
    import sys, time
    import torch
    from hyper_parallel import checkpoint

    class SlowWriter(checkpoint.StorageWriter):
        def __init__(self, folder):
            super().__init__()
            self.inner = checkpoint.FileSystemWriter(folder)

        def begin(self):
            return self.inner.begin()

        def publish(self, metadata):
            self.inner.publish(metadata)

        def write(self, *args):
            time.sleep(0.5)
            return self.inner.write(*args)

    state = {"w": torch.arange(4.0), "name": "last"}
    handle = checkpoint.async_save(state, storage_writer=SlowWriter(sys.argv[1]))
    state["w"].fill_(-9)
    assert not handle.done()
    print("leaving")
"""


@pytest.mark.parametrize("end", ["", "    sys.exit(3)\n", "    raise KeyError('a bug of the program')\n"])
def test_a_process_that_ends_without_waiting_finishes_its_save(end: str, tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PROGRAM + end), tmp_path / "d"],
        env=os.environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
    )
    assert result.stdout == "leaving\n", result.stderr
    assert result.returncode == {"": 0, "    sys.exit(3)\n": 3}.get(end, 1), result.stderr
    loaded = checkpoint.read(tmp_path / "d")
    assert loaded["w"].tolist() == [0, 1, 2, 3]
    assert loaded["name"] == "last"


def test_a_forked_child_ends_without_waiting_for_the_saves_of_its_parent(tmp_path: Path) -> None:
    program = f"""
import os, sys, threading, torch
from hyper_parallel import checkpoint

may_write = threading.Event()

class Slow(checkpoint.FileSystemWriter):
    def write(self, *arguments):
        may_write.wait(15)
        return super().write(*arguments)

handle = checkpoint.async_save({{"w": torch.zeros(3)}}, storage_writer=Slow({str(tmp_path / "d")!r}))
child = os.fork()
if child == 0:
    checkpoint.save({{"w": torch.ones(3)}}, {str(tmp_path / "child")!r})
    sys.exit(7)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 7, status
assert not handle.done(), "the child has waited for it"
may_write.set()
handle.wait()
for place in {[str(tmp_path / "d"), str(tmp_path / "child")]!r}:
    print(checkpoint.read(place)["w"].tolist())
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=25, check=False)
    assert (ended.returncode, ended.stdout.strip()) == (0, "[0.0, 0.0, 0.0]\n[1.0, 1.0, 1.0]"), ended.stderr


def test_a_handle_that_is_dropped_does_not_wait(tmp_path: Path) -> None:
    class Slow(checkpoint.FileSystemWriter):
        def write(self, *arguments: Any) -> Any:
            time.sleep(1)
            return super().write(*arguments)

    started = time.monotonic()
    checkpoint.async_save({"w": torch.zeros(3)}, storage_writer=Slow(tmp_path / "d"))
    assert time.monotonic() - started < 0.9
    checkpoint.save({"w": torch.ones(3)}, tmp_path / "d")  # waits
    assert torch.equal(checkpoint.read(tmp_path / "d")["w"], torch.ones(3))


def test_a_callback_that_saves_again_raises_and_does_not_hang(tmp_path: Path) -> None:
    def again(done: int, total: int) -> None:
        checkpoint.save({"w": torch.zeros(3)}, tmp_path / "e")

    with pytest.raises(FailedPreconditionError, match="called from within another of the same ranks"):
        checkpoint.save({"w": torch.zeros(3)}, tmp_path / "d", progress=again)
    handle = checkpoint.async_save({"w": torch.zeros(3)}, tmp_path / "d", progress=again)
    with pytest.raises(FailedPreconditionError, match="called from within another of the same ranks"):
        handle.wait()


@pytest.fixture
def interrupts() -> Iterator[None]:
    """Ctrl+C raises, also where a shell has started the tests in the background and so has them ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interrupts")
def test_waiting_is_interrupted_by_ctrl_c(tmp_path: Path) -> None:
    interrupted = threading.Event()

    class Slow(checkpoint.FileSystemWriter):
        def write(self, *arguments: Any) -> Any:
            interrupted.wait(60)
            return super().write(*arguments)

    handle = checkpoint.async_save({"w": torch.zeros(3)}, storage_writer=Slow(tmp_path / "d"))
    timer = threading.Timer(0.3, signal.raise_signal, [signal.SIGINT])
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        handle.wait()
    interrupted.set()
    timer.join()
    handle.wait()
