"""How the operands of an elementwise operation meet.

Of the operands one is the *frame*, which the result lies as: the first ragged DTensor, else the first that is more than
one element on every rank. Others must lie as the frame, but for these, which each rank takes its part of:

* a number;
* a plain tensor of one element, and a DTensor of one element on every rank;
* beside a ragged frame a DTensor of the same shape that is Replicate, or ragged and cut at the same places.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mindspore
import numpy as np
from mindspore import ops

from hyper_parallel import _core
from hyper_parallel.errors import ArgumentTypeError, InvalidArgumentError, UnimplementedError
from hyper_parallel.layout import Layout
from hyper_parallel.mindspore import _frames
from hyper_parallel.mindspore._graph import is_tracked
from hyper_parallel.mindspore._local_calls import to
from hyper_parallel.mindspore._operations import Operation
from hyper_parallel.mindspore._options import check_fits, check_number
from hyper_parallel.mindspore._redistribute import redistribute_local
from hyper_parallel.mindspore._shares import nothing_of
from hyper_parallel.mindspore._texts import placements_text
from hyper_parallel.placement import Partial, Placement, Replicate

__all__ = ["aligned_local", "as_python", "check_kinds", "check_numbers", "frame_of"]

_Frame = _frames.Frame

# MindSpore's CPU has no sum of these.
_UNSUMMED = (mindspore.bfloat16,)


def check_kinds(operation: Operation, operands: Sequence[Any]) -> list[Any]:
    """The operands with numpy's numbers as Python's.

    Raises:
        ArgumentTypeError: One that is no tensor and no number, or a number or None where that is no operand.
    """
    return [_checked(operation, name, value) for name, value in zip(operation.operands, operands, strict=True)]


def as_python(value: Any) -> Any:  # noqa: ANN401
    """One of numpy's numbers as Python's; anything else as it is."""
    return value.item() if isinstance(value, np.generic) else value


def check_numbers(operation: Operation, operands: Sequence[Any], frame: _Frame) -> None:
    """Raises for a number that the frame's dtype cannot meet.

    Raises:
        InvalidArgumentError: As said.
    """
    check = check_fits if operation.name == "fill_" else check_number
    for name, value in zip(operation.operands, operands, strict=True):
        if isinstance(value, bool | int | float | complex):
            check(operation, name, value, frame.dtype)


def frame_of(operation: Operation, operands: Sequence[Any]) -> _Frame:
    """The operand that the result lies as.

    Raises:
        ArgumentTypeError: No operand is a DTensor, or the written one is none.
        InvalidArgumentError: The written one is not the frame.
    """
    tensors = [operand for operand in operands if _frames.is_dtensor(operand)]
    if not tensors:
        raise ArgumentTypeError(f"operation '{operation.name}' was given no DTensor")
    frame: _Frame = max(tensors, key=_precedence)
    written = operands[0]
    if operation.writes and written is not frame:
        what = _place(operation, operation.operands[0])
        if not _frames.is_dtensor(written):
            raise ArgumentTypeError(
                f"{what} is written and is {_described(written)}, but beside a DTensor it must be a DTensor"
            )
        if written.layout != frame.layout or written.shape != frame.shape:
            raise InvalidArgumentError(
                f"{what} is written, but its shape {written.shape} and placements {placements_text(written.layout)} "
                f"are not the result's: shape {frame.shape}, placements {placements_text(frame.layout)}"
            )
        frame = written
    return frame


def aligned_local(
    operation: Operation,
    name: str,
    value: Any,  # noqa: ANN401
    frame: _Frame,
    dtype: mindspore.Type | None,
) -> Any:  # noqa: ANN401
    """The operand as it meets the frame's local tensor.

    Args:
        operation: The operation.
        name: The operand's name.
        value: The operand.
        frame: The operand that the result lies as.
        dtype: In which it is computed; only what is one element has it already.

    Raises:
        ArgumentTypeError: A plain tensor of more than one element.
        InvalidArgumentError: A DTensor on another mesh, or beside a ragged frame one that is cut otherwise.
        UnimplementedError: Another shape or layout.
    """
    if value is frame:
        return frame._local_tensor
    if _frames.is_dtensor(value):
        local = _aligned_dtensor(operation, name, value, frame, dtype)
        # Outside the mesh locals without elements may differ in their sizes.
        foreign = not _frames.is_member(frame) and local.size == 0 and local.shape != frame._local_tensor.shape
        return local.reshape(frame._local_tensor.shape) if foreign else local
    if isinstance(value, mindspore.Tensor):
        return _aligned_plain(operation, name, value, frame, dtype)
    if isinstance(value, complex):
        # MindSpore's functions take no complex numbers.
        wide = frame.dtype in {mindspore.float64, mindspore.complex128}
        return mindspore.Tensor(value, mindspore.complex128 if wide else mindspore.complex64)
    return value


def _checked(operation: Operation, name: str, value: Any) -> Any:  # noqa: ANN401
    value = as_python(value)
    if operation.name == "fill_" and name == "value" and _frames.is_dtensor(value) and not _is_one_element(value):
        raise ArgumentTypeError(
            f"{_place(operation, name)} is {_described(value)} but must be one element on every rank; use copy_"
        )
    if isinstance(value, mindspore.Tensor):
        return value
    is_number = isinstance(value, bool | int | float | complex)
    wanted = "a tensor" if operation.tensors_only else "a tensor or a number"
    if value is None and operation.optional:
        return value
    if not is_number or operation.tensors_only:
        raise ArgumentTypeError(f"{_place(operation, name)} is {_described(value)} but must be {wanted}")
    return value


def _place(operation: Operation, name: str) -> str:
    return f"operation '{operation.name}': argument '{name}'"


def _described(value: Any) -> str:  # noqa: ANN401
    if _frames.is_dtensor(value):
        return f"a DTensor of shape {value.shape}"
    if isinstance(value, mindspore.Tensor):
        return f"a plain tensor of shape {tuple(value.shape)}"
    if isinstance(value, bool | int | float | complex):
        return f"the number {value}"
    return "None" if value is None else f"a {type(value).__name__}"


def _is_replicated(tensor: _Frame) -> bool:
    return all(placement.is_replicate() for placement in tensor.layout.placements)


def _is_one_element(tensor: _Frame) -> bool:
    """The whole element on every rank: it can meet a tensor of any layout."""
    return _is_replicated(tensor) and _frames.numel(tensor) == 1


def _precedence(tensor: _Frame) -> int:
    """Of the operands the first of the highest precedence is the frame."""
    return 2 if tensor.layout.is_ragged else 0 if _is_one_element(tensor) else 1


def _aligned_plain(
    operation: Operation, name: str, tensor: mindspore.Tensor, frame: _Frame, dtype: mindspore.Type | None
) -> mindspore.Tensor:
    if tensor.size != 1:
        raise ArgumentTypeError(
            f"{_place(operation, name)} is {_described(tensor)}, but beside a DTensor a plain tensor must have one "
            f"element; distribute it with placements {placements_text(frame.layout)}"
        )
    if tensor.ndim > frame.ndim:
        raise InvalidArgumentError(
            f"{_place(operation, name)} is {_described(tensor)}, which has more dims than the DTensor of shape "
            f"{frame.shape}; reshape it to ()"
        )
    return _one_element(tensor, frame, dtype)


def _one_element(tensor: mindspore.Tensor, frame: _Frame, dtype: mindspore.Type | None) -> mindspore.Tensor:
    """The element as it meets the frame's local tensor; its gradient is summed where the frame is split."""
    local = frame._local_tensor
    element = tensor
    if _frames.is_member(frame) and is_tracked(tensor):
        whole: list[Placement] = [Replicate()] * len(frame.layout.placements)
        pending = [
            Partial() if placement.is_shard() or placement.is_ragged_shard() else Replicate()
            for placement in frame.layout.placements
        ]
        everywhere, shares = (_core.Layout(frame.layout.mesh, entry) for entry in (whole, pending))
        element = redistribute_local(element, _core.Redistribution(everywhere, everywhere, shares, tuple(tensor.shape)))
    if dtype is not None:
        # Here, so that its gradient is summed in that dtype.
        element = to(element, dtype)
    if local.size == 0:
        # The sum of nothing, for a gradient, is not zero but what the memory holds; some kernels take no such tensors.
        return nothing_of(element, tuple(local.shape))
    if element.dtype in _UNSUMMED and is_tracked(element):
        element = ops.broadcast_to(element.astype(mindspore.float32), local.shape).astype(element.dtype)
    # Flat storage has one dim, whatever the frame has.
    return element.reshape(1) if frame.layout.is_ragged and element.ndim > 1 else element


