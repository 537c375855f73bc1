"""Values, dtypes and elementwise functions that torch calls otherwise than the operation of the table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import torch
import torch.nn.functional
import torch.nn.init

from hyper_parallel import _torch
from hyper_parallel._handlers import _Args, _Function, _handles, _handles_attribute, _is_dtensor, _Kwargs
from hyper_parallel.errors import ArgumentTypeError, UnimplementedError
from hyper_parallel.placement import Replicate

if TYPE_CHECKING:
    from hyper_parallel.dtensor import DTensor


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
    if not _torch.layout(tensor).is_ragged:
        return cast("DTensor", _torch.call("view", tensor, tuple(tensor.shape)))
    local = _torch.local(tensor)
    view = _torch.wrap_like(tensor, local.view_as(local))
    _torch.set_base(view, tensor)
    return view


@_handles(torch.Tensor.new_tensor)
def _new_tensor(function: _Function, args: _Args, kwargs: _Kwargs) -> DTensor:
    return _made_of_data(*args, **kwargs)


def _made_of_data(
    tensor: DTensor,
    data: Any,  # noqa: ANN401  (numbers, nested as deep as the result has dims)
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | str | int | None = None,
    requires_grad: bool = False,
) -> DTensor:
    """Data that every rank has, replicated. It stays on the tensor's device, or is asked for on the CPU to be read."""
    if isinstance(data, torch.Tensor):
        raise UnimplementedError("new_tensor of a DTensor takes numbers, not a tensor; use distribute_tensor()")
    if device is not None and torch.device(device).type != "cpu":
        _check_device(tensor, device)
    made = torch.tensor(data, dtype=dtype or tensor.dtype, device=device or tensor.device, requires_grad=requires_grad)
    mesh = _torch.mesh(tensor)
    return _torch.distribute_tensor(made, mesh, [Replicate()] * mesh.ndim)


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
