"""Tensors that are not ours and not plain: relabelled, with a dispatch of their own, lazy, sparse, quantised."""

from __future__ import annotations

import copy
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed.tensor as torch_tensor
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from hyper_parallel import (
    ArgumentTypeError,
    DTensor,
    HyperParallelError,
    Layout,
    Replicate,
    Shard,
    _torch,
    distribute_tensor,
)
from hyper_parallel.platform import differentiable_variable_all_gather
from support.checks import assert_equal, assert_raises, make_mesh
from support.ranks import ranks
from support.values import numbered
from support.worker import Rank

SHAPE = (6, 4)


def make(dtype: torch.dtype = torch.float32) -> DTensor:
    return distribute_tensor(numbered(SHAPE, dtype), make_mesh(2), [Shard(0)])


# --- relabelled ------------------------------------------------------------------------------------------------------

RELABELLING: dict[str, Callable[[], Any]] = {
    "as_subclass": lambda: torch.ones(SHAPE).as_subclass(DTensor),  # type: ignore[arg-type]
    "_make_subclass": lambda: torch.Tensor._make_subclass(DTensor, torch.ones(SHAPE)),
    "_make_wrapper_subclass": lambda: torch.Tensor._make_wrapper_subclass(DTensor, SHAPE),
}

# w: the relabelled tensor, x: one of ours.
WITH_A_RELABELLED: dict[str, Callable[[Any, Any], object]] = {
    "w + 1": lambda w, x: w + 1,
    "x + w": lambda w, x: x + w,
    "w.add_(1)": lambda w, x: w.add_(1),
    "x.copy_(w)": lambda w, x: x.copy_(w),
    "foreach": lambda w, x: torch._foreach_add_([x, w], 1),
    "w.sum()": lambda w, x: w.sum(),
    "w.item()": lambda w, x: w.item(),
    "bool(w)": lambda w, x: bool(w),
    "w.double()": lambda w, x: w.double(),
    "w.detach()": lambda w, x: w.detach(),
    "w.clone()": lambda w, x: w.clone(),
    "w[0]": lambda w, x: w[0],
    "repr(w)": lambda w, x: repr(w),
    "w.data": lambda w, x: w.data,
    "w.data =": lambda w, x: setattr(w, "data", x),
    "x.data =": lambda w, x: setattr(x, "data", w),
    "w.grad": lambda w, x: w.grad,
    "w.grad =": lambda w, x: setattr(w, "grad", x),
    "x.grad =": lambda w, x: setattr(x, "grad", w),
    "del w.grad": lambda w, x: delattr(w, "grad"),
    "w.grad_fn": lambda w, x: w.grad_fn,
    "w.is_leaf": lambda w, x: w.is_leaf,
    "w._version": lambda w, x: w._version,
    "w.requires_grad": lambda w, x: w.requires_grad,
    "w.requires_grad =": lambda w, x: setattr(w, "requires_grad", True),
    "w.requires_grad_()": lambda w, x: w.requires_grad_(),
    "w.register_hook": lambda w, x: w.register_hook(lambda gradient: gradient),
    "backward(w, x)": lambda w, x: torch.autograd.backward([w], [x]),
    "backward(x, w)": lambda w, x: torch.autograd.backward([x], [w]),
    "w.full_tensor()": lambda w, x: w.full_tensor(),
    "w.to_local()": lambda w, x: w.to_local(),
    "w.redistribute": lambda w, x: w.redistribute([Replicate()]),
    "w.reduce_partial()": lambda w, x: w.reduce_partial(),
    "w.placements": lambda w, x: w.placements,
    "w.device_mesh": lambda w, x: w.device_mesh,
    "w.layout": lambda w, x: w.layout,
    "w.local_numel": lambda w, x: w.local_numel,
    "w._local_tensor": lambda w, x: w._local_tensor,
    "w._global_shape": lambda w, x: w._global_shape,
    "from_local": lambda w, x: DTensor(w, x.device_mesh, [Replicate()]),
    "distribute_tensor": lambda w, x: distribute_tensor(w, x.device_mesh, [Replicate()]),
    "variable_all_gather": lambda w, x: differentiable_variable_all_gather(w, [6, 6], x.device_mesh.get_group()),
    "nn.Parameter(w)": lambda w, x: nn.Parameter(w),
    "deepcopy": lambda w, x: copy.deepcopy(w),
    "pickle": lambda w, x: pickle.dumps(w),
    "_torch.local": lambda w, x: _torch.local(w),
    "_torch.follow_local": lambda w, x: _torch.follow_local(w),
    "_torch.set_data to": lambda w, x: _torch.set_data(w, x),
    "_torch.set_data of": lambda w, x: _torch.set_data(x, w),
    "_torch.set_base": lambda w, x: _torch.set_base(w, x),
    "_torch.row": lambda w, x: _torch.row(w, 0),
    "_torch.item": lambda w, x: _torch.item(w),
    "_torch.rank": lambda w, x: _torch.rank(w),
    "_torch.is_member": lambda w, x: _torch.is_member(w),
    "_torch.shape": lambda w, x: _torch.shape(w),
    "_torch.WeakDTensor": lambda w, x: _torch.WeakDTensor(w)().placements,  # type: ignore[union-attr]
    "_torch.wrap_like": lambda w, x: _torch.wrap_like(w, torch.ones(SHAPE)),
    "_torch.wrap_gradient": lambda w, x: _torch.wrap_gradient(w, torch.ones(SHAPE)),
    "_torch.gradient_local to": lambda w, x: _torch.gradient_local(w, x),
    "_torch.gradient_local of": lambda w, x: _torch.gradient_local(x, w),
    "_torch.call": lambda w, x: _torch.call("add_", w, 1),
}


