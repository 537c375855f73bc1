"""The table of operations: which exist on a DTensor, on what they run, and what else they take.

All are elementwise: they run on the local tensors, communicate nothing but what aligns a replicated operand or gathers
its gradient, and give a result that lies as their operands. What is not in the table is refused by name.

The local calls are MindSpore's, of those that its CPU has and does right; what it gets wrong is put together here: its
in-place methods change nothing, so that a form with '_' computes a new value and writes it as a whole; half of its
kernels lack bfloat16, which goes through float32 as torch's own do; some lack float64.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mindspore
from mindspore import mint, ops

from hyper_parallel.errors import ArgumentTypeError, InvalidArgumentError
from hyper_parallel.mindspore._host import is_dtype
from hyper_parallel.mindspore._shares import copy_of

__all__ = ["OPERATIONS", "Operation", "PartialRule", "is_random"]

_Call = Callable[..., Any]


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
    call: _Call
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


# --- what is put together here ---------------------------------------------------------------------------------------


def _through_float32(call: _Call) -> _Call:
    """The same call, with bfloat16 computed in float32 and rounded: on CPU alone, where the kernel has none."""

    def called(*operands: Any, **options: Any) -> Any:  # noqa: ANN401
        tensors = [operand for operand in operands if isinstance(operand, mindspore.Tensor)]
        small = [tensor for tensor in tensors if tensor.dtype == mindspore.bfloat16]
        if not small or mindspore.get_context("device_target") != "CPU":
            return call(*operands, **options)
        wide = [
            operand.astype(mindspore.float32) if any(operand is one for one in small) else operand
            for operand in operands
        ]
        result = call(*wide, **options)
        others = [tensor for tensor in tensors if tensor.dtype != mindspore.bfloat16 and tensor.is_floating_point()]
        return result.astype(mindspore.bfloat16) if result.dtype == mindspore.float32 and not others else result

    return called


def _scaled(alpha: Any, other: Any) -> Any:  # noqa: ANN401
    return other if alpha == 1 else other * alpha


def _divided(x: Any, other: Any, rounding_mode: str | None = None) -> Any:  # noqa: ANN401
    if rounding_mode not in {None, "trunc", "floor"}:
        raise InvalidArgumentError(
            f"operation 'div': rounding_mode is {rounding_mode!r} but must be None, 'trunc' or 'floor'"
        )
    return x / other if rounding_mode is None else mint.div(x, other, rounding_mode=rounding_mode)


def _gelu(x: mindspore.Tensor, approximate: str = "none") -> mindspore.Tensor:
    if approximate not in {"none", "tanh"}:
        raise InvalidArgumentError(f"operation 'gelu': approximate is {approximate!r} but must be 'none' or 'tanh'")
    return ops.gelu(x, approximate=approximate)


def _isinf(x: mindspore.Tensor) -> mindspore.Tensor:
    return mint.isinf(x) if x.is_floating_point() else ops.zeros(x.shape, mindspore.bool_)


def _clamped(x: mindspore.Tensor, minimum: Any = None, maximum: Any = None) -> Any:  # noqa: ANN401
    if minimum is None and maximum is None:
        raise ArgumentTypeError("operation 'clamp': min and max are both None; at least one must be given")
    result = x if minimum is None else mint.maximum(x, _like(minimum, x))
    return result if maximum is None else mint.minimum(result, _like(maximum, x))


def _like(value: Any, tensor: mindspore.Tensor) -> mindspore.Tensor:  # noqa: ANN401
    """A number as a tensor of the same dtype, or of float32 where it is none of an integer dtype's."""
    if isinstance(value, mindspore.Tensor):
        return value
    fits = tensor.is_floating_point() or not isinstance(value, float)
    return mindspore.Tensor(value, tensor.dtype if fits else mindspore.float32)


def _chosen(condition: mindspore.Tensor, x: Any, other: Any) -> Any:  # noqa: ANN401
    if condition.dtype != mindspore.bool_:
        raise ArgumentTypeError(f"operation 'where': condition has dtype {condition.dtype} but must be Bool")
    return mint.where(condition, x, other)


def _to(x: mindspore.Tensor, dtype: Any) -> mindspore.Tensor:  # noqa: ANN401
    if not is_dtype(dtype):
        raise ArgumentTypeError(f"operation 'to': dtype is {dtype!r} but must be a dtype of mindspore")
    return x if x.dtype == dtype else x.astype(dtype)


def _filled(x: mindspore.Tensor, value: Any) -> Any:  # noqa: ANN401
    return (
        (ops.zeros_like(x) + value).astype(x.dtype) if isinstance(value, mindspore.Tensor) else ops.full_like(x, value)
    )


def _full_like(x: mindspore.Tensor, value: Any) -> Any:  # noqa: ANN401
    return ops.full_like(x, value)


def _copied(x: mindspore.Tensor, source: Any) -> Any:  # noqa: ANN401
    return ops.zeros_like(x) + source.astype(x.dtype) if source.shape != x.shape else source


# --- the table -------------------------------------------------------------------------------------------------------

_X = ("input",)
_XY = ("input", "other")

