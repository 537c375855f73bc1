"""The variable collectives with their gradients: a gather's is a reduce-scatter, an exchange's the reverse exchange.

MindSpore's own derivatives of collectives are wrong or missing on the CPU; each of these is a function of its own whose
backward calls the other, so that gradients of any order are exact adjoints.

On the CPU a gather is the redistribution of a ragged tensor to Replicate, and a reduce-scatter that of a pending sum to
ragged: the core plans and combines them, in mesh order, for every dtype.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

import mindspore
import numpy as np
from mindspore.common._grad_function import _Function

from hyper_parallel import _core, platform
from hyper_parallel.errors import ArgumentTypeError, FailedPreconditionError, InvalidArgumentError
from hyper_parallel.mindspore import _ascend_calls
from hyper_parallel.mindspore._graph import check_mode
from hyper_parallel.mindspore._group_check import Participants, RankReport, validate_together
from hyper_parallel.mindspore._host import Bytes, bytes_of, item_bytes, tensor_of
from hyper_parallel.mindspore._messages import Message, exchange_messages
from hyper_parallel.mindspore._redistribute import run_plan
from hyper_parallel.mindspore._split_lists import (
    check_group,
    check_has_rows,
    check_input,
    check_splits,
    check_splits_cover,
    describe_rows,
    integers,
)
from hyper_parallel.placement import Partial, RaggedShard, Replicate
from hyper_parallel.platform import _mindspore

__all__ = ["all_gather", "all_to_all", "reduce_scatter"]

_GATHER = "differentiable_variable_all_gather"
_EXCHANGE = "differentiable_all_to_all_single"
_REDUCE_SCATTER = "variable_reduce_scatter"


class _Group:
    """The members of a group, and this rank among them."""

    def __init__(self, name: object, operation: str) -> None:
        check_mode(operation)
        self.name = check_group(name, operation)
        self.ranks = _mindspore.group_ranks(self.name)
        self.index = self.ranks.index(platform.get_rank())

    def participants(self) -> Participants:
        """Called by their position in the group."""
        return Participants(f"group/{','.join(map(str, self.ranks))}", tuple(range(len(self.ranks))), self.index)

    def layout(self, placement: Any) -> _core.Layout:  # noqa: ANN401  (any of the placements)
        """The group as a mesh of one dim."""
        return _core.Layout(_core.DeviceMesh((len(self.ranks),), ("group",), self.ranks), [placement])


# --- gather ----------------------------------------------------------------------------------------------------------


def all_gather(input_tensor: object, output_splits: object, group: object) -> mindspore.Tensor:
    """See ``differentiable_variable_all_gather``."""
    tensor = check_input(input_tensor, _GATHER)
    splits = integers(output_splits, "output_splits")
    members = _Group(group, _GATHER)

    def validate() -> None:
        check_has_rows(_GATHER, tensor)
        check_splits(_GATHER, "output_splits", splits, len(members.ranks))
        if splits[members.index] != tensor.shape[0]:
            raise InvalidArgumentError(
                f"{_GATHER}: output_splits[{members.index}] is {splits[members.index]} but this rank's input has "
                f"{tensor.shape[0]} rows"
            )

    validate_together(
        members.participants(),
        _GATHER,
        validate,
        lambda: RankReport(f"output_splits {splits}, {describe_rows('input', tensor)}"),
    )
    return _AllGather.apply(tensor, splits, members)


class _AllGather(_Function):  # type: ignore[misc]  # MindSpore has no types
    @staticmethod
    def forward(ctx: Any, tensor: mindspore.Tensor, splits: tuple[int, ...], members: _Group) -> mindspore.Tensor:  # noqa: ANN401
        ctx.call = (splits, members.name)
        shape = (sum(splits), *tensor.shape[1:])
        if math.prod(shape) == 0:
            return _empty(tensor, shape)
        if _ascend_calls.is_ascend():
            return _ascend_calls.all_gather(tensor, splits, members.name)
        ragged, whole = members.layout(RaggedShard((0,), splits)), members.layout(Replicate())
        return _own(run_plan(tensor.reshape(-1), ragged, whole, shape), tensor).reshape(shape)

    @staticmethod
    def backward(ctx: Any, gradient: mindspore.Tensor) -> tuple[mindspore.Tensor, None, None]:  # noqa: ANN401
        splits, group = ctx.call
        return reduce_scatter(gradient, splits, group), None, None


# --- reduce-scatter --------------------------------------------------------------------------------------------------


def reduce_scatter(input_tensor: object, input_splits: object, group: object) -> mindspore.Tensor:
    """See ``differentiable_variable_reduce_scatter``."""
    tensor = check_input(input_tensor, f"differentiable_{_REDUCE_SCATTER}")
    splits = integers(input_splits, "input_splits")
    members = _Group(group, f"differentiable_{_REDUCE_SCATTER}")

    def validate() -> None:
        check_has_rows(_REDUCE_SCATTER, tensor)
        if tensor.dtype == mindspore.bool_:
            raise ArgumentTypeError(f"{_REDUCE_SCATTER}: the input is bool, which has no sum")
        check_splits(_REDUCE_SCATTER, "input_splits", splits, len(members.ranks))
        check_splits_cover(_REDUCE_SCATTER, "input_splits", splits, tensor)

    validate_together(
        members.participants(),
        _REDUCE_SCATTER,
        validate,
        lambda: RankReport(f"sum, input_splits {splits}, {describe_rows('input', tensor)}"),
    )
    return _ReduceScatter.apply(tensor, splits, members)


class _ReduceScatter(_Function):  # type: ignore[misc]  # MindSpore has no types
    @staticmethod
    def forward(ctx: Any, tensor: mindspore.Tensor, splits: tuple[int, ...], members: _Group) -> mindspore.Tensor:  # noqa: ANN401
        ctx.call = (splits, members.name)
        shape = (splits[members.index], *tensor.shape[1:])
        if tensor.size == 0:
            return _empty(tensor, shape)
        if _ascend_calls.is_ascend():
            return _ascend_calls.reduce_scatter(tensor, splits, members.index, members.name)
        shares, ragged = members.layout(Partial()), members.layout(RaggedShard((0,), splits))
        return _own(run_plan(tensor, shares, ragged, tuple(tensor.shape)), tensor).reshape(shape)

    @staticmethod
    def backward(ctx: Any, gradient: mindspore.Tensor) -> tuple[mindspore.Tensor, None, None]:  # noqa: ANN401
        splits, group = ctx.call
        return all_gather(gradient, splits, group), None, None


# --- exchange --------------------------------------------------------------------------------------------------------


def all_to_all(input_tensor: object, input_splits: object, output_splits: object, group: object) -> mindspore.Tensor:
    """See ``differentiable_all_to_all_single``."""
    tensor = check_input(input_tensor, _EXCHANGE)
    sent = integers(input_splits, "input_splits")
    received = integers(output_splits, "output_splits")
    members = _Group(group, _EXCHANGE)

    def validate() -> None:
        check_has_rows(_EXCHANGE, tensor)
        check_splits(_EXCHANGE, "input_splits", sent, len(members.ranks))
        check_splits(_EXCHANGE, "output_splits", received, len(members.ranks))
        check_splits_cover(_EXCHANGE, "input_splits", sent, tensor)
        own = members.index
        if sent[own] != received[own]:
            raise InvalidArgumentError(
                f"{_EXCHANGE}: rank {own} sends itself {sent[own]} rows (input_splits {sent}) but expects "
                f"{received[own]} from itself (output_splits {received})"
            )

    details = validate_together(
        members.participants(),
        _EXCHANGE,
        validate,
        lambda: RankReport(describe_rows("input", tensor), json.dumps((sent, received))),
    )
    _check_lists_match(details)
    return _AllToAll.apply(tensor, sent, received, members)


def _check_lists_match(details: Sequence[str]) -> None:
    """Every rank sees all lists and finds the same first pair that does not match."""
    lists = [json.loads(detail) for detail in details]
    for sender, (sent, _) in enumerate(lists):
        for receiver, (_, received) in enumerate(lists):
            if sent[receiver] != received[sender]:
                raise FailedPreconditionError(
                    f"{_EXCHANGE}: rank {sender} sends {sent[receiver]} rows to rank {receiver} (input_splits "
                    f"{tuple(sent)}), which expects {received[sender]} (output_splits {tuple(received)})"
                )


class _AllToAll(_Function):  # type: ignore[misc]  # MindSpore has no types
    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401
        tensor: mindspore.Tensor,
        sent: tuple[int, ...],
        received: tuple[int, ...],
        members: _Group,
    ) -> mindspore.Tensor:
        ctx.call = (received, sent, members.name)
        if _ascend_calls.is_ascend():
            return _ascend_calls.all_to_all(tensor, sent, received, members.name)
        shape = (sum(received), *tensor.shape[1:])
        return tensor_of(_exchanged(tensor, sent, received, members), tensor.dtype, shape)

    @staticmethod
    def backward(ctx: Any, gradient: mindspore.Tensor) -> tuple[mindspore.Tensor, None, None, None]:  # noqa: ANN401
        return all_to_all(gradient, *ctx.call), None, None, None


def _exchanged(tensor: mindspore.Tensor, sent: tuple[int, ...], received: tuple[int, ...], members: _Group) -> Bytes:
    row = item_bytes(tensor.dtype) * math.prod(tensor.shape[1:])
    data = bytes_of(tensor)
    output: Bytes = np.empty(sum(received) * row, np.uint8)
    leaving, arriving = _pieces(data, sent, row), _pieces(output, received, row)
    own = members.index
    peers = [(index, rank) for index, rank in enumerate(members.ranks) if index != own]
    exchange_messages(
        [Message(rank, leaving[index]) for index, rank in peers],
        [Message(rank, arriving[index]) for index, rank in peers],
        meanwhile=lambda: np.copyto(arriving[own], leaving[own]),
    )
    return output


def _pieces(data: Bytes, splits: Sequence[int], row: int) -> list[Bytes]:
    """The rows of each member, as views."""
    ends = accumulate((rows * row for rows in splits), initial=0)
    return [data[begin:end] for begin, end in pairwise(ends)]


def _empty(tensor: mindspore.Tensor, shape: Sequence[int]) -> mindspore.Tensor:
    return tensor_of(np.empty(0, np.uint8), tensor.dtype, shape)


def _own(result: mindspore.Tensor, given: mindspore.Tensor) -> mindspore.Tensor:
    """The result in memory of its own, where nothing had to move."""
    shared = result.asnumpy().ctypes.data == given.asnumpy().ctypes.data
    return result.copy() if shared else result
