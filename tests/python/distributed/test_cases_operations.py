"""Cases from public fault reports about operations, layouts and caches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from hyper_parallel import DeviceMesh, DTensor, Partial, Placement, RaggedShard, Replicate, Shard, distribute_tensor
from support.checks import assert_consistent, assert_equal, assert_raises, make_mesh
from support.ranks import ranks
from support.worker import Rank


@ranks(2)
def test_case10_redistribution_leaves_its_source_pending(rank: Rank) -> None:
    mesh = make_mesh(2)
    placements = [Partial()]
    p = DTensor.from_local(torch.tensor([1.0 + rank.index]), mesh, placements)
    q = DTensor.from_local(torch.tensor([10.0 + rank.index]), mesh, p.placements)
    for target in (Replicate(), RaggedShard((0,), (0, 1)), Shard(0)):
        for source, expected in ((p, 3.0), (p, 3.0), (q, 21.0)):
            assert source.redistribute([target]).full_tensor().item() == expected
            assert source.placements == (Partial(),)
    assert p.to_local().item() == 1.0 + rank.index
    assert placements == [Partial()]


@ranks(4)
def test_case11a_mesh_axis_order_is_part_of_what_a_layout_means(rank: Rank) -> None:
    mesh = make_mesh(2, 2)
    x = torch.arange(64.0).view(8, 8)
    for placements, rows in (
        ([Shard(0), Shard(1)], [0, 4, 32, 36]),
        ([Shard(1), Shard(0)], [0, 32, 4, 36]),
    ):
        for tensor in (
            distribute_tensor(x, mesh, placements),
            distribute_tensor(x, mesh, [Replicate(), Replicate()]).redistribute(placements),
        ):
            assert tensor._local_tensor[0].tolist() == list(range(rows[rank.index], rows[rank.index] + 4))


@ranks(4)
def test_case11b_shape_and_mesh_are_part_of_what_a_plan_is_kept_for(rank: Rank) -> None:
    pair = DeviceMesh((2,), ("dp",), rank_list=[0, 1] if rank.index < 2 else [2, 3])
    for side, mesh in ((4, make_mesh(4)), (8, make_mesh(4)), (4, pair)):
        x = torch.arange(float(side * side)).view(side, side)
        assert_equal(distribute_tensor(x, mesh, [Shard(0)]).redistribute([Shard(1)]).full_tensor(), x)


@ranks(2)
def test_case11c_units_are_part_of_what_a_plan_is_kept_for(rank: Rank) -> None:
    x = distribute_tensor(torch.arange(8.0), make_mesh(2), [Replicate()])
    for units, local in (((1, 3), ([0, 1], [2, 3, 4, 5, 6, 7])), ((3, 1), ([0, 1, 2, 3, 4, 5], [6, 7]))):
        assert x.redistribute([RaggedShard((0,), units)])._local_tensor.tolist() == local[rank.index]


@pytest.mark.parametrize("placement", [Shard(0), RaggedShard((0,), (1, 3)), Replicate()], ids=str)
@ranks(2)
def test_case11d_arguments_are_part_of_what_an_operation_means(rank: Rank, placement: Placement) -> None:
    d = distribute_tensor(torch.tensor([1.0, 2.0, 3.0, 4.0]), make_mesh(2), [placement])
    for result, expected in (
        (d**2, [1, 4, 9, 16]),
        (d**3, [1, 8, 27, 64]),
        (d**0.5, [1, 2**0.5, 3**0.5, 2]),
        (d / 2, [0.5, 1, 1.5, 2]),
        (d / 4, [0.25, 0.5, 0.75, 1]),
    ):
        torch.testing.assert_close(result.full_tensor(), torch.tensor(expected, dtype=torch.float32))


@ranks(2)
def test_case13_in_place_operations_do_not_change_the_meaning_of_shares(rank: Rank) -> None:
    def pending(operation: str = "sum") -> DTensor:
        return DTensor.from_local(torch.tensor([15.0 - 20 * rank.index]), make_mesh(2), [Partial(operation)])

    for change in (lambda p: p.clamp_(max=2), lambda p: p.add_(10), lambda p: p.relu_()):
        p = pending()
        assert_raises(ValueError, "does not commute", lambda given=p, f=change: f(given))
        assert_equal(p.full_tensor(), torch.tensor([10.0]))
        assert p._version == 0
    p = pending()
    assert p.mul_(2) is p
    assert_equal(p.full_tensor(), torch.tensor([20.0]))
    assert_equal(pending().zero_().full_tensor(), torch.tensor([0.0]))
    for operation in ("avg", "max", "min"):
        assert_raises(ValueError, "Partial", lambda given=operation: pending().redistribute([Partial(given)]))


NON_LINEAR: dict[str, Callable[[Any], torch.Tensor]] = {
    "abs": torch.abs,
    "relu": torch.relu,
    "square": torch.square,
    "exp": torch.exp,
    "sigmoid": torch.sigmoid,
    "sin": torch.sin,
    "cos": torch.cos,
    "p * p": lambda p: p * p,
    "p / p": lambda p: p / p,
    "norm": lambda p: p.norm(),
}


@pytest.mark.parametrize("operation", list(NON_LINEAR))
@ranks(2)
def test_case14_non_linear_operations_never_run_on_shares(rank: Rank, operation: str) -> None:
    shares = [[3.0, -5.0], [-4.0, 2.0]]
    p = DTensor.from_local(torch.tensor(shares[rank.index]), make_mesh(2), [Partial()])
    with pytest.raises((ValueError, NotImplementedError), match=r"commute|not supported"):
        NON_LINEAR[operation](p)
    if operation == "norm":
        return
    reduced = p.redistribute([Replicate()])
    torch.testing.assert_close(
        NON_LINEAR[operation](reduced).full_tensor(), NON_LINEAR[operation](torch.tensor([-1.0, -3.0]))
    )


@ranks(2)
def test_case14_linear_operations_are_right_on_shares(rank: Rank) -> None:
    shares = [[3.0, -5.0], [-4.0, 2.0]]
    p = DTensor.from_local(torch.tensor(shares[rank.index]), make_mesh(2), [Partial()])
    assert_equal((-p).full_tensor(), torch.tensor([1.0, 3.0]))
    assert_equal((p + p).full_tensor(), torch.tensor([-2.0, -6.0]))
    assert_equal((p - p).full_tensor(), torch.tensor([0.0, 0.0]))


@ranks(2)
def test_case31_ragged_operands_that_are_not_aligned_raise(rank: Rank) -> None:
    mesh = make_mesh(2)

    def spread(shape: tuple[int, ...], placement: Placement) -> DTensor:
        return distribute_tensor(torch.arange(float(torch.Size(shape).numel())).view(shape), mesh, [placement])

    ragged = spread((8,), RaggedShard((0,), (1, 3)))
    assert_raises(ValueError, "runs", lambda: ragged + spread((8,), RaggedShard((0,), (3, 1))))
    flat, square = spread((4,), RaggedShard((0,), (1, 1))), spread((2, 2), RaggedShard((0,), (1, 1)))
    assert flat.local_numel == square.local_numel
    assert_raises(ValueError, "shape", lambda: flat + square)
    rows = spread((4, 3), RaggedShard((0, 1), (2, 2)))
    assert_raises(ValueError, "shape", lambda: rows + spread((3, 4), RaggedShard((0, 1), (2, 2))))


@ranks(2)
def test_case31_operands_that_own_the_same_cells_are_added(rank: Rank) -> None:
    mesh = make_mesh(2)
    x = torch.arange(8.0)
    ragged = distribute_tensor(x, mesh, [RaggedShard((0,), (1, 3))])
    for other, plain in (
        (distribute_tensor(x * 10, mesh, [RaggedShard((0,), (2, 6))]), x * 10),
        (torch.tensor([100.0]), 100.0),
        (torch.tensor(100.0), 100.0),
        (distribute_tensor(x * 10, mesh, [Replicate()]), x * 10),
        (distribute_tensor(torch.tensor(5.0), mesh, [Replicate()]), 5.0),
    ):
        for total in (ragged + other, other + ragged):
            assert isinstance(total, DTensor)
            assert total.placements[0].is_ragged_shard()
            assert_equal(total.full_tensor(), x + plain)


@pytest.mark.parametrize("placement", [Shard(0), RaggedShard((0,), (1, 4)), RaggedShard((0,), (0, 5))], ids=str)
@ranks(2)
def test_case32_dtypes_are_those_of_the_promoted_result(rank: Rank, placement: Placement) -> None:
    plain = torch.arange(5)
    d = distribute_tensor(plain, make_mesh(2), [placement])
    for operation in (
        lambda t: t / 2,
        lambda t: torch.true_divide(t, 2),
        lambda t: 2 - t,
        lambda t: 2**t,
        lambda t: t + 1.5,
        lambda t: t * True,
        torch.sqrt,
        lambda t: torch.isnan(t.float()),
        lambda t: t / True,
        lambda t: 1.0 / (t + 1),
        lambda t: t.div(2, rounding_mode="floor"),
        lambda t: t > 2,
        lambda t: -t,
    ):
        result, expected = operation(d), operation(plain)
        assert isinstance(result, DTensor)
        assert result.dtype == result._local_tensor.dtype == expected.dtype
        assert_consistent(result)
        assert_equal(result.full_tensor(), expected)


@ranks(2)
def test_case32_in_place_results_that_do_not_fit_the_dtype_raise_on_every_rank(rank: Rank) -> None:
    d = distribute_tensor(torch.arange(5), make_mesh(2), [RaggedShard((0,), (0, 5))])
    for change in (lambda: d.add_(1.5), lambda: d.div_(2), lambda: d.sqrt_()):
        with pytest.raises(RuntimeError, match="can't be cast"):
            change()
    with pytest.raises(RuntimeError, match=r"ZeroDivisionError|division by zero"):
        d.div(0, rounding_mode="floor")
    assert_equal(d.full_tensor(), torch.arange(5))
