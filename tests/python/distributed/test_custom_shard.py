"""custom_shard: functions of local tensors on DTensors, their gradients, and what they may not return."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from hyper_parallel import (
    DeviceMesh,
    DTensor,
    Partial,
    Placement,
    RaggedShard,
    Replicate,
    Shard,
    custom_shard,
    distribute_tensor,
)
from support.checks import assert_consistent, assert_equal, assert_part, assert_raises, gradient_of, make_mesh, whole_of
from support.ranks import ranks
from support.truth import Spread
from support.values import numbered, small_integers
from support.worker import Rank

DOUBLE = torch.float64


def spread(whole: torch.Tensor, mesh: DeviceMesh, *placements: Placement) -> DTensor:
    return distribute_tensor(whole.detach().clone().requires_grad_(whole.requires_grad), mesh, placements)


def one(mesh: DeviceMesh) -> DTensor:
    """A gradient that one process would start from."""
    return distribute_tensor(torch.ones((), dtype=DOUBLE), mesh, [Replicate()] * mesh.ndim)


# --- values and gradients --------------------------------------------------------------------------------------------


@ranks(2, 4)
def test_a_contraction_over_a_sharded_dim_gives_shares_of_a_sum(rank: Rank) -> None:
    mesh = make_mesh(rank.size)
    left = small_integers((3, 8), DOUBLE).requires_grad_()
    right = small_integers((8, 2), DOUBLE, seed=1).requires_grad_()
    x, w = spread(left, mesh, Shard(1)), spread(right, mesh, Shard(0))
    y = custom_shard(torch.mm, mesh, [Partial()], ([Shard(1)], [Shard(0)]))(x, w)
    assert_consistent(y)
    assert y.placements == (Partial(),)
    assert_equal(y.full_tensor().detach(), (left @ right).detach())
    y.redistribute([Replicate()]).backward(spread(numbered((3, 2), DOUBLE), mesh, Replicate()))
    (left @ right).backward(numbered((3, 2), DOUBLE))
    assert left.grad is not None
    assert right.grad is not None
    assert_equal(whole_of(gradient_of(x)), left.grad)
    assert_equal(whole_of(gradient_of(w)), right.grad)


@ranks(2, 4)
def test_the_gradient_of_a_replica_beside_a_sharded_result_is_summed(rank: Rank) -> None:
    mesh = make_mesh(rank.size)
    left = small_integers((8, 3), DOUBLE)
    right = small_integers((3, 2), DOUBLE, seed=1).requires_grad_()
    gradient = small_integers((8, 2), DOUBLE, seed=2)
    x, w = spread(left, mesh, Shard(0)), spread(right, mesh, Replicate())
    y = custom_shard(torch.mm, mesh, [Shard(0)])(x, w)
    assert_part(y, (left @ right).detach(), Spread((8, 2), mesh.shape, (Shard(0),)), rank.index)
    y.backward(spread(gradient, mesh, Shard(0)))
    (left @ right).backward(gradient)
    assert right.grad is not None
    assert_equal(gradient_of(w)._local_tensor, right.grad)


@ranks(2)
def test_the_gradient_of_a_replica_beside_shares_of_a_sum_is_summed(rank: Rank) -> None:
    mesh = make_mesh(2)
    w = spread(numbered((3,), DOUBLE).requires_grad_(), mesh, Replicate())
    scaled = custom_shard(lambda local: local * (rank.index + 1), mesh, [Partial()])(w)
    assert_equal(scaled.full_tensor().detach(), numbered((3,), DOUBLE) * 3)
    scaled.redistribute([Replicate()]).backward(spread(torch.ones(3, dtype=DOUBLE), mesh, Replicate()))
    assert_equal(gradient_of(w)._local_tensor, torch.full((3,), 3.0, dtype=DOUBLE))


@ranks(2)
def test_the_gradient_of_replicas_that_all_compute_the_same_is_not_summed(rank: Rank) -> None:
    mesh = make_mesh(2)
    w = spread(numbered((3,), DOUBLE).requires_grad_(), mesh, Replicate())
    squared = custom_shard(torch.square, mesh, [Replicate()])(w)
    squared.backward(spread(torch.ones(3, dtype=DOUBLE), mesh, Replicate()))
    assert_equal(gradient_of(w)._local_tensor, numbered((3,), DOUBLE) * 2)


@ranks(4)
def test_each_mesh_dim_has_its_own_gradient_rule(rank: Rank) -> None:
    mesh = make_mesh(2, 2)
    left = small_integers((4, 6), DOUBLE).requires_grad_()
    right = small_integers((6, 4), DOUBLE, seed=1).requires_grad_()
    gradient = small_integers((4, 4), DOUBLE, seed=2)
    x = spread(left, mesh, Shard(0), Replicate())
    w = spread(right, mesh, Replicate(), Shard(1))
    y = custom_shard(torch.mm, mesh, (Shard(0), Shard(1)))(x, w)
    assert_part(y, (left @ right).detach(), Spread((4, 4), (2, 2), (Shard(0), Shard(1))), rank.index)
    y.backward(spread(gradient, mesh, Shard(0), Shard(1)))
    (left @ right).backward(gradient)
    assert left.grad is not None
    assert right.grad is not None
    assert_equal(whole_of(gradient_of(x)), left.grad)
    assert_equal(whole_of(gradient_of(w)), right.grad)


def added_over_ranks(local: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """The whole product on every rank; its gradient passes by, as all ranks go on alike."""
    total = local @ weight

    class Add(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, share: torch.Tensor) -> torch.Tensor:
            whole = share.clone()
            dist.all_reduce(whole)
            return whole

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
            return gradient

    added: torch.Tensor = Add.apply(total)
    return added


@ranks(2)
def test_a_function_that_communicates_says_how_its_gradients_lie(rank: Rank) -> None:
    mesh = make_mesh(2)
    left = small_integers((2, 3, 4), DOUBLE)
    right = small_integers((4, 2), DOUBLE, seed=1).requires_grad_()
    x, w = spread(left, mesh, Shard(0)), spread(right, mesh, Replicate())
    summed = lambda local, weight: added_over_ranks(local.sum(0), weight)  # noqa: E731
    text = "say in in_grad_placements which: Replicate() or Partial()"
    assert_raises(ValueError, text, lambda: custom_shard(summed, mesh, [Replicate()])(x, w))
    with torch.no_grad():
        quiet = custom_shard(summed, mesh, [Replicate()])(x, w)
    assert_equal(quiet.full_tensor(), (left.sum(0) @ right).detach())
    y = custom_shard(summed, mesh, [Replicate()], in_grad_placements=(None, [Partial()]))(x, w)
    y.backward(spread(torch.ones(3, 2, dtype=DOUBLE), mesh, Replicate()))
    (left.sum(0) @ right).sum().backward()
    assert right.grad is not None
    assert_equal(gradient_of(w)._local_tensor, right.grad)


@ranks(2)
def test_shares_go_in_as_shares_and_their_gradient_is_that_of_the_sum(rank: Rank) -> None:
    mesh = make_mesh(2)
    own = (numbered((4,), DOUBLE) + rank.index).requires_grad_()
    pending = DTensor(own, mesh, [Partial()])
    doubled = custom_shard(lambda share: share * 2, mesh, [Partial()])(pending)
    assert_equal(doubled.full_tensor().detach(), (numbered((4,), DOUBLE) * 2 + 1) * 2)
    doubled.redistribute([Replicate()]).backward(spread(numbered((4,), DOUBLE), mesh, Replicate()))
    assert own.grad is not None
    assert_equal(own.grad, numbered((4,), DOUBLE) * 2)


@ranks(2, 4)
def test_ragged_tensors_go_in_and_out_flat(rank: Rank) -> None:
    units = {2: (0, 3), 4: (1, 0, 2, 0)}[rank.size]
    mesh, placement = make_mesh(rank.size), RaggedShard((0,), units)
    whole = numbered((6, 5), DOUBLE).requires_grad_()
    x = spread(whole, mesh, placement)
    seen: list[int] = []

    def cube(local: torch.Tensor) -> torch.Tensor:
        seen.append(local.dim())
        return local**3

    y = custom_shard(cube, mesh, [placement], out_shapes=(6, 5))(x)
    assert seen == [1]
    assert_part(y, whole.detach() ** 3, Spread((6, 5), mesh.shape, (placement,)), rank.index)
    y.backward(spread(torch.ones(6, 5, dtype=DOUBLE), mesh, placement))
    assert_equal(whole_of(gradient_of(x)), 3 * whole.detach() ** 2)


@ranks(2, 4)
def test_requires_grad_of_a_result_is_the_same_on_ranks_without_elements(rank: Rank) -> None:
    mesh = make_mesh(rank.size)
    x = spread(numbered((1, 3), DOUBLE).requires_grad_(), mesh, Shard(0))
    y = custom_shard(lambda local: local * 2, mesh, [Shard(0)])(x)
    assert y.requires_grad
    y.backward(spread(torch.ones(1, 3, dtype=DOUBLE), mesh, Shard(0)))
    assert_equal(whole_of(gradient_of(x)), torch.full((1, 3), 2.0, dtype=DOUBLE))


# --- arguments -------------------------------------------------------------------------------------------------------


@ranks(2)
def test_arguments_are_redistributed_as_in_placements_says(rank: Rank) -> None:
    mesh = make_mesh(2)
    x = spread(numbered((4, 6)), mesh, Shard(0))
    y = custom_shard(lambda local: local.sum(0), mesh, [Shard(0)], [Shard(-1)])(x)
    assert_part(y, numbered((4, 6)).sum(0), Spread((6,), (2,), (Shard(0),)), rank.index)


@ranks(2)
def test_arguments_that_lie_otherwise_raise_where_they_may_not_be_redistributed(rank: Rank) -> None:
    mesh = make_mesh(2)
    x = spread(numbered((4, 6)), mesh, Shard(0))
    strict = custom_shard(lambda local: local, mesh, [Shard(1)], ([Shard(1)],), redistribute_inputs=False)
    text = "argument 0 has placements (Shard(dim=0),) but in_placements says (Shard(dim=1),)"
    assert_raises(ValueError, text, lambda: strict(x))
    assert_equal(strict(x.redistribute([Shard(1)])).full_tensor(), numbered((4, 6)))


@ranks(2)
def test_anything_else_is_handed_on_and_containers_and_keywords_are_looked_into(rank: Rank) -> None:
    mesh = make_mesh(2)
    x, y = (spread(numbered((4,)) + offset, mesh, Shard(0)) for offset in (0, 10))
    plain = torch.ones(2)

    def func(pair: list[Any], factor: int, plain_one: torch.Tensor, *, named: dict[str, Any], text: str) -> Any:
        assert plain_one is plain
        assert text == "text"
        return pair[0] * factor + named["y"] + plain_one

    z = custom_shard(func, mesh, [Shard(0)], ([Shard(0)], None, None))([x], 3, plain, named={"y": y}, text="text")
    assert_equal(z.full_tensor(), numbered((4,)) * 3 + numbered((4,)) + 11)


@ranks(2)
def test_a_function_without_dtensors_makes_some(rank: Rank) -> None:
    made = custom_shard(lambda: numbered((3,)), make_mesh(2), [Replicate()])()
    assert_equal(made.full_tensor(), numbered((3,)))


@ranks(2)
def test_arguments_that_do_not_fit_raise_before_the_function_runs(rank: Rank) -> None:
    mesh = make_mesh(2)
    x = spread(numbered((4, 6)), mesh, Shard(0))
    elsewhere = spread(numbered((4, 6)), DeviceMesh((2,), ("other",)), Shard(0))

    def never(*args: Any, **kwargs: Any) -> torch.Tensor:
        raise AssertionError("the function ran")

    def call(in_placements: Any, *args: Any, **kwargs: Any) -> Callable[[], Any]:
        return lambda: custom_shard(never, mesh, [Shard(0)], in_placements)(*args, **kwargs)

    assert_raises(ValueError, "in_placements has 1 entries but 2 positional arguments", call([Shard(0)], x, x))
    assert_raises(ValueError, "argument 0 lies on", call(None, elsewhere))
    assert_raises(ValueError, "a keyword argument lies on", call(None, x, other=elsewhere))
    assert_raises(TypeError, "in_placements[0] is None but argument 0 is a DTensor", call((None,), x))
    assert_raises(TypeError, "argument 1 is a int without a DTensor", call(([Shard(0)], [Shard(0)]), x, 3))
    assert_raises(IndexError, "argument 0", call(([Shard(2)],), x))


@ranks(2)
def test_placements_that_do_not_fit_the_mesh_raise_at_once(rank: Rank) -> None:
    mesh = make_mesh(2)

    def make(*args: Any, **kwargs: Any) -> Callable[[], Any]:
        return lambda: custom_shard(torch.neg, mesh, *args, **kwargs)

    assert_raises(ValueError, "out_placements", make([Shard(0), Shard(1)]))
    assert_raises(ValueError, "out_placements[1]", make(([Shard(0)], [Shard(0), Replicate()])))
    assert_raises(ValueError, "in_placements[0]", make([Shard(0)], ([RaggedShard((0,), (1, 2, 3))],)))
    assert_raises(TypeError, "out_placements is 'Shard' but must be", make("Shard"))
    assert_raises(TypeError, "out_placements[1] is 3 but must be", make(([Shard(0)], 3)))
    assert_raises(ValueError, "out_shapes says no shape", make([RaggedShard((0,), (1, 2))]))
    assert_raises(
        ValueError, "out_shapes has 1 entries but out_placements 2", make(([Shard(0)], None), out_shapes=[None])
    )
    assert_raises(TypeError, "func is 3 but must be callable", lambda: custom_shard(3, mesh, [Shard(0)]))  # type: ignore[arg-type]
    assert_raises(TypeError, "device_mesh is (2,) but must be", lambda: custom_shard(torch.neg, (2,), [Shard(0)]))  # type: ignore[arg-type]


@ranks(4)
def test_only_ranks_of_the_mesh_may_call(rank: Rank) -> None:
    mesh = DeviceMesh((2,), ("dp",), (3, 1))
    double = custom_shard(lambda local: local * 2, mesh, [Shard(0)])
    x = distribute_tensor(numbered((3,)), mesh, [Shard(0)])
    if rank.index in (1, 3):
        assert_equal(double(x).full_tensor(), numbered((3,)) * 2)
    else:
        assert_raises(RuntimeError, f"rank {rank.index} is outside", lambda: double(x))


# --- results ---------------------------------------------------------------------------------------------------------


class Pair(NamedTuple):
    left: Any
    right: Any


@ranks(2)
def test_several_results_keep_their_container(rank: Rank) -> None:
    mesh = make_mesh(2)
    x = spread(numbered((4,)), mesh, Shard(0))
    placements = ([Shard(0)], None)
    as_tuple = custom_shard(lambda local: (local, "text"), mesh, placements)(x)
    as_list = custom_shard(lambda local: [local, 3], mesh, placements)(x)
    as_pair = custom_shard(lambda local: Pair(local, None), mesh, placements)(x)
    as_dict = custom_shard(lambda local: {"a": local, "b": 3}, mesh, placements)(x)
    assert [type(made) for made in (as_tuple, as_list, as_pair, as_dict)] == [tuple, list, Pair, dict]
    for made in (as_tuple[0], as_list[0], as_pair.left, as_dict["a"]):
        assert_part(made, numbered((4,)), Spread((4,), (2,), (Shard(0),)), rank.index)
    assert (as_tuple[1], as_list[1], as_pair.right, as_dict["b"]) == ("text", 3, None, 3)
    assert custom_shard(lambda local: local.dim(), mesh, None)(x) == 1


@ranks(2, 4)
def test_the_shape_of_uneven_shards_is_agreed_and_may_be_given(rank: Rank) -> None:
    mesh = make_mesh(rank.size)
    x = spread(numbered((5, 2)), mesh, Shard(0))
    for shape in (None, (5, 2)):
        y = custom_shard(lambda local: local + 1, mesh, [Shard(0)], out_shapes=shape)(x)
        assert y.shape == (5, 2)
        assert_part(y, numbered((5, 2)) + 1, Spread((5, 2), mesh.shape, (Shard(0),)), rank.index)


@ranks(4)
def test_local_sizes_that_break_the_rule_of_shard_raise_on_every_rank(rank: Rank) -> None:
    mesh = make_mesh(4)
    uneven = custom_shard(lambda: torch.ones(1 + rank.index, 2), mesh, [Shard(0)])
    assert_raises(ValueError, "custom_shard: result 0: from_local: ", uneven)
    other_dims = custom_shard(lambda: torch.ones([2] * (1 + rank.index % 2)), mesh, [Shard(0)])
    assert_raises(ValueError, "custom_shard: result 0: ", other_dims)


@ranks(2, check=True)
def test_a_local_that_does_not_fit_the_given_shape_raises(rank: Rank) -> None:
    mesh = make_mesh(2)
    wrong = custom_shard(lambda: torch.ones(2 + rank.index), mesh, [Shard(0)], out_shapes=(4,))
    kind = (RuntimeError, ValueError)[rank.index]  # the other rank's fault, its own
    assert_raises(kind, "rank 1 owns (2,) of shape (4,) under [Shard(0)]", wrong)


@ranks(2)
def test_results_that_do_not_fit_out_placements_raise(rank: Rank) -> None:
    mesh = make_mesh(2)
    x = spread(numbered((4,)), mesh, Shard(0))

    def returning(out_placements: Any, func: Callable[[torch.Tensor], Any]) -> Callable[[], Any]:
        return lambda: custom_shard(func, mesh, out_placements)(x)

    two: Any = ([Shard(0)], None)
    assert_raises(ValueError, "func returned 1 values but out_placements has 2 entries", returning(two, lambda t: t))
    assert_raises(ValueError, "func returned 3 values", returning(two, lambda t: (t, 1, 2)))
    assert_raises(TypeError, "result 1 holds a tensor but out_placements says None", returning(two, lambda t: (t, t)))
    assert_raises(TypeError, "result 0 holds a tensor", returning(None, lambda t: [t]))
    assert_raises(TypeError, "result 0 is a int but out_placements says", returning(two, lambda t: (1, 1)))
    assert_raises(TypeError, "result 0 is a tuple but", returning([Shard(0)], lambda t: (t, t)))
    assert_raises(TypeError, "result 0 is a DTensor but", returning([Shard(0)], lambda t: x))
    assert_raises(IndexError, "result 0 of shape (2,)", returning([Shard(1)], lambda t: t))
    assert_raises(IndexError, "result 0 of shape ()", returning([Shard(0)], lambda t: t.sum()))
