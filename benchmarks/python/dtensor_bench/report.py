"""The table that rank 0 prints."""

from __future__ import annotations

import torch
import torch.distributed as dist

from dtensor_bench.figure import Effort, Row
from dtensor_bench.measure import Quartiles

_WIDTHS = (52, 12, 12, 14)


def print_header(effort: Effort) -> None:
    """Says what the columns are."""
    print(
        f"torch {torch.__version__}, {dist.get_world_size()} processes over Gloo on the loopback interface, one thread "
        f"each; {effort.pairs} pairs.\n"
        "Times are those of one call on the slowest rank, medians. Ratios are medians of paired ratios [quartiles]:\n"
        "ours / torch's DTensor, or how many times faster ours is; beside a plain side, of what each adds to that.\n"
        "A/A is torch's DTensor against itself.\n"
    )
    _print("what", "plain", "ours", "torch DTensor", "ratio", "A/A", "reach", "reached")
    print("-" * 160, flush=True)


def print_row(row: Row) -> None:
    """Prints a figure."""
    plain = "" if row.plain is None else _time(row.plain)
    reached = "yes" if row.reached else "missed"
    _print(
        row.what,
        plain,
        _time(row.ours),
        _time(row.theirs),
        _spread(row.ratio),
        _spread(row.noise),
        f"{row.goal}",
        reached,
    )


def _print(*cells: str) -> None:
    texts, ratios = cells[: len(_WIDTHS)], cells[len(_WIDTHS) :]
    first = f"{texts[0]:<{_WIDTHS[0]}}" + "".join(
        f"{text:>{width}}" for text, width in zip(texts[1:], _WIDTHS[1:], strict=True)
    )
    print(first + "  {:<20}{:<20}{:<15}{}".format(*ratios), flush=True)


def _time(seconds: float) -> str:
    return f"{seconds * 1e6:.2f} µs" if seconds < 1e-3 else f"{seconds * 1e3:.2f} ms"  # noqa: PLR2004


def _spread(ratio: Quartiles) -> str:
    return f"{ratio.median:.2f} [{ratio.lower:.2f}, {ratio.upper:.2f}]"
