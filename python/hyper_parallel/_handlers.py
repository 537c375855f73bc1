"""What torch's functions mean on a DTensor where that is neither elementwise nor metadata.

A handler takes the function and the arguments as torch hands them over. None of these is called in a training step's
inner loop but for gradients.
"""

from __future__ import annotations

import copy
import operator
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
    OutOfRangeError,
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


@_handles(torch.Tensor.detach_)
def _detach_(function: _Function, args: _Args, kwargs: _Kwargs) -> DTensor:
    tensor: DTensor = args[0]
    _torch.local(tensor).detach_()
    _torch.follow_local(tensor)
    return tensor


@_handles(torch.Tensor.register_hook)
def _register_hook(function: _Function, args: _Args, kwargs: _Kwargs) -> object:
    tensor, hook = args[0], kwargs["hook"] if "hook" in kwargs else args[1]
    if not callable(hook):
        raise ArgumentTypeError(f"register_hook: hook is {hook!r} but must be callable")
    current = _current(tensor)

    def run(gradient: torch.Tensor) -> torch.Tensor | None:
        like = current()
        replaced = hook(_torch.wrap_gradient(like, gradient))
        return None if replaced is None else _torch.gradient_local(like, replaced)

    return _torch.local(tensor).register_hook(run)


@_handles(torch.Tensor.register_post_accumulate_grad_hook)
def _register_post_accumulate_grad_hook(function: _Function, args: _Args, kwargs: _Kwargs) -> object:
    tensor, hook = args[0], kwargs["hook"] if "hook" in kwargs else args[1]
    current = _current(tensor)

    def run(local: torch.Tensor) -> None:
        like = current()
        hook(like if _torch.local(like) is local else _torch.wrap_like(like, local))

    return _torch.local(tensor).register_post_accumulate_grad_hook(run)


def _current(tensor: DTensor) -> Callable[[], DTensor]:
    """The tensor as it is laid out when a hook runs. Hooks live on the local tensor and do not keep the DTensor."""
    weak, detached = _torch.WeakDTensor(tensor), tensor.detach()
    return lambda: detached if (alive := weak()) is None else alive


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


def _to_dtype(
    tensor: DTensor,
    dtype: torch.dtype | None,
    non_blocking: bool = False,
    copy: bool = False,
    *,
    memory_format: torch.memory_format | None = None,
) -> DTensor:
    """The tensor itself where nothing is to be done, as in torch."""
    if dtype in (None, tensor.dtype) and not copy and memory_format in (None, torch.preserve_format):
        return tensor
    wanted = tensor.dtype if dtype is None else dtype
    return cast("DTensor", _torch.call("to", tensor, wanted, non_blocking, copy, memory_format=memory_format))


def _check_device(tensor: DTensor, device: torch.device | str | int | None) -> None:
    own = tensor.device
    wanted = own if device is None else torch.device(device)
    if wanted.type != own.type or wanted.index not in (None, own.index):
        raise UnimplementedError(
            f"a DTensor stays on its device {own}, {wanted} is not supported; move to_local() and make a DTensor of it"
        )


@_handles(torch.Tensor.to)
def _to(function: _Function, args: _Args, kwargs: _Kwargs) -> torch.Tensor:
    tensor, *rest = args
    first = rest[0] if rest else None
    if not _is_dtensor(tensor):
        return _plain_to(tensor, *rest, **kwargs)
    if isinstance(first, torch.dtype):
        return _to_dtype(tensor, *rest, **kwargs)
    if isinstance(first, torch.Tensor) or "other" in kwargs:
        return _to_other(tensor, *rest, **kwargs)
    return _to_device(tensor, *rest, **kwargs)


def _plain_to(tensor: torch.Tensor, other: DTensor, *rest: bool, **options: Any) -> torch.Tensor:  # noqa: ANN401
    """A plain tensor to the dtype and device of a DTensor."""
    return tensor.to(other.device, other.dtype, *rest, **options)


def _to_other(tensor: DTensor, other: torch.Tensor, *rest: bool, **options: Any) -> DTensor:  # noqa: ANN401
    _check_device(tensor, other.device)
    return _to_dtype(tensor, other.dtype, *rest, **options)


def _to_device(
    tensor: DTensor,
    device: torch.device | str | int | None = None,
    dtype: torch.dtype | None = None,
    *rest: bool,
    **options: Any,  # noqa: ANN401
) -> DTensor:
    _check_device(tensor, device)
    return _to_dtype(tensor, dtype, *rest, **options)


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
    return _to_dtype(args[0], _CASTS[function], **kwargs)


@_handles(torch.Tensor.type)
def _type(function: _Function, args: _Args, kwargs: _Kwargs) -> str | DTensor:
    return _type_of(*args, **kwargs)


def _type_of(tensor: DTensor, dtype: torch.dtype | str | None = None, non_blocking: bool = False) -> str | DTensor:
    if dtype is None:
        return torch.empty(0, dtype=tensor.dtype, device=tensor.device).type()
    if isinstance(dtype, str):
        raise UnimplementedError(f"type({dtype!r}) is not supported on a DTensor; give a torch.dtype")
    return _to_dtype(tensor, dtype, non_blocking)


@_handles(torch.Tensor.type_as)
def _type_as(function: _Function, args: _Args, kwargs: _Kwargs) -> torch.Tensor:
    return _to_other(*args, **kwargs) if _is_dtensor(args[0]) else _plain_to(*args, **kwargs)


@_handles(torch.Tensor.cpu)
def _cpu(function: _Function, args: _Args, kwargs: _Kwargs) -> DTensor:
    return _to_device(args[0], "cpu", **kwargs)


@_handles(torch.Tensor.contiguous)
def _contiguous(function: _Function, args: _Args, kwargs: _Kwargs) -> DTensor:
    return _made_contiguous(*args, **kwargs)


def _made_contiguous(tensor: DTensor, memory_format: torch.memory_format = torch.contiguous_format) -> DTensor:
    if memory_format == torch.contiguous_format and _torch.local(tensor).is_contiguous():
        return tensor
    return tensor.clone(memory_format=memory_format)


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
    view = _torch.wrap_like(tensor, local.view_as(local))
    _torch.set_base(view, tensor)
    return view


@_handles(torch.nn.init.constant_)
def _init_constant_(function: _Function, args: _Args, kwargs: _Kwargs) -> DTensor:
    return _init_constant(*args, **kwargs)


def _init_constant(tensor: DTensor, val: float) -> DTensor:
    with torch.no_grad():
        return cast("DTensor", _torch.call("fill_", tensor, val))


@_handles(torch.nn.functional.relu)
def _relu(function: _Function, args: _Args, kwargs: _Kwargs) -> DTensor:
    return _activation("relu", *args, **kwargs)


@_handles(torch.nn.functional.silu)
def _silu(function: _Function, args: _Args, kwargs: _Kwargs) -> DTensor:
    return _activation("silu", *args, **kwargs)


def _activation(name: str, input: DTensor, inplace: bool = False) -> DTensor:
    activated: DTensor = _torch.call(name + "_" * inplace, input)
    return activated
