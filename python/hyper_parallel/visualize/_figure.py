"""Draws who owns what with matplotlib: left the tensor cut into tiles, right how much each rank holds."""

from __future__ import annotations

import importlib.util
import io
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hyper_parallel.visualize import _labels
from hyper_parallel.visualize._ownership import Ownership
from hyper_parallel.visualize._page import Area, Page, page_of
from hyper_parallel.visualize._palette import EMPTY, FAINT, INK, PAPER, ink_on, share_color
from hyper_parallel.visualize._picture import Panel, Picture, Tile

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["SUFFIXES", "figure_of", "is_available", "rendered"]

SUFFIXES = (".svg", ".png", ".pdf")

# Whatever the user's own style is, so that equal tensors look equal.
_STYLE: list[str | dict[str, Any]] = ["default", {"font.family": "DejaVu Sans", "svg.hashsalt": "hyper_parallel"}]
_POINTS_PER_INCH = 72
_DOTS_PER_INCH = 150
_FONT, _SMALL = 9.0, 8.0
_LABEL_FONTS = (9.0, 7.5, 6.0)
_LEAST_FONT = 3.0
_CHARACTER_WIDTH = 0.62  # of the font's size
_LINE_WITH_ROOM = 2.0  # of the font's size
_TICK_DISTANCE = 1.5  # of the font's size
_MAX_BORDER = 1.5
_BORDER_OF_TILE = 0.12
_MAX_CELLS_WITH_GRID = 40
_MAX_VECTOR_TILES = 4000
_THINNEST_BAR_WITH_GAP = 2.0


def is_available() -> bool:
    """Whether matplotlib is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def rendered(ownership: Ownership, picture: Picture, file_format: str) -> bytes:
    """The figure as a file; equal tensors give equal bytes."""
    figure = figure_of(ownership, picture)
    from matplotlib import style  # noqa: PLC0415

    undated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(file_format)
    file = io.BytesIO()
    with style.context(_STYLE):
        figure.savefig(file, format=file_format, dpi=_DOTS_PER_INCH, metadata=undated)
    return file.getvalue()


def figure_of(ownership: Ownership, picture: Picture) -> Figure:
    """The figure; raises ImportError without matplotlib."""
    try:
        from matplotlib import style  # noqa: PLC0415
    except ImportError as error:
        raise ImportError(
            "drawing who owns what needs matplotlib: pip install hyper_parallel[plot]", name="matplotlib"
        ) from error
    with style.context(_STYLE):
        return _draw(ownership, picture)


def _draw(ownership: Ownership, picture: Picture) -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    page = page_of(ownership, picture)
    figure = Figure(figsize=(page.width, page.height), facecolor=PAPER)
    FigureCanvasAgg(figure)
    _draw_title(figure, page)
    for panel, area in zip(picture.panels, page.panels, strict=False):
        _draw_map(figure.add_axes(page.fraction(area)), area, ownership, picture, panel)
    _draw_bars(figure.add_axes(page.fraction(page.bars)), page.bars, ownership)
    return figure


def _draw_title(figure: Figure, page: Page) -> None:
    for line in page.title:
        figure.text(
            page.title_left / page.width,
            1 - line.top / page.height,
            line.text,
            fontsize=_FONT + 1 if line.bold else _FONT,
            fontweight="bold" if line.bold else "normal",
            color=INK,
        )


@dataclass(frozen=True)
class _Scale:
    """Points per column and per row."""

    across: float
    down: float

    def size_of(self, tile: Tile) -> tuple[float, float]:
        """A tile's width and height in points."""
        return (tile.columns[1] - tile.columns[0]) * self.across, (tile.rows[1] - tile.rows[0]) * self.down


