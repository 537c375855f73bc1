"""What must raise: on every rank, before anything is written, or with the targets untouched."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from hyper_parallel import DTensor, Partial, RaggedShard, Replicate, Shard, checkpoint, distribute_tensor
from support.checkpoints import (
    ForwardingReader,
    ForwardingWriter,
    GatedWriter,
    assert_same_bits,
    bits,
    content_of,
    local_of,
    raised_everywhere,
)
from support.checks import assert_equal, assert_raises, make_mesh
from support.pool import RankPools
from support.ranks import ranks
from support.values import numbered
from support.worker import Rank

State = dict[Any, Any]


def good() -> State:
    """A state with an entry of every kind."""
    mesh = make_mesh(2)
    return {
        "model": {
            "ragged": distribute_tensor(numbered((6, 4)), mesh, [RaggedShard((0,), (1, 2))]),
            "sharded": distribute_tensor(numbered((5, 2)), mesh, [Shard(0)]),
            "plain": numbered((3,), torch.float64),
        },
        "optimizer": {"lr": 0.1, "state": [numbered((2,)), "x"]},
        "step": 3,
    }


def with_entry(value: object, state: State | None = None) -> State:
    """A good state, but for `model.bad`."""
    state = good() if state is None else state
    state["model"]["bad"] = value
    return state


def without(*path: str) -> State:
    state = good()
    inner = state
    for key in path[:-1]:
        inner = inner[key]
    del inner[path[-1]]
    return state


# Saving


def pending() -> DTensor:
    return DTensor.from_local(torch.ones(2), make_mesh(2), [Partial()])


Refusal = tuple[Callable[[], object], type[BaseException], tuple[str, ...]]

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
on_which_ranks = pytest.mark.parametrize("where", ["everywhere", "on rank 0", "on rank 1"])
every_saver = pytest.mark.parametrize("saver", ["save", "async_save"])


def is_there(rank: Rank, where: str) -> bool:
    return where in {"everywhere", f"on rank {rank.index}"}


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


# Planners and storages that raise


class Broken(Exception):
    """What a user's own code raises."""


def broken(*_: object, **__: object) -> Any:
    raise Broken("a fault of the user's own")


def breaks(kind: type, method: str) -> type:
    """A subclass that raises in a method."""
    return type(f"Breaks{method}", (kind,), {method: broken})


@pytest.mark.parametrize("failing", [0, 1])
@pytest.mark.parametrize("method", ["build_local_plan", "get_data"])
@every_saver
@ranks(2)
def test_a_save_planner_that_raises_on_one_rank_raises_on_all(
    rank: Rank, saver: str, method: str, failing: int, tmp_path: Path
) -> None:
    checkpoint.save(good(), tmp_path / "d")
    before = content_of(tmp_path / "d")
    planner = breaks(checkpoint.StandardSavePlanner, method) if rank.index == failing else None

    def save() -> None:
        handle = getattr(checkpoint, saver)(good(), tmp_path / "d", planner=planner)
        if handle is not None:
            handle.wait()

    raised_everywhere(rank, Exception, save, f"rank {failing}", "a fault of the user's own")
    assert content_of(tmp_path / "d") == before


class Unpublishing(ForwardingWriter):
    """Fails to publish, and gives its place up as whoever fails there has to: nothing is called after `publish`."""

    def publish(self, metadata: checkpoint.CheckpointMetadata) -> None:
        self.inner.abandon()
        broken(self)


@pytest.mark.parametrize(("method", "failing"), [("begin", 0), ("write", 0), ("write", 1), ("publish", 0)])
@every_saver
@ranks(2)
def test_a_storage_writer_that_raises_on_one_rank_raises_on_all(
    rank: Rank, saver: str, method: str, failing: int, tmp_path: Path
) -> None:
    checkpoint.save(good(), tmp_path / "d")
    before = content_of(tmp_path / "d")
    failing_kind = Unpublishing if method == "publish" else breaks(ForwardingWriter, method)
    kind = failing_kind if rank.index == failing else ForwardingWriter

    def save() -> None:
        handle = getattr(checkpoint, saver)(good(), storage_writer=kind(tmp_path / "d"))
        if handle is not None:
            handle.wait()

    raised_everywhere(rank, Exception, save, "a fault of the user's own")
    assert content_of(tmp_path / "d") == before
    checkpoint.save(good(), tmp_path / "d")


