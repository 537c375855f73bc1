"""Cases from public fault reports about checkpoints: 35, 37, 38, 40, 41, 43 and 44."""

from __future__ import annotations

import copy
import fcntl
import functools
import pickle
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from hyper_parallel import (
    DeviceMesh,
    DTensor,
    Placement,
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
    assert_same_bits,
    bits,
    chunks_of,
    content_of,
    data_files,
    local_of,
    raised_everywhere,
    random_bits,
    stored_bytes,
)
from support.checks import assert_consistent, assert_equal, assert_raises, make_mesh, whole_of
from support.pool import RankPools
from support.ranks import ranks
from support.values import numbered
from support.worker import Rank

# 35: copies have the shape and the placements of what they are copies of, in the file too

SOURCES_35: dict[str, tuple[tuple[int, ...], Placement]] = {
    "sharded": ((5,), Shard(0)),
    "ragged": ((6, 4, 8), RaggedShard((0, 1), (1, 2))),
}
COPIES_35: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda x: pickle.loads(pickle.dumps(x)),
    "detach": lambda x: x.clone().detach(),
    "Parameter": lambda x: torch.nn.Parameter(x.clone()),
    "clone": torch.clone,
    "to(dtype)": lambda x: x.to(torch.float64),
}


@pytest.mark.parametrize("saver", ["save", "async_save"])
@pytest.mark.parametrize("source", list(SOURCES_35))
@ranks(2)
def test_case35_copies_are_saved_with_global_shape_and_values(
    rank: Rank, source: str, saver: str, tmp_path: Path
) -> None:
    shape, placement = SOURCES_35[source]
    x = distribute_tensor(numbered(shape), make_mesh(2), [placement])
    copies = {kind: make(x) for kind, make in COPIES_35.items()}
    with torch.no_grad():
        for copied in copies.values():
            local_of(copied).add_(100)
    if saver == "save":
        checkpoint.save({"x": x, **copies}, tmp_path / "d")
    else:
        checkpoint.async_save({"x": x, **copies}, tmp_path / "d").wait()
    state = checkpoint.read(tmp_path / "d")
    assert_equal(state["x"], numbered(shape))
    for kind, copied in copies.items():
        assert_equal(state[kind], numbered(shape, copied.dtype) + 100)


@pytest.mark.parametrize("source", list(SOURCES_35))
@ranks(2)
def test_case35_targets_keep_shape_placements_dtype_and_requires_grad(rank: Rank, source: str, tmp_path: Path) -> None:
    shape, placement = SOURCES_35[source]
    mesh = make_mesh(2)
    checkpoint.save({kind: distribute_tensor(numbered(shape), mesh, [Shard(0)]) for kind in COPIES_35}, tmp_path / "d")
    zeros = distribute_tensor(torch.zeros(shape), mesh, [placement])
    targets = {kind: make(zeros) for kind, make in COPIES_35.items()}
    before = {kind: (target.dtype, target.requires_grad) for kind, target in targets.items()}
    checkpoint.load(targets, tmp_path / "d", allow_cast=["to(dtype)"])
    for kind, target in targets.items():
        assert isinstance(target, DTensor)
        assert_consistent(target)
        assert tuple(target.shape) == shape
        assert target.placements == (placement,)
        assert (target.dtype, target.requires_grad) == before[kind]
        assert_equal(whole_of(target), numbered(shape, target.dtype))
    assert targets["Parameter"].requires_grad
    assert_equal(whole_of(zeros), torch.zeros(shape))


# 37: who is left out where several ranks could write the same

ORDERS_37 = {"rank 0 first": (0.0, 0.1, 0.2, 0.3), "rank 3 first": (0.3, 0.2, 0.1, 0.0), "odd first": (0.2, 0, 0.2, 0)}


