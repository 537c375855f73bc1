"""Cases from public fault reports about save after save: 41 (the snapshot), 43 (what an earlier save has left)."""

from __future__ import annotations

import fcntl
import threading
from pathlib import Path

import pytest
import torch

from hyper_parallel import DeviceMesh, RaggedShard, Shard, checkpoint, distribute_tensor
from support.checkpoints import (
    FailingWriter,
    ForwardingWriter,
    GatedWriter,
    content_of,
    data_files,
    local_of,
    raised_everywhere,
)
from support.checks import assert_raises, make_mesh, whole_of
from support.pool import RankPools
from support.ranks import ranks
from support.values import numbered
from support.worker import Rank

# 41: the snapshot


def state_41() -> dict[str, torch.Tensor]:
    mesh = make_mesh(2)
    w = numbered((4,))
    return {
        "w": w,
        "v": w[1:3],
        "d": distribute_tensor(w, mesh, [Shard(0)]),
        "g": distribute_tensor(w, mesh, [RaggedShard((0,), (1, 3))]),
    }


@ranks(2)
def test_case41_what_changes_after_the_call_is_not_in_the_file(rank: Rank, tmp_path: Path) -> None:
    state = state_41()
    writer = GatedWriter(tmp_path / "d")
    handle = checkpoint.async_save(state, storage_writer=writer)
    for tensor in state.values():
        local_of(tensor).fill_(-9)
    assert not handle.done()
    writer.may_write.set()
    handle.wait()
    loaded = checkpoint.read(tmp_path / "d")
    assert loaded["w"].tolist() == [0, 1, 2, 3]
    assert loaded["v"].tolist() == [1, 2]
    assert loaded["d"].tolist() == [0, 1, 2, 3]
    assert loaded["g"].tolist() == [0, 1, 2, 3], "with its global shape"


@ranks(2)
def test_case41_a_second_save_waits_for_the_first(rank: Rank, tmp_path: Path) -> None:
    writer = GatedWriter(tmp_path / "d")
    first = checkpoint.async_save({"w": torch.zeros(2)}, storage_writer=writer)
    threading.Timer(0.5, writer.may_write.set).start()
    second = checkpoint.async_save({"w": torch.ones(2)}, tmp_path / "d")
    assert first.done()
    second.wait()
    first.wait()
    assert checkpoint.read(tmp_path / "d")["w"].tolist() == [1, 1]


@pytest.mark.parametrize("failing", [0, 1])
@ranks(2)
def test_case41_an_error_of_one_rank_surfaces_at_wait_on_all(rank: Rank, failing: int, tmp_path: Path) -> None:
    checkpoint.save(state_41(), tmp_path / "d")
    before = content_of(tmp_path / "d")
    kind = FailingWriter if rank.index == failing else ForwardingWriter
    handle = checkpoint.async_save(state_41(), storage_writer=kind(tmp_path / "d"))
    raised_everywhere(rank, Exception, handle.wait, f"rank {failing}", "the disk of a test is full")
    assert content_of(tmp_path / "d") == before


# 43: what an earlier save has left


def save_sharded(rank: Rank, folder: Path, add: int) -> None:
    whole = numbered((8,)) + add
    checkpoint.save({"x": distribute_tensor(whole, make_mesh(rank.size), [Shard(0)])}, folder)


def load_sharded(rank: Rank, folder: Path) -> list[float]:
    state = {"x": distribute_tensor(torch.full((8,), -9.0), make_mesh(rank.size), [Shard(0)])}
    checkpoint.load(state, folder)
    return list(whole_of(state["x"]).tolist())


def load_raises(rank: Rank, folder: Path, kind: type[BaseException], *texts: str) -> None:
    state = {"x": distribute_tensor(torch.full((8,), -9.0), make_mesh(rank.size), [Shard(0)])}
    raised_everywhere(rank, kind, lambda: checkpoint.load(state, folder), *texts)


@pytest.fixture
def resaved_43(rank_pools: RankPools, tmp_path: Path) -> Path:
    """Saved by 4 ranks, and then by 2 with 100 added."""
    rank_pools[4].run(save_sharded, tmp_path / "d", 0)
    rank_pools[2].run(save_sharded, tmp_path / "d", 100)
    return tmp_path / "d"


