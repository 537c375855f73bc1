"""Checkpoints at fsspec addresses: object stores and other remote file systems.

Each rank makes its data file in a local temporary directory and uploads it; ``.metadata`` is put last, and alone makes
the files a checkpoint. Where a put is atomic, as in object stores, so is the save. There is no lock: two saves to one
address at a time are the user's to prevent.
"""

from __future__ import annotations

import contextlib
import secrets
import tempfile
from pathlib import Path
from typing import Any

from hyper_parallel import _core
from hyper_parallel.errors import CheckpointError, FailedPreconditionError, InvalidArgumentError

__all__ = ["FsspecReader", "FsspecWriter"]

_METADATA = ".metadata"
_READ_AHEAD_BYTES = 16 << 20


def _file_system(address: str) -> tuple[Any, str]:
    """The file system of an address and the path in it."""
    try:
        import fsspec  # noqa: PLC0415  (an optional dependency)
    except ImportError as error:
        raise InvalidArgumentError(
            f"checkpoint_id is {address!r}, an fsspec address, but fsspec is not installed: pip install "
            "hyper-parallel[fsspec]"
        ) from error
    try:
        file_system, path = fsspec.core.url_to_fs(address)
    except (ValueError, ImportError) as error:
        raise InvalidArgumentError(f"checkpoint_id is {address!r}: {error}") from error
    return file_system, str(path).rstrip("/")


class FsspecWriter(_core.StorageWriter):
    """Saves to an fsspec address.

    Args:
        address: "protocol://path"; made where it is missing.

    Raises:
        InvalidArgumentError: fsspec is not installed or does not know the protocol.
    """

    def __init__(self, address: str) -> None:
        super().__init__()
        self._files, self._root = _file_system(address)
        self._save_id = ""
        self._replaced: _core.CheckpointMetadata | None = None

    def begin(self) -> str:
        """Reads what is to be replaced; something else's ``.metadata`` is not.

        Raises:
            FailedPreconditionError: There is a ``.metadata`` that this library has not written.
            CheckpointError: The file system fails.
        """
        with _as_checkpoint_error(f"cannot begin a save to {self._root!r}"):
            self._files.makedirs(self._root, exist_ok=True)
            self._files.invalidate_cache(self._root)  # what others have put there counts
            self._replaced = None
            if self._files.exists(self._path(_METADATA)):
                text = self._files.cat_file(self._path(_METADATA))
                try:
                    self._replaced = _core.CheckpointMetadata.parse(text)
                except CheckpointError as error:
                    raise FailedPreconditionError(
                        f"{self._path(_METADATA)!r} is not a checkpoint of this library and is not replaced: {error}"
                    ) from error
        self._save_id = secrets.token_hex(8)
        return self._save_id

    def write(
        self,
        save_id: str,
        rank: int,
        plan: _core.SavePlan,
        planner: _core.SavePlanner,
        progress: _core.Progress,
    ) -> _core.CheckpointParts:
        """Makes this rank's data file and uploads it.

        Raises:
            CheckpointError: The local disk or the file system fails.
        """
        with tempfile.TemporaryDirectory(prefix="hyper_parallel-") as folder:
            parts = _core.FileSystemWriter(folder).write(save_id, rank, plan, planner, progress)
            with _as_checkpoint_error(f"cannot upload to {self._root!r}"):
                for name in parts.files:
                    self._files.put_file(str(Path(folder) / name), self._path(name))
        return parts

    def publish(self, metadata: _core.CheckpointMetadata) -> None:
        """Puts ``.metadata``, then removes the files of the replaced checkpoint, as far as the file system lets it.

        Raises:
            CheckpointError: The file system fails, and ``.metadata`` is not there as it should be.
        """
        text = metadata.to_bytes()
        try:
            self._files.pipe_file(self._path(_METADATA), text)
        except Exception as error:
            # The answer may be lost and not the file: then the checkpoint is published, and its files must stay.
            published = self._is_published(text)
            if published is False:
                self._remove_own_files()
            if published is not True:
                raise CheckpointError(f"cannot publish {self._path(_METADATA)!r}: {error}") from error
        replaced = {} if self._replaced is None else self._replaced.files
        for name in replaced.keys() - metadata.files.keys():
            with contextlib.suppress(Exception):  # the checkpoint is published all the same
                self._files.rm_file(self._path(name))

    def abandon(self) -> None:
        """Removes what this save has uploaded."""
        self._remove_own_files()

    def _is_published(self, text: bytes) -> bool | None:
        """Whether ``.metadata`` is this text; None where that cannot be found out."""
        try:
            self._files.invalidate_cache(self._root)
            return bool(self._files.cat_file(self._path(_METADATA)) == text)
        except FileNotFoundError:
            return False
        except Exception:
            return None

    def _remove_own_files(self) -> None:
        """Removes this save's data files."""
        self._files.invalidate_cache(self._root)
        for found in self._files.ls(self._root, detail=False):
            name = str(found).rsplit("/", 1)[-1]
            if name.startswith(f"data-{self._save_id}-"):
                self._files.rm_file(self._path(name))

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"


class FsspecReader(_core.RangeReader):
    """Loads from an fsspec address: the blocks that are needed, each once, verified.

    Args:
        address: "protocol://path".

    Raises:
        InvalidArgumentError: fsspec is not installed or does not know the protocol.
    """

    def __init__(self, address: str) -> None:
        super().__init__()
        self._files, self._root = _file_system(address)
        self._open: Any = None
        self._open_name: str | None = None

    def read_metadata(self) -> bytes:
        """The content of ``.metadata``.

        Raises:
            InvalidArgumentError: There is none.
            CheckpointError: The file system fails.
        """
        self._close()
        with _as_checkpoint_error(f"cannot read {self._root!r}"):
            try:
                text: bytes = self._files.cat_file(f"{self._root}/{_METADATA}")
            except FileNotFoundError as error:
                raise InvalidArgumentError(
                    f"there is no checkpoint at {self._root!r}: it has no {_METADATA!r}"
                ) from error
            return text

    def file_size(self, name: str) -> int | None:
        """The size of a data file in bytes, None if it is not there."""
        with _as_checkpoint_error(f"cannot examine {self._root}/{name}"):
            try:
                return int(self._files.size(f"{self._root}/{name}"))
            except FileNotFoundError:
                return None

    def read_range(self, name: str, begin: int, size: int) -> bytes:
        """So many bytes of a data file."""
        with _as_checkpoint_error(f"cannot read {self._root}/{name}"):
            if self._open_name != name:
                self._close()
                # Blocks come in the order of the file, so that a few large requests serve many of them.
                self._open = self._files.open(
                    f"{self._root}/{name}", "rb", block_size=_READ_AHEAD_BYTES, cache_type="readahead"
                )
                self._open_name = name
            self._open.seek(begin)
            data: bytes = self._open.read(size)
            return data

    def _close(self) -> None:
        if self._open is not None:
            self._open.close()
        self._open, self._open_name = None, None


@contextlib.contextmanager
def _as_checkpoint_error(what: str) -> Any:  # noqa: ANN401  (a generator)
    """Raises whatever the file system raises, which may be of any package's own types, as CheckpointError."""
    try:
        yield
    except (CheckpointError, FailedPreconditionError, InvalidArgumentError):
        raise
    except Exception as error:
        raise CheckpointError(f"{what}: {type(error).__name__}: {error}") from error