@pytest.mark.parametrize("order", list(ORDERS_37))
@ranks(4)
def test_case37_an_empty_shard_at_the_offset_of_a_real_one_takes_nothing_away(
    rank: Rank, order: str, tmp_path: Path
) -> None:
    mesh = make_mesh(4)
    rows = numbered((5, 2))
    time.sleep(ORDERS_37[order][rank.index])
    ragged = distribute_tensor(numbered((8,)), mesh, [RaggedShard((0,), (0, 3, 0, 1))])
    checkpoint.save({"g": ragged, "s": distribute_tensor(rows, mesh, [Shard(0)])}, tmp_path / "d")
    assert [(chunk.offsets, chunk.sizes) for chunk in chunks_of(tmp_path / "d", "g")] == [((0,), (6,)), ((6,), (2,))]
    assert [chunk.offsets[0] for chunk in chunks_of(tmp_path / "d", "s")] == [0, 2, 4]
    state = {"g": torch.zeros(8), "s": distribute_tensor(torch.zeros(5, 2), mesh, [RaggedShard((0,), (1, 0, 4, 0))])}
    checkpoint.load(state, tmp_path / "d")
    assert_equal(state["g"], numbered((8,)))
    assert_equal(whole_of(state["s"]), rows)


def winner_of_37(name: str, holders: int, box: int = 0) -> int:
    """The rule: holder number (FNV-1a-64 of the name + number of the box) mod holders."""
    value = 0xCBF29CE484222325
    for byte in name.encode():
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return (value + box) % 2**64 % holders


NAMES_37 = ("w", "bias", "layer.0.weight", "layer.1.weight", "ключ")


@ranks(2)
def test_case37_of_unequal_replicas_a_fixed_function_of_the_name_decides(rank: Rank, tmp_path: Path) -> None:
    assert {winner_of_37(name, 2) for name in NAMES_37} == {0, 1}, "the names show both winners"
    local = torch.full((3,), rank.index + 1.0)
    mesh = make_mesh(2)
    for delay in (0.0, 0.2, 0.0):
        time.sleep(delay * rank.index)
        for state in (
            {name: DTensor.from_local(local, mesh, [Replicate()], shape=(3,)) for name in NAMES_37},
            {name: local for name in NAMES_37},
        ):
            checkpoint.save({"model": state}, tmp_path / "d")
            loaded = checkpoint.read(tmp_path / "d")["model"]
            for name in NAMES_37:
                assert loaded[name].tolist() == [winner_of_37(f"model.{name}", 2) + 1.0] * 3
            torch.distributed.barrier()


@pytest.mark.parametrize("kind", ["replicated", "plain", "value"])
@ranks(2, check=True)
def test_case37_under_the_check_unequal_replicas_raise(rank: Rank, kind: str, tmp_path: Path) -> None:
    local = torch.full((3,), rank.index + 1.0)
    entry: object = {
        "replicated": DTensor.from_local(local, make_mesh(2), [Replicate()], shape=(3,)),
        "plain": local,
        "value": rank.index,
    }[kind]
    raised_everywhere(
        rank, RuntimeError, lambda: checkpoint.save({"model": {"w": entry}}, tmp_path / "d"), "model.w", "0", "1"
    )
    assert content_of(tmp_path) == {}


@ranks(4)
def test_case37_replicas_of_a_ragged_tensor_are_stored_once_and_share_the_work(rank: Rank, tmp_path: Path) -> None:
    mesh = make_mesh(2, 2)
    wholes = {f"layer.{i}": random_bits((8, 3), torch.float32, seed=i) for i in range(16)}
    placements: list[Placement] = [Replicate(), RaggedShard((0,), (1, 3))]
    checkpoint.save(
        {name: distribute_tensor(whole, mesh, placements) for name, whole in wholes.items()}, tmp_path / "d"
    )
    assert stored_bytes(tmp_path / "d") == 16 * 8 * 3 * 4
    assert len(data_files(tmp_path / "d")) == 4, "every replica writes something"
    for name, whole in wholes.items():
        assert_same_bits(checkpoint.read(tmp_path / "d")[name], whole)


# 38: intervals as boxes