@pytest.mark.parametrize("failing", [0, 1])
@pytest.mark.parametrize("method", ["build_local_plan", "acquire_tensor"])
@ranks(2)
def test_a_load_planner_that_raises_on_one_rank_raises_on_all(
    rank: Rank, method: str, failing: int, tmp_path: Path
) -> None:
    checkpoint.save(good(), tmp_path / "d")
    planner = breaks(checkpoint.StandardLoadPlanner, method) if rank.index == failing else None
    load = functools.partial(checkpoint.load, good(), tmp_path / "d", planner=planner)
    raised_everywhere(rank, Exception, load, f"rank {failing}", "a fault of the user's own")


@pytest.mark.parametrize(
    ("method", "failing"), [("read_metadata", 0), ("open", 0), ("open", 1), ("read", 0), ("read", 1)]
)
@ranks(2)
def test_a_storage_reader_that_raises_on_one_rank_raises_on_all(
    rank: Rank, method: str, failing: int, tmp_path: Path
) -> None:
    checkpoint.save(good(), tmp_path / "d")
    kind = breaks(ForwardingReader, method) if rank.index == failing else ForwardingReader
    state = emptied(good())
    load = functools.partial(checkpoint.load, state, storage_reader=kind(tmp_path / "d"))
    raised_everywhere(rank, Exception, load, "a fault of the user's own")
    assert method == "read" or untouched(state)


@pytest.mark.parametrize("kind", ["FileSystemWriter", "FileSystemReader"])
def test_a_method_of_a_class_derived_from_a_storage_is_not_passed_over(kind: str, tmp_path: Path) -> None:
    """It is called, or the class cannot be derived from."""
    checkpoint.save({"w": torch.ones(2)}, tmp_path / "d")
    try:
        derived = breaks(getattr(checkpoint, kind), "write" if kind == "FileSystemWriter" else "read")
    except TypeError:
        return
    with pytest.raises(Exception, match="a fault of the user's own"):
        if kind == "FileSystemWriter":
            checkpoint.save({"w": torch.zeros(2)}, storage_writer=derived(tmp_path / "d"))
        else:
            checkpoint.load({"w": torch.zeros(2)}, storage_reader=derived(tmp_path / "d"))


def save_is_refused(rank: Rank, folder: Path) -> None:
    raised_everywhere(rank, RuntimeError, lambda: checkpoint.save({"w": torch.zeros(2)}, folder), "save", str(folder))


def test_a_save_beside_another_jobs_raises(rank_pools: RankPools, tmp_path: Path) -> None:
    """This process is a job of its own; it has begun to save and has not ended."""
    writer = GatedWriter(tmp_path / "d")
    handle = checkpoint.async_save({"w": torch.ones(2)}, storage_writer=writer)
    rank_pools[2].run(save_is_refused, tmp_path / "d")
    writer.may_write.set()
    handle.wait()
    assert checkpoint.read(tmp_path / "d")["w"].tolist() == [1, 1]


# Loading


def emptied(state: Any) -> Any:
    """The same state with -9 in tensors and "before" in the place of values."""
    if isinstance(state, DTensor):
        mine = state.clone()
        mine._local_tensor.fill_(-9)
        return mine
    if isinstance(state, torch.Tensor):
        return torch.full_like(state, -9)
    if isinstance(state, dict):
        return {key: emptied(value) for key, value in state.items()}
    return [emptied(value) for value in state] if isinstance(state, list) else "before"


def untouched(state: Any) -> bool:
    """Whether every entry is as `emptied` made it; one that was put in beside may be anything."""
    if isinstance(state, torch.Tensor):
        return bits(local_of(state)) == bits(torch.full_like(local_of(state), -9))
    if isinstance(state, dict):
        return all(untouched(value) for key, value in state.items() if key != "bad")
    return all(map(untouched, state)) if isinstance(state, list) else state == "before"


def replaced(path: tuple[str, str], value: object) -> State:
    state = emptied(good())
    state[path[0]][path[1]] = value
    return state


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
