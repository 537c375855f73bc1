"""Pickles that other programs wrote, read without running what stands in them.

A pickle names classes and functions that reading it imports and calls. Here a name is looked up in a table, and what is
not in the table raises before anything is imported. The tables hold stand-ins: plain records that keep the fields of
torch's classes, never the classes themselves, so that a record cannot do more than hold what the pickle said.

A pickle is a program all the same, and its other steps are held to what pickles of data do: only lists grow, only dicts
are filled, only records take a state, and nothing takes memory or time that is not in proportion to the text. That
needs every step under control, which is why the unpickler is Python's own in Python and not the one in C, whose memo is
an array as long as the pickle says.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self

import torch

from hyper_parallel.errors import CheckpointError

__all__ = [
    "BytesRecord",
    "ChunkRecord",
    "IndexRecord",
    "MetadataRecord",
    "PropertiesRecord",
    "Record",
    "StorageRecord",
    "TensorRecord",
    "check_tensor_pickle",
    "read_metadata_pickle",
    "read_value_pickle",
]


class Record:
    """An instance of one of torch's classes in a pickle: its fields by name, as the pickle has them."""

    __slots__ = ("fields",)

    fields: dict[str, object]

    def __new__(cls, *_: object) -> Self:
        record = super().__new__(cls)
        record.fields = {}
        return record

    def __setstate__(self, state: object) -> None:
        if type(state) is not dict or not all(type(key) is str for key in state):
            raise CheckpointError(f"{type(self).__name__} has fields of type {type(state).__name__}, not by name")
        self.fields = state


class MetadataRecord(Record):
    """``Metadata``."""

    __slots__ = ()


class TensorRecord(Record):
    """``TensorStorageMetadata``."""

    __slots__ = ()


class ChunkRecord(Record):
    """``ChunkStorageMetadata``."""

    __slots__ = ()


class BytesRecord(Record):
    """``BytesStorageMetadata``."""

    __slots__ = ()


class IndexRecord(Record):
    """``MetadataIndex``. As a key it is equal to itself alone."""

    __slots__ = ()


class StorageRecord(Record):
    """``_StorageInfo``."""

    __slots__ = ()


class PropertiesRecord(Record):
    """``TensorProperties``, whose state is a tuple that begins with dtype and layout."""

    __slots__ = ()

    def __setstate__(self, state: object) -> None:
        if type(state) is tuple and len(state) > 1:
            state = {"dtype": state[0], "layout": state[1]}
        super().__setstate__(state)


class _Ignored:
    """What a checkpoint says beside its tensors and values: where it was saved, how memory was laid out."""

    __slots__ = ()

    def __new__(cls, *_: object) -> _Ignored:
        return super().__new__(cls)

    def __setstate__(self, state: object) -> None:
        """Keeps nothing."""


def _size(values: object = ()) -> tuple[object, ...]:
    if type(values) is not tuple and type(values) is not list:
        raise CheckpointError(f"torch.Size of a {type(values).__name__}")
    return tuple(values)


def _layout(name: object) -> str:
    return str(name)


def _encode(text: object, encoding: object) -> bytes:
    """How protocol 2 says bytes."""
    if type(text) is not str or encoding != "latin1":
        raise CheckpointError(f"bytes are written as text in the encoding {encoding!r}, not latin1")
    return text.encode("latin1")


def _no_bytes() -> bytes:
    """How protocol 2 says b""."""
    return b""


def _complex(real: object, imaginary: object) -> complex:
    if type(real) is not float or type(imaginary) is not float:
        raise CheckpointError("a complex number does not consist of two floats")
    return complex(real, imaginary)


def _member(owner: object, name: object) -> _Ignored:
    """How some releases of Python say a member of an enum, which here is always one that is not kept."""
    if owner is not _Ignored or type(name) is not str:
        raise CheckpointError(f"builtins.getattr of {type(owner).__name__}, which is no enum of torch's")
    return _Ignored()


_METADATA = "torch.distributed.checkpoint.metadata"
_OLD_PROPERTIES = "torch.distributed._shard.sharded_tensor.metadata"

