"""Redistribution of local tensors, differentiable: the graph of a DTensor lies on its local tensors.

What moves where is the core's: a ``RankPlan`` for the values, and a ``Redistribution`` for the gradient, whose backward
takes it from where it lies to the gradient layout of the source. That is a redistribution again, so gradients of any
order follow from the same function.

    Shard, ragged -> Replicate        a slice
    Replicate -> Shard, ragged        an all-gather
    Partial -> anything               the incoming gradient on every rank; avg: divided by the group's size;
                                      max, min: shared equally among the ranks that hold the extreme
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mindspore
import numpy as np
from mindspore.common._grad_function import _Function

from hyper_parallel import _core, platform
from hyper_parallel.errors import ArgumentTypeError
from hyper_parallel.mindspore._graph import is_tracked
from hyper_parallel.mindspore._group_check import check_mesh_together
from hyper_parallel.mindspore._host import Bytes, bytes_of, dtype_name, item_bytes, tensor_of
from hyper_parallel.mindspore._local_calls import kind_of
from hyper_parallel.mindspore._messages import Message, exchange_messages
from hyper_parallel.mindspore._texts import describe, placements_text

__all__ = ["behind_share_node", "redistribute_local", "run_plan"]


def redistribute_local(local: mindspore.Tensor, move: _core.Redistribution) -> mindspore.Tensor:
    """This rank's local tensor of ``move.target``, from that of ``move.source``.

    Every rank of the mesh must call alike.

    Args:
        local: This rank's part.
        move: Where from, where to, and how the gradient of the result lies.

    Returns:
        ``local`` itself if nothing moves, in either direction where gradients come back. Differentiable any number of
        times.

    Raises:
        FailedPreconditionError: Communication failed.
    """
    if not is_tracked(local):
        return local if move.source == move.target else run_plan(local, move.source, move.target, move.shape)
    if move.is_identity:
        return local
    for part in move.parts:
        local = _RedistributeLocal.apply(local, part)
    return local


def behind_share_node(local: mindspore.Tensor, layout: _core.Layout, shape: Sequence[int]) -> mindspore.Tensor:
    """A share that this rank has computed, where gradients of second order find that it has.

    All ranks have the gradient of a pending sum alike, and each goes on with it for its own cells: what comes back to
    it in a second backward pass are shares, which are summed here.

    Args:
        local: The share; itself where it is not in the graph, or the tensor is no pending sum.
        layout: How the tensor lies.
        shape: Its logical shape.
    """
    use = _core.use_of_gradient(layout, shape) if is_tracked(local) else None
    return local if use is None else _ShareNode.apply(local, use)


def run_plan(
    local: mindspore.Tensor, source: _core.Layout, target: _core.Layout, shape: Sequence[int]
) -> mindspore.Tensor:
    """The values alone, outside the graph; ``local`` itself where it is what the target wants.

    Raises:
        ArgumentTypeError: The largest or smallest of complex numbers is wanted.
        FailedPreconditionError: Communication failed.
    """
    plan = _core.plan_redistribution(source, target, shape, platform.get_rank())
    if not plan.steps:
        return local
    _check_reduced(local.dtype, source, target)
    data = bytes_of(local)
    for step in plan.steps:
        data = (_reduced if step.is_reduction else _moved)(step, data, local.dtype)
    return tensor_of(data, local.dtype, plan.target_shape)


def _moved(step: _core.RankStep, source: Bytes, dtype: mindspore.Type) -> Bytes:
    """Sends what others want, receives what is wanted, and keeps what stays."""
    size = item_bytes(dtype)
    target: Bytes = np.empty(step.target_numel * size, np.uint8)
    receives = _places(step.receives, size)
    exchange_messages(_packed(step, source, size), receives, meanwhile=lambda: step.copy_own(source, target, size))
    for index, message in enumerate(receives):
        step.unpack(index, message.data, target, size)
    return target


def _reduced(step: _core.RankStep, source: Bytes, dtype: mindspore.Type) -> Bytes:
    """Sends each rank the share of what it reduces, and combines its own with those received."""
    size = item_bytes(dtype)
    target: Bytes = np.empty(step.target_numel * size, np.uint8)
    receives = _places(step.receives, size)
    exchange_messages(_packed(step, source, size), receives)
    terms = [source, *(message.data for message in receives)]
    if dtype != mindspore.complex128:
        step.combine(terms[0], terms[1:], target, dtype_name(dtype))
        return target
    # The core has no arithmetic for these; sums and averages are those of the two parts.
    for part in range(2):
        parts = [np.ascontiguousarray(term.view(np.float64)[part::2]) for term in terms]
        combined = np.empty(step.target_numel, np.float64)
        step.combine(parts[0], parts[1:], combined, "F64")
        target.view(np.float64)[part::2] = combined
    return target


def _check_reduced(dtype: mindspore.Type, source: _core.Layout, target: _core.Layout) -> None:
    """Raises before anything is sent where complex numbers are to be put in order."""
    if kind_of(dtype) < kind_of(mindspore.complex64):
        return
    for before, after in zip(source.placements, target.placements, strict=True):
        for extreme in ("max", "min"):
            if before.is_partial(extreme) and before != after:
                raise ArgumentTypeError(f"redistribute: the input is complex, which has no {extreme}")


def _packed(step: _core.RankStep, source: Bytes, size: int) -> list[Message]:
    messages = _places(step.sends, size)
    for index, message in enumerate(messages):
        step.pack(index, source, message.data, size)
    return messages


def _places(transfers: Sequence[tuple[int, int]], size: int) -> list[Message]:
    return [Message(peer, np.empty(numel * size, np.uint8)) for peer, numel in transfers]


class _ShareNode(_Function):  # type: ignore[misc]  # MindSpore has no types
    @staticmethod
    def forward(ctx: Any, local: mindspore.Tensor, use: _core.Redistribution) -> mindspore.Tensor:  # noqa: ANN401
        ctx.use = use
        return local.copy()

    @staticmethod
    def backward(ctx: Any, gradient: mindspore.Tensor) -> tuple[mindspore.Tensor, None]:  # noqa: ANN401
        return redistribute_local(gradient, ctx.use), None


class _RedistributeLocal(_Function):  # type: ignore[misc]  # MindSpore has no types
    @staticmethod
    def forward(ctx: Any, local: mindspore.Tensor, move: _core.Redistribution) -> mindspore.Tensor:  # noqa: ANN401
        ctx.move = move
        ctx.share = local if move.extreme is not None else None
        result = run_plan(local, move.source, move.target, move.shape)
        # MindSpore leaves an input that is returned where it was in the graph.
        return result.copy() if result is local else result

    @staticmethod
    def backward(ctx: Any, gradient: mindspore.Tensor) -> tuple[mindspore.Tensor, None]:  # noqa: ANN401
        move: _core.Redistribution = ctx.move
        check_mesh_together(
            move.source.core_mesh,
            "backward of redistribute",
            lambda: None,
            lambda: f"{describe(move.incoming, move.shape, gradient)} to {placements_text(move.source)}",
        )
        result = redistribute_local(gradient, move.backward)
        if move.divisor != 1:
            result = result / move.divisor
        if ctx.share is not None:
            result = result * _extreme_weight(ctx.share, move)
        return result, None


def _extreme_weight(share: mindspore.Tensor, move: _core.Redistribution) -> mindspore.Tensor:
    """What a rank's share of the gradient of a max or min is worth: 1 / (ranks that hold the extreme) where it holds
    it, else 0. A constant to the graph: it changes nowhere but where the holders do."""
    extreme = move.extreme
    assert extreme is not None
    whole = run_plan(share, move.source, extreme.reduced, move.shape)
    # As arrays also of no dim, where numpy gives numbers.
    holds = np.asarray(share.asnumpy() == whole.asnumpy(), np.float64)
    counts = run_plan(mindspore.Tensor.from_numpy(holds), extreme.counted, extreme.everywhere, move.shape)
    with np.errstate(invalid="ignore"):  # a NaN is held by nobody, and its gradient is NaN
        weight = np.asarray(holds / counts.asnumpy())
    return mindspore.Tensor.from_numpy(weight).astype(share.dtype)
