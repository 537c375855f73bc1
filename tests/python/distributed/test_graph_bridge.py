"""Where torch's own graph over DTensors meets the graph of their local tensors: nothing is dropped or counted twice."""

from __future__ import annotations

import operator
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.autograd.forward_ad as fwAD
from torch.utils.checkpoint import checkpoint

from hyper_parallel import DTensor, HyperParallelError, Replicate, Shard
from support.checks import assert_consistent, assert_equal, assert_raises, gradient_of, make_mesh, whole_of
from support.graphs import SHAPE, Double, every_layout, loss_of, make, values
from support.ranks import ranks
from support.worker import Rank

# --- functions of the user's -----------------------------------------------------------------------------------------


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, y: Any) -> Any:
        ctx.save_for_backward(x, y)
        return x * y

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        x, y = ctx.saved_tensors
        return gradient * y, gradient * x


class Two(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 2, x * 3

    @staticmethod
    def backward(ctx: Any, first: Any, second: Any) -> Any:
        return first * 2 + second * 3


class SavesItsOutput(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        y = x * x
        ctx.save_for_backward(x, y)
        return y

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        x, y = ctx.saved_tensors
        return gradient * (x + x) + (y - x * x)


class ReturnsItsInput(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient * 3


class Narrows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x.to(torch.float32)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        assert gradient.dtype == torch.float32
        return gradient * 2


class Gathers(torch.autograd.Function):
    """Its gradient lies otherwise than its input."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient.redistribute([Replicate()]) if isinstance(gradient, DTensor) else gradient


class InPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        x.mul_(2)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient * 2


def again(function: Callable[..., Any], *tensors: Any) -> Any:
    return checkpoint(function, *tensors, use_reentrant=True)


def kept(function: Callable[..., Any], *tensors: Any) -> Any:
    return checkpoint(function, *tensors, use_reentrant=False)


def of_an_inner_tensor(x: Any) -> Any:
    y = x * 3
    return Double.apply(y) * Double.apply(y) + y


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "one tensor into two functions": lambda x: Double.apply(x) + Double.apply(x),
    "one tensor twice into one": lambda x: Product.apply(x, x),
    "into a function and an operation": lambda x: Double.apply(x) * x,
    "a chain of functions": lambda x: Double.apply(Double.apply(x) * 3) + x,
    "an inner tensor into two functions": of_an_inner_tensor,
    "one tensor into two reentrant checkpoints": lambda x: again(torch.square, x) + again(lambda t: t * 5, x),
    "twice into one reentrant checkpoint": lambda x: again(lambda t, u: t * u, x, x),
    "a function in a reentrant checkpoint": lambda x: again(lambda t: Double.apply(t) * t, x),
    "a checkpoint in a checkpoint": lambda x: kept(lambda t: kept(torch.square, t * 3) * t, x),
    "two outputs, both used": lambda x: operator.mul(*Two.apply(x)),
    "saves its output": SavesItsOutput.apply,
    "returns its input": lambda x: ReturnsItsInput.apply(x * 1),
    "another dtype": lambda x: Narrows.apply(x) * 3,
    "another dtype, twice": lambda x: Narrows.apply(x) + Narrows.apply(x * 2),
    "a gradient that lies otherwise": lambda x: Gathers.apply(x) * 3,
    "gradients that lie otherwise, added": lambda x: Gathers.apply(x) * 3 + Gathers.apply(x),
    "a view and its tensor": lambda x: Double.apply(x.view_as(x)) * x,
}


def gradient_by_one_process(program: Callable[[Any], Any]) -> torch.Tensor:
    leaf = values().requires_grad_()
    loss_of(program(leaf)).backward()
    assert leaf.grad is not None
    return leaf.grad


@pytest.mark.parametrize("program", list(PROGRAMS))
@every_layout
@ranks(2)
def test_gradients_through_functions_are_those_of_one_process(rank: Rank, layout: str, program: str) -> None:
    x = make(layout)
    result = PROGRAMS[program](x)
    assert_consistent(result)
    loss_of(result).backward()
    assert_equal(whole_of(gradient_of(x)), gradient_by_one_process(PROGRAMS[program]))
    loss_of(PROGRAMS[program](x)).backward()
    assert_equal(whole_of(gradient_of(x)), gradient_by_one_process(PROGRAMS[program]) * 2)


# torch refuses torch.autograd.grad through a reentrant checkpoint.
@pytest.mark.parametrize("program", [name for name in PROGRAMS if "reentrant" not in name])
@ranks(2)
def test_autograd_grad_finds_them_as_well(rank: Rank, program: str) -> None:
    x = make("ragged")
    (gradient,) = torch.autograd.grad(loss_of(PROGRAMS[program](x)), [x])
    assert isinstance(gradient, DTensor)
    assert_equal(whole_of(gradient), gradient_by_one_process(PROGRAMS[program]))


# Where torch hands a function a plain tensor, or wants what a DTensor may not have.
HARD_PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "a write in place": lambda x: InPlace.apply(x * 1),
    "a write in place to a view": lambda x: InPlace.apply((x * 1).view_as(x)),
    "two outputs, one used": lambda x: Two.apply(x)[1],
    "two outputs of a reentrant checkpoint, one used": lambda x: again(lambda t: (t * 2, t * 3), x)[0],
}


@pytest.mark.parametrize("program", list(HARD_PROGRAMS))
@every_layout
@ranks(2)
def test_what_may_not_work_gives_the_gradient_or_raises_everywhere(rank: Rank, layout: str, program: str) -> None:
    x = make(layout)
    try:
        loss_of(HARD_PROGRAMS[program](x)).backward()
    except (HyperParallelError, RuntimeError) as error:
        outcome = f"{type(error).__name__}: {str(error).splitlines()[0]}"
        assert x.grad is None
        assert_equal(whole_of(x), values())
    else:
        outcome = "works"
        assert_equal(whole_of(gradient_of(x)), gradient_by_one_process(HARD_PROGRAMS[program]))
    outcomes = [""] * rank.size
    torch.distributed.all_gather_object(outcomes, outcome)
    assert outcomes == [outcome] * rank.size


# --- forward mode ----------------------------------------------------------------------------------------------------

LEAVING: dict[str, Callable[[DTensor], object]] = {
    "full_tensor": lambda x: x.full_tensor(),
    "redistribute": lambda x: x.redistribute([Shard(1)]),
}


@pytest.mark.parametrize("way", list(LEAVING))
@ranks(2)
def test_forward_mode_does_not_go_through_a_redistribution(rank: Rank, way: str) -> None:
    mesh, local = make_mesh(2), torch.ones(3, 4)

    def program(part: torch.Tensor) -> Any:
        return LEAVING[way](DTensor(part, mesh, [Shard(0)], shape=SHAPE))

    with pytest.raises(NotImplementedError):
        torch.func.jvp(program, (local,), (local,))
    with fwAD.dual_level():
        dual = fwAD.make_dual(local, local)
        assert_raises(NotImplementedError, "forward-mode", lambda: program(dual))
    assert program(local) is not None


# --- waiting for a peer ----------------------------------------------------------------------------------------------


class GathersAfterwards(torch.autograd.Function):
    """Leaves it to the library to lay the gradient out as the input lies."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x.redistribute([Replicate()])

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        if torch.distributed.get_rank() == 1:
            time.sleep(1.5)
        return gradient.redistribute([Shard(1)])


@ranks(2)
def test_other_threads_run_while_backward_waits_for_a_peer(rank: Rank) -> None:
    x = make()
    y = GathersAfterwards.apply(x)
    gaps: list[float] = []
    done = threading.Event()

    def count() -> None:
        last = time.monotonic()
        while not done.is_set():
            time.sleep(0.005)
            now = time.monotonic()
            gaps.append(now - last)
            last = now

    thread = threading.Thread(target=count)
    thread.start()
    started = time.monotonic()
    try:
        torch.autograd.backward([y], [make("replicated", values(7), requires_grad=False)])
    finally:
        done.set()
        thread.join()
    assert time.monotonic() - started > 1, "both ranks waited for the late one"
    assert max(gaps) < 0.7
    assert_equal(whole_of(gradient_of(x)), values(7))
