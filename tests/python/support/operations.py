"""Elementwise operations in the forms that both platforms have, with their values and derivatives in numpy.

A form runs on DTensors. `value` and the derivatives run on the whole arrays in one process.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from support.arrays import Array
from support.frameworks import framework

OF_POSITIVE = ("log", "rsqrt", "sqrt")
"""The operations of one operand that are not defined elsewhere."""

Form = Callable[..., Any]


@dataclass(frozen=True)
class Operation:
    """Of as many operands as there are derivatives; without any it is not differentiable in the first."""

    form: Form
    value: Callable[..., Array]
    derivatives: tuple[Callable[..., Array], ...] = ()


def _sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def _normal_below(x: Array) -> Array:
    """The distribution function of the normal distribution."""
    return np.asarray((1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2)


def _ones(x: Array, *_: Array) -> Array:
    return np.ones_like(x)


def _named(name: str, value: Callable[..., Array], derivative: Callable[..., Array]) -> tuple[str, Operation]:
    return name, Operation(lambda x: framework.call(name, x), value, (derivative,))


UNARY: dict[str, Operation] = dict(
    [
        _named("abs", np.abs, np.sign),
        _named("absolute", np.abs, np.sign),
        _named("clone", np.array, _ones),
        _named("cos", np.cos, lambda x: -np.sin(x)),
        _named("exp", np.exp, np.exp),
        _named(
            "gelu",
            lambda x: x * _normal_below(x),
            lambda x: _normal_below(x) + x * np.exp(-x * x / 2) / math.sqrt(2 * math.pi),
        ),
        _named("log", np.log, lambda x: 1 / x),
        _named("neg", np.negative, lambda x: -_ones(x)),
        _named("negative", np.negative, lambda x: -_ones(x)),
        _named("reciprocal", lambda x: 1 / x, lambda x: -1 / x**2),
        _named("relu", lambda x: np.maximum(x, 0), lambda x: (x > 0).astype(x.dtype)),
        _named("rsqrt", lambda x: x**-0.5, lambda x: -0.5 * x**-1.5),
        _named("sigmoid", _sigmoid, lambda x: _sigmoid(x) * (1 - _sigmoid(x))),
        _named("sign", np.sign, np.zeros_like),
        _named("silu", lambda x: x * _sigmoid(x), lambda x: _sigmoid(x) * (1 + x * (1 - _sigmoid(x)))),
        _named("sin", np.sin, np.cos),
        _named("sqrt", np.sqrt, lambda x: 0.5 / np.sqrt(x)),
        _named("square", np.square, lambda x: 2 * x),
    ]
)

WITH_NUMBERS: dict[str, Operation] = {
    "-x": Operation(lambda x: -x, lambda x: -x, (lambda x: -_ones(x),)),
    "abs(x)": Operation(abs, np.abs, (np.sign,)),
    "x + 2": Operation(lambda x: x + 2, lambda x: x + 2, (_ones,)),
    "2.5 + x": Operation(lambda x: 2.5 + x, lambda x: 2.5 + x, (_ones,)),
    "x - 2": Operation(lambda x: x - 2, lambda x: x - 2, (_ones,)),
    "2.5 - x": Operation(lambda x: 2.5 - x, lambda x: 2.5 - x, (lambda x: -_ones(x),)),
    "x * 3": Operation(lambda x: x * 3, lambda x: x * 3, (lambda x: 3 * _ones(x),)),
    "0.5 * x": Operation(lambda x: 0.5 * x, lambda x: 0.5 * x, (lambda x: 0.5 * _ones(x),)),
    "x / 4": Operation(lambda x: x / 4, lambda x: x / 4, (lambda x: _ones(x) / 4,)),
    "2.5 / x": Operation(lambda x: 2.5 / x, lambda x: 2.5 / x, (lambda x: -2.5 / x**2,)),
    "x ** 3": Operation(lambda x: x**3, lambda x: x**3, (lambda x: 3 * x**2,)),
    "2 ** x": Operation(lambda x: 2**x, lambda x: 2**x, (lambda x: 2**x * math.log(2),)),
    "x.add(2)": Operation(lambda x: x.add(2), lambda x: x + 2, (_ones,)),
    "x.sub(2)": Operation(lambda x: x.sub(2), lambda x: x - 2, (_ones,)),
    "x.mul(3)": Operation(lambda x: x.mul(3), lambda x: x * 3, (lambda x: 3 * _ones(x),)),
    "x.div(4)": Operation(lambda x: x.div(4), lambda x: x / 4, (lambda x: _ones(x) / 4,)),
    "x.pow(2)": Operation(lambda x: x.pow(2), np.square, (lambda x: 2 * x,)),
    "x * 0-dim tensor": Operation(
        lambda x: x * framework.tensor(np.array(3.0)), lambda x: x * 3, (lambda x: 3 * _ones(x),)
    ),
    "one-element tensor - x": Operation(
        lambda x: framework.tensor(np.array([3.0])) - x, lambda x: 3 - x, (lambda x: -_ones(x),)
    ),
    "x * numpy scalar": Operation(lambda x: x * np.float32(3), lambda x: x * 3, (lambda x: 3 * _ones(x),)),
    "x.clamp(0.33, 1.01)": Operation(
        lambda x: x.clamp(0.33, 1.01),
        lambda x: np.clip(x, 0.33, 1.01),
        (lambda x: ((x >= 0.33) & (x <= 1.01)).astype(x.dtype),),
    ),
}

_SUM = (lambda x, y: x + y, (_ones, _ones))
_DIFFERENCE = (lambda x, y: x - y, (_ones, lambda x, y: -_ones(x)))
_PRODUCT = (lambda x, y: x * y, (lambda x, y: y, lambda x, y: x))
_QUOTIENT = (lambda x, y: x / y, (lambda x, y: 1 / y, lambda x, y: -x / y**2))
_POWER = (lambda x, y: x**y, (lambda x, y: y * x ** (y - 1), lambda x, y: x**y * np.log(x)))
_LARGER = (np.maximum, (lambda x, y: (x > y).astype(x.dtype), lambda x, y: (x < y).astype(x.dtype)))
_SMALLER = (np.minimum, (lambda x, y: (x < y).astype(x.dtype), lambda x, y: (x > y).astype(x.dtype)))

BINARY: dict[str, Operation] = {
    "x + y": Operation(lambda x, y: x + y, *_SUM),
    "x - y": Operation(lambda x, y: x - y, *_DIFFERENCE),
    "x * y": Operation(lambda x, y: x * y, *_PRODUCT),
    "x / y": Operation(lambda x, y: x / y, *_QUOTIENT),
    "x ** y": Operation(lambda x, y: x**y, *_POWER),
    "x.add(y)": Operation(lambda x, y: x.add(y), *_SUM),
    "x.sub(y)": Operation(lambda x, y: x.sub(y), *_DIFFERENCE),
    "x.mul(y)": Operation(lambda x, y: x.mul(y), *_PRODUCT),
    "x.div(y)": Operation(lambda x, y: x.div(y), *_QUOTIENT),
    "x.true_divide(y)": Operation(lambda x, y: x.true_divide(y), *_QUOTIENT),
    "x.pow(y)": Operation(lambda x, y: x.pow(y), *_POWER),
    "x.maximum(y)": Operation(lambda x, y: x.maximum(y), *_LARGER),
    "x.minimum(y)": Operation(lambda x, y: x.minimum(y), *_SMALLER),
}

COMPARISONS: dict[str, Operation] = {
    "isinf": Operation(lambda x, y: framework.call("isinf", x / (y - y)), lambda x, y: np.ones(x.shape, bool)),
    "isnan": Operation(lambda x, y: framework.call("isnan", x - y), lambda x, y: np.zeros(x.shape, bool)),
    "x == y": Operation(lambda x, y: x == y, np.equal),
    "x != y": Operation(lambda x, y: x != y, np.not_equal),
    "x < y": Operation(lambda x, y: x < y, np.less),
    "x <= y": Operation(lambda x, y: x <= y, np.less_equal),
    "x > y": Operation(lambda x, y: x > y, np.greater),
    "x >= y": Operation(lambda x, y: x >= y, np.greater_equal),
    "x > 1.5": Operation(lambda x, y: x > 1.5, lambda x, y: x > 1.5),
}


def _by_method(name: str) -> Form:
    """As a method, which `x += y` calls as well."""
    return lambda x, y: getattr(x, name)(y)


IN_PLACE: dict[str, Operation] = {
    "x.add_(y)": Operation(_by_method("add_"), *_SUM),
    "x.sub_(y)": Operation(_by_method("sub_"), *_DIFFERENCE),
    "x.mul_(y)": Operation(_by_method("mul_"), *_PRODUCT),
    "x.div_(y)": Operation(_by_method("div_"), *_QUOTIENT),
    "x += y": Operation(_by_method("__iadd__"), *_SUM),
    "x -= y": Operation(_by_method("__isub__"), *_DIFFERENCE),
    "x *= y": Operation(_by_method("__imul__"), *_PRODUCT),
    "x /= y": Operation(_by_method("__itruediv__"), *_QUOTIENT),
    "x.copy_(y)": Operation(_by_method("copy_"), lambda x, y: y, (lambda x, y: 0 * x, _ones)),
    "x.zero_()": Operation(lambda x, y: x.zero_(), lambda x, y: 0 * x, (lambda x, y: 0 * x, lambda x, y: 0 * x)),
    "x.fill_(2)": Operation(lambda x, y: x.fill_(2), lambda x, y: 0 * x + 2, (lambda x, y: 0 * x, lambda x, y: 0 * x)),
}