_METADATA_NAMES: Mapping[tuple[str, str], object] = {
    **{("torch", name): value for name, value in vars(torch).items() if isinstance(value, torch.dtype)},
    ("torch", "Size"): _size,
    ("torch.serialization", "_get_layout"): _layout,
    (_METADATA, "Metadata"): MetadataRecord,
    (_METADATA, "TensorStorageMetadata"): TensorRecord,
    (_METADATA, "ChunkStorageMetadata"): ChunkRecord,
    (_METADATA, "BytesStorageMetadata"): BytesRecord,
    (_METADATA, "MetadataIndex"): IndexRecord,
    (_METADATA, "TensorProperties"): PropertiesRecord,
    (_METADATA, "_MEM_FORMAT_ENCODING"): _Ignored,
    ("builtins", "getattr"): _member,
    ("__builtin__", "getattr"): _member,
    (_METADATA, "StorageMeta"): _Ignored,
    # Where torch had them before release 2.3.
    (_OLD_PROPERTIES, "TensorProperties"): PropertiesRecord,
    (_OLD_PROPERTIES, "MEM_FORMAT_ENCODING"): _Ignored,
    ("torch.distributed.checkpoint.filesystem", "_StorageInfo"): StorageRecord,
    # The folder that the checkpoint was saved to.
    ("pathlib", "PosixPath"): _Ignored,
    ("pathlib", "WindowsPath"): _Ignored,
    ("pathlib._local", "PosixPath"): _Ignored,
    ("pathlib._local", "WindowsPath"): _Ignored,
}

_VALUE_NAMES: Mapping[tuple[str, str], object] = {
    ("_codecs", "encode"): _encode,
    ("__builtin__", "bytes"): _no_bytes,
    ("__builtin__", "complex"): _complex,
}


# What torch.save names for a strided tensor.
_TENSOR_NAMES: Mapping[tuple[str, str], object] = {
    **{("torch", name): _Ignored for name, value in vars(torch).items() if isinstance(value, torch.dtype)},
    **{("torch", f"{kind.__name__}"): _Ignored for kind in torch._storage_classes},
    ("torch.storage", "UntypedStorage"): _Ignored,
    ("torch._utils", "_rebuild_tensor_v2"): _Ignored,
    ("torch._utils", "_rebuild_tensor_v3"): _Ignored,
    ("collections", "OrderedDict"): _Ignored,
}


_KEY_ITEMS = 1000
"""In a key of a dict, which may be a tuple of tuples: hashing it visits all of them."""


