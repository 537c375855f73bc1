"""Views and in-place forms without a rule: they show and write the very tensor, or raise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from hyper_parallel import DTensor, Partial, Replicate, Shard, distribute_tensor
from support.checks import assert_equal, assert_raises, gradient_of, make_mesh, whole_of
from support.fallback import SHAPES, falling_back, layouts_of
from support.ranks import ranks
from support.values import numbered, random_values
from support.worker import Rank

VIEWS: dict[str, Callable[[Any], Any]] = {
    "narrow": lambda x: x.narrow(1, 1, 2),
    "select": lambda x: x.select(1, 1),
    "x[:, 1:3]": lambda x: x[:, 1:3],
    "x[..., None, 0]": lambda x: x[..., None, 0],
    "T": lambda x: x.T,
    "movedim": lambda x: torch.movedim(x, 0, 1),
    "unbind": lambda x: x.unbind(1)[2],
    "diagonal": lambda x: x.unsqueeze(0).diagonal(0, 0, 2),
    "unflatten": lambda x: x.unflatten(1, (2, 2)),
    "tensor_split": lambda x: torch.tensor_split(x, 2, 1)[1],
}


@pytest.mark.parametrize("name", list(VIEWS))
@pytest.mark.parametrize("shape", [(6, 4), (5, 4), (1, 4)])
@ranks(2)
@falling_back
def test_views_of_dims_that_are_not_sharded_are_views(rank: Rank, name: str, shape: tuple[int, int]) -> None:
    for placement in (Shard(0), Replicate()):
        x = distribute_tensor(numbered(shape), make_mesh(2), [placement])
        whole = numbered(shape)
        if name == "diagonal" and placement == Shard(0):
            assert_raises(NotImplementedError, "makes a copy", lambda x=x: VIEWS[name](x))
            continue
        view = VIEWS[name](x)
        version = x._version
        view.mul_(0)
        VIEWS[name](whole).mul_(0)
        assert_equal(x.full_tensor(), whole)
        assert x._version > version
        x.add_(1)
        whole.add_(1)
        assert_equal(whole_of(view), VIEWS[name](whole).contiguous())


@ranks(2, 4)
@falling_back
def test_views_that_torch_would_copy_raise_on_every_rank(rank: Rank) -> None:
    mesh = make_mesh(rank.size)
    for rows in (8, 5):
        x = distribute_tensor(numbered((rows, 2)), mesh, [Shard(0)])
        assert_raises(NotImplementedError, "has no rule, and torch's DTensor", lambda x=x: torch.tensor_split(x, 2))
        assert_equal(x.full_tensor(), numbered((rows, 2)))


@ranks(2)
@falling_back
def test_writes_of_pending_tensors_raise(rank: Rank) -> None:
    mesh = make_mesh(2)
    pending = DTensor(numbered((4, 2)), mesh, [Partial()])
    assert_raises(ValueError, "reduce_partial() first", lambda: pending.erf_())


@ranks(2)
@falling_back
def test_a_write_through_a_view_never_loses_a_gradient(rank: Rank) -> None:
    def program(x: Any, w: Any) -> Any:
        y = x * 2
        y.narrow(1, 1, 2).mul_(w)
        return y * y

    whole = random_values((5, 4), torch.float64).requires_grad_()
    weight = random_values((5, 2), torch.float64, seed=1).requires_grad_()
    x, w = (distribute_tensor(value, make_mesh(2), [Shard(0)]) for value in (whole, weight))
    ones = torch.ones(5, 4, dtype=torch.float64)
    program(x, w).backward(distribute_tensor(ones, make_mesh(2), [Shard(0)]))
    program(whole, weight).backward(ones)
    for given, truth in ((x, whole), (w, weight)):
        assert truth.grad is not None
        torch.testing.assert_close(whole_of(gradient_of(given)), truth.grad)


IN_PLACE: dict[str, Callable[[Any], Any]] = {
    "erf_": lambda x: x.erf_(),
    "tril_": lambda x: x.tril_(),
    "floor_divide_": lambda x: x.floor_divide_(2),
    "masked_fill_": lambda x: x.masked_fill_(x > 2, 9.0),
    "hardtanh_": lambda x: F.hardtanh_(x),
    "leaky_relu": lambda x: F.leaky_relu(x, 0.5, inplace=True),
}


@pytest.mark.parametrize("name", list(IN_PLACE))
@ranks(2, 4)
@falling_back
def test_in_place_forms_write_the_very_tensor_and_keep_its_layout(rank: Rank, name: str) -> None:
    for mesh, placements in layouts_of(rank.size).values():
        if any(placement.is_partial() for placement in placements):
            continue
        for shape in SHAPES:
            whole = random_values(shape, torch.float32) * 4
            x = distribute_tensor(whole, mesh, placements)
            local, version = x._local_tensor, x._version
            assert IN_PLACE[name](x) is x
            assert x._local_tensor is local
            assert x._version > version
            assert x.placements == placements
            assert_equal(x.full_tensor(), IN_PLACE[name](whole))


@ranks(2)
@falling_back
def test_in_place_forms_are_differentiable_and_refuse_leaves(rank: Rank) -> None:
    whole = random_values((5, 2), torch.float64).requires_grad_()
    x = distribute_tensor(whole, make_mesh(2), [Shard(0)])
    y = x * 2
    assert y.erf_() is y
    (y * 3).backward(distribute_tensor(torch.ones(5, 2, dtype=torch.float64), x.device_mesh, [Shard(0)]))
    (torch.erf(whole * 2) * 3).sum().backward()
    assert whole.grad is not None
    torch.testing.assert_close(whole_of(gradient_of(x)), whole.grad)
    with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
        x.erf_()
    assert_equal(whole_of(x), whole.detach())


@ranks(2)
@falling_back
def test_writes_that_no_in_place_name_tells_of_are_refused(rank: Rank) -> None:
    x = distribute_tensor(numbered((4, 2)), make_mesh(2), [Shard(0)])
    mean, var = (distribute_tensor(numbered((2,)), make_mesh(2), [Replicate()]) for _ in range(2))
    text = "writes to one of its arguments"
    assert_raises(NotImplementedError, text, lambda: F.batch_norm(x, mean, var, training=True))
    for stays in (mean, var):
        assert_equal(stays.full_tensor(), numbered((2,)))
    assert_raises(NotImplementedError, "would change the shape", lambda: x.unsqueeze_(0))
    counts = distribute_tensor(torch.arange(4), make_mesh(2), [Shard(0)])
    assert_raises(RuntimeError, "cannot be cast to torch.int64 in place", lambda: counts.hypot_(x.sum(1)))
    assert_equal(x.full_tensor(), numbered((4, 2)))
    assert_equal(counts.full_tensor(), torch.arange(4))
