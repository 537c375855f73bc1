"""A row of the report: what is to be found, and what was."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from paired.measure import Effort, Quartiles, Sides, quartiles, time_pairs


@dataclass(frozen=True)
class AtMost:
    """ours / baseline <= bound."""

    bound: float

    def ratio(self, ours: list[float], theirs: list[float]) -> Quartiles:
        return quartiles([our / their for our, their in zip(ours, theirs, strict=True)])

    def reached(self, ratio: Quartiles) -> bool:
        return ratio.median <= self.bound

    def __str__(self) -> str:
        return f"<= {self.bound:g}"


@dataclass(frozen=True)
class Faster:
    """baseline / ours >= bound."""

    bound: float

    def ratio(self, ours: list[float], theirs: list[float]) -> Quartiles:
        return AtMost(self.bound).ratio(theirs, ours)

    def reached(self, ratio: Quartiles) -> bool:
        return ratio.median >= self.bound

    def __str__(self) -> str:
        return f">= {self.bound:g}x faster"


@dataclass(frozen=True)
class Row:
    """A figure that was found: median seconds of one call, ratios over the pairs."""

    what: str
    plain: float | None
    ours: float
    theirs: float
    ratio: Quartiles
    noise: Quartiles
    goal: AtMost | Faster

    @property
    def reached(self) -> bool:
        return self.goal.reached(self.ratio)

    @property
    def verdict(self) -> str:
        return "yes" if self.reached else "missed"


@dataclass(frozen=True)
class Figure:
    """A row still to be found.

    Args:
        what: Its text.
        goal: What the ratio shall reach: of whole times, or of what is added to the plain side where there is one.
        sides: Makes the inputs and checks that the sides agree.
        bytes: Size of the whole tensor.
    """

    what: str
    goal: AtMost | Faster
    sides: Callable[[], Sides]
    bytes: int = 0

    def run(self, effort: Effort) -> Row:
        """Times the sides; all ranks together."""
        sides = self.sides()
        times = time_pairs(sides, effort)
        base = times.plain if sides.plain is not None else [0.0] * effort.pairs
        ours, theirs, again = (
            [seconds - plain for seconds, plain in zip(side, base, strict=True)]
            for side in (times.ours, times.theirs, times.again)
        )
        return Row(
            self.what,
            quartiles(times.plain).median if sides.plain is not None else None,
            quartiles(times.ours).median,
            quartiles(times.theirs).median,
            self.goal.ratio(ours, theirs),
            AtMost(1).ratio(again, theirs),
            self.goal,
        )