def _aligned_dtensor(
    operation: Operation,
    name: str,
    tensor: Any,  # noqa: ANN401
    frame: _Frame,
    dtype: mindspore.Type | None,
) -> mindspore.Tensor:
    if tensor.shape == frame.shape and tensor.layout == frame.layout:
        return tensor._local_tensor
    if tensor.layout.mesh != frame.layout.mesh:
        raise InvalidArgumentError(
            f"{_place(operation, name)} lies on {tensor.layout.mesh!r} but another operand on {frame.layout.mesh!r}; "
            "the operands' meshes must be equal"
        )
    if tensor.shape != frame.shape and _is_one_element(tensor) and tensor.ndim <= frame.ndim:
        return _one_element(_element_of(tensor), frame, dtype)
    if frame.layout.is_ragged:
        return _aligned_with_ragged(operation, name, tensor, frame)
    if tensor.shape != frame.shape:
        raise UnimplementedError(
            f"{_place(operation, name)} has shape {tensor.shape} but another operand has {frame.shape}; broadcasting "
            "of DTensors is not supported"
        )
    raise UnimplementedError(
        f"{_place(operation, name)} has placements {placements_text(tensor.layout)} but another operand has "
        f"{placements_text(frame.layout)}; operands are not aligned: redistribute one to the other's placements"
    )


