"""The table that rank 0 prints."""

from __future__ import annotations

import torch
import torch.distributed as dist
from paired.figure import Row
from paired.measure import Effort
from paired.table import Column, Table, spread_text, time_text

_TABLE = Table(
    Column("what", 52),
    Column("plain", -12),
    Column("ours", -12),
    Column("torch DTensor", -14),
    Column("ratio", 18),
    Column("A/A", 18),
    Column("reach", 13),
    Column("reached", 7),
)


def print_header(effort: Effort) -> None:
    """Says what the columns are."""
    print(
        f"torch {torch.__version__}, {dist.get_world_size()} processes over Gloo on the loopback interface, one thread "
        f"each; {effort.pairs} pairs.\n"
        "Times are those of one call on the slowest rank, medians. Ratios are medians of paired ratios [quartiles]:\n"
        "ours / torch's DTensor, or how many times faster ours is; beside a plain side, of what each adds to that.\n"
        "A/A is torch's DTensor against itself.\n"
    )
    _TABLE.print_header()


def print_row(row: Row) -> None:
    """Prints a figure."""
    plain = "" if row.plain is None else time_text(row.plain)
    _TABLE.print_row(
        row.what,
        plain,
        time_text(row.ours),
        time_text(row.theirs),
        spread_text(row.ratio),
        spread_text(row.noise),
        f"{row.goal}",
        row.verdict,
    )
