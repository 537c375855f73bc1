"""Operations on local tensors that MindSpore lacks or gets wrong on its CPU, put together from what it has.

Half of its kernels lack bfloat16, which goes through float32 as torch's own do. Some give the other operand where one
is NaN, fail on a number, or take every zero that they divide by for 0.0. What torch refuses, since no value would be
right, is refused here too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from typing import Any

import mindspore
from mindspore import mint, ops

from hyper_parallel.errors import ArgumentTypeError, InvalidArgumentError

__all__ = [
    "Call", "chosen", "clamped", "copied", "divided", "filled", "full_like", "gelu", "interpolated", "isinf", "kind_of",
    "maximum", "minimum", "powered", "quotient", "relu", "scaled", "through_float32", "to",
]  # fmt: skip

Call = Callable[..., Any]
"""On local tensors and numbers."""

_COMPLEX = (mindspore.complex64, mindspore.complex128)
_FLOATING = (mindspore.float16, mindspore.bfloat16, mindspore.float32, mindspore.float64)


def through_float32(call: Call, narrow: Collection[mindspore.Type]) -> Call:
    """The same call, with the narrow dtypes computed in float32 and rounded: on CPU alone, whose kernels lack them or
    lose what does not fit them."""
    if not narrow:
        return call

    def called(*operands: Any, **options: Any) -> Any:  # noqa: ANN401
        tensors = [operand for operand in operands if isinstance(operand, mindspore.Tensor)]
        floating = {tensor.dtype for tensor in tensors if tensor.is_floating_point()}
        if floating.isdisjoint(narrow) or not _is_cpu():
            return call(*operands, **options)
        result = call(*(_widened(operand, narrow) for operand in operands), **options)
        return result.astype(*floating) if result.dtype == mindspore.float32 and len(floating) == 1 else result

    return called


# --- arithmetic ------------------------------------------------------------------------------------------------------


def scaled(alpha: Any, other: Any) -> Any:  # noqa: ANN401
    """A summand times its factor."""
    return other if alpha == 1 else other * alpha


def divided(x: mindspore.Tensor, other: Any, rounding_mode: str | None = None) -> Any:  # noqa: ANN401
    """The quotient, rounded as said: "trunc" or "floor".

    Raises:
        ArgumentTypeError: Complex numbers are to be rounded.
    """
    if rounding_mode is None:
        return quotient(x, other)
    # The rounding kernels fail on a number.
    divisor = _like(other, x)
    if x.dtype in _COMPLEX or divisor.dtype in _COMPLEX:
        raise ArgumentTypeError(
            f"operation 'div': rounding_mode is {rounding_mode!r} but the operands, of dtypes {x.dtype} and "
            f"{divisor.dtype}, must be real"
        )
    return _right_by_zero(lambda a, b: mint.div(a, b, rounding_mode=rounding_mode), x, divisor)


def quotient(x: Any, other: Any) -> Any:  # noqa: ANN401
    """One divided by the other, of which one may be a number."""
    if isinstance(x, mindspore.Tensor) and isinstance(other, mindspore.Tensor):
        return _right_by_zero(lambda a, b: a / b, x, other)
    if isinstance(other, int | float) and other == 0 and x.dtype not in _COMPLEX:
        return x * math.copysign(math.inf, other)
    return x / other


def powered(x: mindspore.Tensor, other: Any) -> Any:  # noqa: ANN401
    """The power.

    Raises:
        InvalidArgumentError: A negative power of integers, which is none.
    """
    if isinstance(other, int) and other < 0 and not x.is_floating_point() and x.dtype not in _COMPLEX:
        raise InvalidArgumentError(
            f"operation 'pow': exponent is {other}, and integers to a negative power are no integers; convert them "
            "with to(mindspore.float32)"
        )
    return x**other


def interpolated(x: mindspore.Tensor, end: Any, weight: Any) -> Any:  # noqa: ANN401
    """From x to the end by a weight: from the nearer of the two, so that a weight of 1 gives the end itself."""
    if isinstance(weight, mindspore.Tensor):
        return mint.where(mint.abs(weight) < 0.5, x + weight * (end - x), end - (end - x) * (1 - weight))  # noqa: PLR2004
    return x + weight * (end - x) if abs(weight) < 0.5 else end - (end - x) * (1 - weight)  # noqa: PLR2004


# --- one of several values -------------------------------------------------------------------------------------------


def relu(x: mindspore.Tensor) -> Any:  # noqa: ANN401
    """The positive part; of NaN NaN."""
    return _with_nan(mint.nn.functional.relu(x), x)


def maximum(x: mindspore.Tensor, other: mindspore.Tensor) -> Any:  # noqa: ANN401
    """The larger of each two; NaN if one is."""
    return _with_nan(mint.maximum(x, other), x, other)


def minimum(x: mindspore.Tensor, other: mindspore.Tensor) -> Any:  # noqa: ANN401
    """The smaller of each two; NaN if one is."""
    return _with_nan(mint.minimum(x, other), x, other)


def clamped(x: mindspore.Tensor, minimum_: Any = None, maximum_: Any = None) -> Any:  # noqa: ANN401
    """Between the two, of which one may be missing.

    Raises:
        ArgumentTypeError: Both are.
    """
    if minimum_ is None and maximum_ is None:
        raise ArgumentTypeError("operation 'clamp': min and max are both None; at least one must be given")
    result = x if minimum_ is None else maximum(x, _like(minimum_, x))
    return result if maximum_ is None else minimum(result, _like(maximum_, x))


def chosen(condition: mindspore.Tensor, x: Any, other: Any) -> Any:  # noqa: ANN401
    """x where the condition holds, else the other.

    Raises:
        ArgumentTypeError: The condition is no tensor of bools.
    """
    if not isinstance(condition, mindspore.Tensor):
        raise ArgumentTypeError(f"operation 'where': condition is {condition!r} but must be a tensor")
    if condition.dtype != mindspore.bool_:
        raise ArgumentTypeError(f"operation 'where': condition has dtype {condition.dtype} but must be Bool")
    return mint.where(condition, x, other)


# --- functions -------------------------------------------------------------------------------------------------------


def gelu(x: mindspore.Tensor, approximate: str = "none") -> Any:  # noqa: ANN401
    """The Gaussian error linear unit, ``approximate`` by "none" or "tanh"."""
    return ops.gelu(x, approximate=approximate)


def isinf(x: mindspore.Tensor) -> Any:  # noqa: ANN401
    """Whether an element, or a part of a complex one, is infinite."""
    if x.dtype in _COMPLEX:
        return mint.logical_or(mint.isinf(ops.real(x)), mint.isinf(ops.imag(x)))
    return mint.isinf(x) if x.is_floating_point() else ops.zeros(x.shape, mindspore.bool_)


def to(x: mindspore.Tensor, dtype: Any) -> mindspore.Tensor:  # noqa: ANN401
    """The values in another dtype."""
    return x if x.dtype == dtype else x.astype(dtype)


# --- what fills ------------------------------------------------------------------------------------------------------


def full_like(x: mindspore.Tensor, value: Any) -> Any:  # noqa: ANN401
    """A tensor of this one value, of the shape and dtype of ``x``.

    Raises:
        ArgumentTypeError: A complex value for a real tensor.
    """
    _check_kind("full_like", x, value)
    return ops.full_like(x, value)


def filled(x: mindspore.Tensor, value: Any) -> Any:  # noqa: ANN401
    """As ``full_like``; the value may be a tensor of one element."""
    _check_kind("fill_", x, value)
    if isinstance(value, mindspore.Tensor):
        return (ops.zeros_like(x) + value).astype(x.dtype)
    return ops.full_like(x, value)


def copied(x: mindspore.Tensor, source: mindspore.Tensor) -> Any:  # noqa: ANN401
    """The source's values in the shape and dtype of ``x``.

    Raises:
        ArgumentTypeError: Complex values for a real tensor.
    """
    _check_kind("copy_", x, source)
    # Spread out before its dtype changes: the gradients of some dtypes cannot be summed.
    return to(source if source.shape == x.shape else ops.zeros(x.shape, source.dtype) + source, x.dtype)


# --- dtypes ----------------------------------------------------------------------------------------------------------


def kind_of(dtype: mindspore.Type) -> int:
    """A tensor holds values of its own kind and of the lower ones: bools, integers, floating and complex numbers."""
    if dtype in _COMPLEX:
        return 3
    return 2 if dtype in _FLOATING else int(dtype != mindspore.bool_)


# --- helpers ---------------------------------------------------------------------------------------------------------


def _widened(operand: Any, narrow: Collection[mindspore.Type]) -> Any:  # noqa: ANN401
    is_narrow = isinstance(operand, mindspore.Tensor) and operand.dtype in narrow
    return operand.astype(mindspore.float32) if is_narrow else operand


def _is_cpu() -> bool:
    return bool(mindspore.get_context("device_target") == "CPU")


def _like(value: Any, tensor: mindspore.Tensor) -> mindspore.Tensor:  # noqa: ANN401
    """A number as a tensor of the same dtype, or of int64 or float32 where it is of a higher kind."""
    if isinstance(value, mindspore.Tensor):
        return value
    if isinstance(value, float) and not tensor.is_floating_point():
        return mindspore.Tensor(value, mindspore.float32)
    of_bools = tensor.dtype == mindspore.bool_ and not isinstance(value, bool)
    return mindspore.Tensor(value, mindspore.int64 if of_bools else tensor.dtype)


def _right_by_zero(divide: Call, x: mindspore.Tensor, other: mindspore.Tensor) -> mindspore.Tensor:
    """The quotient, as arithmetic has it also by zero: MindSpore's CPU takes NaN for a negative and -0.0 for 0.0 there.

    No zero is divided by, and what is in the place of zeros has no part in the gradients.
    """
    if not _is_cpu() or not other.is_floating_point():
        return divide(x, other)
    is_zero, ones = other == 0, ops.ones_like(other)
    by_zero = x * mint.reciprocal(mint.where(is_zero, other, ones))
    return mint.where(is_zero, by_zero, divide(x, mint.where(is_zero, ones, other)))


def _with_nan(result: mindspore.Tensor, *operands: mindspore.Tensor) -> mindspore.Tensor:
    """The result, with NaN where an operand is: MindSpore's CPU gives the other operand there, or zero."""
    if not _is_cpu():
        return result
    for operand in operands:
        if operand.is_floating_point():
            result = mint.where(mint.isnan(operand), operand, result)
    return result


def _check_kind(operation: str, x: mindspore.Tensor, value: Any) -> None:  # noqa: ANN401
    """MindSpore drops the imaginary part without a word."""
    is_tensor = isinstance(value, mindspore.Tensor)
    if x.dtype not in _COMPLEX and (value.dtype in _COMPLEX if is_tensor else isinstance(value, complex)):
        given = f"of dtype {value.dtype}" if is_tensor else f"the number {value}"
        raise ArgumentTypeError(
            f"operation '{operation}': the value is complex, {given}, and the tensor, of dtype {x.dtype}, cannot hold "
            "it"
        )
