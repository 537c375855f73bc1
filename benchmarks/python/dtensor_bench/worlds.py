"""The same tensor three times: plain, as ours, and as torch's own DTensor."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.distributed.tensor as torch_tensor
from torch.distributed.device_mesh import DeviceMesh as TorchDeviceMesh

from hyper_parallel import DeviceMesh, DTensor, Partial, Placement, Shard


@dataclass(frozen=True)
class Worlds:
    """One mesh of one dim, ours and torch's."""

    mesh: DeviceMesh
    torch_mesh: TorchDeviceMesh

    def torch_placement(self, placement: Placement) -> torch_tensor.Placement:
        """Torch's name for a placement."""
        if isinstance(placement, Shard):
            return torch_tensor.Shard(placement.dim)
        if isinstance(placement, Partial):
            return torch_tensor.Partial(placement.reduce_op)
        return torch_tensor.Replicate()

    def ours(self, local: torch.Tensor, placement: Placement, shape: tuple[int, ...]) -> DTensor:
        """A DTensor of ours over `local`."""
        return DTensor.from_local(local, self.mesh, [placement], shape)

    def theirs(self, local: torch.Tensor, placement: Placement) -> torch_tensor.DTensor:
        """A torch DTensor over `local`, which every rank has of equal shape."""
        return torch_tensor.DTensor.from_local(
            local, self.torch_mesh, [self.torch_placement(placement)], run_check=False
        )


def check_equal(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    """Raises unless two plain tensors agree bit for bit: the sides of a row must come to the same."""
    if type(ours) is not torch.Tensor or type(theirs) is not torch.Tensor or not ours.equal(theirs):
        raise AssertionError(f"ours and torch's own results differ: {type(ours)}, {type(theirs)}\n{ours}\n{theirs}")