CHUNKS_38: dict[str, tuple[tuple[int, ...], RaggedShard, list[tuple[tuple[int, ...], tuple[int, ...]]]]] = {
    "3ranks (3, 4, 5)": (
        (3, 4, 5),
        RaggedShard((0, 1, 2), (7, 46, 7)),
        [
            ((0, 0, 0), (1, 1, 5)), ((0, 1, 0), (1, 1, 2)),
            ((0, 1, 2), (1, 1, 3)), ((0, 2, 0), (1, 2, 5)), ((1, 0, 0), (1, 4, 5)), ((2, 0, 0), (1, 2, 5)),
            ((2, 2, 0), (1, 1, 3)),
            ((2, 2, 3), (1, 1, 2)), ((2, 3, 0), (1, 1, 5)),
        ],
    ),
    "3ranks (2, 3, 4, 5)": (
        (2, 3, 4, 5),
        RaggedShard((0, 1, 2, 3), (17, 86, 17)),
        [
            ((0, 0, 0, 0), (1, 1, 3, 5)), ((0, 0, 3, 0), (1, 1, 1, 2)),
            ((0, 0, 3, 2), (1, 1, 1, 3)), ((0, 1, 0, 0), (1, 2, 4, 5)), ((1, 0, 0, 0), (1, 2, 4, 5)),
            ((1, 2, 0, 0), (1, 1, 1, 3)),
            ((1, 2, 0, 3), (1, 1, 1, 2)), ((1, 2, 1, 0), (1, 1, 3, 5)),
        ],
    ),
    "4ranks (3, 4, 2)": (
        (3, 4, 2),
        RaggedShard((0, 1), (0, 3, 1, 2)),
        [((0, 0, 0), (1, 4, 2)), ((1, 0, 0), (1, 2, 2)), ((1, 2, 0), (1, 2, 2)), ((2, 0, 0), (1, 4, 2))],
    ),
    "2ranks (6, 4, 8)": (
        (6, 4, 8),
        RaggedShard((0, 1), (1, 2)),
        [((0, 0, 0), (2, 4, 8)), ((2, 0, 0), (4, 4, 8))],
    ),
}  # fmt: skip


def save_38(rank: Rank, case: str, folder: Path) -> None:
    shape, placement, _ = CHUNKS_38[case]
    checkpoint.save({"w": distribute_tensor(numbered(shape), make_mesh(rank.size), [placement])}, folder)


@pytest.mark.parametrize("case", list(CHUNKS_38))
def test_case38_chunks_are_the_boxes_of_the_intervals(case: str, rank_pools: RankPools, tmp_path: Path) -> None:
    shape, _, expected = CHUNKS_38[case]
    rank_pools[int(case[0])].run(save_38, case, tmp_path / "d")
    chunks = chunks_of(tmp_path / "d", "w")
    assert [(chunk.offsets, chunk.sizes) for chunk in chunks] == expected
    # In order the boxes are the flat tensor, and none of an interval's are more than 2 * ndim - 1.
    assert b"".join(chunk.data for chunk in chunks) == bits(numbered(shape))
    for name in {chunk.file for chunk in chunks}:
        assert sum(chunk.file == name for chunk in chunks) <= 2 * len(shape) - 1


@pytest.mark.parametrize("case", list(CHUNKS_38))
def test_case38_several_chunks_in_a_file_have_keys_of_their_own(
    case: str, rank_pools: RankPools, tmp_path: Path
) -> None:
    rank_pools[int(case[0])].run(save_38, case, tmp_path / "d")
    chunks = chunks_of(tmp_path / "d", "w")
    for name in {chunk.file for chunk in chunks}:
        keys = [chunk.key for chunk in chunks if chunk.file == name]
        assert keys == (["w"] if len(keys) == 1 else [f"w.__dcp_chunk_{i}" for i in range(len(keys))])


# 40: what load must not let pass

W_40 = numbered((2, 3))
V_40 = torch.tensor([1.0009765625, 16777217], dtype=torch.float64)


