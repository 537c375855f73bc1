"""In-place forms in a fallback: what a call writes, and the call without writing that it stands for.

Torch's DTensor knows few in-place forms, and would write to a share behind the back of its DTensor. So the form that
gives a new tensor runs, and the result is copied into the tensor, laid out as the tensor is. A form that has no such
partner runs on a copy of the tensor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from hyper_parallel.dtensor import DTensor
from hyper_parallel.errors import FailedPreconditionError, UnimplementedError

_IN_PLACE_OPERATORS = frozenset({
    "__iand__", "__ifloordiv__", "__ilshift__", "__imatmul__", "__imod__", "__ior__", "__irshift__", "__ixor__",
})  # fmt: skip


class Write(NamedTuple):
    """A call that writes, or one that does not: then `tensors` is empty."""

    name: str
    tensors: list[DTensor]
    function: Callable[..., Any]
    kwargs: dict[str, Any]
    is_on_copy: bool
    """Whether the call writes to what it is given in the place of `tensors`, rather than giving a new tensor."""


def write_of(name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Write:
    """What the call writes by its name, and what is to be called. What it writes besides, the guard refuses."""
    is_by_argument = kwargs.get("inplace") is True
    is_by_name = name.endswith("_") and not name.endswith("__")
    if not (is_by_argument or is_by_name or name in _IN_PLACE_OPERATORS):
        return Write(name, [], function, kwargs, is_on_copy=False)
    named = (kwargs[keyword] for keyword in ("input", "self", "tensor") if keyword in kwargs)
    first = args[0] if args else next(named, None)
    tensors = [value for value in (first if isinstance(first, list | tuple) else [first]) if isinstance(value, DTensor)]
    if is_by_argument:
        return Write(name, tensors, function, kwargs | {"inplace": False}, is_on_copy=False)
    partner = getattr(torch.Tensor, _partner_name(name), None)
    if partner is None or function is not getattr(torch.Tensor, name, None):
        return Write(name, tensors, function, kwargs, is_on_copy=True)
    return Write(name, tensors, partner, kwargs, is_on_copy=False)


def _partner_name(name: str) -> str:
    return "__" + name.removeprefix("__i") if name in _IN_PLACE_OPERATORS else name.removesuffix("_")


def write_back(name: str, tensor: DTensor, value: DTensor) -> None:
    """Gives a tensor the value that the call has computed for it.

    Raises:
        UnimplementedError: The value is of another shape.
        FailedPreconditionError: The value's dtype does not fit the tensor's.
    """
    if value.shape != tensor.shape:
        raise UnimplementedError(
            f"operation '{name}' would change the shape of a DTensor in place from {tuple(tensor.shape)} to "
            f"{tuple(value.shape)}; take the form that gives a new tensor"
        )
    if not torch.can_cast(value.dtype, tensor.dtype):
        raise FailedPreconditionError(
            f"operation '{name}': the result is of dtype {value.dtype}, which cannot be cast to {tensor.dtype} in place"
        )
    tensor.copy_(value.redistribute(tensor.placements))
