"""The planners of tensors: DTensors of any layout, parameters and plain tensors, by name.

A DTensor's boxes are those of its layout, a plain tensor is one box, and equal names on several ranks are replicas of
one tensor. What a cell lists as its share of a distributed parameter is saved and loaded as the DTensor that it belongs
to. Everything moves as bytes between numpy arrays over the tensors' own memory and the core.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Collection, Mapping
from itertools import accumulate, pairwise
from typing import Any

import mindspore
import numpy as np
import numpy.typing as npt

from hyper_parallel import _core, platform
from hyper_parallel.errors import (
    ArgumentTypeError,
    FailedPreconditionError,
    InvalidArgumentError,
    UnimplementedError,
)
from hyper_parallel.mindspore import _frames
from hyper_parallel.mindspore._graph import check_mode
from hyper_parallel.mindspore._host import bytes_of, cast_bytes, dtype_name, dtype_of, is_dtype, item_bytes, tensor_of
from hyper_parallel.mindspore._shares import RowShare
from hyper_parallel.mindspore._texts import placement_text
from hyper_parallel.mindspore.parameter import LocalParameter

__all__ = ["TensorLoadPlanner", "TensorSavePlanner", "boxes_of", "empty_tensor"]

_Box = tuple[tuple[int, ...], tuple[int, ...]]
_Cells = npt.NDArray[np.unsignedinteger[Any]]
"""Elements as unsigned integers of their size, in a tensor's own shape and strides."""

# What the metadata has no name for.
_NOT_STORED = ("C128",)


class _Entry:
    """A named tensor and what this rank holds of it.

    Raises:
        ArgumentTypeError: No tensor, or one of a dtype that cannot be stored.
        InvalidArgumentError: A pending reduction.
    """

    def __init__(self, name: str, tensor: object, advice: str) -> None:
        owner = tensor.dtensor if isinstance(tensor, LocalParameter) else tensor
        if not isinstance(owner, mindspore.Tensor):
            raise ArgumentTypeError(f"tensors['{name}'] is {tensor!r} but must be a tensor")
        self.name = name
        self.tensor: Any = owner
        self.is_ragged = _frames.is_dtensor(owner) and owner.layout.ragged is not None
        self._check_not_partial(advice)
        self.local: mindspore.Tensor = owner._local_tensor if _frames.is_dtensor(owner) else owner
        self.dtype = self._stored_dtype()
        self.boxes = boxes_of(owner)

    def planned(self) -> _core.PlannedTensor:
        """For a plan."""
        chunks = [_core.ChunkStorageMetadata(offsets, sizes) for offsets, sizes in self.boxes]
        return _core.PlannedTensor(self.name, self.dtype, tuple(self.tensor.shape), chunks)

    def find(self, offsets: tuple[int, ...] | None) -> tuple[tuple[int, ...], slice]:
        """The sizes of a box, and its run of local storage: boxes lie there one after the other.

        Raises:
            InvalidArgumentError: This rank has no box at these offsets.
        """
        ends = accumulate((math.prod(sizes) for _, sizes in self.boxes), initial=0)
        for (own, sizes), run in zip(self.boxes, pairwise(ends), strict=True):
            if own == offsets:
                return sizes, slice(*run)
        raise InvalidArgumentError(
            f"{_entry_text(self.name)}: this rank does not hold the box at {offsets}; its boxes are {self.boxes}"
        )

    def _check_not_partial(self, advice: str) -> None:
        if not _frames.is_dtensor(self.tensor):
            return
        for placement in self.tensor.placements:
            if placement.is_partial():
                text = placement_text(placement, self.tensor.layout.core_mesh)
                raise InvalidArgumentError(
                    f"{_entry_text(self.name)} has placement {text}: its values are still to be reduced; {advice}"
                )

    def _stored_dtype(self) -> str:
        dtype = self.local.dtype
        if not is_dtype(dtype) or dtype_name(dtype) in _NOT_STORED:
            raise ArgumentTypeError(
                f"{_entry_text(self.name)} has dtype {dtype}, which the safetensors format does not know; convert it "
                "first"
            )
        return dtype_name(dtype)


