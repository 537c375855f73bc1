"""What the ``.metadata`` of a checkpoint of torch's says, checked: which boxes of which tensors lie where."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeVar

import torch

from hyper_parallel import _core
from hyper_parallel.checkpoint import _foreign_pickle as records
from hyper_parallel.errors import CheckpointError, InvalidArgumentError, UnimplementedError

__all__ = ["MAX_DEPTH", "Box", "EntryPath", "Place", "TensorEntry", "TorchContents"]

MAX_DEPTH = 64
"""Keys and positions in a path, containers around each other in a value."""
MAX_DIMS = 64
"""Of a tensor, as in torch."""

Box = tuple[tuple[int, ...], tuple[int, ...]]
"""Offsets and sizes."""
EntryPath = tuple[str | int, ...]
"""Keys of dicts and positions in lists that lead to an entry of a state dict."""

_Kind = TypeVar("_Kind")


@dataclass(frozen=True)
class TensorEntry:
    """A tensor as it is stored: disjoint boxes, none of them empty, that fill its shape."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    boxes: tuple[Box, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of the whole tensor."""
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True)
class Place:
    """Where the bytes of a box or value lie."""

    file: str
    begin: int
    length: int


_Places = dict[tuple[str, tuple[int, ...] | None], Place]
"""Of every box by name and offset, of every value by name and None."""


class TorchContents:
    """The contents of a checkpoint.

    Args:
        found: What `read_metadata_pickle` has read.

    Raises:
        CheckpointError: Something is missing, of another type, or outside where it may be; boxes that do not fill their
            tensor or overlap.
        UnimplementedError: Data that is transformed, compressed for instance, or not strided.

    Attributes:
        tensors: The tensors by name.
        values: Where the entries that are no tensors lie.
        places: Where each box of a tensor lies.
        paths: The way to every entry.
    """

    def __init__(self, found: object) -> None:
        metadata = _expect(found, records.MetadataRecord, "the metadata").fields
        entries = _expect(metadata.get("state_dict_metadata"), dict, "state_dict_metadata")
        places = _places(_expect(metadata.get("storage_data"), dict, "storage_data"))
        self.tensors: dict[str, TensorEntry] = {}
        self.values: dict[str, Place] = {}
        self.places: dict[str, list[Place]] = {}
        for key, entry in entries.items():
            name = _name(key)
            if isinstance(entry, records.BytesRecord):
                self.values[name] = _place_of(places, name, None)
            else:
                self._add_tensor(name, _expect(entry, records.TensorRecord, f"the entry {name!r}").fields, places)
        _check_tiling(self.tensors)
        self.paths = _paths(metadata.get("planner_data"), [*self.tensors, *self.values])

    def _add_tensor(self, name: str, fields: dict[str, object], places: _Places) -> None:
        what = f"the tensor {name!r}"
        properties = _expect(fields.get("properties"), records.PropertiesRecord, f"the properties of {what}").fields
        dtype = _expect(properties.get("dtype"), torch.dtype, f"the dtype of {what}")
        if properties.get("layout", "torch.strided") != "torch.strided":
            raise UnimplementedError(f"{what} has layout {properties['layout']}; only strided tensors are converted")
        shape = _sizes(fields.get("size"), f"the size of {what}")
        chunks = _expect(fields.get("chunks"), list, f"the chunks of {what}")
        boxes: dict[Box, None] = dict.fromkeys(_box(chunk, shape, what) for chunk in chunks)
        # Ranks without elements have saved a box all the same, at the offset of another or past the end.
        kept = tuple(box for box in boxes if math.prod(box[1]))
        if sum(math.prod(sizes) for _, sizes in kept) != math.prod(shape):
            raise CheckpointError(f"the boxes of {what} do not fill its shape {shape}: {list(kept)[:8]}")
        self.tensors[name] = TensorEntry(dtype, shape, kept)
        self.places[name] = [_place_of(places, name, offsets) for offsets, _ in kept]


def _expect(value: object, kind: type[_Kind], what: str) -> _Kind:
    if type(value) is not kind:
        raise CheckpointError(f"{what} is of type {type(value).__name__} but must be a {kind.__name__}")
    return value


def _name(value: object) -> str:
    name = _expect(value, str, "a name in the metadata")
    if any("\ud800" <= letter <= "\udfff" for letter in name):
        raise CheckpointError(f"the name {name!r} in the metadata is no text: it has half a surrogate pair")
    return name


