"""What a save or load tells about its progress, and whom."""

from __future__ import annotations

import sys
from collections.abc import Callable

from hyper_parallel import _core
from hyper_parallel.errors import ArgumentTypeError

__all__ = ["ProgressOption", "progress_of"]

ProgressOption = _core.Progress | Callable[[int, int], None] | bool | None
"""None: a bar on standard error, on the coordinator, if that is a terminal. False: nothing. A function: called with the
bytes that are done and the bytes in all, of this rank."""


class _Calls(_core.Progress):
    """Calls a function."""

    def __init__(self, function: Callable[[int, int], None]) -> None:
        super().__init__()
        self._function = function
        self._done = 0
        self._total = 0

    def start(self, total_bytes: int) -> None:
        self._done, self._total = 0, total_bytes
        self._function(0, total_bytes)

    def advance(self, bytes: int) -> None:
        self._done += bytes
        self._function(self._done, self._total)

    def finish(self) -> None:
        pass


def progress_of(option: ProgressOption, is_coordinator: bool) -> _core.Progress:
    """Whom to tell.

    Args:
        option: See ``ProgressOption``.
        is_coordinator: Whether this rank is the one that draws a bar.

    Raises:
        ArgumentTypeError: ``option`` is none of these.
    """
    if isinstance(option, _core.Progress):
        return option
    if option is None or isinstance(option, bool):
        draws = option is not False and is_coordinator and sys.stderr is not None
        return _core.terminal_progress(2 if draws else -1)
    if callable(option):
        return _Calls(option)
    raise ArgumentTypeError(f"progress is {option!r} but must be None, a bool, a function or a Progress")
