"""Chunks of a tensor and their overlaps, under the path of the specification."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hyper_parallel.checkpoint import (
    CheckpointMetadata,
    ChunkStorageMetadata,
    LoadPlanner,
    PlannedTensor,
    ReadItem,
    StandardSavePlanner,
)
from hyper_parallel.errors import InvalidArgumentError

if TYPE_CHECKING:
    import torch

__all__ = ["create_chunk_list_for_tensor", "create_read_items_for_chunk_list", "narrow_tensor_by_index"]


def create_chunk_list_for_tensor(tensor: torch.Tensor) -> list[ChunkStorageMetadata]:
    """The boxes of a tensor that this rank holds: of a DTensor those of its layout, of a plain tensor the whole.

    Args:
        tensor: A DTensor without Partial, or a tensor.

    Raises:
        InvalidArgumentError: A pending reduction.

    Example:
        >>> create_chunk_list_for_tensor(torch.zeros(2, 3))
        [ChunkStorageMetadata(offsets=(0, 0), sizes=(2, 3))]
    """
    return [item.chunk for item in StandardSavePlanner({"": tensor}).build_local_plan().items]


def create_read_items_for_chunk_list(
    fqn: str, checkpoint_md: CheckpointMetadata, local_chunks: Sequence[ChunkStorageMetadata]
) -> list[ReadItem]:
    """The overlaps of wanted boxes with the stored chunks of a tensor.

    Args:
        fqn: The tensor's name.
        checkpoint_md: What is stored.
        local_chunks: The wanted boxes.

    Raises:
        InvalidArgumentError: The tensor is not stored.
    """
    stored = checkpoint_md.state_dict_metadata.get(fqn)
    if stored is None:
        raise InvalidArgumentError(f"the checkpoint has no tensor {fqn!r}")
    wanted = PlannedTensor(fqn, stored.dtype, stored.size, list(local_chunks))
    return LoadPlanner.plan(checkpoint_md, [wanted]).items


def narrow_tensor_by_index(tensor: torch.Tensor, offsets: Sequence[int], sizes: Sequence[int]) -> torch.Tensor:
    """The part of a tensor that begins at ``offsets`` and has ``sizes``, as a view.

    Args:
        tensor: The tensor.
        offsets: Its first cell.
        sizes: Cells in each dim.

    Raises:
        InvalidArgumentError: Not one entry per dim of each.

    Example:
        >>> narrow_tensor_by_index(torch.arange(6).view(2, 3), (0, 1), (2, 2))
        tensor([[1, 2],
                [4, 5]])
    """
    if not len(offsets) == len(sizes) == tensor.ndim:
        raise InvalidArgumentError(
            f"offsets {offsets} and sizes {sizes} must have an entry for each of {tensor.ndim} dims"
        )
    for dim, (offset, size) in enumerate(zip(offsets, sizes, strict=True)):
        tensor = tensor.narrow(dim, offset, size)
    return tensor