class TensorSavePlanner(_core.SavePlanner):
    """Plans and reads DTensors, parameters and plain tensors for a save. Holds them, not copies of their elements.

    Args:
        tensors: DTensors and tensors by name.
        values: Everything else by name.
        structure: How the names nest.
    """

    def __init__(self, tensors: Mapping[str, object], values: Mapping[str, object], structure: object) -> None:
        super().__init__()
        self._tensors, self._values, self._structure = dict(tensors), dict(values), structure
        self._entries: dict[str, _Entry] = {}

    def build_local_plan(self) -> _core.SavePlan:
        """What this rank holds.

        Raises:
            InvalidArgumentError: A Partial DTensor.
            ArgumentTypeError: A dtype that cannot be stored.
            UnimplementedError: In graph mode.
        """
        check_mode("save")
        planned = [self._entry(name).planned() for name in self._tensors]
        return _core.SavePlan(planned, self._values, self._structure)

    def get_data(self, item: _core.WriteItem) -> npt.NDArray[np.uint8]:
        """The bytes of a box; the tensor's own memory where it is contiguous on the host, else a copy.

        Raises:
            InvalidArgumentError: This rank does not hold the box.
        """
        name = item.index.fqn
        if name not in self._tensors:
            raise InvalidArgumentError(f"{_entry_text(name)} is not among those to save")
        entry = self._entry(name)
        _, run = entry.find(item.index.offset)
        width = item_bytes(entry.local.dtype)
        return bytes_of(entry.local)[run.start * width : run.stop * width]

    def may_cache_plan(self) -> bool:
        """Whether the plan may be used again: not under RaggedShard, whose units may change, nor if it is another's."""
        own = type(self)
        return (
            own.build_local_plan is TensorSavePlanner.build_local_plan
            and own.build_global_plan is _core.SavePlanner.build_global_plan
            and not any(self._entry(name).is_ragged for name in self._tensors)
        )

    def _entry(self, name: str) -> _Entry:
        if name not in self._entries:
            self._entries[name] = _Entry(name, self._tensors[name], "redistribute it before saving")
        return self._entries[name]


class TensorLoadPlanner(_core.LoadPlanner):
    """Fills DTensors, parameters and plain tensors in place, views and strided ones too.

    Tensors of the stored dtype in host memory are filled directly, others through a copy of the local part, written at
    ``finish``.

    Args:
        tensors: DTensors and tensors by name.
        allow_missing: Names or patterns that need not be stored.
        allow_cast: Names or patterns whose dtype may differ from the stored one.
    """

    def __init__(
        self, tensors: Mapping[str, object], allow_missing: Collection[str], allow_cast: Collection[str]
    ) -> None:
        super().__init__()
        self._tensors = dict(tensors)
        self._allow_missing, self._allow_cast = tuple(allow_missing), tuple(allow_cast)
        self._targets: dict[str, _Target] = {}

    def build_local_plan(self, metadata: _core.CheckpointMetadata) -> _core.LoadPlan:
        """What fills this rank's targets; does not touch them.

        Raises:
            InvalidArgumentError: A Partial DTensor, a target that is not stored or has another shape or dtype, or whose
                elements share memory.
            ArgumentTypeError: A dtype that cannot be stored.
            UnimplementedError: A stored dtype that MindSpore does not have; graph mode.
        """
        check_mode("load")
        # Values that Python cannot hold have to be found before a target is touched.
        list(metadata.values)
        self._targets.clear()
        stored = metadata.state_dict_metadata
        for name, tensor in self._tensors.items():
            entry = _Entry(name, tensor, "load into another layout")
            _check_own_elements(entry)
            dtype = stored[name].dtype if name in stored else entry.dtype
            if dtype_of(dtype) is None:
                raise UnimplementedError(f"{_entry_text(name)} is stored as {dtype}, which MindSpore has no dtype for")
            self._targets[name] = _Target(entry, dtype)
        planned = [target.entry.planned() for target in self._targets.values()]
        return _core.LoadPlanner.plan(metadata, planned, self._allow_missing, self._allow_cast)

    def acquire_tensor(self, item: _core.ReadItem) -> npt.NDArray[Any]:
        """Where the item's cells go: an array over them in the target, of unsigned integers of the elements' size.

        Raises:
            InvalidArgumentError: The item is of none of the targets.
        """
        name = item.dest_index.fqn
        if name not in self._targets:
            raise InvalidArgumentError(f"{_entry_text(name)} is in the load plan but not among this planner's targets")
        return self._targets[name].cells_of(item)

    def finish(self) -> None:
        """Copies what was read beside the targets."""
        for target in self._targets.values():
            target.finish()


