"""The arguments that make a DTensor, checked one by one: a plain tensor, an integer, placements on a mesh."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import mindspore

from hyper_parallel import _core
from hyper_parallel.errors import ArgumentTypeError
from hyper_parallel.layout import Layout
from hyper_parallel.mindspore import _frames
from hyper_parallel.mindspore._host import dtype_name

if TYPE_CHECKING:
    from hyper_parallel.device_mesh import DeviceMesh
    from hyper_parallel.placement import Placement

__all__ = ["integer", "layout_on", "plain_tensor", "shape_of"]


def layout_on(mesh: DeviceMesh, placements: Sequence[Placement]) -> Layout:
    """The layout on this mesh object; raises as ``Layout``."""
    return Layout._from_core(_core.Layout(mesh, placements), mesh)


def plain_tensor(value: object, what: str) -> mindspore.Tensor:
    """A tensor of MindSpore's own whose elements can be moved.

    Raises:
        ArgumentTypeError: A DTensor, no tensor, or one of another dtype; said of ``what``.
    """
    if _frames.is_dtensor(value):
        raise ArgumentTypeError(f"{what} is a DTensor but must be a plain tensor; use redistribute()")
    if not isinstance(value, mindspore.Tensor):
        raise ArgumentTypeError(f"{what} must be a mindspore.Tensor, not {value!r}")
    dtype_name(value.dtype)  # raises for what cannot be moved
    return value


def integer(value: object, what: str) -> int:
    """An int, also one of numpy's.

    Raises:
        ArgumentTypeError: Anything else; said of ``what``.
    """
    if isinstance(value, bool) or not hasattr(value, "__index__") or isinstance(value, mindspore.Tensor):
        raise ArgumentTypeError(f"{what} is {value!r} but must be an int")
    return operator.index(value)


def shape_of(value: object, what: str) -> tuple[int, ...]:
    """The sizes of a shape, also as numpy's ints.

    Raises:
        ArgumentTypeError: No sequence of ints; said of ``what``.
    """
    if not isinstance(value, Iterable) or isinstance(value, str | mindspore.Tensor):
        raise ArgumentTypeError(f"{what} is {value!r} but must be a tuple of ints")
    return tuple(integer(size, f"{what}[{dim}]") for dim, size in enumerate(value))
