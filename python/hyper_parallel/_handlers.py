"""What torch's functions mean on a DTensor where that is neither elementwise nor metadata.

A handler takes the function and the arguments as torch hands them over. None of these is called in a training step's
inner loop but for gradients.
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar, cast

import torch
import torch.nn.functional
import torch.nn.init

from hyper_parallel import _pickling, _torch
from hyper_parallel.errors import (
    ArgumentTypeError,
    FailedPreconditionError,
    InvalidArgumentError,
    UnimplementedError,
)

if TYPE_CHECKING:
    from hyper_parallel.dtensor import DTensor

_Function = Callable[..., Any]
_Args = tuple[Any, ...]
_Kwargs = dict[str, Any]
Handler = Callable[[_Function, _Args, _Kwargs], Any]

_Item = TypeVar("_Item")

# What torch takes as tensors: one, or several.
_Tensors = torch.Tensor | Sequence[torch.Tensor]
_Gradients = torch.Tensor | Sequence[torch.Tensor | None] | None

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
    if not isinstance(index, int) or isinstance(index, bool):
        raise UnimplementedError(
            f"x[i] of a DTensor takes one int, not {index!r}; take full_tensor(), or to_local() for this rank's part"
        )
    return _torch.row(tensor, index)


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


# --- the graph -------------------------------------------------------------------------------------------------------


def _scalar_gradient(tensor: DTensor) -> tuple[DTensor, torch.Tensor]:
    """A DTensor of one element, reduced if that is pending, and the gradient 1 of its local tensor."""
    if tensor.numel() != 1:
        raise InvalidArgumentError(
            f"backward takes a tensor of one element but this one has shape {tuple(tensor.shape)}"
        )
    reduced = tensor.reduce_partial()
    return reduced, torch.ones_like(_torch.local(reduced))


def _outgoing(tensor: torch.Tensor, gradient: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
    """The local tensor that a backward pass starts from, and its gradient."""
    if not _is_dtensor(tensor):
        if gradient is None and tensor.numel() == 1:
            gradient = torch.ones_like(tensor)
        if gradient is None:
            raise InvalidArgumentError("grad can be implicitly created only for scalar outputs")
        return tensor, gradient
    if gradient is None:
        reduced, one = _scalar_gradient(tensor)
        return _torch.local(reduced), one
    # A share of a pending reduction has no gradient that means the same on all ranks: its sum has.
    reduced = tensor.reduce_partial()
    return _torch.local(reduced), _torch.gradient_local(reduced, cast("DTensor", gradient))  # raises for a plain one


def _outgoing_pairs(tensors: _Tensors, gradients: _Gradients) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """`_outgoing` of each tensor; with no gradients each is 1."""
    tensor_list = _as_list(tensors)
    given: list[torch.Tensor | None] = [None] * len(tensor_list) if gradients is None else _as_list(gradients)
    if len(given) != len(tensor_list):
        raise InvalidArgumentError(f"{len(tensor_list)} tensors were given {len(given)} gradients")
    return [_outgoing(tensor, gradient) for tensor, gradient in zip(tensor_list, given, strict=True)]


def _local_of(tensor: torch.Tensor) -> torch.Tensor:
    return _torch.local(tensor) if _is_dtensor(tensor) else tensor


def _as_list(value: _Item | Sequence[_Item]) -> list[_Item]:
    return list(value) if isinstance(value, Sequence) else [value]


@_handles(torch.Tensor.backward)
def _backward(function: _Function, args: _Args, kwargs: _Kwargs) -> None:
    def run(
        tensor: torch.Tensor,
        gradient: torch.Tensor | None = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        inputs: _Tensors | None = None,
    ) -> None:
        torch.autograd.backward([tensor], [gradient], retain_graph, create_graph, inputs=inputs)

    run(*args, **kwargs)


@_handles(torch.autograd.backward)
def _autograd_backward(function: _Function, args: _Args, kwargs: _Kwargs) -> None:
    def run(  # noqa: PLR0913, PLR0917  (torch's signature)
        tensors: _Tensors,
        grad_tensors: _Gradients = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        grad_variables: _Gradients = None,
        inputs: _Tensors | None = None,
    ) -> None:
        pairs = _outgoing_pairs(tensors, grad_variables if grad_tensors is None else grad_tensors)
        locals_of_inputs = None if inputs is None else [_local_of(value) for value in _as_list(inputs)]
        torch.autograd.backward(
            [local for local, _ in pairs],
            [gradient for _, gradient in pairs],
            retain_graph,
            create_graph,
            inputs=locals_of_inputs,
        )

    run(*args, **kwargs)


@_handles(torch.autograd.grad)
def _grad(function: _Function, args: _Args, kwargs: _Kwargs) -> _Args:
    def run(  # noqa: PLR0913, PLR0917  (torch's signature)
        outputs: _Tensors,
        inputs: _Tensors,
        grad_outputs: _Gradients = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        only_inputs: bool = True,
        allow_unused: bool | None = None,
        is_grads_batched: bool = False,
        materialize_grads: bool = False,
    ) -> tuple[torch.Tensor | None, ...]:
        if is_grads_batched:
            raise UnimplementedError("torch.autograd.grad: is_grads_batched is not supported with a DTensor")
        pairs, input_list = _outgoing_pairs(outputs, grad_outputs), _as_list(inputs)
        gradients = torch.autograd.grad(
            [local for local, _ in pairs],
            [_local_of(value) for value in input_list],
            [gradient for _, gradient in pairs],
            retain_graph,
            create_graph,
            only_inputs,
            allow_unused=allow_unused,
            materialize_grads=materialize_grads,
        )
        return tuple(
            _torch.wrap_gradient(value, gradient) if gradient is not None and _is_dtensor(value) else gradient
            for value, gradient in zip(input_list, gradients, strict=True)
        )

    return run(*args, **kwargs)


@_handles_attribute("grad", "set")
def _set_grad(function: _Function, args: _Args, kwargs: _Kwargs) -> None:
    tensor, gradient = args
    if gradient is None:
        _torch.local(tensor).grad = None
        return
    _torch.local(tensor).grad = _torch.gradient_local(tensor, gradient)


@_handles_attribute("grad", "delete")
def _delete_grad(function: _Function, args: _Args, kwargs: _Kwargs) -> None:
    _torch.local(args[0]).grad = None


@_handles(torch.Tensor.requires_grad_)
def _requires_grad_(function: _Function, args: _Args, kwargs: _Kwargs) -> DTensor:
    tensor: DTensor
    tensor, *rest = args
    _torch.local(tensor).requires_grad_(*rest, **kwargs)
    _torch.follow_local(tensor)
    return tensor


@_handles_attribute("requires_grad", "set")
def _set_requires_grad(function: _Function, args: _Args, kwargs: _Kwargs) -> None:
    tensor, flag = args
    _torch.local(tensor).requires_grad = flag
    _torch.follow_local(tensor)


@_handles(torch.Tensor.detach_)
def _detach_(function: _Function, args: _Args, kwargs: _Kwargs) -> DTensor:
    tensor: DTensor = args[0]
    _torch.local(tensor).detach_()
    _torch.follow_local(tensor)
    return tensor


def _local_hook(
    tensor: DTensor, hook: Callable[[DTensor], DTensor | None]
) -> Callable[[torch.Tensor], torch.Tensor | None]:
    """The hook on the local tensor: it is handed the gradient as a DTensor and may return another."""

    def run(gradient: torch.Tensor) -> torch.Tensor | None:
        replaced = hook(_torch.wrap_gradient(tensor, gradient))
        return None if replaced is None else _torch.gradient_local(tensor, replaced)

    return run


@_handles(torch.Tensor.register_hook)
def _register_hook(function: _Function, args: _Args, kwargs: _Kwargs) -> object:
    tensor, hook = args[0], kwargs["hook"] if "hook" in kwargs else args[1]
    # The hook lives on the local tensor and must not keep the wrapper, which keeps the local tensor, alive.
    return _torch.local(tensor).register_hook(_local_hook(tensor.detach(), hook))


@_handles(torch.Tensor.register_post_accumulate_grad_hook)
def _register_post_accumulate_grad_hook(function: _Function, args: _Args, kwargs: _Kwargs) -> object:
    tensor, hook = args[0], kwargs["hook"] if "hook" in kwargs else args[1]
    reference = weakref.ref(tensor)

    def run(local: torch.Tensor) -> None:
        hook(reference() if reference() is not None else _torch.wrap_like(detached, local))

    detached = tensor.detach()
    return _torch.local(tensor).register_post_accumulate_grad_hook(run)


# --- values and dtypes -----------------------------------------------------------------------------------------------


@_handles(torch.Tensor.item, torch.Tensor.__float__, torch.Tensor.__int__, torch.Tensor.__bool__,
          torch.Tensor.__complex__, torch.Tensor.__index__, torch.is_nonzero, torch.Tensor.is_nonzero)  # fmt: skip
def _value(function: _Function, args: _Args, kwargs: _Kwargs) -> object:
    value: Any = _torch.item(args[0])  # what is no such number float() and its like say themselves
    match function.__name__:
        case "__float__":
            return float(value)
        case "__int__":
            return int(value)
        case "__bool__" | "is_nonzero":
            return bool(value)
        case "__complex__":
            return complex(value)
        case "__index__":
            if isinstance(value, int):
                return int(value)
            raise ArgumentTypeError("only integer DTensors of one element can be converted to an index")
    return value


@_handles_attribute("data", "get")
def _get_data(function: _Function, args: _Args, kwargs: _Kwargs) -> DTensor:
    return _torch.wrap_like(args[0], _torch.local(args[0]).data)


@_handles_attribute("data", "set")
def _set_data(function: _Function, args: _Args, kwargs: _Kwargs) -> None:
    _torch.set_data(args[0], args[1])


def _to_dtype(tensor: DTensor, dtype: torch.dtype | None, *, copy: bool = False) -> DTensor:
    if dtype is None or dtype == tensor.dtype:
        return tensor.clone() if copy else tensor
    converted: DTensor = _torch.call("to", tensor, dtype)
    return converted


def _check_device(tensor: DTensor, device: torch.device | None) -> None:
    own = tensor.device
    if device is not None and (device.type != own.type or device.index not in (None, own.index)):
        raise UnimplementedError(
            f"a DTensor stays on its device {own}, {device} is not supported; move to_local() and make a DTensor of it"
        )


@_handles(torch.Tensor.to)
def _to(function: _Function, args: _Args, kwargs: _Kwargs) -> DTensor:
    tensor, *rest = args
    copy_wanted = kwargs.pop("copy", False)
    other = kwargs.pop("other", rest[0] if rest and isinstance(rest[0], torch.Tensor) else None)
    if other is not None:
        _check_device(tensor, other.device)
        return _to_dtype(tensor, other.dtype, copy=copy_wanted)
    device, dtype, _, _ = torch._C._nn._parse_to(*rest, **kwargs)
    _check_device(tensor, device)
    return _to_dtype(tensor, dtype, copy=copy_wanted)


_CASTS = {
    torch.Tensor.bfloat16: torch.bfloat16,
    torch.Tensor.bool: torch.bool,
    torch.Tensor.byte: torch.uint8,
    torch.Tensor.char: torch.int8,
    torch.Tensor.double: torch.float64,
    torch.Tensor.float: torch.float32,
    torch.Tensor.half: torch.float16,
    torch.Tensor.int: torch.int32,
    torch.Tensor.long: torch.int64,
    torch.Tensor.short: torch.int16,
}


@_handles(*_CASTS)
def _cast(function: _Function, args: _Args, kwargs: _Kwargs) -> DTensor:
    return _to_dtype(args[0], _CASTS[function])


@_handles(torch.Tensor.type)
def _type(function: _Function, args: _Args, kwargs: _Kwargs) -> DTensor | str:
    tensor, *rest = args
    dtype = rest[0] if rest else kwargs.get("dtype")
    if dtype is None:
        return torch.empty(0, dtype=tensor.dtype, device=tensor.device).type()
    if isinstance(dtype, str):
        raise UnimplementedError(f"type({dtype!r}) is not supported on a DTensor; give a torch.dtype")
    return _to_dtype(tensor, dtype)


@_handles(torch.Tensor.type_as)
def _type_as(function: _Function, args: _Args, kwargs: _Kwargs) -> DTensor:
    return _to_dtype(args[0], args[1].dtype)


@_handles(torch.Tensor.cpu)
def _cpu(function: _Function, args: _Args, kwargs: _Kwargs) -> DTensor:
    tensor: DTensor = args[0]
    _check_device(tensor, torch.device("cpu"))
    return tensor


@_handles(torch.Tensor.contiguous)
def _contiguous(function: _Function, args: _Args, kwargs: _Kwargs) -> DTensor:
    tensor: DTensor = args[0]
    if _torch.local(tensor).is_contiguous():
        return tensor
    return tensor.clone(memory_format=torch.contiguous_format)


@_handles(torch.Tensor.where)
def _where(function: _Function, args: _Args, kwargs: _Kwargs) -> DTensor:
    return _where_method(*args, **kwargs)


def _where_method(tensor: DTensor, condition: DTensor, other: torch.Tensor | complex) -> DTensor:
    return cast("DTensor", _torch.call("where", condition, tensor, other))


@_handles(torch.Tensor.view_as)
def _view_as(function: _Function, args: _Args, kwargs: _Kwargs) -> DTensor:
    tensor, other = args[0], kwargs["other"] if "other" in kwargs else args[1]
    if not _is_dtensor(other) or other.shape != tensor.shape:
        raise UnimplementedError(
            f"view_as of a DTensor of shape {tuple(tensor.shape)} takes a DTensor of the same shape; "
            "redistribute to Replicate and leave by full_tensor()"
        )
    local = _torch.local(tensor)
    return _torch.wrap_like(tensor, local.view_as(local))


@_handles(torch.nn.init.constant_)
def _init_constant_(function: _Function, args: _Args, kwargs: _Kwargs) -> DTensor:
    return _init_constant(*args, **kwargs)


def _init_constant(tensor: DTensor, val: float) -> DTensor:
    with torch.no_grad():
        return _torch.call("fill_", tensor, val)


@_handles(torch.nn.functional.relu)
def _relu(function: _Function, args: _Args, kwargs: _Kwargs) -> DTensor:
    return _activation("relu", *args, **kwargs)


@_handles(torch.nn.functional.silu)
def _silu(function: _Function, args: _Args, kwargs: _Kwargs) -> DTensor:
    return _activation("silu", *args, **kwargs)


def _activation(name: str, input: DTensor, inplace: bool = False) -> DTensor:
    activated: DTensor = _torch.call(name + "_" * inplace, input)
    return activated
