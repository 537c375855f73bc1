"""Writes a checkpoint that ``torch.distributed.checkpoint`` loads, with torch's own writer, box by box."""

from __future__ import annotations

import dataclasses
import io
import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import create_default_global_save_plan
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, Metadata, MetadataIndex, TensorProperties
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner, TensorWriteData, WriteItem, WriteItemType
from torch.distributed.checkpoint.state_dict_saver import save

from hyper_parallel.checkpoint._target_folder import claim, release

if TYPE_CHECKING:
    from hyper_parallel.checkpoint._torch_contents import Box
    from hyper_parallel.checkpoint._torch_directory import Source

__all__ = ["write_torch_directory"]


def write_torch_directory(source: Source, folder: str | os.PathLike[str]) -> None:
    """Writes a checkpoint in torch's format, from this process alone and without a process group.

    Holds two boxes at a time. Every box of the source is one of torch's chunks; nested names keep their paths.

    Args:
        source: What to write.
        folder: Where to: a new or an empty directory. After a fault it is as it was.

    Raises:
        InvalidArgumentError: ``folder`` is something else than a new or empty directory.
        CheckpointError: The source cannot be read.

    Example:
        >>> import torch.distributed.checkpoint as dcp
        >>> from hyper_parallel.checkpoint._torch_directory import TorchDirectory
        >>> _ = dcp.save({"w": torch.ones(2)}, checkpoint_id="torch_step3")
        >>> with TorchDirectory("torch_step3") as checkpoint:
        ...     write_torch_directory(checkpoint, "torch_step4")
        >>> loaded = {"w": torch.zeros(2)}
        >>> dcp.load(loaded, checkpoint_id="torch_step4")
        >>> loaded
        {'w': tensor([1., 1.])}
    """
    target = Path(folder)
    made = claim(target)
    # Files one after the other, in this thread: the planner counts on it.
    writer = FileSystemWriter(target, thread_count=1, per_thread_copy_ahead=0)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*assuming the intent is to save in a single process")
            save({}, storage_writer=writer, planner=_SourcePlanner(source), no_dist=True)
    except BaseException as error:
        _remove_written(target)
        release(target, made=made)
        # torch hands on the errors of all ranks at once, here of one.
        failures = error.failures if isinstance(error, CheckpointException) else {}
        for failure, _ in failures.values():
            raise failure from None
        raise
    _flush_directory(target)


class _SourcePlanner(SavePlanner):
    """Plans every box of a source and hands it over when its turn comes."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._numbers: dict[tuple[str, tuple[int, ...]], int] = {}
        """Of each box among its tensor's."""
        self._handed_over: torch.Tensor | None = None

    def set_up_planner(
        self, state_dict: dict[str, Any], storage_meta: object = None, is_coordinator: bool = False
    ) -> None:
        """Needs no state dict."""

    def create_local_plan(self) -> SavePlan:
        items = [WriteItem(index=MetadataIndex(name), type=WriteItemType.BYTE_IO) for name in self._source.value_names]
        for name in self._source.tensors:
            items.extend(self._items(name))
        return SavePlan(items)

    def create_global_plan(self, all_plans: list[SavePlan]) -> tuple[list[SavePlan], Metadata]:
        plans, metadata = create_default_global_save_plan(all_plans)
        return plans, dataclasses.replace(metadata, planner_data=dict(self._source.paths))

    def finish_plan(self, new_plan: SavePlan) -> SavePlan:
        return new_plan

    def resolve_data(self, write_item: WriteItem) -> torch.Tensor | io.BytesIO:
        name, offset = write_item.index.fqn, write_item.index.offset
        if write_item.type == WriteItemType.BYTE_IO:
            file = io.BytesIO()
            torch.save(self._source.read_value(name), file)
            return file
        self._let_go()
        assert offset is not None
        number = self._numbers.get((name, tuple(offset)))
        if number is None:
            entry = self._source.tensors[name]
            return torch.empty(entry.shape, dtype=entry.dtype)
        # What torch.load makes cannot be freed by hand; a copy can.
        self._handed_over = self._source.read_box(name, number).clone()
        return self._handed_over

    def _items(self, name: str) -> list[WriteItem]:
        entry = self._source.tensors[name]
        properties = TensorProperties(dtype=entry.dtype)
        # A tensor without elements has no box here and one in torch's format, which knows it by that alone.
        boxes: tuple[Box, ...] = entry.boxes or (((0,) * len(entry.shape), entry.shape),)
        self._numbers.update({(name, offsets): number for number, (offsets, _) in enumerate(entry.boxes)})
        items = []
        for offsets, sizes in boxes:
            chunk = ChunkStorageMetadata(offsets=torch.Size(offsets), sizes=torch.Size(sizes))
            data = TensorWriteData(chunk=chunk, properties=properties, size=torch.Size(entry.shape))
            items.append(WriteItem(index=MetadataIndex(name, offsets), type=WriteItemType.SHARD, tensor_data=data))
        return items

    def _let_go(self) -> None:
        """Frees the box before this one: torch's writer keeps all tensors of a file until that is closed."""
        if self._handed_over is not None:
            self._handed_over.untyped_storage().resize_(0)
            self._handed_over = None


def _remove_written(folder: Path) -> None:
    """Removes what torch's writer writes, from a directory that was empty."""
    for pattern in ("__0_*.distcp", ".metadata", ".metadata.tmp"):
        for file in folder.glob(pattern):
            file.unlink()


def _flush_directory(folder: Path) -> None:
    """Makes the files' names last; torch has flushed what is in them."""
    for directory in (folder, folder.absolute().parent):
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
