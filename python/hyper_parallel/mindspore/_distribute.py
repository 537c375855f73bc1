"""From a whole tensor to its parts: which cells each rank gets is the core's geometry."""

from __future__ import annotations

import math
from collections.abc import Sequence

import mindspore
import numpy as np

from hyper_parallel import _core
from hyper_parallel.errors import InvalidArgumentError, OutOfRangeError
from hyper_parallel.mindspore._group_check import check_mesh_together
from hyper_parallel.mindspore._host import Bytes, bytes_of, item_bytes, tensor_of
from hyper_parallel.mindspore._messages import Message, exchange_messages
from hyper_parallel.mindspore._texts import describe, placements_text

__all__ = ["local_part"]


def local_part(whole: mindspore.Tensor, layout: _core.Layout, source: int | None, rank: int) -> mindspore.Tensor:
    """This rank's part of a whole tensor, in memory of its own; outside the mesh no elements.

    Args:
        whole: Of the same shape and dtype on all ranks.
        layout: Folded, and checked against the shape.
        source: Whose values count, as for ``distribute_tensor``.
        rank: This process's.

    Raises:
        InvalidArgumentError: A Partial placement.
        OutOfRangeError: ``source`` is outside its group.
    """
    shape = tuple(whole.shape)
    if any(placement.is_partial() for placement in layout.placements):
        raise InvalidArgumentError(
            f"distribute: placements {placements_text(layout)} hold Partial, but a whole tensor is no share of a "
            "pending reduction"
        )
    senders = None if source is None else _senders(layout, source)
    if source is not None:
        check_mesh_together(
            layout.core_mesh, "distribute", lambda: None, lambda: f"{describe(layout, shape, whole)} from {source}"
        )
    ranks = layout.core_mesh.rank_list
    if rank not in ranks:
        return tensor_of(np.empty(0, np.uint8), whole.dtype, (0,))
    own = ranks.index(rank)
    data = _part(whole, layout, own) if senders is None else _received_part(whole, layout, own, senders)
    return tensor_of(data, whole.dtype, _core.local_shape(layout, shape, own))


def _senders(layout: _core.Layout, source: int) -> list[int]:
    """For each position in the mesh the position whose values it gets.

    With RaggedShard ``source`` counts along its mesh dim, for each coordinate of the others; else one position has it
    along every mesh dim.
    """
    mesh = layout.core_mesh
    ragged = layout.ragged
    counted = range(mesh.ndim) if ragged is None else [ragged[0]]
    for dim in counted:
        if not 0 <= source < mesh.shape[dim]:
            raise OutOfRangeError(
                f"distribute: source {source} is out of range for mesh dim '{mesh.mesh_dim_names[dim]}' of size "
                f"{mesh.shape[dim]}; it counts inside the group"
            )
    positions = np.arange(mesh.size()).reshape(mesh.shape)
    holders = positions
    for dim in counted:
        holders = np.take(holders, [source], axis=dim)
    return [int(holder) for holder in np.broadcast_to(holders, positions.shape).ravel()]


def _received_part(whole: mindspore.Tensor, layout: _core.Layout, own: int, senders: Sequence[int]) -> Bytes:
    """This rank's part as its sender has it. A sender hands their parts to all whom it serves."""
    ranks = layout.core_mesh.rank_list
    if senders[own] != own:
        data: Bytes = np.empty(_part_bytes(whole, layout, own), np.uint8)
        exchange_messages([], [Message(ranks[senders[own]], data)])
        return data
    served = [position for position, sender in enumerate(senders) if sender == own and position != own]
    exchange_messages([Message(ranks[position], _part(whole, layout, position)) for position in served], [])
    return _part(whole, layout, own)


def _part(whole: mindspore.Tensor, layout: _core.Layout, position: int) -> Bytes:
    """The part of one position, copied out of this rank's tensor."""
    shape = tuple(whole.shape)
    cells = bytes_of(whole).reshape(*shape, item_bytes(whole.dtype))
    boxes = [
        cells[tuple(slice(begin, begin + count) for begin, count in zip(offsets, sizes, strict=True))].reshape(-1)
        for offsets, sizes in _core.owned_boxes(layout, shape, position)
    ]
    return np.concatenate(boxes) if boxes else np.empty(0, np.uint8)


def _part_bytes(whole: mindspore.Tensor, layout: _core.Layout, position: int) -> int:
    return math.prod(_core.local_shape(layout, tuple(whole.shape), position)) * item_bytes(whole.dtype)
