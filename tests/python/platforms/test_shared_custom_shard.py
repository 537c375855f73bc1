"""custom_shard: a function of local tensors as a function of DTensors, with the gradients of the unsharded program."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hyper_parallel import DTensor, Partial, Placement, RaggedShard, Replicate, Shard, custom_shard
from support.arrays import Array, numbered, small_integers
from support.common import assert_raises, make_mesh
from support.frameworks import framework
from support.platform_checks import assert_values, distributed
from support.ranks import ranks
from support.spread import Spread
from support.worker import Rank

# How the operands of x @ w lie, and what is known of the result.
CONTRACTIONS: dict[str, tuple[Placement, Placement, Placement]] = {
    "rows": (Shard(0), Replicate(), Shard(0)),
    "columns": (Replicate(), Shard(1), Shard(1)),
    "shares of a sum": (Shard(1), Shard(0), Partial()),
    "replicas": (Replicate(), Replicate(), Replicate()),
}


def on_whole_mesh(rank: Rank, shape: tuple[int, ...], placement: Placement) -> Spread:
    return Spread(shape, (rank.size,), (placement,))


def made(rank: Rank, local: Any, spread: Spread) -> DTensor:
    return DTensor.from_local(local, make_mesh(rank.size), spread.placements, shape=spread.shape)


@pytest.mark.parametrize("name", list(CONTRACTIONS))
@ranks(2, 4)
def test_contractions_have_the_values_and_gradients_of_one_process(rank: Rank, name: str) -> None:
    *lies, out = CONTRACTIONS[name]
    wholes = [small_integers((8, 4), "float32"), small_integers((4, 8), "float32", seed=1)]
    spreads = [on_whole_mesh(rank, whole.shape, lie) for whole, lie in zip(wholes, lies, strict=True)]
    sharded = custom_shard(operator.matmul, make_mesh(rank.size), [out])

    def result(*locals_: Any) -> DTensor:
        product: DTensor = sharded(*(made(rank, local, spread) for local, spread in zip(locals_, spreads, strict=True)))
        return product

    weights = [small_integers((8, 8), "float32", seed=100 + index) for index in range(rank.size)]
    parts = [framework.tensor(spread.part_of(whole, rank.index)) for spread, whole in zip(spreads, wholes, strict=True)]
    product = result(*parts)
    assert product.placements == (out,)
    assert_values(product.full_tensor(), wholes[0] @ wholes[1])
    gradients = framework.gradients(
        lambda *locals_: framework.weighted_sum(result(*locals_).full_tensor(), weights[rank.index]), parts
    )
    total: Array = np.sum(weights, axis=0)
    expected = [total @ wholes[1].T, wholes[0].T @ total]
    for gradient, whole, spread in zip(gradients, expected, spreads, strict=True):
        np.testing.assert_array_equal(gradient, spread.part_of(whole, rank.index))


@pytest.mark.parametrize("operation", ["sum", "avg"])
@ranks(2, 4)
def test_second_derivatives_through_shares_of_a_sum_are_those_of_one_process(rank: Rank, operation: str) -> None:
    whole, spread = small_integers((8, 3), "float64"), on_whole_mesh(rank, (8, 3), Shard(0))
    rows = framework.tensor(np.ones((1, 8 // rank.size)))
    # Not by sum(), whose second derivatives MindSpore has wrong.
    squares = custom_shard(lambda local: rows @ (local * local), make_mesh(rank.size), [Partial(operation)])

    def loss(local: Any) -> Any:
        total: Any = squares(made(rank, local, spread)).full_tensor([Replicate()])
        return framework.weighted_sum(total * total * total, np.ones((1, 3)))

    given = framework.second_derivative(loss, framework.tensor(spread.part_of(whole, rank.index)))
    # Of sum(s**3 / n**3), where s is a column's sum of squares and n what the shares are divided by.
    s = (whole * whole).sum(0)
    expected = (6 * s**2 + 24 * s * whole * whole.sum(0)) / (1 if operation == "sum" else rank.size) ** 3
    np.testing.assert_allclose(given, spread.part_of(expected, rank.index), rtol=1e-6)


@ranks(2, 4)
def test_ragged_tensors_go_in_and_out_flat(rank: Rank) -> None:
    units = {2: (1, 2), 4: (1, 2, 0, 3)}[rank.size]
    spread = on_whole_mesh(rank, (6, 4), RaggedShard((0,), units))
    whole = numbered((6, 4))
    doubled = custom_shard(lambda local: local * 2, make_mesh(rank.size), spread.placements, out_shapes=(6, 4))
    result = doubled(distributed(whole, spread))
    assert result.placements == spread.placements
    assert_values(result.full_tensor(), whole * 2)


@ranks(2)
def test_arguments_are_redistributed_only_where_they_may_be(rank: Rank) -> None:
    mesh, whole = make_mesh(2), numbered((4, 2))
    x = distributed(whole, on_whole_mesh(rank, (4, 2), Shard(1)))

    def rows(*, redistribute_inputs: bool) -> Callable[..., Any]:
        return custom_shard(lambda local: local + 1, mesh, [Shard(0)], ([Shard(0)],), redistribute_inputs)

    assert_values(rows(redistribute_inputs=True)(x).full_tensor(), whole + 1)
    assert_raises(ValueError, "argument 0", lambda: rows(redistribute_inputs=False)(x))
    assert_raises(ValueError, "in_placements", lambda: rows(redistribute_inputs=True)(x, x))


@ranks(2)
def test_placements_that_do_not_fit_raise_at_once(rank: Rank) -> None:
    mesh = make_mesh(2)
    assert_raises(ValueError, "placements", lambda: custom_shard(abs, mesh, [Shard(0), Shard(1)]))
    assert_raises(ValueError, "out_shapes", lambda: custom_shard(abs, mesh, [RaggedShard((0,), (1, 1))]))
