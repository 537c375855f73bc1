"""What a DTensor says of itself: its facts, without communication, and the value of one that has a single element."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, cast

import mindspore
import numpy as np
from mindspore import ops

from hyper_parallel import platform
from hyper_parallel.errors import ArgumentTypeError, FailedPreconditionError, InvalidArgumentError
from hyper_parallel.mindspore import _frames

if TYPE_CHECKING:
    from hyper_parallel.device_mesh import DeviceMesh
    from hyper_parallel.layout import Layout
    from hyper_parallel.placement import Placement

__all__ = ["TensorFacts"]


class TensorFacts(mindspore.Tensor):  # type: ignore[misc]  # MindSpore has no types
    """The base of DTensor that says what one is; ``_frames.make`` gives it its parts."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The logical shape."""
        return cast("tuple[int, ...]", self._logical_shape)

    @property
    def dtype(self) -> mindspore.Type:
        """The dtype of every element."""
        return self._local_tensor.dtype

    @property
    def ndim(self) -> int:
        """The number of dims of the logical shape."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements of the whole tensor."""
        return math.prod(self.shape)

    def dim(self) -> int:
        """The number of dims of the logical shape."""
        return self.ndim

    def numel(self) -> int:
        """The number of elements of the whole tensor."""
        return self.size

    @property
    def placements(self) -> tuple[Placement, ...]:
        """A placement for each mesh dim."""
        return self.layout.placements

    @property
    def device_mesh(self) -> DeviceMesh:
        """The mesh that the tensor lies on."""
        return self.layout.mesh

    @property
    def layout(self) -> Layout:
        """Mesh and placements as one value."""
        return cast("Layout", self._layout)

    @property
    def local_numel(self) -> int:
        """The number of elements that this rank holds."""
        return int(self._local_tensor.size)

    @property
    def _local_tensor(self) -> mindspore.Tensor:
        """This rank's storage, inside the graph."""
        return self._share.read()

    @property
    def _global_shape(self) -> tuple[int, ...]:
        """The logical shape as a plain tuple."""
        return self.shape

    def __repr__(self) -> str:
        local = ops.stop_gradient(self._local_tensor)
        where = f"rank={platform.get_rank()}{'' if _frames.is_member(self) else ' (outside the mesh)'}"
        return (
            f"DTensor({np.array2string(local.asnumpy(), separator=', ')}, shape={self.shape}, dtype={self.dtype}, "
            f"placements={self.placements}, mesh={self.device_mesh}, local_shape={tuple(local.shape)}, {where})"
        )

    __str__ = __repr__

    # --- the value of one element -----------------------------------------------------------------------------------

    def item(self) -> bool | int | float | complex:
        """The value of a tensor of one element, the same on every rank of the mesh, which must all call.

        Raises:
            InvalidArgumentError: The tensor has another number of elements.
            FailedPreconditionError: This rank is outside the mesh.
        """
        if self.size != 1:
            raise InvalidArgumentError(f"item takes a tensor of one element but this one has shape {self.shape}")
        if not _frames.is_member(self):
            raise FailedPreconditionError(
                f"item: rank {platform.get_rank()} is outside {self.device_mesh!r} and has no value"
            )
        value: bool | int | float | complex = ops.stop_gradient(self.full_tensor()).asnumpy().reshape(-1)[0].item()
        return value

    def __bool__(self) -> bool:
        return bool(self.item())

    def __float__(self) -> float:
        return float(cast("float", self.item()))

    def __int__(self) -> int:
        return int(cast("int", self.item()))

    def __len__(self) -> int:
        if not self.shape:
            raise ArgumentTypeError("len() of a 0-D DTensor")
        return self.shape[0]

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if spec else repr(self)
