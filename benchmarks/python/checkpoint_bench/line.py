"""A line of the report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch
from paired.figure import AtMost, Figure
from paired.measure import Effort, Sides
from paired.table import Column, Table, spread_text, time_text

_TABLE = Table(
    Column("what", 50),
    Column("ours", -11),
    Column("baseline", 26),
    Column("", -11),
    Column("ratio", 18),
    Column("A/A", 18),
    Column("wanted", 19),
    Column("reached", 7),
)


@dataclass(frozen=True)
class Line:
    """What was found for one row, as text."""

    what: str
    ours: str
    baseline: str
    theirs: str
    ratio: str
    noise: str
    wanted: str
    verdict: str

    @classmethod
    def timed(cls, what: str, baseline: str, goal: AtMost, sides: Sides, effort: Effort) -> Self:
        """Times the sides; all ranks together."""
        row = Figure(what, goal, lambda: sides).run(effort)
        ratio, noise = spread_text(row.ratio), spread_text(row.noise)
        ours, theirs = time_text(row.ours), time_text(row.theirs)
        return cls(what, ours, baseline, theirs, ratio, noise, f"{goal}", row.verdict)

    @classmethod
    def skipped(cls, what: str, why: str) -> Self:
        """A row that cannot be had here."""
        return cls(what, "", why, "", "", "", "", "skipped")

    def print(self) -> None:
        """Prints it."""
        _TABLE.print_row(
            self.what, self.ours, self.baseline, self.theirs, self.ratio, self.noise, self.wanted, self.verdict
        )


def print_header(effort: Effort) -> None:
    """Says what the columns are."""
    print(
        f"torch {torch.__version__}, processes over Gloo on the loopback interface, one thread each; {effort.pairs} "
        "pairs, one call a time.\n"
        "Times are those of the slowest rank, medians. Ratios are medians of paired ratios [quartiles] of ours / the "
        "baseline;\nA/A is the baseline against itself. Both sides allocate what they load into and flush what they "
        "write; what they read is\nin the page cache. Memory is what a rank takes beyond what it has at entry, of the "
        "rank that is furthest above its local\nbytes; it may take these and 64 MiB.\n"
    )
    _TABLE.print_header()
