"""Who owns what, by the definitions and by nothing of the library: the truth that distributed tensors are held to.

A rank's part is written as `cells`: the positions, in the row-major flat tensor, of the elements that it holds, in the
shape in which it holds them. `whole.reshape(-1)[cells]` is the part, and gradients go back by adding into `cells`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hyper_parallel import Partial, Placement, RaggedShard, Replicate, Shard

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Spread:
    """A tensor of logical `shape` on a mesh of `mesh_shape` whose ranks are 0, 1, 2, .. row by row."""

    shape: tuple[int, ...]
    mesh_shape: tuple[int, ...]
    placements: tuple[Placement, ...]

    @property
    def size(self) -> int:
        """The number of ranks."""
        return math.prod(self.mesh_shape)

    @property
    def is_pending(self) -> bool:
        """Whether a reduction is pending on a mesh dim."""
        return any(placement.is_partial() for placement in self.placements)

    def coordinate(self, rank: int) -> tuple[int, ...]:
        """The position of a rank in the mesh."""
        return list(itertools.product(*(range(size) for size in self.mesh_shape)))[rank]

    def cells_of(self, rank: int) -> Array:
        """What `rank` holds; of a Partial dim all that its share covers."""
        held = np.arange(math.prod(self.shape)).reshape(self.shape)
        for position, size, placement in zip(self.coordinate(rank), self.mesh_shape, self.placements, strict=True):
            match placement:
                case Shard():
                    held = _chunk(held, placement.dim, position, size)
                case RaggedShard():
                    held = _run(held, placement, position)
                case Replicate() | Partial():
                    pass
                case _:
                    raise AssertionError(f"a test knows no {placement}")
        return held

    def part_of(self, whole: Array, rank: int) -> Array:
        """The part of `rank`, in storage of its own."""
        return np.array(whole.reshape(-1)[self.cells_of(rank)], whole.dtype)

    def gradient_by_losses(self, weights: Callable[[int], Array]) -> Array:
        """The gradient of the whole when rank r's loss is the sum of its part times its part of `weights(r)`."""
        total = np.zeros(math.prod(self.shape), weights(0).dtype)
        for rank in range(self.size):
            cells = self.cells_of(rank).reshape(-1)
            total[cells] += weights(rank).reshape(-1)[cells]
        return total.reshape(self.shape)

    def gradient_placements(self) -> tuple[Placement, ...]:
        """How the gradient of this tensor lies: as the tensor, whole where that is pending."""
        return tuple(Replicate() if placement.is_partial() else placement for placement in self.placements)


def _chunk(held: Array, dim: int, position: int, size: int) -> Array:
    """Chunks of ceil(n / p) rows; the last ranks get fewer or none."""
    rows = held.shape[dim]
    chunk = -(-rows // size)
    begin, end = min(position * chunk, rows), min((position + 1) * chunk, rows)
    return held.take(range(begin, end), dim)


def _run(held: Array, placement: RaggedShard, position: int) -> Array:
    """The design's formula: units deal out cells of the leading dims."""
    prefix = len(placement.dims)
    units = placement.local_units
    cells_per_unit, rest = divmod(math.prod(held.shape[:prefix]), sum(units))
    assert rest == 0, "a test drew units that do not divide the prefix cells"
    unit = cells_per_unit * math.prod(held.shape[prefix:])
    begin = sum(units[:position]) * unit
    return held.reshape(-1)[begin : begin + units[position] * unit]


@dataclass(frozen=True)
class PendingShares:
    """A pending tensor: its `spread`, and a whole-shaped share for each coordinate of the pending mesh dims.

    `values` has the sizes of these mesh dims in front of the shape.
    """

    spread: Spread
    values: Array

    def of(self, rank: int) -> Array:
        """The whole-shaped share of which `rank` holds its part."""
        coordinate = zip(self.spread.coordinate(rank), self.spread.placements, strict=True)
        share: Array = self.values[tuple(position for position, placement in coordinate if placement.is_partial())]
        return share

    def value(self) -> Array:
        """The tensor that the shares stand for: reduced innermost mesh dim first, dims of one operation together."""
        return self._reductions()[-1]

    def gradients(self, gradient: Array) -> Array:
        """The gradient of every share: of max and min it goes to the shares that hold the extreme, in equal parts."""
        values = self._reductions()
        steps = list(zip(self._operations(), values[:-1], values[1:], strict=True))
        for (operation, count), before, after in reversed(steps):
            dims = self._reduced_dims(before, count)
            incoming = np.expand_dims(gradient, dims)
            if operation in {"max", "min"}:
                holds = before == np.expand_dims(after, dims)
                gradient = incoming * holds / holds.sum(dims, keepdims=True)
            else:
                parts = math.prod(before.shape[dim] for dim in dims) if operation == "avg" else 1
                gradient = np.broadcast_to(incoming, before.shape) / parts
        return gradient.astype(self.values.dtype)

    def _operations(self) -> list[tuple[str, int]]:
        """In the order in which they are done: the operation, and how many mesh dims it reduces."""
        pending = [placement.reduce_op for placement in self.spread.placements if isinstance(placement, Partial)]
        return [(operation, len(list(group))) for operation, group in itertools.groupby(reversed(pending))]

    def _reduced_dims(self, value: Array, count: int) -> tuple[int, ...]:
        """The last `count` of the pending dims that `value` still has."""
        pending = value.ndim - len(self.spread.shape)
        return tuple(range(pending - count, pending))

    def _reductions(self) -> list[Array]:
        """The shares, and what each reduction makes of them."""
        values = [self.values]
        for operation, count in self._operations():
            dims = self._reduced_dims(values[-1], count)
            values.append(_REDUCTIONS[operation](values[-1], axis=dims).astype(self.values.dtype))
        return values


_REDUCTIONS: dict[str, Callable[..., Array]] = {"sum": np.sum, "avg": np.mean, "max": np.max, "min": np.min}
