"""The communicator of a mesh: torch's default process group, found on first use."""

from __future__ import annotations

from weakref import WeakValueDictionary

from hyper_parallel import _core, _torch, platform
from hyper_parallel.device_mesh import DeviceMesh

# The mesh objects that tensors were made on, by value: a tensor hands out its user's mesh, with the process groups that
# were made on it. A mesh that nobody holds any more drops out; its key is a value of its own.
_attached: WeakValueDictionary[_core.DeviceMesh, DeviceMesh] = WeakValueDictionary()


def attach(mesh: DeviceMesh) -> _torch.Communicator:
    """Makes the mesh's communicator and keeps it on the mesh.

    Raises:
        FailedPreconditionError: torch.distributed is not initialised.
        InvalidArgumentError: The mesh has a rank outside the default process group.
    """
    communicator = _torch.Communicator(platform.world_group(), mesh)
    mesh._communicator = communicator
    _attached.setdefault(_core.DeviceMesh(mesh), mesh)
    return communicator


def mesh_of(value: _core.DeviceMesh) -> DeviceMesh:
    """The mesh object of a value: one that a tensor was made on, else a new one."""
    known = _attached.get(value)
    return DeviceMesh._from_core(value) if known is None else known