def saved_40(rank: Rank, folder: Path) -> Path:
    checkpoint.save({"w": distribute_tensor(W_40, make_mesh(2), [Shard(0)]), "v": V_40}, folder / "d")
    return folder / "d"


SHAPES_40: dict[str, tuple[tuple[int, ...], Placement | None]] = {
    "(3, 2)": ((3, 2), None),
    "(2, 4)": ((2, 4), None),
    "(1, 3)": ((1, 3), None),
    "(6,)": ((6,), None),
    "sharded (3, 2)": ((3, 2), Shard(0)),
    "ragged (3, 2)": ((3, 2), RaggedShard((0,), (1, 2))),
    "ragged (6,)": ((6,), RaggedShard((0,), (1, 2))),
}


@pytest.mark.parametrize("case", list(SHAPES_40))
@ranks(2)
def test_case40_another_shape_raises_and_leaves_the_targets_untouched(rank: Rank, case: str, tmp_path: Path) -> None:
    folder = saved_40(rank, tmp_path)
    shape, placement = SHAPES_40[case]
    target = torch.full(shape, -9.0)
    if placement is not None:
        target = distribute_tensor(target, make_mesh(2), [placement])
    v = torch.full((2,), -9.0, dtype=torch.float64)
    raised_everywhere(
        rank,
        ValueError,
        lambda: checkpoint.load({"w": target, "v": v}, folder),
        "'w'",
        "(2, 3)",
        str(shape),
    )
    assert (local_of(target) == -9).all()
    assert (v == -9).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
@ranks(2)
def test_case40_another_dtype_raises_unless_it_is_allowed_by_name(
    rank: Rank, dtype: torch.dtype, tmp_path: Path
) -> None:
    folder = saved_40(rank, tmp_path)
    w = distribute_tensor(torch.full((2, 3), -9.0), make_mesh(2), [Shard(1)])
    v = torch.full((2,), -9, dtype=dtype)
    for allowed in ((), ("w",), ("vv", "?w")):
        load = functools.partial(checkpoint.load, {"w": w, "v": v}, folder, allow_cast=allowed)
        raised_everywhere(rank, ValueError, load, "'v'", "F64")
        assert (local_of(w) == -9).all()
        assert (v == -9).all()
    checkpoint.load({"w": w, "v": v}, folder, allow_cast=["v"])
    assert_equal(v, V_40.to(dtype))
    assert v.tolist() == {torch.float32: [1.0009765625, 16777216], torch.bfloat16: [1, 16777216]}.get(
        dtype, [1, 16777217]
    )
    assert_equal(whole_of(w), W_40)


@pytest.mark.parametrize(("stored", "wanted"), [((), (1,)), ((1,), ())])
@ranks(2)
def test_case40_a_scalar_is_no_tensor_of_one_element(
    rank: Rank, stored: tuple[int, ...], wanted: tuple[int, ...], tmp_path: Path
) -> None:
    checkpoint.save({"a": torch.full(stored, 7.0)}, tmp_path / "d")
    target = torch.full(wanted, -9.0)
    raised_everywhere(rank, ValueError, lambda: checkpoint.load({"a": target}, tmp_path / "d"), "'a'")
    assert (target == -9).all()


@ranks(2)
def test_case40_a_missing_key_raises_by_default(rank: Rank, tmp_path: Path) -> None:
    folder = saved_40(rank, tmp_path)
    state = {"w": torch.full((2, 3), -9.0), "v": torch.zeros(2, dtype=torch.float64), "c": torch.full((1,), -9.0)}
    raised_everywhere(rank, ValueError, lambda: checkpoint.load(state, folder), "'c'")
    assert (state["w"] == -9).all()
    checkpoint.load(state, folder, allow_missing=["c"])
    assert_equal(state["w"], W_40)
    assert state["c"].tolist() == [-9.0]


@ranks(2)
def test_case40_an_extra_key_raises_by_default(rank: Rank, tmp_path: Path) -> None:
    folder = saved_40(rank, tmp_path)
    state = {"w": torch.full((2, 3), -9.0)}
    raised_everywhere(rank, ValueError, lambda: checkpoint.load(state, folder), "'v'")
    assert (state["w"] == -9).all()
    checkpoint.load(state, folder, allow_extra=["v"])
    assert_equal(state["w"], W_40)


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


