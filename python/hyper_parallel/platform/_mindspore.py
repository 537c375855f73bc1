"""Ranks and process groups of a MindSpore job.

MindSpore knows groups by name; a process group is a str here. Between processes on the CPU it moves bytes from point to
point over its world group (``hyper_parallel.mindspore._messages``); what it names a group is for its own collectives,
on Ascend for the variable ones too.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, NoReturn

import mindspore
import numpy as np
from mindspore import communication
from mindspore.communication import management

from hyper_parallel.errors import (
    ArgumentTypeError,
    FailedPreconditionError,
    InvalidArgumentError,
    UnimplementedError,
)
from hyper_parallel.platform._mindspore_launch import Job, launch, share_job
from hyper_parallel.platform._mindspore_store import MessageGroup, Patience, Store

if TYPE_CHECKING:
    from hyper_parallel.device_mesh import DeviceMesh

__all__ = [
    "get_rank",
    "get_world_size",
    "group_ranks",
    "host_buffer",
    "initialize",
    "is_initialized",
    "mesh_from_torch",
    "mesh_to_torch",
    "message_group",
    "new_group",
    "store",
    "world_group",
    "writable_host_buffer",
]

# How long a rank waits for a message of a checkpoint, behind which another rank may be writing; not for one whose
# process has ended.
_MESSAGE = timedelta(minutes=30)

# MindSpore's names of groups may not be longer on Ascend.
_LONGEST_NAME = 100

_job: Job | None = None

# How many message groups each tuple of ranks has made: part of their names.
_message_groups: Counter[tuple[int, ...]] = Counter()


def is_initialized() -> bool:
    """Whether MindSpore's communication is, so that this process has a rank."""
    return bool(management.GlobalComm.INITED)


def world_group() -> str:
    """The name of MindSpore's world group, which holds the whole job.

    Raises:
        FailedPreconditionError: MindSpore's communication is not initialised.
    """
    if not is_initialized():
        raise FailedPreconditionError(
            "this process has no rank yet: MindSpore's communication is not initialised; call init_device_mesh or "
            "mindspore.communication.init first"
        )
    return str(management.GlobalComm.WORLD_COMM_GROUP)


def get_rank() -> int:
    """This process's rank in the job.

    Raises:
        FailedPreconditionError: MindSpore's communication is not initialised.
    """
    return int(communication.get_rank(world_group()))


def get_world_size() -> int:
    """How many processes the job has.

    Raises:
        FailedPreconditionError: MindSpore's communication is not initialised.
    """
    return int(communication.get_group_size(world_group()))


def group_ranks(group: str) -> tuple[int, ...]:
    """The ranks of the job that are in a group, in its order.

    Raises:
        FailedPreconditionError: MindSpore's communication is not initialised.
        ArgumentTypeError: ``group`` is no name.
        InvalidArgumentError: There is no group of that name, or this process is not in it.
    """
    world = world_group()
    if not isinstance(group, str):
        raise ArgumentTypeError(f"group is {group!r} but must be the name of a process group, a str")
    if group == world:
        return tuple(range(get_world_size()))
    try:
        return tuple(map(int, communication.get_process_group_ranks(group)))
    except (RuntimeError, ValueError) as error:
        raise InvalidArgumentError(f"group is {group!r}, which this process is not in") from error


# --- start -----------------------------------------------------------------------------------------------------------


def initialize(device_type: str) -> None:
    """Starts MindSpore's communication if it is not, and the store beside it; every rank calls.

    Under ``msrun`` its environment says where the job's scheduler is. Otherwise ``RANK``, ``WORLD_SIZE``,
    ``MASTER_ADDR`` and ``MASTER_PORT`` say where rank 0 listens, as ``torchrun`` sets them; no scheduler is needed.

    Args:
        device_type: What tensors live on, "cpu" or "ascend"; decides the backend.

    Raises:
        FailedPreconditionError: The environment does not say rank, size and address of the job, rank 0 cannot listen
            there, or a rank does not come.
        InvalidArgumentError: Another device type; a rank, size or port that cannot be.
    """
    backends = {"cpu": "mccl", "ascend": "hccl", "npu": "hccl"}
    backend = backends.get(device_type.lower())
    if backend is None:
        raise InvalidArgumentError(f"device_type is {device_type!r} but on MindSpore must be 'cpu' or 'ascend'")
    global _job  # noqa: PLW0603  (as below)
    if not is_initialized():
        _job = launch(backend)
    _shared_job()


def store() -> Store:
    """The job's store; made by the first call, which every rank of the job must do. ``init_device_mesh`` does.

    Raises:
        FailedPreconditionError: MindSpore's communication is not initialised, or a rank does not come.
    """
    return _shared_job().store


def _shared_job() -> Job:
    global _job  # noqa: PLW0603  (one job in a process's life: MindSpore cannot begin another)
    if _job is None:
        _job = share_job(world_group())
    return _job


