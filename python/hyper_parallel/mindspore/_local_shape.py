"""The logical shape of a tensor when only its local tensors are known: the ranks tell each other their sizes."""

from __future__ import annotations

from collections.abc import Sequence

import mindspore
import numpy as np

from hyper_parallel import _core
from hyper_parallel.errors import InvalidArgumentError
from hyper_parallel.mindspore._messages import Message, exchange_messages

__all__ = ["agreed_shape"]

# A message holds the number of dims and their sizes.
_MAX_DIMS = 64


def agreed_shape(local: mindspore.Tensor, layout: _core.Layout, rank: int) -> tuple[int, ...]:
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
