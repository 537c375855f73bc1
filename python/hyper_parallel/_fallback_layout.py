"""How torch's DTensor gets tensors in a fallback, and how it gives results that mean the same here."""

from __future__ import annotations

import math

import torch
import torch.distributed.tensor as torch_tensor

from hyper_parallel.dtensor import DTensor
from hyper_parallel.placement import Placement, Replicate


def is_loss(name: str) -> bool:
    """Whether an operation is a loss, of which torch must be given whole tensors."""
    return name.endswith("_loss") or "cross_entropy" in name or name == "kl_div"


def whole_placements(tensor: DTensor) -> list[Placement]:
    """Replicate on every mesh dim."""
    return [Replicate()] * tensor.device_mesh.ndim


def even_placements(tensor: DTensor) -> list[Placement]:
    """Its placements, Replicate where a reduction is pending or a tensor dim does not split evenly."""
    placements: list[Placement] = [Replicate() if place.is_partial() else place for place in tensor.placements]
    for dim, size in enumerate(tensor.shape):
        over = [mesh_dim for mesh_dim, placement in enumerate(placements) if placement.is_shard(dim)]
        if size % math.prod(tensor.device_mesh.shape[mesh_dim] for mesh_dim in over):
            for mesh_dim in over:
                placements[mesh_dim] = Replicate()
    return placements


def plainly_placed(tensor: torch_tensor.DTensor) -> torch_tensor.DTensor:
    """The tensor with placements that mean the same here, gradients included: others are made Replicate in torch."""
    has_sum = tensor.dtype != torch.bool
    known = [
        type(placement) in (torch_tensor.Replicate, torch_tensor.Shard)
        or (has_sum and type(placement) is torch_tensor.Partial and placement.reduce_op == "sum")
        for placement in tensor.placements
    ]
    # A strided shard is part of an order over several mesh dims.
    is_strided = any(
        not (is_known or placement.is_partial()) for placement, is_known in zip(tensor.placements, known, strict=True)
    )
    if all(known):
        return tensor
    return tensor.redistribute(
        placements=[
            placement if is_known and not is_strided else torch_tensor.Replicate()
            for placement, is_known in zip(tensor.placements, known, strict=True)
        ]
    )
