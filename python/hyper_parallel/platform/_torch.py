"""Ranks and process groups of torch.distributed."""

from __future__ import annotations

import ctypes
import os
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d
from torch.distributed.device_mesh import DeviceMesh as TorchDeviceMesh

from hyper_parallel.errors import ArgumentTypeError, FailedPreconditionError, InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

    from hyper_parallel.device_mesh import DeviceMesh

__all__ = [
    "get_rank",
    "get_world_size",
    "host_buffer",
    "initialize",
    "is_initialized",
    "mesh_from_torch",
    "mesh_to_torch",
    "message_group",
    "new_group",
    "world_group",
    "writable_host_buffer",
]

_ENVIRONMENT = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def is_initialized() -> bool:
    """Whether torch's default process group is there, so that this process has a rank."""
    return dist.is_available() and dist.is_initialized()


def world_group() -> dist.ProcessGroup:
    """torch's default process group, which holds the whole job.

    Raises:
        FailedPreconditionError: torch.distributed is not initialised.
    """
    world = dist.group.WORLD if is_initialized() else None
    if world is None:
        raise FailedPreconditionError(
            "this process has no rank yet: torch.distributed is not initialised; call init_device_mesh or "
            "torch.distributed.init_process_group first"
        )
    return world


def get_rank() -> int:
    """This process's rank in the job.

    Raises:
        FailedPreconditionError: torch.distributed is not initialised.
    """
    return world_group().rank()


def get_world_size() -> int:
    """How many processes the job has.

    Raises:
        FailedPreconditionError: torch.distributed is not initialised.
    """
    return world_group().size()


def initialize(device_type: str) -> None:
    """Makes torch's default process group from the environment that ``torchrun`` sets; does nothing if it is there.

    Args:
        device_type: What tensors live on, "cpu" for instance; decides the backend.

    Raises:
        FailedPreconditionError: The environment does not say rank, size and address of the job.
    """
    if is_initialized():
        return
    missing = [name for name in _ENVIRONMENT if name not in os.environ]
    if missing:
        raise FailedPreconditionError(
            f"torch.distributed is not initialised and the environment has no {', '.join(missing)}: start the program "
            "with torchrun, or call torch.distributed.init_process_group first"
        )
    dist.init_process_group(dist.get_default_backend_for_device(device_type))


def new_group(ranks: Sequence[int]) -> dist.ProcessGroup:
    """The process group of ``ranks``, whose member i is ``ranks[i]``: no sorting takes place.

    Ranks that are the whole job in order give the default group. Otherwise a new group is made with the default group's
    backend and timeout, by its members alone; all of them must call this for the same groups in the same order.

    Args:
        ranks: Ranks of the job, this process's among them.

    Raises:
        InvalidArgumentError: ``ranks`` hold a rank twice or one outside the job, or not this process's.
        FailedPreconditionError: torch.distributed is not initialised.
    """
    world = world_group()
    members = list(ranks)
    if len(set(members)) != len(members) or not set(members) <= set(range(world.size())):
        raise InvalidArgumentError(f"ranks {tuple(members)} must be different ranks of the job's {world.size()}")
    if world.rank() not in members:
        raise InvalidArgumentError(f"ranks {tuple(members)} do not hold this process's rank {world.rank()}")
    if members == list(range(world.size())):
        return world
    return _make_group(world, members, c10d._world.pg_map[world][0])


def message_group(group: object = None) -> dist.ProcessGroup:
    """A new Gloo group of the same ranks in the same order, for bytes in host memory; all of them must call.

    What goes over it never meets what the program sends over ``group``, so another thread may use it.

    Args:
        group: The process group, None for the default one.

    Raises:
        FailedPreconditionError: torch.distributed is not initialised.
        InvalidArgumentError: This process is not in the group.
        ArgumentTypeError: ``group`` is no process group.
    """
    world = world_group()
    group = world if group is None else group
    if group is dist.GroupMember.NON_GROUP_MEMBER:
        raise InvalidArgumentError("process_group is one that this process is not in; only its members may call")
    if not isinstance(group, dist.ProcessGroup):
        raise ArgumentTypeError(f"process_group is {group!r} but must be a process group")
    return _make_group(world, dist.get_process_group_ranks(group), "gloo")


def host_buffer(tensor: object) -> object:
    """The tensor's elements, row-major in host memory, to be read: an object with the buffer protocol.

    Contiguous CPU tensors are shared, others copied.

    Raises:
        ArgumentTypeError: It is no tensor.
    """
    if not isinstance(tensor, torch.Tensor):
        raise ArgumentTypeError(f"a value of type {type(tensor).__name__} must be a tensor or a bytes-like object")
    return _buffer_over(tensor.detach().cpu().resolve_conj().resolve_neg().contiguous())


