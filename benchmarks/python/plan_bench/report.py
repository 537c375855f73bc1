"""The table of what plans receive."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from paired.table import Column, Table

from hyper_parallel import Partial, Placement, Shard
from plan_bench.pairs import Pair, Received, World

_TABLE = Table(
    Column("mesh, tensor", 26),
    Column("pairs", 22),
    Column("count", -6),
    Column("ours/bound", -12),
    Column("torch takes", -11),
    Column("ours/greedy", -12),
    Column("ours/graph", -12),
    Column("ours/cheaper", -12),
    Column("most", 7),
    Column("furthest from the bound", 30),
)


@dataclass(frozen=True)
class Ratios:
    """What ours receives divided by another count, over pairs."""

    values: tuple[float, ...]

    def __str__(self) -> str:
        if not self.values:
            return "-"
        return f"{statistics.median(self.values):.2f} {max(self.values):.2f}"


@dataclass(frozen=True)
class Row:
    """Pairs of one world, with or without a reduction."""

    world: World
    what: str
    pairs: tuple[Received, ...]

    @property
    def losses(self) -> list[Received]:
        """Those for which torch receives less."""
        return [each for each in self.pairs if each.ours > each.torch_least]

    def ratios(self, other: Callable[[Received], float]) -> Ratios:
        return Ratios(tuple(sorted(_ratio(each.ours, other(each)) for each in self.pairs)))

    def print(self) -> None:
        """Prints it."""
        taken = Row(self.world, self.what, tuple(each for each in self.pairs if each.torch))
        furthest = max(self.pairs, key=lambda each: _ratio(each.ours, each.bound))
        at_bound = furthest.ours == furthest.bound
        _TABLE.print_row(
            f"{self.world}",
            self.what,
            f"{len(self.pairs)}",
            f"{self.ratios(lambda each: each.bound)}",
            f"{len(taken.pairs)}",
            f"{taken.ratios(lambda each: each.torch['greedy'])}",
            f"{taken.ratios(lambda each: each.torch['graph'])}",
            f"{taken.ratios(lambda each: each.torch_least)}",
            "missed" if self.losses else "yes",
            "" if at_bound else short_text(furthest.pair),
        )


def rows(world: World, pairs: Iterable[Received]) -> Iterator[Row]:
    """The pairs of a world, those without a reduction first."""
    found = tuple(pairs)
    for from_partial, what in ((False, "without a reduction"), (True, "with one or more")):
        yield Row(world, what, tuple(each for each in found if each.pair.from_partial is from_partial))


def print_header() -> None:
    """Says what the columns are."""
    print(
        "What all ranks together receive in a redistribution, over pairs of normal layouts (Replicate, Shard(0..2),\n"
        "Partial). Ratios, the median and the worst, of our plan's bytes to the lower bound and to the bytes of torch\n"
        "DTensor's sequences: the greedy one, the graph-planned one, and the cheaper of the two for each pair, which\n"
        "ours shall never exceed. Torch refuses most mixtures of reductions; the padding that it sends is counted.\n"
    )
    _TABLE.print_header()


def short_text(pair: Pair) -> str:
    """The pair in the notation of the command `hyper-parallel plan`.

    Example:
        >>> from hyper_parallel import Replicate
        >>> short_text(Pair((Partial("max"), Shard(1)), (Replicate(), Shard(0))))
        'P(max), S(1) -> R, S(0)'
    """
    return " -> ".join(", ".join(map(_short, placements)) for placements in (pair.source, pair.target))


def _short(placement: Placement) -> str:
    match placement:
        case Shard():
            return f"S({placement.dim})"
        case Partial():
            return f"P({placement.reduce_op})"
        case _:
            return "R"


def _ratio(ours: float, theirs: float) -> float:
    if ours == theirs:
        return 1.0
    return ours / theirs if theirs else float("inf")
