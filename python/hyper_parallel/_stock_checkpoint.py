"""DTensors in ``torch.distributed.checkpoint``: what its planners ask of a tensor, answered from our geometry.

torch saves a tensor as *chunks*, N-D boxes at offsets, and asks the tensor itself which it has on this rank: a share of
ours is the ordered boxes of what the rank owns, a ragged one up to ``2 * ndim - 1`` of them. What torch's planner makes
of them sets three rules here:

* Chunks that several ranks name at one offset are one chunk, whatever their sizes: an empty share has none.
* Of replicas torch keeps one, the same for equal plans, and spreads the bytes over them: every replica names its boxes.
* A tensor without elements is still known by its name: each rank of its mesh names the one empty box.
"""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Mapping
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

import torch
from torch.distributed.checkpoint.filesystem import FileSystemWriter, SerializationFormat
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex, TensorProperties
from torch.distributed.checkpoint.planner import SavePlan, TensorWriteData, WriteItem, WriteItemType
from torch.distributed.checkpoint.staging import AsyncStager

from hyper_parallel import _core, _torch
from hyper_parallel.errors import InvalidArgumentError, UnimplementedError
from hyper_parallel.placement import Partial

if TYPE_CHECKING:
    from hyper_parallel.dtensor import DTensor

__all__ = ["Box", "CopyStager", "boxes_of", "create_chunk_list", "create_write_items", "get_tensor_shard", "view_of"]

Box = tuple[tuple[int, ...], tuple[int, ...]]
"""Offsets and sizes."""


def create_write_items(tensor: DTensor, fqn: str) -> list[WriteItem]:
    """What this rank has to save of a tensor: an item for each box that it owns, in the order of local storage.

    Args:
        tensor: Of any layout without Partial.
        fqn: The tensor's name in the state dict.

    Raises:
        UnimplementedError: A pending reduction.

    Example:
        >>> mesh = DeviceMesh((1,), ("fsdp",))
        >>> x = distribute_tensor(torch.ones(6, 4), mesh, [RaggedShard((0,), (1,))])
        >>> [item.tensor_data.chunk.sizes for item in create_write_items(x, "weight")]
        [torch.Size([6, 4])]
    """
    boxes = boxes_of(tensor, f"state dict entry {fqn!r}")
    if len(boxes) > 1:
        _guard_safetensors_writers()
    properties = TensorProperties.create_from_tensor(_torch.local(tensor))
    size = torch.Size(tensor.shape)
    return [
        WriteItem(
            index=MetadataIndex(fqn, offsets),
            type=WriteItemType.SHARD,
            tensor_data=TensorWriteData(chunk=_chunk(offsets, sizes), properties=properties, size=size),
        )
        for offsets, sizes in boxes
    ]


def create_chunk_list(tensor: DTensor) -> list[ChunkStorageMetadata]:
    """The boxes of a tensor that this rank wants to have loaded.

    Args:
        tensor: Of any layout without Partial.

    Raises:
        UnimplementedError: A pending reduction.

    Example:
        >>> mesh = DeviceMesh((1,), ("fsdp",))
        >>> len(create_chunk_list(distribute_tensor(torch.ones(6, 4), mesh, [RaggedShard((0,), (1,))])))
        1
    """
    return [_chunk(offsets, sizes) for offsets, sizes in boxes_of(tensor, "the DTensor to load into")]


def get_tensor_shard(tensor: DTensor, index: MetadataIndex) -> torch.Tensor:
    """The elements of one of this rank's boxes: a view of local storage, outside the graph.

    What is written into it is in the tensor, and its version says so.

    Args:
        tensor: Of any layout without Partial.
        index: Names the box by its offset; without one it is the rank's only box. The hint ``index.index`` counts the
            chunks of all ranks and is not looked at.

    Raises:
        InvalidArgumentError: This rank has no box at that offset.
        UnimplementedError: A pending reduction.

    Example:
        >>> mesh = DeviceMesh((1,), ("fsdp",))
        >>> x = distribute_tensor(torch.zeros(2, 2), mesh, [RaggedShard((0,), (1,))])
        >>> _ = get_tensor_shard(x, MetadataIndex("weight", (0, 0))).fill_(7)
        >>> x.full_tensor()
        tensor([[7., 7.],
                [7., 7.]])
    """
    boxes = boxes_of(tensor, f"state dict entry {index.fqn!r}")
    if index.offset is None and len(boxes) == 1:
        return view_of(tensor, boxes, 0)
    for position, (offsets, _) in enumerate(boxes):
        if offsets == index.offset:
            return view_of(tensor, boxes, position)
    offset = None if index.offset is None else tuple(index.offset)
    raise InvalidArgumentError(
        f"state dict entry {index.fqn!r} has no box at offset {offset} on rank {_torch.rank(tensor)}; "
        f"its boxes are at {[offsets for offsets, _ in boxes]}"
    )


