"""Forms of the operations that have a rule on normal layouts.

A form takes tensors, plain or distributed, and returns one or several: it runs unchanged on both. Beside the function
it says what its operands are (`operands.py`) and which pending reductions it lets through: a test finds both the
results and the refusals that follow.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from hyper_parallel import DTensor, _torch

LINEAR = ("sum", "avg")
EVERY = ("sum", "avg", "max", "min")


@dataclass(frozen=True)
class NormalForm:
    """One form. `operation` is the table's name of it."""

    operation: str
    run: Callable[..., Any]
    operands: str
    exact: bool = False
    sizes: tuple[int, ...] = (0, 1, 2, 4, 5, 6)
    pending_one: tuple[tuple[str, ...], ...] = ()  # of each operand alone; beyond the last: none
    pending_all: tuple[str, ...] = ()  # of all operands alike
    differentiable: bool = True


def _slice(x: Any, *arguments: int | None) -> Any:
    """The operation under x[begin:end:step], which torch has no function of its own for."""
    return _torch.call("slice", x, *arguments) if isinstance(x, DTensor) else torch.ops.aten.slice.Tensor(x, *arguments)


def _unary(name: str, function: Callable[..., Any], values: str = "", *, exact: bool = False) -> NormalForm:
    return NormalForm(name, function, f"ab{values}", exact=exact)


def _activations() -> dict[str, NormalForm]:
    functions: dict[str, Callable[..., Any]] = {
        "celu": F.celu,
        "elu": lambda x: F.elu(x, 0.5),
        "hardsigmoid": F.hardsigmoid,
        "hardswish": F.hardswish,
        "hardtanh": lambda x: F.hardtanh(x, -0.5, max_val=1.5),
        "leaky_relu": lambda x: F.leaky_relu(x, negative_slope=0.2),
        "log_sigmoid": F.logsigmoid,
        "mish": F.mish,
        "selu": F.selu,
        "softplus": lambda x: F.softplus(x, 2.0, threshold=1.0),
        "threshold": lambda x: F.threshold(x, 0.1, -3.0),
    }
    return {name: _unary(name, function) for name, function in functions.items()} | {
        "relu6": _unary("hardtanh", F.relu6),
        "torch.celu": _unary("celu", lambda x: torch.celu(x, 2.0)),
    }


def _cellwise() -> dict[str, NormalForm]:
    bounded = ("acos", "asin", "atanh", "erfinv")
    positive = ("digamma", "lgamma", "log10", "log1p", "log2")
    free = (
        "asinh", "atan", "cosh", "deg2rad", "erf", "erfc", "exp2", "expm1", "rad2deg", "sgn", "sinh", "tan", "tanh",
    )  # fmt: skip
    stepped = (
        "ceil", "floor", "frac", "isfinite", "isneginf", "isposinf", "logical_not", "nan_to_num", "round", "signbit",
        "trunc",
    )  # fmt: skip
    forms = {name: _unary(name, getattr(torch, name), ":unit") for name in bounded}
    forms |= {name: _unary(name, getattr(torch, name), ":pos") for name in positive}
    forms |= {name: _unary(name, getattr(torch, name)) for name in free}
    forms |= {name: _unary(name, getattr(torch, name), exact=True) for name in stepped}
    return forms | {
        "acosh": _unary("acosh", lambda x: torch.acosh(x + 1.5), ":pos"),
        "bitwise_not": _unary("bitwise_not", torch.bitwise_not, ":int", exact=True),
        "logit": _unary("logit", lambda x: torch.logit(x, 0.1), ":unit"),
        "round to digits": _unary("round", lambda x: torch.round(x, decimals=1)),
        "x.tanh()": _unary("tanh", lambda x: x.tanh()),
    }


