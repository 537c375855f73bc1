"""Writes that torch's graph over wrappers does not see: a function of the user's sees them all the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from hyper_parallel import DTensor, Replicate, Shard
from support.checks import assert_equal, gradient_of, whole_of
from support.graphs import SHAPE, Double, loss_of, make, values
from support.ranks import ranks
from support.worker import Rank


def write_row(z: Any, x: Any) -> None:
    z[0].copy_(x[0])


def write_rows(z: Any, x: Any) -> None:
    z[5].copy_(x[4])
    z[1].copy_(x[0] * 2)


def write_view(z: Any, x: Any) -> None:
    z.view_as(z).mul_(x)


def write_view_of_view(z: Any, x: Any) -> None:
    z.view_as(z).view_as(z).add_(x)


def write_row_of_view(z: Any, x: Any) -> None:
    z.view_as(z)[1].copy_(x[0])


def write_held_view(z: Any, x: Any) -> None:
    view = z.view_as(z)
    view.add_(x)
    view.mul_(x)


def write_itself(z: Any, x: Any) -> None:
    z.add_(x)


def write_list(z: Any, x: Any) -> None:
    torch._foreach_add_([z], [x])


WRITES = {
    write.__name__: write
    for write in (
        write_row, write_rows, write_view, write_view_of_view, write_row_of_view, write_held_view, write_itself,
        write_list,
    )
}  # fmt: skip


@pytest.mark.parametrize("inner", [False, True], ids=["constant", "inner"])
@pytest.mark.parametrize("write", list(WRITES))
@ranks(2)
def test_a_function_sees_what_was_written_before(rank: Rank, write: str, inner: bool) -> None:
    def program(x: Any, z: Any) -> Any:
        z = z * x if inner else z
        WRITES[write](z, x)
        return Double.apply(z) + z

    leaf = values().requires_grad_()
    loss_of(program(leaf, values(2))).backward()
    x = make()
    loss_of(program(x, make(whole=values(2), requires_grad=False))).backward()
    assert leaf.grad is not None
    assert_equal(whole_of(gradient_of(x)), leaf.grad)


# What is written, and what a function is given then; both have one storage.
RELATIVES: dict[str, Callable[[Any], tuple[Any, Any]]] = {
    "tensor, view": lambda z: (z, z.view_as(z)),
    "view, tensor": lambda z: (z.view_as(z), z),
    "view, sister": lambda z: (z.view_as(z), z.view_as(z)),
    "row, view": lambda z: (z[1], z.view_as(z)),
    "tensor, row": lambda z: (z, z[1]),
    "row, same row": lambda z: (z[1], z[1]),
}


@pytest.mark.parametrize("relation", list(RELATIVES))
@ranks(2)
def test_a_function_of_a_view_sees_what_was_written_elsewhere(rank: Rank, relation: str) -> None:
    def program(x: Any, z: Any) -> Any:
        z = z * 1
        written, given = RELATIVES[relation](z)
        written.mul_(x[1] if written.dim() == 1 else x)
        return Double.apply(given)

    def loss(y: Any) -> torch.Tensor:
        whole = y.full_tensor(grad_placements=[Replicate()]) if isinstance(y, DTensor) else y
        return (whole * torch.arange(1.0, 5.0, dtype=torch.float64)).sum()  # type: ignore[no-any-return]

    leaf = values().requires_grad_()
    loss(program(leaf, values(2))).backward()
    x = make()
    loss(program(x, make(whole=values(2), requires_grad=False))).backward()
    assert leaf.grad is not None
    assert_equal(whole_of(gradient_of(x)), leaf.grad)


@ranks(2)
def test_a_write_by_the_local_tensor_is_seen_after_the_next_operation(rank: Rank) -> None:
    for look in (lambda z: z + 0, lambda z: z.requires_grad, lambda z: z.detach(), lambda z: repr(z)):
        x, z = make(), make(whole=torch.zeros(SHAPE, dtype=torch.float64), requires_grad=False)
        z.to_local().add_(x.to_local([Shard(0)]))
        look(z)
        loss_of(Double.apply(z) + z).backward()
        assert_equal(whole_of(gradient_of(x)), values(7) * 3)
