"""Ten thousand operations leave nothing behind: no tensor, no thread, no memory."""

from __future__ import annotations

import gc
import itertools
import os
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from hyper_parallel import DeviceMesh, DTensor, RaggedShard, Replicate, Shard, _torch, distribute_tensor
from support.checks import make_mesh
from support.ranks import ranks
from support.worker import Rank

OPERATIONS = 10_000
COMMUNICATING = 500
GROWTH = 4 * 1024 * 1024
"""Bytes by which a process may grow: an object kept per operation would take more."""

MESH_RANKS = 2


def make() -> DTensor:
    # 4 KiB a share: 10 000 of them that were kept would be 40 MB.
    whole = torch.zeros(3 * 1024, requires_grad=True)
    return distribute_tensor(whole, make_mesh(MESH_RANKS), [RaggedShard((0,), (1, 2))])


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def threads() -> tuple[int, int]:
    return threading.active_count(), len(os.listdir("/proc/self/task"))


def live_objects() -> int:
    gc.collect()
    return sum(type(thing) in (DTensor, DeviceMesh, _torch.Communicator) for thing in gc.get_objects())


def one_step(x: DTensor, row: torch.Tensor) -> None:
    """Forward, backward and an update, without communication."""
    y = torch.relu(x * 2 + x)
    y.backward(gradient=x.detach())
    with torch.no_grad():
        x.add_(x.grad, alpha=-0.1)
    x.grad = None


def communicate(x: DTensor, row: torch.Tensor) -> None:
    x.redistribute([Shard(0)]).redistribute([RaggedShard((0,), (2, 1))]).full_tensor().sum().backward()
    x.grad = None


def wrap_and_unwrap(x: DTensor, row: torch.Tensor) -> None:
    again = DTensor.from_local(x.to_local().detach(), x.device_mesh, x.placements, shape=tuple(x.shape))
    assert again.redistribute(x.device_mesh, x.placements) is again
    again.tag = again  # type: ignore[attr-defined]  # a cycle, for the collector


def hook(x: DTensor, row: torch.Tensor) -> None:
    inner = x * 2
    inner.register_hook(lambda gradient: gradient)
    inner.backward(gradient=x.detach())
    x.grad = None


def fail(x: DTensor, row: torch.Tensor) -> None:
    with pytest.raises(NotImplementedError):
        x.sum()
    with pytest.raises(ValueError, match="one element"):
        x.item()


def take_a_row(x: DTensor, row: torch.Tensor) -> None:
    row[1].zero_()


def make_a_mesh(x: DTensor, row: torch.Tensor) -> None:
    """A mesh of a name of its own, with tensors, communicator and groups."""
    mesh = DeviceMesh((MESH_RANKS,), (f"mesh{next(_names)}",))
    y = distribute_tensor(torch.zeros(4, requires_grad=True), mesh, [Shard(0)])
    (y * 2).full_tensor().sum().backward()
    assert y.device_mesh is mesh
    mesh.flatten("flat").get_coordinate()


def apply_a_function(x: DTensor, row: torch.Tensor) -> None:
    y = _Twice.apply(x)
    (y + _Twice.apply(x)).backward(gradient=x.detach())
    x.grad = None


def assign_data(x: DTensor, row: torch.Tensor) -> None:
    y = x.detach().requires_grad_()
    y.register_hook(lambda gradient: gradient)
    y.data = x.detach() * 2
    (y * y).backward(gradient=x.detach())
    assert y.grad is y.grad


class _Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        (x,) = ctx.saved_tensors
        return gradient * 2 + x * 0


_names = itertools.count()


WORK: dict[str, tuple[Callable[[DTensor, torch.Tensor], None], int]] = {
    "steps": (one_step, OPERATIONS // 4),
    "redistributions": (communicate, COMMUNICATING),
    "from_local": (wrap_and_unwrap, OPERATIONS // 4),
    "hooks": (hook, OPERATIONS // 4),
    "refusals": (fail, OPERATIONS // 4),
    "rows": (take_a_row, OPERATIONS),
    "meshes": (make_a_mesh, COMMUNICATING),
    "functions": (apply_a_function, OPERATIONS // 4),
    "data": (assign_data, OPERATIONS // 4),
}


@pytest.mark.parametrize("work", list(WORK))
@ranks(MESH_RANKS)
def test_nothing_is_kept(rank: Rank, work: str) -> None:
    run, times = WORK[work]
    x = make()
    matrix = distribute_tensor(torch.zeros(4, 8), make_mesh(MESH_RANKS), [Shard(0)])
    for _ in range(times // 10):  # caches, allocator and pools have what they need
        run(x, matrix)
    objects, tasks, memory = live_objects(), threads(), resident_bytes()
    for _ in range(times):
        run(x, matrix)
    assert live_objects() == objects
    assert threads() == tasks
    assert resident_bytes() - memory < GROWTH


@ranks(MESH_RANKS)
def test_a_dropped_tensor_gives_its_memory_back_at_once(rank: Rank) -> None:
    gc.disable()
    try:
        x = make()
        y = x * 2
        wrappers = [weakref.ref(x), weakref.ref(y)]
        storages = [weakref.ref(x._local_tensor), weakref.ref(y._local_tensor)]
        del x, y
        assert [reference() for reference in wrappers] == [None, None]
        assert [reference() for reference in storages] == [None, None]
    finally:
        gc.enable()


@ranks(MESH_RANKS)
def test_a_hook_does_not_keep_its_tensor_alive(rank: Rank) -> None:
    gc.disable()
    try:
        x = make()
        x.register_hook(lambda gradient: None)
        x.register_post_accumulate_grad_hook(lambda parameter: None)
        references = [weakref.ref(x), weakref.ref(x._local_tensor)]
        del x
        assert [reference() for reference in references] == [None, None]
    finally:
        gc.enable()


@ranks(MESH_RANKS)
def test_plans_for_many_layouts_stay_bounded(rank: Rank) -> None:
    layouts = 9000
    # Without elements, so that what grows are the plans.
    x = distribute_tensor(torch.zeros(layouts, 0), make_mesh(MESH_RANKS), [Replicate()])

    def visit(first_units: range) -> None:
        for first in first_units:
            x.redistribute([RaggedShard((0,), (first, layouts - first))])

    visit(range(layouts // 2))  # more than are kept
    memory = resident_bytes()
    visit(range(layouts // 2, layouts))
    assert resident_bytes() - memory < GROWTH
