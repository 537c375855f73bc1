"""Our own checkpoint directory as one side of a conversion: read box by box, and written from any source box by box."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from hyper_parallel import _core
from hyper_parallel.checkpoint._dtypes import DTYPE_NAMES, DTYPES
from hyper_parallel.checkpoint._target_folder import claim, release
from hyper_parallel.checkpoint._torch_contents import EntryPath, TensorEntry
from hyper_parallel.errors import CheckpointError, InvalidArgumentError, UnimplementedError

if TYPE_CHECKING:
    from hyper_parallel.checkpoint._torch_directory import Source

__all__ = ["OwnDirectory", "write_own_directory"]


class OwnDirectory:
    """The `Source` of a checkpoint of ours. Every box is verified against its checksums when it is read.

    Args:
        folder: The directory.

    Raises:
        InvalidArgumentError: No checkpoint of ours is there.
        CheckpointError: It is damaged.
        UnimplementedError: A tensor of a dtype that torch does not have.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._folder = Path(folder)
        self._reader = _core.FileSystemReader(str(self._folder))
        text = self._reader.read_metadata()
        if not text.lstrip().startswith(b"{"):
            raise InvalidArgumentError(f"{self._folder} is no checkpoint of hyper_parallel")
        self._metadata = _core.CheckpointMetadata.parse(text, str(self._folder / ".metadata"))
        self._tensors = {name: _entry(name, stored) for name, stored in self._metadata.state_dict_metadata.items()}
        self._values = self._metadata.values
        structure = self._metadata.structure
        names = [*self._tensors, *self._values]
        self._paths = {name: (name,) for name in names} if structure is None else dict(_paths(structure, ()))

    @property
    def tensors(self) -> Mapping[str, TensorEntry]:
        """The tensors by name."""
        return self._tensors

    @property
    def value_names(self) -> list[str]:
        """The names of the entries that are no tensors."""
        return list(self._values)

    @property
    def paths(self) -> Mapping[str, EntryPath]:
        """The way to every entry; torch knows dicts with keys of text, and lists."""
        return self._paths

    def read_box(self, name: str, number: int) -> torch.Tensor:
        """The elements of ``tensors[name].boxes[number]``, contiguous.

        Raises:
            CheckpointError: The bytes do not have their checksums, or a later save has replaced them.
        """
        entry = self._tensors[name]
        offsets, sizes = entry.boxes[number]
        target = torch.empty(sizes, dtype=entry.dtype)
        planner = _OneBoxPlanner(name, entry, _core.ChunkStorageMetadata(offsets, sizes), target)
        plan = _core.LoadPlanner.build_local_plan(planner, self._metadata)
        if not self._reader.open(self._metadata, plan):
            raise CheckpointError(f"{self._folder} was replaced by a later save while it was read")
        self._reader.read(self._metadata, plan, planner, _core.terminal_progress(-1))
        return target

    def read_value(self, name: str) -> object:
        """The value of an entry."""
        return self._values[name]


class _OneBoxPlanner(_core.LoadPlanner):
    """Loads one stored box, which is one item."""

    def __init__(self, name: str, entry: TensorEntry, chunk: _core.ChunkStorageMetadata, target: torch.Tensor) -> None:
        super().__init__()
        self._wanted = _core.PlannedTensor(name, DTYPE_NAMES[entry.dtype], entry.shape, [chunk])
        self._target = target

    def build_local_plan(self, metadata: _core.CheckpointMetadata) -> _core.LoadPlan:
        return _core.LoadPlanner.plan(metadata, [self._wanted])

    def acquire_tensor(self, item: _core.ReadItem) -> torch.Tensor:
        return self._target


def write_own_directory(source: Source, folder: str | os.PathLike[str]) -> None:
    """Writes a checkpoint in our format, from this process alone and without a process group.

    Holds one box at a time. Every box of the source is one chunk; the nesting of the names is kept.

    Args:
        source: What to write.
        folder: Where to: a new or an empty directory. After a fault it holds a lock file and nothing else.

    Raises:
        InvalidArgumentError: ``folder`` is something else; boxes that overlap.
        UnimplementedError: A dtype that our format does not have, named before anything is written.
        CheckpointError: The source cannot be read.
    """
    target = Path(folder)
    made = claim(target)
    planner = _SourcePlanner(source)
    checkpointer = _core.Checkpointer(_core.SingleExchange())
    try:
        checkpointer.save(planner, _core.FileSystemWriter(str(target)), _core.terminal_progress(-1))
    except BaseException:
        release(target, made=made)
        raise


