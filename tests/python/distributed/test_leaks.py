"""Ten thousand operations leave nothing behind: no tensor, no thread, no memory."""

from __future__ import annotations

import gc
import os
import threading
import weakref
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from hyper_parallel import DTensor, RaggedShard, Replicate, Shard, distribute_tensor
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


def live_dtensors() -> int:
    gc.collect()
    return sum(type(thing) is DTensor for thing in gc.get_objects())


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


WORK: dict[str, tuple[Callable[[DTensor, torch.Tensor], None], int]] = {
    "steps": (one_step, OPERATIONS // 4),
    "redistributions": (communicate, COMMUNICATING),
    "from_local": (wrap_and_unwrap, OPERATIONS // 4),
    "hooks": (hook, OPERATIONS // 4),
    "refusals": (fail, OPERATIONS // 4),
    "rows": (take_a_row, OPERATIONS),
}


@pytest.mark.parametrize("work", list(WORK))
@ranks(MESH_RANKS)
def test_nothing_is_kept(rank: Rank, work: str) -> None:
    run, times = WORK[work]
    x = make()
    matrix = distribute_tensor(torch.zeros(4, 8), make_mesh(MESH_RANKS), [Shard(0)])
    for _ in range(times // 10):  # caches, allocator and pools have what they need
        run(x, matrix)
    objects, tasks, memory = live_dtensors(), threads(), resident_bytes()
    for _ in range(times):
        run(x, matrix)
    assert live_dtensors() == objects
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
        reference = weakref.ref(x)
        del x
        assert reference() is None
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
