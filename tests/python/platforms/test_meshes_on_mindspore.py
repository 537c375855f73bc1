"""Meshes with dims of one rank, of ranks in another order, of a part of the ranks: values, gradients, checkpoints."""

from __future__ import annotations

import itertools
from pathlib import Path

import mindspore
import numpy as np
import pytest

from hyper_parallel import DeviceMesh, Placement, RaggedShard, Replicate, Shard, checkpoint, distribute_tensor
from support.pool import RankPools
from support.worker import Rank

MESHES: dict[int, list[tuple[tuple[int, ...], tuple[int, ...]]]] = {
    2: [((2, 1), (0, 1)), ((1, 2), (1, 0)), ((1,), (1,))],
    3: [((3, 1), (0, 1, 2)), ((3,), (2, 0, 1)), ((2,), (2, 0)), ((2, 1), (1, 2))],
    4: [((2, 2), (3, 1, 0, 2)), ((3, 1), (1, 2, 3)), ((1, 2), (3, 1))],
}
UNITS = {1: (3,), 2: (1, 2), 3: (2, 0, 1)}
WHOLE = np.arange(48, dtype=np.float32).reshape(12, 4) - 20


def layouts_of(shape: tuple[int, ...]) -> list[tuple[Placement, ...]]:
    """Every pair of placements of which at most one is ragged, beside Replicate alone."""
    choices = [(Replicate(), Shard(0), Shard(1), RaggedShard((0,), UNITS[size])) for size in shape]
    return [
        placements
        for placements in itertools.product(*choices)
        if not any(placement.is_ragged_shard() for placement in placements)
        or sum(placement.is_replicate() for placement in placements) == len(shape) - 1
    ]


def moves_and_resumes(rank: Rank, shape: tuple[int, ...], members: tuple[int, ...], folder: Path) -> None:
    mesh = DeviceMesh(shape, rank_list=members)
    layouts = layouts_of(shape)
    targets = [layouts[(5 * index + 3) % len(layouts)] for index in range(len(layouts))]
    for placements, target in zip(layouts, targets, strict=True):
        for source in (None, 0):
            x = distribute_tensor(mindspore.Tensor(WHOLE), mesh, placements, src_data_rank=source)
            moved = (x * 2).redistribute(target)
        if rank.index not in members:
            continue
        np.testing.assert_array_equal(moved.full_tensor().asnumpy(), 2 * WHOLE)
        gradient = mindspore.grad(
            lambda factor, x=x, to=target: (x * factor).redistribute(to).full_tensor([Replicate()] * len(to)).sum()
        )(mindspore.Tensor(1.0))
        np.testing.assert_allclose(gradient.asnumpy(), WHOLE.sum())
    whole, nothing = mindspore.Tensor(WHOLE), mindspore.Tensor(np.zeros_like(WHOLE))
    saved = {str(index): distribute_tensor(whole, mesh, placements) for index, placements in enumerate(layouts)}
    checkpoint.save(saved, folder)
    loaded = {str(index): distribute_tensor(nothing, mesh, placements) for index, placements in enumerate(targets)}
    checkpoint.load(loaded, folder)
    for tensor in loaded.values():
        given = tensor.full_tensor().asnumpy()
        if rank.index in members:
            np.testing.assert_array_equal(given, WHOLE)


@pytest.mark.parametrize(
    ("size", "shape", "members"), [(size, *mesh) for size, meshes in MESHES.items() for mesh in meshes]
)
def test_any_mesh_of_the_jobs_ranks_works(
    rank_pools: RankPools, size: int, shape: tuple[int, ...], members: tuple[int, ...], tmp_path: Path
) -> None:
    rank_pools[size].run(moves_and_resumes, shape, members, tmp_path / "d")