def boxes_of(tensor: DTensor, what: str) -> list[Box]:
    """This rank's boxes, in the order of local storage; of a tensor without elements one that is empty.

    A Partial raises UnimplementedError here, where our own planner raises InvalidArgumentError: that is a ValueError,
    and torch's planners take a ValueError of a tensor for something else and raise another message in its place.

    Args:
        tensor: Of any layout without Partial.
        what: What to call it in messages.

    Raises:
        UnimplementedError: A pending reduction.

    Example:
        >>> mesh = DeviceMesh((1,), ("fsdp",))
        >>> boxes_of(distribute_tensor(torch.ones(6, 4), mesh, [RaggedShard((0,), (1,))]), "x")
        [((0, 0), (6, 4))]
    """
    for name, placement in zip(tensor.device_mesh.mesh_dim_names, tensor.placements, strict=True):
        if isinstance(placement, Partial):
            raise UnimplementedError(
                f"{what} is pending: its placement on mesh dim {name!r} is {placement}; "
                "a checkpoint holds values, call reduce_partial() first"
            )
    if not _torch.is_member(tensor):
        return []
    shape = _torch.shape(tensor)
    if not math.prod(shape):
        return [((0,) * len(shape), shape)]
    position = tensor.device_mesh.rank_list.index(_torch.rank(tensor))
    return _core.owned_boxes(tensor.layout, shape, position)


def view_of(tensor: DTensor, boxes: list[Box], position: int) -> torch.Tensor:
    """The elements of ``boxes[position]``: a view of local storage, outside the graph.

    Args:
        tensor: The tensor.
        boxes: What ``boxes_of`` returned for it.
        position: Which of them.

    Example:
        >>> mesh = DeviceMesh((1,), ("fsdp",))
        >>> x = distribute_tensor(torch.arange(4).view(2, 2), mesh, [RaggedShard((0,), (1,))])
        >>> view_of(x, boxes_of(x, "x"), 0)
        tensor([[0, 1],
                [2, 3]])
    """
    local, sizes = _torch.local(tensor).detach(), boxes[position][1]
    if tensor.layout.ragged_shard is None:
        return local if local.numel() else local.view(sizes)  # the block itself, of whatever strides
    ends = accumulate((math.prod(box_sizes) for _, box_sizes in boxes), initial=0)
    begin, end = list(pairwise(ends))[position]
    return local[begin:end].view(sizes)


class CopyStager(AsyncStager):
    """The snapshot that ``torch.distributed.checkpoint.async_save`` takes of a state dict with DTensors in it.

    torch's own stagers copy the storage of a tensor and know no other distributed tensors than torch's. Give
    ``async_save`` this one: every tensor of the state dict, ours, torch's and plain ones, is copied before it returns.

    Example:
        >>> mesh = DeviceMesh((1,), ("fsdp",))
        >>> x = distribute_tensor(torch.ones(3), mesh, [RaggedShard((0,), (1,))])
        >>> staged = CopyStager().stage({"x": x, "step": 3})
        >>> _ = x.zero_()
        >>> staged["x"].full_tensor(), staged["step"]
        (tensor([1., 1., 1.]), 3)
    """

    _synchronize_after_execute = False

    def stage(self, state_dict: dict[str, Any]) -> dict[str, Any]:
        """A copy of the state dict that shares no storage with it.

        Args:
            state_dict: Nested dicts, lists and tuples of tensors and of what ``copy.deepcopy`` takes.
        """
        with torch.no_grad():
            return {key: _copied(value) for key, value in state_dict.items()}

    def synchronize_staging(self) -> None:
        """Has nothing to wait for: ``stage`` has copied everything."""

    def close(self) -> None:
        """Has nothing to free."""


def _copied(value: Any) -> Any:  # noqa: ANN401
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, Mapping):
        return {key: _copied(item) for key, item in value.items()}
    if type(value) in {list, tuple}:
        return type(value)(_copied(item) for item in value)
    return copy.deepcopy(value)


def _chunk(offsets: tuple[int, ...], sizes: tuple[int, ...]) -> ChunkStorageMetadata:
    return ChunkStorageMetadata(offsets=torch.Size(offsets), sizes=torch.Size(sizes))


@functools.cache  # once
def _guard_safetensors_writers() -> None:
    """Lets torch's writers of safetensors files refuse several boxes of one tensor on a rank.

    ``HuggingFaceStorageWriter``, and ``FileSystemWriter`` in that format, keep one tensor per name and file: of a
    rank's boxes all but the last would be lost, and the readers leave what is missing as it was. The planner, which
    knows of the boxes, is not told of the writer, so that only the writer's own step of the plan can say it: before any
    file is written and on every rank.
    """
    prepare = FileSystemWriter.prepare_local_plan

    @functools.wraps(prepare)
    def prepare_local_plan(self: FileSystemWriter, plan: SavePlan) -> SavePlan:
        # Everybody's saves come through here, of whatever release of torch: a format unknown is no safetensors.
        if getattr(self, "serialization_format", None) is SerializationFormat.SAFETENSORS:
            _check_one_box_per_name(plan, type(self).__name__)
        return prepare(self, plan)

    setattr(FileSystemWriter, "prepare_local_plan", prepare_local_plan)  # noqa: B010  (assigned to a class of torch's)


def _check_one_box_per_name(plan: SavePlan, writer: str) -> None:
    counts: dict[str, int] = {}
    for item in plan.items:
        counts[item.index.fqn] = counts.get(item.index.fqn, 0) + 1
    for fqn, count in counts.items():
        if count > 1:
            raise UnimplementedError(
                f"torch's {writer} keeps one tensor per name and file but this rank has {count} boxes of {fqn!r}; "
                "redistribute() to Shard(0) before saving, or convert a checkpoint of hyper_parallel"
            )
