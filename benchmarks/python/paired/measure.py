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
from typing import Self

import torch
import torch.distributed as dist

Call = Callable[[], object]

_GROWTH = 4
_MOST_CALLS = 100_000


def nothing() -> None:
    """What a loop itself costs."""


@dataclass(frozen=True)
class Effort:
    """How thoroughly rows are timed."""

    pairs: int
    seconds: float = 0.02  # of a side, each time; 0 for one call
    most_bytes: int = 1 << 40
    warm_up_pairs: int = 2


@dataclass(frozen=True)
class Sides:
    """What is called.

    Args:
        ours: The side that is judged.
        theirs: The baseline.
        plain: What both add to; None where their whole times count.
        settle: Called whenever the clock has stopped, before the results are let go.
    """

    ours: Call
    theirs: Call
    plain: Call | None = None
    settle: Call = nothing


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


def time_pairs(sides: Sides, effort: Effort) -> Times:
    """Times every side as often and as long as `effort` says; all ranks call this together."""
    for call in (sides.ours, sides.theirs):
        result = call()  # imports what it needs
        sides.settle()
        del result
    # What there is by now need not be looked through each time that garbage is collected.
    gc.collect()
    gc.freeze()
    times = Times()
    plain, ours, theirs = (
        _Loop.of(call, sides.settle, effort.seconds) for call in (sides.plain or nothing, sides.ours, sides.theirs)
    )
    collected = [(plain, times.plain), (ours, times.ours), (theirs, times.theirs), (theirs, times.again)]
    for pair in range(-effort.warm_up_pairs, effort.pairs):
        for loop, kept in collected if pair % 2 == 0 else collected[::-1]:
            taken = loop.seconds()
            if pair >= 0:
                kept.append(taken / loop.calls)
    gc.unfreeze()
    return times


@dataclass(frozen=True)
class _Loop:
    """So many calls at a time. The sides of a row take about as long as each other: what the machine does in between
    would else hit the long ones alone."""

    call: Call
    settle: Call
    calls: int

    @classmethod
    def of(cls, call: Call, settle: Call, seconds: float) -> Self:
        """As many calls as take about `seconds`, the same number on every rank."""
        calls, taken = 1, cls(call, settle, 1).seconds()
        while taken < seconds / _GROWTH and calls < _MOST_CALLS:
            calls *= _GROWTH
            taken = cls(call, settle, calls).seconds()
        return cls(call, settle, max(1, round(calls * seconds / taken)))

    def seconds(self) -> float:
        """Of all calls on the slowest rank, from a barrier on. The last result is let go when the clock has stopped."""
        gc.collect()
        gc.disable()
        try:
            call = self.call
            dist.barrier()
            begin = time.perf_counter()
            for _ in repeat(None, self.calls):
                result = call()  # noqa: F841
            own = time.perf_counter() - begin
        finally:
            gc.enable()
        self.settle()
        slowest = torch.tensor(own, dtype=torch.float64)
        dist.all_reduce(slowest, dist.ReduceOp.MAX)
        return slowest.item()
