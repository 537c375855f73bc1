"""What is known of a tensor's place in the graph that ``mindspore.value_and_grad`` makes.

MindSpore differentiates functions: a graph is recorded while such a function runs, and at no other time. But one that
ends with an exception MindSpore takes to be running still, and refuses writes to parameters and indices that are ints
from then on. The first write to a DTensor outside of such functions, or redistribution of one, ends that.
"""

from __future__ import annotations

import contextlib
import sys

import mindspore
from mindspore.graph.api import _pynative_executor

from hyper_parallel.errors import FailedPreconditionError, UnimplementedError
from hyper_parallel.platform import _mindspore

__all__ = ["check_mode", "check_writable", "forget_failure", "is_recording", "is_tracked"]


def is_recording() -> bool:
    """Whether a function is being differentiated. Ends the recording of one that has ended with an exception."""
    if not _pynative_executor.requires_grad():
        return False
    if _is_called_by_mindspore():
        return True
    _pynative_executor.clear_res()
    return False


def is_tracked(tensor: mindspore.Tensor) -> bool:
    """Whether gradients will come back to the tensor: a graph is being recorded and the tensor is in it."""
    if not is_recording():
        return False
    if not tensor._requires_grad:
        # What copy_ and an assignment write comes into the graph when MindSpore's queue gets there, not before.
        _pynative_executor.sync()
    return bool(tensor._requires_grad)


def forget_failure() -> None:
    """Waits for MindSpore's queue, and drops what fails in it: a failed call is raised again by some later one."""
    with contextlib.suppress(RuntimeError, TypeError, ValueError):
        _pynative_executor.sync()


def check_writable(tensor: mindspore.Tensor, operation: str, value: mindspore.Tensor | None = None) -> None:
    """Raises where MindSpore would lose a write, or the gradient of one, without a word.

    Raises:
        FailedPreconditionError: A leaf of the graph that is being recorded: its gradient would be wrong. A Parameter
            outside the graph, where the value is in it and would not be followed. A view into another tensor, or
            strided: the write would reach a copy.
    """
    if is_tracked(tensor) and tensor._is_leaf:
        raise FailedPreconditionError(
            f"operation '{operation}' would write a parameter or an input of the function that is being "
            "differentiated; write it outside of that function, or write a copy of it"
        )
    if value is not None and isinstance(tensor, mindspore.Parameter) and is_tracked(value):
        raise FailedPreconditionError(
            f"operation '{operation}' would write a value with a gradient to a parameter, and the gradient would be "
            "lost; write a copy of the parameter, or detach() the value"
        )
    if not _is_whole(tensor):
        raise FailedPreconditionError(
            f"operation '{operation}' would write a local tensor that is a view, with offset "
            f"{tensor.storage_offset()} and strides {tuple(tensor.stride())}, and MindSpore would write a copy of it "
            "instead; make the DTensor of a copy"
        )


def _is_called_by_mindspore() -> bool:
    """Whether a function of MindSpore's lies below on the stack: one of them calls what is differentiated, in the same
    thread."""
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
        if str(frame.f_globals.get("__name__")).startswith("mindspore."):
            return True
    return False


def _is_whole(tensor: mindspore.Tensor) -> bool:
    if tensor.storage_offset() != 0 or not tensor.is_contiguous():
        return False
    return mindspore.get_context("device_target") != "CPU" or _mindspore.shows_own_memory(tensor)


def check_mode(what: str) -> None:
    """Raises in graph mode.

    Raises:
        UnimplementedError: The process is in graph mode, where tensors have no values yet.
    """
    if mindspore.get_context("mode") == mindspore.GRAPH_MODE:
        raise UnimplementedError(
            f"{what}: hyper_parallel works in PyNative mode alone; call "
            "mindspore.set_context(mode=mindspore.PYNATIVE_MODE)"
        )