def _element_of(tensor: _Frame) -> mindspore.Tensor:
    """The element of a replicated DTensor; on ranks outside the mesh, which hold none, a zero."""
    if _frames.is_member(tensor):
        return tensor._local_tensor
    return ops.zeros((1,) * min(tensor.ndim, 1), tensor.dtype)


def _aligned_with_ragged(operation: Operation, name: str, tensor: Any, frame: _Frame) -> mindspore.Tensor:  # noqa: ANN401
    if tensor.shape != frame.shape:
        raise InvalidArgumentError(
            f"{_place(operation, name)} has shape {tensor.shape} but the ragged operand has {frame.shape}; beside a "
            "ragged DTensor shapes must be equal"
        )
    own, other = placements_text(frame.layout), placements_text(tensor.layout)
    if tensor.layout.is_ragged:
        if not _same_runs(tensor.layout, frame.layout, frame.shape):
            raise InvalidArgumentError(
                f"{_place(operation, name)} with placements {other} lies on other ranks' runs of shape {frame.shape} "
                f"than {own}; redistribute one to the other's placements"
            )
        return tensor._local_tensor
    if not _is_replicated(tensor):
        raise InvalidArgumentError(
            f"{_place(operation, name)} has placements {other} but beside a ragged operand with {own} it must own the "
            "same runs or be Replicate(); redistribute it"
        )
    return tensor.redistribute(frame.layout.placements)._local_tensor


def _same_runs(a: Layout, b: Layout, shape: tuple[int, ...]) -> bool:
    """Both ragged on the same mesh: whether every rank owns the same run."""
    return all(
        _core.owned_interval(a, shape, position) == _core.owned_interval(b, shape, position)
        for position in range(a.core_mesh.size())
    )