def writable_host_buffer(tensor: object) -> object:
    """The tensor's own memory, to be written to: an object with the buffer protocol.

    Raises:
        ArgumentTypeError: It is no tensor.
        InvalidArgumentError: Its memory is not row-major host memory; a copy of it would be filled in vain.
    """
    if not isinstance(tensor, torch.Tensor):
        raise ArgumentTypeError(f"a value of type {type(tensor).__name__} must be a tensor or a bytes-like object")
    if not (tensor.is_cpu and tensor.is_contiguous()) or tensor.is_conj() or tensor.is_neg():
        raise InvalidArgumentError(
            f"a tensor to be filled must be contiguous and on the CPU, but has strides {tensor.stride()} for shape "
            f"{tuple(tensor.shape)} on {tensor.device}"
        )
    return _buffer_over(tensor.detach())


def _buffer_over(host: torch.Tensor) -> object:
    # Not through numpy, which torch does not need, and which lacks bfloat16.
    buffer = (ctypes.c_ubyte * (host.numel() * host.element_size())).from_address(host.data_ptr())
    buffer._tensor = host  # type: ignore[attr-defined]  # lives as long as the buffer
    return buffer


def _make_group(world: dist.ProcessGroup, members: list[int], backend: str) -> dist.ProcessGroup:
    """A new group of ``members`` of the job, made by its members alone."""
    world_backend, store = c10d._world.pg_map[world]
    # torch's own name for a group made by its members alone counts the groups that the process has: members that have
    # unlike many would wait for each other under unlike names. This one counts the groups of these very ranks, in the
    # store, so that it is new also after a group was destroyed.
    name = f"hyper_parallel_{'_'.join(map(str, members))}"
    name = f"{name}_{store.add(f'{name}/made_by_{world.rank()}', 1)}"
    made = c10d._new_process_group_helper(
        len(members),
        members.index(world.rank()),
        members,
        backend,
        store,
        c10d.GroupName(name),
        timeout=_timeout_of(world, world_backend),
    )
    group: dist.ProcessGroup = made[0]
    c10d._world.pg_group_ranks[group] = {rank: index for index, rank in enumerate(members)}
    return group


def _timeout_of(group: dist.ProcessGroup, backend: str) -> timedelta:
    """The group's own timeout, or the default one of a backend that does not tell."""
    for device in group._device_types:
        options = getattr(group._get_backend(device), "options", None)
        if options is not None:
            timeout: timedelta = options._timeout
            return timeout
    return c10d._get_default_timeout(dist.Backend(backend))


def mesh_from_torch(mesh_class: type[DeviceMesh], torch_mesh: TorchDeviceMesh) -> DeviceMesh:
    """See ``DeviceMesh.from_torch``."""
    if not isinstance(torch_mesh, TorchDeviceMesh):
        raise ArgumentTypeError(f"torch_mesh is {torch_mesh!r} but must be a torch.distributed.DeviceMesh")
    ranks = torch_mesh.mesh
    mesh = mesh_class(tuple(ranks.shape), torch_mesh.mesh_dim_names, ranks.flatten().tolist())
    if is_initialized():
        mesh._torch_mesh = (world_group(), torch_mesh)
        if mesh.contains(get_rank()):
            _keep_groups(mesh, torch_mesh)
    return mesh


def _keep_groups(mesh: DeviceMesh, torch_mesh: TorchDeviceMesh) -> None:
    """Takes over the groups whose members stand in mesh order: torch sorts the ranks of those it makes."""
    world = world_group()
    for dim in range(mesh.ndim):
        group = torch_mesh.get_group(dim)
        ranks = mesh.group(dim, world.rank())
        if tuple(dist.get_process_group_ranks(group)) == ranks:
            mesh._groups[ranks] = (world, group)


def mesh_to_torch(mesh: DeviceMesh, device_type: str) -> TorchDeviceMesh:
    """See ``DeviceMesh.to_torch``."""
    if not isinstance(device_type, str):
        raise ArgumentTypeError(f"device_type is {device_type!r} but must be a str")
    world = world_group()
    made_under, known = mesh._torch_mesh or (None, None)
    if known is not None and made_under is world and known.device_type == device_type:
        return known
    ranks = torch.tensor(mesh.rank_list, dtype=torch.int).reshape(mesh.shape)
    if mesh.contains(world.rank()):
        groups = [mesh.get_group(dim) for dim in range(mesh.ndim)]
        made = TorchDeviceMesh.from_group(
            groups[0] if mesh.ndim == 1 else groups, device_type, ranks, mesh_dim_names=mesh.mesh_dim_names
        )
    else:
        # A process outside the mesh is in none of its groups.
        made = TorchDeviceMesh(device_type, ranks, mesh_dim_names=mesh.mesh_dim_names, _init_backend=False)
    mesh._torch_mesh = (world, made)
    return made
