"""Redistributions that move data, from 1 KiB to 64 MiB of float32 in all."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import torch
from paired.figure import AtMost, Faster, Figure
from paired.measure import Sides
from paired.table import size_text

from dtensor_bench.worlds import Worlds, check_equal
from hyper_parallel import Partial, Placement, Replicate, Shard

_PAIRS = [(Shard(0), Replicate()), (Shard(0), Shard(1)), (Partial(), Shard(0))]
_SIZES = (1 << 10, 1 << 20, 64 << 20)
_COLUMNS = 16
_ITEM_BYTES = 4
_NOT_SLOWER = AtMost(1.0)


def figures(worlds: Worlds) -> list[Figure]:
    """Each redistribution at each size."""
    return [
        Figure(
            f"{_text(source)} -> {_text(target)}, {size_text(size)}",
            Faster(2)
            if size == max(_SIZES) and isinstance(target, Shard) and isinstance(source, Shard)
            else _NOT_SLOWER,
            _redistribution(worlds, source, target, size),
            size,
        )
        for (source, target), size in itertools.product(_PAIRS, _SIZES)
    ]


def _redistribution(worlds: Worlds, source: Placement, target: Placement, size: int) -> Callable[[], Sides]:
    def sides() -> Sides:
        shape = (size // (_COLUMNS * _ITEM_BYTES), _COLUMNS)
        ranks = worlds.mesh.size() if isinstance(source, Shard) else 1
        local = torch.rand(shape[0] // ranks, _COLUMNS)
        ours, theirs = worlds.ours(local, source, shape), worlds.theirs(local, source)
        targets, torch_targets = [target], [worlds.torch_placement(target)]
        mesh, torch_mesh = worlds.mesh, worlds.torch_mesh
        check_equal(
            ours.redistribute(mesh, targets).to_local(), theirs.redistribute(torch_mesh, torch_targets).to_local()
        )
        return Sides(lambda: ours.redistribute(mesh, targets), lambda: theirs.redistribute(torch_mesh, torch_targets))

    return sides


def _text(placement: Placement) -> str:
    return f"Shard({placement.dim})" if isinstance(placement, Shard) else type(placement).__name__
