"""The picture as text: a map of owners, and what each rank holds."""

from __future__ import annotations

import itertools
import textwrap
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hyper_parallel.visualize import _labels
from hyper_parallel.visualize._ownership import Ownership, Share
from hyper_parallel.visualize._picture import Panel, Picture

__all__ = ["text_of"]

_MAX_LINES = 16
_MAX_COLUMNS = 16
_MAX_PANELS = 8
_MAX_BAR = 20
_LARGEST_SHOWN = 5
_MARKS_IN_A_GROUP = 8
_MAX_MARKS = 512
_EIGHTHS = " ▏▎▍▌▋▊▉"
_LEVELS = "▁▂▃▄▅▆▇█"
_EMPTY_MARK = "x"


def text_of(ownership: Ownership, picture: Picture, width: int) -> str:
    """All of it, in lines of at most ``width`` characters."""
    parts = [_header(ownership, width)]
    if ownership.numel:
        parts.extend(_maps(ownership, picture, width))
        if len(ownership.shares) > _MAX_LINES and ownership.smallest != ownership.largest:
            parts.append(_marks(ownership, width))
        parts.append(_table(ownership))
    return "\n\n".join("\n".join(_cut(line, width) for line in part) for part in parts)


def _cut(line: str, width: int) -> str:
    line = line.rstrip()
    return line if len(line) <= width else line[: width - 1] + "…"


def _header(ownership: Ownership, width: int) -> list[str]:
    texts = [
        f"shape {ownership.shape}  {_labels.layout_label(ownership.layout)}",
        _labels.balance_label(ownership),
        _labels.empty_label(ownership),
        _labels.pending_label(ownership.layout),
    ]
    return [line for text in texts if text for line in textwrap.wrap(text, width, subsequent_indent="  ")]


@dataclass(frozen=True)
class _Blocks:
    """Consecutive pieces of an axis, one line or column of a map each; block i is [cuts[i], cuts[i + 1])."""

    cuts: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.cuts) - 1

    def covered(self, span: tuple[int, int]) -> range:
        """The blocks that a span meets."""
        return range(bisect_right(self.cuts, span[0]) - 1, bisect_left(self.cuts, span[1]))

    def labels(self) -> list[str]:
        return [str(begin) if end == begin + 1 else f"{begin}:{end}" for begin, end in itertools.pairwise(self.cuts)]


