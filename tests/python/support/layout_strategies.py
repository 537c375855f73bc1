"""Hypothesis strategies of both platforms: shapes, units and placements."""

from __future__ import annotations

import math
from dataclasses import dataclass

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from hyper_parallel import Partial, Placement, RaggedShard, Replicate, Shard
from support.arrays import DTYPES, FLOATS
from support.spread import Spread


@dataclass(frozen=True)
class Transition:
    """A tensor that goes from one layout to another."""

    source: Spread
    target: Spread
    dtype: str


PAIRS = [
    ("ragged", "ragged"),
    ("ragged", "shard"),
    ("ragged", "replicate"),
    ("shard", "ragged"),
    ("shard", "shard"),
    ("shard", "replicate"),
    ("replicate", "ragged"),
    ("replicate", "shard"),
    ("partial", "ragged"),
    ("partial", "shard"),
    ("partial", "replicate"),
]
"""The transitions of the design's table, by the kinds of their source and target."""


def shapes(min_dims: int = 1) -> st.SearchStrategy[tuple[int, ...]]:
    """Up to 4 dims, empty ones among them; sizes have many divisors, or none."""
    sizes = st.sampled_from((0, 1, 2, 3, 4, 5, 6, 7, 12))
    return st.lists(sizes, min_size=min_dims, max_size=4).map(tuple).filter(lambda shape: math.prod(shape) <= 2000)


@st.composite
def ragged_placements(draw: DrawFn, shape: tuple[int, ...], ranks: int) -> RaggedShard:
    """A ragged placement that fits the shape: any prefix, any units whose sum divides its cells."""
    prefix = draw(st.integers(1, len(shape)), label="prefix dims")
    cells = math.prod(shape[:prefix])
    totals = [total for total in range(1, 25) if cells % total == 0]
    total = draw(st.sampled_from(totals), label="total units")
    cuts = sorted(draw(st.lists(st.integers(0, total), min_size=ranks - 1, max_size=ranks - 1), label="cuts"))
    units = [end - begin for begin, end in zip([0, *cuts], [*cuts, total], strict=True)]
    return RaggedShard(tuple(range(prefix)), tuple(units))


def mesh_dims_with(draw: DrawFn, count: int) -> set[int]:
    """A drawn set of mesh dims, at least one."""
    return draw(st.sets(st.integers(0, count - 1), min_size=1), label="mesh dims")


@st.composite
def placements(
    draw: DrawFn, kind: str, shape: tuple[int, ...], mesh_shape: tuple[int, ...], operations: tuple[str, ...]
) -> tuple[Placement, ...]:
    """Placements that are called `kind`: shard and partial on at least one mesh dim, something else beside."""
    shards = st.integers(0, len(shape) - 1).map(Shard)
    whole: st.SearchStrategy[Placement] = st.just(Replicate())
    if kind == "replicate":
        return tuple(Replicate() for _ in mesh_shape)
    if kind == "ragged":
        mesh_dim = draw(st.integers(0, len(mesh_shape) - 1), label="ragged mesh dim")
        ragged = draw(ragged_placements(shape, mesh_shape[mesh_dim]))
        return tuple(ragged if dim == mesh_dim else Replicate() for dim in range(len(mesh_shape)))
    if kind == "shard":
        sharded = mesh_dims_with(draw, len(mesh_shape))
        return tuple(draw(shards if dim in sharded else whole) for dim in range(len(mesh_shape)))
    pending = mesh_dims_with(draw, len(mesh_shape))
    partials = st.sampled_from(operations).map(Partial)
    return tuple(draw(partials if dim in pending else st.one_of(shards, whole)) for dim in range(len(mesh_shape)))


@st.composite
def transitions(
    draw: DrawFn, source: str, target: str, mesh_shape: tuple[int, ...], dtypes: tuple[str, ...] = DTYPES
) -> Transition:
    """A transition from a layout of kind `source` to one of kind `target`."""
    if source == "partial":
        dtypes = tuple(dtype for dtype in dtypes if dtype != "bool")
    dtype = draw(st.sampled_from(dtypes), label="dtype")
    # The mean of integers is none, so that Partial(avg) of them raises.
    operations = ("sum", "avg", "max", "min") if dtype in FLOATS else ("sum", "max", "min")
    shape = draw(shapes(), label="shape")
    ends = [
        Spread(shape, mesh_shape, draw(placements(kind, shape, mesh_shape, operations), label=kind))
        for kind in (source, target)
    ]
    return Transition(ends[0], ends[1], dtype)
