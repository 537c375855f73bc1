"""The readers of foreign pickles: they take little time and memory, and change nothing that a name stands for."""

from __future__ import annotations

import copyreg
import struct
import tracemalloc
from collections.abc import Callable

import pytest

from hyper_parallel import CheckpointError
from hyper_parallel.checkpoint import _foreign_pickle

READERS = pytest.mark.parametrize(
    "read",
    [
        _foreign_pickle.read_metadata_pickle,
        _foreign_pickle.read_value_pickle,
        _foreign_pickle.check_tensor_pickle,
    ],
    ids=["metadata", "value", "tensor"],
)

HUGE = 1 << 32
BOMBS = {
    "LONG_BINPUT": b"Nr" + struct.pack("<I", 1 << 27) + b".",
    "PUT": b"Np%d\n." % (1 << 27),
    "FRAME": b"\x80\x04\x95" + struct.pack("<Q", HUGE) + b"N.",
    "BINBYTES": b"B" + struct.pack("<I", HUGE - 1) + b".",
    "BINBYTES8": b"\x8e" + struct.pack("<Q", HUGE) + b".",
    "BINUNICODE8": b"\x8d" + struct.pack("<Q", HUGE) + b".",
    "BYTEARRAY8": b"\x96" + struct.pack("<Q", HUGE) + b".",
    "LONG4": b"\x8b" + struct.pack("<i", (1 << 31) - 1) + b".",
}


@READERS
@pytest.mark.parametrize("bomb", list(BOMBS))
def test_a_short_pickle_takes_little_memory(read: Callable[[bytes, str], object], bomb: str) -> None:
    tracemalloc.start()
    try:
        if bomb in {"LONG_BINPUT", "PUT", "FRAME"}:
            assert read(BOMBS[bomb], "it") is None
        else:
            with pytest.raises(CheckpointError, match="it is "):
                read(BOMBS[bomb], "it")
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("table", "read"),
    [
        (_foreign_pickle._METADATA_NAMES, _foreign_pickle.read_metadata_pickle),
        (_foreign_pickle._VALUE_NAMES, _foreign_pickle.read_value_pickle),
        (_foreign_pickle._TENSOR_NAMES, _foreign_pickle.check_tensor_pickle),
    ],
    ids=["metadata", "value", "tensor"],
)
@pytest.mark.parametrize(
    ("step", "text"),
    [
        (b"}\x8c\x01xK\x01sb", "state is given to"),
        (b"N}\x8c\x0c__defaults__K\x01\x85s\x86b", "state is given to"),
        (b"K\x01a", "an item is appended to"),
        (b"(K\x01K\x02e", "items are appended to"),
        (b"\x8c\x01xK\x01s", "a key is set in"),
        (b"(\x8c\x01xK\x01u", "a key is set in"),
        (b"(K\x01\x90", "with a set in it"),
    ],
    ids=["BUILD", "BUILD slots", "APPEND", "APPENDS", "SETITEM", "SETITEMS", "ADDITEMS"],
)
def test_no_step_of_a_pickle_changes_what_a_name_stands_for(
    table: dict[tuple[str, str], object], read: Callable[[bytes, str], object], step: bytes, text: str
) -> None:
    for (module, name), stands_for in table.items():
        before = dict(getattr(stands_for, "__dict__", {})), getattr(stands_for, "__defaults__", None)
        with pytest.raises(CheckpointError, match=text):
            read(b"c%s\n%s\n" % (module.encode(), name.encode()) + step + b".", "it")
        assert (dict(getattr(stands_for, "__dict__", {})), getattr(stands_for, "__defaults__", None)) == before


@READERS
def test_a_class_named_by_number_raises(read: Callable[[bytes, str], object]) -> None:
    copyreg.add_extension("os", "system", 200)
    try:
        for pickled in (b"\x82\xc8.", b"\x83\xc8\0.", b"\x84\xc8\0\0\0."):
            with pytest.raises(CheckpointError, match="names a class by a number"):
                read(pickled, "it")
    finally:
        copyreg.remove_extension("os", "system", 200)


@READERS
@pytest.mark.parametrize("key", ["doubled", "deep"])
def test_a_key_that_takes_forever_to_hash_raises(read: Callable[[bytes, str], object], key: str) -> None:
    # The second is deeper than the C stack.
    pickled = b")" + {"doubled": b"2\x86" * 100, "deep": b"\x85" * 1_000_000}[key]
    for filled in (b"}" + pickled + b"Ns.", b"}(" + pickled + b"Nu.", b"(" + pickled + b"Nd."):
        with pytest.raises(CheckpointError, match="a dict that has a tuple of more than 1000 items as a key"):
            read(filled, "it")
