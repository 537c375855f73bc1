"""Every form in which torch offers the whitelisted elementwise operations.

A form takes three tensors of one shape, plain or distributed, and returns one: it runs unchanged on both.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

Form = Callable[[Any, Any, Any], torch.Tensor]

UNARY = (
    "abs", "absolute", "clone", "cos", "exp", "isinf", "isnan", "log", "neg", "negative", "reciprocal", "relu", "rsqrt",
    "sigmoid", "sign", "sin", "sqrt", "square",
)  # fmt: skip
UNARY_IN_PLACE = (
    "abs_", "absolute_", "cos_", "exp_", "log_", "neg_", "negative_", "reciprocal_", "relu_", "rsqrt_", "sigmoid_",
    "sign_", "sin_", "sqrt_", "square_",
)  # fmt: skip
BINARY = ("add", "sub", "mul", "div", "true_divide", "pow", "eq", "ne", "lt", "le", "gt", "ge")
BINARY_OF_TENSORS = ("maximum", "minimum")
BINARY_IN_PLACE = ("add_", "sub_", "mul_", "div_", "true_divide_", "pow_")
ALIASES = ("multiply", "subtract", "divide", "greater", "greater_equal", "less", "less_equal", "not_equal")
OPERATORS = {
    "x + y": operator.add,
    "x - y": operator.sub,
    "x * y": operator.mul,
    "x / y": operator.truediv,
    "x ** y": operator.pow,
    "x == y": operator.eq,
    "x != y": operator.ne,
    "x < y": operator.lt,
    "x <= y": operator.le,
    "x > y": operator.gt,
    "x >= y": operator.ge,
}
OPERATORS_IN_PLACE = {
    "x += y": operator.iadd,
    "x -= y": operator.isub,
    "x *= y": operator.imul,
    "x /= y": operator.itruediv,
    "x **= y": operator.ipow,
}


def _of_unary(name: str) -> dict[str, Form]:
    function = getattr(torch, name)
    return {
        f"torch.{name}(x)": lambda x, y, z: function(x),
        f"torch.{name}(input=x)": lambda x, y, z: function(input=x),
        f"x.{name}()": lambda x, y, z: getattr(x, name)(),
    }


def _unary() -> dict[str, Form]:
    forms: dict[str, Form] = {}
    for name in UNARY:
        forms |= _of_unary(name)
    forms["-x"] = lambda x, y, z: -x
    forms["abs(x)"] = lambda x, y, z: abs(x)
    forms["F.relu(x)"] = lambda x, y, z: F.relu(x)
    forms["F.silu(x)"] = lambda x, y, z: F.silu(x)
    forms["F.sigmoid(x)"] = lambda x, y, z: F.sigmoid(x)
    forms["F.gelu(x)"] = lambda x, y, z: F.gelu(x)
    forms["F.gelu(x, approximate='tanh')"] = lambda x, y, z: F.gelu(x, approximate="tanh")
    forms["F.gelu(x, approximate='none')"] = lambda x, y, z: F.gelu(x, approximate="none")
    forms["torch.nn.GELU('tanh')(x)"] = lambda x, y, z: torch.nn.GELU("tanh")(x)
    forms["torch.nn.ReLU()(x)"] = lambda x, y, z: torch.nn.ReLU()(x)
    forms["torch.nn.SiLU()(x)"] = lambda x, y, z: torch.nn.SiLU()(x)
    forms["torch.nn.Sigmoid()(x)"] = lambda x, y, z: torch.nn.Sigmoid()(x)
    return forms


def _of_tensors(name: str) -> dict[str, Form]:
    function = getattr(torch, name)
    return {
        f"torch.{name}(x, y)": lambda x, y, z: function(x, y),
        f"x.{name}(y)": lambda x, y, z: getattr(x, name)(y),
    }


def _by_keyword(name: str) -> dict[str, Form]:
    return {f"x.{name}(other=y)": lambda x, y, z: getattr(x, name)(other=y)}


def _of_binary(name: str) -> dict[str, Form]:
    function = getattr(torch, name)
    keyword = "exponent" if name == "pow" else "other"
    return _of_tensors(name) | {
        f"torch.{name}(x, 2)": lambda x, y, z: function(x, 2),
        f"x.{name}(0.5)": lambda x, y, z: getattr(x, name)(0.5),
        f"x.{name}(0-dim tensor)": lambda x, y, z: getattr(x, name)(torch.tensor(1.5)),
        f"x.{name}(one-element tensor)": lambda x, y, z: getattr(x, name)(torch.tensor([1.5])),
        f"torch.{name}(input=x, {keyword}=y)": lambda x, y, z: function(input=x, **{keyword: y}),
        f"x.{name}({keyword}=y)": lambda x, y, z: getattr(x, name)(**{keyword: y}),
    }


def _of_operator(text: str, function: Callable[[Any, Any], Any]) -> dict[str, Form]:
    return {
        text: lambda x, y, z: function(x, y),
        text.replace("y", "2"): lambda x, y, z: function(x, 2),
        text.replace("y", "0-dim"): lambda x, y, z: function(x, torch.tensor(1.5)),
        text.replace("x", "2.5").replace("y", "x"): lambda x, y, z: function(2.5, x),
        text.replace("x", "0-dim").replace("y", "x"): lambda x, y, z: function(torch.tensor(2.5), x),
    }


def _binary() -> dict[str, Form]:
    forms: dict[str, Form] = {}
    for name in (*BINARY, *ALIASES):
        forms |= _of_binary(name)
    for name in BINARY_OF_TENSORS:
        forms |= _of_tensors(name) | _by_keyword(name)
    for text, function in OPERATORS.items():
        forms |= _of_operator(text, function)
    return forms


def _with_keywords() -> dict[str, Form]:
    forms: dict[str, Form] = {
        "torch.add(x, y, alpha=3)": lambda x, y, z: torch.add(x, y, alpha=3),
        "x.add(y, alpha=-0.5)": lambda x, y, z: x.add(y, alpha=-0.5),
        "x.add(2, alpha=3)": lambda x, y, z: x.add(2, alpha=3),
        "torch.sub(x, y, alpha=3)": lambda x, y, z: torch.sub(x, y, alpha=3),
        "x.sub(other=y, alpha=2)": lambda x, y, z: x.sub(other=y, alpha=2),
        "torch.rsub(x, y)": lambda x, y, z: torch.rsub(x, y),
        "torch.rsub(x, 2, alpha=3)": lambda x, y, z: torch.rsub(x, 2, alpha=3),
        "torch.div(x, y, rounding_mode='trunc')": lambda x, y, z: torch.div(x, y, rounding_mode="trunc"),
        "torch.div(x, y, rounding_mode='floor')": lambda x, y, z: torch.div(x, y, rounding_mode="floor"),
        "x.div(2, rounding_mode='floor')": lambda x, y, z: x.div(2, rounding_mode="floor"),
        "x.div(y, rounding_mode=None)": lambda x, y, z: x.div(y, rounding_mode=None),
        "torch.lerp(x, y, 0.25)": lambda x, y, z: torch.lerp(x, y, 0.25),
        "torch.lerp(x, y, weight=z)": lambda x, y, z: torch.lerp(x, y, weight=z),
        "x.lerp(end=y, weight=0.75)": lambda x, y, z: x.lerp(end=y, weight=0.75),
        "torch.addcmul(x, y, z)": lambda x, y, z: torch.addcmul(x, y, z),
        "torch.addcmul(x, y, z, value=0.5)": lambda x, y, z: torch.addcmul(x, y, z, value=0.5),
        "x.addcmul(y, z, value=2)": lambda x, y, z: x.addcmul(y, z, value=2),
        "torch.addcdiv(x, y, z, value=0.5)": lambda x, y, z: torch.addcdiv(x, y, z, value=0.5),
        "x.addcdiv(tensor1=y, tensor2=z)": lambda x, y, z: x.addcdiv(tensor1=y, tensor2=z),
        "torch.clamp(x, -1, 2)": lambda x, y, z: torch.clamp(x, -1, 2),
        "torch.clamp(x, min=0.5)": lambda x, y, z: torch.clamp(x, min=0.5),
        "x.clamp(max=0.5)": lambda x, y, z: x.clamp(max=0.5),
        "x.clamp(min=y)": lambda x, y, z: x.clamp(min=y),
        "x.clamp(y, z)": lambda x, y, z: x.clamp(y, z),
        "torch.clip(x, -1, 1)": lambda x, y, z: torch.clip(x, -1, 1),
        "torch.where(x > 0, y, z)": lambda x, y, z: torch.where(x > 0, y, z),
        "torch.where(x > 0, y, 2.0)": lambda x, y, z: torch.where(x > 0, y, 2.0),
        "torch.where(x > 0, 2.0, z)": lambda x, y, z: torch.where(x > 0, 2.0, z),
        "torch.where(x > 0, 1.0, 2.0)": lambda x, y, z: torch.where(x > 0, 1.0, 2.0),
        "y.where(x > 0, z)": lambda x, y, z: y.where(x > 0, z),
        "torch.zeros_like(x)": lambda x, y, z: torch.zeros_like(x),
        "torch.ones_like(x, dtype=torch.int64)": lambda x, y, z: torch.ones_like(x, dtype=torch.int64),
        "torch.full_like(x, 7)": lambda x, y, z: torch.full_like(x, 7),
        "torch.full_like(x, fill_value=2.5)": lambda x, y, z: torch.full_like(x, fill_value=2.5),
        "torch.empty_like(x).fill_(3)": lambda x, y, z: torch.empty_like(x).fill_(3),
        "torch.zeros_like(x, memory_format=torch.preserve_format)": (
            lambda x, y, z: torch.zeros_like(x, memory_format=torch.preserve_format)
        ),
        "x.detach()": lambda x, y, z: x.detach(),
        "torch.detach(x)": lambda x, y, z: torch.detach(x),
        "x.to(torch.float64)": lambda x, y, z: x.to(torch.float64),
        "x.to(dtype=torch.bfloat16)": lambda x, y, z: x.to(dtype=torch.bfloat16),
        "x.to('cpu', torch.float16)": lambda x, y, z: x.to("cpu", torch.float16),
        "x.to(device='cpu')": lambda x, y, z: x.to(device="cpu") * 1,
        "x.to(y.double())": lambda x, y, z: x.to(y.double()),
        "x.to(torch.float64, copy=True)": lambda x, y, z: x.to(torch.float64, copy=True),
        "x.double()": lambda x, y, z: x.double(),
        "x.half()": lambda x, y, z: x.half(),
        "x.bfloat16()": lambda x, y, z: x.bfloat16(),
        "x.long()": lambda x, y, z: x.long(),
        "x.bool()": lambda x, y, z: x.bool(),
        "x.type(torch.float64)": lambda x, y, z: x.type(torch.float64),
        "x.type_as(y.double())": lambda x, y, z: x.type_as(y.double()),
        "x.double().float()": lambda x, y, z: x.double().float(),
        "x.cpu()": lambda x, y, z: x.cpu() * 1,
        "x.contiguous()": lambda x, y, z: x.contiguous() * 1,
        "x.clone(memory_format=torch.contiguous_format)": (
            lambda x, y, z: x.clone(memory_format=torch.contiguous_format)
        ),
    }
    return forms


def _of_unary_in_place(name: str) -> dict[str, Form]:
    forms: dict[str, Form] = {f"x.{name}()": lambda x, y, z: getattr(x, name)()}
    if hasattr(torch, name):
        forms[f"torch.{name}(x)"] = lambda x, y, z: getattr(torch, name)(x)
    return forms


def _of_binary_in_place(name: str) -> dict[str, Form]:
    return {
        f"x.{name}(y)": lambda x, y, z: getattr(x, name)(y),
        f"x.{name}(2)": lambda x, y, z: getattr(x, name)(2),
        f"x.{name}(0-dim tensor)": lambda x, y, z: getattr(x, name)(torch.tensor(1.5)),
    }


def _of_operator_in_place(text: str, function: Callable[[Any, Any], Any]) -> dict[str, Form]:
    return {
        text: lambda x, y, z: function(x, y),
        text.replace("y", "2"): lambda x, y, z: function(x, 2),
    }


def _in_place() -> dict[str, Form]:
    """Forms that change their first argument and return it."""
    forms: dict[str, Form] = {}
    for name in UNARY_IN_PLACE:
        forms |= _of_unary_in_place(name)
    for name in BINARY_IN_PLACE:
        forms |= _of_binary_in_place(name)
    for text, function in OPERATORS_IN_PLACE.items():
        forms |= _of_operator_in_place(text, function)
    forms |= {
        "F.relu(x, inplace=True)": lambda x, y, z: F.relu(x, inplace=True),
        "F.silu(x, inplace=True)": lambda x, y, z: F.silu(x, inplace=True),
        "x.multiply_(y)": lambda x, y, z: x.multiply_(y),
        "x.add_(y, alpha=3)": lambda x, y, z: x.add_(y, alpha=3),
        "x.sub_(other=y, alpha=2)": lambda x, y, z: x.sub_(other=y, alpha=2),
        "x.div_(y, rounding_mode='floor')": lambda x, y, z: x.div_(y, rounding_mode="floor"),
        "x.lerp_(y, 0.25)": lambda x, y, z: x.lerp_(y, 0.25),
        "x.lerp_(y, z)": lambda x, y, z: x.lerp_(y, z),
        "x.addcmul_(y, z, value=0.5)": lambda x, y, z: x.addcmul_(y, z, value=0.5),
        "x.addcdiv_(y, z, value=0.5)": lambda x, y, z: x.addcdiv_(y, z, value=0.5),
        "x.clamp_(-1, 2)": lambda x, y, z: x.clamp_(-1, 2),
        "x.clamp_(max=y)": lambda x, y, z: x.clamp_(max=y),
        "torch.clamp_(x, min=0)": lambda x, y, z: torch.clamp_(x, min=0),
        "x.copy_(y)": lambda x, y, z: x.copy_(y),
        "x.copy_(y.double())": lambda x, y, z: x.copy_(y.double()),
        "x.copy_(y, non_blocking=True)": lambda x, y, z: x.copy_(y, non_blocking=True),
        "x.zero_()": lambda x, y, z: x.zero_(),
        "torch.zero_(x)": lambda x, y, z: torch.zero_(x),
        "x.fill_(2)": lambda x, y, z: x.fill_(2),
        "x.fill_(0-dim tensor)": lambda x, y, z: x.fill_(torch.tensor(2.5)),
    }
    return forms


FORMS: dict[str, Form] = _unary() | _binary() | _with_keywords()
IN_PLACE_FORMS: dict[str, Form] = _in_place()

ListForm = Callable[[list[Any], list[Any], list[Any]], Any]

FOREACH_FORMS: dict[str, ListForm] = {
    "_foreach_abs": lambda x, y, z: torch._foreach_abs(x),
    "_foreach_neg": lambda x, y, z: torch._foreach_neg(x),
    "_foreach_sqrt": lambda x, y, z: torch._foreach_sqrt(x),
    "_foreach_add lists": lambda x, y, z: torch._foreach_add(x, y),
    "_foreach_add alpha": lambda x, y, z: torch._foreach_add(x, y, alpha=3),
    "_foreach_add number": lambda x, y, z: torch._foreach_add(x, 2.5),
    "_foreach_add numbers": lambda x, y, z: torch._foreach_add(x, [1, 2.5, -3]),
    "_foreach_add tensor": lambda x, y, z: torch._foreach_add(x, torch.tensor(2.5)),
    "_foreach_sub lists": lambda x, y, z: torch._foreach_sub(x, y),
    "_foreach_sub alpha": lambda x, y, z: torch._foreach_sub(x, y, alpha=2),
    "_foreach_mul lists": lambda x, y, z: torch._foreach_mul(x, y),
    "_foreach_mul number": lambda x, y, z: torch._foreach_mul(x, 0.5),
    "_foreach_mul numbers": lambda x, y, z: torch._foreach_mul(x, [1, 2.5, -3]),
    "_foreach_mul tensor": lambda x, y, z: torch._foreach_mul(x, torch.tensor(0.5)),
    "_foreach_pow number": lambda x, y, z: torch._foreach_pow(x, 2),
    "_foreach_pow base": lambda x, y, z: torch._foreach_pow(2.0, x),
    "_foreach_pow lists": lambda x, y, z: torch._foreach_pow(x, y),
    "_foreach_addcmul": lambda x, y, z: torch._foreach_addcmul(x, y, z, value=0.5),
}
FOREACH_IN_PLACE_FORMS: dict[str, ListForm] = {
    "_foreach_abs_": lambda x, y, z: torch._foreach_abs_(x),
    "_foreach_neg_": lambda x, y, z: torch._foreach_neg_(x),
    "_foreach_reciprocal_": lambda x, y, z: torch._foreach_reciprocal_(x),
    "_foreach_rsqrt_": lambda x, y, z: torch._foreach_rsqrt_(x),
    "_foreach_sign_": lambda x, y, z: torch._foreach_sign_(x),
    "_foreach_sqrt_": lambda x, y, z: torch._foreach_sqrt_(x),
    "_foreach_zero_": lambda x, y, z: torch._foreach_zero_(x),
    "_foreach_copy_": lambda x, y, z: torch._foreach_copy_(x, y),
    "_foreach_add_ lists": lambda x, y, z: torch._foreach_add_(x, y),
    "_foreach_add_ alpha": lambda x, y, z: torch._foreach_add_(x, y, alpha=-0.1),
    "_foreach_add_ number": lambda x, y, z: torch._foreach_add_(x, 1),
    "_foreach_sub_ lists": lambda x, y, z: torch._foreach_sub_(x, y),
    "_foreach_mul_ lists": lambda x, y, z: torch._foreach_mul_(x, y),
    "_foreach_mul_ number": lambda x, y, z: torch._foreach_mul_(x, 0.9),
    "_foreach_div_ lists": lambda x, y, z: torch._foreach_div_(x, y),
    "_foreach_div_ numbers": lambda x, y, z: torch._foreach_div_(x, [1, 2.5, -3]),
    "_foreach_div_ tensor": lambda x, y, z: torch._foreach_div_(x, torch.tensor(4.0)),
    "_foreach_pow_": lambda x, y, z: torch._foreach_pow_(x, 2),
    "_foreach_maximum_": lambda x, y, z: torch._foreach_maximum_(x, y),
    "_foreach_clamp_min_": lambda x, y, z: torch._foreach_clamp_min_(x, 0.5),
    "_foreach_lerp_ number": lambda x, y, z: torch._foreach_lerp_(x, y, 0.1),
    "_foreach_lerp_ lists": lambda x, y, z: torch._foreach_lerp_(x, y, z),
    "_foreach_addcmul_ number": lambda x, y, z: torch._foreach_addcmul_(x, y, z, value=0.5),
    "_foreach_addcmul_ numbers": lambda x, y, z: torch._foreach_addcmul_(x, y, z, [1, 2.5, -3]),
    "_foreach_addcdiv_ number": lambda x, y, z: torch._foreach_addcdiv_(x, y, z, value=0.5),
    "_foreach_addcdiv_ numbers": lambda x, y, z: torch._foreach_addcdiv_(x, y, z, [1, 2.5, -3]),
}
