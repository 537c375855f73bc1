"""The handle of a save in the background."""

from __future__ import annotations

import atexit
import warnings

from hyper_parallel import _core

__all__ = ["AsyncSave"]


class AsyncSave:
    """A save that goes on in the background; made by :func:`async_save`.

    The next save or load of the same process group waits for it, and so does the end of the program.
    """

    def __init__(self, handle: _core.AsyncSaveHandle) -> None:
        self._handle = handle
        self._is_heard = False
        _under_way[id(self)] = handle

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
            self._forget()
            raise
        if not ended:
            raise TimeoutError(f"the save has not ended within {timeout} s")
        self._forget()

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

    def _forget(self) -> None:
        self._is_heard = True
        _under_way.pop(id(self), None)

    def __del__(self) -> None:
        handle = _under_way.pop(id(self), None)
        if handle is None or self._is_heard:
            return
        try:
            handle.wait()
        except Exception as error:
            warnings.warn(
                f"a checkpoint was not saved, and nobody waited for it: {error}", RuntimeWarning, stacklevel=2
            )


# Saves whose end nobody has heard of; the program waits for them before it ends.
_under_way: dict[int, _core.AsyncSaveHandle] = {}


@atexit.register
def _wait_for_all() -> None:
    for handle in list(_under_way.values()):
        try:
            handle.wait()
        except Exception as error:
            warnings.warn(
                f"a checkpoint was not saved, and nobody waited for it: {error}", RuntimeWarning, stacklevel=2
            )
    _under_way.clear()
