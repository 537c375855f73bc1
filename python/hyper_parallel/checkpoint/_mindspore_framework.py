"""What a checkpoint asks of MindSpore."""

from __future__ import annotations

import math
from typing import Any, NoReturn

import mindspore

from hyper_parallel import _core, platform
from hyper_parallel.errors import UnimplementedError
from hyper_parallel.mindspore import _frames, _tensor_planners
from hyper_parallel.mindspore._tensor_planners import TensorLoadPlanner, TensorSavePlanner, empty_tensor
from hyper_parallel.mindspore._texts import placement_text
from hyper_parallel.mindspore.dtensor import DTensor
from hyper_parallel.platform._mindspore_store import MessageGroup

__all__ = [
    "CopyStager",
    "Tensor",
    "TensorLoadPlanner",
    "TensorSavePlanner",
    "boxes_of",
    "empty_tensor",
    "exchange_over",
    "own_tensor",
    "view_of",
]

Tensor = mindspore.Tensor

_Box = tuple[tuple[int, ...], tuple[int, ...]]


class CopyStager:
    """Not offered on MindSpore.

    Raises:
        UnimplementedError: Always: it is for ``torch.distributed.checkpoint``.
    """

    def __init__(self, *args: object, **kwargs: object) -> None:
        raise UnimplementedError("hyper_parallel.checkpoint.CopyStager is not offered on MindSpore, only on torch")


def own_tensor(tensor: Any) -> Any:  # noqa: ANN401  (a tensor or DTensor)
    """What stands for a tensor of a state dict in a plan: itself."""
    return tensor


def boxes_of(tensor: DTensor, what: str) -> list[_Box]:
    """This rank's boxes, in the order of local storage; of a tensor without elements one that is empty.

    Raises:
        UnimplementedError: A pending reduction.
    """
    for name, placement in zip(tensor.device_mesh.mesh_dim_names, tensor.placements, strict=True):
        if placement.is_partial():
            raise UnimplementedError(
                f"{what} is pending: its placement on mesh dim {name!r} is "
                f"{placement_text(placement, tensor.layout.core_mesh)}; a checkpoint holds values, call "
                "reduce_partial() first"
            )
    shape = tuple(tensor.shape)
    if not math.prod(shape) and _frames.is_member(tensor):
        return [((0,) * len(shape), shape)]
    return _tensor_planners.boxes_of(tensor)


def view_of(tensor: DTensor, boxes: list[_Box], position: int) -> NoReturn:
    """Raises: a box of local storage is a view into it.

    Raises:
        UnimplementedError: Always.
    """
    raise UnimplementedError(
        "a box of a DTensor's local storage is not offered as a tensor on MindSpore, where what is written to a view "
        "is lost; take it out of to_local()"
    )


def exchange_over(group: str) -> _core.Exchange:
    """How the ranks of a process group talk: over the job's store, under a name that all of them make here."""
    messages: MessageGroup = platform.message_group(group)  # type: ignore[assignment]  # typed as torch's
    return _core.MessageExchange(messages.rank(), messages.size(), messages.gather, messages.scatter)
