"""Checkpoints on either platform: what one of them has saved, under any layout and number of ranks, both load."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hyper_parallel import DTensor, Partial, RaggedShard, Replicate, Shard, checkpoint
from support.common import assert_raises, make_mesh
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
    data_of,
    filled,
    golden_state,
    laid_out,
    layouts,
    metadata_of,
    raised_everywhere,
    random_tensor,
    whole_of,
)
from support.worker import Rank

GOLDEN = Path(__file__).parents[2] / "golden" / "checkpoint"
WRITTEN_BY = ["torch", "mindspore"]
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


# --- refusals --------------------------------------------------------------------------------------------------------


def good() -> State:
    """A state with an entry of every kind, on two ranks."""
    return {
        "ragged": laid_out(random_tensor("ragged", SHAPE), [RaggedShard((0,), (1, 2))], 2),
        "rows": laid_out(random_tensor("rows", (5, 2)), [Shard(0)], 2),
        "plain": random_tensor("plain", (3,), "float64"),
        "step": 3,
    }


def pending() -> DTensor:
    return DTensor.from_local(framework.tensor(np.ones(2)), make_mesh(2), [Partial()], shape=(2,))


SAVES: dict[str, tuple[Callable[[], object], type[BaseException], str]] = {
    "Partial": (
        pending,
        ValueError,
        "checkpoint entry 'bad' has placement Partial(sum): its values are still to be reduced; redistribute it before "
        "saving",
    ),
    "complex128": (lambda: framework.tensor(np.zeros(2), "complex128"), TypeError, "checkpoint entry 'bad' has dtype"),
    "a set": (lambda: {1}, ValueError, "state_dict['bad'] is of type set, but a checkpoint stores"),
}
on_which_ranks = pytest.mark.parametrize("where", ["everywhere", "on rank 0", "on rank 1"])


@on_which_ranks
@pytest.mark.parametrize("kind", list(SAVES))
@ranks(2)
def test_what_cannot_be_stored_raises_on_every_rank_and_writes_nothing(
    rank: Rank, kind: str, where: str, tmp_path: Path
) -> None:
    make, error, text = SAVES[kind]
    bad = make()
    state = good() | ({"bad": bad} if where in {"everywhere", f"on rank {rank.index}"} else {})
    for save in (checkpoint.save, checkpoint.async_save):
        raised_everywhere(rank, error, text, lambda call=save: call(state, tmp_path / "d"), tmp_path)  # type: ignore[misc]
    assert not list((tmp_path / "d").glob("*"))


@ranks(2)
def test_ranks_that_disagree_about_a_tensor_raise_together(rank: Rank, tmp_path: Path) -> None:
    state = {"x": random_tensor("x", (2 + rank.index,))}
    raised_everywhere(rank, ValueError, "'x'", lambda: checkpoint.save(state, tmp_path / "d"), tmp_path)


@ranks(2, check=True)
def test_replicas_that_differ_raise_together_under_check(rank: Rank, tmp_path: Path) -> None:
    state = {"x": framework.tensor(np.full(3, rank.index))}
    raised_everywhere(rank, RuntimeError, "'x'", lambda: checkpoint.save(state, tmp_path / "d"), tmp_path)
    alike = {"x": laid_out(framework.tensor(np.ones((3, 2))), [Replicate()], 2)}
    checkpoint.save(alike, tmp_path / "d")
    assert_same_bits(checkpoint.read(tmp_path / "d")["x"], framework.tensor(np.ones((3, 2))))


LOADS: dict[str, tuple[str, Callable[[], object], type[BaseException], str]] = {
    "a missing tensor": ("bad", lambda: framework.tensor(np.full(2, -9)), ValueError, "'bad'"),
    "a missing value": ("bad", lambda: "before", ValueError, "'bad'"),
    "another shape": ("plain", lambda: framework.tensor(np.full(4, -9), "float64"), ValueError, "(4,)"),
    "another shape of a ragged tensor": (
        "ragged",
        lambda: laid_out(framework.tensor(np.full((4, 6), -9)), [RaggedShard((0,), (1, 1))], 2),
        ValueError,
        "(4, 6)",
    ),
    "another dtype": ("plain", lambda: framework.tensor(np.full(3, -9)), ValueError, "F64"),
    "a tensor for a value": ("step", lambda: framework.tensor(np.full(1, -9)), ValueError, "'step'"),
    "a value for a tensor": ("plain", lambda: "before", ValueError, "'plain'"),
    "Partial": (
        "bad",
        pending,
        ValueError,
        "checkpoint entry 'bad' has placement Partial(sum): its values are still to be reduced; load into another "
        "layout",
    ),
    "complex128": ("bad", lambda: framework.tensor(np.full(2, -9), "complex128"), TypeError, "has dtype"),
}


@on_which_ranks
@pytest.mark.parametrize("kind", list(LOADS))
@ranks(2)
def test_a_target_that_does_not_fit_raises_on_every_rank_and_nothing_is_touched(
    rank: Rank, kind: str, where: str, tmp_path: Path
) -> None:
    checkpoint.save(good(), tmp_path / "d")
    name, make, error, text = LOADS[kind]
    bad = make()
    state = filled(good(), -9)
    if where in {"everywhere", f"on rank {rank.index}"}:
        state[name] = bad
    raised_everywhere(rank, error, text, lambda: checkpoint.load(state, tmp_path / "d"), tmp_path)
    state.pop("bad", None)
    assert_same_state(state, filled(state, -9))


@ranks(2)
def test_a_stored_entry_that_no_rank_wants_raises_on_every_rank(rank: Rank, tmp_path: Path) -> None:
    checkpoint.save(good(), tmp_path / "d")
    state = {name: entry for name, entry in filled(good(), -9).items() if name != "rows"}
    raised_everywhere(rank, ValueError, "'rows'", lambda: checkpoint.load(state, tmp_path / "d"), tmp_path)
    assert_same_state(state, filled(state, -9))


@ranks(2)
def test_damaged_bytes_raise_on_every_rank(rank: Rank, tmp_path: Path) -> None:
    folder = tmp_path / "d"
    checkpoint.save(good(), folder)
    if rank.index == 0:
        path = sorted(folder.glob("*.safetensors"))[-1]
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(content)
    framework.sum_over_ranks(0)
    raised_everywhere(rank, OSError, "checksum", lambda: checkpoint.load(filled(good(), -9), folder), tmp_path)


def test_elements_that_share_memory_are_no_target(tmp_path: Path) -> None:
    checkpoint.save({"x": framework.tensor(np.zeros((4, 3)))}, tmp_path / "d")
    shared = framework.tensor(np.zeros((1, 3))).expand_as(framework.tensor(np.zeros((4, 3))))
    assert_raises(
        ValueError,
        "checkpoint entry 'x' has elements that share memory (an expanded or overlapping tensor), so it cannot be "
        "filled",
        lambda: checkpoint.load({"x": shared}, tmp_path / "d"),
    )


# --- in the background, and classes of the user's own ----------------------------------------------------------------


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
    state = good()
    for _ in range(3):
        checkpoint.async_save(state, tmp_path / "d")
        wanted = filled(state, -9)
        checkpoint.load(wanted, tmp_path / "d")
        assert_same_state(wanted, state)


class Renaming(checkpoint.StandardSavePlanner):
    """Saves what is not called "left out"."""

    def build_local_plan(self) -> checkpoint.SavePlan:
        plan = super().build_local_plan()
        kept = [tensor for tensor in plan.tensors if tensor.name != "left out"]
        return checkpoint.SavePlan(kept, {}, None)


class Counting(checkpoint.StandardLoadPlanner):
    """Counts what is read."""

    finished = 0
    asked: list[str]

    def acquire_tensor(self, item: checkpoint.ReadItem) -> Any:
        self.asked = [*getattr(self, "asked", []), item.dest_index.fqn]
        return super().acquire_tensor(item)

    def finish(self) -> None:
        self.finished += 1
        super().finish()


@ranks(2)
def test_planners_of_the_users_own_are_asked(rank: Rank, tmp_path: Path) -> None:
    x = laid_out(random_tensor("x", SHAPE), [RaggedShard((0, 1), (5, 19))], 2)
    checkpoint.save({"x": x, "left out": random_tensor("y", (2,))}, tmp_path / "d", planner=Renaming)
    assert list(checkpoint.read(tmp_path / "d")) == ["x"]
    state = {"x": filled(laid_out(random_tensor("x", SHAPE), [Shard(1)], 2), -9)}
    planner = Counting(state)
    checkpoint.load(state, tmp_path / "d", planner=planner)
    assert_same_bits(whole_of(state["x"]), whole_of(x))
    assert planner.finished == 1
    assert set(planner.asked) == {"x"}


class IntoArrays(checkpoint.LoadPlanner):
    """Loads a stored tensor into a numpy array of the user's own."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        super().__init__()
        self._array = array

    def build_local_plan(self, metadata: checkpoint.CheckpointMetadata) -> checkpoint.LoadPlan:
        (name,) = metadata.state_dict_metadata
        stored = metadata.state_dict_metadata[name]
        box = checkpoint.ChunkStorageMetadata((0,) * len(stored.size), stored.size)
        return self.plan(metadata, [checkpoint.PlannedTensor(name, stored.dtype, stored.size, [box])])

    def acquire_tensor(self, item: checkpoint.ReadItem) -> Any:
        overlap = zip(item.dest_offsets, item.lengths, strict=True)
        return self._array[(*(slice(begin, begin + count) for begin, count in overlap), ...)]


