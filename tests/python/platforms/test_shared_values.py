"""Reading a value: one element, the global one, on every rank."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hyper_parallel import DTensor, Partial, Placement, RaggedShard, Replicate, Shard
from support.common import assert_raises, make_mesh
from support.frameworks import framework
from support.platform_checks import distributed
from support.ranks import ranks
from support.spread import Spread
from support.worker import Rank


def on_two(values: object, placement: Placement, dtype: str = "float32") -> DTensor:
    whole = np.array(values)
    return distributed(whole, Spread(whole.shape, (2,), (placement,)), dtype)


@ranks(2)
def test_case16_item_reads_the_global_value(rank: Rank) -> None:
    pending = DTensor.from_local(framework.tensor(np.array(1.0 + rank.index)), make_mesh(2), [Partial()])
    assert pending.item() == 3.0
    assert float(pending) == 3.0
    assert pending.placements == (Partial(),)
    two = on_two([1.0, 2.0], Shard(0))
    assert two.local_numel == 1
    for read in (DTensor.item, float, bool, int):
        assert_raises(ValueError, "one element", lambda f=read: f(two))
    assert on_two([[5.0]], RaggedShard((0,), (1, 0))).item() == 5.0


@pytest.mark.parametrize(
    "placement", [Replicate(), Shard(0), RaggedShard((0,), (1, 0)), RaggedShard((0,), (0, 1))], ids=str
)
@ranks(2)
def test_every_conversion_gives_the_global_value_on_every_rank(rank: Rank, placement: Placement) -> None:
    x = on_two([7], placement, "int64")
    assert x.item() == 7
    assert (float(x), int(x), bool(x)) == (7.0, 7, True)
    assert not bool(on_two([0.0], placement))
    assert bool(x == 7)
    if x == 8:
        raise AssertionError("a comparison decides as its value does")


@ranks(2)
def test_no_element_and_many_raise_also_where_this_rank_holds_one(rank: Rank) -> None:
    for shape, placement in (((0,), Shard(0)), ((2,), RaggedShard((0,), (1, 1))), ((3,), Replicate())):
        x = on_two(np.zeros(shape), placement)
        assert_raises(ValueError, "one element", x.item)
        assert_raises(ValueError, str(shape), lambda given=x: bool(given))


@pytest.mark.parametrize("operation", ["max", "min"])
@pytest.mark.parametrize("shape", [(), (1,)], ids=str)
@ranks(3)
def test_the_gradient_of_an_extreme_is_shared_by_those_who_hold_it(
    rank: Rank, shape: tuple[int, ...], operation: str
) -> None:
    mesh = make_mesh(3)

    def extreme(local: Any) -> Any:
        pending = DTensor.from_local(local, mesh, [Partial(operation)], shape=shape)
        return framework.weighted_sum(pending.full_tensor(grad_placements=[Replicate()]), np.full(shape, 2.0))

    (alike,) = framework.gradients(extreme, [framework.tensor(np.full(shape, 5.0), "float64")])
    np.testing.assert_array_equal(alike, np.full(shape, 2 / 3))
    (unlike,) = framework.gradients(extreme, [framework.tensor(np.full(shape, 5.0 + rank.index), "float64")])
    holder = {"max": 2, "min": 0}[operation]
    np.testing.assert_array_equal(unlike, np.full(shape, 2.0 * (rank.index == holder)))


@ranks(2)
def test_a_tensor_is_printed_with_its_shape_and_placements_without_communication(rank: Rank) -> None:
    if rank.index == 0:  # alone, so that any communication would time out
        text = repr(on_two(np.zeros((6, 4)), RaggedShard((0,), (1, 2))))
        for part in ("DTensor(", "shape=", "6, 4", "RaggedShard(", "(1, 2)"):
            assert part in text