@pytest.mark.parametrize("relabelling", list(RELABELLING))
@ranks(2)
def test_a_relabelled_tensor_is_a_type_error_wherever_it_goes(rank: Rank, relabelling: str) -> None:
    for name, action in WITH_A_RELABELLED.items():
        x = make()
        with pytest.raises(TypeError) as caught:
            action(RELABELLING[relabelling](), x)
        assert isinstance(caught.value, HyperParallelError), f"{name}: {caught.value!r}"
        assert_equal(x.full_tensor(), numbered(SHAPE))


# Those that take one DTensor, and what else they are given.
OF_ONE: dict[str, Callable[[Any], object]] = {
    **{
        name: getattr(_torch, name)
        for name in (
            "local", "layout", "placements", "placements_text", "mesh", "shape", "rank", "is_member", "item",
            "full_tensor", "to_local", "follow_local", "WeakDTensor",
        )
    },
    "row": lambda thing: _torch.row(thing, 0),
    "redistribute": lambda thing: _torch.redistribute(thing, None, [Replicate()]),
    "set_data to": lambda thing: _torch.set_data(thing, make()),
    "set_data of": lambda thing: _torch.set_data(make(), thing),
    "set_base of": lambda thing: _torch.set_base(thing, make()),
    "set_base to": lambda thing: _torch.set_base(make(), thing),
    "wrap_like": lambda thing: _torch.wrap_like(thing, torch.ones(3, 4)),
    "wrap_gradient": lambda thing: _torch.wrap_gradient(thing, torch.ones(3, 4)),
    "gradient_local to": lambda thing: _torch.gradient_local(thing, make()),
    "gradient_local of": lambda thing: _torch.gradient_local(make(), thing),
}  # fmt: skip


@pytest.mark.parametrize("function", list(OF_ONE))
@ranks(2)
def test_a_function_of_the_binding_takes_a_dtensor_alone(rank: Rank, function: str) -> None:
    for thing in (torch.ones(2), None, 3):
        with pytest.raises(TypeError, match=type(thing).__name__):
            OF_ONE[function](thing)


# --- with a dispatch of their own ------------------------------------------------------------------------------------