# --- groups ----------------------------------------------------------------------------------------------------------


def new_group(ranks: Sequence[int]) -> str:
    """The name of the process group of ``ranks``, whose member i is ``ranks[i]``: no sorting takes place.

    Ranks that are the whole job in order give the world group. Otherwise a group is made if there is none of these
    ranks, by its members alone; all of them must call this for the same groups in the same order.

    Args:
        ranks: Ranks of the job, this process's among them.

    Raises:
        InvalidArgumentError: ``ranks`` hold a rank twice or one outside the job, or not this process's.
        FailedPreconditionError: MindSpore's communication is not initialised.
    """
    world = world_group()
    members = list(ranks)
    size, rank = get_world_size(), get_rank()
    if len(set(members)) != len(members) or not set(members) <= set(range(size)):
        raise InvalidArgumentError(f"ranks {tuple(members)} must be different ranks of the job's {size}")
    if rank not in members:
        raise InvalidArgumentError(f"ranks {tuple(members)} do not hold this process's rank {rank}")
    if members == list(range(size)):
        return world
    name = f"hyper_parallel_{'_'.join(map(str, members))}"
    if len(name) > _LONGEST_NAME:
        name = f"hyper_parallel_{hashlib.sha256(name.encode()).hexdigest()}"
    if name not in _made_groups:
        communication.create_group(name, members)
        _made_groups.add(name)
    return name


_made_groups: set[str] = set()


def message_group(group: object = None) -> MessageGroup:
    """A new group of the same ranks in the same order, for bytes over the job's store; all of them must call.

    What goes over it never meets what the program sends over ``group``, so another thread may use it.

    Args:
        group: The name of a process group, None for the world group.

    Raises:
        FailedPreconditionError: MindSpore's communication is not initialised.
        InvalidArgumentError: This process is not in the group.
        ArgumentTypeError: ``group`` is no name.
    """
    world = world_group()
    if group is not None and not isinstance(group, str):
        raise ArgumentTypeError(f"process_group is {group!r} but must be the name of a process group, a str")
    ranks = group_ranks(world if group is None else group)
    _message_groups[ranks] += 1
    name = f"{','.join(map(str, ranks))}/{_message_groups[ranks]}"
    job = _shared_job()
    return MessageGroup(job.store, name, ranks, ranks.index(get_rank()), Patience(_MESSAGE, job.watch.find_ended))


# --- memory ----------------------------------------------------------------------------------------------------------


def host_buffer(tensor: object) -> object:
    """The tensor's elements, row-major in host memory, to be read: an object with the buffer protocol.

    Contiguous CPU tensors are shared, others copied.

    Raises:
        ArgumentTypeError: It is no tensor.
    """
    return np.ascontiguousarray(_checked(tensor).asnumpy()).reshape(-1).view(np.uint8)


def writable_host_buffer(tensor: object) -> object:
    """The tensor's own memory, to be written to: an object with the buffer protocol.

    Raises:
        ArgumentTypeError: It is no tensor.
        InvalidArgumentError: Its memory is not row-major host memory from its start on; a copy of it would be filled in
            vain.
    """
    whole = _checked(tensor)
    on_host = mindspore.get_context("device_target") == "CPU"
    if not (on_host and whole.is_contiguous() and shows_own_memory(whole)):
        raise InvalidArgumentError(
            f"a tensor to be filled must be contiguous, on the CPU and no view into another, but has strides "
            f"{tuple(whole.stride())} and offset {whole.storage_offset()} for shape {tuple(whole.shape)} on "
            f"{mindspore.get_context('device_target')}"
        )
    return whole.asnumpy().reshape(-1).view(np.uint8)


def shows_own_memory(tensor: mindspore.Tensor) -> bool:
    """Whether the host sees the elements of a CPU tensor where they lie: of a view, at offset 0 too, it sees a copy."""
    return bool(tensor.size == 0 or tensor.asnumpy().ctypes.data == tensor.data_ptr())


def _checked(tensor: object) -> mindspore.Tensor:
    if not isinstance(tensor, mindspore.Tensor):
        raise ArgumentTypeError(f"a value of type {type(tensor).__name__} must be a tensor or a bytes-like object")
    return tensor


# --- torch's meshes --------------------------------------------------------------------------------------------------


def mesh_from_torch(mesh_class: type[DeviceMesh], torch_mesh: object) -> NoReturn:
    """Raises: this process computes with MindSpore.

    Raises:
        UnimplementedError: Always.
    """
    raise UnimplementedError("DeviceMesh.from_torch needs torch, but this process computes with MindSpore")


def mesh_to_torch(mesh: DeviceMesh, device_type: str) -> NoReturn:
    """Raises: this process computes with MindSpore.

    Raises:
        UnimplementedError: Always.
    """
    raise UnimplementedError("DeviceMesh.to_torch needs torch, but this process computes with MindSpore")