def _draw_map(axes: Axes, area: Area, ownership: Ownership, picture: Picture, panel: Panel) -> None:
    height, width = picture.rows.size, picture.columns.size
    axes.set_xlim(0, max(1, width))
    axes.set_ylim(max(1, height), 0)
    if not panel.tiles:
        axes.text(0.5, 0.5, "no elements", transform=axes.transAxes, fontsize=_FONT, color=FAINT, ha="center")
    axes.set_title(_labels.panel_label(panel), fontsize=_SMALL, color=INK, loc="left")
    axes.set_xlabel(_labels.axis_label(picture.columns), fontsize=_FONT, color=INK)
    axes.set_ylabel(_labels.axis_label(picture.rows), fontsize=_FONT, color=INK)
    scale = _Scale(
        across=area.width * _POINTS_PER_INCH / max(1, width), down=area.height * _POINTS_PER_INCH / max(1, height)
    )
    _fill(axes, ownership, panel.tiles, scale)
    if max(height, width) <= _MAX_CELLS_WITH_GRID:
        axes.hlines(range(1, height), 0, width, colors=PAPER, linewidths=0.4, alpha=0.6)
        axes.vlines(range(1, width), 0, height, colors=PAPER, linewidths=0.4, alpha=0.6)
    _name_shares(axes, ownership, panel.tiles, scale)
    digits = len(str(width)) + 1
    columns = {border for tile in panel.tiles for border in tile.columns} | {0, width}
    axes.set_xticks(_spaced(columns, digits * _SMALL * _CHARACTER_WIDTH / scale.across))
    rows = {border for tile in panel.tiles for border in tile.rows} | {0, height}
    axes.set_yticks(_spaced(rows, _TICK_DISTANCE * _SMALL / scale.down) if picture.rows.dims else [])
    _style(axes)


def _fill(axes: Axes, ownership: Ownership, tiles: tuple[Tile, ...], scale: _Scale) -> None:
    """The shares in their colours, hatched where a reduction is pending."""
    from matplotlib.collections import PolyCollection  # noqa: PLC0415

    shares = _by_share(tiles)
    thinnest = min((min(scale.size_of(tile)) for tile in tiles), default=0.0)
    collection = PolyCollection(
        [_outline(parts) for parts in shares.values()],
        facecolors=[share_color(share, len(ownership.shares)) for share in shares],
        edgecolors=PAPER,
        linewidths=min(_MAX_BORDER, thinnest * _BORDER_OF_TILE),
        hatch="//" if _labels.pending_label(ownership.layout) else None,
    )
    collection.set_rasterized(len(tiles) > _MAX_VECTOR_TILES)
    axes.add_collection(collection)


def _by_share(tiles: tuple[Tile, ...]) -> dict[int, list[Tile]]:
    """The tiles of each share, from top to bottom."""
    shares: dict[int, list[Tile]] = {}
    for tile in tiles:
        shares.setdefault(tile.share, []).append(tile)
    return shares


def _outline(tiles: list[Tile]) -> list[tuple[int, int]]:
    """The outline of tiles that lie below one another: down on the right, up on the left."""
    right = [(tile.columns[1], row) for tile in tiles for row in tile.rows]
    left = [(tile.columns[0], row) for tile in tiles for row in tile.rows]
    return right + left[::-1]


def _name_shares(axes: Axes, ownership: Ownership, tiles: tuple[Tile, ...], scale: _Scale) -> None:
    """The ranks of each share, once, on its largest tile, as large as they fit."""
    for share, parts in _by_share(tiles).items():
        largest = max(parts, key=lambda tile: math.prod(scale.size_of(tile)))
        if scale.size_of(largest)[1] < _LABEL_FONTS[-1]:
            continue
        ranks = ownership.shares[share].ranks
        short = _labels.ranks_label(ranks, max_runs=2)
        labels = [f"ranks {short}", short] if len(ranks) > 1 else [short]
        fitting = [
            (label, font) for font in _LABEL_FONTS for label in labels if _fits(label, font, *scale.size_of(largest))
        ]
        if not fitting:
            continue
        label, font = fitting[0]
        color = share_color(share, len(ownership.shares))
        has_room = scale.size_of(largest)[1] > font * _LINE_WITH_ROOM
        axes.text(
            sum(largest.columns) / 2,
            sum(largest.rows) / 2,
            label,
            fontsize=font,
            color=ink_on(color),
            ha="center",
            va="center_baseline",
            bbox={"facecolor": color, "edgecolor": "none", "pad": 1} if has_room else None,
        )


