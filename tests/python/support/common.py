"""What the tests of both platforms share: meshes by their shape, and the library's own errors."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hyper_parallel import DeviceMesh, HyperParallelError

MESH_NAMES = ("dp", "tp")


def make_mesh(*shape: int) -> DeviceMesh:
    """A mesh over ranks 0, 1, 2, .. with dims "dp" and "tp"."""
    return DeviceMesh(shape, MESH_NAMES[: len(shape)])


def assert_raises(kind: type[BaseException], text: str, action: Callable[[], object]) -> None:
    """`action` raises the library's own error that is a `kind`, with `text` as a part of its message."""
    with pytest.raises(kind) as caught:
        action()
    assert isinstance(caught.value, HyperParallelError), f"{type(caught.value)}: {caught.value}"
    assert text in str(caught.value)
