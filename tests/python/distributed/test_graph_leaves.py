"""Leaves of the graph: layouts that change under them, their gradients and hooks, and tensors that are swapped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from hyper_parallel import DTensor, Placement, RaggedShard, Replicate, Shard, distribute_tensor
from support.checks import assert_consistent, assert_equal, assert_raises, gradient_of, make_mesh, whole_of
from support.graphs import PLACEMENTS, every_layout, loss_of, make, values
from support.ranks import ranks
from support.worker import Rank

# --- layouts that change under a leaf --------------------------------------------------------------------------------


@ranks(4)
def test_data_of_another_layout_is_refused_while_there_is_a_gradient(rank: Rank) -> None:
    mesh = type(make_mesh(4))((2, 2), ("a", "b"))
    x = distribute_tensor(values().requires_grad_(), mesh, [Replicate(), Shard(0)])
    loss = (x * x).full_tensor(grad_placements=[Replicate()] * 2)
    (loss * values(7)).sum().backward()
    for placements in ([Shard(0), Replicate()], [Replicate(), Shard(1)], [Replicate(), RaggedShard((0,), (1, 2))]):
        other = x.data.redistribute(placements)
        assert_raises(RuntimeError, "set grad to None first", lambda other=other: setattr(x, "data", other))
        assert x.placements == (Replicate(), Shard(0))
        assert_equal(whole_of(gradient_of(x)), 2 * values() * values(7))
    x.data = x.data * 2  # the same layout
    assert_equal(whole_of(gradient_of(x)), 2 * values() * values(7))


@pytest.mark.parametrize(
    "target", [Replicate(), Shard(1), RaggedShard((0,), (1, 5)), RaggedShard((0, 1), (0, 1))], ids=str
)
@every_layout
@ranks(2)
def test_backward_and_hooks_see_the_layout_that_data_was_given(rank: Rank, layout: str, target: Placement) -> None:
    x = nn.Parameter(make(layout))
    seen: list[DTensor] = []
    accumulated: list[Any] = []
    x.register_hook(lambda gradient: seen.append(gradient))
    x.register_post_accumulate_grad_hook(accumulated.append)
    loss_of(x * x).backward()
    x.grad = None
    x.data = x.data.redistribute([target])
    assert_consistent(x)
    loss_of(x * x).backward()
    assert gradient_of(x).placements == (target,)
    assert_equal(whole_of(gradient_of(x)), 2 * values() * values(7))
    assert [gradient.placements for gradient in seen] == [(PLACEMENTS[layout],), (target,)]
    assert_equal(whole_of(seen[1]), 2 * values() * values(7))
    assert accumulated == [x, x] or all(tensor is x for tensor in accumulated)


@ranks(2)
def test_a_hook_may_replace_the_gradient_of_the_new_layout(rank: Rank) -> None:
    x = make()
    x.register_hook(lambda gradient: gradient * 10)
    x.data = x.data.redistribute([RaggedShard((0,), (5, 1))])
    loss_of(x * 1).backward()
    assert_equal(whole_of(gradient_of(x)), values(7) * 10)


@ranks(2)
def test_data_of_another_shape_gives_gradients_of_that_shape(rank: Rank) -> None:
    x = make()
    x.data = distribute_tensor(torch.ones(2, 3, dtype=torch.float64), x.device_mesh, [Shard(0)])
    x.full_tensor(grad_placements=[Replicate()]).sum().backward()
    assert_equal(whole_of(gradient_of(x)), torch.ones(2, 3, dtype=torch.float64))


# --- grad and hooks --------------------------------------------------------------------------------------------------


@every_layout
@ranks(2)
def test_grad_is_one_object_until_there_is_another_gradient(rank: Rank, layout: str) -> None:
    x = make(layout)
    assert x.grad is None
    loss_of(x).backward()
    first = x.grad
    assert x.grad is first
    loss_of(x).backward()
    assert x.grad is first, "accumulated in place, as in torch"
    assert_equal(whole_of(first), values(7) * 2)  # type: ignore[arg-type]
    x.grad = None
    assert x.grad is None
    loss_of(x).backward()
    assert x.grad is not first
    assert_equal(whole_of(gradient_of(x)), values(7))


@ranks(2)
def test_a_hook_that_cannot_be_called_is_refused(rank: Rank) -> None:
    x = make()
    assert_raises(TypeError, "hook is 3 but must be callable", lambda: x.register_hook(3))  # type: ignore[arg-type]
    loss_of(x).backward()
    assert_equal(whole_of(gradient_of(x)), values(7))


HOOKS: dict[str, Callable[[torch.Tensor], object]] = {
    "hook": lambda x: x.register_hook(lambda gradient: None),
    "post-accumulate hook": lambda x: x.register_post_accumulate_grad_hook(lambda tensor: None),
}


@pytest.mark.parametrize("hook", list(HOOKS))
@ranks(2)
def test_a_hooked_tensor_is_not_swapped_unnoticed(rank: Rank, hook: str) -> None:
    x, y = nn.Parameter(make()), nn.Parameter(make())
    HOOKS[hook](x)
    # The hook finds the tensor by a weak reference, and torch swaps nothing that has one.
    with pytest.raises(RuntimeError, match="weakrefs"):
        torch.utils.swap_tensors(x, y)
    loss_of(x).backward()
    assert_equal(whole_of(gradient_of(x)), values(7))


@ranks(2)
def test_a_module_can_be_cast_by_swapping(rank: Rank) -> None:
    for make_weight in (values, make):  # of plain tensors: torch's own word on it
        module = nn.Module()
        module.weight = nn.Parameter(make_weight())
        before = module.weight
        torch.__future__.set_swap_module_params_on_conversion(True)
        try:
            module.float()
        finally:
            torch.__future__.set_swap_module_params_on_conversion(False)
        assert module.weight is before
        assert module.weight.dtype == torch.float32
        loss_of(module.weight * 2).backward()
        assert module.weight.grad is not None


@ranks(2)
def test_swapped_tensors_have_each_others_values_and_graphs(rank: Rank) -> None:
    x, y = nn.Parameter(make("ragged")), nn.Parameter(make(whole=values(2)))
    torch.utils.swap_tensors(x, y)
    for tensor, whole, layout in ((x, values(2), "sharded"), (y, values(), "ragged")):
        assert_consistent(tensor)
        assert tensor.placements == (PLACEMENTS[layout],)  # type: ignore[attr-defined]
        assert_equal(whole_of(tensor), whole)
        loss_of(tensor * 2).backward()
        assert_equal(whole_of(gradient_of(tensor)), values(7) * 2)
