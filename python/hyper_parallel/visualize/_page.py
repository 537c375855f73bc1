"""Where the parts of the figure go, in inches: title on top, the matrices left, the bars right."""

from __future__ import annotations

import math
import textwrap
from dataclasses import dataclass

from hyper_parallel.visualize import _labels
from hyper_parallel.visualize._ownership import Ownership
from hyper_parallel.visualize._picture import Picture

__all__ = ["Area", "Page", "TitleLine", "page_of"]

_MAP_WIDTH, _BARS_WIDTH = 4.8, 3.0
_LEFT, _BETWEEN, _RIGHT = 0.95, 1.15, 0.75
_TITLE_LEFT, _TOP, _TITLE_LINE, _BELOW_TITLE, _BOTTOM = 0.3, 0.15, 0.22, 0.45, 0.55
_LINE_OF_TEXT = 0.15
_PANEL_GAP_X, _PANEL_GAP_Y = 0.55, 0.75
_MIN_MAP_HEIGHT, _MAP_HEIGHT_BESIDE_FEW_BARS = 0.6, 3.2
_BAR_HEIGHT, _MIN_BARS_HEIGHT, _MAX_BARS_HEIGHT = 0.28, 0.6, 6.4
_CHARACTERS_IN_A_LINE = 112
_MAX_PANELS = 9


@dataclass(frozen=True)
class Area:
    """A rectangle from the page's upper left corner."""

    left: float
    top: float
    width: float
    height: float


@dataclass(frozen=True)
class TitleLine:
    """A line of the title and how far its baseline is from the top."""

    text: str
    top: float
    bold: bool


@dataclass(frozen=True)
class Page:
    """The page's size and parts; ``panels`` has an area for each panel that is drawn."""

    width: float
    height: float
    title_left: float
    title: tuple[TitleLine, ...]
    panels: tuple[Area, ...]
    bars: Area

    def fraction(self, area: Area) -> tuple[float, float, float, float]:
        """Left, bottom, width and height as fractions of the page, from its lower left corner."""
        bottom = self.height - area.top - area.height
        return area.left / self.width, bottom / self.height, area.width / self.width, area.height / self.height


def page_of(ownership: Ownership, picture: Picture) -> Page:
    """The page for all of a picture's parts."""
    title = _title(ownership, picture)
    top = title[-1].top + _BELOW_TITLE
    bars_height = min(max(len(ownership.shares) * _BAR_HEIGHT, _MIN_BARS_HEIGHT), _MAX_BARS_HEIGHT)
    panels = _panels(picture, top, max(bars_height, _MAP_HEIGHT_BESIDE_FEW_BARS))
    bars = Area(_LEFT + _MAP_WIDTH + _BETWEEN, top, _BARS_WIDTH, bars_height)
    bottom = max(area.top + area.height for area in (*panels, bars))
    return Page(bars.left + bars.width + _RIGHT, bottom + _BOTTOM, _TITLE_LEFT, title, panels, bars)


def _title(ownership: Ownership, picture: Picture) -> tuple[TitleLine, ...]:
    shown = min(len(picture.panels), _MAX_PANELS)
    texts = [
        (f"shape {ownership.shape}  {_labels.layout_label(ownership.layout)}", True),
        (_labels.balance_label(ownership), False),
        (_labels.empty_label(ownership), True),
        (_labels.pending_label(ownership.layout), False),
        (_labels.hidden_label(picture, ownership.shape), False),
        (f"{shown} of {len(picture.panels)} slices are drawn" if shown < len(picture.panels) else "", False),
    ]
    lines = [(line, bold) for text, bold in texts if text for line in textwrap.wrap(text, _CHARACTERS_IN_A_LINE)]
    return tuple(TitleLine(line, _TOP + (i + 1) * _TITLE_LINE, bold) for i, (line, bold) in enumerate(lines))


def _panels(picture: Picture, top: float, highest: float) -> tuple[Area, ...]:
    """A grid of equal areas, as high as their matrices are against their width or their labels need, within bounds."""
    count = min(len(picture.panels), _MAX_PANELS)
    if not count:
        return ()
    across = math.ceil(math.sqrt(count))
    down = math.ceil(count / across)
    width = (_MAP_WIDTH - (across - 1) * _PANEL_GAP_X) / across
    pieces = max(len({tile.rows[0] for tile in panel.tiles}) for panel in picture.panels)
    wanted = max(width * picture.rows.size / max(1, picture.columns.size), pieces * _LINE_OF_TEXT)
    height = min(max(wanted, _MIN_MAP_HEIGHT), (highest - (down - 1) * _PANEL_GAP_Y) / down)
    return tuple(
        Area(
            _LEFT + index % across * (width + _PANEL_GAP_X),
            top + index // across * (height + _PANEL_GAP_Y),
            width,
            height,
        )
        for index in range(count)
    )
