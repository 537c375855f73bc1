"""DTensors in files: plain values and the local tensor, so that torch.load reads them by its default rules.

Reading makes no process group: the tensor finds the job's when it first communicates, and then must be on the rank
that wrote it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import torch

from hyper_parallel import _torch
from hyper_parallel._core import DeviceMesh as CoreMesh
from hyper_parallel.errors import FailedPreconditionError

if TYPE_CHECKING:
    from hyper_parallel.dtensor import DTensor


def restore(  # noqa: PLR0913, PLR0917  (what stands in files)
    local: torch.Tensor,
    mesh: tuple[tuple[int, ...], tuple[str, ...], tuple[int, ...]],
    placements: str,
    shape: tuple[int, ...],
    rank: int,
    attributes: dict[str, Any],
) -> DTensor:
    """The DTensor that `reduce` took apart."""
    # A process that reads before it has used the package has not made the class yet.
    importlib.import_module("hyper_parallel.dtensor")
    tensor = _torch.restore(local.detach(), CoreMesh(*mesh), placements, shape, rank)
    tensor.requires_grad_(local.requires_grad)
    tensor.__dict__.update(attributes)
    return tensor


def reduce(tensor: DTensor) -> tuple[Any, ...]:
    """`restore` and its arguments, for pickle."""
    local = _torch.local(tensor)
    if not local.is_leaf:
        raise FailedPreconditionError(
            "Only DTensors that are leaves of the graph can be pickled; detach() the tensor first"
        )
    mesh = tensor.device_mesh
    return (
        restore,
        (
            local,
            (tuple(mesh.mesh_shape), tuple(mesh.mesh_dim_names), tuple(mesh.rank_list)),
            _torch.placements_text(tensor),
            tuple(tensor.shape),
            _torch.rank(tensor),
            dict(tensor.__dict__),
        ),
    )


torch.serialization.add_safe_globals([restore])