def _check_tiling(tensors: dict[str, TensorEntry]) -> None:
    """Raises unless the boxes of each fill it and do not overlap: what a planner asks of the plans of all ranks."""
    planned = [
        # The dtype has no part in it; not every one of torch's has a name of ours.
        _core.PlannedTensor(name, "U8", entry.shape, [_core.ChunkStorageMetadata(*box) for box in entry.boxes])
        for name, entry in tensors.items()
    ]
    try:
        _core.SavePlanner().build_global_plan([_core.SavePlan(planned)])
    except InvalidArgumentError as error:
        raise CheckpointError(f"the metadata has boxes that are not a tensor: {error}") from error


def _natural(value: object, what: str) -> int:
    number = _expect(value, int, what)
    if not 0 <= number < 1 << 63:
        told = f"{number}" if number.bit_length() <= MAX_DEPTH else f"of {number.bit_length()} bits"
        raise CheckpointError(f"{what} is {told} but must be in [0, 2^63)")
    return number


def _sizes(value: object, what: str) -> tuple[int, ...]:
    sizes = _expect(value, tuple, what)
    if len(sizes) > MAX_DIMS:
        raise CheckpointError(f"{what} has {len(sizes)} dims but must have at most {MAX_DIMS}")
    return tuple(_natural(size, what) for size in sizes)


def _box(chunk: object, shape: tuple[int, ...], what: str) -> Box:
    fields = _expect(chunk, records.ChunkRecord, f"a chunk of {what}").fields
    offsets = _sizes(fields.get("offsets"), f"the offsets of a chunk of {what}")
    sizes = _sizes(fields.get("sizes"), f"the sizes of a chunk of {what}")
    inside = len(offsets) == len(sizes) == len(shape) and all(
        offset + size <= whole for offset, size, whole in zip(offsets, sizes, shape, strict=True)
    )
    if not inside:
        raise CheckpointError(f"{what} of shape {shape} has a chunk at {offsets} of sizes {sizes}, which is not in it")
    return offsets, sizes


def _places(found: dict[object, object]) -> _Places:
    """Where things lie, by name and, of tensors, offset."""
    places: _Places = {}
    for key, info in found.items():
        index = _expect(key, records.IndexRecord, "a key of storage_data").fields
        name = _expect(index.get("fqn"), str, "a name in storage_data")
        what = f"the place of {name!r}"
        offset = index.get("offset")
        where = (name, None if offset is None else _sizes(offset, f"the offset in {what}"))
        if where in places:
            raise CheckpointError(f"storage_data has two places for {name!r} at offset {where[1]}")
        places[where] = _place(_expect(info, records.StorageRecord, what).fields, what)
    return places


def _place(fields: dict[str, object], what: str) -> Place:
    file = _expect(fields.get("relative_path"), str, f"the file of {what}")
    if file.startswith(".") or "/" in file or "\\" in file or "\0" in file or not file:
        raise CheckpointError(f"{what} is the file {file!r}, which must be the name of a file in the directory itself")
    transforms = fields.get("transform_descriptors")
    if transforms:
        told = [
            _expect(name, str, f"a transform of {what}") for name in _expect(transforms, list, f"transforms of {what}")
        ]
        raise UnimplementedError(f"{what} is transformed by {told}; only checkpoints without are converted")
    return Place(
        file,
        _natural(fields.get("offset"), f"the begin in {what}"),
        _natural(fields.get("length"), f"length in {what}"),
    )


def _place_of(places: _Places, name: str, offset: tuple[int, ...] | None) -> Place:
    place = places.get((name, offset))
    if place is None:
        raise CheckpointError(f"the metadata does not say where {name!r} at offset {offset} lies")
    return place


def _paths(found: object, names: list[str]) -> dict[str, EntryPath]:
    """The path of every entry; a name alone where the state dict was not flattened."""
    if found is None:
        return {name: (name,) for name in names}
    told = _expect(found, dict, "planner_data")
    return {name: _path(told.get(name, (name,)), name) for name in names}


def _path(found: object, name: str) -> EntryPath:
    path = _expect(found, tuple, f"the path of {name!r}")
    plain = all(type(key) is str or (type(key) is int and 0 <= key < 1 << 63) for key in path)
    if not plain or ".".join(map(str, path)) != name or not 0 < len(path) <= MAX_DEPTH:
        # Written out only where that is short: a hostile path holds itself in itself a billion times.
        told = f"{path[:MAX_DEPTH]}" if plain else f"of {', '.join(type(key).__name__ for key in path[:MAX_DEPTH])}"
        raise CheckpointError(
            f"the path of {name!r} is {told} but must be the str keys and positions, up to {MAX_DEPTH}, that it "
            "is joined of"
        )
    return path
