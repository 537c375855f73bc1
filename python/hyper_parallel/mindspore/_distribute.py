"""From a whole tensor to its parts: which cells each rank gets is the core's geometry."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import mindspore
import numpy as np

from hyper_parallel import _core, platform
from hyper_parallel.errors import InvalidArgumentError, OutOfRangeError
from hyper_parallel.mindspore import _frames
from hyper_parallel.mindspore._arguments import integer, layout_on, plain_tensor
from hyper_parallel.mindspore._graph import check_mode
from hyper_parallel.mindspore._group_check import check_mesh_together
from hyper_parallel.mindspore._host import Bytes, bytes_of, item_bytes, tensor_of
from hyper_parallel.mindspore._messages import Message, exchange_messages
from hyper_parallel.mindspore._shares import TensorShare
from hyper_parallel.mindspore._texts import describe, placements_text

if TYPE_CHECKING:
    from hyper_parallel.device_mesh import DeviceMesh
    from hyper_parallel.mindspore.dtensor import DTensor
    from hyper_parallel.placement import Placement

__all__ = ["distribute_tensor"]


def distribute_tensor(
    tensor: mindspore.Tensor,
    device_mesh: DeviceMesh,
    placements: Sequence[Placement],
    src_data_rank: int | None = None,
) -> DTensor:
    """Spreads a whole tensor over a mesh.

    Args:
        tensor: The whole tensor, of any strides; shape and dtype agree on all ranks.
        device_mesh: The mesh.
        placements: A placement for each mesh dim; no Partial.
        src_data_rank: Whose values count. None: every rank holds the same tensor and takes its part, without
            communication. An int counts inside the group of the ragged mesh dim, for each coordinate of the Replicate
            dims; without RaggedShard inside the group of every mesh dim, as if dim by dim.

    Returns:
        A DTensor with storage of its own; a constant to a graph that is being recorded. What shall be trained becomes
        the parameter of a cell: see ``distribute_parameter`` and ``shard``.

    Raises:
        InvalidArgumentError: Placements that do not fit or hold Partial.
        OutOfRangeError: src_data_rank outside the group.
        ArgumentTypeError: An argument of another type.

    Example:
        >>> mesh = init_device_mesh("cpu", (1,), mesh_dim_names=("fsdp",))
        >>> x = distribute_tensor(mindspore.ops.ones((6, 4)), mesh, [RaggedShard((0, 1), (1,))], src_data_rank=0)
        >>> x.shape, x.local_numel
        ((6, 4), 24)
    """
    check_mode("distribute_tensor")
    whole = plain_tensor(tensor, "distribute_tensor: tensor")
    mesh = _frames.check_mesh(device_mesh, "distribute_tensor: device_mesh")
    source = None if src_data_rank is None else integer(src_data_rank, "src_data_rank")
    layout = layout_on(mesh, placements).folded(whole.ndim)
    layout.check_shape(tuple(whole.shape))
    local = _local_part(whole, layout, source, platform.get_rank())
    made: DTensor = _frames.make(TensorShare(local), layout, tuple(whole.shape))
    return made


def _local_part(whole: mindspore.Tensor, layout: _core.Layout, source: int | None, rank: int) -> mindspore.Tensor:
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
