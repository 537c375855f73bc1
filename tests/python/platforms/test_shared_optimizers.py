"""Optimizers of the framework on ragged and sharded parameters train as one process does on whole ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from hyper_parallel import Placement, RaggedShard, Replicate, Shard
from support.arrays import Array, numbered
from support.frameworks import framework
from support.ranks import ranks
from support.spread import Spread
from support.worker import Rank

SHAPES = [(6, 4), (6,), (4, 3), (2, 2)]
STEPS = 4


def starts() -> list[Array]:
    return [np.sin(numbered(shape) + index).astype(np.float32) for index, shape in enumerate(SHAPES)]


def spreads(size: int) -> list[Spread]:
    """The second one has no element on rank 0."""
    units = {1: ((1,), (1,)), 2: ((1, 2), (0, 3)), 4: ((1, 2, 0, 3), (0, 1, 0, 0))}[size]
    placements: list[Placement] = [RaggedShard((0,), units[0]), RaggedShard((0,), units[1]), Shard(0), Replicate()]
    return [Spread(shape, (size,), (placement,)) for shape, placement in zip(SHAPES, placements, strict=True)]


def loss_of_rank(wholes: Sequence[Any], step: int, index: int) -> Any:
    """Of rank `index`'s own data."""
    total: Any = 0.0
    for whole, shape in zip(wholes, SHAPES, strict=True):
        data = np.cos(numbered(shape) * (index + 1) + step) + 1.5
        total = total + framework.weighted_sum((whole - index) * whole, data)
    return total


@pytest.mark.parametrize("optimizer", list(framework.OPTIMIZERS))
@ranks(1, 2, 4)
def test_training_is_that_of_one_process(rank: Rank, optimizer: str) -> None:
    trained = framework.train(
        starts(),
        spreads(rank.size),
        lambda wholes, step: loss_of_rank(wholes, step, rank.index),
        optimizer,
        STEPS,
    )
    alone = framework.train(
        starts(),
        None,
        lambda wholes, step: sum(loss_of_rank(wholes, step, index) for index in range(rank.size)),
        optimizer,
        STEPS,
    )
    for given, expected, start in zip(trained, alone, starts(), strict=True):
        np.testing.assert_allclose(given, expected, rtol=2e-5, atol=2e-5)
        assert np.abs(given - start).max() > 0.05, "the optimizer has changed it"