def _blocks(size: int, borders: set[int], limit: int) -> _Blocks:
    """A block per index if these are few, else one between two borders if those are few, else even blocks."""
    if size <= limit:
        return _Blocks(tuple(range(size + 1)))
    cuts = sorted(borders | {0, size})
    if len(cuts) - 1 <= limit:
        return _Blocks(tuple(cuts))
    return _Blocks(tuple(index * size // limit for index in range(limit + 1)))


def _maps(ownership: Ownership, picture: Picture, width: int) -> Iterator[list[str]]:
    caption = _caption(ownership, picture)
    for panel in picture.panels[:_MAX_PANELS]:
        label = _labels.panel_label(panel)
        yield caption + ([f"{label}:"] if label else []) + _map(ownership, picture, panel, width)
        caption = []
    if len(picture.panels) > _MAX_PANELS:
        yield [f"… and {len(picture.panels) - _MAX_PANELS} more slices"]


def _caption(ownership: Ownership, picture: Picture) -> list[str]:
    axes = [
        f"{name} {_labels.axis_label(axis)}"
        for name, axis in (("rows", picture.rows), ("columns", picture.columns))
        if axis.dims
    ]
    if not axes:
        return ["the ranks that hold the element:"]
    hidden = _labels.hidden_label(picture, ownership.shape)
    return ([hidden] if hidden else []) + [f"{', '.join(axes)}; a cell names the ranks that hold it:"]


def _map(ownership: Ownership, picture: Picture, panel: Panel, width: int) -> list[str]:
    """The widest map that fits: columns are joined until it does."""
    rows = _blocks(picture.rows.size, _borders([tile.rows for tile in panel.tiles]), _MAX_LINES)
    borders = _borders([tile.columns for tile in panel.tiles])
    lines: list[str] = []
    for limit in range(_MAX_COLUMNS, 0, -1):
        columns = _blocks(picture.columns.size, borders, limit)
        lines = _grid(_owners(ownership, panel, rows, columns), rows if picture.rows.dims else None, columns)
        if max(map(len, lines)) <= width:
            break
    return lines


def _borders(spans: Sequence[tuple[int, int]]) -> set[int]:
    return {border for span in spans for border in span}


def _owners(ownership: Ownership, panel: Panel, rows: _Blocks, columns: _Blocks) -> list[list[str]]:
    """The ranks that hold a part of each block."""
    found: list[list[set[int]]] = [[set() for _ in range(len(columns))] for _ in range(len(rows))]
    for tile in panel.tiles:
        for row, column in itertools.product(rows.covered(tile.rows), columns.covered(tile.columns)):
            found[row][column].update(ownership.shares[tile.share].ranks)
    return [[_labels.ranks_label(sorted(ranks), max_runs=2) for ranks in line] for line in found]


def _grid(cells: list[list[str]], rows: _Blocks | None, columns: _Blocks) -> list[str]:
    """The cells under and behind their indices; without rows, a lone line."""
    header, labels = columns.labels(), rows.labels() if rows else [""]
    border = "│" if rows else " "
    widths = [max(map(len, column)) for column in zip(header, *cells, strict=True)]
    label_width = max(map(len, labels))

    def line(label: str, separator: str, texts: Sequence[str]) -> str:
        padded = "  ".join(text.rjust(width) for text, width in zip(texts, widths, strict=True))
        return f"  {label.rjust(label_width)} {separator} {padded}"

    return [line("", " ", header), *(line(label, border, row) for label, row in zip(labels, cells, strict=True))]


def _marks(ownership: Ownership, width: int) -> list[str]:
    """A mark per share, as high as the share is large."""
    shares = ownership.shares
    per_mark = -(-len(shares) // _MAX_MARKS)
    sizes = [max(share.numel for share in shares[i : i + per_mark]) for i in range(0, len(shares), per_mark)]
    marks = [_LEVELS[-(-size * len(_LEVELS) // ownership.largest) - 1] if size else _EMPTY_MARK for size in sizes]
    label_width = len(str(shares[-1].ranks[0]))
    groups_in_line = max(1, (width - label_width - 3) // (_MARKS_IN_A_GROUP + 1))
    what = "a mark per rank" if per_mark == 1 else f"a mark per {per_mark} ranks, the largest of them"
    if ownership.replica_count > 1:
        what = what.replace("rank", "share")
    lines = [f"elements held, {what}; █ is {ownership.largest}, {_EMPTY_MARK} is empty:"]
    per_line = groups_in_line * _MARKS_IN_A_GROUP
    for start in range(0, len(marks), per_line):
        line = marks[start : start + per_line]
        groups = ("".join(line[i : i + _MARKS_IN_A_GROUP]) for i in range(0, len(line), _MARKS_IN_A_GROUP))
        lines.append(f"  {shares[start * per_mark].ranks[0]:>{label_width}}  {' '.join(groups)}")
    return lines


def _table(ownership: Ownership) -> list[str]:
    """A line per share; where shares are many, a line per run of equal shares, or the largest alone."""
    runs = [[share] for share in ownership.shares]
    if len(runs) > _MAX_LINES:
        runs = [list(run) for _, run in itertools.groupby(ownership.shares, key=lambda share: share.numel)]
    rest: list[Share] = []  # in descending order of size
    if len(runs) > _MAX_LINES:
        ordered = sorted(ownership.shares, key=lambda share: (-share.numel, share.ranks))
        runs, rest = [[share] for share in ordered[:_LARGEST_SHOWN]], ordered[_LARGEST_SHOWN:]
    ranks_title = "ranks" if ownership.replica_count > 1 or len(runs) < len(ownership.shares) else "rank"
    rows = [(ranks_title, "elements", "share", "", "holds"), *(_row(ownership, run) for run in runs)]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    lines = [
        f"  {rank:>{widths[0]}}  {count:>{widths[1]}}  {part:>{widths[2]}}  {bar:<{widths[3]}}  {holds}"
        for rank, count, part, bar, holds in rows
    ]
    if rest:
        full = [share for share in rest if share.numel]
        ranks = sum(len(share.ranks) for share in full)
        lines.append(f"  … {ranks} more ranks hold {full[-1].numel} to {full[0].numel} elements each" if full else "")
    return lines


def _row(ownership: Ownership, run: list[Share]) -> tuple[str, str, str, str, str]:
    share = run[0]
    ranks = _labels.ranks_label(sorted(rank for member in run for rank in member.ranks), max_runs=4)
    holds = _labels.share_label(share, ownership.shape)
    if len(run) > 1 and share.numel:
        holds += f" … {_labels.share_label(run[-1], ownership.shape)}"
    part = f"{share.numel / ownership.numel:.0%}" if share.numel * 100 >= ownership.numel or not share.numel else "<1%"
    return ranks, str(share.numel), part, _bar(share.numel, ownership.largest), holds


def _bar(value: int, largest: int) -> str:
    """A bar of at most ``_MAX_BAR`` characters in steps of an eighth; the smallest share still shows."""
    eighths = max(1, round(value * _MAX_BAR * 8 / largest)) if value else 0
    return "█" * (eighths // 8) + (_EIGHTHS[eighths % 8] if eighths % 8 else "")
