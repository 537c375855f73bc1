"""The errors of the library.

Each derives from ``HyperParallelError`` and from the builtin that fits, so that ``except ValueError`` works as well as
``except HyperParallelError``. The text says what was wrong, the value, the rule and which argument.

Example:
    >>> try:
    ...     DeviceMesh((0,))
    ... except ValueError as error:
    ...     print(error)
    DeviceMesh shape is (0,) but every dim must be at least 1
"""

from __future__ import annotations

from hyper_parallel._core import (
    ArgumentTypeError,
    CheckpointError,
    FailedPreconditionError,
    HyperParallelError,
    InternalError,
    InvalidArgumentError,
    OutOfRangeError,
    UnimplementedError,
)

__all__ = [
    "ArgumentTypeError",
    "CheckpointError",
    "FailedPreconditionError",
    "HyperParallelError",
    "InternalError",
    "InvalidArgumentError",
    "OutOfRangeError",
    "UnimplementedError",
]
