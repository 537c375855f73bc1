"""MindSpore, for the tests of both platforms."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

os.environ.setdefault("GLOG_v", "3")  # read at the import: what it warns of on every CPU is not of interest

import mindspore
from mindspore import Parameter, Tensor, mint, nn, ops
from mindspore.mint.distributed import distributed as mint_distributed

from hyper_parallel import DTensor, platform
from hyper_parallel.mindspore import functional
from hyper_parallel.mindspore.parameter import distribute_parameter
from hyper_parallel.platform import _mindspore
from support.common import make_mesh
from support.frameworks.interface import Array
from support.protocol import Group
from support.spread import Spread

NAME = "mindspore"
PRELOAD = ["mindspore", "mindspore.mint.distributed", "pytest"]
REJOINS = False
EXAMPLES = 4
COMPUTED_DTYPES = ("float64", "float32", "float16")
FLOAT32_AND_FLOAT64 = ("Float32", "Float64")
NOT_OFFERED = [
    "empty", "fallback_counts", "from_torch_dtensor", "full", "get_rng_state", "manual_seed", "ones",
    "rand", "randn", "replay_random", "reset_fallback_counts", "set_rng_state", "to_torch_dtensor", "zeros",
]  # fmt: skip
OPTIMIZERS: dict[str, Callable[..., nn.Optimizer]] = {
    "SGD": lambda parameters: nn.SGD(parameters, 0.05),
    "SGD with momentum": lambda parameters: nn.Momentum(parameters, 0.05, 0.9),
    "Adam": lambda parameters: nn.Adam(parameters, 0.05),
    "AdamW": lambda parameters: mindspore.experimental.optim.AdamW(parameters, lr=0.05, weight_decay=0.1),
}
REDUCTIONS: dict[str, Callable[[Any], object]] = {
    "ops.cumsum": lambda x: ops.cumsum(x, 0),
    "ops.cat": lambda x: ops.cat([x, x]),
    "mint.flatten": mint.flatten,
    "mint.sum": mint.sum,
    "ops.add": lambda x: ops.add(x, x),
    "mint.softmax": lambda x: mint.nn.functional.softmax(x, 0),
    "mint.matmul": lambda x: mint.matmul(x, x),
    "nn.ReLU": lambda x: nn.ReLU()(x),
    "ops.AllReduce": lambda x: ops.AllReduce()(x),
    "mint.distributed.all_reduce": lambda x: mint_distributed.all_reduce(x, group="mccl_world_group"),
    "np.asarray": np.asarray,
}

_NAMES = (
    "float64", "float32", "bfloat16", "float16", "int64", "int32", "int16", "int8", "uint8", "uint16", "uint32",
    "uint64", "complex64", "complex128",
)  # fmt: skip
_DTYPES = {name: getattr(mindspore, name) for name in _NAMES} | {"bool": mindspore.bool_}
_JOIN_LIMIT = 30.0


def prepare() -> None:
    # What a kernel refuses is raised by the call that launched it, not by a later one.
    mindspore.set_context(pynative_synchronize=True)


def join(group: Group, index: int, size: int) -> None:
    """As a launcher that sets what torchrun sets; rank 0 says its port in the rendezvous file."""
    file = Path(group.rendezvous)
    if index == 0:
        _write(file, str(_free_port()))
    where = {"RANK": index, "WORLD_SIZE": size, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": _read(file)}
    os.environ.update({name: str(value) for name, value in where.items()})
    platform.initialize("cpu")
    _mindspore.store().timeout = group.timeout
    for name in where:
        del os.environ[name]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _write(file: Path, text: str) -> None:
    """Whole or not at all, for those who look for the file."""
    unfinished = file.with_suffix(".unfinished")
    unfinished.write_text(text)
    unfinished.rename(file)


def _read(file: Path) -> str:
    """Waits for the file."""
    deadline = time.monotonic() + _JOIN_LIMIT
    while not file.exists():
        assert time.monotonic() < deadline, "rank 0 did not come"
        time.sleep(0.005)
    return file.read_text()


def seed(value: int) -> None:
    mindspore.set_seed(value)


def tensor(array: Array, dtype: str = "float32") -> Tensor:
    return Tensor(np.array(array, order="C"), _DTYPES[dtype])


_plain = tensor


def array(tensor: Tensor) -> Array:
    host = (tensor.astype(mindspore.float32) if tensor.dtype == mindspore.bfloat16 else tensor).asnumpy()
    return np.array(host)


def from_bytes(data: bytes, shape: tuple[int, ...], dtype: str) -> Tensor:
    # numpy knows bfloat16 once MindSpore is imported.
    return Tensor(np.frombuffer(data, np.dtype(dtype)).reshape(shape))


def to_bytes(tensor: Tensor) -> bytes:
    return np.ascontiguousarray(tensor.asnumpy()).tobytes()


def dtype_of(tensor: Tensor) -> str:
    (name,) = (name for name, dtype in _DTYPES.items() if dtype == tensor.dtype)
    return name


def is_plain(tensor: object) -> bool:
    return type(tensor) is Tensor


def weighted_sum(tensor: Tensor, weights: Array) -> Tensor:
    """Over columns of one element: the sum of no elements at all is not reliable on CPU."""
    numel = int(np.prod(weights.shape))
    products = tensor.reshape((numel, 1)) * _plain(weights.reshape(numel, 1), dtype_of(tensor))
    return mint.sum(products, 0).reshape(())


@contextlib.contextmanager
def queued() -> Iterator[None]:
    """MindSpore launches kernels from a queue, as it does in programs, and what fails there is raised later."""
    mindspore.set_context(pynative_synchronize=False)
    try:
        yield
    finally:
        mindspore.set_context(pynative_synchronize=True)


def gradients(function: Callable[..., Tensor], tensors: Sequence[Tensor]) -> list[Array]:
    found = mindspore.grad(function, tuple(range(len(tensors))))(*tensors)
    return [array(gradient) for gradient in (found if len(tensors) > 1 else [found])]


def second_derivative(function: Callable[..., Tensor], tensor: Tensor) -> Array:
    def sum_of_first(x: Tensor) -> Tensor:
        return weighted_sum(mindspore.grad(function)(x), np.ones(tensor.shape))

    return array(mindspore.grad(sum_of_first)(tensor))


def train(
    starts: Sequence[Array],
    spreads: Sequence[Spread] | None,
    loss: Callable[[list[Tensor], int], Tensor],
    optimizer: str,
    steps: int,
) -> list[Array]:
    cell = _Parameters(starts)
    for name, spread in zip(cell.names, spreads or [], strict=spreads is not None):
        distribute_parameter(cell, name, make_mesh(*spread.mesh_shape), spread.placements)
    parameters = cell.trainable_params()
    made = OPTIMIZERS[optimizer](parameters)
    differentiated = mindspore.value_and_grad(lambda step: loss(cell(), step), None, parameters)
    for step in range(steps):
        made(differentiated(step)[1])
    return [array(whole) for whole in cell()]


class _Parameters(nn.Cell):  # type: ignore[misc]  # MindSpore has no types
    """Gives its parameters, whole."""

    def __init__(self, starts: Sequence[Array]) -> None:
        super().__init__()
        self.names = [f"parameter{index}" for index in range(len(starts))]
        for name, start in zip(self.names, starts, strict=True):
            setattr(self, name, Parameter(tensor(start), name=name))

    def construct(self) -> list[Tensor]:
        values = [getattr(self, name) for name in self.names]
        return [value.full_tensor() if isinstance(value, DTensor) else value for value in values]


def sum_over_ranks(value: float) -> float:
    total = Tensor([value], mindspore.float32)
    mint_distributed.all_reduce(total, group="mccl_world_group")
    return float(total.asnumpy()[0])


def call(name: str, tensor: Tensor) -> Tensor:
    return getattr(functional, name)(tensor)
