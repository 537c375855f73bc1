"""The DTensor itself, as the modules below its class see it: a local tensor, a layout, a logical shape.

``dtensor.py`` defines the class and tells it here, so that operations can make DTensors without importing their class,
which needs the operations for its methods.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Protocol

import mindspore

from hyper_parallel import platform
from hyper_parallel.errors import ArgumentTypeError, FailedPreconditionError, InvalidArgumentError

if TYPE_CHECKING:
    from hyper_parallel.device_mesh import DeviceMesh
    from hyper_parallel.layout import Layout
    from hyper_parallel.mindspore._shares import Share

__all__ = ["Frame", "check_mesh", "is_dtensor", "is_member", "make", "numel", "set_class", "share_of"]


class Frame(Protocol):
    """What operations use of a DTensor."""

    shape: tuple[int, ...]
    dtype: mindspore.Type
    layout: Layout
    ndim: int

    @property
    def _local_tensor(self) -> mindspore.Tensor: ...


_class: Any = None


def set_class(dtensor_class: type) -> None:
    """Tells which class DTensors are of; once, when it is defined."""
    global _class  # noqa: PLW0603  (see above)
    _class = dtensor_class


def is_dtensor(value: object) -> bool:
    """Whether a value is a DTensor."""
    return _class is not None and isinstance(value, _class)


def make(share: Share, layout: Layout, shape: tuple[int, ...]) -> Any:  # noqa: ANN401  (a DTensor)
    """A DTensor of parts that are known to fit: nothing is checked."""
    assert _class is not None
    made = _class.__new__(_class)
    object.__setattr__(made, "_share", share)
    object.__setattr__(made, "_layout", layout)
    object.__setattr__(made, "_logical_shape", shape)
    return made


def share_of(tensor: Any) -> Share:  # noqa: ANN401  (a DTensor)
    """Where its local tensor is."""
    share: Share = tensor._share
    return share


def numel(tensor: Frame) -> int:
    """The number of elements of the whole tensor."""
    return math.prod(tensor.shape)


def is_member(tensor: Frame) -> bool:
    """Whether this rank lies in the tensor's mesh."""
    return tensor.layout.core_mesh.contains(platform.get_rank())


def check_mesh(mesh: object, what: str) -> DeviceMesh:
    """A mesh over ranks of this job.

    Raises:
        ArgumentTypeError: It is no mesh.
        FailedPreconditionError: This process has no rank yet.
        InvalidArgumentError: The mesh has a rank that the job has not.
    """
    from hyper_parallel.device_mesh import DeviceMesh  # noqa: PLC0415  (it asks platform, which may ask MindSpore)

    if not isinstance(mesh, DeviceMesh):
        raise ArgumentTypeError(f"{what} must be a hyper_parallel.DeviceMesh, not {mesh!r}")
    if not platform.is_initialized():
        raise FailedPreconditionError(
            f"{what}: this process has no rank yet: MindSpore's communication is not initialised; call "
            "init_device_mesh or mindspore.communication.init first"
        )
    size = platform.get_world_size()
    for rank in mesh.rank_list:
        if rank >= size:
            raise InvalidArgumentError(
                f"{mesh!r} holds rank {rank} but the process group's ranks are {tuple(range(size))}"
            )
    return mesh