_FLOAT_ONLY: dict[str, _Call] = {
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
_ANY_UNARY: dict[str, _Call] = {
    "abs": mint.abs,
    "absolute": mint.abs,
    "relu": mint.nn.functional.relu,
}
_NUMBER_UNARY: dict[str, _Call] = {"sign": mint.sign, "square": mint.square}
_COMPARISONS: dict[str, _Call] = {
    "eq": lambda x, other: x == other,
    "ne": lambda x, other: x != other,
    "lt": lambda x, other: x < other,
    "le": lambda x, other: x <= other,
    "gt": lambda x, other: x > other,
    "ge": lambda x, other: x >= other,
}


def _operation(  # noqa: PLR0913  (a row of the table)
    name: str,
    call: _Call,
    operands: tuple[str, ...] = _X,
    *,
    options: tuple[str, ...] = (),
    partial: PartialRule = PartialRule.NEVER,
    dtypes: str = "any",
    optional: bool = False,
    tensors_only: bool = False,
    native: bool = False,
) -> Operation:
    """A row; ``native`` says that MindSpore's CPU has the call for bfloat16."""
    local = call if native else _through_float32(call)
    return Operation(name, local, operands, options, partial, optional, tensors_only, dtypes, writes=False)


def _rows() -> list[Operation]:
    rule = PartialRule
    unary = [
        *(_operation(name, call, dtypes="float") for name, call in _FLOAT_ONLY.items()),
        *(_operation(name, call) for name, call in _ANY_UNARY.items()),
        *(_operation(name, call, dtypes="number") for name, call in _NUMBER_UNARY.items()),
        _operation("gelu", _gelu, options=("approximate",), dtypes="float"),
        _operation("isinf", _isinf),
        _operation("isnan", mint.isnan),
        *(
            _operation(name, mint.neg, partial=rule.NEGATE, dtypes="number", native=True)
            for name in ("neg", "negative")
        ),
        *(_operation(name, copy_of, partial=rule.IDENTITY, native=True) for name in ("clone", "copy")),
        _operation("detach", ops.stop_gradient, partial=rule.IDENTITY, native=True),
        *(_operation(name, _to, options=("dtype",), partial=rule.WIDEN, native=True) for name in ("to", "astype")),
        *(
            _operation(name, ops.zeros_like, partial=rule.ANY_VALUE, native=True)
            for name in ("zeros_like", "empty_like")
        ),
        _operation("ones_like", ops.ones_like),
        _operation("full_like", _full_like, options=("value",)),
    ]
    scaled: dict[str, Any] = {"options": ("alpha",), "partial": rule.SUM, "native": True}
    binary = [
        _operation("add", lambda x, other, alpha=1: x + _scaled(alpha, other), _XY, **scaled),
        _operation("sub", lambda x, other, alpha=1: x - _scaled(alpha, other), _XY, dtypes="number", **scaled),
        _operation("mul", lambda x, other: x * other, _XY, partial=rule.SCALE, native=True),
        _operation("div", _divided, _XY, options=("rounding_mode",), partial=rule.SCALE, native=True),
        _operation("true_divide", _divided, _XY, partial=rule.SCALE, native=True),
        _operation("real_div", _divided, _XY, partial=rule.SCALE, native=True),
        _operation("pow", lambda x, other: x**other, _XY, dtypes="number"),
        _operation("__radd__", lambda x, other: other + x, _XY, partial=rule.SUM, native=True),
        _operation("__rsub__", lambda x, other: other - x, _XY, partial=rule.SUM, dtypes="number", native=True),
        _operation("__rmul__", lambda x, other: other * x, _XY, partial=rule.SCALE, native=True),
        _operation("__rtruediv__", lambda x, other: other / x, _XY, native=True),
        _operation("__rpow__", lambda x, other: other**x, _XY, dtypes="number"),
        _operation("maximum", mint.maximum, _XY, tensors_only=True),
        _operation("minimum", mint.minimum, _XY, tensors_only=True, dtypes="number"),
        *(_operation(name, call, _XY) for name, call in _COMPARISONS.items()),
    ]
    more = [
        _operation("lerp", lambda x, end, weight: x + weight * (end - x), ("input", "end", "weight"), native=True),
        _operation(
            "addcmul",
            lambda x, tensor1, tensor2, value=1: x + _scaled(value, tensor1 * tensor2),
            ("input", "tensor1", "tensor2"),
            options=("value",),
            tensors_only=True,
            native=True,
        ),
        _operation(
            "addcdiv",
            lambda x, tensor1, tensor2, value=1: x + _scaled(value, tensor1 / tensor2),
            ("input", "tensor1", "tensor2"),
            options=("value",),
            tensors_only=True,
            native=True,
        ),
        *(
            _operation(name, _clamped, ("input", "min", "max"), optional=True, dtypes="number")
            for name in ("clamp", "clip")
        ),
        _operation("where", _chosen, ("condition", "input", "other")),
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
        _operation("zero", ops.zeros_like, partial=rule.ANY_VALUE, native=True),
        _operation("fill", _filled, ("input", "value")),
        _operation("copy", _copied, ("input", "source"), partial=rule.IDENTITY, tensors_only=True, native=True),
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
