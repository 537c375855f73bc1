"""Meshes live as long as they are held, and follow the process group that is there."""

from __future__ import annotations

import faulthandler
import gc
import os
import weakref
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing

from hyper_parallel import (
    DeviceMesh,
    DTensor,
    Partial,
    RaggedShard,
    Replicate,
    Shard,
    _torch,
    distribute_tensor,
    init_device_mesh,
    to_torch_dtensor,
)
from hyper_parallel.errors import FailedPreconditionError
from hyper_parallel.platform import new_group
from support.checks import assert_equal, assert_raises, make_mesh
from support.pool import RankPool
from support.ranks import ranks
from support.values import numbered
from support.worker import Rank

SHAPE = (6, 4)
GROUP_TIMEOUT = timedelta(seconds=10)


def alive(kind: type) -> int:
    gc.collect()
    return sum(isinstance(thing, kind) for thing in gc.get_objects())


# --- meshes that nobody holds ----------------------------------------------------------------------------------------


def use(mesh: DeviceMesh) -> None:
    """Makes everything that a mesh may keep, or be kept by."""
    x = distribute_tensor(numbered(SHAPE).requires_grad_(), mesh, [RaggedShard((0,), (1, 2))])
    (x.redistribute([Shard(0)]) * 2).full_tensor().sum().backward()
    assert x.device_mesh is mesh
    assert x.layout.mesh == x.grad.device_mesh == mesh  # type: ignore[union-attr]
    mesh.get_group()
    mesh[mesh.mesh_dim_names[0]].flatten("flat").get_coordinate()


@ranks(2)
def test_dropped_meshes_die(rank: Rank) -> None:
    use(DeviceMesh((2,), ("warm",)))
    meshes, communicators = alive(DeviceMesh), alive(_torch.Communicator)
    dropped = []
    for index in range(100):
        mesh = DeviceMesh((2,), (f"n{index}",))
        use(mesh)
        dropped.append(weakref.ref(mesh))
        del mesh
    gc.collect()
    assert [reference() for reference in dropped] == [None] * 100
    assert alive(DeviceMesh) == meshes
    assert alive(_torch.Communicator) == communicators


@ranks(2)
def test_a_mesh_lives_while_the_user_holds_it_and_comes_back_from_its_tensors(rank: Rank) -> None:
    mesh = DeviceMesh((2,), ("held",))
    x = distribute_tensor(numbered(SHAPE), mesh, [Shard(0)])
    gc.collect()
    assert x.device_mesh is mesh
    del mesh
    gc.collect()
    again = x.device_mesh
    assert again == DeviceMesh((2,), ("held",))
    assert_equal(x.full_tensor(), numbered(SHAPE))
    assert_equal((x + distribute_tensor(numbered(SHAPE), again, [Shard(0)])).full_tensor(), numbered(SHAPE) * 2)


# --- another process group under the same meshes ---------------------------------------------------------------------


def init(folder: Path, name: str, rank: int, size: int) -> None:
    dist.init_process_group("gloo", f"file://{folder / name}", timeout=GROUP_TIMEOUT, rank=rank, world_size=size)


COMMUNICATING: dict[str, Callable[[DeviceMesh, DTensor], object]] = {
    "distribute_tensor": lambda mesh, x: distribute_tensor(numbered(SHAPE), mesh, [Shard(0)]),
    "distribute_tensor from 0": lambda mesh, x: distribute_tensor(numbered(SHAPE), mesh, [Shard(0)], src_data_rank=0),
    "from_local": lambda mesh, x: DTensor(torch.ones(3), mesh, [Shard(0)]),
    "to_torch_dtensor": lambda mesh, x: to_torch_dtensor(x),
    "get_group": lambda mesh, x: mesh.get_group(),
    "get_coordinate": lambda mesh, x: mesh.get_coordinate(),
    "get_local_rank": lambda mesh, x: mesh.get_local_rank(),
    "to_torch": lambda mesh, x: mesh.to_torch(),
    "sub-mesh": lambda mesh, x: mesh.flatten("other").get_group(),
}


def error_of(mesh: DeviceMesh, x: DTensor, action: Callable[[DeviceMesh, DTensor], object]) -> BaseException | None:
    try:
        action(mesh, x)
    except BaseException as error:
        return error
    return None


