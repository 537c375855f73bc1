"""A directory that ``torch.distributed.checkpoint`` wrote, read as the foreign thing it is.

`.metadata` is a pickle that says which boxes a tensor was saved in and where each lies; the other files hold what
`torch.save` wrote, end to end. Nothing of it is trusted: the pickle through `_foreign_pickle`, names of files as single
components that are opened inside the directory and not through links, tensors through ``torch.load(weights_only=True)``
one box at a time, whose size the file must really have.
"""

from __future__ import annotations

import io
import math
import os
import stat
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Protocol, Self, cast

import torch

from hyper_parallel.checkpoint._foreign_pickle import check_tensor_pickle, read_metadata_pickle, read_value_pickle
from hyper_parallel.checkpoint._torch_contents import MAX_DEPTH, EntryPath, Place, TensorEntry, TorchContents
from hyper_parallel.errors import CheckpointError, InvalidArgumentError

__all__ = ["Source", "TorchDirectory"]

MAX_METADATA_BYTES = 1 << 30
METADATA_NAME = ".metadata"

_ARCHIVE_BEGIN = b"PK\x03\x04"

_MIN_ITEMS = 1 << 20
_ITEMS_PER_BYTE = 16
"""Of a value's pickle: more than one only where a container is in several places, and it is written in each."""

_PLAIN = (type(None), bool, int, float, complex, str, bytes)


class Source(Protocol):
    """A checkpoint to convert, whatever its format. Data is read when it is asked for."""

    @property
    def tensors(self) -> Mapping[str, TensorEntry]:
        """The tensors by name."""

    @property
    def value_names(self) -> list[str]:
        """The names of the entries that are no tensors."""

    @property
    def paths(self) -> Mapping[str, EntryPath]:
        """The way to every entry in the state dict."""

    def read_box(self, name: str, number: int) -> torch.Tensor:
        """The elements of ``tensors[name].boxes[number]``, contiguous."""

    def read_value(self, name: str) -> object:
        """The value of an entry."""


class TorchDirectory:
    """The `Source` of a checkpoint of torch's, with its files held open. A context manager.

    Args:
        folder: The directory.

    Raises:
        InvalidArgumentError: No directory, or none with a checkpoint of torch's.
        CheckpointError: Metadata that is damaged or not to be trusted.
        UnimplementedError: A checkpoint of a kind that is not converted: transformed, or of tensors not strided.

    Example:
        >>> import torch.distributed.checkpoint as dcp
        >>> _ = dcp.save({"model": {"w": torch.ones(2, 3)}}, checkpoint_id="torch_step5")
        >>> with TorchDirectory("torch_step5") as checkpoint:
        ...     checkpoint.tensors["model.w"], checkpoint.read_box("model.w", 0).sum()
        (TensorEntry(dtype=torch.float32, shape=(2, 3), boxes=(((0, 0), (2, 3)),)), tensor(6.))
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._folder = Path(folder)
        self._file: tuple[str, int] | None = None
        try:
            self._descriptor = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise InvalidArgumentError(f"{self._folder} is no readable directory: {error.strerror}") from error
        try:
            self._contents = TorchContents(read_metadata_pickle(self._metadata(), self._what(METADATA_NAME)))
        except BaseException:
            os.close(self._descriptor)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the files."""
        for descriptor in (self._descriptor, *(self._file or ())[1:]):
            os.close(descriptor)
        self._descriptor, self._file = -1, None

    @property
    def tensors(self) -> Mapping[str, TensorEntry]:
        """The tensors by name."""
        return self._contents.tensors

    @property
    def value_names(self) -> list[str]:
        """The names of the entries that are no tensors."""
        return list(self._contents.values)

    @property
    def paths(self) -> Mapping[str, EntryPath]:
        """The way to every entry in the state dict."""
        return self._contents.paths

    def read_box(self, name: str, number: int) -> torch.Tensor:
        """The elements of ``tensors[name].boxes[number]``, contiguous.

        Raises:
            CheckpointError: The file is missing or has something else there.
        """
        entry, place = self.tensors[name], self._contents.places[name][number]
        _, sizes = entry.boxes[number]
        what = f"the box at {entry.boxes[number][0]} of {name!r} in {self._what(place.file)}"
        if math.prod(sizes) * entry.dtype.itemsize > place.length:
            raise CheckpointError(f"{what} has {place.length} bytes, too few for {sizes} of {entry.dtype}")
        with self._slice(place) as file, _as_checkpoint_error(what):
            check_tensor_pickle(_pickle_in(file, place.length), "it")
            file.seek(0)
            tensor = torch.load(cast("IO[bytes]", file), map_location="cpu", weights_only=True)
        if type(tensor) is not torch.Tensor or tensor.layout is not torch.strided:
            raise CheckpointError(f"{what} is of type {type(tensor).__name__} but must be a strided tensor")
        if tensor.dtype != entry.dtype or tuple(tensor.shape) != sizes:
            raise CheckpointError(
                f"{what} has dtype {tensor.dtype} and shape {tuple(tensor.shape)} but the metadata says "
                f"{entry.dtype} and {sizes}"
            )
        return tensor.contiguous()

    def read_value(self, name: str) -> object:
        """The value of an entry: of None, bool, int, float, complex, str, bytes, list, tuple and dict.

        Raises:
            CheckpointError: The file is missing or has something else there; a value of other types, by name.
        """
        place = self._contents.values[name]
        what = f"the value {name!r} in {self._what(place.file)}"
        with self._slice(place) as file, _as_checkpoint_error(what):
            data = _pickle_in(file, place.length)
        value = read_value_pickle(data, what)
        _check_plain(value, what, _MIN_ITEMS + _ITEMS_PER_BYTE * len(data))
        return value

    def _what(self, name: str) -> str:
        return str(self._folder / name)

    def _open(self, name: str) -> int:
        """A regular file of the directory itself."""
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            descriptor = os.open(name, flags, dir_fd=self._descriptor)
        except OSError as error:
            raise CheckpointError(f"{self._what(name)} cannot be opened: {error.strerror}") from error
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise CheckpointError(f"{self._what(name)} is no regular file")
        return descriptor

    def _metadata(self) -> bytes:
        if METADATA_NAME not in os.listdir(self._descriptor):
            raise InvalidArgumentError(
                f"{self._folder} has no {METADATA_NAME}: it is no checkpoint of torch.distributed.checkpoint, or one "
                "that each rank saved for itself (use_collectives=False), which is not converted"
            )
        with open(self._open(METADATA_NAME), "rb") as file:
            data = file.read(MAX_METADATA_BYTES + 1)
        if len(data) > MAX_METADATA_BYTES:
            raise CheckpointError(f"{self._what(METADATA_NAME)} has more than {MAX_METADATA_BYTES} bytes")
        if data.lstrip()[:1] == b"{":
            raise InvalidArgumentError(f"{self._folder} is a checkpoint of hyper_parallel, not of torch")
        return data

    @contextmanager
    def _slice(self, place: Place) -> Iterator[_FileSlice]:
        """The bytes at a place, as a file. The data file stays open for the next one."""
        if self._file is None or self._file[0] != place.file:
            opened = self._open(place.file)
            if self._file is not None:
                os.close(self._file[1])
            self._file = (place.file, opened)
        size = os.fstat(self._file[1]).st_size
        if place.begin + place.length > size:
            raise CheckpointError(
                f"{self._what(place.file)} has {size} bytes but the metadata speaks of bytes "
                f"[{place.begin}, {place.begin + place.length})"
            )
        yield _FileSlice(self._file[1], place)


