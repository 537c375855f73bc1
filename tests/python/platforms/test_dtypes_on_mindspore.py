"""Operands of several dtypes: a result's dtype, or a refusal, is that of the whole tensor on every rank alike, also on
one without elements, whatever MindSpore's kernels make of tensors with and without dims."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import mindspore
import numpy as np
import pytest

from hyper_parallel import HyperParallelError, Placement, RaggedShard, Replicate
from hyper_parallel.mindspore import functional
from support.platform_checks import distributed
from support.ranks import ranks
from support.spread import Spread
from support.worker import Rank

WHOLE = np.array([1.0, 2.0, 3.0])
HALVES_AND_WIDER = ("float16", "bfloat16", "float32", "float64")
DTYPES = ("bool", "int32", "float16", "bfloat16", "float32", "complex64")

Form = Callable[..., Any]
Operand = Callable[[Placement], Any]

OF_TWO: dict[str, Form] = {
    "add with alpha": lambda x, y: x.add(y, alpha=2),
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y,
    "div with rounding": lambda x, y: x.div(y, rounding_mode="floor"),
    "reversed sub": lambda x, y: y - x,
    "reversed div": lambda x, y: y / x,
    "add_": lambda x, y: x.add_(y, alpha=2),
    "pow": lambda x, y: x**y,
    "maximum": lambda x, y: x.maximum(y),
    "clamp": lambda x, y: x.clamp(min=y),
    "lt": lambda x, y: x < y,
}
OF_THREE: dict[str, Form] = {
    "lerp": functional.lerp,
    "addcmul": functional.addcmul,
    "addcdiv": functional.addcdiv,
}


def spread(dtype: str) -> Operand:
    """A DTensor that lies as said."""
    return lambda placement: distributed(WHOLE, Spread((3,), (2,), (placement,)), dtype)


def plain(dtype: str, shape: tuple[int, ...]) -> Operand:
    """One element."""
    kind = mindspore.bool_ if dtype == "bool" else getattr(mindspore, dtype)
    return lambda placement: mindspore.Tensor(np.ones(shape), kind)


def outcome(form: Form, operands: Sequence[Operand], placement: Placement) -> str:
    """The result's dtype, or the error's type."""
    try:
        return str(form(*(operand(placement) for operand in operands)).dtype)
    except HyperParallelError as error:
        return type(error).__name__


def check_alike(form: Form, operands: Sequence[Operand], what: object) -> None:
    """The whole tensor on every rank, and one rank without elements, give the same."""
    expected = outcome(form, operands, Replicate())
    assert outcome(form, operands, RaggedShard((0,), (0, 1))) == expected, what


@pytest.mark.parametrize("name", list(OF_TWO))
@ranks(2)
def test_two_operands_give_one_dtype_on_all_ranks(rank: Rank, name: str) -> None:
    for own, other in itertools.product(DTYPES, DTYPES):
        for operand in (spread(other), plain(other, ())):
            check_alike(OF_TWO[name], [spread(own), operand], (own, other))


@pytest.mark.parametrize("name", list(OF_THREE))
@ranks(2)
def test_three_operands_give_one_dtype_on_all_ranks(rank: Rank, name: str) -> None:
    for own, second, third in itertools.product(("float16", "float32"), HALVES_AND_WIDER, HALVES_AND_WIDER):
        for operands in ((plain(second, (1,)), plain(third, ())), (plain(second, ()), spread(third))):
            check_alike(OF_THREE[name], [spread(own), *operands], (own, second, third))


@pytest.mark.parametrize("name", list(OF_THREE))
@ranks(2)
def test_operands_without_dims_widen_no_tensor(rank: Rank, name: str) -> None:
    for own, other in itertools.product(HALVES_AND_WIDER, HALVES_AND_WIDER):
        operands = [spread(own), plain(other, ()), spread(own)]
        given = outcome(OF_THREE[name], operands, RaggedShard((0,), (0, 1)))
        assert given == str(getattr(mindspore, own)), (own, other)
