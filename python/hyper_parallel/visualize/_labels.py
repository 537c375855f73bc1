"""Short texts for ranks, dims, layouts and parts of a tensor, the same in the terminal and in the picture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hyper_parallel import _core

if TYPE_CHECKING:
    from hyper_parallel.visualize._ownership import Ownership, Share
    from hyper_parallel.visualize._picture import Axis, Panel, Picture

__all__ = [
    "axis_label",
    "balance_label",
    "empty_label",
    "hidden_label",
    "layout_label",
    "panel_label",
    "pending_label",
    "ranks_label",
    "share_label",
]

_MAX_UNITS = 12
_MAX_RUNS = 10
_LONGEST_PAIR = 2


def ranks_label(ranks: Sequence[int], max_runs: int = _MAX_RUNS) -> str:
    """Ascending ranks with runs joined: "0-3,7". Where that makes more than ``max_runs`` parts, some are left out:
    "0,2,…,14", or for fewer than three parts "0…14"."""
    parts = []
    for first, last in _runs(ranks):
        if last - first + 1 > _LONGEST_PAIR:
            parts.append(f"{first}-{last}")
        else:
            parts.extend(str(rank) for rank in range(first, last + 1))
    if len(parts) <= max_runs:
        return ",".join(parts)
    if max_runs <= _LONGEST_PAIR:
        return f"{ranks[0]}…{ranks[-1]}"
    return ",".join([*parts[: max_runs - 1], "…", str(ranks[-1])])


def _runs(ranks: Sequence[int]) -> list[tuple[int, int]]:
    """First and last of each run of consecutive ranks."""
    starts = [rank for i, rank in enumerate(ranks) if i == 0 or ranks[i - 1] != rank - 1]
    ends = [rank for i, rank in enumerate(ranks) if i + 1 == len(ranks) or ranks[i + 1] != rank + 1]
    return list(zip(starts, ends, strict=True))


def axis_label(axis: Axis) -> str:
    """ "dim 0 (6)", "dims 0,1 (24)"; a lone row has no label."""
    if not axis.dims:
        return ""
    return f"{dims_label(axis.dims)} ({axis.size})"


def dims_label(dims: Sequence[int]) -> str:
    """ "dim 0", "dims 0,1"."""
    return f"dim{'s' if len(dims) > 1 else ''} {','.join(map(str, dims))}"


def hidden_label(picture: Picture, shape: tuple[int, ...]) -> str:
    """ "not split, so not shown: dim 2 (8)"; nothing where every dim is shown."""
    sizes = ", ".join(f"dim {dim} ({shape[dim]})" for dim in picture.hidden)
    return f"not split, so not shown: {sizes}" if sizes else ""


def panel_label(panel: Panel) -> str:
    """ "dim 0 in 0:2"; nothing where the panel is the whole tensor."""
    return ", ".join(f"dim {dim} in {begin}:{end}" for dim, (begin, end) in panel.place)


def share_label(share: Share, shape: tuple[int, ...]) -> str:
    """The share as an expression on the whole tensor ``x``: "x[0:2]", "x.flatten()[6:14]"."""
    if not share.numel:
        return "empty"
    if len(share.boxes) > 1 and share.interval is not None:
        return f"x.flatten()[{share.interval[0]}:{share.interval[1]}]"
    [(offsets, sizes)] = share.boxes
    parts = [
        ":" if size == whole else f"{offset}:{offset + size}"
        for offset, size, whole in zip(offsets, sizes, shape, strict=True)
    ]
    while parts and parts[-1] == ":":
        parts.pop()
    return f"x[{', '.join(parts)}]" if parts else "x"


def layout_label(layout: _core.Layout) -> str:
    """Mesh and placements; many units are counted instead of listed."""
    mesh = layout.core_mesh
    sizes = ", ".join(f"{name}={size}" for name, size in zip(mesh.mesh_dim_names, mesh.mesh_shape, strict=True))
    placements = ", ".join(_placement_label(placement) for placement in layout.placements)
    return f"mesh ({sizes})  [{placements}]"


def _placement_label(placement: _core.Placement) -> str:
    if not isinstance(placement, _core.RaggedShard) or len(placement.local_units) <= _MAX_UNITS:
        return repr(placement)
    units = placement.local_units
    first = ", ".join(map(str, units[: _MAX_UNITS // 2]))
    return f"RaggedShard(dims={placement.dims}, local_units=({first}, … {len(units)} units, sum {sum(units)}))"


def pending_label(layout: _core.Layout) -> str:
    """ "pending sum over tp: .."; nothing without a Partial."""
    pending = [
        f"{placement.reduce_op} over {name}"
        for name, placement in zip(layout.core_mesh.mesh_dim_names, layout.placements, strict=True)
        if isinstance(placement, _core.Partial)
    ]
    return f"pending {', '.join(pending)}: the ranks of a share hold operands of it, not copies" if pending else ""


def balance_label(ownership: Ownership) -> str:
    """How many cells the shares have, and how uneven they are."""
    shares = ownership.shares
    ranks = len(shares) * ownership.replica_count
    held = f", each share on {ownership.replica_count} of them" if 1 < ownership.replica_count < ranks else ""
    text = f"{_count(ownership.numel, 'element')} over {_count(ranks, 'rank')}{held}: "
    if len(shares) == 1:
        return text + ("every rank holds all" if ranks > 1 else "the rank holds all")
    if ownership.smallest == ownership.largest:
        return text + f"{ownership.largest} each"
    factor = ownership.largest * len(shares) / ownership.numel
    return text + f"largest share {ownership.largest} ({factor:.1f}x the mean), smallest {ownership.smallest}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def empty_label(ownership: Ownership) -> str:
    """ "EMPTY: ranks 2,5 (2 of 8)"; nothing where every rank holds a cell."""
    ranks = ownership.empty_ranks
    if not ranks:
        return ""
    total = len(ownership.shares) * ownership.replica_count
    return f"EMPTY: rank{'s' if len(ranks) > 1 else ''} {ranks_label(ranks)} ({len(ranks)} of {total})"
