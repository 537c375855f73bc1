"""Which framework this process computes with: torch or MindSpore.

``HYPER_PARALLEL_PLATFORM`` says it; without it that one of the two which the program has imported; else torch if it is
installed, else MindSpore. Decided once, at the first question.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import sys
from typing import Literal, cast

from hyper_parallel.errors import FailedPreconditionError, InvalidArgumentError

__all__ = ["name"]

_VARIABLE = "HYPER_PARALLEL_PLATFORM"
_PLATFORMS = ("torch", "mindspore")

Platform = Literal["torch", "mindspore"]


@functools.cache
def name() -> Platform:
    """The platform of this process: ``"torch"`` or ``"mindspore"``; the same answer for its whole life.

    Raises:
        InvalidArgumentError: ``HYPER_PARALLEL_PLATFORM`` is something else.
        FailedPreconditionError: Neither framework is installed, or not the one that it says.

    Example:
        >>> name()
        'torch'
    """
    given = os.environ.get(_VARIABLE, "")
    if given:
        if given not in _PLATFORMS:
            raise InvalidArgumentError(f"{_VARIABLE} is {given!r} but must be 'torch' or 'mindspore'")
        if not _is_there(given):
            raise FailedPreconditionError(f"{_VARIABLE} is {given!r}, which is not installed")
        return cast("Platform", given)
    imported = [platform for platform in _PLATFORMS if platform in sys.modules]
    if len(imported) == 1:
        return cast("Platform", imported[0])
    for platform in _PLATFORMS:
        if _is_there(platform):
            return cast("Platform", platform)
    raise FailedPreconditionError(
        "hyper_parallel computes with PyTorch or MindSpore and neither is installed: "
        "pip install torch==2.13.0, or pip install mindspore==2.10.0"
    )


def _is_there(platform: str) -> bool:
    return platform in sys.modules or importlib.util.find_spec(platform) is not None
