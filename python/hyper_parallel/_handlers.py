"""What torch's functions mean on a DTensor where that is neither elementwise nor metadata.

A handler takes the function and the arguments as torch hands them over. None of these is called in a training step's
inner loop but for gradients. Here are the registry and the handlers of a DTensor as an object. The other modules
``_*_handlers`` hold a subject each and add themselves to the registry when they are imported: ``_functions`` does that.
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeGuard, cast

import torch

from hyper_parallel import _fallback, _index, _pickling, _torch
from hyper_parallel.errors import ArgumentTypeError, FailedPreconditionError, OutOfRangeError, UnimplementedError

if TYPE_CHECKING:
    from hyper_parallel.dtensor import DTensor

_Function = Callable[..., Any]
_Args = tuple[Any, ...]
_Kwargs = dict[str, Any]
Handler = Callable[[_Function, _Args, _Kwargs], Any]

_FUNCTIONS: list[tuple[_Function, Handler]] = []
ATTRIBUTES: dict[tuple[str, str], Handler] = {}


def functions() -> list[tuple[_Function, Handler]]:
    """Each function of torch that has a handler, with it."""
    return _FUNCTIONS


def _handles(*handled: _Function | None) -> Callable[[Handler], Handler]:
    def keep(handler: Handler) -> Handler:
        _FUNCTIONS.extend((function, handler) for function in handled if function is not None)
        return handler

    return keep


def _handles_attribute(name: str, role: str) -> Callable[[Handler], Handler]:
    def keep(handler: Handler) -> Handler:
        ATTRIBUTES[name, role] = handler
        return handler

    return keep


def _is_dtensor(value: object) -> TypeGuard[DTensor]:
    # isinstance would do, were the class there while this module is imported.
    return getattr(type(value), "__torch_function__", None) is _torch.torch_function


# --- identity and containers -----------------------------------------------------------------------------------------


@_handles(torch.Tensor.__len__)
def _len(function: _Function, args: _Args, kwargs: _Kwargs) -> int:
    shape = args[0].shape
    if not shape:
        raise ArgumentTypeError("len() of a 0-D DTensor")
    return int(shape[0])


@_handles(torch.Tensor.__dir__)
def _dir(function: _Function, args: _Args, kwargs: _Kwargs) -> list[str]:
    return sorted(set(dir(type(args[0]))) | set(vars(args[0])))


@_handles(torch.Tensor.__repr__)
def _repr(function: _Function, args: _Args, kwargs: _Kwargs) -> str:
    tensor = args[0]
    local = _torch.local(tensor)
    with torch.no_grad():
        values = repr(local.detach()).removeprefix("tensor(").removesuffix(")").split(", dtype=")[0]
    grad = f", grad_fn=<{local.grad_fn.name()}>" if local.grad_fn else ", requires_grad=True" * local.requires_grad
    mesh = tensor.device_mesh
    where = f"rank={_torch.rank(tensor)}"
    if not _torch.is_member(tensor):
        where += " (outside the mesh)"
    return (
        f"{type(tensor).__name__}({values}, shape={tuple(tensor.shape)}, dtype={tensor.dtype}, "
        f"placements={tensor.placements}, mesh={mesh}, local_shape={tuple(local.shape)}, {where}{grad})"
    )


@_handles(torch.Tensor.__format__)
def _format(function: _Function, args: _Args, kwargs: _Kwargs) -> str:
    tensor, spec = args
    if tensor.dim() == 0 and spec:
        return format(_torch.item(tensor), spec)
    return format(repr(tensor), spec)


@_handles(torch.Tensor.__getitem__)
def _getitem(function: _Function, args: _Args, kwargs: _Kwargs) -> DTensor:
    tensor, index = args
    if not _is_row(tensor, index):
        indexed = _index.basic_index(tensor, index) if _is_normal(tensor) else None
        if indexed is not None:
            return indexed
        answered = _fallback.run_on_normal("__getitem__", function, args, kwargs)
        if answered is not NotImplemented:
            return cast("DTensor", answered)
    is_bool = isinstance(index, bool) or str(getattr(index, "dtype", "")) == "bool"
    if is_bool or isinstance(index, torch.Tensor) or not hasattr(index, "__index__"):
        raise UnimplementedError(
            f"x[i] of a DTensor takes one int, not {index!r} of type {type(index).__name__}; "
            "take full_tensor(), or to_local() for this rank's part"
        )
    row = operator.index(index)
    if not -(2**63) <= row < 2**63:
        raise OutOfRangeError(f"x[i]: index {row} is out of range for {len(tensor)} rows")
    return _torch.row(tensor, row)


def _is_normal(tensor: object) -> bool:
    return _is_dtensor(tensor) and not any(placement.is_ragged_shard() for placement in tensor.placements)


def _is_row(tensor: object, index: object) -> bool:
    """Whether x[i] is a row of a tensor sharded by rows, which is a view with a placement of its own."""
    is_int = hasattr(index, "__index__") and not isinstance(index, bool | torch.Tensor)
    return is_int and _is_dtensor(tensor) and any(placement.is_shard(0) for placement in tensor.placements)


@_handles(torch.Tensor.__setitem__)
def _setitem(function: _Function, args: _Args, kwargs: _Kwargs) -> None:
    raise UnimplementedError("x[i] = v is not supported on a DTensor; write a row of Shard(0) by x[i].copy_(v)")


# --- copies ----------------------------------------------------------------------------------------------------------


@_handles(torch.Tensor.__deepcopy__)
def _deepcopy(function: _Function, args: _Args, kwargs: _Kwargs) -> DTensor:
    tensor, memo = args
    if id(tensor) in memo:
        known: DTensor = memo[id(tensor)]
        return known
    local = _torch.local(tensor)
    if not local.is_leaf:
        raise FailedPreconditionError(
            "Only DTensors that are leaves of the graph can be deep-copied; detach() the tensor or copy it by clone()"
        )
    copied = _torch.wrap_like(tensor, local.detach().clone())
    # Before its attributes, which may lead back to it.
    memo[id(tensor)] = copied
    if local.grad is not None:
        copied.grad = _torch.wrap_gradient(tensor, local.grad.detach().clone())
    copied.requires_grad_(local.requires_grad)
    copied.__dict__.update(copy.deepcopy(tensor.__dict__, memo))
    return copied


@_handles(torch.Tensor.__reduce_ex__)
def _reduce_ex(function: _Function, args: _Args, kwargs: _Kwargs) -> _Args:
    return _pickling.reduce(args[0])
