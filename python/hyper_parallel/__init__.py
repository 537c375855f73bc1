"""Distributed tensors with uneven, contiguous shares per rank.

The values (placements, meshes, layouts, errors) import without a framework. What works on tensors is imported when it
is first asked for, for the framework that ``hyper_parallel.platform.name()`` says, so that ``import hyper_parallel`` is
cheap and works with torch or MindSpore alone.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from hyper_parallel import platform
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

# Where the names live that need a framework: on torch, and on MindSpore where it has them.
_LAZY: dict[str, tuple[str, str | None]] = {
    "DTensor": ("hyper_parallel.dtensor", "hyper_parallel.mindspore.dtensor"),
    "custom_shard": ("hyper_parallel.sharding", "hyper_parallel.sharding"),
    "distribute_tensor": ("hyper_parallel.dtensor", "hyper_parallel.mindspore.dtensor"),
    "empty": ("hyper_parallel.factories", None),
    "fallback_counts": ("hyper_parallel._fallback", None),
    "from_torch_dtensor": ("hyper_parallel.dtensor", None),
    "full": ("hyper_parallel.factories", None),
    "get_rng_state": ("hyper_parallel.factories", None),
    "manual_seed": ("hyper_parallel.factories", None),
    "ones": ("hyper_parallel.factories", None),
    "rand": ("hyper_parallel.factories", None),
    "randn": ("hyper_parallel.factories", None),
    "replay_random": ("hyper_parallel.factories", None),
    "reset_fallback_counts": ("hyper_parallel._fallback", None),
    "set_rng_state": ("hyper_parallel.factories", None),
    "shard": ("hyper_parallel.sharding", "hyper_parallel.sharding"),
    "to_torch_dtensor": ("hyper_parallel.dtensor", None),
    "zeros": ("hyper_parallel.factories", None),
}


def __getattr__(name: str) -> Any:  # noqa: ANN401
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    on_torch, on_mindspore = _LAZY[name]
    home = on_torch if platform.name() == "torch" else on_mindspore
    found = _missing(name) if home is None else getattr(importlib.import_module(home), name)
    globals()[name] = found
    return found


def _missing(name: str) -> Callable[..., NoReturn]:
    """What stands for a function that MindSpore's part has not: imports, and raises when it is called."""

    def missing(*args: object, **kwargs: object) -> NoReturn:
        raise UnimplementedError(f"hyper_parallel.{name} is not offered on MindSpore, only on torch")

    missing.__name__ = missing.__qualname__ = name
    missing.__doc__ = "Not offered on MindSpore: raises UnimplementedError."
    return missing


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
