"""The communicator of a mesh: torch's default process group, found on first use."""

from __future__ import annotations

from weakref import WeakValueDictionary

import torch.distributed as dist

from hyper_parallel import _core, _torch
from hyper_parallel.device_mesh import DeviceMesh
from hyper_parallel.errors import FailedPreconditionError

# The mesh objects that tensors were made on, by value: a tensor hands out its user's mesh, with the process groups that
# were made on it.
_attached: WeakValueDictionary[_core.DeviceMesh, DeviceMesh] = WeakValueDictionary()


def default_group() -> dist.ProcessGroup:
    """torch.distributed's default process group.

    Raises:
        FailedPreconditionError: torch.distributed is not initialised.
    """
    group = dist.group.WORLD if dist.is_available() and dist.is_initialized() else None
    if group is None:
        raise FailedPreconditionError(
            "torch.distributed is not initialised: call init_device_mesh(...) or "
            "torch.distributed.init_process_group(...)"
        )
    return group


def attach(mesh: DeviceMesh) -> _torch.Communicator:
    """Makes the mesh's communicator and keeps it on the mesh.

    Raises:
        FailedPreconditionError: torch.distributed is not initialised.
        InvalidArgumentError: The mesh has a rank outside the default process group.
    """
    communicator = _torch.Communicator(default_group(), mesh)
    mesh._communicator = communicator
    _attached.setdefault(mesh, mesh)
    return communicator


def mesh_of(value: _core.DeviceMesh, communicator: _torch.Communicator) -> DeviceMesh:
    """The mesh object of a value, with its communicator on it: one that a tensor was made on, else a new one."""
    known = _attached.get(value)
    if known is not None:
        return known
    mesh = DeviceMesh._from_core(value)
    mesh._communicator = communicator
    _attached[mesh] = mesh
    return mesh
