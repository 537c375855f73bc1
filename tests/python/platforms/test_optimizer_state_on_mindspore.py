"""The moments of MindSpore's optimizers are DTensors as their parameters are: a checkpoint resumes on other ranks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mindspore
import numpy as np
import pytest
from mindspore import nn, ops
from mindspore.experimental import optim

from hyper_parallel import DTensor, FailedPreconditionError, RaggedShard, Replicate, Shard, checkpoint
from hyper_parallel.mindspore import LocalParameter, distribute_parameter
from support.arrays import Array
from support.common import assert_raises, make_mesh
from support.pool import RankPools
from support.ranks import ranks
from support.worker import Rank

OPTIMIZERS: dict[str, Callable[[Any], nn.Cell]] = {
    "nn.SGD": lambda parameters: nn.SGD(parameters, 0.05, momentum=0.9),
    "nn.Momentum": lambda parameters: nn.Momentum(parameters, 0.05, 0.9),
    "nn.Adam": lambda parameters: nn.Adam(parameters, 0.05),
    "nn.AdamWeightDecay": lambda parameters: nn.AdamWeightDecay(parameters, 0.05, weight_decay=0.1),
    "nn.RMSProp": lambda parameters: nn.RMSProp(parameters, 0.05, momentum=0.9),
    "experimental SGD": lambda parameters: optim.SGD(parameters, 0.05, momentum=0.9),
    "experimental Adam": lambda parameters: optim.Adam(parameters, 0.05),
    "experimental AdamW": lambda parameters: optim.AdamW(parameters, 0.05, weight_decay=0.1),
}
STEPS = 3
UNITS = {1: ((3,), (1,)), 2: ((1, 2), (0, 1)), 3: ((2, 0, 1), (0, 1, 0))}
"""Uneven shares of the first parameter; the second one lies on a single rank."""
SHAPES = ((6, 4), (3, 2), (5, 2), (3,))


class Weights(nn.Cell):  # type: ignore[misc]  # MindSpore has no types
    """Gives its weights, whole."""

    def __init__(self, *, size: int = 0) -> None:
        super().__init__()
        self.names = [f"weight{index}" for index in range(len(SHAPES))]
        for index, (name, shape) in enumerate(zip(self.names, SHAPES, strict=True)):
            value = np.sin(np.arange(np.prod(shape), dtype=np.float32) + index).reshape(shape)
            setattr(self, name, mindspore.Parameter(mindspore.Tensor(value), name=name))
        if size:
            ragged = [RaggedShard((0,), units) for units in UNITS[size]]
            for name, placement in zip(self.names, (*ragged, Shard(0), Replicate()), strict=True):
                distribute_parameter(self, name, make_mesh(size), [placement])

    def construct(self) -> list[mindspore.Tensor]:
        weights = [getattr(self, name) for name in self.names]
        return [weight.full_tensor([Replicate()]) if isinstance(weight, DTensor) else weight for weight in weights]


class Training:
    """Weights, on so many ranks or as a process alone has them, and their optimizer."""

    def __init__(self, optimizer: str, *, size: int = 0) -> None:
        self.weights = Weights(size=size)
        self._optimizer = OPTIMIZERS[optimizer](self.weights.trainable_params())
        self._gradients = mindspore.grad(self._loss, None, self.weights.trainable_params())

    def _loss(self, step: int) -> mindspore.Tensor:
        return sum((((whole - 0.1 * step) * whole + whole) ** 2).sum() for whole in self.weights())

    def train(self, first: int) -> None:
        for step in range(first, first + STEPS):
            self._optimizer(self._gradients(step))

    def state(self) -> dict[str, Any]:
        return {"weights": self.weights.parameters_dict(), "optimizer": self._optimizer.parameters_dict()}

    def wholes(self) -> list[Array]:
        return [np.array(whole.asnumpy()) for whole in self.weights()]


def train_and_save(rank: Rank, optimizer: str, folder: Path) -> None:
    training = Training(optimizer, size=rank.size)
    training.train(0)
    checkpoint.save(training.state(), folder)


def resume(rank: Rank, optimizer: str, folder: Path) -> None:
    resumed, alone = Training(optimizer, size=rank.size), Training(optimizer)
    checkpoint.load(resumed.state(), folder)
    resumed.train(STEPS)
    alone.train(0)
    halfway = alone.wholes()
    alone.train(STEPS)
    for given, expected, before in zip(resumed.wholes(), alone.wholes(), halfway, strict=True):
        np.testing.assert_allclose(given, expected, rtol=1e-5, atol=1e-5)
        assert np.abs(expected - before).max() > 1e-3


@pytest.mark.parametrize("optimizer", list(OPTIMIZERS))
def test_a_checkpoint_with_optimizer_state_resumes_on_other_ranks(
    rank_pools: RankPools, optimizer: str, tmp_path: Path
) -> None:
    rank_pools[2].run(train_and_save, optimizer, tmp_path / "d")
    for size in (1, 3):
        rank_pools[size].run(resume, optimizer, tmp_path / "d")


@ranks(2)
def test_what_is_stored_of_a_moment_is_all_of_it(rank: Rank, tmp_path: Path) -> None:
    training = Training("nn.Momentum", size=2)
    training.train(0)
    checkpoint.save(training.state(), tmp_path / "d")
    alone = Training("nn.Momentum")
    alone.train(0)
    stored, expected = checkpoint.read(tmp_path / "d")["optimizer"], alone.state()["optimizer"]
    assert sorted(stored) == sorted(expected)
    for name, whole in expected.items():
        np.testing.assert_allclose(stored[name].asnumpy(), whole.asnumpy(), rtol=1e-5, atol=1e-5, err_msg=name)


@ranks(2)
def test_a_clone_of_a_share_is_a_share_of_another_dtensor(rank: Rank) -> None:
    for share in Weights(size=2).trainable_params():
        for init, value in (("ones", 1.0), (3, 3.0), (ops.ones_like(share) * 2, 2.0), ("same", None)):
            clone = share.clone(init)
            assert isinstance(clone, LocalParameter)
            assert clone.dtensor.placements == share.dtensor.placements
            whole = clone.dtensor.full_tensor().asnumpy()
            np.testing.assert_array_equal(whole, share.dtensor.full_tensor().asnumpy() if value is None else value)
            clone.dtensor.copy_(clone.dtensor * 0 + 7)
            assert clone.dtensor.full_tensor().asnumpy().min() == 7
            assert share.dtensor.full_tensor().asnumpy().min() < 7


class Tied(nn.Cell):  # type: ignore[misc]  # MindSpore has no types
    """One weight in two cells inside and under a name of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Dense(4, 4), nn.Dense(4, 4)
        self.second.weight = self.first.weight
        self.own = self.first.weight


