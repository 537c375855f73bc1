"""Who owns what: the shares of a tensor, from its layout and shape alone."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from hyper_parallel import _core

__all__ = ["Box", "Ownership", "Share", "ownership_of"]

Box = tuple[tuple[int, ...], tuple[int, ...]]
"""Offsets and sizes of a block of cells."""


@dataclass(frozen=True)
class Share:
    """What a group of replicas holds: the same cells on each of its ranks.

    Attributes:
        ranks: The ranks that hold the share, in ascending order. Under Partial each holds a term of every cell.
        boxes: The cells, as disjoint blocks in the order of local storage; none for an empty share.
        interval: The run ``[begin, end)`` of the row-major tensor that the share is, None where it is not one run.
        numel: The number of cells.
    """

    ranks: tuple[int, ...]
    boxes: tuple[Box, ...]
    interval: tuple[int, int] | None
    numel: int


@dataclass(frozen=True)
class Ownership:
    """The shares of one tensor.

    Attributes:
        layout: How the tensor lies, without negative Shard dims.
        shape: Its logical shape.
        shares: One share per coordinate of the mesh dims that split the tensor, in mesh order.
    """

    layout: _core.Layout
    shape: tuple[int, ...]
    shares: tuple[Share, ...]

    @property
    def numel(self) -> int:
        """The number of cells of the tensor."""
        return math.prod(self.shape)

    @property
    def replica_count(self) -> int:
        """How many ranks hold each share."""
        return len(self.shares[0].ranks)

    @cached_property
    def largest(self) -> int:
        """The number of cells of the largest share."""
        return max(share.numel for share in self.shares)

    @cached_property
    def smallest(self) -> int:
        """The number of cells of the smallest share."""
        return min(share.numel for share in self.shares)

    @cached_property
    def empty_ranks(self) -> tuple[int, ...]:
        """The ranks that hold no cell, in ascending order."""
        return tuple(sorted(rank for share in self.shares if not share.numel for rank in share.ranks))


def ownership_of(layout: _core.Layout, shape: tuple[int, ...]) -> Ownership:
    """The shares of a tensor of ``shape``, which can lie so."""
    folded = layout.folded(len(shape))
    rank_list = folded.core_mesh.rank_list
    shares = []
    for positions in _replica_positions(folded):
        boxes = tuple(_core.owned_boxes(folded, shape, positions[0]))
        shares.append(
            Share(
                ranks=tuple(sorted(rank_list[position] for position in positions)),
                boxes=boxes,
                interval=_core.owned_interval(folded, shape, positions[0]),
                numel=sum(math.prod(sizes) for _, sizes in boxes),
            )
        )
    return Ownership(folded, shape, tuple(shares))


def _replica_positions(layout: _core.Layout) -> Iterator[list[int]]:
    """The mesh positions of each group of replicas, in mesh order: they differ in mesh dims that split nothing."""
    mesh_shape = layout.core_mesh.mesh_shape
    strides = [math.prod(mesh_shape[dim + 1 :]) for dim in range(len(mesh_shape))]
    splits = [isinstance(placement, (_core.Shard, _core.RaggedShard)) for placement in layout.placements]

    def offsets(wanted: bool) -> list[int]:
        steps = [
            range(0, size * stride, stride)
            for size, stride, split in zip(mesh_shape, strides, splits, strict=True)
            if split == wanted
        ]
        return [sum(parts) for parts in itertools.product(*steps)]

    within = offsets(wanted=False)
    for start in offsets(wanted=True):
        yield [start + offset for offset in within]
