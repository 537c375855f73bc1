"""What depends on the framework that this process computes with: its ranks, its process groups, its collectives.

The package's values know nothing of a framework and ask here. There are two, torch and MindSpore; ``name()`` says which
is this process's. It is imported with the first other question, and never the other one.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from hyper_parallel.platform._choice import name

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
    "name",
    "new_group",
    "world_group",
    "writable_host_buffer",
]


def __getattr__(asked: str) -> Any:  # noqa: ANN401
    if asked not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {asked!r}")
    home = f"_{name()}_collectives" if asked.startswith("differentiable_") else f"_{name()}"
    found = getattr(importlib.import_module(f"hyper_parallel.platform.{home}"), asked)
    globals()[asked] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
