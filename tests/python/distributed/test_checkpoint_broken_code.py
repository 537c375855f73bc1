"""Planners and storages of the user's own that raise, and a directory in use: every rank raises."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
import torch

from hyper_parallel import checkpoint
from support.checkpoints import ForwardingReader, ForwardingWriter, GatedWriter, content_of, raised_everywhere
from support.pool import RankPools
from support.ranks import ranks
from support.refused_states import emptied, every_saver, good, untouched
from support.worker import Rank


class Broken(Exception):
    """What a user's own code raises."""


def broken(*_: object, **__: object) -> Any:
    raise Broken("a fault of the user's own")


def breaks(kind: type, method: str) -> type:
    """A subclass that raises in a method."""
    return type(f"Breaks{method}", (kind,), {method: broken})


@pytest.mark.parametrize("failing", [0, 1])
@pytest.mark.parametrize("method", ["build_local_plan", "get_data"])
@every_saver
@ranks(2)
def test_a_save_planner_that_raises_on_one_rank_raises_on_all(
    rank: Rank, saver: str, method: str, failing: int, tmp_path: Path
) -> None:
    checkpoint.save(good(), tmp_path / "d")
    before = content_of(tmp_path / "d")
    planner = breaks(checkpoint.StandardSavePlanner, method) if rank.index == failing else None

    def save() -> None:
        handle = getattr(checkpoint, saver)(good(), tmp_path / "d", planner=planner)
        if handle is not None:
            handle.wait()

    raised_everywhere(rank, Exception, save, f"rank {failing}", "a fault of the user's own")
    assert content_of(tmp_path / "d") == before


class Unpublishing(ForwardingWriter):
    """Fails to publish, and gives its place up as whoever fails there has to: nothing is called after `publish`."""

    def publish(self, metadata: checkpoint.CheckpointMetadata) -> None:
        self.inner.abandon()
        broken(self)


@pytest.mark.parametrize(("method", "failing"), [("begin", 0), ("write", 0), ("write", 1), ("publish", 0)])
@every_saver
@ranks(2)
def test_a_storage_writer_that_raises_on_one_rank_raises_on_all(
    rank: Rank, saver: str, method: str, failing: int, tmp_path: Path
) -> None:
    checkpoint.save(good(), tmp_path / "d")
    before = content_of(tmp_path / "d")
    failing_kind = Unpublishing if method == "publish" else breaks(ForwardingWriter, method)
    kind = failing_kind if rank.index == failing else ForwardingWriter

    def save() -> None:
        handle = getattr(checkpoint, saver)(good(), storage_writer=kind(tmp_path / "d"))
        if handle is not None:
            handle.wait()

    raised_everywhere(rank, Exception, save, "a fault of the user's own")
    assert content_of(tmp_path / "d") == before
    checkpoint.save(good(), tmp_path / "d")


@pytest.mark.parametrize("failing", [0, 1])
@pytest.mark.parametrize("method", ["build_local_plan", "acquire_tensor"])
@ranks(2)
def test_a_load_planner_that_raises_on_one_rank_raises_on_all(
    rank: Rank, method: str, failing: int, tmp_path: Path
) -> None:
    checkpoint.save(good(), tmp_path / "d")
    planner = breaks(checkpoint.StandardLoadPlanner, method) if rank.index == failing else None
    load = functools.partial(checkpoint.load, good(), tmp_path / "d", planner=planner)
    raised_everywhere(rank, Exception, load, f"rank {failing}", "a fault of the user's own")


@pytest.mark.parametrize(
    ("method", "failing"), [("read_metadata", 0), ("open", 0), ("open", 1), ("read", 0), ("read", 1)]
)
@ranks(2)
def test_a_storage_reader_that_raises_on_one_rank_raises_on_all(
    rank: Rank, method: str, failing: int, tmp_path: Path
) -> None:
    checkpoint.save(good(), tmp_path / "d")
    kind = breaks(ForwardingReader, method) if rank.index == failing else ForwardingReader
    state = emptied(good())
    load = functools.partial(checkpoint.load, state, storage_reader=kind(tmp_path / "d"))
    raised_everywhere(rank, Exception, load, "a fault of the user's own")
    assert method == "read" or untouched(state)


@pytest.mark.parametrize("kind", ["FileSystemWriter", "FileSystemReader"])
def test_a_method_of_a_class_derived_from_a_storage_is_not_passed_over(kind: str, tmp_path: Path) -> None:
    """It is called, or the class cannot be derived from."""
    checkpoint.save({"w": torch.ones(2)}, tmp_path / "d")
    try:
        derived = breaks(getattr(checkpoint, kind), "write" if kind == "FileSystemWriter" else "read")
    except TypeError:
        return
    with pytest.raises(Exception, match="a fault of the user's own"):
        if kind == "FileSystemWriter":
            checkpoint.save({"w": torch.zeros(2)}, storage_writer=derived(tmp_path / "d"))
        else:
            checkpoint.load({"w": torch.zeros(2)}, storage_reader=derived(tmp_path / "d"))


def save_is_refused(rank: Rank, folder: Path) -> None:
    raised_everywhere(rank, RuntimeError, lambda: checkpoint.save({"w": torch.zeros(2)}, folder), "save", str(folder))


def test_a_save_beside_another_jobs_raises(rank_pools: RankPools, tmp_path: Path) -> None:
    """This process is a job of its own; it has begun to save and has not ended."""
    writer = GatedWriter(tmp_path / "d")
    handle = checkpoint.async_save({"w": torch.ones(2)}, storage_writer=writer)
    rank_pools[2].run(save_is_refused, tmp_path / "d")
    writer.may_write.set()
    handle.wait()
    assert checkpoint.read(tmp_path / "d")["w"].tolist() == [1, 1]
