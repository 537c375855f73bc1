"""The variable collectives as MindSpore's Ascend has them.

MindSpore counts elements in the gather and the reduce-scatter and takes flat tensors there; in the exchange it counts
rows. What each call is given is worked out by a function of its own, apart from the call.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import mindspore
from mindspore import ops
from mindspore.ops import communication as comm_func

__all__ = [
    "ExchangeArguments",
    "FlatArguments",
    "all_gather",
    "all_to_all",
    "exchange_arguments",
    "gather_arguments",
    "is_ascend",
    "reduce_scatter",
    "reduce_scatter_arguments",
]


class FlatArguments(NamedTuple):
    """Of ``ops.AllGatherV`` and ``ops.ReduceScatterV``."""

    element_splits: tuple[int, ...]
    """Elements of each member, of the flat tensor."""
    output_shape: tuple[int, ...]
    """What the flat result is reshaped to."""


class ExchangeArguments(NamedTuple):
    """Of ``all_to_all_single``."""

    output_shape: tuple[int, ...]
    output_split_sizes: tuple[int, ...]
    """Rows from each member."""
    input_split_sizes: tuple[int, ...]
    """Rows for each member."""


def is_ascend() -> bool:
    """Whether this process computes on Ascend."""
    return bool(mindspore.get_context("device_target") == "Ascend")


def gather_arguments(shape: Sequence[int], output_splits: Sequence[int]) -> FlatArguments:
    """Of the gather of tensors of ``shape``, by row splits: each is multiplied by the elements of a row.

    Example:
        >>> gather_arguments((2, 4, 8), (2, 3))
        FlatArguments(element_splits=(64, 96), output_shape=(5, 4, 8))
    """
    row = tuple(shape[1:])
    elements = math.prod(row)
    return FlatArguments(tuple(rows * elements for rows in output_splits), (sum(output_splits), *row))


def reduce_scatter_arguments(shape: Sequence[int], input_splits: Sequence[int], index: int) -> FlatArguments:
    """Of the reduce-scatter of tensors of ``shape`` on the member at ``index``.

    Example:
        >>> reduce_scatter_arguments((5, 4), (2, 3), 1)
        FlatArguments(element_splits=(8, 12), output_shape=(3, 4))
    """
    row = tuple(shape[1:])
    elements = math.prod(row)
    return FlatArguments(tuple(rows * elements for rows in input_splits), (input_splits[index], *row))


def exchange_arguments(
    shape: Sequence[int], input_splits: Sequence[int], output_splits: Sequence[int]
) -> ExchangeArguments:
    """Of the exchange of a tensor of ``shape``; that of its gradient has the two lists swapped.

    Example:
        >>> exchange_arguments((5, 4), (2, 3), (1, 3))
        ExchangeArguments(output_shape=(4, 4), output_split_sizes=(1, 3), input_split_sizes=(2, 3))
    """
    return ExchangeArguments((sum(output_splits), *shape[1:]), tuple(output_splits), tuple(input_splits))


def all_gather(tensor: mindspore.Tensor, output_splits: Sequence[int], group: str) -> mindspore.Tensor:
    """The members' rows end to end."""
    splits, shape = gather_arguments(tensor.shape, output_splits)
    return ops.AllGatherV(group)(tensor.reshape(-1), list(splits)).reshape(shape)


def reduce_scatter(tensor: mindspore.Tensor, input_splits: Sequence[int], index: int, group: str) -> mindspore.Tensor:
    """The rows of the member at ``index``, summed over the members."""
    splits, shape = reduce_scatter_arguments(tensor.shape, input_splits, index)
    result = ops.ReduceScatterV(ops.ReduceOp.SUM, group)(tensor.reshape(-1), list(splits))
    # Of a result without elements MindSpore gives a tensor without dims.
    return result.reshape(shape) if math.prod(shape) else ops.zeros(shape, tensor.dtype)


def all_to_all(
    tensor: mindspore.Tensor, input_splits: Sequence[int], output_splits: Sequence[int], group: str
) -> mindspore.Tensor:
    """The rows that each member has for this one, end to end."""
    shape, received, sent = exchange_arguments(tensor.shape, input_splits, output_splits)
    output = ops.zeros(shape, tensor.dtype)
    comm_func.all_to_all_single(output, tensor, received, sent, group)
    return output
