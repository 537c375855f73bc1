"""Operations that run through torch's own DTensor are counted and logged; strict refuses them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from hyper_parallel import (
    DeviceMesh,
    RaggedShard,
    Replicate,
    Shard,
    distribute_tensor,
    fallback_counts,
    reset_fallback_counts,
)
from support.checks import assert_equal, assert_raises, make_mesh
from support.fallback import falling_back
from support.ranks import ranks
from support.values import numbered
from support.worker import Rank, environment


@contextmanager
def logged() -> Iterator[list[logging.LogRecord]]:
    """What the package logs meanwhile."""
    records: list[logging.LogRecord] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            records.append(record)

    logger, handler = logging.getLogger("hyper_parallel"), Keep()
    logger.addHandler(handler)
    try:
        yield records
    finally:
        logger.removeHandler(handler)


@ranks(2)
@falling_back
def test_each_operation_is_counted_and_logged_once_by_the_first_rank_of_the_mesh(rank: Rank) -> None:
    x = distribute_tensor(numbered((4, 2)), DeviceMesh((2,), ("dp",), (1, 0)), [Shard(0)])
    with logged() as records:
        for _ in range(3):
            torch.i0(x)
        x.logcumsumexp(0)
        x * 2
    assert fallback_counts() == {"i0": 3, "logcumsumexp": 1}
    assert [record.levelno for record in records] == [logging.WARNING] * (2 if rank.index == 1 else 0)
    for record, name in zip(records, ("i0", "logcumsumexp"), strict=False):
        assert record.getMessage() == (
            f"operation '{name}' has no rule and runs through torch's DTensor; HYPER_PARALLEL_STRICT=1 refuses instead"
        )
    counts = fallback_counts()
    counts["other"] = 1
    assert "other" not in fallback_counts()
    reset_fallback_counts()
    assert fallback_counts() == {}


@ranks(2)
@falling_back
def test_strict_refuses_as_ever_and_counts_nothing(rank: Rank) -> None:
    x = distribute_tensor(numbered((4, 2)), make_mesh(2), [Shard(0)])
    with environment({"HYPER_PARALLEL_STRICT": "1"}), logged() as records:
        text = "operation 'logcumsumexp' is not supported on a DTensor with placements [Shard(0)]"
        assert_raises(NotImplementedError, text, lambda: x.logcumsumexp(0))
        assert_raises(NotImplementedError, "x[i] of a DTensor takes one int", lambda: x[torch.tensor([0])])
    assert records == []
    assert fallback_counts() == {}


@ranks(2)
@falling_back
def test_rows_of_a_tensor_sharded_by_rows_stay_ragged_views(rank: Rank) -> None:
    x = distribute_tensor(numbered((4, 2)), make_mesh(2), [Shard(0)])
    x[2].zero_()
    assert x[2].placements == (RaggedShard((0,), (0, 1)),)
    assert_equal(x.full_tensor()[2], torch.zeros(2))
    replicated = distribute_tensor(numbered((4, 2)), make_mesh(2), [Replicate()])
    assert_equal(replicated[2].full_tensor(), numbered((4, 2))[2])
    assert_raises(NotImplementedError, "x[i] = v", lambda: replicated.__setitem__(0, 1.0))
    assert fallback_counts() == {}
