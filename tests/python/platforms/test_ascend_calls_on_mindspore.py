"""What the variable collectives hand to MindSpore on Ascend: the arguments alone, as no such device is here."""

from __future__ import annotations

import inspect
from typing import Any

import mindspore
import numpy as np
import pytest
from mindspore import ops
from mindspore.ops import communication

from hyper_parallel.mindspore import _ascend_calls
from hyper_parallel.platform import (
    differentiable_all_to_all_single,
    differentiable_variable_all_gather,
    differentiable_variable_reduce_scatter,
)
from support.pool import RankPools
from support.worker import Rank


class Recorded:
    """Stands for the calls that only an Ascend device can run: keeps what it is given, returns zeros of the right size.

    Checked against the signatures of the calls that it stands for.
    """

    def __init__(self, patch: pytest.MonkeyPatch, rank: Rank) -> None:
        self.rank = rank
        self.calls: list[tuple[Any, ...]] = []
        check_signature(ops.AllGatherV.__init__, ["self", "group"])
        check_signature(ops.ReduceScatterV.__init__, ["self", "op", "group"])
        names = ["output", "input", "output_split_sizes", "input_split_sizes", "group", "async_op"]
        check_signature(communication.all_to_all_single, names)
        patch.setattr(_ascend_calls, "is_ascend", lambda: True)
        patch.setattr(_ascend_calls.ops, "AllGatherV", self.all_gather)
        patch.setattr(_ascend_calls.ops, "ReduceScatterV", self.reduce_scatter)
        patch.setattr(_ascend_calls.comm_func, "all_to_all_single", self.all_to_all)

    def all_gather(self, group: str) -> Any:
        def run(flat: mindspore.Tensor, splits: list[int]) -> mindspore.Tensor:
            self.calls.append(("gather", group, flat.shape, splits))
            return ops.zeros((sum(splits),), flat.dtype)

        return run

    def reduce_scatter(self, operation: str, group: str) -> Any:
        def run(flat: mindspore.Tensor, splits: list[int]) -> mindspore.Tensor:
            self.calls.append(("reduce_scatter", operation, group, flat.shape, splits))
            return ops.zeros((splits[self.rank.index],), flat.dtype)

        return run

    def all_to_all(self, output: Any, given: Any, received: Any, sent: Any, group: str) -> None:
        self.calls.append(("exchange", group, output.shape, given.shape, tuple(received), tuple(sent)))


def check_signature(function: Any, names: list[str]) -> None:
    assert list(inspect.signature(function).parameters)[: len(names)] == names


def tensor(*shape: int) -> mindspore.Tensor:
    return mindspore.Tensor(np.ones(shape, np.float32))


def calls_of_a_gather(rank: Rank) -> None:
    with pytest.MonkeyPatch.context() as patch:
        recorded = Recorded(patch, rank)
        rows = (2, 3)[rank.index]
        gradient = mindspore.grad(
            lambda given: differentiable_variable_all_gather(given, (2, 3), "mccl_world_group").sum()
        )(tensor(rows, 4, 8))
        group = "mccl_world_group"
        forward, backward = recorded.calls
        assert forward == ("gather", group, (rows * 32,), [64, 96]), "rows are turned into elements, of a flat tensor"
        assert backward == ("reduce_scatter", "sum", group, (160,), [64, 96])
        assert gradient.shape == (rows, 4, 8)


def calls_of_a_reduce_scatter(rank: Rank) -> None:
    with pytest.MonkeyPatch.context() as patch:
        recorded = Recorded(patch, rank)
        result = differentiable_variable_reduce_scatter(tensor(5, 4), (2, 3), "mccl_world_group")
        assert recorded.calls == [("reduce_scatter", "sum", "mccl_world_group", (20,), [8, 12])]
        assert result.shape == ((2, 3)[rank.index], 4)


def calls_of_an_exchange(rank: Rank) -> None:
    sent, received = [((1, 2), (1, 3)), ((3, 0), (2, 0))][rank.index]
    with pytest.MonkeyPatch.context() as patch:
        recorded = Recorded(patch, rank)
        given = tensor(sum(sent), 4)
        gradient = mindspore.grad(
            lambda rows: differentiable_all_to_all_single(rows, sent, received, "mccl_world_group").sum()
        )(given)
        forward, backward = recorded.calls
        there, back = (sum(received), 4), (sum(sent), 4)
        assert forward == ("exchange", "mccl_world_group", there, back, received, sent)
        assert backward == ("exchange", "mccl_world_group", back, there, sent, received), "the splits are swapped"
        assert gradient.shape == given.shape


@pytest.mark.parametrize("body", [calls_of_a_gather, calls_of_a_reduce_scatter, calls_of_an_exchange])
def test_ascend_is_called_as_the_specification_says(rank_pools: RankPools, body: Any) -> None:
    rank_pools[2].run(body)
