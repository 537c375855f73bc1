"""Loads that must raise: on every rank, with the targets untouched; and what allows them by name."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from hyper_parallel import DTensor, RaggedShard, Replicate, Shard, checkpoint, distribute_tensor
from support.checkpoints import assert_same_bits, local_of, raised_everywhere
from support.checks import assert_equal, assert_raises, make_mesh
from support.ranks import ranks
from support.refused_states import (
    Refusal,
    State,
    emptied,
    good,
    is_there,
    on_which_ranks,
    pending,
    replaced,
    untouched,
    with_entry,
    without,
)
from support.values import numbered
from support.worker import Rank

LOADS: dict[str, tuple[Callable[[], State], tuple[str, ...]]] = {
    "a missing tensor": (lambda: with_entry(torch.full((2,), -9.0), emptied(good())), ("'model.bad'",)),
    "a missing value": (lambda: with_entry("before", emptied(good())), ("'model.bad'",)),
    "another shape": (
        lambda: replaced(("model", "plain"), torch.full((4,), -9.0, dtype=torch.float64)),
        ("'model.plain'", "(3,)", "(4,)"),
    ),
    "another shape of a ragged tensor": (
        lambda: replaced(
            ("model", "ragged"), distribute_tensor(torch.full((4, 6), -9.0), make_mesh(2), [RaggedShard((0,), (1, 1))])
        ),
        ("'model.ragged'", "(6, 4)", "(4, 6)"),
    ),
    "another dtype": (
        lambda: replaced(("model", "plain"), torch.full((3,), -9.0)),
        ("'model.plain'", "F64", "F32"),
    ),
    "a tensor for a value": (lambda: replaced(("optimizer", "lr"), torch.full((1,), -9.0)), ("'optimizer.lr'",)),
    "a value for a tensor": (lambda: replaced(("model", "plain"), "before"), ("'model.plain'",)),
}


@on_which_ranks
@pytest.mark.parametrize("kind", list(LOADS))
@ranks(2)
def test_a_target_that_does_not_fit_raises_on_every_rank_and_nothing_is_touched(
    rank: Rank, kind: str, where: str, tmp_path: Path
) -> None:
    checkpoint.save(good(), tmp_path / "d")
    make, texts = LOADS[kind]
    state = make() if is_there(rank, where) else emptied(good())
    raised_everywhere(rank, ValueError, lambda: checkpoint.load(state, tmp_path / "d"), *texts)
    assert untouched(state)


LOAD_ENTRIES: dict[str, Refusal] = {
    "Partial": (pending, ValueError, ("'model.bad'", "Partial")),
    "complex128": (lambda: torch.zeros(2, dtype=torch.complex128), TypeError, ("'model.bad'",)),
    "two entries of one name": (lambda: {"x.y": 1, "x": {"y": 2}}, ValueError, ("'model.bad.x.y'",)),
    "a set": (lambda: {1}, ValueError, ("state_dict['model']['bad']",)),
    "elements that share memory": (lambda: torch.zeros(1).expand(3), ValueError, ("'model.bad'",)),
}


@on_which_ranks
@pytest.mark.parametrize("kind", list(LOAD_ENTRIES))
@ranks(2)
def test_a_target_that_cannot_be_one_raises_on_every_rank(rank: Rank, kind: str, where: str, tmp_path: Path) -> None:
    checkpoint.save(with_entry(torch.zeros(3)), tmp_path / "d")
    make, error, texts = LOAD_ENTRIES[kind]
    state = with_entry(make() if is_there(rank, where) else torch.zeros(3), emptied(good()))
    raised_everywhere(rank, error, lambda: checkpoint.load(state, tmp_path / "d"), *texts)
    assert untouched(state)


@ranks(2)
def test_an_extra_entry_raises_if_no_rank_wants_it(rank: Rank, tmp_path: Path) -> None:
    checkpoint.save(with_entry(torch.zeros(2)), tmp_path / "d")
    state = emptied(good())
    raised_everywhere(rank, ValueError, lambda: checkpoint.load(state, tmp_path / "d"), "'model.bad'")
    assert untouched(state)
    if rank.index == 1:
        state["model"]["bad"] = torch.full((2,), -9.0)
    checkpoint.load(state, tmp_path / "d")
    assert state["step"] == 3


@ranks(2)
def test_many_extra_entries_are_named_in_part(rank: Rank, tmp_path: Path) -> None:
    checkpoint.save({**good(), "more": {f"{i:04}": i for i in range(2000)}}, tmp_path / "d")
    message = raised_everywhere(
        rank, ValueError, lambda: checkpoint.load(emptied(good()), tmp_path / "d"), "'more.0000'"
    )
    assert len(message) < 1000
    assert "2000" in message or "1990" in message, "how many there are"


PATTERNS = {"by name": "model.bad", "by pattern": "model.*", "by ?": "model.ba?", "all": "*"}


@pytest.mark.parametrize("pattern", list(PATTERNS))
@ranks(2)
def test_a_missing_entry_that_is_allowed_stays_as_it_is(rank: Rank, pattern: str, tmp_path: Path) -> None:
    checkpoint.save(good(), tmp_path / "d")
    for entry in (torch.full((2,), -9.0), "before", [torch.full((1,), -9.0), "before"]):
        state = with_entry(entry, emptied(good()))
        allowed = [PATTERNS[pattern], "model.bad.*"]
        checkpoint.load(state, tmp_path / "d", allow_missing=allowed)
        assert state["model"]["bad"] is entry
        assert untouched(entry)
        assert state["step"] == 3
        assert_same_bits(local_of(state["model"]["ragged"]), local_of(good()["model"]["ragged"]))


@pytest.mark.parametrize("pattern", list(PATTERNS))
@ranks(2)
def test_an_extra_entry_that_is_allowed_is_left(rank: Rank, pattern: str, tmp_path: Path) -> None:
    checkpoint.save(with_entry(torch.zeros(2)), tmp_path / "d")
    state = emptied(good())
    checkpoint.load(state, tmp_path / "d", allow_extra=(PATTERNS[pattern],))
    assert "bad" not in state["model"]
    assert_equal(state["model"]["plain"], numbered((3,), torch.float64))


@pytest.mark.parametrize("pattern", list(PATTERNS))
@ranks(2)
def test_another_dtype_that_is_allowed_is_converted(rank: Rank, pattern: str, tmp_path: Path) -> None:
    whole = numbered((6, 4), torch.float64) + 0.5
    mesh = make_mesh(2)
    checkpoint.save(with_entry(distribute_tensor(whole, mesh, [Shard(1)])), tmp_path / "d")
    for dtype in (torch.float32, torch.bfloat16, torch.int32):
        target = distribute_tensor(torch.zeros(6, 4, dtype=dtype), mesh, [RaggedShard((0, 1), (5, 7))])
        state = with_entry(target, emptied(good()))
        checkpoint.load(state, tmp_path / "d", allow_cast=[PATTERNS[pattern]])
        assert_equal(target.full_tensor(), whole.to(dtype))


@ranks(2)
def test_a_pattern_that_is_not_the_entrys_allows_nothing(rank: Rank, tmp_path: Path) -> None:
    checkpoint.save(good(), tmp_path / "d")
    for pattern in ("model", "bad", "MODEL.BAD", "model.bad.", "odel.bad", "[!m]odel.bad", ""):
        state = with_entry(torch.full((2,), -9.0), emptied(good()))
        load = functools.partial(checkpoint.load, state, tmp_path / "d", allow_missing=[pattern])
        raised_everywhere(rank, ValueError, load, "'model.bad'")
        assert untouched(state)


@ranks(2)
def test_allowing_one_thing_allows_no_other(rank: Rank, tmp_path: Path) -> None:
    checkpoint.save(good(), tmp_path / "d")
    missing = with_entry(torch.full((2,), -9.0), emptied(good()))
    load = functools.partial(checkpoint.load, missing, tmp_path / "d", allow_extra=["*"], allow_cast=["*"])
    raised_everywhere(rank, ValueError, load, "'model.bad'")
    extra = emptied(without("model", "plain"))
    load = functools.partial(checkpoint.load, extra, tmp_path / "d", allow_missing=["*"], allow_cast=["*"])
    raised_everywhere(rank, ValueError, load, "'model.plain'")
    unlike = replaced(("model", "plain"), torch.full((4,), -9.0, dtype=torch.float64))
    everything = ["*"]
    load = functools.partial(
        checkpoint.load, unlike, tmp_path / "d", allow_missing=everything, allow_extra=everything, allow_cast=everything
    )
    raised_everywhere(rank, ValueError, load, "'model.plain'")
    for state in (missing, extra, unlike):
        assert untouched(state)


@ranks(2)
def test_where_no_checkpoint_is_load_raises(rank: Rank, tmp_path: Path) -> None:
    if rank.index == 0:
        (tmp_path / "empty").mkdir()
        (tmp_path / "file").touch()
    dist.barrier()
    for place in ("empty", "file", "nowhere"):
        state = emptied(good())
        raised_everywhere(
            rank, ValueError, functools.partial(checkpoint.load, state, tmp_path / place), str(tmp_path / place)
        )
        assert untouched(state)
        assert_raises(ValueError, str(tmp_path / place), functools.partial(checkpoint.read, tmp_path / place))


@ranks(2)
def test_a_checkpoint_of_a_replicated_tensor_fills_every_replica(rank: Rank, tmp_path: Path) -> None:
    """The counterpart of what is refused here: nothing of it hinders an ordinary load."""
    checkpoint.save(with_entry(numbered((4,))), tmp_path / "d")
    target = DTensor.from_local(torch.full((4,), -9.0), make_mesh(2), [Replicate()], shape=(4,))
    checkpoint.load(with_entry(target, emptied(good())), tmp_path / "d")
    assert target._local_tensor.tolist() == [0, 1, 2, 3]
