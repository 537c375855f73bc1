"""The differentiable collectives of variable length on MindSpore tensors.

On Ascend they are the specification's: ``ops.AllGatherV``, which counts elements, so that row splits are multiplied,
and ``all_to_all_single`` with its splits swapped in the backward. MindSpore's CPU has neither: there the same rows go
from point to point.
"""

from __future__ import annotations

from collections.abc import Sequence

import mindspore

from hyper_parallel.mindspore import _variable_collectives

__all__ = [
    "differentiable_all_to_all_single",
    "differentiable_variable_all_gather",
    "differentiable_variable_reduce_scatter",
]


def differentiable_variable_all_gather(
    input_tensor: mindspore.Tensor, output_splits: Sequence[int], group: str
) -> mindspore.Tensor:
    """Concatenates the members' rows, unequally many, on every member.

    Its gradient is the exact adjoint for the sum of all ranks' losses: the variable reduce-scatter of the incoming
    gradients. Every member must run backward if any does.

    Args:
        input_tensor: Shape ``(output_splits[rank], ...)``, any strides; zero rows are fine.
        output_splits: How many rows of dim 0 each member has; the same list on all of them.
        group: The name of the process group.

    Returns:
        A new contiguous tensor of shape ``(sum(output_splits), ...)``.

    Raises:
        ArgumentTypeError: An argument of another type, None for the group or the splits among them.
        InvalidArgumentError: A list of another length than the group, a negative entry, or an own entry that is not the
            input's rows.
        FailedPreconditionError: Communication failed; with ``HYPER_PARALLEL_CHECK=1`` also, on every member at once,
            where they disagree.

    Example:
        >>> group = init_device_mesh("cpu", (1,)).get_group()
        >>> differentiable_variable_all_gather(mindspore.Tensor([1, 2]), [2], group).asnumpy().tolist()
        [1, 2]
    """
    return _variable_collectives.all_gather(input_tensor, output_splits, group)


def differentiable_all_to_all_single(
    input_tensor: mindspore.Tensor,
    input_splits: Sequence[int],
    output_splits: Sequence[int],
    group: str,
) -> mindspore.Tensor:
    """Exchanges rows between all members: member r gets ``input_splits[r]`` of this member's rows.

    Its gradient is the reverse exchange: the exact adjoint for the sum of all ranks' losses. Every member must run
    backward if any does.

    Args:
        input_tensor: Shape ``(sum(input_splits), ...)``, any strides.
        input_splits: How many rows of dim 0 go to each member.
        output_splits: How many rows come from each member, kept in the order of the members.
        group: The name of the process group.

    Returns:
        A new contiguous tensor of shape ``(sum(output_splits), ...)``.

    Raises:
        ArgumentTypeError: An argument of another type, None for the group or the splits among them.
        InvalidArgumentError: A list of another length than the group, a negative entry, input_splits that do not sum to
            the input's rows, or own entries of the two lists that differ.
        FailedPreconditionError: Communication failed; with ``HYPER_PARALLEL_CHECK=1`` also, on every member at once,
            where they disagree.

    Example:
        >>> group = init_device_mesh("cpu", (1,)).get_group()
        >>> differentiable_all_to_all_single(mindspore.Tensor([1, 2]), [2], [2], group).asnumpy().tolist()
        [1, 2]
    """
    return _variable_collectives.all_to_all(input_tensor, input_splits, output_splits, group)


def differentiable_variable_reduce_scatter(
    input_tensor: mindspore.Tensor, input_splits: Sequence[int], group: str
) -> mindspore.Tensor:
    """Sums the members' tensors and keeps this member's rows: the adjoint of the variable all-gather.

    Its gradient is the variable all-gather of the incoming gradients. Every member must run backward if any does.

    Args:
        input_tensor: Shape ``(sum(input_splits), ...)``, any strides.
        input_splits: How many rows of dim 0 each member keeps; the same list on all of them.
        group: The name of the process group.

    Returns:
        A new contiguous tensor of shape ``(input_splits[rank], ...)``.

    Raises:
        ArgumentTypeError: An argument of another type, None for the group or the splits among them.
        InvalidArgumentError: A list of another length than the group, a negative entry, or a sum that is not the
            input's rows.
        FailedPreconditionError: Communication failed; with ``HYPER_PARALLEL_CHECK=1`` also, on every member at once,
            where they disagree.

    Example:
        >>> group = init_device_mesh("cpu", (1,)).get_group()
        >>> differentiable_variable_reduce_scatter(mindspore.Tensor([1, 2]), [2], group).asnumpy().tolist()
        [1, 2]
    """
    return _variable_collectives.reduce_scatter(input_tensor, input_splits, group)