class _FileSlice(io.RawIOBase):
    """Some bytes of a file, read where they lie."""

    def __init__(self, descriptor: int, place: Place) -> None:
        self._descriptor = descriptor
        self._begin, self._length = place.begin, place.length
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._length}[whence]
        self._position = max(start + offset, 0)
        return self._position

    def readinto(self, buffer: Any, /) -> int:  # noqa: ANN401  (whatever has a buffer)
        view = memoryview(buffer).cast("B")
        view = view[: max(min(len(view), self._length - self._position), 0)]
        count = os.preadv(self._descriptor, [view], self._begin + self._position)
        self._position += count
        return count


def _pickle_in(file: _FileSlice, length: int) -> bytes:
    """The pickle in the archive that torch.save makes. Raises unless the archive holds all of its bytes as they are."""
    # Where another file stands before the archive, zipfile reads the archive and torch.load the file.
    if file.read(len(_ARCHIVE_BEGIN)) != _ARCHIVE_BEGIN:
        raise CheckpointError("it does not begin as an archive of torch.save's")
    with zipfile.ZipFile(cast("IO[bytes]", file)) as archive:
        members = archive.infolist()
        if any(member.compress_type != zipfile.ZIP_STORED or member.file_size > length for member in members):
            raise CheckpointError("the archive is compressed, which torch.save never does")
        pickles = [member for member in members if member.filename.endswith("/data.pkl")]
        if len(pickles) != 1:
            raise CheckpointError(f"the archive has {len(pickles)} members data.pkl, not one")
        return archive.read(pickles[0])


@contextmanager
def _as_checkpoint_error(what: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise CheckpointError(f"{what} cannot be read: {error}") from error


def _check_plain(value: object, what: str, limit: int, depth: int = 0) -> int:
    """The number of items in a value; raises if there are more than the limit, or other ones than values have."""
    if type(value) in _PLAIN:
        return 1
    if depth >= MAX_DEPTH:
        raise CheckpointError(f"{what} has more than {MAX_DEPTH} containers around each other")
    if type(value) is dict:
        items: list[object] = [*value.keys(), *value.values()]
    elif type(value) is list or type(value) is tuple:
        items = list(value)
    else:
        raise CheckpointError(
            f"{what} holds a {type(value).__name__}; of values None, bool, int, float, complex, str, bytes, list, tuple"
            " and dict are converted"
        )
    count = 1
    for item in items:
        count += _check_plain(item, what, limit - count, depth + 1)
        if count > limit:
            raise CheckpointError(f"{what} holds one container in so many places that it has too many items to write")
    return count
