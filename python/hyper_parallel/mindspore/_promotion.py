"""The dtype in which operands of several dtypes are computed.

MindSpore widens operands kernel by kernel: what is put together from several kernels would be computed in the narrowest
dtype of all, and overflow there. Its product also tells tensors without dims from others, which a rank that has no
elements cannot follow, and fails on some pairs of dtypes, one of them by a signal. So the dtype is found from what all
ranks know, and the operands have it before anything is computed.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Sequence
from typing import Any

import mindspore
import numpy as np

from hyper_parallel.mindspore._local_calls import kind_of

__all__ = ["Meeting", "common_dtype"]


class Meeting(enum.Enum):
    """Which tensors of an operation have a say in the dtype in which it is computed."""

    KERNEL = enum.auto()  # one kernel finds it by itself, alike with and without dims
    ALL = enum.auto()  # as MindSpore's sum: tensors without dims count as others do
    WITH_DIMS = enum.auto()  # as torch: one without dims counts only where it is of a higher kind
    REAL_WITH_DIMS = enum.auto()  # as that, but MindSpore has no product of a real and a complex tensor


# torch too has no rule for the wider unsigned ones.
_INTEGERS = (mindspore.uint8, mindspore.int8, mindspore.int16, mindspore.int32, mindspore.int64)
_COMPLEX = kind_of(mindspore.complex64)


def common_dtype(meeting: Meeting, operands: Sequence[Any]) -> mindspore.Type | None:
    """The dtype that an operation's tensors take; None where they keep theirs.

    Args:
        meeting: Which of them count.
        operands: The operands as they were given, alike on all ranks. Numbers have no say.
    """
    tensors = [operand for operand in operands if isinstance(operand, mindspore.Tensor)]
    if meeting is Meeting.KERNEL or not tensors:
        return None
    if meeting is Meeting.ALL:
        return _promoted([tensor.dtype for tensor in tensors])
    with_dims = [tensor.dtype for tensor in tensors if tensor.ndim > 0]
    highest = max(map(kind_of, with_dims), default=-1)
    found = _promoted(with_dims + [one.dtype for one in tensors if one.ndim == 0 and kind_of(one.dtype) > highest])
    is_refused = meeting is Meeting.REAL_WITH_DIMS and found is not None and kind_of(found) == _COMPLEX
    return None if is_refused and any(kind_of(dtype) < _COMPLEX for dtype in with_dims) else found


def _promoted(dtypes: Sequence[mindspore.Type]) -> mindspore.Type | None:
    """The smallest dtype that takes the values of all, None if there is none."""
    return functools.reduce(_of_two, dtypes)


def _of_two(a: mindspore.Type | None, b: mindspore.Type | None) -> mindspore.Type | None:
    if a is None or b is None or a == b:
        return a if a == b else None
    low, high = sorted((a, b), key=kind_of)
    if kind_of(high) == _COMPLEX:
        return mindspore.complex128 if {a, b} & {mindspore.float64, mindspore.complex128} else mindspore.complex64
    if kind_of(low) < kind_of(high):
        return high
    if a in _INTEGERS and b in _INTEGERS:
        # By size: int8 and uint8 meet in int16.
        return next(one for one in _INTEGERS if all(np.can_cast(_numpys(given), _numpys(one)) for given in (a, b)))
    if kind_of(a) == 1:
        return None
    return mindspore.float64 if mindspore.float64 in {a, b} else mindspore.float32


def _numpys(dtype: mindspore.Type) -> Any:  # noqa: ANN401
    return mindspore.dtype_to_nptype(dtype)
