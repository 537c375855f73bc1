"""Gradients of gradients through operations on normal layouts: those of one process, alike on all replicas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import hyper_parallel as hp
from hyper_parallel import DTensor, Partial, Placement, Replicate, Shard
from support.checks import make_mesh
from support.normal_checks import assert_close, assert_replicas_equal
from support.ranks import ranks
from support.worker import Rank

LAYOUTS: list[Placement] = [Replicate(), Shard(0), Shard(1)]


def whole_value(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor whose sums are not pending any more."""
    if not isinstance(tensor, DTensor):
        return tensor
    return tensor.redistribute(placements=[Replicate()] * tensor.device_mesh.ndim)


FORMS: dict[str, Callable[[Any, Any], Any]] = {
    "sum": lambda x, w: whole_value((x * x).sum()) ** 2 * whole_value(w.sum()),
    "mean of rows": lambda x, w: (whole_value((x * x).mean(0)) ** 2 * whole_value(w.sum(0))).sum(),
    "max": lambda x, w: whole_value(x.max()) ** 2 * whole_value(w.sum()),
    "amin": lambda x, w: (whole_value(x.amin(0)) ** 3 * whole_value(w.sum(0))).sum(),
    "matmul": lambda x, w: (whole_value(x.t() @ w) ** 2).sum(),
    "linear": lambda x, w: (whole_value(F.linear(x, w)) ** 2).sum(),
    "norm": lambda x, w: whole_value(torch.linalg.vector_norm(x)) ** 3 * whole_value(w.sum()),
    "norm of order inf": lambda x, w: (
        whole_value(torch.linalg.vector_norm(x, float("inf"))) ** 3 * whole_value(w.sum())
    ),
    "mse_loss": lambda x, w: whole_value(F.mse_loss(x, w)) ** 2,
    "softmax": lambda x, w: (x.softmax(-1) * w).sum(),
    "layer_norm": lambda x, w: (F.layer_norm(x, (4,), whole_value(w.sum(0))) ** 2).sum(),
    "view of a sum": lambda x, w: (whole_value((x * w).sum(0).view(2, 2)) ** 3).sum(),
    "written sum": lambda x, w: (whole_value((x * w).sum(0).mul_(2)) ** 3).sum(),
}


def second_order(form: str, x: torch.Tensor, w: torch.Tensor) -> list[torch.Tensor]:
    """A gradient penalty's gradients."""
    loss = whole_value(FORMS[form](x, w))
    gradients = torch.autograd.grad(loss, (x, w), create_graph=True)
    penalty = sum(whole_value((gradient * gradient).sum()) for gradient in gradients)
    return list(torch.autograd.grad(penalty, (x, w), allow_unused=True))


def operands() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(2)
    x, w = (torch.randn(5, 4, generator=generator, dtype=torch.float64) for _ in range(2))
    return x, w


@pytest.mark.parametrize("form", list(FORMS))
@ranks(2)
def test_gradient_penalties_are_those_of_one_process(rank: Rank, form: str) -> None:
    mesh = make_mesh(2)
    whole = [tensor.requires_grad_() for tensor in operands()]
    expected = second_order(form, *whole)
    for of_x in LAYOUTS:
        for of_w in LAYOUTS:
            x, w = (
                hp.distribute_tensor(tensor.detach(), mesh, [how]).requires_grad_()
                for tensor, how in zip(whole, (of_x, of_w), strict=True)
            )
            for given, plain in zip(second_order(form, x, w), expected, strict=True):
                assert (given is None) == (plain is None)
                if given is not None:
                    assert isinstance(given, DTensor)
                    assert_replicas_equal(given.detach())
                    assert_close(given.full_tensor(), plain)


@pytest.mark.parametrize("operation", ["sum", "avg"])
@ranks(2)
def test_shares_that_ranks_have_computed_themselves_are_summed_too(rank: Rank, operation: str) -> None:
    mesh = make_mesh(2)
    whole = operands()[0].requires_grad_()
    divisor = 1 if operation == "sum" else 2
    (first,) = torch.autograd.grad(((whole * whole).sum(0) / divisor).pow(3).sum(), whole, create_graph=True)
    (expected,) = torch.autograd.grad((first * first).sum(), whole)
    x = hp.distribute_tensor(whole.detach(), mesh, [Shard(0)]).requires_grad_()
    columns = hp.custom_shard(lambda local: (local * local).sum(0), mesh, (Partial(operation),), ((Shard(0),),))
    (first,) = torch.autograd.grad(whole_value(columns(x)).pow(3).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(whole_value((first * first).sum()), x)
    assert isinstance(second, DTensor)
    assert_close(second.full_tensor(), expected)


@ranks(4)
def test_nested_cuts_sum_over_every_mesh_dim(rank: Rank) -> None:
    mesh = make_mesh(2, 2)
    whole = [tensor.requires_grad_() for tensor in operands()]
    expected = second_order("matmul", *whole)
    for of_x, of_w in (((Shard(0), Shard(0)), (Shard(0), Shard(0))), ((Shard(0), Shard(1)), (Shard(0), Replicate()))):
        x = hp.distribute_tensor(whole[0].detach(), mesh, list(of_x)).requires_grad_()
        w = hp.distribute_tensor(whole[1].detach(), mesh, list(of_w)).requires_grad_()
        for given, plain in zip(second_order("matmul", x, w), expected, strict=True):
            assert isinstance(given, DTensor)
            assert_close(given.full_tensor(), plain)


@ranks(2)
def test_a_product_of_a_pending_sum_has_gradients_of_first_order_alone(rank: Rank) -> None:
    mesh = make_mesh(2)
    shares = torch.ones(2, 3, dtype=torch.float64, requires_grad=True)
    x = DTensor.from_local(shares, mesh, [Partial()])
    w = hp.ones(3, 3, device_mesh=mesh, dtype=torch.float64, requires_grad=True)
    y = whole_value(x @ w)
    (first,) = torch.autograd.grad((y * y).sum(), w, create_graph=True)
    assert_close(whole_value(first.detach()).to_local(), torch.full((3, 3), 48.0, dtype=torch.float64))
    with pytest.raises(RuntimeError, match="'matmul' of a pending reduction and another tensor"):
        (first * first).sum().backward()