@ranks(2)
def test_a_planner_may_return_a_strided_array(rank: Rank, tmp_path: Path) -> None:
    whole = random_tensor("x", SHAPE)
    checkpoint.save({"x": laid_out(whole, [Shard(1)], 2)}, tmp_path / "d")
    framework.sum_over_ranks(0)
    for array in (
        np.zeros(SHAPE, np.float32),
        np.zeros(SHAPE, np.float32, order="F"),
        np.zeros((9, 9), np.int32)[2:8, 4:8],
    ):
        checkpoint.load({}, tmp_path / "d", planner=IntoArrays(array))
        assert array.tobytes() == bits(whole)


@ranks(2)
def test_a_planner_that_returns_other_memory_raises_on_every_rank(rank: Rank, tmp_path: Path) -> None:
    checkpoint.save({"x": laid_out(random_tensor("x", SHAPE), [Shard(1)], 2)}, tmp_path / "d")
    framework.sum_over_ranks(0)
    read_only = np.zeros(SHAPE, np.float32)
    read_only.flags.writeable = False
    for array, error, text in (
        (np.zeros(SHAPE, np.float64), TypeError, "what acquire_tensor returns is of type numpy.ndarray but must be"),
        (np.zeros((6, 1), np.float32), ValueError, "what acquire_tensor returns has"),
        (
            np.zeros(SHAPE, np.float32)[::-1],
            TypeError,
            "what acquire_tensor returns is of type numpy.ndarray but must be",
        ),
        (read_only, TypeError, "what acquire_tensor returns is of type numpy.ndarray but must be"),
    ):
        planner = IntoArrays(array)
        raised_everywhere(
            rank,
            error,
            text,
            lambda made=planner: checkpoint.load({}, tmp_path / "d", planner=made),  # type: ignore[misc]
            tmp_path,
        )
        assert not array.any()


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


