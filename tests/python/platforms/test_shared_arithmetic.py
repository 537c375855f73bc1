"""Elementwise arithmetic where dtypes end: beside narrower operands, by zero, of complex numbers."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hyper_parallel import DTensor, Partial, RaggedShard, Replicate
from support.common import assert_raises, make_mesh
from support.frameworks import framework
from support.platform_checks import assert_values, distributed
from support.ranks import ranks
from support.spread import Spread
from support.worker import Rank

WIDENED: list[tuple[Callable[..., Any], tuple[str, ...], tuple[float, ...], float]] = [
    (lambda x, y: x.add(y, alpha=3), ("int32", "int8"), (1, 100), 301),
    (lambda x, y: x.sub(y, alpha=2), ("int64", "uint8"), (1, 200), -399),
    (lambda x, y: x.add_(y, alpha=1000), ("int64", "int8"), (1, 100), 100001),
    (lambda x, y: x.add(y, alpha=1000), ("float32", "float16"), (0, 100), 100000),
    (lambda x, y, z: x.addcmul(y, z), ("float32", "float16", "float16"), (0, 300, 300), 90000),
    (lambda x, y, z: x.addcmul(y, z), ("int64", "int8", "int8"), (0, 100, 100), 10000),
    (lambda x, y, z: x.addcmul(y, z, value=-4), ("int64", "int64", "int8"), (0, 100, 100), -40000),
    (lambda x, y, z: x.addcdiv(y, z), ("float32", "float16", "float16"), (0, 60000, 0.5), 120000),
]


@ranks(2)
def test_operands_of_a_narrower_dtype_are_widened_before_they_are_computed_with(rank: Rank) -> None:
    spread = Spread((2,), (2,), (RaggedShard((0,), (0, 1)),))
    for form, dtypes, values, expected in WIDENED:
        operands = [distributed(np.full(2, value), spread, dtype) for value, dtype in zip(values, dtypes, strict=True)]
        assert_values(form(*operands).full_tensor(), np.full(2, expected), dtypes[0])


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@ranks(2)
def test_quotients_by_zero_are_those_of_arithmetic(rank: Rank, dtype: str) -> None:
    whole = np.array([np.nan, 1.0, -1.0, 0.0, -0.0, np.inf, 6.0])
    other = np.array([0.0, -0.0, -0.0, 0.0, -0.0, -0.0, 2.0])
    spread = Spread((7,), (2,), (RaggedShard((0,), (3, 4)),))
    x, y, zero = (distributed(values, spread, dtype) for values in (whole, other, np.zeros(7)))
    with np.errstate(all="ignore"):
        assert_values((x / y).full_tensor(), whole / other, dtype)
        assert_values(zero.addcdiv(x, y).full_tensor(), whole / other, dtype)
        assert_values(x.div(y, rounding_mode="trunc").full_tensor(), whole / other, dtype)
        for number in (0.0, -0.0):
            element = framework.tensor(np.array(number), dtype)
            for divisor in (number, element):
                assert_values((x / divisor).full_tensor(), whole / number, dtype)
                assert_values((divisor / y).full_tensor(), number / other, dtype)
        assert_values(x.div_(y).full_tensor(), whole / other, dtype)


@ranks(2)
def test_gradients_of_quotients_are_right_beside_those_by_zero(rank: Rank) -> None:
    x, y = np.array([1.0, -2.0, 3.0]), np.array([0.0, 4.0, -0.0])

    def loss(*wholes: Any) -> Any:
        quotient = operator.truediv(*(DTensor.from_local(whole, make_mesh(2), [Replicate()]) for whole in wholes))
        return framework.weighted_sum(quotient.full_tensor(), np.ones(3))

    gradients = framework.gradients(loss, [framework.tensor(x), framework.tensor(y)])
    with np.errstate(all="ignore"):
        for gradient, expected in zip(gradients, (1 / y, -x / (y * y)), strict=True):
            np.testing.assert_array_equal(gradient, 2 * expected)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@ranks(2)
def test_complex_numbers_are_summed_and_averaged_and_not_put_in_order(rank: Rank, dtype: str) -> None:
    shares = [np.array([1 + 2j, 3, -1j, 1e-3j, 5]) * (index + 1) for index in range(2)]
    local = framework.tensor(shares[rank.index], dtype)
    for reduction, expected in (("sum", shares[0] + shares[1]), ("avg", (shares[0] + shares[1]) / 2)):
        pending = DTensor.from_local(local, make_mesh(2), [Partial(reduction)])
        assert_values(pending.full_tensor(), expected.astype(dtype), dtype)
        for units in ((1, 4), (0, 1)):
            moved = pending.redistribute([RaggedShard((0,), units)])
            assert_values(moved.full_tensor(), expected.astype(dtype), dtype)
    for extreme in ("max", "min"):
        pending = DTensor.from_local(local, make_mesh(2), [Partial(extreme)])
        assert_raises(TypeError, f"the input is complex, which has no {extreme}", pending.full_tensor)