class _TableUnpickler(pickle._Unpickler):
    """Looks every name up in a table and lets a pickle change nothing but what it has made itself."""

    dispatch: ClassVar[dict[int, Callable[[Any], None]]] = {**pickle._Unpickler.dispatch}
    stack: list[Any]
    append: Callable[[Any], None]
    pop_mark: Callable[[], list[Any]]

    def __init__(self, data: bytes, names: Mapping[tuple[str, str], object], what: str) -> None:
        super().__init__(io.BytesIO(data))
        self._names = names
        self._what = what

    def find_class(self, module_name: str, global_name: str, /) -> object:
        found = self._names.get((module_name, global_name))
        if found is None:
            raise CheckpointError(
                f"{self._what} is a pickle that names {module_name}.{global_name}, which is not among the names that "
                "are read from files of others; it was not imported"
            )
        return found

    def persistent_load(self, pid: object) -> object:
        if self._names is _TENSOR_NAMES:
            return None
        raise CheckpointError(
            f"{self._what} is a pickled value with a tensor in it; only tensors in dicts and lists, which have names "
            "of their own, are converted"
        )

    def _load_build(self) -> None:
        state = self.stack.pop()
        target = self._target(Record, _Ignored, step="state is given to")
        target.__setstate__(state)

    def _load_append(self) -> None:
        item = self.stack.pop()
        self._target(list, step="an item is appended to").append(item)

    def _load_appends(self) -> None:
        items = self.pop_mark()
        self._target(list, step="items are appended to").extend(items)

    def _load_setitem(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self._set_items([key, value])

    def _load_setitems(self) -> None:
        self._set_items(self.pop_mark())

    def _load_dict(self) -> None:
        items = self.pop_mark()
        self.append({})
        self._set_items(items)

    def _set_items(self, items: list[Any]) -> None:
        target = self._target(dict, step="a key is set in")
        for key, value in zip(items[::2], items[1::2], strict=True):
            if type(key) is tuple:
                self._check_key(key)
            target[key] = value

    def _check_key(self, key: tuple[Any, ...]) -> None:
        pending, count = [key], len(key)
        while pending:
            inner = [item for item in pending.pop() if type(item) is tuple]
            count += sum(map(len, inner))
            if count > _KEY_ITEMS:
                raise CheckpointError(
                    f"{self._what} is a pickle with a dict that has a tuple of more than {_KEY_ITEMS} items as a key"
                )
            pending.extend(inner)

    def _target(self, *kinds: type, step: str) -> Any:  # noqa: ANN401
        """The top of the stack, which a step is about to change."""
        target = self.stack[-1]
        # A list, dict or record is not a class or function of a table: the pickle has made it.
        if type(target) not in kinds and not (Record in kinds and isinstance(target, Record)):
            raise CheckpointError(
                f"{self._what} is a pickle in which {step} a {type(target).__name__}, which pickles of data never do"
            )
        return target

    def _refuse_set(self) -> None:
        raise CheckpointError(f"{self._what} is a pickle with a set in it, which is not converted")

    def _refuse_buffer(self) -> None:
        raise CheckpointError(f"{self._what} is a pickle with a bytearray or buffer in it, which is not converted")

    def _refuse_extension(self) -> None:
        raise CheckpointError(f"{self._what} is a pickle that names a class by a number of copyreg's, not by name")

    dispatch.update(
        {
            pickle.BUILD[0]: _load_build,
            pickle.APPEND[0]: _load_append,
            pickle.APPENDS[0]: _load_appends,
            pickle.SETITEM[0]: _load_setitem,
            pickle.SETITEMS[0]: _load_setitems,
            pickle.DICT[0]: _load_dict,
            **dict.fromkeys((code[0] for code in (pickle.EMPTY_SET, pickle.ADDITEMS, pickle.FROZENSET)), _refuse_set),
            **dict.fromkeys(
                (code[0] for code in (pickle.BYTEARRAY8, pickle.NEXT_BUFFER, pickle.READONLY_BUFFER)), _refuse_buffer
            ),
            **dict.fromkeys((code[0] for code in (pickle.EXT1, pickle.EXT2, pickle.EXT4)), _refuse_extension),
        }
    )


def read_metadata_pickle(data: bytes, what: str) -> object:
    """What the ``.metadata`` of a checkpoint of torch's says, as records.

    Args:
        data: The file.
        what: What to call it in messages.

    Returns:
        A `MetadataRecord` unless the file lies.

    Raises:
        CheckpointError: It names anything but torch's metadata classes, dtypes, sizes and paths, or is no pickle.

    Example:
        >>> import pickle
        >>> read_metadata_pickle(pickle.dumps({"w": torch.float32}), "a test")
        {'w': torch.float32}
    """
    return _read(data, _METADATA_NAMES, what)


def read_value_pickle(data: bytes, what: str) -> object:
    """A value of None, bool, int, float, complex, str, bytes, list, tuple and dict, of whatever nesting.

    Args:
        data: The pickle.
        what: What to call it in messages.

    Raises:
        CheckpointError: It names anything else, holds a tensor, or is no pickle.

    Example:
        >>> import pickle
        >>> read_value_pickle(pickle.dumps({"lr": 0.1, "key": b"xy"}, protocol=2), "a test")
        {'lr': 0.1, 'key': b'xy'}
    """
    return _read(data, _VALUE_NAMES, what)


def check_tensor_pickle(data: bytes, what: str) -> None:
    """Reads the pickle of a tensor for its names alone, before ``torch.load`` is let near it.

    Args:
        data: The pickle.
        what: What to call it in messages.

    Raises:
        CheckpointError: It names anything but what ``torch.save`` names for a strided tensor, or is no pickle.
    """
    _read(data, _TENSOR_NAMES, what)


def _read(data: bytes, names: Mapping[tuple[str, str], object], what: str) -> object:
    try:
        return _TableUnpickler(data, names, what).load()
    except CheckpointError:
        raise
    except Exception as error:  # hostile bytes make every step of a pickle fail in its own way
        raise CheckpointError(f"{what} is not a readable pickle: {type(error).__name__}: {error}") from error
