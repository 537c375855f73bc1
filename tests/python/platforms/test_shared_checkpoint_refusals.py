"""Checkpoints on either platform: what cannot be saved or loaded raises on every rank, and nothing is touched."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hyper_parallel import DTensor, Partial, RaggedShard, Replicate, Shard, checkpoint
from support.common import assert_raises, make_mesh
from support.frameworks import framework
from support.ranks import ranks
from support.shared_checkpoints import (
    State,
    assert_same_bits,
    assert_same_state,
    filled,
    laid_out,
    raised_everywhere,
    random_tensor,
)
from support.worker import Rank

SHAPE = (6, 4)


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
