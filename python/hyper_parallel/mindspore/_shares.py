"""Where a DTensor's local tensor is, and how it is written.

MindSpore writes a view of a tensor to a copy, without a word, and its gradients of empty slices raise. So a row x[i] is
kept as (x, i), read and written through x. MindSpore's optimizers take no Parameter without elements either, so an
empty share of a parameter has one of a single zero behind it, which nobody reads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import mindspore
from mindspore import ops
from mindspore.common._grad_function import _Function

from hyper_parallel.mindspore._graph import check_writable, is_tracked

__all__ = ["EmptyParameterShare", "RowShare", "Share", "TensorShare", "copy_of", "nothing_of", "one_for"]


# MindSpore's CPU differentiates no slice of these, and writes no part of a bfloat16 tensor.
_HALVES = (mindspore.float16, mindspore.bfloat16)

_Filled = Callable[[tuple[int, ...], mindspore.Type], mindspore.Tensor]
"""``ops.zeros`` or ``ops.ones``."""


class Share(Protocol):
    """A local tensor that can be read and written as a whole."""

    def read(self) -> mindspore.Tensor:
        """The local tensor, in the graph."""

    def check_writable(self, operation: str, value: mindspore.Tensor | None = None) -> None:
        """Raises if it cannot be written here, or not with this value, on ranks alike where the graph is the reason.

        Raises:
            FailedPreconditionError: As ``_graph.check_writable``.
        """

    def write(self, value: mindspore.Tensor, operation: str) -> None:
        """Gives it these values, in the graph; they have its shape and dtype. Raises as ``check_writable``."""


class TensorShare:
    """A tensor of its own, a Parameter too."""

    def __init__(self, tensor: mindspore.Tensor) -> None:
        self._tensor = tensor

    def read(self) -> mindspore.Tensor:
        """The tensor."""
        return self._tensor

    def check_writable(self, operation: str, value: mindspore.Tensor | None = None) -> None:
        """As ``Share.check_writable``."""
        check_writable(self._tensor, operation, value)

    def write(self, value: mindspore.Tensor, operation: str) -> None:
        """Writes in place; raises as ``Share.write``."""
        self.check_writable(operation, value)
        self._tensor.copy_(value)


class RowShare:
    """One row of dim 0 of another local tensor, flat; without elements where that rank does not own it.

    Args:
        base: The other.
        row: Which row of it, None where it is another rank's.
    """

    def __init__(self, base: Share, row: int | None) -> None:
        self._base = base
        self._row = row

    def read(self) -> mindspore.Tensor:
        """The row."""
        whole = self._base.read()
        if self._row is None:
            return nothing_of(whole)
        # A slice: MindSpore takes no int after a differentiated function has ended with an exception.
        return _sliceable(whole)[self._row : self._row + 1].reshape(-1).astype(whole.dtype)

    def check_writable(self, operation: str, value: mindspore.Tensor | None = None) -> None:
        """As ``Share.check_writable``: the other is written, also where it is another rank that owns the row."""
        self._base.check_writable(operation, value)

    def write(self, value: mindspore.Tensor, operation: str) -> None:
        """Writes the row of the other; raises as ``Share.write``."""
        self.check_writable(operation, value)
        whole = self._base.read()
        if self._row is None:
            if is_tracked(value):
                # The gradient of the written tensor, and that of the value, need every rank.
                self._base.write(_tied(whole, value), operation)
            return
        rows = value.reshape((1, *whole.shape[1:]))
        if whole.dtype in _HALVES:
            wide = _sliceable(whole)
            parts = [wide[: self._row], _sliceable(rows), wide[self._row + 1 :]]
            joined = ops.concat([part for part in parts if part.shape[0] > 0])
            self._base.write(joined.astype(whole.dtype), operation)
        else:
            whole[self._row : self._row + 1] = rows


class EmptyParameterShare:
    """No elements, with a Parameter of zeros in the graph behind them.

    Args:
        stand_in: The Parameter.
        shape: The shape without elements.
    """

    def __init__(self, stand_in: mindspore.Parameter, shape: tuple[int, ...]) -> None:
        self._stand_in = stand_in
        self._shape = shape

    def read(self) -> mindspore.Tensor:
        """A tensor without elements, whose gradient is one of zeros for the Parameter."""
        return nothing_of(self._stand_in, self._shape)

    def check_writable(self, operation: str, value: mindspore.Tensor | None = None) -> None:
        """As ``Share.check_writable``: its Parameter stands in the graph as those of other ranks do."""
        check_writable(self._stand_in, operation, value)

    def write(self, value: mindspore.Tensor, operation: str) -> None:
        """Writes nothing; raises as ``Share.write``."""
        self.check_writable(operation, value)


def _sliceable(tensor: mindspore.Tensor) -> mindspore.Tensor:
    """The same values in a dtype that can be sliced."""
    return tensor.astype(mindspore.float32) if tensor.dtype in _HALVES else tensor


def nothing_of(tensor: mindspore.Tensor, shape: tuple[int, ...] = (0,)) -> mindspore.Tensor:
    """A tensor without elements that hangs on ``tensor`` in the graph, so that its backward runs here too."""
    return _constant(tensor, ops.zeros, shape, tensor.dtype)


def one_for(tensor: mindspore.Tensor) -> mindspore.Tensor:
    """A tensor of one element in the place of one without elements, in its graph too."""
    return _constant(tensor, ops.ones, (1,), tensor.dtype)


def copy_of(tensor: mindspore.Tensor) -> mindspore.Tensor:
    """A copy in the graph; MindSpore's own, of a tensor without elements, leaves it."""
    return tensor.copy() if tensor.size else nothing_of(tensor, tuple(tensor.shape))


def _constant(
    tensor: mindspore.Tensor, filled: _Filled, shape: tuple[int, ...], dtype: mindspore.Type
) -> mindspore.Tensor:
    """What ``filled`` makes, hanging on ``tensor`` in the graph, for derivatives of any order."""
    return _Constant.apply(tensor, filled, shape, dtype) if is_tracked(tensor) else filled(shape, dtype)


def _tied(tensor: mindspore.Tensor, value: mindspore.Tensor) -> mindspore.Tensor:
    """A copy of the tensor that hangs on the value, which has no elements, too, so that the value's backward runs."""
    return _Tied.apply(tensor, value)


class _Constant(_Function):  # type: ignore[misc]  # MindSpore has no types
    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401
        tensor: mindspore.Tensor,
        filled: _Filled,
        shape: tuple[int, ...],
        dtype: mindspore.Type,
    ) -> mindspore.Tensor:
        ctx.like = (tuple(tensor.shape), tensor.dtype)
        return filled(shape, dtype)

    @staticmethod
    def backward(ctx: Any, gradient: mindspore.Tensor) -> tuple[mindspore.Tensor, None, None, None]:  # noqa: ANN401
        # Other ranks' gradients hang on theirs: in a second backward pass this rank must communicate as they do.
        return _constant(gradient, ops.zeros, *ctx.like), None, None, None


class _Tied(_Function):  # type: ignore[misc]  # MindSpore has no types
    @staticmethod
    def forward(ctx: Any, tensor: mindspore.Tensor, value: mindspore.Tensor) -> mindspore.Tensor:  # noqa: ANN401
        ctx.like = (tuple(value.shape), value.dtype)
        return tensor.copy()

    @staticmethod
    def backward(ctx: Any, gradient: mindspore.Tensor) -> tuple[mindspore.Tensor, mindspore.Tensor]:  # noqa: ANN401
        return gradient, _constant(gradient, ops.zeros, *ctx.like)
