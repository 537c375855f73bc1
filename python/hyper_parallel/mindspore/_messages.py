"""A round of messages between ranks: bytes from point to point over MindSpore's world group.

A message has no tag: a rank takes from another what that one sent first. So all ranks must do the same rounds in the
same order, and do as long as each derives them from global facts; ``HYPER_PARALLEL_CHECK=1`` compares these first.
Messages without bytes are sent by nobody and expected by nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import mindspore
import numpy as np
from mindspore.mint import distributed
from mindspore.mint.distributed import distributed as internals

from hyper_parallel.errors import FailedPreconditionError, InvalidArgumentError
from hyper_parallel.mindspore._host import Bytes
from hyper_parallel.platform import _mindspore

__all__ = ["Message", "exchange_messages"]


class Message(NamedTuple):
    """Bytes for a rank, or the place where those of a rank are wanted."""

    peer: int
    """A rank of the job."""
    data: Bytes


class _InFlight(NamedTuple):
    message: Message
    tensor: mindspore.Tensor
    handle: Any


def exchange_messages(
    sends: Sequence[Message], receives: Sequence[Message], meanwhile: Callable[[], None] | None = None
) -> None:
    """Sends and receives; returns when all have arrived and left.

    Args:
        sends: At most one to each peer.
        receives: At most one from each peer; their data are filled.
        meanwhile: Called while the messages travel.

    Raises:
        InvalidArgumentError: A message to or from this rank itself.
        FailedPreconditionError: A peer did not come, or came with a message of another size.
    """
    rank = _mindspore.get_rank()
    for message in (*sends, *receives):
        if message.peer == rank:
            raise InvalidArgumentError(f"exchange_messages: peer is {rank}, this rank itself; copy locally instead")
    world = _mindspore.world_group()
    _know_rank(world, rank)
    # A send waits for nobody, a receive may hold up the queue: with all sends in front no two ranks wait for each
    # other.
    leaving = [_post(distributed.isend, message, world, rank) for message in sends if message.data.size]
    arriving = [_post(distributed.irecv, message, world, rank) for message in receives if message.data.size]
    if meanwhile is not None:
        meanwhile()
    for flight in arriving:
        _arrive(flight, rank)
    for flight in leaving:
        _finish(flight, "send", rank)


def _know_rank(world: str, rank: int) -> None:
    """MindSpore's isend asks for the rank in the group that was the default when it was imported; on CPU there is none
    of that name."""
    default = internals.get_cache_group_rank.__defaults__[0]
    if default != world:
        internals._GROUP_RANK_CACHE.setdefault(default, rank)


def _post(operation: Callable[..., Any], message: Message, world: str, rank: int) -> _InFlight:
    tensor = mindspore.Tensor.from_numpy(message.data)
    direction = "send" if operation is distributed.isend else "receive"
    try:
        return _InFlight(message, tensor, operation(tensor, message.peer, world))
    except RuntimeError as error:
        raise _failed(message, direction, rank, error) from error


def _arrive(flight: _InFlight, rank: int) -> None:
    try:
        flight.handle.wait()
        # Only reading the value tells whether it came.
        received = flight.tensor.asnumpy()
    except RuntimeError as error:
        raise _failed(flight.message, "receive", rank, error) from error
    if received.ctypes.data != flight.message.data.ctypes.data:
        np.copyto(flight.message.data, received)


def _finish(flight: _InFlight, direction: str, rank: int) -> None:
    try:
        flight.handle.wait()
    except RuntimeError as error:
        raise _failed(flight.message, direction, rank, error) from error


def _failed(message: Message, direction: str, rank: int, error: RuntimeError) -> FailedPreconditionError:
    towards = "to" if direction == "send" else "from"
    reason = next(iter(str(error).strip().splitlines()), "no reason given")
    return FailedPreconditionError(
        f"exchange_messages: rank {rank} of {_mindspore.get_world_size()} could not {direction} {message.data.size} "
        f"bytes {towards} rank {message.peer}: {reason} (MindSpore's CPU waits 30 s, and this process "
        "cannot communicate any more)"
    )
