"""The differentiable collectives of variable length on torch tensors."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist

from hyper_parallel import _torch

__all__ = [
    "differentiable_all_to_all_single",
    "differentiable_variable_all_gather",
    "differentiable_variable_reduce_scatter",
]


def differentiable_variable_all_gather(
    input_tensor: torch.Tensor, output_splits: Sequence[int], group: dist.ProcessGroup
) -> torch.Tensor:
    """Concatenates the members' rows, unequally many, on every member.

    Its gradient is the exact adjoint for the sum of all ranks' losses: the variable reduce-scatter of the incoming
    gradients. Every member must run backward if any does.

    Args:
        input_tensor: Shape ``(output_splits[rank], ...)``, any strides; zero rows are fine.
        output_splits: How many rows of dim 0 each member has; the same list on all of them.
        group: The process group.

    Returns:
        A new contiguous tensor of shape ``(sum(output_splits), ...)``.

    Raises:
        ArgumentTypeError: An argument of another type, None for the group or the splits among them.
        InvalidArgumentError: A list of another length than the group, a negative entry, or an own entry that is not the
            input's rows.
        FailedPreconditionError: Communication failed; with ``HYPER_PARALLEL_CHECK=1`` also, on every member at once,
            where they disagree.

    Example:
        >>> differentiable_variable_all_gather(torch.tensor([1, 2]), [2], torch.distributed.group.WORLD)
        tensor([1, 2])
    """
    return _torch.differentiable_variable_all_gather(input_tensor, output_splits, group)


def differentiable_all_to_all_single(
    input_tensor: torch.Tensor,
    input_splits: Sequence[int],
    output_splits: Sequence[int],
    group: dist.ProcessGroup,
) -> torch.Tensor:
    """Exchanges rows between all members: member r gets ``input_splits[r]`` of this member's rows.

    Its gradient is the reverse exchange: the exact adjoint for the sum of all ranks' losses. Every member must run
    backward if any does.

    Args:
        input_tensor: Shape ``(sum(input_splits), ...)``, any strides.
        input_splits: How many rows of dim 0 go to each member.
        output_splits: How many rows come from each member, kept in the order of the members.
        group: The process group.

    Returns:
        A new contiguous tensor of shape ``(sum(output_splits), ...)``.

    Raises:
        ArgumentTypeError: An argument of another type, None for the group or the splits among them.
        InvalidArgumentError: A list of another length than the group, a negative entry, input_splits that do not sum to
            the input's rows, or own entries of the two lists that differ.
        FailedPreconditionError: Communication failed; with ``HYPER_PARALLEL_CHECK=1`` also, on every member at once,
            where they disagree.

    Example:
        >>> differentiable_all_to_all_single(torch.tensor([1, 2]), [2], [2], torch.distributed.group.WORLD)
        tensor([1, 2])
    """
    return _torch.differentiable_all_to_all_single(input_tensor, input_splits, output_splits, group)


def differentiable_variable_reduce_scatter(
    input_tensor: torch.Tensor, input_splits: Sequence[int], group: dist.ProcessGroup
) -> torch.Tensor:
    """Sums the members' tensors and keeps this member's rows: the adjoint of the variable all-gather.

    Its gradient is the variable all-gather of the incoming gradients. Every member must run backward if any does.

    Args:
        input_tensor: Shape ``(sum(input_splits), ...)``, any strides.
        input_splits: How many rows of dim 0 each member keeps; the same list on all of them.
        group: The process group.

    Returns:
        A new contiguous tensor of shape ``(input_splits[rank], ...)``.

    Raises:
        ArgumentTypeError: An argument of another type, None for the group or the splits among them.
        InvalidArgumentError: A list of another length than the group, a negative entry, or a sum that is not the
            input's rows.
        FailedPreconditionError: Communication failed; with ``HYPER_PARALLEL_CHECK=1`` also, on every member at once,
            where they disagree.

    Example:
        >>> differentiable_variable_reduce_scatter(torch.tensor([1, 2]), [2], torch.distributed.group.WORLD)
        tensor([1, 2])
    """
    return _torch.differentiable_variable_reduce_scatter(input_tensor, input_splits, group)
