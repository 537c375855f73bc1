"""Local tensors that are views: MindSpore would write a copy of them without a word."""

from __future__ import annotations

import mindspore
import numpy as np
import pytest

from hyper_parallel import DeviceMesh, FailedPreconditionError, RaggedShard
from hyper_parallel.core.dtensor import DTensor
from support.pool import RankPools
from support.worker import Rank

WHOLE = np.arange(6, dtype=np.float32)


def dtensor(local: mindspore.Tensor) -> DTensor:
    return DTensor.from_local(local, DeviceMesh((1,), ("fsdp",)), [RaggedShard((0,), (1,))], shape=local.shape)


def write_to_a_view(rank: Rank, begin: int, operation: str) -> None:
    base = mindspore.Tensor(WHOLE)
    view = dtensor(base[begin : begin + 3])
    arguments = {"add_": (1,), "copy_": (dtensor(mindspore.Tensor(WHOLE[:3])),), "zero_": ()}[operation]
    with pytest.raises(FailedPreconditionError, match=rf"operation '{operation}' would write a local tensor that is a"):
        getattr(view, operation)(*arguments)
    np.testing.assert_array_equal(base.asnumpy(), WHOLE)


def write_to_a_whole_tensor(rank: Rank) -> None:
    base = mindspore.Tensor(WHOLE)
    dtensor(base).add_(1)
    np.testing.assert_array_equal(base.asnumpy(), WHOLE + 1)


@pytest.mark.parametrize("begin", [0, 2])
@pytest.mark.parametrize("operation", ["add_", "copy_", "zero_"])
def test_a_write_to_a_view_raises_and_changes_nothing(rank_pools: RankPools, begin: int, operation: str) -> None:
    rank_pools[1].run(write_to_a_view, begin, operation)


def test_a_write_to_a_whole_tensor_reaches_it(rank_pools: RankPools) -> None:
    rank_pools[1].run(write_to_a_whole_tensor)
