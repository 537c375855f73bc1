"""Who owns what of a tensor, as text and as a picture."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Protocol

from hyper_parallel import _core
from hyper_parallel.errors import ArgumentTypeError, InvalidArgumentError
from hyper_parallel.visualize._ownership import Ownership, Share, ownership_of
from hyper_parallel.visualize._view import OwnershipView

__all__ = ["Ownership", "OwnershipView", "Share", "visualize"]


class _Placed(Protocol):
    """What a DTensor says of itself without its data."""

    @property
    def layout(self) -> _core.Layout: ...
    @property
    def shape(self) -> Sequence[int]: ...


def visualize(
    dtensor_or_layout: _Placed | _core.Layout,
    shape: Sequence[int] | None = None,
    *,
    file: str | os.PathLike[str] | None = None,
) -> OwnershipView:
    """Shows who owns what of a tensor. No communication, and no data: a layout and a shape are enough.

    Args:
        dtensor_or_layout: A DTensor, or how a tensor would lie. Its mesh may have ranks that nobody has.
        shape: The logical shape. Needed with a Layout; with a DTensor it may be left out.
        file: Where to save the result too; see ``OwnershipView.save``.

    Returns:
        A view that prints as text and that notebooks draw.

    Raises:
        ArgumentTypeError: The first argument is neither, or ``shape`` is not a sequence of ints.
        InvalidArgumentError: A layout without a shape, a DTensor with another shape than its own, or a tensor of
            ``shape`` cannot lie so.
        OutOfRangeError: A Shard dim lies beyond the shape.
        ImportError: ``file`` is a picture and matplotlib is not installed.

    Example:
        >>> from hyper_parallel import Layout, RaggedShard, visualize
        >>> visualize(Layout((3,), ("dp",))([RaggedShard((0, 1), (1, 4, 0))]), (5, 2))
        shape (5, 2)  mesh (dp=3)  [RaggedShard(dims=(0, 1), local_units=(1, 4, 0))]
        10 elements over 3 ranks: largest share 8 (2.4x the mean), smallest 0
        EMPTY: rank 2 (1 of 3)
        <BLANKLINE>
        rows dim 0 (5), columns dim 1 (2); a cell names the ranks that hold it:
              0  1
          0 │ 0  0
          1 │ 1  1
          2 │ 1  1
          3 │ 1  1
          4 │ 1  1
        <BLANKLINE>
          rank  elements  share                        holds
             0         2    20%  █████                 x[0:1]
             1         8    80%  ████████████████████  x[1:5]
             2         0     0%                        empty
    """
    layout, own_shape = _layout_and_shape(dtensor_or_layout)
    if shape is None:
        if own_shape is None:
            raise InvalidArgumentError(
                "visualize needs the shape of the tensor beside a Layout: visualize(layout, shape)"
            )
        shape = own_shape
    layout.check_shape(shape)
    if own_shape is not None and tuple(shape) != own_shape:
        raise InvalidArgumentError(
            f"shape is {tuple(shape)} but the DTensor has shape {own_shape}; leave shape out, or give the layout alone"
        )
    view = OwnershipView(ownership_of(layout, tuple(shape)))
    if file is not None:
        view.save(file)
    return view


def _layout_and_shape(placed: object) -> tuple[_core.Layout, tuple[int, ...] | None]:
    if isinstance(placed, _core.Layout):
        return placed, None
    layout = getattr(placed, "layout", None)
    if not isinstance(layout, _core.Layout):
        raise ArgumentTypeError(f"visualize takes a DTensor or a Layout but got a {type(placed).__name__}")
    return layout, tuple(placed.shape)  # type: ignore[attr-defined]