class _SourcePlanner(_core.SavePlanner):
    """Plans every box of a source and reads each when its turn comes."""

    def __init__(self, source: Source) -> None:
        super().__init__()
        self._source = source
        self._numbers: dict[tuple[str, tuple[int, ...]], int] = {}
        """Of each box among its tensor's."""

    def build_local_plan(self) -> _core.SavePlan:
        """Names, dtypes, shapes and boxes; a box for each that is stored."""
        tensors = [self._planned(name) for name in self._source.tensors]
        values = {name: self._source.read_value(name) for name in self._source.value_names}
        return _core.SavePlan(tensors, values, structure_of(self._source.paths))

    def get_data(self, item: _core.WriteItem) -> torch.Tensor:
        name, offset = item.index.fqn, item.index.offset
        return self._source.read_box(name, self._numbers[name, offset])

    def _planned(self, name: str) -> _core.PlannedTensor:
        entry = self._source.tensors[name]
        if entry.dtype not in DTYPE_NAMES:
            raise UnimplementedError(
                f"the tensor {name!r} has dtype {entry.dtype}, which a checkpoint of hyper_parallel cannot hold"
            )
        self._numbers.update({(name, offsets): number for number, (offsets, _) in enumerate(entry.boxes)})
        chunks = [_core.ChunkStorageMetadata(offsets, sizes) for offsets, sizes in entry.boxes]
        return _core.PlannedTensor(name, DTYPE_NAMES[entry.dtype], entry.shape, chunks)


def structure_of(paths: Mapping[str, EntryPath]) -> object:
    """The nesting that paths spell: dicts and lists that have names in the entries' places.

    Raises:
        InvalidArgumentError: Paths that cannot be in one state dict: one inside the other, or positions with gaps.

    Example:
        >>> structure_of({"model.w": ("model", "w"), "l.0": ("l", 0), "l.1": ("l", 1)})
        {'model': {'w': 'model.w'}, 'l': ['l.0', 'l.1']}
    """
    root: dict[str | int, object] = {}
    for name, path in paths.items():
        place = root
        for key in path[:-1]:
            inner = place.setdefault(key, {})
            if not isinstance(inner, dict):
                raise InvalidArgumentError(f"the entry {name!r} lies inside the entry {inner!r}")
            place = inner
        if path[-1] in place:
            raise InvalidArgumentError(f"the entry {name!r} has the place of another")
        place[path[-1]] = name
    return {key: _with_lists(inner) for key, inner in root.items()}


def _with_lists(node: object) -> object:
    """Makes lists of the dicts whose keys are positions."""
    if not isinstance(node, dict):
        return node
    items = {key: _with_lists(inner) for key, inner in node.items()}
    if all(type(key) is str for key in items):
        return items
    if set(items) != set(range(len(items))):
        raise InvalidArgumentError(f"a list has entries at the positions {sorted(items, key=str)} and no others")
    return [items[position] for position in range(len(items))]


def _entry(name: str, stored: _core.TensorStorageMetadata) -> TensorEntry:
    if stored.dtype not in DTYPES:
        raise UnimplementedError(f"the tensor {name!r} has dtype {stored.dtype}, which torch does not have")
    return TensorEntry(
        DTYPES[stored.dtype], stored.size, tuple((chunk.offsets, chunk.sizes) for chunk in stored.chunks)
    )


def _paths(node: object, path: EntryPath) -> Iterator[tuple[str, EntryPath]]:
    """Every name of a structure with its path."""
    if isinstance(node, str):
        yield node, path
    elif isinstance(node, dict):
        for key, inner in node.items():
            yield from _paths(inner, (*path, str(key)))
    elif isinstance(node, list | tuple):
        for position, inner in enumerate(node):
            yield from _paths(inner, (*path, position))
