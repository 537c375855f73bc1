"""Split lists: how many rows of dim 0 each member of a group contributes to, or gets from, a variable collective.

A split list has one entry per member, in group order, none negative; [] is not [0, 0].
"""

from __future__ import annotations

from collections.abc import Sequence

import mindspore

from hyper_parallel.errors import ArgumentTypeError, InvalidArgumentError
from hyper_parallel.mindspore._frames import is_dtensor
from hyper_parallel.mindspore._graph import is_tracked

__all__ = [
    "check_group",
    "check_has_rows",
    "check_input",
    "check_splits",
    "check_splits_cover",
    "describe_rows",
    "integers",
]


def check_input(value: object, operation: str) -> mindspore.Tensor:
    """The input of a collective.

    Raises:
        ArgumentTypeError: It is no plain tensor.
    """
    if not isinstance(value, mindspore.Tensor) or is_dtensor(value):
        raise ArgumentTypeError(f"{operation}: input_tensor must be a plain mindspore.Tensor, not {value!r}")
    return value


def check_group(value: object, operation: str) -> str:
    """The name of a group.

    Raises:
        ArgumentTypeError: It is no name.
    """
    if not isinstance(value, str):
        raise ArgumentTypeError(f"{operation}: group must be the name of a process group, not {value!r}")
    return value


def integers(values: object, argument: str) -> tuple[int, ...]:
    """A split list as a tuple.

    Raises:
        ArgumentTypeError: It is no list, tuple or range of ints.
    """
    if not isinstance(values, tuple | list | range):
        raise ArgumentTypeError(f"{argument} is {values!r} but must be a tuple of ints")
    for index, value in enumerate(values):
        if isinstance(value, bool) or not isinstance(value, int):
            raise ArgumentTypeError(f"{argument}[{index}] is {value!r} but must be an int")
    return tuple(values)


def check_splits(operation: str, argument: str, splits: Sequence[int], group_size: int) -> None:
    """Raises unless there is an entry for each member and none is negative.

    Raises:
        InvalidArgumentError: As said.
    """
    if len(splits) != group_size:
        raise InvalidArgumentError(
            f"{operation}: {argument} has {len(splits)} entries but the group has {group_size} members"
        )
    for index, count in enumerate(splits):
        if count < 0:
            raise InvalidArgumentError(
                f"{operation}: {argument}[{index}] is {count} but row counts must not be negative"
            )


def check_has_rows(operation: str, tensor: mindspore.Tensor) -> None:
    """Raises where there is no dim 0.

    Raises:
        InvalidArgumentError: As said.
    """
    if tensor.ndim == 0:
        raise InvalidArgumentError(f"{operation}: input has no dims but splits count rows of dim 0")


def check_splits_cover(operation: str, argument: str, splits: tuple[int, ...], tensor: mindspore.Tensor) -> None:
    """Raises unless the entries sum to the rows of the tensor.

    Raises:
        InvalidArgumentError: As said.
    """
    if sum(splits) != tensor.shape[0]:
        raise InvalidArgumentError(
            f"{operation}: {argument} {splits} sums to {sum(splits)} but input has {tensor.shape[0]} rows"
        )


def describe_rows(argument: str, tensor: mindspore.Tensor) -> str:
    """What all members must agree on: dtype, the shape behind dim 0, and whether a backward will follow."""
    tracked = "true" if is_tracked(tensor) else "false"
    return f"{argument}: dtype {tensor.dtype}, row shape {tuple(tensor.shape[1:])}, requires_grad {tracked}"