class Dispatching(torch.Tensor):
    """A tensor without storage whose operations would run somewhere else."""

    @staticmethod
    def __new__(cls: type[Dispatching], shape: tuple[int, ...]) -> Dispatching:
        made: Dispatching = torch.Tensor._make_wrapper_subclass(cls, shape)  # type: ignore[assignment]
        return made

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @classmethod
    def __torch_dispatch__(cls, *_: object) -> object:  # type: ignore[override]
        raise AssertionError("an operation of ours ran on a tensor with a dispatch of its own")


def torchs_own(shape: tuple[int, ...]) -> torch.Tensor:
    mesh = make_mesh(2).to_torch()
    return torch_tensor.DTensor.from_local(torch.ones(shape), mesh, [torch_tensor.Partial()])


FOREIGN: dict[str, tuple[str, Callable[[tuple[int, ...]], Any]]] = {
    "torch's DTensor": ("DTensor", torchs_own),
    "FakeTensor": ("FakeTensor", lambda shape: FakeTensorMode().from_tensor(torch.ones(shape))),
    "a class of the user's": ("Dispatching", Dispatching),
}
every_foreign = pytest.mark.parametrize("foreign", list(FOREIGN))

# x: ours, f: the foreign one, of one element.
OPERANDS: dict[str, Callable[[Any, Any], object]] = {
    "torch.add(x, f)": torch.add,
    "torch.add(f, x)": lambda x, f: torch.add(f, x),
    "x.add(f, alpha=2)": lambda x, f: x.add(f, alpha=2),
    "x.clamp(min=f)": lambda x, f: x.clamp(min=f),
    "torch.lerp(x, x, f)": lambda x, f: torch.lerp(x, x, f),
    "torch.where(x > 0, x, f)": lambda x, f: torch.where(x > 0, x, f),
    "x.copy_(f)": lambda x, f: x.copy_(f),
    "x.mul_(f)": lambda x, f: x.mul_(f),
    "torch._foreach_add([x], [f])": lambda x, f: torch._foreach_add([x], [f]),
}
OPERATORS: dict[str, Callable[[Any, Any], object]] = {
    "x + f": lambda x, f: x + f,
    "f + x": lambda x, f: f + x,
    "f * x": lambda x, f: f * x,
    "x < f": lambda x, f: x < f,
    "x -= f": lambda x, f: x.__isub__(f),
}


@pytest.mark.parametrize("form", [*OPERANDS, *OPERATORS])
@every_foreign
@ranks(2)
def test_a_tensor_with_a_dispatch_of_its_own_is_no_operand(rank: Rank, foreign: str, form: str) -> None:
    name, build = FOREIGN[foreign]
    x, operand = make(), build(())
    text = f"a {name}, a tensor with a dispatch of its own"
    assert_raises(TypeError, text, lambda: (OPERANDS | OPERATORS)[form](x, operand))
    assert_equal(x.full_tensor(), numbered(SHAPE))


@every_foreign
@ranks(2)
def test_a_tensor_with_a_dispatch_of_its_own_is_no_part(rank: Rank, foreign: str) -> None:
    name, build = FOREIGN[foreign]
    x, local = make(), build(SHAPE)
    for action in (
        lambda: DTensor(local, x.device_mesh, [Replicate()]),
        lambda: DTensor.from_local(local, x.device_mesh, [Replicate()], shape=SHAPE),
        lambda: distribute_tensor(local, x.device_mesh, [Replicate()]),
        lambda: distribute_tensor(local, x.device_mesh, [Shard(0)], src_data_rank=0),
    ):
        assert_raises(TypeError, f"is a {name}", action)
    assert_raises(TypeError, "data = ...", lambda: setattr(x, "data", local))
    assert_raises(TypeError, "gradient", lambda: setattr(x, "grad", local))
    assert_equal(x.full_tensor(), numbered(SHAPE))


# --- lazy, sparse, quantised -----------------------------------------------------------------------------------------

LAZY: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "conj": lambda t: torch.complex(t, t + 1).conj(),
    "neg": lambda t: torch._neg_view(t),
    "imag of conj": lambda t: torch.complex(t, t + 1).conj().imag,
}


