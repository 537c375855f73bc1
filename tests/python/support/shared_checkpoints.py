"""Checkpoints in the tests of both platforms: bits of every dtype, one state for all, and calls that must raise."""

from __future__ import annotations

import hashlib
import json
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hyper_parallel import DTensor, Placement, RaggedShard, Replicate, Shard, checkpoint, distribute_tensor
from support.common import assert_raises, make_mesh
from support.frameworks import framework
from support.worker import Rank

State = dict[Any, Any]

STORED_DTYPES = {
    "float64": 8, "float32": 4, "bfloat16": 2, "float16": 2, "int64": 8, "int32": 4, "int16": 2, "int8": 1,
    "uint8": 1, "uint16": 2, "uint32": 4, "uint64": 8, "bool": 1, "complex64": 8,
}  # fmt: skip
"""What both frameworks have and the format knows, with the bytes of an element."""


def random_bytes(name: str, count: int, dtype: str) -> bytes:
    """Bits that depend on the arguments alone, NaN and infinities among them; of bool True and False."""
    found = hashlib.shake_128(f"{name} {dtype}".encode()).digest(count)
    return bytes(byte % 2 for byte in found) if dtype == "bool" else found


def random_tensor(name: str, shape: tuple[int, ...], dtype: str = "float32") -> Any:
    """A plain tensor of `random_bytes`."""
    count = math.prod(shape)
    if count == 0:
        return framework.tensor(np.zeros(shape), dtype)
    return framework.from_bytes(random_bytes(name, count * STORED_DTYPES[dtype], dtype), shape, dtype)


def bits(tensor: Any) -> bytes:
    """The elements' bytes, row-major."""
    return framework.to_bytes(tensor.reshape((-1,)))


def whole_of(tensor: Any) -> Any:
    """The whole tensor, of a plain one itself. Communicates."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def assert_same_bits(given: Any, expected: Any) -> None:
    """Two plain tensors have equal dtypes, shapes and bytes."""
    assert framework.dtype_of(given) == framework.dtype_of(expected)
    assert tuple(given.shape) == tuple(expected.shape)
    assert bits(given) == bits(expected)


def laid_out(whole: Any, placements: Sequence[Placement], *mesh_shape: int) -> DTensor:
    """A tensor that is the same on all ranks, over a mesh of them."""
    return distribute_tensor(whole, make_mesh(*mesh_shape), placements)


def layouts(size: int) -> dict[str, tuple[Placement, ...]]:
    """Placements of a (6, 4) tensor on `size` ranks: of every kind, with empty shares and cut rows."""
    units = {1: (3,), 2: (1, 2), 3: (2, 0, 1)}[size]
    fine = {1: (24,), 2: (5, 19), 3: (7, 3, 14)}[size]
    last = (0,) * (size - 1) + (1,)
    return {
        "replicated": (Replicate(),),
        "rows": (Shard(0),),
        "columns": (Shard(1),),
        "ragged rows": (RaggedShard((0,), units),),
        "ragged cells": (RaggedShard((0, 1), fine),),
        "all on the last": (RaggedShard((0,), last),),
    }


def golden_state(make: Callable[[str, tuple[int, ...], str], Any] = random_tensor) -> State:
    """What the golden directories of both frameworks hold, on two ranks: every dtype, layout and kind of value."""
    made = {name: laid_out(make(name, (6, 4), "float32"), placements, 2) for name, placements in layouts(2).items()}
    return {
        "dtypes": {dtype: make(dtype, (3,), dtype) for dtype in STORED_DTYPES},
        "ragged": {
            dtype: laid_out(make(f"ragged {dtype}", (5, 3), dtype), (RaggedShard((0, 1), (4, 11)),), 2)
            for dtype in STORED_DTYPES
        },
        "layouts": made,
        "of no dim": make("of no dim", (), "float32"),
        "empty": make("empty", (0, 3), "float32"),
        "list": [make("list", (2,), "int64"), 1.5],
        "values": {"None": None, "int": 2**70, "float": -0.0, "complex": 1.5 - 2j, "text": "ключ", "bytes": b"\x00"},
        "betas": (0.9, 0.999),
        7: True,
    }


def metadata_of(folder: Path) -> dict[str, Any]:
    """The JSON of `.metadata` without what differs from save to save: its id, with which the files' names begin."""
    parsed: dict[str, Any] = json.loads((folder / ".metadata").read_text(encoding="utf-8"))
    del parsed["save_id"], parsed["crc32c"]
    parsed["files"] = [size for _, size in parsed["files"]]
    return parsed


def data_of(folder: Path) -> list[bytes]:
    """The data files, by rank."""
    return [path.read_bytes() for path in sorted(folder.glob("*.safetensors"))]


def filled(state: Any, value: int) -> Any:
    """The same state with `value` in all tensors and "before" in the place of values."""
    if isinstance(state, DTensor):
        plain = framework.tensor(np.full(tuple(state.shape), value), framework.dtype_of(state))
        return distribute_tensor(plain, state.device_mesh, state.placements)
    if framework.is_plain(state):
        return framework.tensor(np.full(tuple(state.shape), value), framework.dtype_of(state))
    if isinstance(state, Mapping):
        return {key: filled(item, value) for key, item in state.items()}
    if isinstance(state, list):
        return [filled(item, value) for item in state]
    return "before"


def assert_same_state(given: Any, expected: Any) -> None:
    """Equal nesting, types, values and bits; DTensors by the parts of this rank."""
    assert type(given) is type(expected)
    if isinstance(expected, DTensor):
        assert given.placements == expected.placements
        assert_same_bits(given.to_local(), expected.to_local())
    elif framework.is_plain(expected):
        assert_same_bits(given, expected)
    elif isinstance(expected, dict):
        assert list(given) == list(expected)
        for key, item in expected.items():
            assert_same_state(given[key], item)
    elif isinstance(expected, list | tuple):
        assert len(given) == len(expected)
        for one, other in zip(given, expected, strict=True):
            assert_same_state(one, other)
    else:
        assert repr(given) == repr(expected)


def raised_everywhere(
    rank: Rank, kind: type[BaseException], text: str, action: Callable[[], object], folder: Path
) -> None:
    """`action` raises on every rank the library's own error that is a `kind`, with `text`, and the same message."""
    assert_raises(kind, text, action)
    try:
        action()
    except kind as error:
        (folder / f"rank{rank.index}").write_text(str(error), encoding="utf-8")
    framework.sum_over_ranks(0)
    assert len({(folder / f"rank{each}").read_text(encoding="utf-8") for each in range(rank.size)}) == 1


class GatedWriter(checkpoint.StorageWriter):
    """Writes to a directory, but nothing before `gate` is open."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._writer = checkpoint.FileSystemWriter(str(folder))
        self.gate = threading.Event()

    def begin(self) -> str:
        return self._writer.begin()

    def write(self, *args: Any, **kwargs: Any) -> Any:
        assert self.gate.wait(30), "the test never opened the gate"
        return self._writer.write(*args, **kwargs)

    def publish(self, metadata: checkpoint.CheckpointMetadata) -> None:
        self._writer.publish(metadata)

    def abandon(self) -> None:
        self._writer.abandon()
