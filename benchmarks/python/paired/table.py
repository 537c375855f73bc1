"""The table that rank 0 prints, row by row as figures are found."""

from __future__ import annotations

from dataclasses import dataclass

from paired.measure import Quartiles

_GAP = 2
_UNITS = ("B", "KiB", "MiB", "GiB")


@dataclass(frozen=True)
class Column:
    """A column: its title, and the least number of characters; negative if its cells stand at the right."""

    title: str
    width: int

    def cell(self, text: str) -> str:
        return f"{text:>{-self.width}}" if self.width < 0 else f"{text:<{self.width}}"


class Table:
    """Columns that keep their widths."""

    def __init__(self, *columns: Column) -> None:
        self._columns = columns

    def print_header(self) -> None:
        """Prints the titles."""
        self.print_row(*(column.title for column in self._columns))
        print("-" * (sum(abs(column.width) + _GAP for column in self._columns) - _GAP), flush=True)

    def print_row(self, *cells: str) -> None:
        """Prints one cell for each column."""
        texts = [column.cell(text) for column, text in zip(self._columns, cells, strict=True)]
        print((" " * _GAP).join(texts).rstrip(), flush=True)


def time_text(seconds: float) -> str:
    """A time to four digits or so.

    Example:
        >>> time_text(0.0123)
        '12.30 ms'
    """
    if seconds >= 1:
        return f"{seconds:.2f} s"
    return f"{seconds * 1e6:.2f} µs" if seconds < 1e-3 else f"{seconds * 1e3:.2f} ms"  # noqa: PLR2004


def spread_text(ratio: Quartiles) -> str:
    """A median and its quartiles.

    Example:
        >>> spread_text(Quartiles(0.9, 1, 1.2))
        '1.00 [0.90, 1.20]'
    """
    return f"{ratio.median:.2f} [{ratio.lower:.2f}, {ratio.upper:.2f}]"


def size_text(size: float) -> str:
    """Bytes in the largest unit that leaves at least one of it.

    Example:
        >>> size_text(64 << 20), size_text(-(3 << 19)), size_text(0)
        ('64 MiB', '-1.5 MiB', '0 B')
    """
    for unit in _UNITS[:-1]:
        if abs(size) < 1024:  # noqa: PLR2004
            return f"{round(size, 1):g} {unit}"
        size /= 1024
    return f"{round(size, 1):g} {_UNITS[-1]}"