def test_case43_fewer_ranks_replace_the_files_of_more(resaved_43: Path, rank_pools: RankPools) -> None:
    assert rank_pools[2].run(load_sharded, resaved_43) == [[100.0 + i for i in range(8)]] * 2
    assert [name[-13:] for name in data_files(resaved_43)] == ["0.safetensors", "1.safetensors"]
    assert set(content_of(resaved_43)) == {".metadata", *data_files(resaved_43)}


@ranks(4)
def test_case43_a_mesh_of_two_of_four_ranks_replaces_them_too(rank: Rank, tmp_path: Path) -> None:
    save_sharded(rank, tmp_path / "d", 0)
    state = {"x": distribute_tensor(numbered((8,)) + 100, DeviceMesh((2,), ("dp",), (0, 1)), [Shard(0)])}
    checkpoint.save(state, tmp_path / "d")
    assert len(data_files(tmp_path / "d")) == 2
    assert checkpoint.read(tmp_path / "d")["x"].tolist() == [100 + i for i in range(8)]


def test_case43_without_metadata_there_is_no_checkpoint(resaved_43: Path, rank_pools: RankPools) -> None:
    (resaved_43 / ".metadata").unlink()
    rank_pools[2].run(load_raises, resaved_43, ValueError, ".metadata")
    assert_raises(ValueError, ".metadata", lambda: checkpoint.read(resaved_43))


@pytest.mark.parametrize("cut", ["first", "last"])
def test_case43_a_truncated_file_raises(resaved_43: Path, cut: str, rank_pools: RankPools) -> None:
    path = resaved_43 / data_files(resaved_43)[0 if cut == "first" else -1]
    path.write_bytes(path.read_bytes()[:-1])
    rank_pools[2].run(load_raises, resaved_43, OSError, path.name)
    assert_raises(OSError, path.name, lambda: checkpoint.read(resaved_43))


def test_case43_swapped_files_raise(resaved_43: Path, rank_pools: RankPools) -> None:
    first, second = (resaved_43 / name for name in data_files(resaved_43))
    assert first.stat().st_size == second.stat().st_size
    aside = resaved_43 / "aside"
    first.rename(aside)
    second.rename(first)
    aside.rename(second)
    rank_pools[2].run(load_raises, resaved_43, OSError, "'x'")
    assert_raises(OSError, "'x'", lambda: checkpoint.read(resaved_43))


def test_case43_files_of_other_people_are_neither_read_nor_removed(tmp_path: Path, rank_pools: RankPools) -> None:
    folder = tmp_path / "d"
    folder.mkdir()
    others = {
        "notes.txt": b"mine",
        "data.safetensors": b"mine too",
        "data-0123456789abcdef-00007.safetensors": b"of a save that this directory knows nothing of",
        "data-0123456789abcdef-00000.safetensors.tmp": b"",
        "__0_0.distcp": b"another program's",
    }
    for name, content in others.items():
        (folder / name).write_bytes(content)
    rank_pools[4].run(save_sharded, folder, 0)
    rank_pools[2].run(save_sharded, folder, 100)
    assert rank_pools[2].run(load_sharded, folder)[0] == [100.0 + i for i in range(8)]
    content = content_of(folder)
    assert {name: content[name] for name in others} == others
    assert len(content) == len(others) + 3


@ranks(2)
def test_case43_a_directory_that_another_job_saves_into_raises(rank: Rank, tmp_path: Path) -> None:
    """Another process that saves holds the lock."""
    checkpoint.save({"x": torch.ones(2)}, tmp_path / "d")
    before = content_of(tmp_path / "d")
    with (tmp_path / "d" / ".save.lock").open("rb+") as lock:
        if rank.index == 1:
            fcntl.flock(lock, fcntl.LOCK_EX)
        torch.distributed.barrier()
        raised_everywhere(rank, RuntimeError, lambda: checkpoint.save({"x": torch.zeros(2)}, tmp_path / "d"), "save")
    assert content_of(tmp_path / "d") == before
    torch.distributed.barrier()
    checkpoint.save({"x": torch.zeros(2)}, tmp_path / "d")
    assert checkpoint.read(tmp_path / "d")["x"].tolist() == [0, 0]
