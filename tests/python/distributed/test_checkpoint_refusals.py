"""Saves that must raise: on every rank, before anything is written."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from hyper_parallel import RaggedShard, Shard, checkpoint, distribute_tensor
from support.checkpoints import content_of, raised_everywhere
from support.checks import make_mesh
from support.ranks import ranks
from support.refused_states import Refusal, every_saver, good, is_there, on_which_ranks, pending, with_entry
from support.values import numbered
from support.worker import Rank

BAD_ENTRIES: dict[str, Refusal] = {
    "Partial": (pending, ValueError, ("'model.bad'", "Partial")),
    "complex128": (lambda: torch.zeros(2, dtype=torch.complex128), TypeError, ("'model.bad'",)),
    "complex128 ragged": (
        lambda: distribute_tensor(torch.zeros(2, dtype=torch.complex128), make_mesh(2), [RaggedShard((0,), (1, 1))]),
        TypeError,
        ("'model.bad'",),
    ),
    "quantized": (
        lambda: torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8),
        TypeError,
        ("'model.bad'",),
    ),
    "sparse": (lambda: torch.eye(2).to_sparse(), TypeError, ("'model.bad'",)),
    "without storage": (lambda: torch.empty(2, device="meta"), TypeError, ("'model.bad'",)),
    "a set": (lambda: {1}, ValueError, ("state_dict['model']['bad']", "set")),
    "a shape": (lambda: torch.Size([2]), ValueError, ("state_dict['model']['bad']", "torch.Size")),
    "text that is not UTF-8": (lambda: "\udcff", ValueError, ("state_dict['model']['bad']", "UTF-8")),
    "two entries of one name": (
        lambda: {"x.y": 1, "x": {"y": 2}},
        ValueError,
        ("'model.bad.x.y'",),
    ),
}


@every_saver
@on_which_ranks
@pytest.mark.parametrize("kind", list(BAD_ENTRIES))
@ranks(2)
def test_what_cannot_be_stored_raises_on_every_rank_before_anything_is_written(
    rank: Rank, kind: str, where: str, saver: str, tmp_path: Path
) -> None:
    make, error, texts = BAD_ENTRIES[kind]
    state = with_entry(make()) if is_there(rank, where) else good()
    save = functools.partial(getattr(checkpoint, saver), state, tmp_path / "d")
    raised_everywhere(rank, error, save, *texts)
    assert content_of(tmp_path) == {}


@every_saver
@pytest.mark.parametrize("kind", ["Partial", "complex128", "a set"])
@ranks(2)
def test_a_save_that_raises_leaves_the_checkpoint_before_it(rank: Rank, kind: str, saver: str, tmp_path: Path) -> None:
    checkpoint.save(good(), tmp_path / "d")
    before = content_of(tmp_path / "d")
    make, error, texts = BAD_ENTRIES[kind]
    state = with_entry(make()) if rank.index == 1 else good()
    raised_everywhere(rank, error, functools.partial(getattr(checkpoint, saver), state, tmp_path / "d"), *texts)
    assert content_of(tmp_path / "d") == before
    checkpoint.save(good(), tmp_path / "d")


DISAGREEMENTS: dict[str, tuple[Callable[[int], object], tuple[str, ...]]] = {
    "shapes": (lambda index: torch.zeros(2 + index), ("'model.bad'", "(2,)", "(3,)")),
    "dtypes": (lambda index: torch.zeros(2, dtype=(torch.float32, torch.int64)[index]), ("'model.bad'", "F32", "I64")),
    "a value and a tensor": (lambda index: (5, torch.zeros(1))[index], ("'model.bad'",)),
    "a list and a dict": (lambda index: ([torch.zeros(1)], {0: torch.zeros(1)})[index], ("model",)),
    "keys of unlike types": (lambda index: ({"0": 1}, {0: 1})[index], ("model",)),
    "a tensor and what is inside it": (lambda index: (torch.zeros(1), {"x": torch.zeros(1)})[index], ("model",)),
}


@pytest.mark.parametrize("kind", list(DISAGREEMENTS))
@ranks(2)
def test_ranks_that_disagree_raise(rank: Rank, kind: str, tmp_path: Path) -> None:
    make, texts = DISAGREEMENTS[kind]
    state = with_entry(make(rank.index))
    raised_everywhere(rank, ValueError, lambda: checkpoint.save(state, tmp_path / "d"), *texts)
    assert content_of(tmp_path) == {}


@ranks(2)
def test_cells_that_no_rank_brings_raise(rank: Rank, tmp_path: Path) -> None:
    sharded = distribute_tensor(numbered((4,)), make_mesh(2), [Shard(0)])
    state = with_entry(sharded) if rank.index == 0 else good()
    raised_everywhere(rank, ValueError, lambda: checkpoint.save(state, tmp_path / "d"), "'model.bad'", "(2,)")
    assert content_of(tmp_path) == {}


@every_saver
@ranks(2)
def test_places_where_no_checkpoint_can_be_raise(rank: Rank, saver: str, tmp_path: Path) -> None:
    if rank.index == 0:
        (tmp_path / "file").write_text("mine")
        (tmp_path / "torch").mkdir()
        (tmp_path / "torch" / ".metadata").write_bytes(b"\x80\x02another program's pickle")
    dist.barrier()
    before = content_of(tmp_path)
    for place, error in (("file", ValueError), ("no/parent", ValueError), ("torch", RuntimeError)):
        save = functools.partial(getattr(checkpoint, saver), good(), tmp_path / place)
        raised_everywhere(rank, error, save, str(tmp_path / place))
    assert content_of(tmp_path) == before


@ranks(2)
def test_arguments_of_other_types_raise(rank: Rank, tmp_path: Path) -> None:
    folder = tmp_path / "d"
    calls: dict[str, Callable[[], object]] = {
        "state_dict": lambda: checkpoint.save([torch.ones(1)], folder),  # type: ignore[arg-type]
        "checkpoint_id": lambda: checkpoint.save(good(), 5),  # type: ignore[arg-type]
        "storage_writer": lambda: checkpoint.save(good(), storage_writer="x"),  # type: ignore[arg-type]
        "checkpoint_id and storage_writer": lambda: checkpoint.save(good()),
        "checkpoint_id and storage_reader": lambda: checkpoint.load(
            good(), folder, storage_reader=checkpoint.FileSystemReader(folder)
        ),
        "planner": lambda: checkpoint.save(good(), folder, planner="x"),  # type: ignore[arg-type]
        "process_group": lambda: checkpoint.save(good(), folder, process_group="x"),  # type: ignore[arg-type]
        "storage_reader": lambda: checkpoint.load(good(), storage_reader="x"),  # type: ignore[arg-type]
        "allow_missing": lambda: checkpoint.load(good(), folder, allow_missing="step"),
        "allow_extra": lambda: checkpoint.load(good(), folder, allow_extra=[5]),  # type: ignore[list-item]
        "allow_cast": lambda: checkpoint.load(good(), folder, allow_cast=None),  # type: ignore[arg-type]
    }
    for argument, call in calls.items():
        raised_everywhere(rank, TypeError, call, argument)
    assert content_of(tmp_path) == {}
