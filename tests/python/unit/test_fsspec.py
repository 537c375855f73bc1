"""Checkpoints at fsspec addresses, in the memory of this process."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import fsspec
import pytest
import torch

from hyper_parallel import CheckpointError, FailedPreconditionError, InvalidArgumentError, checkpoint
from hyper_parallel.checkpoint.fsspec_storage import FsspecReader, FsspecWriter


@pytest.fixture
def address() -> Iterator[str]:
    """A place of its own."""
    place = f"memory://{uuid.uuid4().hex}/step1"
    yield place
    files = fsspec.filesystem("memory")
    if files.exists(place):
        files.rm(place, recursive=True)


def names_at(address: str) -> set[str]:
    """The files there."""
    return {str(path).rsplit("/", 1)[-1] for path in fsspec.filesystem("memory").ls(address, detail=False)}


def test_round_trip_of_tensors_and_values(address: str) -> None:
    state = {"w": torch.arange(12.0).view(3, 4), "big": torch.arange(1 << 20), "step": 3, "betas": (0.9, None)}
    checkpoint.save(state, address)
    loaded = {"w": torch.zeros(3, 4), "big": torch.zeros(1 << 20, dtype=torch.int64), "step": 0, "betas": None}
    checkpoint.load(loaded, address)
    assert torch.equal(loaded["w"], state["w"])
    assert torch.equal(loaded["big"], state["big"])
    assert (loaded["step"], loaded["betas"]) == (3, (0.9, None))
    assert torch.equal(checkpoint.read(address)["big"], state["big"])


def test_a_newer_save_takes_the_files_of_the_older_away(address: str) -> None:
    checkpoint.save({"w": torch.zeros(3)}, address)
    first = names_at(address)
    checkpoint.save({"w": torch.ones(3)}, address)
    assert len(names_at(address)) == 2
    assert names_at(address) & first == {".metadata"}
    assert torch.equal(checkpoint.read(address)["w"], torch.ones(3))


def test_async_save_uploads_the_snapshot(address: str) -> None:
    weight = torch.zeros(4)
    handle = checkpoint.async_save({"w": weight}, address)
    weight.fill_(-9)
    handle.wait()
    assert torch.equal(checkpoint.read(address)["w"], torch.zeros(4))


def test_foreign_metadata_is_not_replaced(address: str) -> None:
    files = fsspec.filesystem("memory")
    files.makedirs(address)
    files.pipe_file(f"{address}/.metadata", b"\x80\x04pickle")
    with pytest.raises(FailedPreconditionError, match="is not a checkpoint of this library and is not replaced"):
        checkpoint.save({"w": torch.zeros(3)}, address)
    assert files.cat_file(f"{address}/.metadata") == b"\x80\x04pickle"
    assert names_at(address) == {".metadata"}


def test_no_checkpoint_there(address: str) -> None:
    with pytest.raises(InvalidArgumentError, match=r"there is no checkpoint at '.*': it has no '\.metadata'"):
        checkpoint.load({"w": torch.zeros(3)}, address)


def test_unknown_protocol() -> None:
    with pytest.raises(InvalidArgumentError, match="checkpoint_id is 'nowhere://x'"):
        checkpoint.save({"w": torch.zeros(3)}, "nowhere://x")


def data_file(address: str) -> str:
    """The path of the one data file."""
    (name,) = names_at(address) - {".metadata"}
    return f"{address}/{name}"


def test_a_changed_byte_is_found(address: str) -> None:
    checkpoint.save({"w": torch.zeros(300_000)}, address)
    files = fsspec.filesystem("memory")
    content = bytearray(files.cat_file(data_file(address)))
    content[-1] ^= 1
    files.pipe_file(data_file(address), bytes(content))
    with pytest.raises(CheckpointError, match=r"block 1 of tensor 'w' .* has checksum 0x"):
        checkpoint.load({"w": torch.zeros(300_000)}, address)


def test_a_file_cut_short_is_found(address: str) -> None:
    checkpoint.save({"w": torch.zeros(300)}, address)
    files = fsspec.filesystem("memory")
    files.pipe_file(data_file(address), files.cat_file(data_file(address))[:-1])
    with pytest.raises(CheckpointError, match="bytes but the metadata says"):
        checkpoint.load({"w": torch.zeros(300)}, address)


def test_a_missing_file_is_found(address: str) -> None:
    checkpoint.save({"w": torch.zeros(300)}, address)
    fsspec.filesystem("memory").rm_file(data_file(address))
    with pytest.raises(CheckpointError, match="gone"):
        checkpoint.load({"w": torch.zeros(300)}, address)


def test_a_failed_save_leaves_the_old_checkpoint_alone(address: str) -> None:
    checkpoint.save({"w": torch.zeros(3)}, address)
    before = names_at(address)

    class Failing(FsspecWriter):
        def write(self, *arguments: Any) -> Any:
            super().write(*arguments)
            raise OSError("no more")

    with pytest.raises(CheckpointError, match="OSError: no more"):
        checkpoint.save({"w": torch.ones(3)}, storage_writer=Failing(address))
    assert names_at(address) == before
    assert torch.equal(checkpoint.read(address)["w"], torch.zeros(3))


def test_a_replaced_file_that_cannot_be_removed_does_not_take_the_new_checkpoint_away(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint.save({"w": torch.zeros(3)}, address)

    def refuse(self: object, path: str) -> None:
        raise OSError("503")

    with monkeypatch.context() as patched:
        patched.setattr(type(fsspec.filesystem("memory")), "rm_file", refuse)
        checkpoint.save({"w": torch.ones(3)}, address)
    assert torch.equal(checkpoint.read(address)["w"], torch.ones(3))


@pytest.mark.parametrize("arrives", [True, False])
def test_a_put_whose_answer_is_lost_is_looked_after(
    address: str, monkeypatch: pytest.MonkeyPatch, arrives: bool
) -> None:
    checkpoint.save({"w": torch.zeros(3)}, address)
    memory = type(fsspec.filesystem("memory"))
    put = memory.pipe_file

    def lose(self: object, path: str, value: bytes, **options: object) -> None:
        if arrives:
            put(self, path, value, **options)
        raise OSError("connection reset")

    with monkeypatch.context() as patched:
        patched.setattr(memory, "pipe_file", lose)
        if arrives:
            checkpoint.save({"w": torch.ones(3)}, address)
        else:
            with pytest.raises(CheckpointError, match="connection reset"):
                checkpoint.save({"w": torch.ones(3)}, address)
    expected = torch.ones(3) if arrives else torch.zeros(3)
    assert torch.equal(checkpoint.read(address)["w"], expected)
    assert len(names_at(address)) == 2


def test_a_file_address_is_the_file_system_s(tmp_path: object) -> None:
    checkpoint.save({"w": torch.ones(2)}, f"file://{tmp_path}/here")
    assert torch.equal(checkpoint.read(f"{tmp_path}/here")["w"], torch.ones(2))


def test_blocks_are_asked_for_once_and_only_those_that_are_needed(address: str) -> None:
    checkpoint.save({"w": torch.arange(1 << 20, dtype=torch.float32)}, address)  # four blocks
    asked: list[tuple[int, int]] = []

    class Counting(FsspecReader):
        def read_range(self, name: str, begin: int, size: int) -> bytes:
            asked.append((begin, size))
            return super().read_range(name, begin, size)

    class LastRow(checkpoint.LoadPlanner):
        """Wants the last eighth of the tensor."""

        rows = torch.zeros(1 << 17)

        def build_local_plan(self, metadata: checkpoint.CheckpointMetadata) -> checkpoint.LoadPlan:
            box = checkpoint.ChunkStorageMetadata([7 << 17], [1 << 17])
            wanted = checkpoint.PlannedTensor("w", "F32", [1 << 20], [box])
            return checkpoint.LoadPlanner.plan(metadata, [wanted])

        def acquire_tensor(self, item: checkpoint.ReadItem) -> torch.Tensor:
            return self.rows

    planner = LastRow()
    checkpoint.load({}, storage_reader=Counting(address), planner=planner)
    assert torch.equal(planner.rows, torch.arange(7 << 17, 8 << 17, dtype=torch.float32))
    assert [size for _, size in asked] == [1 << 20]
