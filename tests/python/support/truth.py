"""The truth of `support.spread` on torch tensors: who owns what, and what pending shares stand for."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

from hyper_parallel import Partial
from support import spread


@dataclass(frozen=True)
class Spread(spread.Spread):
    """A tensor of logical `shape` on a mesh of `mesh_shape` whose ranks are 0, 1, 2, .. row by row."""

    def cells(self, rank: int) -> torch.Tensor:
        """What `rank` holds; of a Partial dim all that its share covers."""
        return torch.from_numpy(self.cells_of(rank))

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