@pytest.mark.parametrize("source", [None, 0, 1])
@pytest.mark.parametrize("lazy", list(LAZY))
@ranks(2)
def test_a_lazy_view_is_distributed_by_its_values(rank: Rank, lazy: str, source: int | None) -> None:
    view = LAZY[lazy](numbered(SHAPE))
    values = view.clone().resolve_conj().resolve_neg()
    for placement in (Shard(0), Shard(1), Replicate()):
        x = distribute_tensor(view, make_mesh(2), [placement], src_data_rank=source)
        assert_equal(x.full_tensor(), values)
        assert_equal((x + 1).full_tensor(), values + 1)


@pytest.mark.parametrize("lazy", list(LAZY))
@ranks(2)
def test_a_lazy_view_is_no_part(rank: Rank, lazy: str) -> None:
    view = LAZY[lazy](numbered(SHAPE))
    for shape in (None, SHAPE):
        with pytest.raises(ValueError, match="resolve_") as caught:
            DTensor(view, make_mesh(2), [Replicate()], shape=shape)
        assert isinstance(caught.value, HyperParallelError)


OTHER_STORAGE: dict[str, Callable[[], torch.Tensor]] = {
    "sparse": lambda: torch.eye(4).to_sparse(),
    "csr": lambda: torch.eye(4).to_sparse_csr(),
    "quantised": lambda: torch.quantize_per_tensor(torch.ones(4, 4), 0.1, 0, torch.qint8),
    "nested": lambda: torch.nested.nested_tensor([torch.ones(2)]),
    "jagged": lambda: torch.nested.nested_tensor([torch.ones(2)], layout=torch.jagged),
}


@pytest.mark.parametrize("kind", list(OTHER_STORAGE))
@ranks(2)
def test_storage_that_is_not_dense_is_refused(rank: Rank, kind: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        odd = OTHER_STORAGE[kind]()
    mesh = make_mesh(2)
    for action in (
        lambda: DTensor(odd, mesh, [Replicate()]),
        lambda: DTensor(odd, mesh, [Replicate()], shape=(4, 4)),
        lambda: distribute_tensor(odd, mesh, [Replicate()]),
        lambda: distribute_tensor(odd, mesh, [Shard(0)], src_data_rank=0),
    ):
        assert_raises(TypeError, "must be a", action)


# --- what is no tensor and knows torch's protocol --------------------------------------------------------------------


class Knowing:
    """Answers every function of torch that meets it."""

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> str:
        return "asked"


ASKING: dict[str, Callable[[Any, Any], object]] = {
    "x + u": lambda x, u: x + u,
    "u + x": lambda x, u: x.__radd__(u),
    "x == u": lambda x, u: x == u,
    "x < u": lambda x, u: x < u,
    "x *= u": lambda x, u: x.__imul__(u),
    "torch.add(x, u)": torch.add,
    "x.add(u)": lambda x, u: x.add(u),
    "x.clamp(min=u)": lambda x, u: x.clamp(min=u),
    "torch.where(x, x, u)": lambda x, u: torch.where(x, x, u),
}


@pytest.mark.parametrize("form", list(ASKING))
@ranks(2)
def test_a_class_that_knows_the_protocol_is_asked_as_by_torch(rank: Rank, form: str) -> None:
    assert ASKING[form](numbered(SHAPE), Knowing()) == "asked"
    assert ASKING[form](make(), Knowing()) == "asked"


def test_placement_of_torch_raises_and_says_whose_it_is() -> None:
    layout = Layout((2,), ("dp",))
    with pytest.raises(ArgumentTypeError) as raised:
        layout([torch_tensor.Shard(0)])  # type: ignore[list-item]
    assert str(raised.value) == (
        "placements[0] is Shard(dim=0) of torch.distributed.tensor.placement_types but must be a placement of "
        "hyper_parallel: pass hyper_parallel's class of the same name"
    )
