"""How the processes of a MindSpore job find each other, and the store and the watch that they share from then on."""

from __future__ import annotations

import os
import socket
from datetime import timedelta
from typing import NamedTuple

import mindspore
import numpy as np
from mindspore import communication
from mindspore.communication import management
from mindspore.mint.distributed import TCPStore

from hyper_parallel.errors import FailedPreconditionError, InvalidArgumentError
from hyper_parallel.platform._mindspore_store import Store, first_line
from hyper_parallel.platform._mindspore_watch import Watch

__all__ = ["Job", "launch", "share_job"]

_ENVIRONMENT = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_LAST_PORT = 2**16 - 1

# How long the processes of a job may take to start.
_JOIN = timedelta(minutes=5)

# How long a rank waits for another before a collective; that of MindSpore's own on the CPU, which is fixed.
_COLLECTIVE = timedelta(seconds=30)

_CAME, _JOINED = "hyper_parallel/came", "hyper_parallel/joined"


class Job(NamedTuple):
    """What the ranks of a job share beside MindSpore's communication."""

    store: Store
    watch: Watch


class _Environment(NamedTuple):
    rank: int
    size: int
    address: str
    port: int


def launch(backend: str) -> Job | None:
    """Starts MindSpore's communication; every rank calls.

    Args:
        backend: MindSpore's name of it.

    Returns:
        What the ranks share, None under ``msrun``: ``share_job`` makes it then.

    Raises:
        FailedPreconditionError: The environment does not say rank, size and address of the job, rank 0 cannot listen
            there, or a rank does not come.
        InvalidArgumentError: It says what cannot be.
    """
    if "MS_ROLE" in os.environ:
        try:
            communication.init(backend)
        except RuntimeError as error:
            raise FailedPreconditionError(f"MindSpore's communication did not start: {first_line(error)}") from error
        return None
    # All that can be wrong is found before anything is started.
    found = _read_environment()
    if found.rank == 0:
        _check_place(found)
    job = _meet(found)
    try:
        # MindSpore's public init_process_group takes Ascend alone.
        management._init_with_store(
            backend=backend, timeout=_JOIN, world_size=found.size, rank=found.rank, store=job.store.raw
        )
    except RuntimeError as error:
        raise FailedPreconditionError(
            f"rank {found.rank} of {found.size} could not start MindSpore's communication: {first_line(error)}"
        ) from error
    _await_joined(job, found)
    return job


def share_job(world: str) -> Job:
    """Makes what the ranks of a job share; every rank calls.

    Args:
        world: MindSpore's world group.

    Raises:
        FailedPreconditionError: A rank did not come.
    """
    rank, size = int(communication.get_rank(world)), int(communication.get_group_size(world))
    address, port = _told_place(_free_place() if rank == 0 else ("0.0.0.0", 0), world)
    found = _Environment(rank, size, address, port)
    job = _meet(found)
    _await_joined(job, found)
    return job


# --- the environment -------------------------------------------------------------------------------------------------


def _read_environment() -> _Environment:
    missing = [name for name in _ENVIRONMENT if name not in os.environ]
    if missing:
        raise FailedPreconditionError(
            f"MindSpore's communication is not initialised and the environment has no {', '.join(missing)}: start the "
            "program with msrun, set what torchrun sets, or call mindspore.communication.init first"
        )
    size, rank, port = (_number(name) for name in ("WORLD_SIZE", "RANK", "MASTER_PORT"))
    if size < 1:
        raise InvalidArgumentError(f"WORLD_SIZE is {size} but must be at least 1")
    if not 0 <= rank < size:
        raise InvalidArgumentError(f"RANK is {rank} but must be from 0 to {size - 1}: WORLD_SIZE is {size}")
    if not 1 <= port <= _LAST_PORT:
        raise InvalidArgumentError(f"MASTER_PORT is {port} but must be from 1 to {_LAST_PORT}")
    return _Environment(rank, size, _address(), port)


