"""What sharding asks of torch: trees of values, and the parts of a module."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

from hyper_parallel.dtensor import DTensor, distribute_tensor
from hyper_parallel.errors import FailedPreconditionError, UnimplementedError

__all__ = [
    "MODULE_NAME",
    "DTensor",
    "Module",
    "Tensor",
    "check_ready",
    "detached",
    "distribute_tensor",
    "named_modules",
    "named_tensors",
    "needs_gradient",
    "owner_of",
    "put",
    "tree_flatten",
    "tree_leaves",
    "tree_map",
    "tree_unflatten",
]

MODULE_NAME = "torch.nn.Module"
Module = nn.Module
Tensor = torch.Tensor


def needs_gradient(tensor: DTensor) -> bool:
    """Whether a gradient for the tensor will come back."""
    return tensor.requires_grad and torch.is_grad_enabled()


def named_tensors(model: nn.Module) -> dict[str, torch.Tensor]:
    """All parameters and buffers by their dotted names, tied ones under each."""
    return dict(model.named_parameters(remove_duplicate=False)) | dict(model.named_buffers(remove_duplicate=False))


def named_modules(model: nn.Module) -> dict[str, nn.Module]:
    """All modules by their dotted names, "" for the model itself."""
    return dict(model.named_modules(remove_duplicate=False))


def owner_of(model: nn.Module, name: str) -> tuple[nn.Module, str]:
    """The module that holds a tensor, and its attribute there."""
    owner, _, attribute = name.rpartition(".")
    return model.get_submodule(owner), attribute


def check_ready(tensor: torch.Tensor, what: str) -> None:
    """Raises if the tensor cannot be distributed yet.

    Raises:
        FailedPreconditionError: It has no shape yet, or a gradient.
        UnimplementedError: It is on the meta device.
    """
    if is_lazy(tensor):
        raise FailedPreconditionError(f"{what} has no shape yet; run the model once, or give its layers their sizes")
    if tensor.is_meta:
        raise UnimplementedError(f"{what} is on the meta device and has no values; to_empty() and initialise it first")
    if tensor.grad is not None:
        raise FailedPreconditionError(f"{what} has a gradient, which would be lost; set it to None first")


def detached(tensor: torch.Tensor) -> torch.Tensor:
    """The values, outside the graph."""
    return tensor.detach()


def put(places: Sequence[tuple[nn.Module, str]], old: torch.Tensor, value: DTensor) -> None:
    """Puts a DTensor where ``old`` was: a leaf, and a parameter if that was one."""
    new = nn.Parameter(value, requires_grad=old.requires_grad) if isinstance(old, nn.Parameter) else value
    for module, name in places:
        setattr(module, name, new)
