"""Leaves, a loss and a function of the user's, for tests of torch's graph over DTensors."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from hyper_parallel import DTensor, Placement, RaggedShard, Replicate, Shard, distribute_tensor
from support.checks import make_mesh
from support.values import small_integers

SHAPE = (6, 4)
PLACEMENTS: dict[str, Placement] = {"ragged": RaggedShard((0,), (1, 2)), "sharded": Shard(0), "replicated": Replicate()}
every_layout = pytest.mark.parametrize("layout", list(PLACEMENTS))


def values(seed: int = 1) -> torch.Tensor:
    return small_integers(SHAPE, torch.float64, seed)


def make(layout: str = "sharded", whole: torch.Tensor | None = None, *, requires_grad: bool = True) -> DTensor:
    given = values() if whole is None else whole
    return distribute_tensor(given.clone().requires_grad_(requires_grad), make_mesh(2), [PLACEMENTS[layout]])


def loss_of(y: Any) -> torch.Tensor:
    """A scalar that weighs every element otherwise; equal on all ranks."""
    whole: torch.Tensor = y.full_tensor(grad_placements=[Replicate()]) if isinstance(y, DTensor) else y
    return (whole.double() * values(7)).sum()


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient * 2