# --- between the frameworks ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("writer", WRITTEN_BY)
def test_what_either_framework_has_written_is_read_bit_for_bit(rank_pools: RankPools, writer: str) -> None:
    rank_pools[2].run(reads_the_golden_state, GOLDEN / f"written_by_{writer}")


def reads_the_golden_state(rank: Rank, folder: Path) -> None:
    expected = golden_state()
    state = filled(expected, 1)
    checkpoint.load(state, folder)
    assert_same_state(state, expected)
    whole = {**expected, "ragged": {d: random_tensor(f"ragged {d}", (5, 3), d) for d in STORED_DTYPES}}
    whole["layouts"] = {name: random_tensor(name, SHAPE) for name in layouts(2)}
    assert_same_state(checkpoint.read(folder), whole)


@pytest.mark.parametrize("writer", WRITTEN_BY)
@pytest.mark.parametrize("size", [1, 3])
def test_what_either_framework_has_written_loads_under_other_layouts(
    rank_pools: RankPools, writer: str, size: int
) -> None:
    rank_pools[size].run(loads_the_golden_layouts, GOLDEN / f"written_by_{writer}")


def loads_the_golden_layouts(rank: Rank, folder: Path) -> None:
    stored, placements = list(layouts(2)), list(layouts(rank.size).values())
    for turn in range(len(stored)):
        expected = {
            name: laid_out(random_tensor(name, SHAPE), placements[(at + turn) % len(stored)], rank.size)
            for at, name in enumerate(stored)
        }
        state = {"layouts": filled(expected, -9)}
        checkpoint.load(state, folder, allow_extra=["*"])
        assert_same_state(state, {"layouts": expected})


@pytest.mark.parametrize("writer", WRITTEN_BY)
@ranks(2)
def test_both_frameworks_write_the_same_bytes(rank: Rank, writer: str, tmp_path: Path) -> None:
    """The golden directories are `save(golden_state(), ...)` on two ranks; chunks, checksums and files are equal."""
    checkpoint.save(golden_state(), tmp_path / "d")
    golden = GOLDEN / f"written_by_{writer}"
    assert metadata_of(tmp_path / "d") == metadata_of(golden)
    assert data_of(tmp_path / "d") == data_of(golden)


def test_the_golden_directory_of_the_format_is_read() -> None:
    """Byte i of a tensor is 17 i + the sum of its name's letters, and i mod 2 where it is a bool."""
    read = checkpoint.read(GOLDEN / "v1")["model"]
    assert {name: framework.dtype_of(tensor) for name, tensor in read.items()} == {
        "b": "bfloat16", "empty": "float32", "flags": "bool", "ids": "int64", "scale": "float64", "w": "float32",
        "z": "complex64",
    }  # fmt: skip
    for name, tensor in read.items():
        start = sum(f"model.{name}".encode())
        count = len(bits(tensor))
        expected = bytes(i % 2 if name == "flags" else (17 * i + start) % 256 for i in range(count))
        assert bits(tensor) == expected, name
