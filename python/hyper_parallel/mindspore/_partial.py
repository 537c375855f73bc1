"""What may run on the shares of a pending reduction: what commutes with it, and nothing else."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import mindspore

from hyper_parallel.errors import InvalidArgumentError
from hyper_parallel.mindspore import _frames
from hyper_parallel.mindspore._operations import Operation, PartialRule
from hyper_parallel.mindspore._texts import placements_text

__all__ = ["check_commutes"]

# Floating dtypes by the values that they hold: each holds those of the ones it names.
_HOLDS = {
    mindspore.float16: (),
    mindspore.bfloat16: (),
    mindspore.float32: (mindspore.float16, mindspore.bfloat16),
    mindspore.float64: (mindspore.float16, mindspore.bfloat16, mindspore.float32),
}
_COMPLEX = (mindspore.complex64, mindspore.complex128)


def check_commutes(operation: Operation, operands: Sequence[Any], options: dict[str, Any]) -> None:
    """Raises if an operand is Partial and the operation does not commute with its reduction.

    Raises:
        InvalidArgumentError: As said.
    """
    for name, operand in zip(operation.operands, operands, strict=True):
        if not _frames.is_dtensor(operand) or not any(one.is_partial() for one in operand.layout.placements):
            continue
        if not _commutes(operation, operands, options, operand):
            raise InvalidArgumentError(
                f"operation '{operation.name}' with these arguments does not commute with the pending reduction of "
                f"argument '{name}', whose placements are {placements_text(operand.layout)}; redistribute it to "
                "Replicate() first"
            )


def _commutes(operation: Operation, operands: Sequence[Any], options: dict[str, Any], tensor: Any) -> bool:  # noqa: ANN401, PLR0911
    match operation.partial:
        case PartialRule.NEVER:
            return False
        case PartialRule.ANY_VALUE:
            return True
        case PartialRule.IDENTITY:
            return _all_alike(operands, tensor)
        case PartialRule.WIDEN:
            return _is_widening(options.get("dtype"), tensor)
        case PartialRule.NEGATE:
            return _is_linear(tensor)
        case PartialRule.SUM:
            return _is_linear(tensor) and _is_sum(operands, options, tensor)
        case PartialRule.SCALE:
            return _is_linear(tensor) and _is_scaling(operation, operands[1], options, tensor)


def _is_linear(tensor: Any) -> bool:  # noqa: ANN401
    """Sum and avg are linear in the shares; max and min are not."""
    return not any(placement.is_partial(op) for placement in tensor.layout.placements for op in ("max", "min"))


def _all_alike(operands: Sequence[Any], tensor: Any) -> bool:  # noqa: ANN401
    """Every tensor operand is a DTensor of the layout and dtype of ``tensor``."""
    for operand in operands:
        if not isinstance(operand, mindspore.Tensor):
            continue
        if not _frames.is_dtensor(operand) or operand.layout != tensor.layout or operand.dtype != tensor.dtype:
            return False
    return True


def _is_sum(operands: Sequence[Any], options: dict[str, Any], tensor: Any) -> bool:  # noqa: ANN401
    """Sums of like shares: both operands are tensors, and what scales the second (alpha) is a finite number."""
    return _frames.is_dtensor(operands[1]) and _all_alike(operands, tensor) and _is_finite(options.get("alpha", 1))


def _is_scaling(operation: Operation, factor: Any, options: dict[str, Any], tensor: Any) -> bool:  # noqa: ANN401
    """A number that keeps the dtype, so that no share is rounded or wrapped otherwise than their sum, and that makes no
    infinity of a share: infinities of unlike sign add up to NaN."""
    if not _is_finite(factor) or options.get("rounding_mode") is not None:
        return False
    floating = tensor.dtype in _HOLDS or tensor.dtype in _COMPLEX
    if "div" in operation.name:
        return floating and factor != 0
    return floating or (isinstance(factor, int) and tensor.dtype != mindspore.bool_)


def _is_finite(number: Any) -> bool:  # noqa: ANN401
    return isinstance(number, bool | int | float) and math.isfinite(number)


def _is_widening(dtype: Any, tensor: Any) -> bool:  # noqa: ANN401
    return bool(dtype == tensor.dtype or tensor.dtype in _HOLDS.get(dtype, ()))
