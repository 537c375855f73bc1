"""torch, for the tests of both platforms."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F

from hyper_parallel import DTensor, distribute_tensor
from support.common import make_mesh
from support.frameworks.interface import Array
from support.protocol import Group
from support.spread import Spread

NAME = "torch"
PRELOAD = ["torch", "torch.distributed", "pytest"]
REJOINS = True
EXAMPLES = 14
COMPUTED_DTYPES = ("float64", "float32", "bfloat16", "float16")
FLOAT32_AND_FLOAT64 = ("float", "double")
NOT_OFFERED: list[str] = []
OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "SGD": lambda parameters: torch.optim.SGD(parameters, lr=0.05),
    "SGD with momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9),
    "Adam": lambda parameters: torch.optim.Adam(parameters, lr=0.05),
    "AdamW": lambda parameters: torch.optim.AdamW(parameters, lr=0.05, weight_decay=0.1),
}
REDUCTIONS: dict[str, Callable[[Any], object]] = {
    "torch.cumsum": lambda x: torch.cumsum(x, 0),
    "torch.cat": lambda x: torch.cat([x, x]),
    "torch.flatten": torch.flatten,
    "torch.softmax": lambda x: torch.softmax(x, 0),
    "torch.matmul": lambda x: torch.matmul(x, x),
    "F.linear": lambda x: F.linear(x, x),
    "np.asarray": np.asarray,
}


def prepare() -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)


def join(group: Group, index: int, size: int) -> None:
    if dist.is_initialized():
        dist.destroy_process_group()
    dist.init_process_group("gloo", f"file://{group.rendezvous}", timeout=group.timeout, rank=index, world_size=size)


def seed(value: int) -> None:
    torch.manual_seed(value)


def tensor(array: Array, dtype: str = "float32") -> torch.Tensor:
    return torch.tensor(array, dtype=getattr(torch, dtype))


def array(tensor: torch.Tensor) -> Array:
    detached = tensor.detach()
    values: Array = (detached.float() if detached.dtype == torch.bfloat16 else detached).numpy()
    return values


def from_bytes(data: bytes, shape: tuple[int, ...], dtype: str) -> torch.Tensor:
    return torch.frombuffer(bytearray(data), dtype=getattr(torch, dtype)).reshape(shape)


def to_bytes(tensor: torch.Tensor) -> bytes:
    return tensor.detach().contiguous().view(torch.uint8).numpy().tobytes()


def dtype_of(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def is_plain(tensor: object) -> bool:
    return type(tensor) is torch.Tensor


def weighted_sum(tensor: torch.Tensor, weights: Array) -> torch.Tensor:
    return (tensor * torch.tensor(weights, dtype=tensor.dtype)).sum()


def gradients(function: Callable[..., torch.Tensor], tensors: Sequence[torch.Tensor]) -> list[Array]:
    leaves = [tensor.clone().requires_grad_() for tensor in tensors]
    found = torch.autograd.grad(function(*leaves), leaves, allow_unused=True, materialize_grads=True)
    return [array(gradient) for gradient in found]


def second_derivative(function: Callable[..., torch.Tensor], tensor: torch.Tensor) -> Array:
    leaf = tensor.clone().requires_grad_()
    (first,) = torch.autograd.grad(function(leaf), leaf, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), leaf)
    return array(second)


def call(name: str, tensor: torch.Tensor) -> torch.Tensor:
    if name in {"gelu", "silu"}:
        result: torch.Tensor = getattr(F, name)(tensor)
        return result
    method: Callable[[], torch.Tensor] = getattr(tensor, name)
    return method()


def train(
    starts: Sequence[Array],
    spreads: Sequence[Spread] | None,
    loss: Callable[[list[torch.Tensor], int], torch.Tensor],
    optimizer: str,
    steps: int,
) -> list[Array]:
    parameters = [torch.nn.Parameter(tensor(start)) for start in starts]
    if spreads is not None:
        parameters = [
            torch.nn.Parameter(distribute_tensor(plain.detach(), make_mesh(*spread.mesh_shape), spread.placements))
            for plain, spread in zip(parameters, spreads, strict=True)
        ]
    made = OPTIMIZERS[optimizer](parameters)
    for step in range(steps):
        made.zero_grad()
        loss(_wholes(parameters), step).backward()
        made.step()
    return [array(whole) for whole in _wholes(parameters)]


def _wholes(parameters: list[torch.nn.Parameter]) -> list[torch.Tensor]:
    return [parameter.full_tensor() if isinstance(parameter, DTensor) else parameter for parameter in parameters]


def sum_over_ranks(value: float) -> float:
    total = torch.tensor([value])
    dist.all_reduce(total)
    return total.item()
