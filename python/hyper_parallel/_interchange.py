"""Between our DTensor and torch's own, for layouts that both have."""

from __future__ import annotations

import torch.distributed.tensor as torch_tensor
from torch.distributed.device_mesh import DeviceMesh as TorchDeviceMesh

from hyper_parallel import _core, _torch
from hyper_parallel.device_mesh import DeviceMesh
from hyper_parallel.dtensor import DTensor
from hyper_parallel.errors import ArgumentTypeError, UnimplementedError
from hyper_parallel.placement import Partial, Placement, Replicate, Shard

# The mesh objects that carry a torch mesh and its process groups, by value. They stay as long as the process: a mesh
# made anew for every tensor would make groups for every tensor, and one that some rank alone still had would leave its
# peers waiting for it.
_meshes: dict[_core.DeviceMesh, DeviceMesh] = {}


def torch_mesh_of(tensor: DTensor) -> TorchDeviceMesh:
    """The torch mesh of the tensor's mesh.

    The first call on a mesh makes a process group for each mesh dim, by the members alone, all of which must call.
    """
    mesh = tensor.device_mesh
    if mesh._torch_mesh is None:
        mesh = _meshes.setdefault(_core.DeviceMesh(mesh), mesh)
    return mesh.to_torch(tensor.device.type)


def placement_to_torch(placement: Placement) -> torch_tensor.placement_types.Placement:
    """The placement as torch has it; raises UnimplementedError for RaggedShard."""
    match placement:
        case Replicate():
            return torch_tensor.Replicate()
        case Shard():
            return torch_tensor.Shard(placement.dim)
        case Partial():
            return torch_tensor.Partial(placement.reduce_op)
    raise UnimplementedError(
        f"torch's DTensor has no placement for {placement}; redistribute() to Shard(0) or Replicate() first"
    )


def placement_from_torch(placement: torch_tensor.placement_types.Placement) -> Placement:
    """Our placement of the same meaning; raises UnimplementedError where there is none."""
    # Subclasses of torch's placements (strided shards, masked partials) mean something else.
    if type(placement) is torch_tensor.Replicate:
        return Replicate()
    if type(placement) is torch_tensor.Shard:
        return Shard(placement.dim)
    if type(placement) is torch_tensor.Partial:
        return Partial(placement.reduce_op)
    raise UnimplementedError(
        f"there is no placement here for torch's {placement}; redistribute the tensor in torch first"
    )


def to_torch(tensor: DTensor) -> torch_tensor.DTensor:
    """See `hyper_parallel.dtensor.to_torch_dtensor`."""
    if not isinstance(tensor, DTensor):
        raise ArgumentTypeError(f"to_torch_dtensor takes a hyper_parallel.DTensor, not {type(tensor).__name__}")
    placements = [placement_to_torch(placement) for placement in tensor.placements]
    local, mesh = _torch.local(tensor), torch_mesh_of(tensor)
    if len(tensor.shape) == 0 and local.dim() > 0:
        local = local.sum(dtype=local.dtype)  # outside the mesh torch wants a number: it takes () for no shape given
    stride = [1] * len(tensor.shape)
    for dim in range(len(stride) - 2, -1, -1):
        stride[dim] = stride[dim + 1] * max(tensor.shape[dim + 1], 1)
    return torch_tensor.DTensor.from_local(
        local, mesh, placements, run_check=False, shape=tensor.shape, stride=tuple(stride)
    )


def from_torch(tensor: torch_tensor.DTensor, mesh: DeviceMesh | None = None) -> DTensor:
    """See `hyper_parallel.dtensor.from_torch_dtensor`; `mesh` is the object to lie on where the caller has it."""
    if not isinstance(tensor, torch_tensor.DTensor):
        raise ArgumentTypeError(f"from_torch_dtensor takes torch's DTensor, not {type(tensor).__name__}")
    placements = [placement_from_torch(placement) for placement in tensor.placements]
    gradients = [_gradient_placement(placement) for placement in tensor.placements]
    mesh = DeviceMesh.from_torch(tensor.device_mesh) if mesh is None else mesh
    local = tensor.to_local(grad_placements=gradients)
    if not mesh.contains(mesh.get_rank()):
        local = local.flatten()[:0]  # torch has a number there for a tensor without dims
    return DTensor(local, mesh, placements, shape=tuple(tensor.shape))


def _gradient_placement(
    placement: torch_tensor.placement_types.Placement,
) -> torch_tensor.placement_types.Placement:
    """Inside a DTensor program the gradient lies as the tensor, whole where that is pending."""
    return torch_tensor.Replicate() if placement.is_partial() else placement
