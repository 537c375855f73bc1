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
from torch import nn
from torch.utils.checkpoint import checkpoint

from hyper_parallel import DTensor, HyperParallelError, Placement, RaggedShard, Replicate, Shard, distribute_tensor
from support.checks import assert_consistent, assert_equal, assert_raises, gradient_of, make_mesh, whole_of
from support.ranks import ranks
from support.values import small_integers
from support.worker import Rank

SHAPE = (6, 4)
PLACEMENTS: dict[str, Placement] = {"ragged": RaggedShard((0,), (1, 2)), "sharded": Shard(0), "replicated": Replicate()}
every_layout = pytest.mark.parametrize("layout", list(PLACEMENTS))


def values(seed: int = 1) -> torch.Tensor:
    return small_integers(SHAPE, torch.float64, seed)


def make(layout: str = "sharded", whole: torch.Tensor | None = None, *, requires_grad: bool = True) -> DTensor:
    given = values() if whole is None else whole
    return distribute_tensor(given.clone().requires_grad_(requires_grad), make_mesh(2), [PLACEMENTS[layout]])


def loss_of(y: Any) -> torch.Tensor:
    """A scalar that weighs every element otherwise; equal on all ranks."""
    whole: torch.Tensor = y.full_tensor(grad_placements=[Replicate()]) if isinstance(y, DTensor) else y
    return (whole.double() * values(7)).sum()


# --- functions of the user's -----------------------------------------------------------------------------------------


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient * 2


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


# --- writes that torch's graph over wrappers does not see ------------------------------------------------------------


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
