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
from hyper_parallel.errors import InvalidArgumentError, UnimplementedError
from support.checks import assert_consistent, assert_equal, assert_raises, gradient_of, make_mesh, whole_of
from support.ranks import ranks
from support.values import numbered
from support.worker import Rank

SHAPE = (6, 4)
PLACEMENTS: dict[str, Placement] = {"ragged": RaggedShard((0,), (1, 2)), "sharded": Shard(0), "replicated": Replicate()}
every_layout = pytest.mark.parametrize("layout", list(PLACEMENTS))


def make(layout: str = "ragged", *, requires_grad: bool = False) -> DTensor:
    return distribute_tensor(numbered(SHAPE).requires_grad_(requires_grad), make_mesh(2), [PLACEMENTS[layout]])


REFUSED = "operation '{}' is not supported on a"
NO_STORAGE = "Cannot access data pointer of Tensor that doesn't have storage"

# What takes the memory, the error, and a part of its text. torch's own functions of C++ end with the missing storage.
EXPORTS: dict[str, tuple[Callable[[DTensor], Any], type[Exception], str]] = {
    "numpy()": (lambda x: x.numpy(), UnimplementedError, REFUSED.format("numpy")),
    "numpy(force=True)": (lambda x: x.numpy(force=True), UnimplementedError, REFUSED.format("numpy")),
    "np.asarray": (np.asarray, UnimplementedError, REFUSED.format("__array__")),
    "np.array": (np.array, UnimplementedError, REFUSED.format("__array__")),
    "__dlpack__": (lambda x: x.__dlpack__(), UnimplementedError, REFUSED.format("__dlpack__")),
    "torch.utils.dlpack.to_dlpack": (torch.utils.dlpack.to_dlpack, RuntimeError, NO_STORAGE),
    "torch.from_dlpack": (torch.from_dlpack, UnimplementedError, REFUSED.format("__dlpack_device__")),
    "np.from_dlpack": (np.from_dlpack, UnimplementedError, REFUSED.format("__dlpack__")),
    "tolist": (lambda x: x.tolist(), UnimplementedError, REFUSED.format("tolist")),
    "torch.tensor of a list": (lambda x: torch.tensor([x]), InvalidArgumentError, "one element"),
    "as_strided": (lambda x: x.as_strided((2,), (1,)), UnimplementedError, REFUSED.format("as_strided")),
    "data_ptr": (lambda x: x.data_ptr(), UnimplementedError, REFUSED.format("data_ptr")),
    "storage": (lambda x: x.storage(), UnimplementedError, REFUSED.format("storage")),
    "untyped_storage": (lambda x: x.untyped_storage(), UnimplementedError, REFUSED.format("untyped_storage")),
    "share_memory_": (lambda x: x.share_memory_(), UnimplementedError, REFUSED.format("share_memory_")),
    "in": (lambda x: 1.0 in x, UnimplementedError, REFUSED.format("__contains__")),
    "__cuda_array_interface__": (
        lambda x: x.__cuda_array_interface__,
        UnimplementedError,
        REFUSED.format("__cuda_array_interface__"),
    ),
}


@pytest.mark.parametrize("export", list(EXPORTS))
@every_layout
@ranks(2)
def test_memory_is_not_handed_out(rank: Rank, layout: str, export: str) -> None:
    x = make(layout)
    action, kind, text = EXPORTS[export]
    with pytest.raises(kind) as caught:
        action(x)
    assert type(caught.value) is kind
    assert text in str(caught.value)
    assert_equal(x.full_tensor(), numbered(SHAPE))


@every_layout
@ranks(2)
def test_torch_tensor_copies_and_as_tensor_shares(rank: Rank, layout: str) -> None:
    x = make(layout, requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's advice to use clone().detach()
        copied, wanting, cast = (
            torch.tensor(x),
            torch.tensor(x, requires_grad=True),
            torch.tensor(x, dtype=torch.float64),
        )
    for made in (copied, wanting, cast):
        assert isinstance(made, DTensor)
        assert_consistent(made)
        assert made.is_leaf
        assert made.requires_grad == (made is wanting)
        assert made.placements == x.placements
        made.detach().add_(100)
        assert_equal(whole_of(made), numbered(SHAPE, made.dtype) + 100)
    assert torch.as_tensor(x) is x
    assert_equal(whole_of(x), numbered(SHAPE))


@every_layout
@ranks(2)
def test_vmap_raises(rank: Rank, layout: str) -> None:
    x = make(layout)
    for function, name in ((lambda t: t * 2, "aten.mul"), (torch.sin, "aten.sin")):
        assert_raises(NotImplementedError, name, lambda function=function: torch.vmap(function)(x))
    bypassed = "aten.mul.Tensor bypassed DTensor"
    assert_raises(NotImplementedError, bypassed, lambda: torch.func.grad(lambda t: (t * t).full_tensor().sum())(x))
    assert_raises(NotImplementedError, bypassed, lambda: torch.func.vjp(lambda t: t * t, x)[1](x))
    assert_raises(NotImplementedError, "_make_dual", lambda: torch.func.jvp(lambda t: t * t, (x,), (x,)))


@every_layout
@ranks(2)
def test_tracing_raises(rank: Rank, layout: str) -> None:
    x = make(layout)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert_raises(
            NotImplementedError, "cannot be traced by torch.jit", lambda: torch.jit.trace(lambda t: t * 2 + 1, (x,))
        )
    assert_equal((x * 2).full_tensor(), numbered(SHAPE) * 2)


@ranks(2)
def test_data_parallelism_over_ragged_parameters_raises(rank: Rank) -> None:
    module = nn.Module()
    module.weight = nn.Parameter(make())
    assert_raises(NotImplementedError, "bypassed DTensor", lambda: DistributedDataParallel(module))
    assert_equal(whole_of(module.weight), numbered(SHAPE))


@ranks(2)
def test_plain_collectives_on_a_dtensor_raise(rank: Rank) -> None:
    x = make()
    assert_raises(NotImplementedError, REFUSED.format("all_reduce"), lambda: torch.distributed.all_reduce(x))
    assert_raises(NotImplementedError, REFUSED.format("broadcast"), lambda: torch.distributed.broadcast(x, 0))
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
    assert_raises(TypeError, "torch's DTensor", lambda: from_torch_dtensor(torch.ones(2)))  # type: ignore[arg-type]
    assert_raises(TypeError, "hyper_parallel.DTensor", lambda: to_torch_dtensor(torch.ones(2)))  # type: ignore[arg-type]
