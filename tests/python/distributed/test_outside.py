"""Where torch leaves its own Python functions: NumPy, DLPack, vmap, tracing, compiling, data parallelism."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from hyper_parallel import (
    DTensor,
    Placement,
    RaggedShard,
    Replicate,
    Shard,
    distribute_tensor,
    from_torch_dtensor,
    to_torch_dtensor,
)
from support.checks import assert_consistent, assert_equal, assert_raises, gradient_of, make_mesh, whole_of
from support.ranks import ranks
from support.values import numbered
from support.worker import Rank

SHAPE = (6, 4)
PLACEMENTS: dict[str, Placement] = {"ragged": RaggedShard((0,), (1, 2)), "sharded": Shard(0), "replicated": Replicate()}
every_layout = pytest.mark.parametrize("layout", list(PLACEMENTS))


def make(layout: str = "ragged", *, requires_grad: bool = False) -> DTensor:
    return distribute_tensor(numbered(SHAPE).requires_grad_(requires_grad), make_mesh(2), [PLACEMENTS[layout]])


EXPORTS: dict[str, Callable[[DTensor], Any]] = {
    "numpy()": lambda x: x.numpy(),
    "numpy(force=True)": lambda x: x.numpy(force=True),
    "np.asarray": lambda x: np.asarray(x),
    "np.array": lambda x: np.array(x),
    "__dlpack__": lambda x: x.__dlpack__(),
    "torch.utils.dlpack.to_dlpack": lambda x: torch.utils.dlpack.to_dlpack(x),
    "torch.from_dlpack": lambda x: torch.from_dlpack(x),
    "np.from_dlpack": lambda x: np.from_dlpack(x),
    "tolist": lambda x: x.tolist(),
    "torch.tensor": lambda x: torch.tensor(x),
    "torch.as_tensor to float64": lambda x: torch.as_tensor(x, dtype=torch.float64).sum(),
    "as_strided": lambda x: x.as_strided((2,), (1,)),
    "data_ptr": lambda x: x.data_ptr(),
    "__cuda_array_interface__": lambda x: x.__cuda_array_interface__,
}


@pytest.mark.parametrize("export", list(EXPORTS))
@every_layout
@ranks(2)
def test_memory_is_not_handed_out(rank: Rank, layout: str, export: str) -> None:
    x = make(layout)
    with pytest.raises((NotImplementedError, RuntimeError, TypeError, AttributeError)):
        EXPORTS[export](x)
    assert_equal(x.full_tensor(), numbered(SHAPE))


@every_layout
@ranks(2)
def test_vmap_raises(rank: Rank, layout: str) -> None:
    x = make(layout)
    for function in (lambda t: t * 2, torch.sin):
        with pytest.raises((NotImplementedError, RuntimeError, TypeError)):
            torch.vmap(function)(x)
    for transform in (torch.func.grad, torch.func.vjp, torch.func.jvp):
        with pytest.raises((NotImplementedError, RuntimeError, TypeError)):
            if transform is torch.func.grad:
                transform(lambda t: (t * t).full_tensor().sum())(x)
            elif transform is torch.func.vjp:
                transform(lambda t: t * t, x)[1](x)
            else:
                transform(lambda t: t * t, (x,), (x,))


@every_layout
@ranks(2)
def test_tracing_raises(rank: Rank, layout: str) -> None:
    x = make(layout)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises((NotImplementedError, RuntimeError, TypeError)):
            torch.jit.trace(lambda t: t * 2 + 1, (x,))
    assert_equal((x * 2).full_tensor(), numbered(SHAPE) * 2)


@ranks(2)
def test_data_parallelism_over_ragged_parameters_raises(rank: Rank) -> None:
    module = nn.Module()
    module.weight = nn.Parameter(make())
    with pytest.raises((NotImplementedError, RuntimeError, ValueError, TypeError)):
        DistributedDataParallel(module)
    assert_equal(whole_of(module.weight), numbered(SHAPE))


@ranks(2)
def test_plain_collectives_on_a_dtensor_raise(rank: Rank) -> None:
    x = make()
    for collective in (torch.distributed.all_reduce, lambda t: torch.distributed.broadcast(t, 0)):
        with pytest.raises((NotImplementedError, RuntimeError, TypeError)):
            collective(x)
    assert_equal(x.full_tensor(), numbered(SHAPE))


@every_layout
@ranks(2)
def test_compiled_functions_give_the_values_and_gradients_of_eager(rank: Rank, layout: str) -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.relu(x * 2 - y) + torch.sigmoid(y)

    x, y = make(layout, requires_grad=True), make(layout)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = torch.compile(function, backend="eager")(x, y)
    assert isinstance(result, DTensor)
    assert_consistent(result)
    assert_equal(whole_of(result), whole_of(function(x, y)))
    result.backward(distribute_tensor(torch.ones(SHAPE), x.device_mesh, x.placements))
    compiled = whole_of(gradient_of(x))
    x.grad = None
    function(x, y).backward(distribute_tensor(torch.ones(SHAPE), x.device_mesh, x.placements))
    assert_equal(compiled, whole_of(gradient_of(x)))


@ranks(2)
def test_a_compiled_module_that_gathers_its_weight(rank: Rank) -> None:
    class Gathered(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(make())

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.tanh(x @ self.weight.full_tensor())

    module = Gathered()
    x = torch.ones(2, 6) / 100
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.compile(module, backend="eager")(x).sum().backward()
    compiled = whole_of(gradient_of(module.weight))
    module.zero_grad()
    module(x).sum().backward()
    assert_equal(compiled, whole_of(gradient_of(module.weight)))


@ranks(2)
def test_an_operation_that_is_refused_is_refused_when_compiled(rank: Rank) -> None:
    x = make()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(Exception, match=r"sum|bypassed"):
            torch.compile(lambda t: t.sum(), backend="eager")(x)


@pytest.mark.parametrize("layout", ["sharded", "replicated"])
@ranks(2)
def test_to_and_from_torchs_own_dtensor(rank: Rank, layout: str) -> None:
    x = make(layout, requires_grad=True)
    theirs = to_torch_dtensor(x)
    assert theirs.full_tensor().tolist() == numbered(SHAPE).tolist()
    back = from_torch_dtensor(theirs)
    assert back.placements == x.placements
    assert back.device_mesh == x.device_mesh
    assert_equal(whole_of(back), numbered(SHAPE))
    assert back._local_tensor.data_ptr() == x._local_tensor.data_ptr()
    back.backward(distribute_tensor(numbered(SHAPE), x.device_mesh, x.placements))
    assert_equal(whole_of(gradient_of(x)), numbered(SHAPE))


@ranks(2)
def test_a_ragged_tensor_has_no_torch_dtensor(rank: Rank) -> None:
    assert_raises(NotImplementedError, "RaggedShard", lambda: to_torch_dtensor(make()))
    with pytest.raises(TypeError):
        from_torch_dtensor(torch.ones(2))  # type: ignore[arg-type]
