"""Functions of torch that draw random numbers, on DTensors of normal layouts."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, cast

import torch
import torch.nn.functional
import torch.nn.init

from hyper_parallel import _torch
from hyper_parallel._handlers import _Args, _Function, _handles, _Kwargs
from hyper_parallel.errors import InvalidArgumentError, UnimplementedError

if TYPE_CHECKING:
    from hyper_parallel.dtensor import DTensor


@_handles(torch.nn.functional.dropout)
def _functional_dropout(function: _Function, args: _Args, kwargs: _Kwargs) -> DTensor:
    return _dropout_module(*args, **kwargs)


def _dropout_module(input: DTensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> DTensor:
    return _torch.dropout_(input, p, training) if inplace else _torch.dropout(input, p, training)


@_handles(torch.dropout)
def _dropout(function: _Function, args: _Args, kwargs: _Kwargs) -> DTensor:
    return _run_dropout(*args, **kwargs)


def _run_dropout(input: DTensor, p: float, train: bool) -> DTensor:
    return _torch.dropout(input, p, train)


@_handles(torch.dropout_)
def _dropout_(function: _Function, args: _Args, kwargs: _Kwargs) -> DTensor:
    return _run_dropout_(*args, **kwargs)


def _run_dropout_(input: DTensor, p: float, train: bool) -> DTensor:
    return _torch.dropout_(input, p, train)


# torch.nn.init asks the tensor's class first; what it does else is written again here, by the operations of the table.


@_handles(torch.nn.init.uniform_)
def _init_uniform_(function: _Function, args: _Args, kwargs: _Kwargs) -> DTensor:
    return _init_uniform(*args, **kwargs)


def _init_uniform(tensor: DTensor, a: float = 0.0, b: float = 1.0, generator: torch.Generator | None = None) -> DTensor:
    with torch.no_grad():
        return cast("DTensor", _torch.call("uniform_", tensor, a, b, generator=generator))


@_handles(torch.nn.init.normal_)
def _init_normal_(function: _Function, args: _Args, kwargs: _Kwargs) -> DTensor:
    return _init_normal(*args, **kwargs)


def _init_normal(
    tensor: DTensor, mean: float = 0.0, std: float = 1.0, generator: torch.Generator | None = None
) -> DTensor:
    with torch.no_grad():
        return cast("DTensor", _torch.call("normal_", tensor, mean, std, generator=generator))


@_handles(torch.nn.init.kaiming_uniform_)
def _init_kaiming_uniform_(function: _Function, args: _Args, kwargs: _Kwargs) -> DTensor:
    return _init_kaiming_uniform(*args, **kwargs)


def _init_kaiming_uniform(
    tensor: DTensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: torch.Generator | None = None,
) -> DTensor:
    """He et al., Delving Deep into Rectifiers, 2015: uniform in +-gain * sqrt(3 / fan)."""
    if 0 in tensor.shape:
        return tensor
    fans = torch.nn.init._calculate_fan_in_and_fan_out(tensor)
    if mode.lower() not in {"fan_in", "fan_out"}:
        raise InvalidArgumentError(f"kaiming_uniform_: mode is {mode!r} but must be 'fan_in' or 'fan_out'")
    gain = torch.nn.init.calculate_gain(cast("Any", nonlinearity), a)
    bound = gain * math.sqrt(3 / fans[mode.lower() == "fan_out"])
    return _init_uniform(tensor, -bound, bound, generator)


@_handles(torch.rand_like)
def _rand_like(function: _Function, args: _Args, kwargs: _Kwargs) -> DTensor:
    input, dtype, requires_grad = _like_arguments("rand_like", *args, **kwargs)
    return _torch.rand_like(input, dtype, requires_grad)


@_handles(torch.randn_like)
def _randn_like(function: _Function, args: _Args, kwargs: _Kwargs) -> DTensor:
    input, dtype, requires_grad = _like_arguments("randn_like", *args, **kwargs)
    return _torch.randn_like(input, dtype, requires_grad)


def _like_arguments(  # noqa: PLR0913  (torch's signature)
    operation: str,
    input: DTensor,
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | str | int | None = None,
    pin_memory: bool | None = None,
    requires_grad: bool = False,
    memory_format: torch.memory_format | None = None,
    generator: torch.Generator | None = None,
) -> tuple[DTensor, torch.dtype | None, bool]:
    """What counts of the arguments; the others must ask for what a DTensor has."""
    own = input.device
    wanted = own if device is None else torch.device(device)
    has_format = memory_format in (None, torch.preserve_format, torch.contiguous_format)
    refused = {
        "layout": None if layout in (None, torch.strided) else layout,
        "device": None if wanted.type == own.type and wanted.index in (None, own.index) else device,
        "pin_memory": pin_memory or None,
        "memory_format": None if has_format else memory_format,
        "generator": generator,
    }
    for name, value in refused.items():
        if value is not None:
            raise UnimplementedError(f"{operation} of a DTensor: {name}={value} is not supported")
    return input, dtype, requires_grad
