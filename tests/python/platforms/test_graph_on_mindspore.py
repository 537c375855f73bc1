"""Writes and the graph that MindSpore records: refused in a differentiated function, on all ranks, and nowhere else."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import mindspore
import numpy as np
import pytest
from mindspore import nn
from mindspore.graph.api import _pynative_executor

from hyper_parallel import DeviceMesh, FailedPreconditionError, RaggedShard, Replicate, Shard
from hyper_parallel.core.dtensor import DTensor
from hyper_parallel.mindspore.parameter import distribute_parameter
from support.pool import RankPools
from support.worker import Rank

REFUSED = "would write a parameter or an input of the function that is being differentiated"


class Squares(nn.Cell):  # type: ignore[misc]  # MindSpore has no types
    """The sum of the squares of its weight, after something else is done with that."""

    def __init__(self, rank: Rank, placement: Any, shape: tuple[int, ...] = (4,)) -> None:
        super().__init__()
        self.weight = mindspore.Parameter(mindspore.Tensor(np.full(shape, 3.0, np.float32)), name="weight")
        distribute_parameter(self, "weight", DeviceMesh((rank.size,), ("fsdp",)), [placement])
        self.first: Callable[[Any], object] = lambda weight: None

    def construct(self) -> mindspore.Tensor:
        self.first(self.weight)
        return (self.weight * self.weight).full_tensor([Replicate()]).sum()


def fail(weight: Any) -> None:
    weight * 2
    raise KeyError("the program's own")


def failed(cell: Squares, by: str) -> Callable[[], Any]:
    """What differentiates the cell, or a function that calls it, after that has ended with an exception once."""
    step = mindspore.value_and_grad(cell if by == "cell" else lambda: cell.construct(), None, cell.trainable_params())
    cell.first = fail
    with pytest.raises(KeyError):
        step()
    cell.first = lambda weight: None
    assert _pynative_executor.requires_grad(), "MindSpore ends it by itself: nothing is left to mend"
    return step


def write_after_an_exception(rank: Rank, by: str) -> None:
    cell = Squares(rank, RaggedShard((0,), (0, 1)[2 - rank.size :]))
    step = failed(cell, by)
    assert cell.weight.fill_(5) is cell.weight
    assert not _pynative_executor.requires_grad()
    assert mindspore.Tensor([1.0, 2.0])[1] == 2
    for value in (5, 7):
        cell.weight.fill_(value)
        loss, (gradient,) = step()
        assert float(loss) == 4 * value**2
        assert set(gradient.asnumpy()) == {0 if cell.weight.local_numel == 0 else 2 * value}


def write_in_a_function_after_an_exception(rank: Rank, by: str) -> None:
    cell = Squares(rank, RaggedShard((0,), (1,)))
    step = failed(cell, by)
    cell.first = lambda weight: weight.zero_()
    with pytest.raises(FailedPreconditionError, match=REFUSED):
        step()
    np.testing.assert_array_equal(cell.weight.full_tensor().asnumpy(), np.full(4, 3.0))


def write_an_input(rank: Rank) -> None:
    mesh = DeviceMesh((rank.size,), ("fsdp",))

    def loss(local: mindspore.Tensor) -> mindspore.Tensor:
        return DTensor(local, mesh, [Replicate()]).zero_().full_tensor().sum()

    with pytest.raises(FailedPreconditionError, match=REFUSED):
        mindspore.grad(loss)(mindspore.Tensor([1.0, 2.0]))
    assert float(loss(mindspore.Tensor([1.0, 2.0]))) == 0


def write_a_row(rank: Rank) -> None:
    """Rank 1 has no row at all, and its stand-in is another Parameter."""
    cell = Squares(rank, Shard(0), (1, 4))
    cell.first = lambda weight: weight[0].zero_()
    with pytest.raises(FailedPreconditionError, match=REFUSED):
        mindspore.value_and_grad(cell, None, cell.trainable_params())()
    cell.weight[0].zero_()
    assert cell.weight.full_tensor().asnumpy().sum() == 0


@pytest.mark.parametrize("by", ["function", "cell"])
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_write_after_an_exception_inside_grad_is_taken(rank_pools: RankPools, ranks: int, by: str) -> None:
    rank_pools[ranks].run(write_after_an_exception, by)


@pytest.mark.parametrize("by", ["function", "cell"])
def test_a_write_inside_grad_is_refused_also_after_an_exception(rank_pools: RankPools, by: str) -> None:
    rank_pools[1].run(write_in_a_function_after_an_exception, by)


def test_a_write_to_an_input_is_refused_on_every_rank(rank_pools: RankPools) -> None:
    rank_pools[2].run(write_an_input)


def test_a_write_to_a_row_of_a_parameter_is_refused_on_ranks_without_rows_too(rank_pools: RankPools) -> None:
    rank_pools[2].run(write_a_row)


def test_nothing_that_is_imported_is_deprecated() -> None:
    program = "import hyper_parallel.mindspore, hyper_parallel.checkpoint, hyper_parallel.sharding"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert "deprecated" not in done.stdout + done.stderr
