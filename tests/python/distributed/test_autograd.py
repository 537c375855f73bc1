"""Autograd on DTensors: gradients, hooks, custom functions and checkpointing, as on any tensor."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from hyper_parallel import DTensor, Placement, RaggedShard, Replicate, Shard, distribute_tensor
from support.checks import assert_consistent, assert_equal, assert_raises, gradient_of, make_mesh, whole_of
from support.ranks import ranks
from support.values import numbered
from support.worker import Rank

SHAPE = (6, 4)
PLACEMENTS: dict[str, Placement] = {
    "ragged": RaggedShard((0,), (1, 2)),
    "empty": RaggedShard((0,), (0, 3)),
    "sharded": Shard(0),
    "replicated": Replicate(),
}
every_layout = pytest.mark.parametrize("layout", list(PLACEMENTS))


def leaf(layout: str) -> DTensor:
    return distribute_tensor(numbered(SHAPE).requires_grad_(), make_mesh(2), [PLACEMENTS[layout]])


def like(x: torch.Tensor, whole: torch.Tensor) -> DTensor:
    """A whole tensor laid out as `x`."""
    assert isinstance(x, DTensor)
    return distribute_tensor(whole, x.device_mesh, x.placements)


@every_layout
@ranks(2)
def test_grad_is_none_then_a_dtensor_then_accumulates(rank: Rank, layout: str) -> None:
    x = leaf(layout)
    assert x.grad is None
    gradient = numbered(SHAPE) + 1
    (x * 2).backward(like(x, gradient))
    assert_equal(whole_of(gradient_of(x)), gradient * 2)
    (x * 3).backward(gradient=like(x, gradient))
    assert_equal(whole_of(gradient_of(x)), gradient * 5)
    x.grad.zero_()
    assert_equal(whole_of(gradient_of(x)), torch.zeros(SHAPE))
    x.grad = None
    assert x.grad is None
    assert x._local_tensor.grad is None


@every_layout
@ranks(2)
def test_grad_can_be_assigned(rank: Rank, layout: str) -> None:
    x = leaf(layout)
    x.grad = like(x, torch.ones(SHAPE))
    assert_equal(whole_of(gradient_of(x)), torch.ones(SHAPE))
    x.grad.mul_(4)
    assert_equal(whole_of(gradient_of(x)), torch.full(SHAPE, 4.0))
    del x.grad
    assert x.grad is None
    with pytest.raises((TypeError, ValueError, RuntimeError)):
        x.grad = torch.ones(SHAPE)
    with pytest.raises((TypeError, ValueError, RuntimeError)):
        x.grad = distribute_tensor(torch.ones(24), x.device_mesh, [Replicate()])
    assert x.grad is None


@every_layout
@ranks(2)
def test_autograd_grad_hands_out_dtensors(rank: Rank, layout: str) -> None:
    x, y = leaf(layout), leaf(layout)
    gradients = torch.autograd.grad(x * y, [x, y], like(x, numbered(SHAPE)))
    for gradient in gradients:
        assert isinstance(gradient, DTensor)
        assert gradient.placements == x.placements
        assert_equal(whole_of(gradient), numbered(SHAPE) ** 2)
    assert x.grad is None
    unused = torch.autograd.grad(x * 2, [x, y], like(x, numbered(SHAPE)), allow_unused=True)
    assert unused[1] is None
    (zeros,) = torch.autograd.grad(x * 2, [y], like(x, numbered(SHAPE)), allow_unused=True, materialize_grads=True)
    assert isinstance(zeros, DTensor)
    assert_equal(whole_of(zeros), torch.zeros(SHAPE))


@every_layout
@ranks(2)
def test_autograd_grad_of_a_plain_loss_by_a_dtensor(rank: Rank, layout: str) -> None:
    x = leaf(layout)
    (gradient,) = torch.autograd.grad((x.full_tensor() * (rank.index + 1)).sum(), x)
    assert isinstance(gradient, DTensor)
    assert_equal(whole_of(gradient), torch.full(SHAPE, 3.0))


@every_layout
@ranks(2)
def test_autograd_backward_takes_dtensors(rank: Rank, layout: str) -> None:
    x, y = leaf(layout), leaf(layout)
    torch.autograd.backward([x * 2, y * 3], [like(x, torch.ones(SHAPE)), like(y, torch.ones(SHAPE))])
    assert_equal(whole_of(gradient_of(x)), torch.full(SHAPE, 2.0))
    assert_equal(whole_of(gradient_of(y)), torch.full(SHAPE, 3.0))


@every_layout
@ranks(2)
def test_backward_into_chosen_inputs_and_twice_through_a_kept_graph(rank: Rank, layout: str) -> None:
    x, y = leaf(layout), leaf(layout)
    product = x * y
    product.backward(like(x, torch.ones(SHAPE)), retain_graph=True, inputs=[x])
    assert y.grad is None
    product.backward(like(x, torch.ones(SHAPE)))
    assert_equal(whole_of(gradient_of(x)), numbered(SHAPE) * 2)
    assert_equal(whole_of(gradient_of(y)), numbered(SHAPE))


@every_layout
@ranks(2)
def test_a_plain_gradient_is_refused(rank: Rank, layout: str) -> None:
    x = leaf(layout)
    with pytest.raises((TypeError, ValueError)):
        (x * 2).backward(torch.ones(SHAPE))
    assert x.grad is None


@every_layout
@ranks(2)
def test_hooks_see_dtensors_and_may_replace_the_gradient(rank: Rank, layout: str) -> None:
    x = leaf(layout)
    seen: list[Any] = []
    handle = x.register_hook(seen.append)
    x.register_hook(lambda gradient: gradient * 10)
    (x * 2).backward(like(x, torch.ones(SHAPE)))
    assert len(seen) == 1
    assert isinstance(seen[0], DTensor)
    assert seen[0].placements == x.placements
    assert_equal(whole_of(seen[0]), torch.full(SHAPE, 2.0))
    assert_equal(whole_of(gradient_of(x)), torch.full(SHAPE, 20.0))
    handle.remove()
    (x * 2).backward(like(x, torch.ones(SHAPE)))
    assert len(seen) == 1


@every_layout
@ranks(2)
def test_hooks_work_on_inner_tensors(rank: Rank, layout: str) -> None:
    x = leaf(layout)
    inner = x * 2
    seen: list[Any] = []
    inner.register_hook(seen.append)
    inner.retain_grad()
    (inner * 3).backward(like(x, torch.ones(SHAPE)))
    assert isinstance(seen[0], DTensor)
    assert isinstance(inner.grad, DTensor)
    assert_equal(whole_of(inner.grad), torch.full(SHAPE, 3.0))
    assert_equal(whole_of(gradient_of(x)), torch.full(SHAPE, 6.0))


@every_layout
@ranks(2)
def test_post_accumulate_hooks_are_handed_the_tensor_itself(rank: Rank, layout: str) -> None:
    x = leaf(layout)
    seen: list[Any] = []

    def step(parameter: torch.Tensor) -> None:
        assert isinstance(parameter.grad, DTensor)
        seen.append((parameter, whole_of(parameter.grad)))
        parameter.grad = None

    x.register_post_accumulate_grad_hook(step)
    (x * 2).backward(like(x, torch.ones(SHAPE)))
    assert len(seen) == 1
    assert seen[0][0] is x
    assert_equal(seen[0][1], torch.full(SHAPE, 2.0))
    assert x.grad is None


@ranks(2)
def test_an_optimizer_in_the_backward_pass(rank: Rank) -> None:
    x = leaf("ragged")
    optimizer = torch.optim.SGD([x], lr=0.5)

    def step(parameter: torch.Tensor) -> None:
        optimizer.step()
        optimizer.zero_grad()

    x.register_post_accumulate_grad_hook(step)
    (x * 2).backward(like(x, torch.ones(SHAPE)))
    assert_equal(whole_of(x), numbered(SHAPE) - 1)
    assert x.grad is None


class Scaled(torch.autograd.Function):
    """Ten times the input; its gradient is made seven times, so that a backward that is skipped shows."""

    @staticmethod
    def forward(context: Any, x: torch.Tensor) -> torch.Tensor:
        context.save_for_backward(x)
        return x * 10

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> torch.Tensor:
        (x,) = context.saved_tensors
        assert type(x) is type(gradient)
        return gradient * 7


class ScaledWithSetup(torch.autograd.Function):
    """The same in torch's other form."""

    @staticmethod
    def forward(x: torch.Tensor) -> torch.Tensor:
        return x * 10

    @staticmethod
    def setup_context(context: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
        context.scale = 7

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient * context.scale


@pytest.mark.parametrize("function", ["Scaled", "ScaledWithSetup"])
@every_layout
@ranks(2)
def test_a_custom_function_runs_on_dtensors_and_keeps_their_gradients(rank: Rank, layout: str, function: str) -> None:
    x = leaf(layout)
    custom = {"Scaled": Scaled, "ScaledWithSetup": ScaledWithSetup}[function]
    y = custom.apply(x * 2)
    (y * 3).backward(like(x, torch.ones(SHAPE)))
    assert isinstance(y, DTensor)
    assert y.placements == x.placements
    assert y.requires_grad
    assert_consistent(y)
    assert_equal(whole_of(y), numbered(SHAPE) * 20)
    assert_equal(whole_of(gradient_of(x)), torch.full(SHAPE, 42.0))


@pytest.mark.parametrize("use_reentrant", [True, False])
@every_layout
@ranks(2)
def test_a_checkpointed_block_is_run_again_and_keeps_its_gradients(
    rank: Rank, layout: str, use_reentrant: bool
) -> None:
    x = leaf(layout)
    runs: list[int] = []

    def block(given: torch.Tensor) -> torch.Tensor:
        runs.append(1)
        return torch.sin(given * 2) * given

    y = checkpoint(block, x, use_reentrant=use_reentrant)
    assert isinstance(y, DTensor)
    assert_consistent(y)
    (y * 3).backward(like(x, torch.ones(SHAPE)))
    plain = numbered(SHAPE).requires_grad_()
    (torch.sin(plain * 2) * plain * 3).sum().backward()
    assert plain.grad is not None
    assert len(runs) == 2
    torch.testing.assert_close(whole_of(gradient_of(x)), plain.grad)


@pytest.mark.parametrize("use_reentrant", [True, False])
@ranks(2)
def test_a_checkpointed_block_that_gathers_its_weight(rank: Rank, use_reentrant: bool) -> None:
    """The usual case: the weight is gathered inside, again in the backward pass."""
    weight = leaf("ragged")
    data = (torch.ones(3, 6) * (rank.index + 1)).requires_grad_()

    def block(given: torch.Tensor) -> torch.Tensor:
        return torch.tanh(given @ weight.full_tensor() / 100)

    checkpoint(block, data, use_reentrant=use_reentrant).sum().backward()
    plain = numbered(SHAPE).requires_grad_()
    for index in range(2):
        torch.tanh(torch.ones(3, 6) * (index + 1) @ plain / 100).sum().backward()
    assert plain.grad is not None
    torch.testing.assert_close(whole_of(gradient_of(weight)), plain.grad)


@every_layout
@ranks(2)
def test_a_write_to_a_saved_tensor_is_noticed(rank: Rank, layout: str) -> None:
    x = leaf(layout)
    y = x * 1
    z = y * y
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.backward(like(x, torch.ones(SHAPE)))


@every_layout
@ranks(2)
def test_gradients_of_in_place_writes_reach_the_leaf(rank: Rank, layout: str) -> None:
    x = leaf(layout)
    y = x * 1
    y.mul_(5).add_(x)
    y.backward(like(x, torch.ones(SHAPE)))
    assert_equal(whole_of(gradient_of(x)), torch.full(SHAPE, 6.0))
    assert_consistent(y)


@ranks(2)
def test_saved_tensors_hooks_see_what_is_saved(rank: Rank) -> None:
    x = leaf("ragged")
    packed: list[Any] = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        packed.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        y = x * x
    y.backward(like(x, torch.ones(SHAPE)))
    assert packed
    assert_equal(whole_of(gradient_of(x)), numbered(SHAPE) * 2)


@ranks(2)
def test_anomaly_mode_and_graph_inspection_work(rank: Rank) -> None:
    with torch.autograd.detect_anomaly(check_nan=True):
        x = leaf("ragged")
        y = x * 2
        y.backward(like(x, torch.ones(SHAPE)))
    assert y.grad_fn is not None
    assert_equal(whole_of(gradient_of(x)), torch.full(SHAPE, 2.0))


@every_layout
@ranks(2)
def test_a_hook_on_several_leaves_runs_once_with_all_gradients(rank: Rank, layout: str) -> None:
    x, y = leaf(layout), leaf(layout)
    seen: list[list[torch.Tensor]] = []
    torch.autograd.graph.register_multi_grad_hook([x, y], lambda gradients: seen.append(list(gradients)))
    (x * 2 + y * 3).full_tensor(grad_placements=[Replicate()]).sum().backward()
    assert len(seen) == 1
    assert [gradient.full_tensor().unique().item() for gradient in seen[0]] == [2.0, 3.0]


@every_layout
@ranks(2)
def test_view_as_shares_storage_and_graph(rank: Rank, layout: str) -> None:
    x = leaf(layout)
    view = x.view_as(x)
    assert view is not x
    assert view.to_local().data_ptr() == x.to_local().data_ptr()
    (view * 2).full_tensor(grad_placements=[Replicate()]).sum().backward()
    assert x.grad is not None
    assert x.grad.full_tensor().unique().item() == 2.0
    assert_raises(NotImplementedError, "view_as of a DTensor of shape", lambda: x.view_as(torch.ones(1)))
