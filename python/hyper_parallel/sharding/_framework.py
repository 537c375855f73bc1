"""What sharding asks of the framework that this process computes with; chosen at the first import."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hyper_parallel import platform

if TYPE_CHECKING or platform.name() == "torch":
    from hyper_parallel.sharding._torch_framework import (
        MODULE_NAME,
        DTensor,
        Module,
        Tensor,
        check_ready,
        detached,
        distribute_tensor,
        named_modules,
        named_tensors,
        needs_gradient,
        owner_of,
        put,
        tree_flatten,
        tree_leaves,
        tree_map,
        tree_unflatten,
    )
else:
    from hyper_parallel.sharding._mindspore_framework import (
        MODULE_NAME,
        DTensor,
        Module,
        Tensor,
        check_ready,
        detached,
        distribute_tensor,
        named_modules,
        named_tensors,
        needs_gradient,
        owner_of,
        put,
        tree_flatten,
        tree_leaves,
        tree_map,
        tree_unflatten,
    )

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
