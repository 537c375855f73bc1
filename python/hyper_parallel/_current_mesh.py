"""The mesh that ``with device_mesh:`` makes current, in each thread by itself."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hyper_parallel.device_mesh import DeviceMesh


class _Entered(threading.local):
    """The meshes whose ``with`` blocks this thread is in, innermost last."""

    def __init__(self) -> None:
        self.meshes: list[DeviceMesh] = []


_entered = _Entered()


def enter(mesh: DeviceMesh) -> None:
    """Makes the mesh current until ``leave``."""
    _entered.meshes.append(mesh)


def leave() -> None:
    """Makes that mesh current again which was so before the last ``enter``."""
    _entered.meshes.pop()


def current_mesh() -> DeviceMesh | None:
    """The mesh of the innermost ``with`` block of this thread, None outside of all."""
    return _entered.meshes[-1] if _entered.meshes else None