def leave_and_come_back_with_swapped_ranks(rank: Rank) -> None:
    mesh, reverse = make_mesh(2), DeviceMesh((2,), ("dp",), rank_list=[1, 0])
    x = distribute_tensor(numbered(SHAPE), mesh, [Shard(0)])
    before = x._local_tensor.clone()
    for on in (mesh, reverse):
        distribute_tensor(numbered(SHAPE), on, [Shard(0)]).full_tensor()
        on.get_group()
    dist.barrier()
    dist.destroy_process_group()
    errors = {name: error_of(mesh, x, action) for name, action in COMMUNICATING.items()}
    assert_equal((x + 1)._local_tensor, before + 1)  # what needs nobody still runs
    now = 1 - rank.index
    init(rank.folder, "swapped", now, rank.size)
    for on, coordinate in ((mesh, now), (reverse, 1 - now)):
        assert on.get_coordinate() == (coordinate,)
        for source in (None, 0):
            y = distribute_tensor(numbered(SHAPE), on, [Shard(0)], src_data_rank=source)
            assert_equal(y._local_tensor, numbered(SHAPE)[3 * coordinate : 3 * coordinate + 3])
            assert_equal(y.full_tensor(), numbered(SHAPE))
        from_zero = distribute_tensor(numbered(SHAPE) * (coordinate + 1), on, [Shard(0)], src_data_rank=0)
        assert_equal(from_zero.full_tensor(), numbered(SHAPE))
        assert dist.get_rank(on.get_group()) == coordinate
        z = distribute_tensor(numbered(SHAPE), on, [RaggedShard((0,), (0, 3))])
        assert_equal(z.redistribute([Shard(1)]).full_tensor(), numbered(SHAPE))
        assert_equal((z + 1).full_tensor(), numbered(SHAPE) + 1)
    # What was made under the old group is the part of another rank now.
    mine = distribute_tensor(numbered(SHAPE), mesh, [Shard(0)])
    assert_raises(RuntimeError, f"the part of rank {now}", lambda: x + mine)
    assert {name: error for name, error in errors.items() if not isinstance(error, FailedPreconditionError)} == {}
    dist.barrier()


def leave_and_come_back_to_the_same_place(rank: Rank) -> None:
    mesh = make_mesh(2)
    x = distribute_tensor(numbered(SHAPE), mesh, [Shard(0)])
    group = mesh.get_group()
    dist.barrier()
    dist.destroy_process_group()
    init(rank.folder, "again", rank.index, rank.size)
    assert mesh.get_group() is not group
    fresh = distribute_tensor(numbered(SHAPE), mesh, [Shard(0)])
    assert_equal((x + fresh)._local_tensor, x._local_tensor * 2)
    assert_equal((fresh * 2).full_tensor(), numbered(SHAPE) * 2)
    assert mesh.to_torch().size() == 2
    assert_equal(to_torch_dtensor(fresh).full_tensor(), numbered(SHAPE))
    dist.barrier()


@pytest.mark.parametrize("body", [leave_and_come_back_with_swapped_ranks, leave_and_come_back_to_the_same_place])
def test_meshes_follow_the_process_group(body: Callable[[Rank], None]) -> None:
    with RankPool(2) as pool:  # its own: a body ends the process group
        pool.run(body)


# --- groups ----------------------------------------------------------------------------------------------------------


@ranks(2)
def test_ranks_that_make_no_group_raise(rank: Rank) -> None:
    assert_raises(ValueError, "(0, 0) must be different ranks of the job's 2", lambda: new_group([0, 0]))
    for outside in (2, -1):
        assert_raises(
            ValueError, "must be different ranks of the job's 2", lambda o=outside: new_group([rank.index, o])
        )
    assert_raises(ValueError, f"do not hold this process's rank {rank.index}", lambda: new_group([1 - rank.index]))
    assert_raises(ValueError, f"do not hold this process's rank {rank.index}", lambda: new_group([]))
    odd: Any
    for odd in ("ab", [0.5], [None]):
        with pytest.raises((ValueError, TypeError)):
            new_group(odd)


@ranks(2)
def test_a_device_type_that_is_no_str_raises(rank: Rank) -> None:
    odd: Any
    for odd in (7, None, torch.device("cpu")):
        assert_raises(TypeError, "device_type", lambda odd=odd: make_mesh(2).to_torch(odd))
        assert_raises(TypeError, "device_type", lambda odd=odd: init_device_mesh(odd, (2,)))


# --- a start without torchrun ----------------------------------------------------------------------------------------


def spawned(index: int, folder: str) -> None:
    faulthandler.enable()
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    init(Path(folder), "spawned", index, 2)
    mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("dp",))
    x = distribute_tensor(numbered(SHAPE).requires_grad_(), mesh, [RaggedShard((0,), (1, 2))])
    (x * x).full_tensor(grad_placements=[Replicate()]).sum().backward()
    assert isinstance(x.grad, DTensor)
    assert_equal(x.grad.full_tensor(), numbered(SHAPE) * 2)
    pending = DTensor(torch.ones(2), mesh, [Partial()])
    assert_raises(ValueError, "Partial", lambda: pending.redistribute([Partial("max")]))
    torch.save(x.detach(), Path(folder) / f"share{index}.pt")
    dist.destroy_process_group()


def test_a_job_may_be_started_by_torchs_multiprocessing(tmp_path: Path) -> None:
    torch.multiprocessing.spawn(spawned, (str(tmp_path),), nprocs=2)
    shares = [torch.load(tmp_path / f"share{index}.pt") for index in range(2)]
    assert [share.local_numel for share in shares] == [8, 16]
    assert_equal(torch.cat([share._local_tensor for share in shares]).reshape(SHAPE), numbered(SHAPE))
