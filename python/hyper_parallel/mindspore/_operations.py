"""The table of operations: which exist on a DTensor, on what they run, and what else they take.

All are elementwise: they run on the local tensors, communicate nothing but what aligns a replicated operand or gathers
its gradient, and give a result that lies as their operands. What is not in the table is refused by name.

The local calls are MindSpore's, of those that its CPU has and does right, else those of ``_local_calls``. Its in-place
methods change nothing: a form with '_' computes a new value and writes it as a whole.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

import mindspore
from mindspore import mint, ops

from hyper_parallel.mindspore import _local_calls
from hyper_parallel.mindspore._local_calls import Call, quotient, scaled
from hyper_parallel.mindspore._promotion import Meeting
from hyper_parallel.mindspore._shares import copy_of

__all__ = ["OPERATIONS", "Operation", "PartialRule", "is_random"]


class PartialRule(enum.Enum):
    """When an operation may run on the shares of a Partial tensor: where it commutes with the reduction."""

    NEVER = enum.auto()
    IDENTITY = enum.auto()  # clone, detach, copy_: any reduction; several operands have equal layout and dtype
    ANY_VALUE = enum.auto()  # zeros_like, zero_, empty_like: any reduction of zeros is zero
    NEGATE = enum.auto()  # sum, avg
    SUM = enum.auto()  # sum, avg: operands of equal layout and dtype, nothing else beside them
    SCALE = enum.auto()  # sum, avg: by a finite number, without a change of dtype; a divisor not zero
    WIDEN = enum.auto()  # astype: any reduction, to a floating dtype that holds every value of the old one


@dataclass(frozen=True)
class Operation:
    """One operation."""

    name: str
    call: Call
    """On local tensors and numbers, in the order of `operands`, with `options` by keyword."""
    operands: tuple[str, ...]
    """What may be a tensor; the first is the DTensor whose method it is."""
    options: tuple[str, ...]
    """What is no tensor, by keyword or behind the operands."""
    partial: PartialRule
    optional: bool
    """Whether operands behind the first may be missing."""
    tensors_only: bool
    """Whether a number is no operand."""
    dtypes: str
    """What MindSpore can compute: "any", "number" (no bool), or "float"."""
    writes: bool
    """Whether the first operand gets the result's values."""
    meeting: Meeting
    """In which dtype tensors of several dtypes are computed."""


# --- the table -------------------------------------------------------------------------------------------------------

_X = ("input",)
_XY = ("input", "other")
_HALVES = (mindspore.float16, mindspore.bfloat16)

_FLOAT_ONLY: dict[str, Call] = {
    "cos": mint.cos,
    "exp": mint.exp,
    "log": mint.log,
    "rsqrt": mint.rsqrt,
    "sigmoid": mint.sigmoid,
    "silu": mint.nn.functional.silu,
    "sin": mint.sin,
    "sqrt": mint.sqrt,
    "reciprocal": mint.reciprocal,
}
_ANY_UNARY: dict[str, Call] = {
    "abs": mint.abs,
    "absolute": mint.abs,
    "relu": _local_calls.relu,
}
_NUMBER_UNARY: dict[str, Call] = {"sign": mint.sign, "square": mint.square}
_COMPARISONS: dict[str, Call] = {
    "eq": lambda x, other: x == other,
    "ne": lambda x, other: x != other,
    "lt": lambda x, other: x < other,
    "le": lambda x, other: x <= other,
    "gt": lambda x, other: x > other,
    "ge": lambda x, other: x >= other,
}


def _operation(  # noqa: PLR0913  (a row of the table)
    name: str,
    call: Call,
    operands: tuple[str, ...] = _X,
    *,
    options: tuple[str, ...] = (),
    partial: PartialRule = PartialRule.NEVER,
    dtypes: str = "any",
    optional: bool = False,
    tensors_only: bool = False,
    narrow: tuple[mindspore.Type, ...] = (mindspore.bfloat16,),
    meeting: Meeting = Meeting.KERNEL,
) -> Operation:
    """A row; ``narrow`` says which dtypes are not computed by MindSpore's CPU itself."""
    local = _local_calls.through_float32(call, narrow)
    return Operation(name, local, operands, options, partial, optional, tensors_only, dtypes, False, meeting)