class _Target:
    """Where a tensor's elements go.

    Args:
        entry: The tensor.
        stored: The dtype that it has in the checkpoint.
    """

    def __init__(self, entry: _Entry, stored: str) -> None:
        self.entry = entry
        self._stored = stored
        self._cells: _Cells | None = None
        self._is_staged = False

    def cells_of(self, item: _core.ReadItem) -> _Cells:
        """The cells of an overlap."""
        if self._cells is None:
            self._is_staged = self._stored != self.entry.dtype or not _is_memory_reachable(self.entry)
            self._cells = self._staging() if self._is_staged else _memory_of(self.entry.local)
        sizes, run = self.entry.find(item.dest_index.offset)
        # Boxes are runs of a flat share, or one is all of a block or of a plain tensor, of whatever strides.
        box = self._cells if self._cells.shape == sizes else self._cells[run].reshape(sizes)
        overlap = zip(item.dest_offsets, item.lengths, strict=True)
        # With the ellipsis it is an array of no dim too, not a number.
        cells: tuple[Any, ...] = (*(slice(first, first + count) for first, count in overlap), ...)
        found: _Cells = box[cells]
        return found

    def finish(self) -> None:
        """Writes what was staged."""
        if self._cells is None or not self._is_staged:
            return
        local = self.entry.local
        staged = cast_bytes(self._cells.reshape(-1).view(np.uint8), self._stored, self.entry.dtype)
        if _is_memory_reachable(self.entry):
            memory = _memory_of(local)
            memory[...] = staged.view(memory.dtype).reshape(memory.shape)
            return
        value = tensor_of(staged, local.dtype, tuple(local.shape))
        if _frames.is_dtensor(self.entry.tensor):
            _frames.share_of(self.entry.tensor).write(value, "load")
        else:
            local.copy_(value)

    def _staging(self) -> _Cells:
        dtype = dtype_of(self._stored)
        assert dtype is not None
        return np.empty(tuple(self.entry.local.shape), f"u{item_bytes(dtype)}")


def boxes_of(tensor: Any) -> list[_Box]:  # noqa: ANN401  (a tensor or DTensor)
    """The boxes of a tensor that this rank holds, in the order of local storage; of no elements none.

    Args:
        tensor: A DTensor without Partial, or a tensor.
    """
    shape = tuple(tensor.shape)
    if not _frames.is_dtensor(tensor):
        return [((0,) * len(shape), shape)] if 0 not in shape else []
    ranks, rank = tensor.layout.core_mesh.rank_list, platform.get_rank()
    return _core.owned_boxes(tensor.layout, shape, ranks.index(rank)) if rank in ranks else []


def empty_tensor(name: str, stored: _core.TensorStorageMetadata) -> mindspore.Tensor:
    """A tensor for all of a stored one, not filled yet.

    Raises:
        UnimplementedError: MindSpore lacks the dtype.
        FailedPreconditionError: There is no memory for it.
    """
    dtype = dtype_of(stored.dtype)
    if dtype is None:
        raise UnimplementedError(f"{_entry_text(name)} is stored as {stored.dtype}, which MindSpore has no dtype for")
    try:
        memory = np.empty(math.prod(stored.size) * item_bytes(dtype), np.uint8)
    except (MemoryError, ValueError) as error:
        raise FailedPreconditionError(f"no memory for {_entry_text(name)} of shape {stored.size}") from error
    return tensor_of(memory, dtype, stored.size)


def _is_memory_reachable(entry: _Entry) -> bool:
    """Whether what is written to the local tensor's memory is in the entry."""
    # What a row of another tensor reads is a copy.
    is_row = _frames.is_dtensor(entry.tensor) and isinstance(_frames.share_of(entry.tensor), RowShare)
    return not is_row and mindspore.get_context("device_target") == "CPU"


def _memory_of(tensor: mindspore.Tensor) -> _Cells:
    """The tensor's own elements in host memory, those of views too. Valid as long as the tensor is kept."""
    sizes, strides, width = tuple(tensor.shape), tuple(tensor.stride()), item_bytes(tensor.dtype)
    last = sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
    # Waits for the operations in the queue. `asnumpy` would copy a view, one at offset 0 too.
    raw = (ctypes.c_uint8 * ((last + 1) * width)).from_address(tensor.data_ptr())
    begin = np.frombuffer(raw, f"u{width}")
    return np.lib.stride_tricks.as_strided(begin, sizes, [stride * width for stride in strides])


def _check_own_elements(entry: _Entry) -> None:
    """Raises unless every element surely has memory of its own: each stride reaches past all that smaller ones reach.

    Raises:
        InvalidArgumentError: Elements share memory.
    """
    local = entry.local
    if local.size == 0 or local.is_contiguous():
        return
    reach = 0
    for stride, size in sorted(zip(local.stride(), local.shape, strict=True)):
        if size > 1 and stride <= reach:
            raise InvalidArgumentError(
                f"{_entry_text(entry.name)} has elements that share memory (an expanded or overlapping tensor), so it "
                "cannot be filled"
            )
        reach += stride * (size - 1)


def _entry_text(name: str) -> str:
    return f"checkpoint entry '{name}'"
