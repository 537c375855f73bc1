"""The arguments of an operation that are no tensors, and numbers beside tensors: checked before anything is computed.

MindSpore takes numbers that do not fit a dtype without a word, and raises errors of its own for values of other types.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import mindspore
import numpy as np

from hyper_parallel.errors import ArgumentTypeError, InvalidArgumentError
from hyper_parallel.mindspore._host import is_dtype
from hyper_parallel.mindspore._local_calls import kind_of
from hyper_parallel.mindspore._operations import Operation

__all__ = ["check_fits", "check_number", "check_options"]

_INT64 = 63


def check_options(operation: Operation, options: Mapping[str, Any], dtype: mindspore.Type) -> None:
    """Raises for an option that is missing, of another type, or a value that the operation does not have.

    Args:
        operation: The operation.
        options: Those that were given.
        dtype: Of the tensor.

    Raises:
        ArgumentTypeError: A mandatory option is missing, or one is of another type.
        InvalidArgumentError: A value that is none of the option's, or does not fit the dtype.
    """
    for name in operation.options:
        if name in options:
            _CHECKS[name](operation, name, options[name])
        elif name == "dtype" or operation.name == "full_like":
            raise ArgumentTypeError(f"operation '{operation.name}' lacks its argument '{name}'")
    for name in ("alpha", "value"):
        if name in options:
            check = check_fits if operation.name == "full_like" else check_number
            check(operation, name, options[name], dtype)


def check_number(operation: Operation, name: str, value: complex, dtype: mindspore.Type) -> None:
    """Raises for an integer that MindSpore would cut to the bits of the tensor's dtype, or cannot take at all.

    Raises:
        InvalidArgumentError: As said.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        return
    if not -(2**_INT64) <= value < 2**_INT64:
        raise _too_large(operation, name, value, "int64")
    is_quotient = "div" in operation.name
    if kind_of(dtype) == 1 and not is_quotient:
        _check_integer(operation, name, value, dtype)


def check_fits(operation: Operation, name: str, value: complex, dtype: mindspore.Type) -> None:
    """Raises for a number that a tensor of the dtype cannot hold; fractions and NaN are a matter of the dtype's kind.

    Raises:
        InvalidArgumentError: As said.
    """
    check_number(operation, name, value, dtype)
    if isinstance(value, complex) or kind_of(dtype) not in {1, 2}:
        return
    if kind_of(dtype) == 1:
        if not math.isfinite(value):
            raise _too_large(operation, name, value, dtype)
        _check_integer(operation, name, int(value), dtype)
        return
    largest = float(np.finfo(np.float32 if dtype == mindspore.bfloat16 else mindspore.dtype_to_nptype(dtype)).max)
    if math.isfinite(value) and abs(value) > largest:
        raise _too_large(operation, name, value, dtype)


def _check_integer(operation: Operation, name: str, value: int, dtype: mindspore.Type) -> None:
    info = np.iinfo(mindspore.dtype_to_nptype(dtype))
    # An unsigned dtype takes -1 for the number that is one below zero, as in torch.
    if not min(info.min, -info.max) <= value <= info.max:
        raise _too_large(operation, name, value, dtype)


def _too_large(operation: Operation, name: str, value: complex, dtype: object) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"operation '{operation.name}': argument '{name}' is the number {value}, which overflows dtype {dtype}"
    )


def _is_number(operation: Operation, name: str, value: Any) -> None:  # noqa: ANN401
    if not isinstance(value, bool | int | float | complex | np.number | np.bool_):
        raise ArgumentTypeError(f"{_place(operation, name)} is a {type(value).__name__} but must be a number")


def _is_dtype(operation: Operation, name: str, value: Any) -> None:  # noqa: ANN401
    if not is_dtype(value):
        raise ArgumentTypeError(f"{_place(operation, name)} is {value!r} but must be a dtype of mindspore")


def _one_of(*known: str | None) -> Callable[[Operation, str, Any], None]:
    def check(operation: Operation, name: str, value: Any) -> None:  # noqa: ANN401
        if not any(value is one or (isinstance(value, str) and value == one) for one in known):
            choice = " or ".join(map(repr, known))
            raise InvalidArgumentError(f"{_place(operation, name)} is {value!r} but must be {choice}")

    return check


def _place(operation: Operation, name: str) -> str:
    return f"operation '{operation.name}': {name}"


_CHECKS: dict[str, Callable[[Operation, str, Any], None]] = {
    "alpha": _is_number,
    "value": _is_number,
    "dtype": _is_dtype,
    "rounding_mode": _one_of(None, "trunc", "floor"),
    "approximate": _one_of("none", "tanh"),
}
