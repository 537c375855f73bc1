"""Each elementwise operation on each layout is that operation on the whole tensor, forward and backward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hyper_parallel import DTensor, Partial, Placement, RaggedShard, Replicate, Shard
from support import layouts
from support.arrays import Array, numbered
from support.common import make_mesh
from support.frameworks import framework
from support.operations import BINARY, COMPARISONS, IN_PLACE, OF_POSITIVE, UNARY, WITH_NUMBERS, Operation
from support.platform_checks import assert_part, assert_values, distributed
from support.ranks import ranks
from support.spread import Spread
from support.worker import Rank

OF_ONE = UNARY | WITH_NUMBERS


def operands(count: int, least: float = 0.5) -> list[Array]:
    """Over a range of 3 from `least` on; nowhere equal, and nowhere zero."""
    steps = numbered(layouts.SHAPE)
    return [least + steps / 8, least + 0.05 + steps * 5 % 24 / 8][:count]


def weight(index: int) -> Array:
    """Of the loss of rank `index`."""
    return numbered(layouts.SHAPE) * (index + 1) - 7


def spread_on(placement: Placement, rank: Rank) -> Spread:
    return Spread(layouts.SHAPE, (rank.size,), (placement,))


def check(
    rank: Rank, operation: Operation, layout: str, *, least: float = 0.5, others_replicated: bool = False
) -> None:
    """Values and gradients of `operation`, whose first operand lies as `layout` says."""
    first = spread_on(layouts.placement_of(layout, rank.size), rank)
    count = len(operation.derivatives)
    spreads = [first, spread_on(Replicate(), rank) if others_replicated else first][:count]
    wholes = operands(count, least)

    def result(*locals_: Any) -> DTensor:
        placed = [
            DTensor.from_local(local, make_mesh(rank.size), spread.placements, shape=layouts.SHAPE)
            for local, spread in zip(locals_, spreads, strict=True)
        ]
        made: DTensor = operation.form(*placed)
        return made

    parts = [framework.tensor(spread.part_of(whole, rank.index)) for spread, whole in zip(spreads, wholes, strict=True)]
    assert_part(result(*parts), operation.value(*wholes), first, rank.index, exact=False)

    def loss(*locals_: Any) -> Any:
        return framework.weighted_sum(result(*locals_).full_tensor(), weight(rank.index))

    total = sum(weight(index) for index in range(rank.size))
    gradients = framework.gradients(loss, parts)
    for gradient, derivative, spread in zip(gradients, operation.derivatives, spreads, strict=True):
        expected = spread.part_of(derivative(*wholes) * total, rank.index)
        np.testing.assert_allclose(gradient, expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", list(OF_ONE))
@ranks(2)
def test_operations_of_one_tensor_are_those_of_the_whole(rank: Rank, name: str) -> None:
    for layout in layouts.ALL:
        check(rank, OF_ONE[name], layout, least=0.5 if name in OF_POSITIVE else -1.55)


@pytest.mark.parametrize("name", list(BINARY))
@ranks(2)
def test_operations_of_two_tensors_are_those_of_the_wholes(rank: Rank, name: str) -> None:
    for layout in layouts.ALL:
        check(rank, BINARY[name], layout)


TWICE: dict[str, tuple[Callable[[Any], Any], Callable[[Array], Array]]] = {
    "cube": (lambda x: x * x * x, lambda x: 6 * x),
    "square": (lambda x: x.square(), lambda x: np.full_like(x, 2)),
    "reciprocal": (lambda x: 1 / x, lambda x: 2 / x**3),
    "quotient": (lambda x: x.exp() / x.exp() * x * x, lambda x: np.full_like(x, 2)),
    "copies": (lambda x: framework.call("clone", framework.call("clone", x) * x) * x, lambda x: 6 * x),
    "written": (lambda x: framework.call("clone", x).mul_(x), lambda x: np.full_like(x, 2)),
}


@pytest.mark.parametrize("name", list(TWICE))
@ranks(2)
def test_second_derivatives_communicate_alike_on_ranks_without_elements(rank: Rank, name: str) -> None:
    form, second = TWICE[name]
    own = np.arange(1.0, 3.0) + 2 * rank.index
    for units in ((1, 0), (0, 1), (1, 1)):

        def loss(local: Any, units: tuple[int, ...] = units) -> Any:
            sharded = DTensor.from_local(local, make_mesh(2), [Shard(0)], shape=(4,))
            moved = form(sharded.redistribute([RaggedShard((0,), units)]))
            return framework.weighted_sum(moved.full_tensor([Replicate()]), np.ones(4))

        given = framework.second_derivative(loss, framework.tensor(own))
        np.testing.assert_allclose(given, second(own), rtol=1e-5)


@pytest.mark.parametrize("name", list(BINARY))
@ranks(4)
def test_a_replicated_operand_beside_a_ragged_one_is_sliced(rank: Rank, name: str) -> None:
    for layout in layouts.RAGGED:
        check(rank, BINARY[name], layout, others_replicated=True)


@pytest.mark.parametrize("name", list(COMPARISONS))
@ranks(2)
def test_comparisons_give_bools(rank: Rank, name: str) -> None:
    for layout in layouts.ALL:
        spread = spread_on(layouts.placement_of(layout, 2), rank)
        wholes = operands(2)
        result = COMPARISONS[name].form(*(distributed(whole, spread) for whole in wholes))
        assert_part(result, COMPARISONS[name].value(*wholes), spread, rank.index, "bool")


@pytest.mark.parametrize("name", list(IN_PLACE))
@ranks(2)
def test_in_place_forms_change_and_return_the_same_object(rank: Rank, name: str) -> None:
    for layout in layouts.ALL:
        spread = spread_on(layouts.placement_of(layout, 2), rank)
        wholes = operands(2)
        x, y = (distributed(whole, spread) for whole in wholes)
        assert IN_PLACE[name].form(x, y) is x
        assert_part(x, IN_PLACE[name].value(*wholes), spread, rank.index, exact=False)
        assert_part(y, wholes[1], spread, rank.index)


@pytest.mark.parametrize("name", list(IN_PLACE))
@ranks(2)
def test_gradients_go_through_in_place_forms(rank: Rank, name: str) -> None:
    given = IN_PLACE[name]
    on_a_copy = Operation(lambda x, y: given.form(framework.call("clone", x), y), given.value, given.derivatives)
    for layout in layouts.ALL:
        check(rank, on_a_copy, layout)
        if layout in layouts.RAGGED:
            check(rank, on_a_copy, layout, others_replicated=True)


@ranks(2)
def test_a_nan_is_never_dropped(rank: Rank) -> None:
    whole = np.array([np.nan, 1.0, -2.0, np.nan, 4.0, np.nan])
    other = np.roll(whole, 1)
    x = distributed(whole, Spread((6,), (2,), (RaggedShard((0,), (1, 2)),)))
    y = distributed(other, Spread((6,), (2,), (RaggedShard((0,), (1, 2)),)))
    assert_values(framework.call("relu", x).full_tensor(), np.maximum(whole, 0))
    assert_values(x.maximum(y).full_tensor(), np.maximum(whole, other))
    assert_values(x.minimum(y).full_tensor(), np.minimum(whole, other))
    assert_values(x.clamp(min=-1).full_tensor(), np.maximum(whole, -1))
    assert_values(x.clamp(-1, 2).full_tensor(), np.clip(whole, -1, 2))
    assert_values(x.clamp_(max=2).full_tensor(), np.minimum(whole, 2))


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int32", "int64"])
@ranks(2)
def test_quotients_by_numbers_are_rounded_as_said(rank: Rank, dtype: str) -> None:
    whole = np.array([7.0, -7.0, 4.0])
    x = distributed(whole, Spread((3,), (2,), (RaggedShard((0,), (1, 2)),)), dtype)
    for other in (2, distributed(np.full(3, 2.0), Spread((3,), (2,), (Replicate(),)), dtype)):
        assert_values(x.div(other, rounding_mode="trunc").full_tensor(), np.array([3.0, -3.0, 2.0]), dtype)
        assert_values(x.div(other, rounding_mode="floor").full_tensor(), np.array([3.0, -4.0, 2.0]), dtype)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@ranks(2)
def test_reversed_forms_take_every_floating_dtype(rank: Rank, dtype: str) -> None:
    whole = np.array([0.5, 1.0, 2.0])
    x = distributed(whole, Spread((3,), (2,), (RaggedShard((0,), (1, 2)),)), dtype)
    for result, expected in (
        (2 + x, 2 + whole),
        (2 - x, 2 - whole),
        (2 * x, 2 * whole),
        (2 / x, 2 / whole),
        (4**x, 4**whole),
    ):
        assert_values(result.full_tensor(), expected, dtype)


@ranks(2)
def test_a_weight_of_one_gives_the_end_of_lerp(rank: Rank) -> None:
    start, end = np.array([1e8, -1e8, 3.0]), np.array([1.0, 2.0, 5.0])
    x, y, ones, zeros = (
        distributed(whole, Spread((3,), (2,), (RaggedShard((0,), (1, 2)),)))
        for whole in (start, end, np.ones(3), np.zeros(3))
    )
    for weight, expected in ((1.0, end), (0.0, start), (ones, end), (zeros, start)):
        assert_values(x.lerp(y, weight).full_tensor(), expected)


@ranks(2)
def test_infinities_of_either_part_of_a_complex_number_are_found(rank: Rank) -> None:
    whole = np.array([complex(np.inf, 0), complex(0, -np.inf), complex(1, np.nan)])
    x = distributed(whole, Spread((3,), (2,), (RaggedShard((0,), (1, 2)),)), "complex64")
    assert_values(framework.call("isinf", x).full_tensor(), np.array([True, True, False]), "bool")


@ranks(2)
def test_what_is_copied_takes_the_dtype_of_its_target(rank: Rank) -> None:
    spread = Spread((3,), (2,), (RaggedShard((0,), (1, 2)),))
    source = distributed(np.array([1.5, -2.5, 3.0]), spread)
    target = distributed(np.zeros(3), spread, "int32")
    assert target.copy_(source) is target
    assert_values(target.full_tensor(), np.array([1, -2, 3]), "int32")


@ranks(2)
def test_the_first_ragged_operand_gives_the_layout(rank: Rank) -> None:
    whole = operands(1)[0]
    rows, cells, plain = (
        distributed(whole, spread_on(placement, rank))
        for placement in (RaggedShard((0,), (1, 2)), RaggedShard((0, 1), (8, 16)), Replicate())
    )
    for operand, other, expected in ((rows, cells, rows), (cells, rows, cells), (plain, cells, cells)):
        for result in (operand + other, operand * other, operand / other):
            assert result.placements == expected.placements
    assert_values((plain * rows).full_tensor(), whole * whole, exact=False)


@ranks(2)
def test_the_gradient_of_one_element_is_summed_over_the_ranks_that_split_its_partner(rank: Rank) -> None:
    whole = operands(1)[0]
    spread = spread_on(RaggedShard((0,), (0, 3)), rank)

    def loss(scale: Any) -> Any:
        return framework.weighted_sum((distributed(whole, spread) * scale).full_tensor(), np.ones(layouts.SHAPE))

    (gradient,) = framework.gradients(loss, [framework.tensor(np.array(3.0))])
    np.testing.assert_allclose(gradient, 2 * whole.sum(), rtol=1e-5)


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
@pytest.mark.parametrize("units", [(0, 1), (1, 1)])
@ranks(2)
def test_the_gradient_of_one_element_takes_every_dtype_and_ranks_without_elements(
    rank: Rank, units: tuple[int, int], dtype: str
) -> None:
    whole = np.full((4, 3), 0.5)
    x = distributed(whole, Spread((4, 3), (2,), (RaggedShard((0,), units),)), dtype)
    forms: dict[str, tuple[Callable[[Any], Any], float]] = {
        "mul": (lambda scale: x * scale, 0.5 * 12),
        "add": (lambda scale: x + scale, 12.0),
        "div": (lambda scale: x / scale, -0.5 / 4 * 12),
        "rdiv": (lambda scale: scale / x, 2.0 * 12),
        "fill_": (lambda scale: framework.call("clone", x).fill_(scale), 12.0),
    }
    for form, expected in forms.values():

        def loss(scale: Any, form: Callable[[Any], Any] = form) -> Any:
            # MindSpore's CPU sums no bfloat16.
            made = form(scale).to(framework.tensor(whole).dtype)
            return framework.weighted_sum(made.full_tensor([Replicate()]), np.ones((4, 3)))

        (gradient,) = framework.gradients(loss, [framework.tensor(np.array(2.0), dtype)])
        np.testing.assert_array_equal(gradient, expected)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32", "int64"])
@ranks(2)
def test_results_have_one_dtype_on_all_ranks_where_one_has_no_elements(rank: Rank, dtype: str) -> None:
    x = distributed(np.array([7.0, -7.0, 4.0]), Spread((3,), (2,), (RaggedShard((0,), (0, 1)),)), dtype)
    two = framework.tensor(np.array([2.0]), dtype)
    for _ in range(20):
        assert_values(x.div(2, rounding_mode="floor").full_tensor(), np.array([3.0, -4.0, 2.0]), dtype)
        assert_values(x.div(two, rounding_mode="trunc").full_tensor(), np.array([3.0, -3.0, 2.0]), dtype)
    assert_values(x.clamp(max=2).full_tensor(), np.array([2.0, -7.0, 2.0]), dtype)
    assert_values((x > two).full_tensor(), np.array([True, False, True]), "bool")
    assert_values((x * framework.tensor(np.array(2.0), dtype)).full_tensor(), np.array([14.0, -14.0, 8.0]), dtype)


@ranks(2)
def test_a_pending_sum_takes_what_commutes_with_it(rank: Rank) -> None:
    def pending() -> DTensor:
        return DTensor.from_local(framework.tensor(np.array([3.0, -5.0]) + rank.index), make_mesh(2), [Partial()])

    p = pending()
    assert_values((p + pending()).full_tensor(), np.array([14.0, -18.0]))
    assert_values((-p).full_tensor(), np.array([-7.0, 9.0]))
    assert_values((p * 2 / 4).full_tensor(), np.array([3.5, -4.5]))