def _binary() -> dict[str, NormalForm]:
    of_floats = ("atan2", "copysign", "fmax", "fmin", "hypot", "logaddexp", "maximum", "minimum")
    of_positive = ("fmod", "remainder", "xlogy")
    logical = ("logical_and", "logical_or", "logical_xor")
    bitwise = ("bitwise_and", "bitwise_or", "bitwise_xor")
    forms = {name: NormalForm(name, getattr(torch, name), "ab ab") for name in of_floats}
    forms |= {name: NormalForm(name, getattr(torch, name), "ab ab:pos") for name in of_positive}
    forms |= {name: NormalForm(name, getattr(torch, name), "ab:bool ab:bool", exact=True) for name in logical}
    forms |= {name: NormalForm(name, getattr(torch, name), "ab:int ab:int", exact=True) for name in bitwise}
    forms |= {
        f"{name} by a number": NormalForm(name, lambda x, name=name: getattr(torch, name)(x, 0.75), "ab")
        for name in ("copysign", "fmod", "remainder", "xlogy")
    }
    forms |= {
        "heaviside": NormalForm("heaviside", torch.heaviside, "ab ab", differentiable=False),
        "floor_divide": NormalForm("floor_divide", torch.floor_divide, "ab ab:pos", differentiable=False),
        "floor_divide by a number": NormalForm("floor_divide", lambda x: x // 0.75, "ab", differentiable=False),
    }
    return forms | {
        f"{name} by a number": NormalForm(name, lambda x, name=name: getattr(torch, name)(x, 6), "ab:int", exact=True)
        for name in bitwise
    }


def _broadcast() -> dict[str, NormalForm]:
    def of(name: str, operands: str) -> NormalForm:
        function = getattr(operator, name, None) or getattr(torch, name)
        return NormalForm(name.removesuffix("_true").replace("truediv", "div"), function, operands)

    names = ("add", "sub", "mul", "truediv", "pow", "eq", "lt", "maximum", "atan2")
    operands = {"alike": "ab:pos ab:pos", "row": "ab:pos b:pos", "column": "ab:pos a1:pos", "both": "a1:pos 1b:pos"}
    operands |= {"more dims": "b:pos acb:pos", "one cell": "ab:pos ():pos", "size 1": "1:pos ab:pos"}
    forms = {f"{name} of {what}": of(name, text) for name in names for what, text in operands.items()}
    return forms | {
        "where": NormalForm("where", torch.where, "ab:bool b a1"),
        "where of numbers": NormalForm("where", lambda c, x: torch.where(c, x, 2.0), "ab:bool b"),
        "lerp": NormalForm("lerp", torch.lerp, "ab b a1"),
        "addcmul": NormalForm("addcmul", lambda x, y, z: torch.addcmul(x, y, z, value=2), "ab b a1"),
        "addcdiv": NormalForm("addcdiv", torch.addcdiv, "ab b a1:pos"),
        "clamp": NormalForm("clamp", torch.clamp, "ab b:unit a1:pos"),
        "masked_fill": NormalForm("masked_fill", lambda x, m: x.masked_fill(m, 3.0), "ab b:bool"),
        "masked_fill of a tensor": NormalForm("masked_fill", lambda x, m, v: x.masked_fill(m, v), "ab ab:bool ()"),
        "a row and a column": NormalForm("mul", operator.mul, "b a1"),
        "number - x * row": NormalForm("rsub", lambda x, y: 1 - x * y, "ab b"),
        "int + float": NormalForm("add", operator.add, "ab:int b"),
        "bool * float": NormalForm("mul", operator.mul, "ab:bool b"),
    }


def _in_place() -> dict[str, NormalForm]:
    def written(change: Callable[..., Any]) -> Callable[..., Any]:
        return lambda x, *others: change(x.clone(), *others)

    names = ("ceil_", "floor_", "round_", "tanh_", "trunc_")
    forms = {name: _unary(name, written(getattr(torch.Tensor, name))) for name in names}
    return forms | {
        "masked_fill_": NormalForm("masked_fill_", written(lambda x, m: x.masked_fill_(m, 3.0)), "ab b:bool"),
        "add_ a row": NormalForm("add_", written(lambda x, y: x.add_(y, alpha=2)), "ab b"),
        "mul_ a column": NormalForm("mul_", written(torch.Tensor.mul_), "ab a1"),
        "x -= y": NormalForm("sub_", written(operator.isub), "ab ab"),
        "div_": NormalForm("div_", written(torch.Tensor.div_), "ab b:pos"),
        "copy_ a row": NormalForm("copy_", written(torch.Tensor.copy_), "ab b"),
        "addcmul_": NormalForm("addcmul_", written(torch.Tensor.addcmul_), "ab b a1"),
        "lerp_": NormalForm("lerp_", written(torch.Tensor.lerp_), "ab b a1"),
    }


def _products() -> dict[str, NormalForm]:
    one, two = (LINEAR,), (LINEAR, LINEAR)

    def form(name: str, run: Callable[..., Any], operands: str, pending: tuple[tuple[str, ...], ...]) -> NormalForm:
        return NormalForm(name, run, operands, pending_one=pending)

    def addmm(i: Any, x: Any, w: Any) -> Any:
        return torch.addmm(i, x, w, beta=2, alpha=3)

    def baddbmm(i: Any, x: Any, w: Any) -> Any:
        return torch.baddbmm(i, x, w, beta=0.5)

    added = ((), ("sum",), ("sum",))

    return {
        "x @ w": form("matmul", operator.matmul, "ab bc", two),
        "matmul of vectors": form("matmul", torch.matmul, "a a", two),
        "matrix @ vector": form("matmul", torch.matmul, "ab b", two),
        "vector @ matrix": form("matmul", torch.matmul, "b bc", two),
        "matmul of batches": form("matmul", torch.matmul, "dab dbc", two),
        "matmul of broadcast batches": form("matmul", torch.matmul, "d1ab ebc", two),
        "batch @ matrix": form("matmul", torch.matmul, "dab bc", two),
        "batch @ vector": form("matmul", torch.matmul, "dab b", two),
        "mm": form("mm", torch.mm, "ab bc", two),
        "bmm": form("bmm", torch.bmm, "dab dbc", two),
        "mv": form("mv", torch.mv, "ab b", two),
        "dot": form("dot", torch.dot, "a a", two),
        "linear": form("linear", F.linear, "abc dc", two),
        "linear with bias": form("linear", F.linear, "abc dc d", (("sum",), ("sum",))),
        "linear of a vector": form("linear", F.linear, "c dc d", (("sum",), ("sum",))),
        "addmm": form("addmm", addmm, "c ab bc", added),
        "addmm of a whole": form("addmm", torch.addmm, "ac ab bc", added),
        "baddbmm": form("baddbmm", baddbmm, "dac dab dbc", added),
        "einsum ij,jk->ik": form("einsum", lambda x, y: torch.einsum("ij,jk->ik", x, y), "ab bc", two),
        "einsum bij,bkj": form("einsum", lambda x, y: torch.einsum("bij, bkj -> bki", x, y), "dab dcb", two),
        "einsum ij,jk": form("einsum", lambda x, y: torch.einsum("ij,jk", x, y), "ab bc", two),
        "einsum ij->j": form("einsum", lambda x: torch.einsum("ij->j", x), "ab", one),
        "einsum i,j->ji": form("einsum", lambda x, y: torch.einsum("i,j->ji", x, y), "a b", two),
        "einsum ij,k->k": form("einsum", lambda x, y: torch.einsum("ij,k->k", [x, y]), "ab c", two),
        "einsum ij,ij->": form("einsum", lambda x, y: torch.einsum("ij,ij->", x, y), "ab ab", two),
    }  # fmt: skip


def _reductions() -> dict[str, NormalForm]:
    def form(name: str, run: Callable[..., Any], pending: tuple[str, ...] = (), operands: str = "abc") -> NormalForm:
        exact = name in {"amax", "amin", "max", "min", "argmax", "argmin", "all", "any", "count_nonzero"}
        return NormalForm(name, run, operands, exact=exact, pending_one=(pending,), pending_all=pending)

    top, low = ("max",), ("min",)
    return {
        "sum()": form("sum", lambda x: x.sum(), LINEAR),
        "sum(1)": form("sum", lambda x: x.sum(1), LINEAR),
        "sum((0, -1), keepdim)": form("sum", lambda x: torch.sum(x, (0, -1), keepdim=True), LINEAR),
        "sum of ints": form("sum", lambda x: x.sum(0), ("sum",), "ab:int"),
        "sum of bools": form("sum", lambda x: x.sum(-1), (), "ab:bool"),
        "mean()": form("mean", lambda x: x.mean(), LINEAR),
        "mean(0)": form("mean", lambda x: torch.mean(x, 0), LINEAR),
        "mean((1, 2), keepdim)": form("mean", lambda x: x.mean((1, 2), keepdim=True), LINEAR),
        "mean of a 0-D tensor": form("mean", lambda x: x.mean(), LINEAR, "()"),
        "amax(0)": form("amax", lambda x: x.amax(0), top),
        "amax()": form("amax", lambda x: torch.amax(x, ()), top),
        "amax((0, 2), keepdim)": form("amax", lambda x: x.amax((0, 2), keepdim=True), top),
        "amin(-1)": form("amin", lambda x: x.amin(-1), low),
        "amin of ints": form("amin", lambda x: x.amin(0), low, "ab:int"),
        "max()": form("max", lambda x: x.max(), top),
        "min()": form("min", lambda x: torch.min(x), low),
        "max(1)": form("max", lambda x: x.max(1)),
        "min(0, keepdim)": form("min", lambda x: torch.min(x, 0, keepdim=True)),
        "max of two": NormalForm("max", torch.max, "ab b", exact=True),
        "min of two": NormalForm("min", torch.min, "ab a1", exact=True),
        "argmax()": form("argmax", lambda x: x.argmax()),
        "argmax(0)": form("argmax", lambda x: torch.argmax(x, 0)),
        "argmin(-1, keepdim)": form("argmin", lambda x: x.argmin(-1, keepdim=True)),
        "all()": form("all", lambda x: x.all(), (), "ab:bool"),
        "all(0)": form("all", lambda x: torch.all(x, 0), (), "ab:bool"),
        "all((0, 1))": form("all", lambda x: torch.all(x, (0, 1)), (), "ab:bool"),
        "any()": form("any", lambda x: x.any(), (), "ab:bool"),
        "any(1, keepdim)": form("any", lambda x: x.any(1, keepdim=True), (), "ab:bool"),
        "prod()": form("prod", lambda x: x.prod(), (), "ab"),
        "prod(1)": form("prod", lambda x: torch.prod(x, 1), (), "ab"),
        "logsumexp": form("logsumexp", lambda x: torch.logsumexp(x, (0, 2))),
        "count_nonzero": form("count_nonzero", torch.count_nonzero, (), "ab:bool"),
        "count_nonzero(0)": form("count_nonzero", lambda x: x.count_nonzero(0), (), "ab:bool"),
        "var": form("var", lambda x: x.var()),
        "var(1)": form("var", lambda x: torch.var(x, 1, correction=0)),
        "std(0)": form("std", lambda x: x.std(0, keepdim=True)),
    }


def _ties() -> dict[str, NormalForm]:
    """Extremes that many cells have: their gradient is shared among all of them, wherever they lie."""

    def norm(x: Any, *dims: int) -> Any:
        return torch.linalg.vector_norm(x, math.inf, dims or None)

    def stacked(x: Any) -> Any:
        return torch.stack([x.amax(0), x.amax(0)], 1)

    forms: dict[str, tuple[str, Callable[..., Any], str]] = {
        "amax(0)": ("amax", lambda x: x.amax(0), "abc"),
        "amax((0, 2), keepdim)": ("amax", lambda x: x.amax((0, 2), keepdim=True), "abc"),
        "amin(-1)": ("amin", lambda x: x.amin(-1), "abc"),
        "max()": ("max", lambda x: x.max(), "abc"),
        "min()": ("min", lambda x: x.min(), "abc"),
        "of an amax, transposed": ("amax", lambda x: x.amax(0).transpose(0, 1), "abc"),
        "of an amax, viewed": ("amax", lambda x: x.amax(1, keepdim=True).view(-1), "abc"),
        "of an amin, widened and cloned": ("amin", lambda x: x.amin(0).double().clone(), "ab"),
        "of an amax, in parts": ("amax", lambda x: x.amax(0).split([1, 3, 2]), "a6c"),
        "of an amax, gathered": ("amax", lambda x, i: x.amax(0).index_select(0, i), "a4c d:<4"),
        "of amaxes, stacked": ("amax", stacked, "abc"),
        "norm of order inf": ("linalg_vector_norm", norm, "ab"),
        "norm of order inf over 0 and 2": ("linalg_vector_norm", lambda x: norm(x, 0, 2), "abc"),
        "norms of order inf": ("_foreach_norm", lambda x: torch._foreach_norm([x, x * 2], math.inf), "ab"),
    }
    return {
        name: NormalForm(operation, run, " ".join(f"{dims}:ties" if ":" not in dims else dims for dims in text.split()))
        for name, (operation, run, text) in forms.items()
    }


def _along() -> dict[str, NormalForm]:
    parameters = "abc bc bc"
    return {
        "softmax": NormalForm("softmax", lambda x: x.softmax(-1), "abc"),
        "safe softmax": NormalForm("_safe_softmax", lambda x: torch._safe_softmax(x, 1), "ab"),
        "F.softmax": NormalForm("softmax", lambda x: F.softmax(x, dim=1), "abc"),
        "softmin": NormalForm("softmax", lambda x: F.softmin(x, dim=0), "ab"),
        "log_softmax": NormalForm("log_softmax", lambda x: F.log_softmax(x, 0), "abc"),
        "torch.log_softmax": NormalForm("log_softmax", lambda x: torch.log_softmax(x, -1), "ab"),
        "cumsum": NormalForm("cumsum", lambda x: x.cumsum(0), "abc"),
        "cumprod": NormalForm("cumprod", lambda x: torch.cumprod(x, 1), "ab:pos"),
        "sort": NormalForm("sort", lambda x: x.sort(1, descending=True), "ab", exact=True),
        "argsort": NormalForm("argsort", lambda x: torch.argsort(x, 0), "ab", exact=True),
        "topk": NormalForm("topk", lambda x: x.topk(2, 1), "ab", exact=True),
        "flip": NormalForm("flip", lambda x: x.flip(0, -1), "abc", exact=True),
        "tril": NormalForm("tril", lambda x: x.tril(-1), "abc", exact=True),
        "triu": NormalForm("triu", torch.triu, "abc", exact=True),
        "layer_norm": NormalForm("layer_norm", lambda x, w, b: F.layer_norm(x, x.shape[1:], w, b), parameters),
        "layer_norm of the last": NormalForm("layer_norm", lambda x, w: F.layer_norm(x, x.shape[2:], w), "abc c"),
        "layer_norm alone": NormalForm("layer_norm", lambda x: F.layer_norm(x, x.shape[-1:]), "abc"),
        "rms_norm": NormalForm("rms_norm", lambda x, w: F.rms_norm(x, (x.shape[-1],), w, 1e-5), "abc c"),
        "rms_norm alone": NormalForm("rms_norm", lambda x: torch.rms_norm(x, (x.shape[-1],)), "abc"),
    }  # fmt: skip


def _attention() -> dict[str, NormalForm]:
    def form(operands: str, **keywords: Any) -> NormalForm:
        def run(*tensors: Any) -> Any:
            query, key, value, *mask = tensors
            return F.scaled_dot_product_attention(query, key, value, *mask, **keywords)

        return NormalForm("scaled_dot_product_attention", run, operands, sizes=(1, 2, 4, 5, 6))

    return {
        "attention": form("abld absd abse"),
        "attention of 3 dims": form("ald asd ase"),
        "causal attention": form("abld abld able", is_causal=True),
        "attention with a scale": form("abld absd absd", scale=0.3),
        "attention with a mask": form("abld absd abse ls"),
        "attention with a mask of the batch": form("abld absd abse a1ls"),
        "attention with a bool mask": form("abld absd abse ls:bool"),
    }


def _losses() -> dict[str, NormalForm]:
    def form(name: str, run: Callable[..., Any], operands: str) -> NormalForm:
        return NormalForm(name, run, operands, sizes=(1, 2, 4, 5, 6))

    forms: dict[str, NormalForm] = {}
    for reduction in ("mean", "sum", "none"):
        functions: dict[str, tuple[str, Callable[..., Any], str]] = {
            "mse": ("mse_loss", F.mse_loss, "ab ab"),
            "l1": ("l1_loss", F.l1_loss, "ab ab"),
            "smooth_l1": ("smooth_l1_loss", lambda x, y, **k: F.smooth_l1_loss(x, y, beta=0.5, **k), "ab ab"),
            "huber": ("huber_loss", lambda x, y, **k: F.huber_loss(x, y, delta=0.7, **k), "abc abc"),
            "binary_cross_entropy": ("binary_cross_entropy", F.binary_cross_entropy, "ab:unit ab:unit"),
            "weighted binary_cross_entropy": (
                "binary_cross_entropy",
                lambda x, y, w, **k: F.binary_cross_entropy(x, y, w, **k),
                "ab:unit ab:unit ab:weight",
            ),
            "with_logits": ("binary_cross_entropy_with_logits", F.binary_cross_entropy_with_logits, "ab ab:unit"),
            "with_logits and pos_weight": (
                "binary_cross_entropy_with_logits",
                lambda x, y, p, **k: F.binary_cross_entropy_with_logits(x, y, pos_weight=p, **k),
                "ab ab:unit b:weight",
            ),
            "kl_div": ("kl_div", F.kl_div, "ab ab:unit"),
            "kl_div of logarithms": ("kl_div", lambda x, y, **k: F.kl_div(x, y, log_target=True, **k), "ab ab"),
            "cross_entropy": ("cross_entropy_loss", F.cross_entropy, "ab a:<b"),
            "cross_entropy of more dims": ("cross_entropy_loss", F.cross_entropy, "abcd acd:<b"),
            "cross_entropy of one sample": ("cross_entropy_loss", F.cross_entropy, "b ():<b"),
            "weighted cross_entropy": (
                "cross_entropy_loss",
                lambda x, y, w, **k: F.cross_entropy(x, y, w, ignore_index=1, **k),
                "abc ac:<b b:weight",
            ),
            "cross_entropy with smoothing": (
                "cross_entropy_loss",
                lambda x, y, w, **k: F.cross_entropy(x, y, w, ignore_index=0, label_smoothing=0.3, **k),
                "ab a:<b b:weight",
            ),
            "cross_entropy with smoothing alone": (
                "cross_entropy_loss",
                lambda x, y, **k: F.cross_entropy(x, y, ignore_index=2, label_smoothing=0.3, **k),
                "ab a:<b",
            ),
            "cross_entropy of probabilities": (
                "cross_entropy_loss",
                lambda x, y, w, **k: F.cross_entropy(x, y, w, label_smoothing=0.1, **k),
                "abc abc:unit b:weight",
            ),
            "nll_loss": (
                "nll_loss_nd",
                lambda x, y, w, **k: F.nll_loss(x, y, w, ignore_index=2, **k),
                "ab a:<b b:weight",
            ),
            "nll_loss of more dims": ("nll_loss_nd", F.nll_loss, "abcd acd:<b"),
        }
        for name, (operation, function, operands) in functions.items():
            run = lambda *tensors, f=function, r=reduction: f(*tensors, reduction=r)  # noqa: E731
            forms[f"{name}, {reduction}"] = form(operation, run, operands)
    forms["kl_div, batchmean"] = form("kl_div", lambda x, y: F.kl_div(x, y, reduction="batchmean"), "ab ab:unit")
    return forms


def _shapes() -> dict[str, NormalForm]:
    def form(name: str, run: Callable[..., Any], operands: str = "abc") -> NormalForm:
        return NormalForm(name, run, operands, exact=True, pending_one=(EVERY,), pending_all=EVERY)

    return {
        "view(-1)": form("view", lambda x: x.view(x.numel())),
        "view of merged": form("view", lambda x: x.view(x.shape[0] * x.shape[1], x.shape[2])),
        "view of merged ends": form("view", lambda x: x.view((x.shape[0], x.shape[1] * x.shape[2]))),
        "view of parts": form("view", lambda x: x.view(x.shape[0], 4, x.shape[1] // 4), "a4"),
        "view of parts in front": form("view", lambda x: x.view(2, 3, x.shape[1]), "6b"),
        "view of other parts": form("view", lambda x: x.view(8, 3, x.shape[2]), "46c"),
        "view of ones": form("view", lambda x: x.view(1, x.shape[0], 1, x.shape[1], 1), "ab"),
        "reshape": form("reshape", lambda x: x.transpose(0, 1).reshape(x.shape[1] * x.shape[0], x.shape[2])),
        "torch.reshape": form("reshape", lambda x: torch.reshape(x, (x.numel(), 1))),
        "flatten": form("flatten", lambda x: x.flatten()),
        "flatten(1)": form("flatten", lambda x: torch.flatten(x, 1), "abcd"),
        "unflatten": form("unflatten", lambda x: x.unflatten(1, (2, -1)), "a6c"),
        "torch.unflatten": form("unflatten", lambda x: torch.unflatten(x, 0, (3, 2)), "6b"),
        "squeeze": form("squeeze", lambda x: x.squeeze(), "a1b1"),
        "squeeze(1)": form("squeeze", lambda x: x.squeeze(1), "a1b"),
        "squeeze((0, 1))": form("squeeze", lambda x: torch.squeeze(x, (0, 1)), "11b"),
        "unsqueeze": form("unsqueeze", lambda x: x.unsqueeze(-1)),
        "x.unsqueeze(0)": form("unsqueeze", lambda x: torch.unsqueeze(x, 0)),
        "expand": form("expand", lambda x: x.expand(3, -1, 4), "a1"),
        "expand of a row": form("expand", lambda x: x.expand((5, x.shape[0])), "a"),
        "permute": form("permute", lambda x: x.permute(2, 0, 1)),
        "torch.permute": form("permute", lambda x: torch.permute(x, (-1, 1, 0))),
        "transpose": form("transpose", lambda x: x.transpose(0, 2)),
        "torch.transpose": form("transpose", lambda x: torch.transpose(x, 1, -1)),
        "t": form("t", lambda x: x.t(), "ab"),
        "T": form("permute", lambda x: x.T, "ab"),
        "mT": form("transpose", lambda x: x.mT),
    }


def _pieces() -> dict[str, NormalForm]:
    def form(name: str, run: Callable[..., Any], operands: str = "abc") -> NormalForm:
        return NormalForm(name, run, operands, exact=True, pending_one=(EVERY,), pending_all=EVERY)

    def joined(name: str, run: Callable[..., Any], operands: str) -> NormalForm:
        return NormalForm(name, run, operands, exact=True, pending_all=EVERY)

    def indexed(name: str, run: Callable[..., Any], operands: str) -> NormalForm:
        return NormalForm(name, run, operands, exact=True, sizes=(1, 2, 4, 5, 6), pending_one=(EVERY,))

    return {
        "cat": joined("cat", lambda x, y: torch.cat([x, y]), "abc dbc"),
        "cat along 1": joined("cat", lambda x, y, z: torch.cat((x, y, z), dim=1), "ab ac ad"),
        "stack": joined("stack", lambda x, y: torch.stack([x, y]), "ab ab"),
        "stack along 1": joined("stack", lambda x, y, z: torch.stack([x, y, z], 1), "ab ab ab"),
        "split(2)": form("split", lambda x: x.split(2)),
        "torch.split": form("split", lambda x: torch.split(x, 2, dim=1)),
        "split of sizes": form("split", lambda x: x.split([1, 3, 2], 1), "a6c"),
        "split_with_sizes": form("split_with_sizes", lambda x: x.split_with_sizes((2, 0, 2)), "4b"),
        "chunk": form("chunk", lambda x: x.chunk(3, 1)),
        "torch.chunk": form("chunk", lambda x: torch.chunk(x, 2)),
        "unbind": form("unbind", lambda x: x.unbind(1), "a3c"),
        "iter": form("unbind", list, "3b"),
        "select": form("select", lambda x: x.select(1, -1), "a4c"),
        "slice": form("slice", lambda x: _slice(x, 0, 1, -1, 2), "ab"),
        "slice of all": form("slice", lambda x: _slice(x, 1, -100, None, 1), "ab"),
        "narrow": form("narrow", lambda x: x.narrow(0, 1, 2), "5b"),
        "torch.narrow": form("narrow", lambda x: torch.narrow(x, 1, 0, 3), "a4"),
        "gather": indexed("gather", lambda x, i: x.gather(1, i), "abc adc:<b"),
        "torch.gather of fewer": indexed("gather", lambda x, i: torch.gather(x, 0, i), "a6c d4c:<a"),
        "index_select": indexed("index_select", lambda x, i: x.index_select(0, i), "abc d:<a"),
        "index_select along 1": indexed("index_select", lambda x, i: torch.index_select(x, 1, i), "ab d:<b"),
        "embedding": indexed("embedding", lambda w, i: F.embedding(i, w), "ab cd:<a"),
        "embedding with padding": indexed("embedding", lambda w, i: F.embedding(i, w, padding_idx=0), "ab c:<a"),
    }


FORMS: dict[str, dict[str, NormalForm]] = {
    "cells": _cellwise() | _activations(),
    "two operands": _binary(),
    "broadcast": _broadcast(),
    "in place": _in_place(),
    "products": _products(),
    "reductions": _reductions(),
    "ties": _ties(),
    "along a dim": _along(),
    "attention": _attention(),
    "losses": _losses(),
    "shapes": _shapes(),
    "pieces": _pieces(),
}
ALL_FORMS: dict[str, NormalForm] = {
    f"{group}: {name}": form for group, forms in FORMS.items() for name, form in forms.items()
}


def names_of(*groups: str) -> list[str]:
    """The forms of some groups, as ALL_FORMS names them."""
    return [f"{group}: {name}" for group in groups for name in FORMS[group]]
