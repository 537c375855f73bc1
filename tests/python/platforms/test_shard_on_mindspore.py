"""`shard` on an nn.Cell: a tensor-parallel block trains as one process does, and what does not fit raises at once."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import mindspore
import numpy as np
import pytest
from mindspore import nn, ops

from hyper_parallel import (
    ArgumentTypeError,
    DeviceMesh,
    FailedPreconditionError,
    InvalidArgumentError,
    Partial,
    Replicate,
    Shard,
    custom_shard,
    distribute_tensor,
    shard,
)
from hyper_parallel.core.dtensor import DTensor
from hyper_parallel.mindspore import functional
from support.pool import RankPools
from support.worker import Rank

RANDOM = np.random.default_rng(1)
UP, DOWN, INPUTS = ((RANDOM.standard_normal(shape) * 0.3).astype(np.float32) for shape in ((6, 4), (4, 6), (3, 4)))
PLAN = {
    "parameter": {"*.up": (Shard(0),), "first.down": (Shard(1),)},
    "forward": {"input": (Replicate(),), "output": (Replicate(),)},
}


class Block(nn.Cell):
    """Columns, then rows: of plain tensors, or of DTensors on the mesh."""

    def __init__(self, scale: float, mesh: DeviceMesh | None) -> None:
        super().__init__()
        self.up = mindspore.Parameter(mindspore.Tensor(UP * scale), name="up")
        self.down = mindspore.Parameter(mindspore.Tensor(DOWN * scale), name="down")
        self.scale = mindspore.Parameter(mindspore.Tensor(2.0), name="scale")
        self.mesh = mesh

    def construct(self, x: Any) -> Any:
        if self.mesh is None:
            return ops.matmul(ops.relu(ops.matmul(x, self.up.T)), self.down.T) * self.scale
        placements = (Replicate(),), (Shard(0),)
        columns = custom_shard(lambda x, w: ops.matmul(x, w.T), self.mesh, (Shard(1),), placements)
        rows = custom_shard(lambda x, w: ops.matmul(x, w.T), self.mesh, (Partial(),), ((Shard(1),), (Shard(1),)))
        return rows(functional.relu(columns(x, self.up)), self.down).redistribute([Replicate()]) * self.scale


class Network(nn.Cell):
    """Two blocks, whose second weights are one."""

    def __init__(self, scale: float = 1.0, mesh: DeviceMesh | None = None) -> None:
        super().__init__()
        self.first, self.second = Block(scale, mesh), Block(scale, mesh)
        self.second.down = self.first.down

    def construct(self, x: Any) -> Any:
        return self.second(self.first(x))


def train_beside_one_process(rank: Rank) -> None:
    mesh = DeviceMesh((rank.size,), ("tp",))
    ours, alone = shard(Network(mesh=mesh), PLAN, mesh), Network()
    assert ours.first.up.placements == (Shard(0),)
    assert ours.first.scale.placements == (Replicate(),)
    assert ours.first.down is ours.second.down
    parameters, expected = ours.trainable_params(), alone.trainable_params()
    assert [parameter.name for parameter in parameters] == [parameter.name for parameter in expected]
    step = mindspore.value_and_grad(
        lambda x: (ours(x) ** 2).full_tensor(grad_placements=[Replicate()]).sum(), None, parameters
    )
    step_alone = mindspore.value_and_grad(lambda x: (alone(x) ** 2).sum(), None, expected)
    optimizer, optimizer_alone = nn.Adam(parameters, 0.01), nn.Adam(expected, 0.01)
    for _ in range(20):
        loss, gradients = step(mindspore.Tensor(INPUTS))
        loss_alone, gradients_alone = step_alone(mindspore.Tensor(INPUTS))
        np.testing.assert_allclose(float(loss), float(loss_alone), rtol=1e-4)
        for parameter, gradient, whole in zip(parameters, gradients, gradients_alone, strict=True):
            own = distribute_tensor(whole, mesh, parameter.dtensor.placements).to_local().asnumpy()
            np.testing.assert_allclose(gradient.asnumpy().reshape(own.shape), own, rtol=1e-3, atol=1e-4)
        optimizer(gradients)
        optimizer_alone(gradients_alone)
    np.testing.assert_allclose(ours.first.up.full_tensor().asnumpy(), alone.first.up.asnumpy(), atol=1e-4)


def what_does_not_fit(rank: Rank) -> None:
    mesh, cell = DeviceMesh((rank.size,), ("tp",)), Network()
    before = [parameter.asnumpy().copy() for parameter in cell.trainable_params()]
    with pytest.raises(ArgumentTypeError, match="model"):
        shard(1, PLAN, mesh)
    with pytest.raises((FailedPreconditionError, InvalidArgumentError), match="mesh"):
        shard(cell, PLAN)
    with pytest.raises(InvalidArgumentError, match="zz"):
        shard(cell, {"parameter": {"zz": (Replicate(),)}}, mesh)
    with pytest.raises(InvalidArgumentError, match="Partial"):
        shard(cell, {"parameter": {"first.up": (Partial(),)}}, mesh)
    assert not isinstance(cell.first.up, DTensor)
    for parameter, value in zip(cell.trainable_params(), before, strict=True):
        np.testing.assert_array_equal(parameter.asnumpy(), value)


class Centred(nn.Cell):
    """Takes a mean, a buffer, away; gives a mapping of a class of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", mindspore.Tensor(INPUTS))

    def construct(self, x: Any) -> Any:
        answer: defaultdict[str, Any] = defaultdict(list)
        answer["out"] = x - self.mean
        return answer


def a_buffer_and_a_mapping(rank: Rank) -> None:
    mesh, cell = DeviceMesh((rank.size,), ("dp",)), Centred()
    plan = {
        "parameter": {"mean": (Shard(0),)},
        "forward": {"input": (Shard(0),), "output": {"out": (Replicate(),)}},
    }
    shard(cell, plan, mesh)
    assert cell.mean.placements == (Shard(0),)
    assert dict(cell.named_buffers())["mean"] is cell.mean
    answer = cell(distribute_tensor(mindspore.Tensor(INPUTS * 3), mesh, [Replicate()]))
    assert isinstance(answer, defaultdict)
    assert answer["other"] == []
    assert answer["out"].placements == (Replicate(),)
    np.testing.assert_array_equal(answer["out"].full_tensor().asnumpy(), INPUTS * 3 - INPUTS)
    shard(cell, {"parameter": {"mean": (Replicate(),)}}, mesh)
    assert cell.mean.placements == (Replicate(),)
    np.testing.assert_array_equal(cell.mean.full_tensor().asnumpy(), INPUTS)


def test_a_buffer_stays_one_and_a_mapping_keeps_its_class(rank_pools: RankPools) -> None:
    rank_pools[2].run(a_buffer_and_a_mapping)


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_a_tensor_parallel_cell_trains_as_one_process_does(rank_pools: RankPools, ranks: int) -> None:
    rank_pools[ranks].run(train_beside_one_process)


def test_a_plan_that_does_not_fit_raises_before_anything_is_changed(rank_pools: RankPools) -> None:
    rank_pools[2].run(what_does_not_fit)
