"""Every pair of normal layouts on a mesh: what our plan receives, what it must, and what torch's plans receive."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, partial

from torch.distributed import tensor as torch_tensor

from hyper_parallel import Layout, Partial, Placement, Replicate, Shard, _core
from plan_bench.torch_sequences import PLANNERS, TorchPlanner

Placements = tuple[Placement, ...]

REDUCTIONS = ("sum", "avg", "max", "min")
PLACEMENTS: Placements = (Replicate(), Shard(0), Shard(1), Shard(2), *(Partial(name) for name in REDUCTIONS))


@dataclass(frozen=True)
class World:
    """A mesh and a tensor on it."""

    mesh_shape: tuple[int, ...]
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.mesh_shape}, {'x'.join(map(str, self.shape))}"


# Every dim of the first shape splits evenly, and its bytes are what its transfers cost; no dim of the second does, and
# what counts for torch's graph planner is the number of transfers.
SHAPES = ((768, 768, 768), (5, 7, 3))
MESHES = ((2, 2), (2, 3), (2, 2, 2))
WORLDS = tuple(World(mesh, shape) for mesh in MESHES for shape in SHAPES)


LONG_SEARCH_NDIM = 3
"""On meshes of so many dims the search of torch's graph planner takes long."""


@dataclass(frozen=True)
class Pair:
    """From one list of placements to another."""

    source: Placements
    target: Placements

    @property
    def from_partial(self) -> bool:
        """Whether a reduction is pending."""
        both = zip(self.source, self.target, strict=True)
        return any(before.is_partial() and before != after for before, after in both)

    def __str__(self) -> str:
        return f"{list(self.source)} -> {list(self.target)}"


@dataclass(frozen=True)
class Received:
    """What all ranks together receive for a pair, in elements; torch's by planner, none where torch refuses it."""

    pair: Pair
    ours: int
    bound: int
    torch: dict[str, int]

    @property
    def torch_least(self) -> float:
        """The fewer of torch's planners; infinity where torch refuses the pair."""
        return min(self.torch.values(), default=math.inf)


def pairs_on(mesh_ndim: int) -> Iterator[Pair]:
    """All pairs for which a plan is asked: nothing becomes Partial, and a Partial that stays is the same one.

    Those in which a pending reduction would overtake an unlike one that stays are among them; `received` skips these.
    """
    choices = [
        (before, after) for before in PLACEMENTS for after in PLACEMENTS if not after.is_partial() or after == before
    ]
    for chosen in itertools.product(choices, repeat=mesh_ndim):
        sources, targets = zip(*chosen, strict=True)
        yield Pair(sources, targets)


def some_pairs_on(mesh_ndim: int, one_in: int | None = None) -> list[Pair]:
    """One in so many of all pairs; None takes all, or as many as torch's graph planner does in seconds."""
    if one_in is None:
        one_in = 1 if mesh_ndim < LONG_SEARCH_NDIM else 23
    return list(pairs_on(mesh_ndim))[::one_in]


def received(world: World, pairs: Iterable[Pair]) -> Iterator[Received]:
    """Counts what every pair receives by our plan and by torch's; inside `fake_world`.

    Args:
        world: The mesh and the shape.
        pairs: Those to count.

    Yields:
        One for each pair that may be planned.
    """
    layout = Layout(world.mesh_shape)
    layouts = cache(lambda placements: layout(list(placements)))
    planner = TorchPlanner(world.mesh_shape, world.shape)
    counted = cache(partial(received_by_torch, planner))
    for pair in pairs:
        if not _keeps_order(pair):
            continue
        cost = _core.plan_traffic(layouts(pair.source), layouts(pair.target), world.shape)
        # Torch reduces all that it allows beside one another alike: one of them stands for all.
        torch = counted(_with_sums(pair)) if planner.takes(as_torch(pair.source)) else {}
        yield Received(pair, cost.total_received, cost.lower_bound, torch)


def received_by_torch(planner: TorchPlanner, pair: Pair) -> dict[str, int]:
    """What all ranks receive by the sequences of each of torch's planners."""
    source, target = as_torch(pair.source), as_torch(pair.target)
    return {name: planner.least_received(name, source, target) for name in PLANNERS}


def _with_sums(pair: Pair) -> Pair:
    """The pair with every Partial a sum."""
    return Pair(
        *(
            tuple(Partial("sum") if placement.is_partial() else placement for placement in placements)
            for placements in (pair.source, pair.target)
        )
    )


def _keeps_order(pair: Pair) -> bool:
    """Whether every reduction may go before those further in that stay."""
    both = list(zip(pair.source, pair.target, strict=True))
    for outer, (before, after) in enumerate(both):
        if before.is_partial() and before != after:
            stay = [kept for kept, same in both[outer + 1 :] if kept.is_partial() and kept == same]
            if not all(_commute(before, kept) for kept in stay):
                return False
    return True


def _commute(a: Placement, b: Placement) -> bool:
    linear = (Partial("sum"), Partial("avg"))
    return a == b or (a in linear and b in linear)


def as_torch(placements: Placements) -> tuple[torch_tensor.Placement, ...]:
    """The placements as torch's own."""
    return tuple(_torch_placement(placement) for placement in placements)


@cache
def _torch_placement(placement: Placement) -> torch_tensor.Placement:
    match placement:
        case Shard():
            return torch_tensor.Shard(placement.dim)
        case Partial():
            return torch_tensor.Partial(placement.reduce_op)
        case _:
            return torch_tensor.Replicate()
