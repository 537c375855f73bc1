"""Layouts of a (6, 4) tensor that elementwise tests use, by name and by number of ranks."""

from __future__ import annotations

from hyper_parallel import Placement, RaggedShard, Replicate, Shard

SHAPE = (6, 4)

UNITS: dict[str, dict[int, tuple[int, ...]]] = {
    "ragged": {2: (1, 2), 4: (1, 2, 0, 3)},
    "one holder": {2: (0, 1), 4: (0, 1, 0, 0)},
    "ragged columns": {2: (5, 7), 4: (5, 0, 1, 6)},
}
RAGGED = tuple(UNITS)
ALL = (*RAGGED, "replicated", "sharded")


def placement_of(layout: str, ranks: int) -> Placement:
    """The placement on a mesh of one dim; the sharded one is uneven over 4 ranks and leaves the last one empty."""
    match layout:
        case "replicated":
            return Replicate()
        case "sharded":
            return Shard(0)
        case "ragged columns":
            return RaggedShard((0, 1), UNITS[layout][ranks])
        case _:
            return RaggedShard((0,), UNITS[layout][ranks])
