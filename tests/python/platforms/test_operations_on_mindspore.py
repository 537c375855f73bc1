"""Operations that MindSpore would compute without a right value, or refuse with an error of its own: refused alike on
all ranks, also on those without elements, and nothing has changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mindspore
import numpy as np
import pytest

from hyper_parallel import DTensor, HyperParallelError, Partial, RaggedShard, Replicate
from hyper_parallel.mindspore import functional
from support.common import assert_raises, make_mesh
from support.frameworks.on_mindspore import queued
from support.platform_checks import assert_values, distributed
from support.ranks import ranks
from support.spread import Spread
from support.worker import Rank

WHOLE = np.array([1.0, 2.0, 0.0])


def spread(dtype: str = "float32", units: tuple[int, int] = (1, 2)) -> Any:
    return distributed(WHOLE, Spread((3,), (2,), (RaggedShard((0,), units),)), dtype)


def one_of(dtype: str) -> mindspore.Tensor:
    return mindspore.Tensor(1, getattr(mindspore, dtype))


_Case = tuple[Callable[[Any], object], str, type[BaseException], str]

NOT_HELD: dict[str, _Case] = {
    "a complex number": (lambda x: x.fill_(1j), "float32", TypeError, "the value is complex"),
    "complex values": (
        lambda x: x.copy_(like(x, "complex64")),
        "float32",
        TypeError,
        "operation 'copy_': the value is complex, of dtype Complex64, and the tensor, of dtype Float32, cannot hold it",
    ),
    "complex into integers": (lambda x: x.copy_(like(x, "complex128")), "int32", TypeError, "of dtype Int32, cannot"),
    "a complex sum": (lambda x: x.add_(like(x, "complex64")), "float32", TypeError, "Complex64"),
    "a complex difference": (lambda x: x.sub_(2j), "float32", TypeError, "Complex64"),
    "a complex product": (lambda x: x.mul_(like(x, "complex64")), "float32", TypeError, "Complex64"),
    "a complex quotient": (lambda x: x.div_(2j), "float64", TypeError, "Complex128"),
    "full_like": (lambda x: functional.full_like(x, 1j), "float32", TypeError, "the value is complex, the number 1j"),
    "fractions into integers": (lambda x: x.mul_(0.5), "int32", TypeError, "the result has dtype Float32"),
    "a sum that overflows": (lambda x: x + 2**40, "int32", ValueError, "the number 1099511627776, which overflows"),
    "an addend that overflows": (lambda x: x.add_(300), "int8", ValueError, "which overflows dtype Int8"),
    "an alpha that overflows": (lambda x: x.add(x, alpha=2**40), "int32", ValueError, "'alpha' is the number"),
    "what no dtype holds": (lambda x: x + 2**70, "float32", ValueError, "which overflows dtype int64"),
    "a fill that overflows": (lambda x: x.fill_(1e20), "int32", ValueError, "overflows dtype Int32"),
    "a fill that is none": (lambda x: x.fill_(float("nan")), "int64", ValueError, "number nan, which overflows"),
    "a float that overflows": (lambda x: x.fill_(1e6), "float16", ValueError, "overflows dtype Float16"),
    "full_like that overflows": (lambda x: functional.full_like(x, 300), "uint8", ValueError, "overflows dtype UInt8"),
    "an integer to a negative power": (lambda x: x ** (-1), "int64", ValueError, "operation 'pow': exponent is -1"),
}
NOT_TAKEN: dict[str, _Case] = {
    "lerp of integers": (lambda x: x.lerp(x, 0.5), "uint8", TypeError, "operation 'lerp' takes a floating tensor"),
    "fill_ by a tensor": (lambda x: x.fill_(x + 1), "float32", TypeError, "must be one element on every rank"),
    "no dtype": (lambda x: x.to(), "float32", TypeError, "operation 'to' lacks its argument 'dtype'"),
    "a list of dtypes": (lambda x: x.to([1]), "float32", TypeError, "dtype is [1] but must be a dtype of mindspore"),
    "no value": (functional.full_like, "float32", TypeError, "operation 'full_like' lacks its argument 'value'"),
    "None for a value": (lambda x: functional.full_like(x, None), "float32", TypeError, "must be a number"),
    "a text for a value": (lambda x: functional.full_like(x, "a"), "float32", TypeError, "must be a number"),
    "a tensor for a value": (lambda x: functional.full_like(x, x), "float32", TypeError, "must be a number"),
    "a text for alpha": (lambda x: x.add(x, alpha="2"), "float32", TypeError, "alpha is a str but must be a number"),
    "None for alpha": (lambda x: x.sub(x, alpha=None), "float32", TypeError, "alpha is a NoneType"),
    "a tensor for alpha": (lambda x: x.add(x, alpha=one_of("float32")), "float32", TypeError, "alpha is a Tensor"),
    "another rounding": (lambda x: x.div(2, rounding_mode=[1]), "float32", ValueError, "rounding_mode is [1]"),
    "another gelu": (lambda x: functional.gelu(x, approximate=1), "float32", ValueError, "approximate is 1"),
    "a bool for a condition": (lambda x: functional.where(True, x, x), "float32", TypeError, "condition is True"),
}
NO_KERNEL: dict[str, _Case] = {
    f"{name} of {dtype}": (action, dtype, TypeError, "MindSpore does not compute it on (")
    for name, action, dtypes in (
        ("sign", lambda x: x.sign(), ("int8", "int16", "uint8")),
        ("x + 2", lambda x: x + 2, ("uint16", "uint32", "uint64")),
        ("x < y", lambda x: x < like(x, "complex64"), ("complex64", "complex128")),
        ("relu", functional.relu, ("complex64",)),
        ("x * y", lambda x: x * like(x, "complex64"), ("float32",)),
    )
    for dtype in dtypes
} | {"rounded of complex64": (lambda x: x.div(x, rounding_mode="trunc"), "complex64", TypeError, "must be real")}
REFUSED = NOT_HELD | NOT_TAKEN | NO_KERNEL


def like(x: Any, dtype: str) -> Any:
    """Other values that lie as x."""
    return spread(dtype, x.placements[0].local_units)


@pytest.mark.parametrize("what", list(REFUSED))
@ranks(2)
def test_what_has_no_right_value_is_refused_on_every_rank(rank: Rank, what: str) -> None:
    action, dtype, error, text = REFUSED[what]
    for units in ((1, 2), (0, 1)):
        x = spread(dtype, units)
        with queued():
            with pytest.raises(HyperParallelError):
                action(x)
            # MindSpore raises a failure again at a later operation.
            for _ in range(3):
                assert float(mindspore.Tensor([1.0]) + 1) == 2
        assert_raises(error, text, lambda x=x: action(x))
        assert_values(x.full_tensor(), WHOLE, dtype)


@ranks(2)
def test_options_are_looked_at_before_the_pending_reduction_is(rank: Rank) -> None:
    pending = DTensor(mindspore.Tensor([1.0, 2.0]), make_mesh(2), [Partial()])
    assert_raises(TypeError, "dtype is [1] but must be a dtype of mindspore", lambda: pending.to([1]))


@ranks(2)
def test_complex_numbers_meet_complex_tensors(rank: Rank) -> None:
    for dtype in ("complex64", "complex128"):
        x = spread(dtype, (0, 1))
        assert_values((x * 3j).full_tensor(), WHOLE * 3j, dtype)
        assert_values((2j + x).full_tensor(), 2j + WHOLE, dtype)
        assert_values(x.fill_(1j).full_tensor(), np.full(3, 1j), dtype)


@ranks(2)
def test_integers_take_the_numbers_that_they_can_hold(rank: Rank) -> None:
    assert_values((spread("uint8") + -1).full_tensor(), np.array([0, 1, 255]), "uint8")
    assert_values(spread("int8").fill_(-128).full_tensor(), np.full(3, -128), "int8")
    assert_values(spread("uint8").fill_(255).full_tensor(), np.full(3, 255), "uint8")
    assert_values((spread("int32") / 2**40).full_tensor(), WHOLE / 2**40, "float32", exact=False)
    assert_values((spread("bfloat16") + np.float32(2)).full_tensor(), WHOLE + 2, "bfloat16")


@ranks(2)
def test_a_product_with_one_element_has_the_dtype_of_the_tensor(rank: Rank) -> None:
    for dtype in ("float16", "bfloat16", "float32"):
        for other in ("float32", "float64", "bfloat16", "float16"):
            x, element = spread(dtype, (0, 1)), one_of(other)
            for result in (x * element, element * x, x / element):
                assert_values(result.full_tensor(), WHOLE, dtype)


@ranks(2)
def test_a_shape_is_a_sequence_of_ints_also_of_numpys(rank: Rank) -> None:
    local, mesh = mindspore.Tensor(np.zeros((4, 2), np.float32)), make_mesh(2)
    for shape in ((np.int64(4), 2), np.array([4, 2]), [4, np.uint8(2)]):
        made = DTensor(local, mesh, [Replicate()], shape=shape)  # type: ignore[arg-type]  # numpy's ints
        assert made.shape == (4, 2)
    for shape, text in ((5, "shape is 5 but"), ((4.0, 2), "shape[0] is 4.0 but"), ("ab", "shape is 'ab' but")):
        assert_raises(TypeError, text, lambda shape=shape: DTensor(local, mesh, [Replicate()], shape=shape))
