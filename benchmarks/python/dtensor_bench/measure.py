"""How the sides of a row are timed, and what their ratio is.

The sides run alternately, pair by pair, forwards and backwards: a disturbance that lasts longer than a pair hits all
sides of it, so ratios are taken within a pair and the median over pairs ignores the few that a shorter one hit. Each
side starts from a barrier, allocates its results while the clock runs and keeps its input; its time is that of the
slowest rank. The baseline runs twice in a pair: its ratio to itself (A/A) tells how far from 1 equal things come out.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import repeat

import torch
import torch.distributed as dist

Call = Callable[[], object]

_WARM_UP_PAIRS = 2


@dataclass(frozen=True)
class Sides:
    """What is called: ours, the baseline, and what both add to; None where their whole times count."""

    ours: Call
    theirs: Call
    plain: Call | None = None


@dataclass(frozen=True)
class Times:
    """Seconds of one call; element i of each list is from pair i."""

    plain: list[float] = field(default_factory=list)
    ours: list[float] = field(default_factory=list)
    theirs: list[float] = field(default_factory=list)
    again: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Quartiles:
    """Of values over the pairs."""

    lower: float
    median: float
    upper: float


def quartiles(values: list[float]) -> Quartiles:
    """By linear interpolation between order statistics.

    Example:
        >>> quartiles([1.0, 2.0, 3.0, 4.0])
        Quartiles(lower=1.75, median=2.5, upper=3.25)
    """
    return Quartiles(*statistics.quantiles(values, n=4, method="inclusive"))


def time_pairs(sides: Sides, pairs: int, calls: int) -> Times:
    """Times every side `pairs` times, `calls` calls at a time; all ranks call this together."""
    times = Times()
    collected = [
        (sides.plain or nothing, times.plain),
        (sides.ours, times.ours),
        (sides.theirs, times.theirs),
        (sides.theirs, times.again),
    ]
    for pair in range(-_WARM_UP_PAIRS, pairs):
        turn = collected if pair % 2 == 0 else collected[::-1]
        own = torch.tensor([_seconds(call, calls) for call, _ in turn], dtype=torch.float64)
        dist.all_reduce(own, dist.ReduceOp.MAX)
        if pair >= 0:
            for (_, kept), seconds in zip(turn, own.tolist(), strict=True):
                kept.append(seconds / calls)
    return times


def nothing() -> None:
    """What a loop itself costs."""


def _seconds(call: Call, calls: int) -> float:
    """Of `calls` calls on this rank, from a barrier on. The last result is let go when the clock has stopped."""
    gc.collect()
    gc.disable()
    try:
        dist.barrier()
        begin = time.perf_counter()
        for _ in repeat(None, calls):
            result = call()  # noqa: F841
        return time.perf_counter() - begin
    finally:
        gc.enable()
