"""For tests of operations that run through torch's own DTensor."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from hyper_parallel import (
    DeviceMesh,
    DTensor,
    Partial,
    Placement,
    Replicate,
    Shard,
    distribute_tensor,
    reset_fallback_counts,
)
from support.checks import make_mesh
from support.worker import environment

Body = Callable[..., None]


def falling_back(body: Body) -> Body:
    """Runs a body without STRICT, which the tests of everything else are run with, and with counts of its own."""

    @functools.wraps(body)
    def run(*args: Any, **kwargs: Any) -> None:
        with environment({"HYPER_PARALLEL_STRICT": "0"}):
            reset_fallback_counts()
            body(*args, **kwargs)

    return run


def layouts_of(ranks_count: int) -> dict[str, tuple[DeviceMesh, tuple[Placement, ...]]]:
    line = make_mesh(ranks_count)
    chosen: dict[str, tuple[DeviceMesh, tuple[Placement, ...]]] = {
        "replicated": (line, (Replicate(),)),
        "rows": (line, (Shard(0),)),
        "columns": (line, (Shard(1),)),
        "pending": (line, (Partial(),)),
        "pending max": (line, (Partial("max"),)),
    }
    if ranks_count == 4:
        square, permuted = make_mesh(2, 2), DeviceMesh((2, 2), ("dp", "tp"), (3, 0, 1, 2))
        chosen["grid"] = square, (Shard(0), Shard(1))
        chosen["nested"] = square, (Shard(0), Shard(0))
        chosen["pending beside rows"] = square, (Shard(0), Partial())
        chosen["permuted"] = permuted, (Shard(1), Replicate())
    return chosen


# 8 rows and 4 columns split evenly everywhere, 5 and 3 nowhere, 1 row leaves ranks empty.
SHAPES = [(8, 4), (5, 3), (1, 4)]


def spread(whole: torch.Tensor, mesh: DeviceMesh, placements: tuple[Placement, ...]) -> DTensor:
    """A leaf of the value `whole`, whatever is pending."""
    whole = whole.detach()
    replicas = [Replicate() if placement.is_partial() else placement for placement in placements]
    local = distribute_tensor(whole, mesh, replicas)._local_tensor.clone()
    coordinate = mesh.get_coordinate()
    assert coordinate is not None
    for position, size, placement in zip(coordinate, mesh.shape, placements, strict=True):
        if placement.is_partial("sum"):
            local = local / size + (position - (size - 1) / 2)
        elif placement.is_partial("max"):
            local -= (position != size - 1) * 3
    return DTensor(local.requires_grad_(whole.is_floating_point()), mesh, placements, shape=whole.shape)
