"""What holds of every DTensor, and comparisons with the truth. All run on every rank of a pool."""

from __future__ import annotations

import torch

from hyper_parallel import DTensor
from support.common import MESH_NAMES, assert_raises, make_mesh
from support.truth import Spread

__all__ = [
    "MESH_NAMES",
    "assert_consistent",
    "assert_equal",
    "assert_part",
    "assert_raises",
    "gradient_of",
    "make_mesh",
    "whole_of",
]


def assert_consistent(tensor: torch.Tensor) -> None:
    """Wrapper and local tensor tell the same story."""
    assert isinstance(tensor, DTensor)
    local = tensor._local_tensor
    assert type(local) is torch.Tensor
    assert tensor.dtype == local.dtype
    assert tensor.requires_grad == local.requires_grad
    assert tensor.is_leaf == local.is_leaf
    assert (tensor.grad_fn is None) == (local.grad_fn is None)
    assert tensor._version == local._version
    assert tensor.device == local.device
    assert tensor.local_numel == local.numel()
    assert tensor._global_shape == tuple(tensor.shape) == tuple(tensor.size())
    assert tensor.placements == tensor.layout.placements
    assert tensor.device_mesh == tensor.layout.mesh
    if tensor.layout.ragged_shard is not None:
        assert local.dim() == 1
        assert local.is_contiguous()


def assert_equal(given: torch.Tensor, expected: torch.Tensor) -> None:
    """Equal dtype, shape and bits (NaN equals NaN)."""
    torch.testing.assert_close(given, expected, rtol=0, atol=0, equal_nan=True)


def assert_part(tensor: torch.Tensor, whole: torch.Tensor, spread: Spread, rank: int, *, exact: bool = True) -> None:
    """`tensor` is `whole`, laid out as `spread` says; looks at this rank's part and communicates nothing."""
    assert_consistent(tensor)
    assert isinstance(tensor, DTensor)
    assert tuple(tensor.shape) == spread.shape
    assert tensor.placements == spread.placements
    tolerance = 0.0 if exact else None  # None: of the dtype
    torch.testing.assert_close(
        tensor._local_tensor.detach(), spread.part(whole, rank), rtol=tolerance, atol=tolerance, equal_nan=True
    )


def whole_of(tensor: torch.Tensor) -> torch.Tensor:
    """The whole tensor, without a graph."""
    detached = tensor.detach()
    assert isinstance(detached, DTensor)
    return detached.full_tensor()


def gradient_of(tensor: torch.Tensor) -> DTensor:
    """The gradient of a leaf, which lies as the tensor does where that is not pending."""
    gradient = tensor.grad
    assert isinstance(tensor, DTensor)
    assert isinstance(gradient, DTensor)
    assert_consistent(gradient)
    assert gradient.shape == tensor.shape
    assert gradient.dtype == tensor.dtype
    spread = Spread(tuple(tensor.shape), tensor.device_mesh.shape, tensor.placements)
    assert gradient.placements == spread.gradient_placements()
    return gradient
