"""Checkpoints on either platform: what is saved under any layout and number of ranks loads under every other."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hyper_parallel import DTensor, RaggedShard, Shard, checkpoint
from support.frameworks import framework
from support.pool import RankPools
from support.ranks import ranks
from support.shared_checkpoints import (
    STORED_DTYPES,
    GatedWriter,
    State,
    assert_same_bits,
    assert_same_state,
    bits,
    filled,
    laid_out,
    layouts,
    random_tensor,
    whole_of,
)
from support.worker import Rank

SHAPE = (6, 4)

# --- layouts, ranks, dtypes ------------------------------------------------------------------------------------------


@ranks(1, 2, 3)
def test_a_tensor_of_any_layout_loads_under_every_other(rank: Rank, tmp_path: Path) -> None:
    whole = random_tensor("x", SHAPE)
    all_of = {name: laid_out(whole, placements, rank.size) for name, placements in layouts(rank.size).items()}
    checkpoint.save({**all_of, "plain": whole}, tmp_path / "d")
    for stored in (*all_of, "plain"):
        for wanted, expected in all_of.items():
            state = {stored: filled(expected, -9)}
            checkpoint.load(state, tmp_path / "d", allow_extra=["*"])
            assert_same_bits(state[stored].to_local(), expected.to_local())
            assert state[stored].placements == expected.placements, wanted
        state = {stored: filled(whole, -9)}
        checkpoint.load(state, tmp_path / "d", allow_extra=["*"])
        assert_same_bits(state[stored], whole)
    assert {name: bits(tensor) for name, tensor in checkpoint.read(tmp_path / "d").items()} == dict.fromkeys(
        (*all_of, "plain"), bits(whole)
    )


def saved(rank: Rank, folder: Path) -> None:
    whole = random_tensor("x", SHAPE)
    state = {name: laid_out(whole, placements, rank.size) for name, placements in layouts(rank.size).items()}
    checkpoint.save(state, folder)


def loaded(rank: Rank, folder: Path) -> None:
    whole = random_tensor("x", SHAPE)
    expected = {name: laid_out(whole, placements, rank.size) for name, placements in layouts(rank.size).items()}
    state = filled(expected, -9)
    checkpoint.load(state, folder)
    assert_same_state(state, expected)


@pytest.mark.parametrize(("savers", "loaders"), [(1, 3), (2, 3), (3, 1), (3, 2)])
def test_other_ranks_load_than_saved(rank_pools: RankPools, savers: int, loaders: int, tmp_path: Path) -> None:
    rank_pools[savers].run(saved, tmp_path / "d")
    rank_pools[loaders].run(loaded, tmp_path / "d")


@ranks(3)
def test_every_dtype_comes_back_bit_for_bit(rank: Rank, tmp_path: Path) -> None:
    plain = {dtype: random_tensor(dtype, SHAPE, dtype) for dtype in STORED_DTYPES}
    other = layouts(rank.size)
    state = {
        "ragged": {dtype: laid_out(whole, other["ragged cells"], rank.size) for dtype, whole in plain.items()},
        "columns": {dtype: laid_out(whole, other["columns"], rank.size) for dtype, whole in plain.items()},
        "plain": plain,
    }
    checkpoint.save(state, tmp_path / "d")
    wanted = {name: filled(entries, 1) for name, entries in state.items()}
    checkpoint.load(wanted, tmp_path / "d")
    assert_same_state(wanted, state)
    assert_same_state(checkpoint.read(tmp_path / "d"), dict.fromkeys(state, plain))


@ranks(2)
def test_a_mesh_of_some_ranks_saves_and_loads(rank: Rank, tmp_path: Path) -> None:
    whole = random_tensor("x", SHAPE)
    checkpoint.save({"x": laid_out(whole, [RaggedShard((0,), (1,))], 1)}, tmp_path / "d")
    assert_same_bits(checkpoint.read(tmp_path / "d")["x"], whole)
    state = {"x": filled(laid_out(whole, [Shard(0)], 1), -9)}
    checkpoint.load(state, tmp_path / "d")
    assert bits(state["x"].to_local()) == (bits(whole) if rank.index == 0 else b"")


# --- what state dicts hold -------------------------------------------------------------------------------------------


@ranks(1, 2)
def test_nested_states_and_values_come_back_with_their_types(rank: Rank, tmp_path: Path) -> None:
    placed = laid_out(random_tensor("x", SHAPE), layouts(rank.size)["ragged rows"], rank.size)
    state = {
        "model": {"x": placed, "scale": 0.5, 3: random_tensor("three", (2,))},
        "list": [random_tensor("l", (2,)), [None, -0.0], {"y": random_tensor("y", (1, 2), "int64")}],
        "of no dim": random_tensor("s", ()),
        "empty": random_tensor("e", (0, 3)),
        "values": [1, True, 2**70, 1e22, 1.5 - 2j, "ключ", b"\x00\xff", None, (1, (2, [])), {"a": {}}],
    }
    checkpoint.save(state, tmp_path / "d")
    wanted = filled(state, -9)
    checkpoint.load(wanted, tmp_path / "d")
    assert_same_state(wanted, state)
    whole = {**state, "model": {**state["model"], "x": whole_of(placed)}}
    assert_same_state(checkpoint.read(tmp_path / "d"), whole)


def test_a_process_alone_saves_loads_and_reads(tmp_path: Path) -> None:
    x, step = random_tensor("x", SHAPE), 3
    checkpoint.save({"x": x, "step": step}, tmp_path / "d")
    state: State = {"x": filled(x, -9), "step": None}
    target = state["x"]
    checkpoint.load(state, tmp_path / "d")
    assert state["x"] is target
    assert_same_state(state, {"x": x, "step": step})
    assert_same_state(checkpoint.read(tmp_path / "d"), {"x": x, "step": step})


def test_a_target_that_is_transposed_is_filled(tmp_path: Path) -> None:
    x = random_tensor("x", SHAPE)
    checkpoint.save({"x": x, "turned": x.T}, tmp_path / "d")
    base = framework.tensor(np.zeros((4, 6)))
    checkpoint.load({"x": base.T}, tmp_path / "d", allow_extra=["*"])
    assert bits(base) == bits(framework.tensor(framework.array(x).T))
    assert bits(checkpoint.read(tmp_path / "d")["turned"]) == bits(base)


def test_a_target_that_is_a_slice_is_filled_and_nothing_around_it(tmp_path: Path) -> None:
    x = random_tensor("x", SHAPE)
    checkpoint.save({"x": x}, tmp_path / "d")
    base = framework.tensor(np.full((8, 7), -9))
    checkpoint.load({"x": base[1:7, 2:6]}, tmp_path / "d")
    expected = np.full((8, 7), -9, np.float32)
    expected[1:7, 2:6] = framework.array(x)
    assert bits(base) == bits(framework.tensor(expected))


@ranks(2)
def test_allowed_casts_convert(rank: Rank, tmp_path: Path) -> None:
    numbers = np.array([[0.0, 1.0, 2.5], [-3.0, 100.0, 7.0], [1.0, 5.0, -2.0]])
    units = [RaggedShard((0,), (1, 2))]
    checkpoint.save({"x": laid_out(framework.tensor(numbers, "float32"), units, 2)}, tmp_path / "d")
    for dtype in ("float64", "bfloat16", "float16", "int32", "bool", "float32"):
        target = laid_out(framework.tensor(np.ones((3, 3)), dtype), [Shard(1)], 2)
        checkpoint.load({"x": target}, tmp_path / "d", allow_cast=["x"])
        expected = numbers.astype("float32" if dtype == "bfloat16" else dtype)
        np.testing.assert_array_equal(framework.array(target.to_local()), expected[:, 2 * rank.index :][:, :2])


def test_a_cast_from_bfloat16_converts(tmp_path: Path) -> None:
    checkpoint.save({"x": framework.tensor(np.array([1.5, -2.0]), "bfloat16")}, tmp_path / "d")
    for dtype in ("float64", "float16", "int64", "complex64"):
        target = framework.tensor(np.zeros(2), dtype)
        checkpoint.load({"x": target}, tmp_path / "d", allow_cast=["x"])
        np.testing.assert_array_equal(framework.array(target), np.array([1.5, -2.0]).astype(dtype))


def test_missing_and_extra_entries_are_allowed_by_name(tmp_path: Path) -> None:
    checkpoint.save({"x": random_tensor("x", (2,)), "old": random_tensor("o", (2,)), "n": 1}, tmp_path / "d")
    new = random_tensor("new", (3,))
    state = {"x": framework.tensor(np.zeros(2)), "new": new, "m": "before"}
    checkpoint.load(state, tmp_path / "d", allow_missing=["new", "m"], allow_extra=["old", "n"])
    assert_same_state(state, {"x": random_tensor("x", (2,)), "new": random_tensor("new", (3,)), "m": "before"})


# --- in the background, and again -----------------------------------------------------------------------------------


@ranks(1, 3)
def test_what_is_written_after_async_save_is_not_in_the_checkpoint(rank: Rank, tmp_path: Path) -> None:
    whole = random_tensor("x", SHAPE)
    state: State = {name: laid_out(whole, how, rank.size) for name, how in layouts(rank.size).items()}
    state["plain"] = random_tensor("plain", SHAPE)
    writer = GatedWriter(tmp_path / "d")
    handle = checkpoint.async_save(state, storage_writer=writer)
    for tensor in state.values():
        if isinstance(tensor, DTensor):
            tensor.fill_(-9)
        else:
            tensor.copy_(framework.tensor(np.full(SHAPE, -9)))
    assert not handle.done()
    writer.gate.set()
    handle.wait(30)
    expected = dict.fromkeys(layouts(rank.size), whole) | {"plain": random_tensor("plain", SHAPE)}
    assert_same_state(checkpoint.read(tmp_path / "d"), expected)
    assert_same_bits(state["plain"], framework.tensor(np.full(SHAPE, -9)))


@ranks(2)
def test_a_load_waits_for_the_save_in_the_background(rank: Rank, tmp_path: Path) -> None:
    ragged = laid_out(random_tensor("ragged", SHAPE), [RaggedShard((0,), (1, 2))], 2)
    state = {"ragged": ragged, "plain": random_tensor("plain", (3,), "float64"), "step": 3}
    for _ in range(3):
        checkpoint.async_save(state, tmp_path / "d")
        wanted = filled(state, -9)
        checkpoint.load(wanted, tmp_path / "d")
        assert_same_state(wanted, state)


@ranks(2)
def test_a_save_of_equal_plans_uses_the_plan_of_the_save_before(rank: Rank, tmp_path: Path) -> None:
    from hyper_parallel.checkpoint._jobs import checkpointer_of  # noqa: PLC0415  (asks for the ranks' group)

    before = checkpointer_of().plan_cache_hits
    for number in range(2):
        state = {"x": laid_out(framework.tensor(np.full(SHAPE, number)), [Shard(0)], 2)}
        checkpoint.save(state, tmp_path / "d")
    assert checkpointer_of().plan_cache_hits == before + 1
    ragged = {"x": laid_out(framework.tensor(np.zeros(SHAPE)), [RaggedShard((0,), (1, 2))], 2)}
    for _ in range(2):
        checkpoint.save(ragged, tmp_path / "d")
    assert checkpointer_of().plan_cache_hits == before + 1