@ranks(2)
def test_tied_cells_stay_tied_and_mindspores_notes_are_kept(rank: Rank) -> None:
    cell = Tied()
    weight = cell.first.weight
    weight.layerwise_parallel, weight.parallel_optimizer, weight.comm_fusion = True, False, 3
    weight.requires_grad = False
    made = distribute_parameter(cell.second, "weight", make_mesh(2), [RaggedShard((0,), (1, 3))])
    assert cell.first.weight is made
    assert cell.second.weight is made
    assert cell.own is made
    assert [parameter.name for parameter in cell.get_parameters()] == [weight.name, "first.bias", "second.bias"]
    (share,) = (parameter for parameter in cell.get_parameters() if isinstance(parameter, LocalParameter))
    assert (share.layerwise_parallel, share.parallel_optimizer, share.comm_fusion) == (True, False, 3)
    assert not share.requires_grad


@ranks(1)
def test_a_parameter_that_an_optimizer_holds_is_refused(rank: Rank) -> None:
    for make in OPTIMIZERS.values():
        cell = nn.Dense(4, 4)
        optimizer = make(cell.trainable_params())
        place = (make_mesh(1), [Shard(0)])
        text = f"'weight' is held by the optimizer {type(optimizer).__name__} already"
        assert_raises(FailedPreconditionError, text, lambda at=place, of=cell: distribute_parameter(of, "weight", *at))  # type: ignore[misc]
        assert not isinstance(cell.weight, DTensor)
        del optimizer
        assert isinstance(distribute_parameter(cell, "weight", *place), DTensor)
