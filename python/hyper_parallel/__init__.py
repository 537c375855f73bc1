"""Distributed tensors with uneven, contiguous shares per rank.

The values (placements, meshes, layouts, errors) import without a framework. What works on torch tensors is imported
when it is first asked for, so that ``import hyper_parallel`` is cheap and works beside MindSpore alone.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from hyper_parallel._core import __version__ as __version__
from hyper_parallel.device_mesh import DeviceMesh, init_device_mesh
from hyper_parallel.errors import (
    ArgumentTypeError,
    CheckpointError,
    FailedPreconditionError,
    HyperParallelError,
    InternalError,
    InvalidArgumentError,
    OutOfRangeError,
    UnimplementedError,
)
from hyper_parallel.layout import Layout, RaggedShardInfo
from hyper_parallel.placement import Partial, Placement, RaggedShard, Replicate, Shard
from hyper_parallel.visualize import visualize

if TYPE_CHECKING:
    from hyper_parallel.dtensor import DTensor, distribute_tensor, from_torch_dtensor, to_torch_dtensor

__all__ = [
    "ArgumentTypeError",
    "CheckpointError",
    "DTensor",
    "DeviceMesh",
    "FailedPreconditionError",
    "HyperParallelError",
    "InternalError",
    "InvalidArgumentError",
    "Layout",
    "OutOfRangeError",
    "Partial",
    "Placement",
    "RaggedShard",
    "RaggedShardInfo",
    "Replicate",
    "Shard",
    "UnimplementedError",
    "distribute_tensor",
    "from_torch_dtensor",
    "init_device_mesh",
    "to_torch_dtensor",
    "visualize",
]

# Where the names live that need a framework.
_LAZY = {
    "DTensor": "hyper_parallel.dtensor",
    "distribute_tensor": "hyper_parallel.dtensor",
    "from_torch_dtensor": "hyper_parallel.dtensor",
    "to_torch_dtensor": "hyper_parallel.dtensor",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(importlib.import_module(_LAZY[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
