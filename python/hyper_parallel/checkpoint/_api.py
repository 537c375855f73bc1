"""save, load, async_save and read."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hyper_parallel import _core
from hyper_parallel.checkpoint._async import AsyncSave, report_ended
from hyper_parallel.checkpoint._framework import TensorLoadPlanner, empty_tensor
from hyper_parallel.checkpoint._jobs import checkpointer_of
from hyper_parallel.checkpoint._planners import (
    FailedLoadPlanner,
    FailedSavePlanner,
    StandardLoadPlanner,
    StandardSavePlanner,
)
from hyper_parallel.checkpoint._progress import ProgressOption, progress_of
from hyper_parallel.checkpoint._state_dict import assign, unflatten
from hyper_parallel.checkpoint._storages import READER, WRITER, FailedReader, FailedWriter, Location, storage_of
from hyper_parallel.errors import (
    ArgumentTypeError,
    CheckpointError,
    InternalError,
    InvalidArgumentError,
)

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

__all__ = ["async_save", "load", "read", "save"]

StateDict = dict[Any, Any]
SavePlannerOption = _core.SavePlanner | Callable[[StateDict], _core.SavePlanner] | None
LoadPlannerOption = _core.LoadPlanner | Callable[[StateDict], _core.LoadPlanner] | None

# How often `read` begins anew when newer checkpoints take the place of the one it reads.
_ATTEMPTS = 5


@dataclass(frozen=True)
class _SaveArguments:
    """What the user gave to ``save`` or ``async_save``."""

    state_dict: StateDict
    checkpoint_id: Location | None
    storage_writer: _core.StorageWriter | None
    planner: SavePlannerOption
    process_group: ProcessGroup | str | None
    progress: ProgressOption


def save(  # noqa: PLR0913  (options, by name)
    state_dict: StateDict,
    checkpoint_id: Location | None = None,
    *,
    storage_writer: _core.StorageWriter | None = None,
    planner: SavePlannerOption = None,
    process_group: ProcessGroup | str | None = None,
    progress: ProgressOption = None,
) -> None:
    """Saves a state dict: every rank of the group calls with its own part of it.

    The directory holds the old checkpoint until the new one is complete and on the disk, whatever dies in between. Each
    element is stored once: of replicas, and of plain tensors that several ranks have, one rank writes.

    Args:
        state_dict: Nested dicts, lists and tuples of DTensors, plain tensors, None, bool, int, float, complex, str and
            bytes. Lists and tuples without a tensor are one value.
        checkpoint_id: The directory, made where it is missing (its parent is not), or an fsspec address
            ("memory://run/step1").
        storage_writer: Where to save instead.
        planner: What plans instead of ``StandardSavePlanner``: a class, called with the state dict, or an instance.
        process_group: The ranks that save together, on MindSpore the name of their group; the whole job by default,
            this process alone where communication is not initialised.
        progress: None for a bar if standard error is a terminal, False for none, or a function of the bytes done and
            in all.

    Raises:
        InvalidArgumentError: On every rank, before anything is written, naming the entry: a Partial DTensor, two
            entries of one name, a value that cannot be stored, ranks that disagree about a tensor or leave a part of it
            out.
        ArgumentTypeError: A dtype or a kind of tensor that cannot be stored.
        FailedPreconditionError: Another save is under way in the directory, or something else's ``.metadata`` is there;
            with ``HYPER_PARALLEL_CHECK=1`` also replicas that differ.
        CheckpointError: The system does not take the data. The old checkpoint still loads.

    Example:
        >>> save({"w": torch.arange(4.0), "step": 3}, "step3")
        >>> state = {"w": torch.zeros(4), "step": 0}
        >>> load(state, "step3")
        >>> state
        {'w': tensor([0., 1., 2., 3.]), 'step': 3}
    """
    report_ended()
    given = _SaveArguments(state_dict, checkpoint_id, storage_writer, planner, process_group, progress)
    job, parts = _prepared(given)
    job.save(*parts)


def async_save(  # noqa: PLR0913  (options, by name)
    state_dict: StateDict,
    checkpoint_id: Location | None = None,
    *,
    storage_writer: _core.StorageWriter | None = None,
    planner: SavePlannerOption = None,
    process_group: ProcessGroup | str | None = None,
    progress: ProgressOption = None,
) -> AsyncSave:
    """Saves a state dict in the background; returns when its elements are copied, so that the next step may begin.

    What can be known before writing is checked before the call returns, and raises as :func:`save` does. A save or load
    that comes while this one runs waits for its end.

    Args:
        state_dict: As for :func:`save`.
        checkpoint_id: As for :func:`save`.
        storage_writer: As for :func:`save`.
        planner: As for :func:`save`.
        process_group: As for :func:`save`.
        progress: As for :func:`save`.

    Returns:
        A handle; its ``wait()`` raises, on every rank, what went wrong later.

    Raises:
        HyperParallelError: As :func:`save`.

    Example:
        >>> weight = torch.zeros(2)
        >>> handle = async_save({"w": weight}, "step4")
        >>> _ = weight.fill_(7)
        >>> handle.wait()
        >>> read("step4")
        {'w': tensor([0., 0.])}
    """
    report_ended()
    given = _SaveArguments(state_dict, checkpoint_id, storage_writer, planner, process_group, progress)
    job, parts = _prepared(given)
    return AsyncSave(job.async_save(*parts))


def load(  # noqa: PLR0913  (options, by name)
    state_dict: StateDict,
    checkpoint_id: Location | None = None,
    *,
    storage_reader: _core.StorageReader | None = None,
    planner: LoadPlannerOption = None,
    process_group: ProcessGroup | str | None = None,
    allow_missing: Collection[str] = (),
    allow_extra: Collection[str] = (),
    allow_cast: Collection[str] = (),
    progress: ProgressOption = None,
) -> None:
    """Loads into a state dict in place: every rank of the group calls with its own part of it.

    Tensors are filled, whatever layout and however many ranks they were saved from; other values are replaced. Every
    byte is verified.

    Args:
        state_dict: Says what is wanted and where it goes.
        checkpoint_id: The directory, or an fsspec address.
        storage_reader: What to load from instead.
        planner: What plans instead of ``StandardLoadPlanner``: a class derived from it, called as it is, or anything
            called with the state dict, or an instance. Values are loaded where it has the attribute ``flat`` of
            ``StandardLoadPlanner``.
        process_group: The ranks that load together, as for :func:`save`.
        allow_missing: Names of entries that need not be stored and then stay as they are; "optimizer.*" is a pattern.
        allow_extra: Names of stored entries that need not be wanted by any rank.
        allow_cast: Names of tensors whose dtype may differ from the stored one; they are converted.
        progress: As for :func:`save`.

    Raises:
        InvalidArgumentError: On every rank, with nothing touched: an entry that is not stored, a stored one that no
            rank wants, another shape or dtype, a tensor where a value is stored, each naming the entry.
        CheckpointError: On every rank: damaged or missing files; tensors may be filled in part.

    Example:
        >>> save({"w": torch.arange(3)}, "step5")
        >>> load({"w": torch.zeros(3)}, "step5")
        Traceback (most recent call last):
        ...
        hyper_parallel.errors.InvalidArgumentError: ...
        >>> state = {"w": torch.zeros(3)}
        >>> load(state, "step5", allow_cast=["w"])
        >>> state["w"]
        tensor([0., 1., 2.])
    """
    report_ended()
    job = checkpointer_of(process_group)
    missing: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()
    try:
        missing, extra = _names(allow_missing, "allow_missing"), _names(allow_extra, "allow_extra")
        reader = storage_of(READER, checkpoint_id, storage_reader)
        told = _progress(job, progress)
        made = _load_planner(state_dict, planner, missing, _names(allow_cast, "allow_cast"))
    except Exception as error:
        made, told = FailedLoadPlanner(error), _core.terminal_progress(-1)
        reader = FailedReader(error)
    flat = getattr(made, "flat", None)
    wanted = [] if flat is None else list(flat.values)
    metadata = job.load(made, reader, wanted, missing, extra, told)
    if flat is not None:
        stored = metadata.values
        assign(state_dict, flat, {name: stored[name] for name in wanted if name in stored})


def read(checkpoint_id: Location | None = None, *, storage_reader: _core.StorageReader | None = None) -> StateDict:
    """Reads a whole checkpoint into plain tensors, in this process alone: no communication, no state dict needed.

    Args:
        checkpoint_id: The directory, or an fsspec address.
        storage_reader: What to read from instead.

    Returns:
        The state dict that was saved, nested as it was; what were DTensors are whole tensors.

    Raises:
        InvalidArgumentError: There is no checkpoint.
        UnimplementedError: A stored dtype that the framework lacks.
        CheckpointError: Damaged or missing files.
    """
    reader = storage_of(READER, checkpoint_id, storage_reader)
    alone = _core.Checkpointer(_core.SingleExchange())
    for attempts_left in reversed(range(_ATTEMPTS)):
        seen = _core.CheckpointMetadata.parse(reader.read_metadata())
        if not reader.open(seen, _whole_plan(seen)):
            if attempts_left == 0:
                raise CheckpointError("data files of the checkpoint are gone")
            continue
        # The files are there, and as large as the metadata says: so much memory is really asked for.
        tensors = {name: empty_tensor(name, stored) for name, stored in seen.state_dict_metadata.items()}
        planner = TensorLoadPlanner(tensors, (), ())
        try:
            metadata = alone.load(planner, reader, tuple(seen.values), (), (), progress_of(False, is_coordinator=True))
        except InvalidArgumentError:
            # A newer checkpoint has taken the place of the one that the tensors were made for.
            if attempts_left == 0 or _core.CheckpointMetadata.parse(reader.read_metadata()).save_id == seen.save_id:
                raise
            continue
        return unflatten(metadata.structure, {**tensors, **metadata.values})
    raise InternalError("read tried no attempt")


def _whole_plan(metadata: _core.CheckpointMetadata) -> _core.LoadPlan:
    """The plan that reads everything."""
    wanted = []
    for name, stored in metadata.state_dict_metadata.items():
        box = _core.ChunkStorageMetadata((0,) * len(stored.size), stored.size)
        wanted.append(_core.PlannedTensor(name, stored.dtype, stored.size, [box] if 0 not in stored.size else []))
    return _core.LoadPlanner.plan(metadata, wanted)


_SaveParts = tuple[_core.SavePlanner, _core.StorageWriter, _core.Progress, bool]


def _prepared(given: _SaveArguments) -> tuple[_core.Checkpointer, _SaveParts]:
    """Who saves, and what it is called with.

    A fault of this rank's arguments is told to the other ranks, which wait for its plan.
    """
    job = checkpointer_of(given.process_group)
    compares_replicas = os.environ.get("HYPER_PARALLEL_CHECK") == "1"
    try:
        planner = _save_planner(given.state_dict, given.planner)
        writer = storage_of(WRITER, given.checkpoint_id, given.storage_writer)
        return job, (planner, writer, _progress(job, given.progress), compares_replicas)
    except Exception as error:
        return job, (FailedSavePlanner(error), FailedWriter(error), _core.terminal_progress(-1), compares_replicas)


def _save_planner(state_dict: StateDict, option: SavePlannerOption) -> _core.SavePlanner:
    if option is None:
        return StandardSavePlanner(state_dict)
    made = option(state_dict) if callable(option) else option
    if not isinstance(made, _core.SavePlanner):
        raise ArgumentTypeError(f"planner is or makes {made!r} but must be a SavePlanner, or a class of them")
    return made


def _load_planner(
    state_dict: StateDict, option: LoadPlannerOption, missing: tuple[str, ...], cast: tuple[str, ...]
) -> _core.LoadPlanner:
    if option is None:
        return StandardLoadPlanner(state_dict, missing, cast)
    choice: Any = option  # a class of ours takes more arguments than the type says
    if cast or missing:
        if not (isinstance(choice, type) and issubclass(choice, StandardLoadPlanner)):
            raise ArgumentTypeError(
                "allow_missing and allow_cast are for StandardLoadPlanner and classes derived from it; give them to "
                "the planner itself"
            )
        return choice(state_dict, missing, cast)
    made = choice(state_dict) if callable(choice) else choice
    if not isinstance(made, _core.LoadPlanner):
        raise ArgumentTypeError(f"planner is or makes {made!r} but must be a LoadPlanner, or a class of them")
    return made


def _names(names: Collection[str], argument: str) -> tuple[str, ...]:
    if isinstance(names, str) or not isinstance(names, Collection):
        raise ArgumentTypeError(f"{argument} is {names!r} but must be a list of names or patterns")
    for name in names:
        if not isinstance(name, str):
            raise ArgumentTypeError(f"{argument} has the entry {name!r} but must be a list of names or patterns")
    return tuple(names)


def _progress(job: _core.Checkpointer, option: ProgressOption) -> _core.Progress:
    return progress_of(option, is_coordinator=job.exchange.rank == 0)
