"""Runs an operation of the table on DTensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import mindspore

from hyper_parallel.errors import (
    ArgumentTypeError,
    FailedPreconditionError,
    HyperParallelError,
    UnimplementedError,
)
from hyper_parallel.mindspore import _frames
from hyper_parallel.mindspore._graph import forget_failure, is_recording
from hyper_parallel.mindspore._local_calls import kind_of, to
from hyper_parallel.mindspore._operands import aligned_local, as_python, check_kinds, check_numbers, frame_of
from hyper_parallel.mindspore._operations import OPERATIONS, Operation, is_random
from hyper_parallel.mindspore._options import check_options
from hyper_parallel.mindspore._partial import check_commutes
from hyper_parallel.mindspore._promotion import common_dtype
from hyper_parallel.mindspore._shares import TensorShare, copy_of, nothing_of, one_for
from hyper_parallel.mindspore._texts import placements_text

__all__ = ["call", "refuse"]

_FLOATING = (mindspore.float16, mindspore.bfloat16, mindspore.float32, mindspore.float64)


def call(name: str, *arguments: Any, **keywords: Any) -> Any:  # noqa: ANN401  (a DTensor)
    """Runs the operation of that name, which the table holds.

    Args:
        name: Its name.
        arguments: Its operands and options, as torch and MindSpore order them.
        keywords: The same by name.

    Returns:
        A DTensor that lies as the operands; the first operand itself for a form that writes it.

    Raises:
        ArgumentTypeError: Arguments that it does not take, or of another type.
        InvalidArgumentError: Operands that do not meet; a pending reduction that it does not commute with.
        UnimplementedError: Operands of other shapes or layouts.
        FailedPreconditionError: A write that MindSpore would lose.
    """
    operation = OPERATIONS[name]
    given, options = _bound(operation, arguments, keywords)
    operands = check_kinds(operation, given)
    frame = frame_of(operation, operands)
    check_options(operation, options, frame.dtype)
    check_numbers(operation, operands, frame)
    _check_dtype(operation, frame)
    check_commutes(operation, operands, options)
    dtype = common_dtype(operation.meeting, operands)
    result = _run(operation, _locals(operation, operands, frame, dtype), options)
    if _is_empty(frame):
        result = nothing_of(result, tuple(frame._local_tensor.shape))
    if result.shape != frame._local_tensor.shape:
        raise FailedPreconditionError(
            f"an elementwise result has local shape {tuple(result.shape)} but its operand "
            f"{tuple(frame._local_tensor.shape)}: the size of a local tensor was changed from outside"
        )
    if operation.writes:
        _write(operation, frame, result)
        return frame
    return _frames.make(TensorShare(result), frame.layout, frame.shape)


def refuse(name: str, tensor: Any) -> NoReturn:  # noqa: ANN401  (a DTensor)
    """Raises for an operation that the table does not hold, with the reason and what to do instead.

    Raises:
        UnimplementedError: Always.
    """
    if is_random(name):
        raise UnimplementedError(
            f"operation '{name}' draws random numbers, and equal seeds would give equal shares on all ranks; draw on a "
            "plain tensor and distribute that"
        )
    if tensor.layout.is_ragged:
        raise UnimplementedError(
            f"operation '{name}' is not supported on a ragged DTensor; redistribute to Replicate and leave by "
            "full_tensor(), or take to_local() for this rank's share"
        )
    raise UnimplementedError(
        f"operation '{name}' is not supported on a DTensor with placements {placements_text(tensor.layout)}; "
        "redistribute to Replicate and leave by full_tensor(), or take to_local() for this rank's part"
    )


def _bound(
    operation: Operation, arguments: Sequence[Any], keywords: dict[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """The operands in order, and the options that were given."""
    names = (*operation.operands, *operation.options)
    if len(arguments) > len(names):
        raise ArgumentTypeError(
            f"operation '{operation.name}' takes {len(names)} arguments but {len(arguments)} were given"
        )
    given = dict(zip(names, arguments, strict=False))
    for name, value in keywords.items():
        if name not in names or name in given:
            raise ArgumentTypeError(
                f"operation '{operation.name}' has the arguments {list(names)}; {name!r} is none of them or was given "
                "twice"
            )
        given[name] = value
    missing = [name for name in operation.operands if name not in given]
    if missing and not operation.optional:
        raise ArgumentTypeError(f"operation '{operation.name}' lacks its argument '{missing[0]}'")
    operands = [given.get(name) for name in operation.operands]
    return operands, {name: as_python(given[name]) for name in operation.options if name in given}


def _locals(
    operation: Operation, operands: Sequence[Any], frame: _frames.Frame, dtype: mindspore.Type | None
) -> list[Any]:
    """The operands as they meet the frame's local tensor, and each other.

    Kernels fail on tensors without elements, or on others alone. So a share without elements is computed with one,
    which nobody reads: what fails, and which dtype comes of it, is alike on all ranks.
    """
    found = [
        aligned_local(operation, name, value, frame, dtype)
        for name, value in zip(operation.operands, operands, strict=True)
    ]
    if operation.writes and is_recording():
        # What the gradient needs of the old values must outlive the write.
        old = copy_of(found[0])
        found = [old if value is frame else local for value, local in zip(operands, found, strict=True)]
    if _is_empty(frame):
        found = [one_for(local) if isinstance(local, mindspore.Tensor) else local for local in found]
    if dtype is None:
        return found
    # Numbers have no say, also complex ones, which are tensors by now.
    given = [isinstance(value, mindspore.Tensor) for value in operands]
    return [to(local, dtype) if is_tensor else local for is_tensor, local in zip(given, found, strict=True)]


def _is_empty(frame: _frames.Frame) -> bool:
    return 0 in frame._local_tensor.shape


def _run(operation: Operation, locals_: Sequence[Any], options: dict[str, Any]) -> mindspore.Tensor:
    """The result of the local call.

    Raises:
        ArgumentTypeError: MindSpore cannot compute it on these dtypes.
    """
    try:
        result: mindspore.Tensor = operation.call(*locals_, **options)
        # MindSpore may raise when it is asked for these, and gives a bool for some comparisons.
        _ = result.shape, result.dtype
    except HyperParallelError:
        raise
    except (AttributeError, RuntimeError, TypeError, ValueError) as error:
        forget_failure()
        kinds = ", ".join(
            str(local.dtype) if isinstance(local, mindspore.Tensor) else type(local).__name__ for local in locals_
        )
        reason = str(error).partition("\n")[0]
        raise ArgumentTypeError(
            f"operation '{operation.name}': MindSpore does not compute it on ({kinds}): {reason}"
        ) from error
    return result


def _check_dtype(operation: Operation, frame: _frames.Frame) -> None:
    """What MindSpore lacks a kernel for would raise at some later operation, or never."""
    if operation.dtypes == "float" and frame.dtype not in _FLOATING:
        raise ArgumentTypeError(
            f"operation '{operation.name}' takes a floating tensor on MindSpore, not one of dtype {frame.dtype}; "
            "convert it with to(mindspore.float32)"
        )
    if operation.dtypes == "number" and frame.dtype == mindspore.bool_:
        raise ArgumentTypeError(f"operation '{operation.name}' takes no tensor of dtype Bool on MindSpore")


def _write(operation: Operation, frame: Any, result: mindspore.Tensor) -> None:  # noqa: ANN401
    if result.dtype != frame.dtype:
        if kind_of(result.dtype) > kind_of(frame.dtype):
            raise ArgumentTypeError(
                f"operation '{operation.name}': the result has dtype {result.dtype}, which cannot be written to a "
                f"tensor of dtype {frame.dtype}"
            )
        result = result.astype(frame.dtype)
    _frames.share_of(frame).write(result, operation.name)
