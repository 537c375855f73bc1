"""What a save leaves for a thread behind it: the system frees the files of the checkpoint that was replaced."""

from __future__ import annotations

import time
from pathlib import Path

_SECONDS = 60.0
_MAPPINGS = Path("/proc/self/maps")


def wait_until_freed() -> None:
    """Keeps this work out of what is timed next, which may be the baseline.

    Raises:
        TimeoutError: It does not end.
    """
    limit = time.monotonic() + _SECONDS
    while ".safetensors (deleted)" in _MAPPINGS.read_text():
        if time.monotonic() > limit:
            raise TimeoutError(f"files are still being freed after {_SECONDS:.0f} s")
        time.sleep(0.001)
