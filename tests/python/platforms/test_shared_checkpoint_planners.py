"""Checkpoints on either platform: planners of the user's own are asked, and checked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from hyper_parallel import RaggedShard, Shard, checkpoint
from support.frameworks import framework
from support.ranks import ranks
from support.shared_checkpoints import (
    assert_same_bits,
    bits,
    filled,
    laid_out,
    raised_everywhere,
    random_tensor,
    whole_of,
)
from support.worker import Rank

SHAPE = (6, 4)


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
