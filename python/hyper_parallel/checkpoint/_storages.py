"""Where a checkpoint lies: a directory, an fsspec address, or a storage of the user's own."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from hyper_parallel import _core
from hyper_parallel.errors import ArgumentTypeError

__all__ = ["READER", "WRITER", "FailedReader", "FailedWriter", "Location", "StorageRole", "storage_of"]

Location = str | os.PathLike[str]
"""A directory's path, or an fsspec address: "protocol://path"."""

_Storage = TypeVar("_Storage", _core.StorageWriter, _core.StorageReader)


@dataclass(frozen=True)
class StorageRole(Generic[_Storage]):
    """What tells the storage of a save from that of a load.

    Attributes:
        argument: The name under which a user gives an own one.
        base: What an own one is derived from.
        directory: Makes the one of a directory.
        fsspec: The class of fsspec_storage for addresses.
    """

    argument: str
    base: type[_Storage]
    directory: Callable[[str], _Storage]
    fsspec: str


WRITER: StorageRole[_core.StorageWriter] = StorageRole(
    "storage_writer", _core.StorageWriter, _core.FileSystemWriter, "FsspecWriter"
)
READER: StorageRole[_core.StorageReader] = StorageRole(
    "storage_reader", _core.StorageReader, _core.FileSystemReader, "FsspecReader"
)


def storage_of(role: StorageRole[_Storage], location: Location | None, storage: _Storage | None) -> _Storage:
    """The storage to save to or load from: of exactly one of the two arguments.

    Args:
        role: ``WRITER`` or ``READER``.
        location: The directory or address.
        storage: The user's own.

    Raises:
        ArgumentTypeError: None or both are given, or one is of another type.
    """
    if (location is None) == (storage is None):
        what = "neither is" if location is None else "both are"
        raise ArgumentTypeError(f"one of checkpoint_id and {role.argument} must be given, but {what}")
    if storage is not None:
        if not isinstance(storage, role.base):
            raise ArgumentTypeError(f"{role.argument} is {storage!r} but must be a {role.base.__name__}")
        return storage
    path = _path(location)
    if "://" not in path:
        return role.directory(path)
    # fsspec is optional, and slow to import.
    made: _Storage = getattr(importlib.import_module("hyper_parallel.checkpoint.fsspec_storage"), role.fsspec)(path)
    return made


class FailedWriter(_core.StorageWriter):
    """Stands for a storage that could not be made on this rank: where it is asked for something, it raises."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self._error = error

    def begin(self) -> str:
        raise self._error


class FailedReader(_core.StorageReader):
    """The same for a load."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self._error = error

    def read_metadata(self) -> bytes:
        raise self._error


def _path(location: object) -> str:
    if isinstance(location, str | os.PathLike):
        path = os.fspath(location)
        if isinstance(path, str):
            return path.removeprefix("file://")
    raise ArgumentTypeError(f"checkpoint_id is {location!r} but must be a str or a path")
