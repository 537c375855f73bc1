"""Where a checkpoint lies: a directory, an fsspec address, or a storage of the user's own."""

from __future__ import annotations

import os

from hyper_parallel import _core
from hyper_parallel.errors import ArgumentTypeError

__all__ = ["FailedReader", "FailedWriter", "Location", "reader_of", "writer_of"]

Location = str | os.PathLike[str]
"""A directory's path, or an fsspec address: "protocol://path"."""


def writer_of(location: Location | None, storage: _core.StorageWriter | None) -> _core.StorageWriter:
    """The storage to save to: of exactly one of the two arguments.

    Raises:
        ArgumentTypeError: None or both are given, or one is of another type.
    """
    _check_one(location, storage, "storage_writer")
    if storage is not None:
        if not isinstance(storage, _core.StorageWriter):
            raise ArgumentTypeError(f"storage_writer is {storage!r} but must be a StorageWriter")
        return storage
    path = _path(location)
    if "://" in path:
        # fsspec is optional, and slow to import.
        from hyper_parallel.checkpoint.fsspec_storage import FsspecWriter  # noqa: PLC0415

        return FsspecWriter(path)
    return _core.FileSystemWriter(path)


def reader_of(location: Location | None, storage: _core.StorageReader | None) -> _core.StorageReader:
    """The storage to load from; as ``writer_of``."""
    _check_one(location, storage, "storage_reader")
    if storage is not None:
        if not isinstance(storage, _core.StorageReader):
            raise ArgumentTypeError(f"storage_reader is {storage!r} but must be a StorageReader")
        return storage
    path = _path(location)
    if "://" in path:
        from hyper_parallel.checkpoint.fsspec_storage import FsspecReader  # noqa: PLC0415

        return FsspecReader(path)
    return _core.FileSystemReader(path)


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


def _check_one(location: Location | None, storage: object, argument: str) -> None:
    if (location is None) == (storage is None):
        what = "neither is" if location is None else "both are"
        raise ArgumentTypeError(f"one of checkpoint_id and {argument} must be given, but {what}")


def _path(location: object) -> str:
    if isinstance(location, str | os.PathLike):
        path = os.fspath(location)
        if isinstance(path, str):
            return path.removeprefix("file://")
    raise ArgumentTypeError(f"checkpoint_id is {location!r} but must be a str or a path")
