"""Operations that MindSpore would compute without a right value: refused, and nothing has changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hyper_parallel import RaggedShard
from hyper_parallel.mindspore import functional
from support.common import assert_raises
from support.platform_checks import assert_values, distributed
from support.ranks import ranks
from support.spread import Spread
from support.worker import Rank

WHOLE = np.array([1.0, 2.0, 0.0])


def spread(dtype: str = "float32") -> Any:
    return distributed(WHOLE, Spread((3,), (2,), (RaggedShard((0,), (1, 2)),)), dtype)


REFUSED: dict[str, tuple[Callable[[Any], object], str, type[BaseException], str]] = {
    "a complex number": (lambda x: x.fill_(1j), "float32", TypeError, "the value is complex and the tensor, of dtype"),
    "complex values": (lambda x: x.copy_(spread("complex64")), "float32", TypeError, "the value is complex"),
    "full_like": (lambda x: functional.full_like(x, 1j), "float32", TypeError, "the value is complex"),
    "an integer to a negative power": (lambda x: x ** (-1), "int64", ValueError, "operation 'pow': exponent is -1"),
    "lerp of integers": (lambda x: x.lerp(x, 0.5), "uint8", TypeError, "operation 'lerp' takes a floating tensor"),
    "fractions into integers": (lambda x: x.mul_(0.5), "int32", TypeError, "the result has dtype Float32"),
}


@pytest.mark.parametrize("what", list(REFUSED))
@ranks(2)
def test_what_has_no_right_value_is_refused_on_every_rank(rank: Rank, what: str) -> None:
    action, dtype, error, text = REFUSED[what]
    x = spread(dtype)
    assert_raises(error, text, lambda: action(x))
    assert_values(x.full_tensor(), WHOLE, dtype)
