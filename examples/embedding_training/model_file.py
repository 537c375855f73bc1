"""One matrix of a safetensors file, mapped into memory: a page is read when it is first touched.

The format: the length of the header in 8 bytes, little-endian; the header, a JSON object that gives each tensor's
dtype, shape and place in what follows; the tensors' bytes.
"""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch

_PREFIX_BYTES = 8
_LONGEST_HEADER = 100_000_000
_ITEM_BYTES = 4


class ModelFileError(Exception):
    """The file cannot be read, is not in the format or has no such matrix."""


def map_matrix(file: Path, name: str) -> torch.Tensor:
    """The float32 matrix `name` of the file. Writing to it changes this process's copy alone.

    Raises:
        ModelFileError: The file cannot be read, is not in the format, or has no float32 matrix `name`.
    """
    try:
        with file.open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            header = _read_header(stream, size)
            begin, shape = _place(header, name, size - stream.tell())
            mapped = np.memmap(stream, dtype="<f4", mode="c", offset=stream.tell() + begin, shape=shape)
    except OSError as error:
        raise ModelFileError(f"{file}: {error.strerror}") from error
    except ModelFileError as error:
        raise ModelFileError(f"{file}: {error}") from error
    return torch.from_numpy(np.require(mapped, requirements="A"))


def _read_header(stream: BinaryIO, size: int) -> dict[str, Any]:
    """Reads up to where the tensors' bytes begin."""
    prefix = stream.read(_PREFIX_BYTES)
    if len(prefix) < _PREFIX_BYTES:
        raise ModelFileError(f"no safetensors file: it has {size} bytes")
    (length,) = struct.unpack("<Q", prefix)
    if length > min(_LONGEST_HEADER, size - _PREFIX_BYTES):
        raise ModelFileError("no safetensors file: its header does not fit")
    try:
        header = json.loads(stream.read(length))
    except ValueError as error:
        raise ModelFileError(f"no safetensors file: {error}") from error
    if not isinstance(header, dict):
        raise ModelFileError("no safetensors file: its header is no JSON object")
    return header


def _place(header: dict[str, Any], name: str, data_size: int) -> tuple[int, tuple[int, int]]:
    """Where among the tensors' bytes the matrix begins, and its shape."""
    match header.get(name):
        case {"dtype": "F32", "shape": [int(rows), int(columns)], "data_offsets": [int(begin), int(end)]}:
            if (
                rows > 0
                and columns > 0
                and begin >= 0
                and end <= data_size
                and end - begin == rows * columns * _ITEM_BYTES
            ):
                return begin, (rows, columns)
            raise ModelFileError(f"{name}: its bytes {begin} to {end} do not hold [{rows}, {columns}] of float32")
        case None:
            raise ModelFileError(f"there is no tensor {name}")
        case entry:
            raise ModelFileError(f"{name} is no float32 matrix: {entry}")
