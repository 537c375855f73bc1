"""The picture's data: a tensor drawn as a matrix, cut into tiles of one owner each.

A tensor of any rank is shown on two axes. An axis is a run of tensor dims in row-major order:

    ragged layouts    rows are the dims that are dealt out, columns the others; where all are dealt out, columns are
                      the last dim, so that shares appear as what they are: runs that may begin and end within a row
    other layouts     the dims that are split; the rest are the same for every owner and are left out. Where more than
                      two dims are split there is a panel for each piece of the outer ones

Every cell of the tensor appears in one tile, and a tile's cells all have the same owner.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

from hyper_parallel import _core
from hyper_parallel.visualize._ownership import Box, Ownership, Share

__all__ = ["Axis", "Panel", "Picture", "Tile", "picture_of"]

_SHOWN_DIMS = 2


@dataclass(frozen=True)
class Axis:
    """Tensor dims in row-major order and how many index tuples they have; no dims is one row."""

    dims: tuple[int, ...]
    size: int


@dataclass(frozen=True)
class Tile:
    """Rows ``[rows[0], rows[1])`` and columns ``[columns[0], columns[1])``, owned by share number ``share``."""

    rows: tuple[int, int]
    columns: tuple[int, int]
    share: int


@dataclass(frozen=True)
class Panel:
    """One matrix; ``place`` says the index range of each tensor dim that is fixed in it."""

    place: tuple[tuple[int, tuple[int, int]], ...]
    tiles: tuple[Tile, ...]


@dataclass(frozen=True)
class Picture:
    """The matrices of one tensor, and the tensor dims that are in none of them because nothing splits them."""

    rows: Axis
    columns: Axis
    hidden: tuple[int, ...]
    panels: tuple[Panel, ...]


def picture_of(ownership: Ownership) -> Picture:
    """The tiles of every share."""
    if ownership.layout.is_ragged:
        return _picture_of_runs(ownership)
    return _picture_of_boxes(ownership)


def _axis(shape: tuple[int, ...], dims: tuple[int, ...]) -> Axis:
    return Axis(dims, math.prod(shape[dim] for dim in dims))


def _picture_of_runs(ownership: Ownership) -> Picture:
    ndim = len(ownership.shape)
    [ragged] = [placement for placement in ownership.layout.placements if isinstance(placement, _core.RaggedShard)]
    row_dims = min(len(ragged.dims), ndim - 1)
    rows = _axis(ownership.shape, tuple(range(row_dims)))
    columns = _axis(ownership.shape, tuple(range(row_dims, ndim)))
    tiles = [
        tile for number, share in enumerate(ownership.shares) for tile in _tiles_of_run(share, number, columns.size)
    ]
    return Picture(rows, columns, (), (Panel((), tuple(tiles)),))


def _tiles_of_run(share: Share, number: int, width: int) -> list[Tile]:
    """At most three: the end of a row, whole rows, the beginning of a row."""
    tiles = []
    begin, end = share.interval or (0, 0)
    while begin < end:
        row, column = divmod(begin, width)
        if column == 0 and end - begin >= width:
            tile = Tile((row, end // width), (0, width), number)
        else:
            tile = Tile((row, row + 1), (column, min(width, column + end - begin)), number)
        tiles.append(tile)
        begin = (tile.rows[1] - 1) * width + tile.columns[1]
    return tiles


def _picture_of_boxes(ownership: Ownership) -> Picture:
    ndim = len(ownership.shape)
    split = tuple(
        sorted({placement.dim for placement in ownership.layout.placements if isinstance(placement, _core.Shard)})
    )
    faceted, shown = split[:-_SHOWN_DIMS], _with_neighbour(split[-_SHOWN_DIMS:], ndim)
    hidden = tuple(dim for dim in range(ndim) if dim not in faceted + shown)
    places: dict[tuple[tuple[int, int], ...], list[Tile]] = {
        pieces: [] for pieces in itertools.product(*(_pieces(ownership, dim) for dim in faceted))
    }
    for number, share in enumerate(ownership.shares):
        for box in share.boxes:
            tile = Tile(_range(box, shown[:-1]), _range(box, shown[-1:]), number)
            places[tuple(_range(box, (dim,)) for dim in faceted)].append(tile)
    panels = tuple(Panel(tuple(zip(faceted, place, strict=True)), tuple(tiles)) for place, tiles in places.items())
    return Picture(_axis(ownership.shape, shown[:-1]), _axis(ownership.shape, shown[-1:]), hidden, panels)


def _with_neighbour(split: tuple[int, ...], ndim: int) -> tuple[int, ...]:
    """Two dims to show, or as many as there are: beside a lone split dim the one next to it."""
    if len(split) >= min(_SHOWN_DIMS, ndim):
        return split
    if not split:
        return tuple(range(max(0, ndim - _SHOWN_DIMS), ndim))
    [dim] = split
    return (dim, dim + 1) if dim + 1 < ndim else (dim - 1, dim)


def _pieces(ownership: Ownership, dim: int) -> list[tuple[int, int]]:
    return sorted({_range(box, (dim,)) for share in ownership.shares for box in share.boxes})


def _range(box: Box, dims: tuple[int, ...]) -> tuple[int, int]:
    """The box's indices along an axis of at most one dim."""
    if not dims:
        return (0, 1)
    offsets, sizes = box
    return (offsets[dims[0]], offsets[dims[0]] + sizes[dims[0]])
