"""Operations of torch that have no rule here: run by torch's own DTensor, counted, and logged once.

A function of torch without an entry arrives here where all its DTensors lie normally; on a ragged one it is refused
before. Torch's DTensor, which takes long to import, does the work (``_fallback_call``). It has a process group for each
mesh dim, made when a mesh first falls back, where this library has one group for all; so the first call on a mesh is
slow, and every call costs torch's own dispatch besides the conversion.
"""

from __future__ import annotations

import importlib
import logging
import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from hyper_parallel import _torch

if TYPE_CHECKING:
    from hyper_parallel.device_mesh import DeviceMesh

__all__ = ["fallback_counts", "reset_fallback_counts"]

_LOGGER = logging.getLogger("hyper_parallel")

# Functions that hand out this rank's memory, move it, change its size or make tensors of whatever it held: on the share
# each would be a silent lie.
_NEVER = frozenset({
    "__array__", "__array_wrap__", "__cuda_array_interface__", "__dlpack__", "__dlpack_device__", "__setstate__",
    "_typed_storage", "apply_", "as_strided", "as_strided_", "as_subclass", "coalesce", "cuda", "data_ptr",
    "empty_strided", "hpu", "ipu", "is_pinned", "is_set_to", "is_shared", "map2_", "map_", "module_load", "mtia",
    "names", "new", "new_empty", "new_empty_strided", "numpy", "pin_memory", "record_stream", "rename",
    "rename_", "resize", "resize_", "resize_as", "resize_as_", "set_", "share_memory_", "storage", "storage_type",
    "swap_tensors", "to_dense", "to_mkldnn", "to_sparse", "tolist", "typed_storage", "untyped_storage", "xpu",
})  # fmt: skip

_lock = threading.Lock()
_counts: dict[str, int] = {}


def fallback_counts() -> dict[str, int]:
    """How often each operation ran through torch's own DTensor because it has no rule here.

    Each process counts for itself. With ``HYPER_PARALLEL_STRICT=1`` such operations raise and nothing is counted.

    Returns:
        Times by the operation's name, since the start or the last :func:`reset_fallback_counts`.

    Example:
        >>> reset_fallback_counts()
        >>> fallback_counts()
        {}
    """
    with _lock:
        return dict(_counts)


def reset_fallback_counts() -> None:
    """Starts the counts anew; what falls back then is logged again.

    Example:
        >>> reset_fallback_counts()
    """
    with _lock:
        _counts.clear()


def run(name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401
    """What torch's DTensor makes of the call; NotImplemented where it must be refused.

    Args:
        name: The operation's name, for messages; "x = ..." for the setter of an attribute.
        function: The function of torch.
        args: Its arguments, no ragged DTensor among them.
        kwargs: Its keyword arguments, likewise.
    """
    is_strict = os.environ.get("HYPER_PARALLEL_STRICT") == "1"
    is_transformed = torch._C._functorch.peek_interpreter_stack() is not None  # by vmap, grad, jvp
    if is_strict or is_transformed or name in _NEVER or name.endswith(" = ..."):
        return NotImplemented
    # torch.distributed.tensor takes long to import.
    return importlib.import_module("hyper_parallel._fallback_call").run(name, function, args, kwargs)


def run_on_normal(name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401
    """The same for a handler's call, which may have ragged arguments: NotImplemented then too."""
    wrappers = (leaf for leaf in pytree.tree_leaves((args, kwargs)) if _is_dtensor(leaf))
    if any(_torch.layout(wrapper).is_ragged for wrapper in wrappers):
        return NotImplemented
    return run(name, function, args, kwargs)


def _is_dtensor(value: object) -> bool:
    # isinstance would need the class, whose module imports this one.
    return getattr(type(value), "__torch_function__", None) is _torch.torch_function


def note(name: str, mesh: DeviceMesh) -> None:
    """Counts a call that falls back; the first of a name is logged, by the first rank of its mesh.

    A warning, not an information: it costs time that nobody has asked for, and who has not configured logging would
    never learn of it.
    """
    with _lock:
        _counts[name] = times = _counts.get(name, 0) + 1
    if times == 1 and mesh.rank_list[0] == mesh.get_rank():
        _LOGGER.warning(
            "operation '%s' has no rule and runs through torch's DTensor; HYPER_PARALLEL_STRICT=1 refuses instead", name
        )


def register() -> None:
    """Tells the C++ dispatch; once, when the package is imported."""
    _torch.register_fallback(run)