def _rows() -> list[Operation]:
    rule = PartialRule
    unary = [
        *(_operation(name, call, dtypes="float") for name, call in _FLOAT_ONLY.items()),
        *(_operation(name, call) for name, call in _ANY_UNARY.items()),
        *(_operation(name, call, dtypes="number") for name, call in _NUMBER_UNARY.items()),
        _operation("gelu", _local_calls.gelu, options=("approximate",), dtypes="float"),
        _operation("isinf", _local_calls.isinf),
        _operation("isnan", mint.isnan),
        *(_operation(name, mint.neg, partial=rule.NEGATE, dtypes="number", narrow=()) for name in ("neg", "negative")),
        *(_operation(name, copy_of, partial=rule.IDENTITY, narrow=()) for name in ("clone", "copy")),
        _operation("detach", ops.stop_gradient, partial=rule.IDENTITY, narrow=()),
        *(
            _operation(name, _local_calls.to, options=("dtype",), partial=rule.WIDEN, narrow=())
            for name in ("to", "astype")
        ),
        *(_operation(name, ops.zeros_like, partial=rule.ANY_VALUE, narrow=()) for name in ("zeros_like", "empty_like")),
        _operation("ones_like", ops.ones_like),
        _operation("full_like", _local_calls.full_like, options=("value",)),
    ]
    with_alpha: dict[str, Any] = {"options": ("alpha",), "partial": rule.SUM, "narrow": (), "meeting": Meeting.ALL}
    product: dict[str, Any] = {"partial": rule.SCALE, "narrow": (), "meeting": Meeting.REAL_WITH_DIMS}
    division = product | {"narrow": _HALVES}
    binary = [
        _operation("add", lambda x, other, alpha=1: x + scaled(alpha, other), _XY, **with_alpha),
        _operation("sub", lambda x, other, alpha=1: x - scaled(alpha, other), _XY, dtypes="number", **with_alpha),
        _operation("mul", lambda x, other: x * other, _XY, **product),
        _operation("div", _local_calls.divided, _XY, options=("rounding_mode",), **division),
        _operation("true_divide", _local_calls.divided, _XY, **division),
        _operation("real_div", _local_calls.divided, _XY, **division),
        _operation("pow", _local_calls.powered, _XY, dtypes="number"),
        _operation("__radd__", lambda x, other: other + x, _XY, partial=rule.SUM, narrow=()),
        _operation("__rsub__", lambda x, other: other - x, _XY, partial=rule.SUM, dtypes="number"),
        _operation("__rmul__", lambda x, other: other * x, _XY, **product),
        _operation("__rtruediv__", lambda x, other: quotient(other, x), _XY, **(division | {"partial": rule.NEVER})),
        _operation("__rpow__", lambda x, other: other**x, _XY, dtypes="number"),
        _operation("maximum", _local_calls.maximum, _XY, tensors_only=True),
        _operation("minimum", _local_calls.minimum, _XY, tensors_only=True, dtypes="number"),
        *(_operation(name, call, _XY) for name, call in _COMPARISONS.items()),
    ]
    more = [
        _operation(
            "lerp",
            _local_calls.interpolated,
            ("input", "end", "weight"),
            dtypes="float",
            meeting=Meeting.WITH_DIMS,
        ),
        _operation(
            "addcmul",
            lambda x, tensor1, tensor2, value=1: x + scaled(value, tensor1 * tensor2),
            ("input", "tensor1", "tensor2"),
            options=("value",),
            tensors_only=True,
            narrow=_HALVES,
            meeting=Meeting.WITH_DIMS,
        ),
        _operation(
            "addcdiv",
            lambda x, tensor1, tensor2, value=1: x + scaled(value, quotient(tensor1, tensor2)),
            ("input", "tensor1", "tensor2"),
            options=("value",),
            tensors_only=True,
            narrow=_HALVES,
            meeting=Meeting.WITH_DIMS,
        ),
        *(
            _operation(name, _local_calls.clamped, ("input", "min", "max"), optional=True, dtypes="number")
            for name in ("clamp", "clip")
        ),
        _operation("where", _local_calls.chosen, ("condition", "input", "other")),
    ]
    return unary + binary + more


# The forms that write their first operand, under the name with '_' behind.
_WRITING = (
    "abs", "absolute", "add", "addcdiv", "addcmul", "clamp", "cos", "div", "exp", "gelu", "lerp", "log", "mul", "neg",
    "negative", "pow", "reciprocal", "relu", "rsqrt", "sigmoid", "sign", "silu", "sin", "sqrt", "square", "sub",
    "true_divide",
)  # fmt: skip


def _written(row: Operation) -> Operation:
    return Operation(**{**row.__dict__, "name": f"{row.name}_", "writes": True})


def _table() -> dict[str, Operation]:
    table = {row.name: row for row in _rows()}
    table |= {f"{name}_": _written(table[name]) for name in _WRITING}
    rule = PartialRule
    fillers = [
        _operation("zero", ops.zeros_like, partial=rule.ANY_VALUE, narrow=()),
        _operation("fill", _local_calls.filled, ("input", "value")),
        _operation(
            "copy", _local_calls.copied, ("input", "source"), partial=rule.IDENTITY, tensors_only=True, narrow=()
        ),
    ]
    return table | {f"{row.name}_": _written(row) for row in fillers}


OPERATIONS = _table()

# Refused for a reason of their own. Also in-place, with '_' behind.
_RANDOM = frozenset((
    "bernoulli", "cauchy", "dropout", "exponential", "geometric", "log_normal", "multinomial", "normal", "poisson",
    "rand_like", "randint_like", "randn_like", "random", "uniform",
))  # fmt: skip


def is_random(name: str) -> bool:
    """Whether an operation draws random numbers."""
    return name.removesuffix("_") in _RANDOM
