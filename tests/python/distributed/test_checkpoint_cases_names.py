"""Cases from public fault reports about what a load is asked for: 40 (what it must not let pass) and 44 (names)."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
import torch

from hyper_parallel import Placement, RaggedShard, Shard, checkpoint, distribute_tensor
from support.checkpoints import chunks_of, content_of, data_files, local_of, raised_everywhere
from support.checks import assert_equal, make_mesh, whole_of
from support.ranks import ranks
from support.values import numbered
from support.worker import Rank

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
