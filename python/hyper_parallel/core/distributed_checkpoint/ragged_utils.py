"""A rank's share of a DTensor as ordered N-D boxes, under the path of the specification."""

from __future__ import annotations

import math
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

from hyper_parallel.checkpoint import StandardSavePlanner, WriteItem
from hyper_parallel.checkpoint._framework import boxes_of, view_of
from hyper_parallel.errors import InvalidArgumentError

if TYPE_CHECKING:
    import torch

    from hyper_parallel.checkpoint import MetadataIndex
    from hyper_parallel.dtensor import DTensor

__all__ = ["compute_ragged_boxes", "create_ragged_write_items", "get_ragged_box_tensor"]

RaggedBox = tuple[tuple[int, ...], tuple[int, ...], int, int]
"""Offsets, sizes, and the half-open run of local storage, in elements."""


def compute_ragged_boxes(dtensor: DTensor) -> list[RaggedBox]:
    """The boxes that this rank's share is, in the order of local storage, and where each lies in it.

    Args:
        dtensor: Of any layout without Partial.

    Returns:
        ``(offsets, sizes, local_flat_start, local_flat_end)`` of each: at most ``2 * ndim - 1`` boxes, none for an
        empty share.

    Raises:
        UnimplementedError: A pending reduction.

    Example:
        >>> mesh = DeviceMesh((1,), ("fsdp",))
        >>> compute_ragged_boxes(distribute_tensor(torch.ones(6, 4), mesh, [RaggedShard((0,), (1,))]))
        [((0, 0), (6, 4), 0, 24)]
    """
    boxes = [box for box in boxes_of(dtensor, "the DTensor") if math.prod(box[1])]
    ends = accumulate((math.prod(sizes) for _, sizes in boxes), initial=0)
    return [(*box, begin, end) for box, (begin, end) in zip(boxes, pairwise(ends), strict=True)]


def create_ragged_write_items(fqn: str, dtensor: DTensor) -> list[WriteItem]:
    """What this rank has to save of a tensor: an item for each of its boxes.

    Args:
        fqn: Its name.
        dtensor: Of any layout without Partial.

    Raises:
        InvalidArgumentError: A pending reduction.
    """
    return StandardSavePlanner({fqn: dtensor}).build_local_plan().items


def get_ragged_box_tensor(dtensor: DTensor, index: MetadataIndex) -> torch.Tensor:
    """The elements of one of this rank's boxes, of the box's sizes: a view of local storage.

    Args:
        dtensor: Of any layout without Partial.
        index: Names the box by its offset.

    Raises:
        InvalidArgumentError: This rank has no box at that offset.
        UnimplementedError: A pending reduction.
    """
    boxes = boxes_of(dtensor, f"{index.fqn!r}")
    for position, (offsets, _) in enumerate(boxes):
        if offsets == index.offset:
            return view_of(dtensor, boxes, position)
    raise InvalidArgumentError(
        f"{index.fqn!r} has no box at offset {index.offset} on this rank; its boxes are at {[box[0] for box in boxes]}"
    )
