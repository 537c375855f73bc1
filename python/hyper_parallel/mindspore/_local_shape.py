"""What a local tensor is a part of: the layout and logical shape, given or told by the ranks to each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import mindspore
import numpy as np

from hyper_parallel import _core, platform
from hyper_parallel.errors import InvalidArgumentError
from hyper_parallel.mindspore._arguments import layout_on
from hyper_parallel.mindspore._group_check import check_mesh_together
from hyper_parallel.mindspore._messages import Message, exchange_messages
from hyper_parallel.mindspore._split_lists import integers
from hyper_parallel.mindspore._texts import describe, placements_text

if TYPE_CHECKING:
    from hyper_parallel.device_mesh import DeviceMesh
    from hyper_parallel.layout import Layout
    from hyper_parallel.placement import Placement

__all__ = ["whole_of"]

# A message holds the number of dims and their sizes.
_MAX_DIMS = 64


def whole_of(
    local: mindspore.Tensor, mesh: DeviceMesh, placements: Sequence[Placement], shape: Sequence[int] | None
) -> tuple[Layout, tuple[int, ...]]:
    """The layout, folded, and the logical shape of the tensor of which ``local`` is this rank's part.

    Args:
        local: This rank's part.
        mesh: The mesh.
        placements: A placement for each mesh dim.
        shape: The logical shape; None where it has to be told from the parts.

    Raises:
        InvalidArgumentError: The placements do not make a layout or do not fit the shape; the part is not this rank's;
            ``shape`` is None with RaggedShard.
        OutOfRangeError: A Shard dim that the tensor does not have.
        ArgumentTypeError: A shape of another type.
    """
    layout = layout_on(mesh, placements)
    rank = platform.get_rank()
    if shape is None and layout.is_ragged:
        raise InvalidArgumentError(
            "from_local: shape is missing but with RaggedShard the logical shape cannot be told from the flat local "
            "tensor"
        )
    if shape is None:
        # Telling each other the local sizes is communication: what the ranks are about to do is compared before.
        facts = f"no shape, {local.ndim} dims, {local.dtype}, {placements_text(layout)}"
        check_mesh_together(mesh, "from_local", lambda: None, lambda: facts)
        whole = _agreed_shape(local, layout, rank)
    else:
        whole = integers(shape, "shape")
    folded = layout.folded(len(whole))
    folded.check_shape(whole)
    check_mesh_together(
        mesh,
        "from_local",
        lambda: _core.check_local(folded, whole, rank, tuple(local.shape), tuple(local.stride())),
        lambda: describe(folded, whole, local),
    )
    return folded, tuple(map(int, whole))


def _agreed_shape(local: mindspore.Tensor, layout: _core.Layout, rank: int) -> tuple[int, ...]:
    """The logical shape of the tensor of which every rank of the mesh holds ``local``.

    Along mesh dims that are not Replicate or Partial the local sizes of all ranks are gathered, one small message to
    each peer, and must follow the rule of Shard.

    Raises:
        InvalidArgumentError: On all ranks: they do not. Or this rank is outside the mesh.
        OutOfRangeError: A Shard dim that the tensor does not have.
    """
    known = _core.known_global_shape(layout, tuple(local.shape), rank)
    if known is not None:
        return known
    return _core.infer_global_shape(layout, _gather_shapes(local, layout.core_mesh.rank_list, rank))


def _gather_shapes(local: mindspore.Tensor, ranks: Sequence[int], rank: int) -> list[tuple[int, ...]]:
    """The local shapes of all ranks of the mesh, in mesh order."""
    if local.ndim > _MAX_DIMS:
        raise InvalidArgumentError(f"local has {local.ndim} dims but at most {_MAX_DIMS} can be told to other ranks")
    own = np.zeros(_MAX_DIMS + 1, np.int64)
    own[: local.ndim + 1] = (local.ndim, *local.shape)
    peers = [peer for peer in ranks if peer != rank]
    told = {peer: np.empty_like(own) for peer in peers} | {rank: own}
    exchange_messages(
        [Message(peer, own.view(np.uint8)) for peer in peers],
        [Message(peer, told[peer].view(np.uint8)) for peer in peers],
    )
    return [tuple(map(int, told[peer][1 : 1 + told[peer][0]])) for peer in ranks]
