"""The handle of a save in the background."""

from __future__ import annotations

import atexit
import contextlib
import os
import warnings

from hyper_parallel import _core
from hyper_parallel.checkpoint import _framework  # noqa: F401  (what it does at exit must come after what is done here)

__all__ = ["AsyncSave", "report_ended"]


class AsyncSave:
    """A save that goes on in the background; made by :func:`async_save`.

    The next save or load of the same process group waits for it, and so does the end of the program. Nobody need keep
    the handle: a save that fails and that nobody has waited for is reported by a warning, at the next save or load or
    at the end of the program.
    """

    def __init__(self, handle: _core.AsyncSaveHandle) -> None:
        self._handle = handle
        _unheard.append(handle)

    def done(self) -> bool:
        """Whether the save has ended, well or not."""
        return self._handle.done()

    def wait(self, timeout: float | None = None) -> None:
        """Waits until the checkpoint is published and on the disk.

        Args:
            timeout: Seconds to wait at most, None for ever.

        Raises:
            TimeoutError: It has not ended yet.
            HyperParallelError: The save failed; the same error on every rank, and again on each call.
        """
        try:
            ended = self._handle.wait(timeout)
        except Exception:
            self._hear()
            raise
        if not ended:
            raise TimeoutError(f"the save has not ended within {timeout} s")
        self._hear()

    def exception(self, timeout: float | None = None) -> Exception | None:
        """Waits for the end and returns the error that it ended with, None if it went well.

        Args:
            timeout: Seconds to wait at most, None for ever.

        Raises:
            TimeoutError: It has not ended yet.
        """
        try:
            self.wait(timeout)
        except TimeoutError:
            if not self.done():
                raise
            return self.exception()
        except Exception as error:
            return error
        return None

    def _hear(self) -> None:
        """Whoever has waited knows how it ended."""
        _unheard[:] = [handle for handle in _unheard if handle is not self._handle]


# Saves whose end nobody has waited for. They are kept here and not by `AsyncSave.__del__`: a handle that goes must not
# wait, least of all in the thread of the save itself, where the garbage collector may find it.
_unheard: list[_core.AsyncSaveHandle] = []


def report_ended() -> None:
    """Warns of saves that have failed without anybody waiting for them; each once."""
    ended = [handle for handle in _unheard if handle.done()]
    _unheard[:] = [handle for handle in _unheard if all(handle is not other for other in ended)]
    for handle in ended:
        try:
            handle.wait()
        except Exception as error:
            text = f"a checkpoint was not saved, and nobody waited for it: {error}"
            warnings.warn(text, RuntimeWarning, stacklevel=3)


# Saves of the process that this one was forked from: nobody here can wait for them.
_of_parent: list[_core.AsyncSaveHandle] = []


def _forget_in_child() -> None:
    _of_parent.extend(_unheard)
    _unheard.clear()


os.register_at_fork(after_in_child=_forget_in_child)


@atexit.register
def _wait_for_all() -> None:
    for handle in _unheard:
        with contextlib.suppress(Exception):  # reported below
            handle.wait()
    report_ended()
