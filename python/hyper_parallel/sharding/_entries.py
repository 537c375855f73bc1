"""Placements as users write them down for several tensors: entries, one for each, checked against a mesh.

An *entry* is a placement for each mesh dim, or None where there is no DTensor. Where one entry is wanted a sequence of
placements is that entry; where several are, a sequence of entries.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from hyper_parallel import _core
from hyper_parallel.device_mesh import DeviceMesh
from hyper_parallel.errors import ArgumentTypeError, HyperParallelError
from hyper_parallel.layout import Layout
from hyper_parallel.placement import Placement

Entry = tuple[Placement, ...] | None


class Entries(NamedTuple):
    """What stood in one argument."""

    is_single: bool
    """Whether one entry was written, not a sequence of them."""
    entries: tuple[Entry, ...]


def entries_of(value: object, mesh: DeviceMesh, what: str) -> Entries:
    """The entries that `value` writes down; `what` names it in messages.

    Raises:
        ArgumentTypeError: It is neither placements nor a sequence of placements and None.
        InvalidArgumentError: Placements that do not make a layout on the mesh.
    """
    if value is None or _is_placements(value):
        return Entries(is_single=True, entries=(entry_of(value, mesh, what),))
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise _wrong_type(value, what)
    entries = (entry_of(entry, mesh, f"{what}[{index}]") for index, entry in enumerate(value))
    return Entries(is_single=False, entries=tuple(entries))


def entry_of(value: object, mesh: DeviceMesh, what: str) -> Entry:
    """One entry; raises as ``entries_of``."""
    if value is None:
        return None
    if not _is_placements(value):
        raise _wrong_type(value, what)
    assert isinstance(value, Sequence)
    layout_of(value, mesh, what)
    return tuple(value)


def layout_of(placements: Sequence[Placement], mesh: DeviceMesh, what: str, ndim: int | None = None) -> Layout:
    """The layout that placements make on a mesh, for a tensor of `ndim` dims if that is known.

    Raises:
        HyperParallelError: As ``Layout``, saying `what` is wrong.
    """
    try:
        layout = Layout._from_core(_core.Layout(mesh, placements), mesh)
        return layout if ndim is None else layout.folded(ndim)
    except HyperParallelError as error:
        raise named(error, what) from error


def named(error: HyperParallelError, what: str) -> HyperParallelError:
    """The same error, saying first `what` it is about."""
    return type(error)(f"{what}: {error}")


def _is_placements(value: object) -> bool:
    return isinstance(value, list | tuple) and len(value) > 0 and all(isinstance(item, Placement) for item in value)


def _wrong_type(value: object, what: str) -> ArgumentTypeError:
    return ArgumentTypeError(
        f"{what} is {value!r} but must be a list or tuple of placements, one for each mesh dim, or None"
    )
