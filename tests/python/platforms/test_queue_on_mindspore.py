"""Writes in a differentiated function while MindSpore runs kernels from its queue, as it does in programs: what has
been written is in the graph at once, on every rank. Several times over, as it is a matter of time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mindspore
import numpy as np
import pytest
from mindspore import nn

from hyper_parallel import DTensor, FailedPreconditionError, RaggedShard, Replicate, Shard
from hyper_parallel.mindspore.parameter import distribute_parameter
from support.common import make_mesh
from support.frameworks.on_mindspore import queued
from support.platform_checks import distributed
from support.ranks import ranks
from support.spread import Spread
from support.worker import Rank

WHOLE = np.arange(12.0).reshape(4, 3) + 1
LAYOUTS = {
    "replicated": Replicate(),
    "sharded": Shard(0),
    "ragged": RaggedShard((0,), (1, 1)),
    "with an empty share": RaggedShard((0,), (0, 1)),
}
TIMES = 10


def assert_gradient(written: Callable[[mindspore.Tensor], DTensor], expected: float) -> None:
    """Of the sum of what `written` gives, for its argument of 2."""
    with queued():
        for _ in range(TIMES):
            found = mindspore.grad(lambda scale: written(scale).full_tensor([Replicate()]).sum())(mindspore.Tensor(2.0))
            assert float(found) == expected


@pytest.mark.parametrize("layout", list(LAYOUTS))
@ranks(2)
def test_the_gradient_goes_through_a_write_to_a_constant(rank: Rank, layout: str) -> None:
    def constant() -> DTensor:
        return distributed(WHOLE, Spread((4, 3), (2,), (LAYOUTS[layout],)))

    assert_gradient(lambda scale: constant().mul_(scale), WHOLE.sum())
    assert_gradient(lambda scale: constant().fill_(scale), 12)
    assert_gradient(lambda scale: constant().copy_(constant() * scale), WHOLE.sum())


@ranks(2)
def test_the_gradient_goes_through_a_write_to_a_row_of_a_constant(rank: Rank) -> None:
    def written(scale: mindspore.Tensor) -> DTensor:
        x = distributed(WHOLE, Spread((4, 3), (2,), (Shard(0),)))
        x[1].mul_(scale)
        return x

    assert_gradient(written, WHOLE[1].sum())


@ranks(2)
def test_the_gradient_goes_through_a_local_tensor_that_the_program_has_written(rank: Rank) -> None:
    def written(scale: mindspore.Tensor) -> DTensor:
        local = mindspore.Tensor(np.ones(6, np.float32))
        local.copy_(mindspore.Tensor(np.ones(6, np.float32)) * scale)
        return DTensor(local, make_mesh(2), [RaggedShard((0,), (1, 1))], shape=(12,))

    with queued():
        for _ in range(TIMES):
            found = mindspore.grad(lambda scale: written(scale).full_tensor([Replicate()]).sum())(mindspore.Tensor(2.0))
            assert float(found) == 6


class _Frozen(nn.Cell):  # type: ignore[misc]  # MindSpore has no types
    def __init__(self, placement: Any) -> None:
        super().__init__()
        self.weight = mindspore.Parameter(mindspore.Tensor(WHOLE[:2], mindspore.float32), "weight", requires_grad=False)
        distribute_parameter(self, "weight", make_mesh(2), [placement])


@pytest.mark.parametrize("placement", [Shard(0), RaggedShard((0,), (0, 1))])
@ranks(2)
def test_a_value_with_a_gradient_is_not_written_to_a_parameter_but_a_constant_is(rank: Rank, placement: Any) -> None:
    weight: Any = _Frozen(placement).weight
    written = [weight.mul_, weight[1].mul_] if isinstance(placement, Shard) else [weight.mul_]
    for write in written:
        with pytest.raises(FailedPreconditionError, match="would write a value with a gradient to a parameter"):
            mindspore.grad(lambda scale, write=write: write(scale).full_tensor().sum())(mindspore.Tensor(2.0))
        np.testing.assert_array_equal(weight.full_tensor().asnumpy(), WHOLE[:2])

    def zeroed(scale: mindspore.Tensor) -> mindspore.Tensor:
        weight.zero_()
        return ((weight + 1) * scale).full_tensor([Replicate()]).sum()

    assert float(mindspore.grad(zeroed)(mindspore.Tensor(2.0))) == 6
