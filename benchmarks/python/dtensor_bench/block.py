"""A tensor-parallel transformer block, forward and backward: ours under `shard`, torch's under `parallelize_module`.

Plain is the same block written by hand on local tensors: the arithmetic and the collectives that both have to do.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from paired.figure import AtMost, Figure
from paired.measure import Call, Sides
from torch import nn
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from dtensor_bench.worlds import Worlds
from hyper_parallel import DTensor, Replicate, Shard, distribute_tensor, shard

_NEVER_SLOWER = AtMost(1.0)
_ADDED = AtMost(0.6)
# Samples, positions, width, heads.
_SIZES = {"small": (1, 8, 32, 4), "medium": (4, 64, 256, 8)}
_COLUMNS = ("query", "key", "value", "up")
_ROWS = ("out", "down")


def _same(x: torch.Tensor) -> torch.Tensor:
    return x


class Block(nn.Module):
    """Attention and MLP, each behind a normalization and beside a residual. `enter` and `leave` stand around the
    parallel parts of the one that is written by hand."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.size = width // heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.enter: Callable[[torch.Tensor], torch.Tensor] = _same
        self.leave: Callable[[torch.Tensor], torch.Tensor] = _same

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        samples, positions, _ = x.shape
        y = self.enter(self.first(x))
        query, key, value = (
            linear(y).view(samples, positions, -1, self.size).transpose(1, 2)
            for linear in (self.query, self.key, self.value)
        )
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.leave(self.out(mixed.transpose(1, 2).reshape(samples, positions, -1)))
        y = self.enter(self.second(x))
        return x + self.leave(self.down(F.gelu(self.up(y))))


def figures(worlds: Worlds) -> list[Figure]:
    """The whole time of the larger block, and what DTensors add to the smaller one."""
    return [
        Figure(
            "transformer block, forward + backward, medium", _NEVER_SLOWER, _sides(worlds, "medium", with_plain=False)
        ),
        Figure("transformer block, forward + backward, small", _ADDED, _sides(worlds, "small", with_plain=True)),
    ]


def _sides(worlds: Worlds, size: str, *, with_plain: bool) -> Callable[[], Sides]:
    def sides() -> Sides:
        samples, positions, width, heads = _SIZES[size]
        torch.manual_seed(0)
        block = Block(width, heads)
        x = torch.randn(samples, positions, width)
        ours, ours_x = _ours(worlds, copy.deepcopy(block)), distribute_tensor(x, worlds.mesh, [Replicate()])
        theirs = _theirs(worlds, copy.deepcopy(block))
        plain = _by_hand(worlds, copy.deepcopy(block))
        step = _step(plain, x)
        _check(_output(ours(ours_x)), _output(theirs(x)), plain(x))
        return Sides(_step(ours, ours_x), _step(theirs, x), step if with_plain else None)

    return sides


def _step(block: nn.Module, x: torch.Tensor) -> Call:
    def run() -> None:
        block.zero_grad(set_to_none=True)
        block(x).sum().backward()

    return run


def _ours(worlds: Worlds, block: Block) -> nn.Module:
    parameters: dict[str, Any] = {f"{name}.{part}": (Shard(0),) for name in _COLUMNS for part in ("weight", "bias")}
    parameters |= {f"{name}.weight": (Shard(1),) for name in _ROWS}
    outputs = {name: {"output": (Replicate(),)} for name in _ROWS}
    return shard(block, {"parameter": parameters, "forward": outputs}, worlds.mesh)


def _theirs(worlds: Worlds, block: Block) -> nn.Module:
    plan = {name: ColwiseParallel() for name in _COLUMNS} | {name: RowwiseParallel() for name in _ROWS}
    return parallelize_module(block, worlds.torch_mesh, plan)


class _Enter(torch.autograd.Function):
    """Each rank goes on with its own part of the work: gradients are summed."""

    @staticmethod
    def forward(context: Any, x: torch.Tensor) -> torch.Tensor:  # noqa: ANN401
        return x.view_as(x)

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> torch.Tensor:  # noqa: ANN401
        gradient = gradient.contiguous()
        dist.all_reduce(gradient)
        return gradient


class _Leave(torch.autograd.Function):
    """The ranks' results are summed."""

    @staticmethod
    def forward(context: Any, x: torch.Tensor) -> torch.Tensor:  # noqa: ANN401
        summed = x.clone()
        dist.all_reduce(summed)
        return summed

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> torch.Tensor:  # noqa: ANN401
        return gradient


def _by_hand(worlds: Worlds, block: Block) -> Block:
    rank, ranks = dist.get_rank(), worlds.mesh.size()
    with torch.no_grad():
        for name in _COLUMNS:
            linear = getattr(block, name)
            linear.weight = nn.Parameter(linear.weight.chunk(ranks, 0)[rank].clone())
            linear.bias = nn.Parameter(linear.bias.chunk(ranks, 0)[rank].clone())
        for name in _ROWS:
            linear = getattr(block, name)
            linear.weight = nn.Parameter(linear.weight.chunk(ranks, 1)[rank].clone())
            linear.bias = nn.Parameter(linear.bias / ranks)
    block.enter, block.leave = _Enter.apply, _Leave.apply
    return block


def _output(value: torch.Tensor) -> torch.Tensor:
    return value.full_tensor() if isinstance(value, DTensor) else value


def _check(*outputs: torch.Tensor) -> None:
    for output in outputs[1:]:
        torch.testing.assert_close(outputs[0], output)
