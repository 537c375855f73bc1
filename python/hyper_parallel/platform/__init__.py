"""What depends on the framework that this process computes with: its ranks, its process groups, its collectives.

The package's values know nothing of a framework and ask here. torch is the one there is; it is imported with the first
question.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hyper_parallel.platform._torch import (
        get_rank,
        get_world_size,
        host_buffer,
        initialize,
        is_initialized,
        mesh_from_torch,
        mesh_to_torch,
        message_group,
        new_group,
        world_group,
        writable_host_buffer,
    )
    from hyper_parallel.platform._torch_collectives import (
        differentiable_all_to_all_single,
        differentiable_variable_all_gather,
        differentiable_variable_reduce_scatter,
    )

__all__ = [
    "differentiable_all_to_all_single",
    "differentiable_variable_all_gather",
    "differentiable_variable_reduce_scatter",
    "get_rank",
    "get_world_size",
    "host_buffer",
    "initialize",
    "is_initialized",
    "mesh_from_torch",
    "mesh_to_torch",
    "message_group",
    "new_group",
    "world_group",
    "writable_host_buffer",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = "_torch_collectives" if name.startswith("differentiable_") else "_torch"
    found = getattr(importlib.import_module(f"hyper_parallel.platform.{home}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
