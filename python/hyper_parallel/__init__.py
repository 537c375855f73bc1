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
    from hyper_parallel._fallback import fallback_counts, reset_fallback_counts
    from hyper_parallel.dtensor import DTensor, distribute_tensor, from_torch_dtensor, to_torch_dtensor
    from hyper_parallel.factories import (
        empty,
        full,
        get_rng_state,
        manual_seed,
        ones,
        rand,
        randn,
        replay_random,
        set_rng_state,
        zeros,
    )
    from hyper_parallel.sharding import custom_shard, shard

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
    "custom_shard",
    "distribute_tensor",
    "empty",
    "fallback_counts",
    "from_torch_dtensor",
    "full",
    "get_rng_state",
    "init_device_mesh",
    "manual_seed",
    "ones",
    "rand",
    "randn",
    "replay_random",
    "reset_fallback_counts",
    "set_rng_state",
    "shard",
    "to_torch_dtensor",
    "visualize",
    "zeros",
]

# Where the names live that need a framework.
_LAZY = {
    "DTensor": "hyper_parallel.dtensor",
    "custom_shard": "hyper_parallel.sharding",
    "distribute_tensor": "hyper_parallel.dtensor",
    "empty": "hyper_parallel.factories",
    "fallback_counts": "hyper_parallel._fallback",
    "from_torch_dtensor": "hyper_parallel.dtensor",
    "full": "hyper_parallel.factories",
    "get_rng_state": "hyper_parallel.factories",
    "manual_seed": "hyper_parallel.factories",
    "ones": "hyper_parallel.factories",
    "rand": "hyper_parallel.factories",
    "randn": "hyper_parallel.factories",
    "replay_random": "hyper_parallel.factories",
    "reset_fallback_counts": "hyper_parallel._fallback",
    "set_rng_state": "hyper_parallel.factories",
    "shard": "hyper_parallel.sharding",
    "to_torch_dtensor": "hyper_parallel.dtensor",
    "zeros": "hyper_parallel.factories",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(importlib.import_module(_LAZY[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