def _fits(label: str, font: float, width: float, height: float) -> bool:
    return len(label) * font * _CHARACTER_WIDTH + 2 <= width and font * 1.1 <= height


def _draw_bars(axes: Axes, area: Area, ownership: Ownership) -> None:
    shares = ownership.shares
    step = area.height * _POINTS_PER_INCH / len(shares)
    largest = max(1, ownership.largest)
    axes.set_xlim(0, largest)
    axes.set_ylim(len(shares) - 0.5, -0.5)
    _fill_bars(axes, ownership, gap=0.0 if step < _THINNEST_BAR_WITH_GAP else 0.2)
    _name_bars(axes, ownership, step)
    mean = ownership.numel / len(shares)
    if ownership.smallest != ownership.largest:
        axes.axvline(mean, color=INK, linewidth=0.8, linestyle=(0, (4, 3)))
        axes.text(mean, -0.5, f"mean {mean:.4g}", fontsize=_SMALL, color=INK, ha="center", va="bottom")
    axes.set_xticks([0, largest] if ownership.largest else [0])
    axes.set_xlabel("elements per rank", fontsize=_FONT, color=INK)
    axes.set_ylabel("rank" if ownership.replica_count == 1 else "ranks", fontsize=_FONT, color=INK)
    ticks = range(0, len(shares), _round_step(_TICK_DISTANCE * _SMALL / step))
    axes.set_yticks(ticks, [_labels.ranks_label(shares[tick].ranks, max_runs=2) for tick in ticks])
    _style(axes)


def _fill_bars(axes: Axes, ownership: Ownership, gap: float) -> None:
    """A bar per share, as long as it is large; the whole width in grey for an empty one."""
    from matplotlib.collections import PolyCollection  # noqa: PLC0415

    half = (1 - gap) / 2
    lengths = [share.numel or ownership.largest or 1 for share in ownership.shares]
    bars = PolyCollection(
        [[(0, y - half), (length, y - half), (length, y + half), (0, y + half)] for y, length in enumerate(lengths)],
        facecolors=[
            share_color(number, len(ownership.shares)) if share.numel else EMPTY
            for number, share in enumerate(ownership.shares)
        ],
        linewidths=0,
    )
    bars.set_rasterized(len(lengths) > _MAX_VECTOR_TILES)
    axes.add_collection(bars)


def _name_bars(axes: Axes, ownership: Ownership, step: float) -> None:
    """Sizes beside the bars where there is room; empty ones are named in smaller letters too."""
    font = min(_SMALL, step * 0.9)
    if font < _LEAST_FONT:
        return
    for number, share in enumerate(ownership.shares):
        if not share.numel:
            axes.text(0, number, " empty", fontsize=font, color=INK, va="center_baseline", style="italic")
        elif font == _SMALL:
            axes.text(share.numel, number, f" {share.numel}", fontsize=_SMALL, color=INK, va="center_baseline")


def _spaced(values: Iterable[int], distance: float) -> list[int]:
    """The values in order, without those closer than ``distance`` to one before; the last stays."""
    kept: list[int] = []
    ordered = sorted(values)
    for value in ordered:
        if not kept or value - kept[-1] >= distance:
            kept.append(value)
    if kept[-1] != ordered[-1]:
        kept[-1 if len(kept) > 1 else len(kept) :] = [ordered[-1]]
    return kept


def _round_step(least: float) -> int:
    """The least of 1, 2, 5, 10, 20, .. that is not below ``least``."""
    power = 1
    while True:
        for step in (power, 2 * power, 5 * power):
            if step >= least:
                return step
        power *= 10


def _style(axes: Axes) -> None:
    axes.tick_params(labelsize=_SMALL, colors=FAINT, labelcolor=INK, length=2)
    for side in axes.spines.values():
        side.set_visible(False)
