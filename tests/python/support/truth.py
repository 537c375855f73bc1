"""Who owns what, by the definitions and by nothing of the library: the truth that distributed tensors are held to.

A rank's part is written as `cells`: the positions, in the row-major flat tensor, of the elements that it holds, in the
shape in which it holds them. `whole.flatten()[cells]` is the part, and gradients go back by adding into `cells`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

from hyper_parallel import Partial, Placement, RaggedShard, Replicate, Shard


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

    def coordinate(self, rank: int) -> tuple[int, ...]:
        """The position of a rank in the mesh."""
        return list(itertools.product(*(range(size) for size in self.mesh_shape)))[rank]

    def cells(self, rank: int) -> torch.Tensor:
        """What `rank` holds; of a Partial dim all that its share covers."""
        held = torch.arange(math.prod(self.shape)).reshape(self.shape)
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

    def part(self, whole: torch.Tensor, rank: int) -> torch.Tensor:
        """The part of `rank`, in storage of its own."""
        return whole.detach().flatten()[self.cells(rank)]

    def gradient_of_losses(self, weights: Callable[[int], torch.Tensor]) -> torch.Tensor:
        """The gradient of the whole when rank r's loss is the sum of its part times its part of `weights(r)`."""
        total = torch.zeros(math.prod(self.shape), dtype=weights(0).dtype)
        for rank in range(self.size):
            cells = self.cells(rank).flatten()
            total.index_add_(0, cells, weights(rank).flatten()[cells])
        return total.reshape(self.shape)

    def gradient_placements(self) -> tuple[Placement, ...]:
        """How the gradient of this tensor lies: as the tensor, whole where that is pending."""
        return tuple(Replicate() if placement.is_partial() else placement for placement in self.placements)


def _chunk(held: torch.Tensor, dim: int, position: int, size: int) -> torch.Tensor:
    """Chunks of ceil(n / p) rows; the last ranks get fewer or none."""
    rows = held.shape[dim]
    chunk = -(-rows // size)
    begin, end = min(position * chunk, rows), min((position + 1) * chunk, rows)
    return held.narrow(dim, begin, end - begin)


def _run(held: torch.Tensor, placement: RaggedShard, position: int) -> torch.Tensor:
    """The design's formula: units deal out cells of the leading dims."""
    prefix = len(placement.dims)
    units = placement.local_units
    cells_per_unit, rest = divmod(math.prod(held.shape[:prefix]), sum(units))
    assert rest == 0, "a test drew units that do not divide the prefix cells"
    unit = cells_per_unit * math.prod(held.shape[prefix:])
    begin = sum(units[:position]) * unit
    return held.flatten()[begin : begin + units[position] * unit]


def _reduce(shares: torch.Tensor, operation: str, dims: tuple[int, ...]) -> torch.Tensor:
    match operation:
        case "sum":
            return shares.sum(dims, dtype=shares.dtype)
        case "avg":
            return shares.mean(dims)
        case "max":
            return shares.amax(dims)
        case "min":
            return shares.amin(dims)
    raise AssertionError(f"a test knows no reduction {operation}")


@dataclass(frozen=True)
class Shares:
    """A pending tensor: its `spread`, and a whole-shaped share for each coordinate of the pending mesh dims.

    `values` has the sizes of these mesh dims in front of the shape.
    """

    spread: Spread
    values: torch.Tensor

    def of(self, rank: int) -> torch.Tensor:
        """The whole-shaped share of which `rank` holds its part."""
        coordinate = self.spread.coordinate(rank)
        pending = [
            position
            for position, placement in zip(coordinate, self.spread.placements, strict=True)
            if placement.is_partial()
        ]
        share: torch.Tensor = self.values[tuple(pending)]
        return share

    def value(self) -> torch.Tensor:
        """The tensor that the shares stand for: reduced innermost mesh dim first, dims of one operation together."""
        operations = [placement.reduce_op for placement in self.spread.placements if isinstance(placement, Partial)]
        value = self.values
        for operation, group in itertools.groupby(reversed(operations)):
            pending = value.dim() - len(self.spread.shape)
            value = _reduce(value, operation, tuple(range(pending - len(list(group)), pending)))
        return value

    def gradients(self, gradient: torch.Tensor) -> torch.Tensor:
        """The gradient of every share, as torch's own reductions have it (ties of max and min share it equally)."""
        leaf = Shares(self.spread, self.values.detach().clone().requires_grad_())
        return torch.autograd.grad(leaf.value(), leaf.values, gradient)[0]