def _number(name: str) -> int:
    text = os.environ[name]
    try:
        return int(text)
    except ValueError:
        raise InvalidArgumentError(f"{name} is {text!r} but must be a number") from None


def _address() -> str:
    host = os.environ["MASTER_ADDR"]
    if not host.strip():
        raise InvalidArgumentError(f"MASTER_ADDR is {host!r} but must be the name or address of rank 0's host")
    try:
        return socket.gethostbyname(host)
    except (OSError, UnicodeError) as error:
        raise FailedPreconditionError(f"MASTER_ADDR is {host!r}, which leads to no IPv4 address: {error}") from error


def _check_place(found: _Environment) -> None:
    """Raises if rank 0 cannot listen where it is told to: MindSpore would not say why."""
    try:
        # Not listening: another rank might take this for the store already.
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((found.address, found.port))
    except OSError as error:
        raise FailedPreconditionError(
            f"MASTER_ADDR is {os.environ['MASTER_ADDR']!r} and MASTER_PORT {found.port}, where rank 0 cannot listen: "
            f"{error.strerror or error}"
        ) from error


# --- the store -------------------------------------------------------------------------------------------------------


def _meet(found: _Environment) -> Job:
    """The store and the watch, when all ranks have them: MindSpore's store returns on rank 0 without the others."""
    try:
        raw = TCPStore(found.address, found.port, found.size, found.rank == 0, timeout=_JOIN)
    except RuntimeError as error:
        raise FailedPreconditionError(
            f"rank {found.rank} of {found.size} could not join the job at {found.address}:{found.port}: "
            f"{first_line(error)}"
        ) from error
    store = Store(raw, _COLLECTIVE)
    watch = Watch(store, found.rank, found.address, _JOIN)
    if found.rank:
        store.put(f"{_CAME}/{found.rank}", b"")
        _await(store, {0: f"{_CAME}/all"}, found)
    else:
        _await(store, {rank: f"{_CAME}/{rank}" for rank in range(1, found.size)}, found)
        store.put(f"{_CAME}/all", b"")
    return Job(store, watch)


def _await_joined(job: Job, found: _Environment) -> None:
    """Keeps rank 0, which holds the store and may leave next, until the others have done with it what they must."""
    if found.rank:
        job.store.put(f"{_JOINED}/{found.rank}", b"")
    else:
        _await(job.store, {rank: f"{_JOINED}/{rank}" for rank in range(1, found.size)}, found)
        job.store.hold()


def _await(store: Store, keys: dict[int, str], found: _Environment) -> None:
    """Waits for each rank's key."""
    absent = store.wait(list(keys.values()), _JOIN)
    if absent:
        ranks = ", ".join(str(list(keys)[index]) for index in absent)
        raise FailedPreconditionError(
            f"rank {found.rank} of {found.size}: rank {ranks} did not join the job at {found.address}:{found.port} "
            f"within {_JOIN.total_seconds():g} s"
        )


def _free_place() -> tuple[str, int]:
    """An address and port of this host that the other ranks reach: rank 0 need not be where the scheduler is."""
    scheduler = socket.gethostbyname(os.environ.get("MS_SCHED_HOST", "127.0.0.1"))
    with socket.socket(type=socket.SOCK_DGRAM) as way:
        way.connect((scheduler, 1))  # sends nothing, but chooses the address to send from
        address = str(way.getsockname()[0])
    with socket.socket() as probe:
        probe.bind((address, 0))
        return address, int(probe.getsockname()[1])


def _told_place(place: tuple[str, int], world: str) -> tuple[str, int]:
    """Rank 0's address and port, on every rank."""
    address, port = place
    told = mindspore.Tensor.from_numpy(np.array([*socket.inet_aton(address), port], np.int32))
    try:
        mindspore.mint.distributed.broadcast(told, 0, world)
        *parts, port = (int(number) for number in told.asnumpy())
    except RuntimeError as error:
        raise FailedPreconditionError(f"a rank of the job did not come: {first_line(error)}") from error
    return socket.inet_ntoa(bytes(parts)), port
