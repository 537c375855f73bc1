"""Operations without a rule on normal layouts run through torch's own DTensor, right or not at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from hyper_parallel import DeviceMesh, DTensor, Partial, Placement, Replicate, Shard, distribute_tensor, fallback_counts
from support.checks import assert_consistent, assert_equal, assert_raises, gradient_of, make_mesh, whole_of
from support.fallback import SHAPES, falling_back, layouts_of, spread
from support.ranks import ranks
from support.values import numbered, random_values
from support.worker import Rank

# Functions without a rule that torch's DTensor knows, by what it has to do to the dims. Those with "0" work along rows.
FORWARD: dict[str, Callable[[Any], Any]] = {
    "cov": lambda x: torch.cov(x),
    "logcumsumexp": lambda x: x.logcumsumexp(0),
    "diff": lambda x: x.diff(dim=0),
    "kron": lambda x: torch.kron(x, x),
    "kthvalue": lambda x: x.kthvalue(1, 0).values,
    "linalg_norm": lambda x: torch.linalg.norm(x),
    "median": lambda x: x.median(0).values,
    "nansum": lambda x: x.nansum(),
    "pad": lambda x: F.pad(x, (1, 1)),
    "repeat": lambda x: x.repeat(2, 1),
    "roll": lambda x: torch.roll(x, 1, 0),
    "svdvals": lambda x: torch.linalg.svdvals(x),
}


def assert_as_in_one_process(
    operation: Callable[[Any], Any], shape: tuple[int, ...], mesh: DeviceMesh, placements: tuple[Placement, ...]
) -> None:
    """Values, dtype, shape and, where there is one, the gradient of `operation` are those of the whole tensor."""
    whole = random_values(shape, torch.float64).requires_grad_()
    x = spread(whole, mesh, placements)
    y, expected = operation(x), operation(whole)
    assert_consistent(y)
    assert y.requires_grad == expected.requires_grad
    torch.testing.assert_close(whole_of(y), expected.detach())
    if not expected.requires_grad:
        return
    weight = random_values(tuple(expected.shape), torch.float64, seed=1)
    y.backward(distribute_tensor(weight, mesh, [Replicate()] * mesh.ndim))
    expected.backward(weight)
    assert whole.grad is not None
    if placements != (Partial("max"),):  # whose gradient is that of the ranks that hold the extreme
        torch.testing.assert_close(whole_of(gradient_of(x)), whole.grad)


@pytest.mark.parametrize("name", list(FORWARD))
@ranks(2)
@falling_back
def test_values_and_gradients_are_those_of_one_process(rank: Rank, name: str) -> None:
    for mesh, placements in layouts_of(2).values():
        for shape in SHAPES:
            assert_as_in_one_process(FORWARD[name], shape, mesh, placements)


@pytest.mark.parametrize("name", ["logcumsumexp", "nansum", "kron", "median", "roll"])
@ranks(4)
@falling_back
def test_values_and_gradients_on_grids_are_those_of_one_process(rank: Rank, name: str) -> None:
    for mesh, placements in layouts_of(4).values():
        for shape in SHAPES[:2]:
            assert_as_in_one_process(FORWARD[name], shape, mesh, placements)


@pytest.mark.parametrize("shape", SHAPES)
@ranks(2, 4)
@falling_back
def test_a_chain_of_ruled_and_other_operations_has_the_gradients_of_one_process(
    rank: Rank, shape: tuple[int, int]
) -> None:
    def chain(x: Any, w: Any) -> Any:
        return torch.sigmoid(torch.logaddexp2((x * 2).nansum(1), w.logcumsumexp(0))) * 3

    for name, (mesh, placements) in layouts_of(rank.size).items():
        if name == "pending max":  # which * 2 does not commute with
            continue
        whole = random_values(shape, torch.float64).requires_grad_()
        other = random_values(shape[:1], torch.float64, seed=1).requires_grad_()
        x, w = spread(whole, mesh, placements), spread(other, mesh, (Replicate(),) * mesh.ndim)
        y = chain(x, w)
        assert_consistent(y)
        expected = chain(whole, other)
        torch.testing.assert_close(whole_of(y), expected.detach())
        gradient = random_values(shape[:1], torch.float64, seed=2)
        y.backward(distribute_tensor(gradient, mesh, [Replicate()] * mesh.ndim))
        expected.backward(gradient)
        for given, truth in ((x, whole), (w, other)):
            assert truth.grad is not None
            torch.testing.assert_close(whole_of(gradient_of(given)), truth.grad)
    assert fallback_counts().keys() >= {"nansum", "logaddexp2", "logcumsumexp"}


@ranks(2)
@falling_back
def test_the_gradient_of_a_pending_extreme_goes_to_the_ranks_that_hold_it(rank: Rank) -> None:
    shares = [torch.tensor([1.0, 5.0, 2.0]), torch.tensor([4.0, 3.0, 2.0])]
    own = shares[rank.index].clone().requires_grad_()
    y = torch.i0(DTensor(own, make_mesh(2), [Partial("max")]))
    y.backward(distribute_tensor(torch.ones(3), y.device_mesh, [Replicate()]))
    top = torch.tensor([4.0, 5.0, 2.0], requires_grad=True)
    torch.i0(top).sum().backward()
    assert own.grad is not None
    assert top.grad is not None
    held = torch.tensor([[0.0, 1.0, 0.5], [1.0, 0.0, 0.5]])[rank.index]
    torch.testing.assert_close(own.grad, top.grad * held)


@ranks(2)
@falling_back
def test_containers_of_results_keep_their_kind(rank: Rank) -> None:
    x = distribute_tensor(numbered((4, 2)), make_mesh(2), [Replicate()])
    values, indices = x.sort(0, descending=True)
    named = torch.sort(x, 0, descending=True)
    assert type(named).__name__ == "sort"
    for given in (values, named.values, named[0]):
        assert_equal(whole_of(given), numbered((4, 2)).flip(0))
    assert_equal(whole_of(indices), torch.arange(4).flip(0).unsqueeze(1).expand(4, 2))
    parts = torch.tensor_split(x, 2)
    assert type(parts) is tuple
    assert_equal(whole_of(parts[1]), numbered((4, 2))[2:])


@ranks(2, 4)
@falling_back
def test_values_for_python_are_those_of_the_whole(rank: Rank) -> None:
    mesh = make_mesh(rank.size)
    same = distribute_tensor(numbered((8, 2)), mesh, [Shard(0)])
    other_rows = numbered((8, 2))
    other_rows[-1, -1] = 0
    other = distribute_tensor(other_rows, mesh, [Shard(0)])  # differs on the last rank alone
    assert torch.equal(same, same.clone()) is True
    assert torch.equal(same, other) is False
    assert torch.allclose(same, same + 1e-9)
    assert torch.allclose(same, other) is False
    assert 15.0 in same
    assert 15.0 not in other


@ranks(4)
@falling_back
def test_a_mesh_over_some_ranks_needs_no_others(rank: Rank) -> None:
    mesh = DeviceMesh((2,), ("dp",), (3, 1))
    whole = numbered((4, 2))
    x = distribute_tensor(whole, mesh, [Shard(0)]).requires_grad_()
    y = torch.logcumsumexp(x, 0)
    total = torch.nansum(y, (0, 1))
    assert y.requires_grad
    assert y.shape == (4, 2)
    assert total.shape == ()
    if rank.index in (1, 3):
        assert_equal(y.full_tensor().detach(), whole.logcumsumexp(0))
    else:
        assert y.local_numel == total.local_numel == 0
        assert_raises(RuntimeError, "which a rank outside the mesh has no part of", lambda: torch.allclose(x, y))
    if rank.index in (1, 3):
        assert not torch.allclose(x.detach(), y.detach())
    y.backward(distribute_tensor(torch.ones(4, 2), mesh, [Shard(0)]))
    if rank.index in (1, 3):
        truth = whole.requires_grad_()
        truth.logcumsumexp(0).sum().backward()
        assert truth.grad is not None
        torch.testing.assert_close(whole_of(gradient_of(x)), truth.grad)


@ranks(2)
@falling_back
def test_a_mesh_makes_its_groups_once(rank: Rank) -> None:
    torch.logcumsumexp(distribute_tensor(numbered((4,)), DeviceMesh((1, 2), ("a", "b"), (1, 0)), [Replicate()] * 2), 0)
    before = len(torch.distributed.distributed_c10d._world.pg_map)
    for _ in range(3):
        x = distribute_tensor(numbered((4,)), DeviceMesh((1, 2), ("a", "b"), (1, 0)), [Replicate(), Shard(0)])
        assert_equal(torch.logcumsumexp(x, 0).full_tensor(), numbered((4,)).logcumsumexp(0))
    assert len(torch.distributed.distributed_c10d._world.pg_map) == before


@ranks(2)
@falling_back
def test_a_plain_tensor_of_one_element_stands_for_a_replica_and_gets_the_whole_gradient(rank: Rank) -> None:
    x = distribute_tensor(numbered((4,)) + 1, make_mesh(2), [Shard(0)])
    scale = torch.tensor(3.0, requires_grad=True)
    y = torch.logaddexp2(x, scale)
    y.backward(distribute_tensor(torch.ones(4), x.device_mesh, [Shard(0)]))
    truth = torch.tensor(3.0, requires_grad=True)
    torch.logaddexp2(numbered((4,)) + 1, truth).sum().backward()
    torch.testing.assert_close(scale.grad, truth.grad)


@ranks(3)
@falling_back
def test_the_fallback_gives_tensors_of_no_dims_their_shape_on_all_ranks(rank: Rank) -> None:
    mesh = DeviceMesh((2,), ("dp",))
    element = distribute_tensor(torch.ones(()), mesh, [Replicate()])
    empty = distribute_tensor(torch.ones(2, 0), mesh, [Replicate()])
    for given, shape in (
        (torch.special.i0(element), ()),
        (torch.broadcast_to(element, (2,)), (2,)),
        (torch.norm(element, -float("inf"), -1), ()),
        (element.expand_as(distribute_tensor(torch.ones(2, 3), mesh, [Replicate()])), (2, 3)),
        (element.ravel(), (1,)),
        (empty.tensor_split(2, 0)[0], (1, 0)),
    ):
        assert tuple(given.shape) == shape
        assert given._local_tensor.numel() == 0 or rank.index < 2