# 44: names that collide, and names that are odd


@ranks(2)
def test_case44_two_entries_of_one_name_raise(rank: Rank, tmp_path: Path) -> None:
    state = {"a.b": torch.tensor([1]), "a": {"b": torch.tensor([2])}}
    for call in (checkpoint.save, checkpoint.async_save):
        raised_everywhere(rank, ValueError, functools.partial(call, state, tmp_path / "d"), "'a.b'")
    assert content_of(tmp_path) == {}


@ranks(2)
def test_case44_a_name_that_looks_like_a_chunk_of_another_round_trips(rank: Rank, tmp_path: Path) -> None:
    mesh = make_mesh(2)
    state = {
        "w": distribute_tensor(numbered((4, 6)), mesh, [RaggedShard((0, 1), (5, 7))]),
        "w.__dcp_chunk_0": torch.tensor([9]),
        "w.__dcp_chunk_1": torch.tensor([8, 8]),
    }
    checkpoint.save(state, tmp_path / "d")
    assert len(chunks_of(tmp_path / "d", "w")) == 4, "two boxes on each rank"
    target = {name: torch.zeros_like(tensor) for name, tensor in state.items()}
    checkpoint.load(target, tmp_path / "d")
    assert_equal(whole_of(target["w"]), numbered((4, 6)))
    assert target["w.__dcp_chunk_0"].tolist() == [9]
    assert target["w.__dcp_chunk_1"].tolist() == [8, 8]
    loaded = checkpoint.read(tmp_path / "d")
    assert set(loaded) == set(state)
    assert_equal(loaded["w"], numbered((4, 6)))


KEYS_44: tuple[str | int, ...] = (
    "", ".", "..", "../up", "/etc/passwd", "a/b", "a\\b", "\0", "a\0b", "ключ", "\U0001f600", "x" * 300, "\n", '"', 0,
    -1, 2**70, "__metadata__", "__dcp_chunk_0", ".metadata", "%2e", "con", " ",
)  # fmt: skip


@ranks(2)
def test_case44_odd_keys_round_trip_and_no_file_leaves_the_directory(rank: Rank, tmp_path: Path) -> None:
    mesh = make_mesh(2)
    state: dict[Any, Any] = {
        key: {
            "t": distribute_tensor(numbered((4, 3)) + i, mesh, [RaggedShard((0, 1), (5, 7))]),
            "l": [torch.tensor([i]), {key: i}],
            key: (key, {"v": key}),
        }
        for i, key in enumerate(KEYS_44)
    }
    checkpoint.save(state, tmp_path / "d")
    assert {path.name for path in tmp_path.iterdir()} == {"d"}
    assert set(content_of(tmp_path / "d")) == {".metadata", *data_files(tmp_path / "d")}
    loaded = checkpoint.read(tmp_path / "d")
    assert list(loaded) == list(KEYS_44)
    for i, key in enumerate(KEYS_44):
        assert type(list(loaded)[i]) is type(key)
        assert_equal(loaded[key]["t"], numbered((4, 3)) + i)
        assert loaded[key]["l"][0].tolist() == [i]
        assert loaded[key]["l"][1] == {key: i}
        assert loaded[key][key] == (key, {"v": key})


@ranks(2)
def test_case44_the_reserved_key_of_a_data_file_is_a_name_like_any_other(rank: Rank, tmp_path: Path) -> None:
    state = {"__metadata__": distribute_tensor(numbered((4,)), make_mesh(2), [Shard(0)]), ".metadata": torch.ones(1)}
    checkpoint.save(state, tmp_path / "d")
    loaded = checkpoint.read(tmp_path / "d")
    assert loaded["__metadata__"].tolist() == [0, 1, 2, 3]
    assert loaded[".metadata"].tolist() == [1]
