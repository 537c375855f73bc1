"""MindSpore tensors as bytes in host memory and back.

Everything that the core packs, combines or sends is bytes: exact for every dtype, NaN payloads and -0.0 too. Reading
waits for the operations that MindSpore still has in its queue, so bytes are never stale, and an operation that failed
raises here at the latest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import mindspore
import numpy as np
import numpy.typing as npt

from hyper_parallel.errors import ArgumentTypeError

__all__ = ["Bytes", "bytes_of", "cast_bytes", "dtype_name", "dtype_of", "is_dtype", "item_bytes", "tensor_of"]

Bytes = npt.NDArray[np.uint8]
"""Flat and contiguous."""


class _Dtype(NamedTuple):
    """How one dtype of MindSpore is called elsewhere."""

    name: str
    """As safetensors has it."""
    numpy: str


# numpy knows "bfloat16" once MindSpore is imported.
_DTYPES = {
    mindspore.bool_: _Dtype("BOOL", "bool"),
    mindspore.int8: _Dtype("I8", "int8"),
    mindspore.int16: _Dtype("I16", "int16"),
    mindspore.int32: _Dtype("I32", "int32"),
    mindspore.int64: _Dtype("I64", "int64"),
    mindspore.uint8: _Dtype("U8", "uint8"),
    mindspore.uint16: _Dtype("U16", "uint16"),
    mindspore.uint32: _Dtype("U32", "uint32"),
    mindspore.uint64: _Dtype("U64", "uint64"),
    mindspore.float16: _Dtype("F16", "float16"),
    mindspore.bfloat16: _Dtype("BF16", "bfloat16"),
    mindspore.float32: _Dtype("F32", "float32"),
    mindspore.float64: _Dtype("F64", "float64"),
    mindspore.complex64: _Dtype("C64", "complex64"),
    mindspore.complex128: _Dtype("C128", "complex128"),
}


_BY_NAME = {known.name: dtype for dtype, known in _DTYPES.items()}


def dtype_name(dtype: mindspore.Type) -> str:
    """The dtype as the core calls it: "F32", "BF16", "I64", ..

    Raises:
        ArgumentTypeError: A dtype that has no fixed number of bytes, or that only some devices have.
    """
    return _known(dtype).name


def dtype_of(name: str) -> mindspore.Type | None:
    """The dtype that the core calls so, None if MindSpore has none whose tensors can be moved."""
    return _BY_NAME.get(name)


def is_dtype(value: object) -> bool:
    """Whether a value is a dtype whose tensors can be moved."""
    return any(value == known for known in _DTYPES)


def item_bytes(dtype: mindspore.Type) -> int:
    """The bytes of one element; raises as ``dtype_name``."""
    return np.dtype(_known(dtype).numpy).itemsize


def bytes_of(tensor: mindspore.Tensor) -> Bytes:
    """The tensor's elements, row-major: its own memory where they lie so on the host, else a copy. To be read only."""
    return np.ascontiguousarray(tensor.asnumpy()).reshape(-1).view(np.uint8)


def tensor_of(data: Bytes, dtype: mindspore.Type, shape: Sequence[int]) -> mindspore.Tensor:
    """The tensor that bytes are; shares their memory.

    Raises:
        ArgumentTypeError: As ``dtype_name``.
    """
    return mindspore.Tensor.from_numpy(data.view(_known(dtype).numpy).reshape(tuple(shape)))


def cast_bytes(data: Bytes, given: str, wanted: str) -> Bytes:
    """Elements of one dtype as those of another, as C converts numbers; the same bytes if it is the same dtype.

    Args:
        data: The elements.
        given: Their dtype, as the core calls it.
        wanted: The other.
    """
    if given == wanted:
        return data
    values = data.view(_DTYPES[_BY_NAME[given]].numpy)
    # numpy's bfloat16 converts to and from few others, and every one of its values is a float32.
    values = values.astype(np.float32) if given == "BF16" else values
    if np.iscomplexobj(values) and not wanted.startswith("C") and wanted != "BOOL":
        values = values.real
    values = values.astype(np.float32) if wanted == "BF16" else values
    with np.errstate(all="ignore"):
        cast = values.astype(_DTYPES[_BY_NAME[wanted]].numpy)
    return cast.reshape(-1).view(np.uint8)


def _known(dtype: mindspore.Type) -> _Dtype:
    if dtype not in _DTYPES:
        raise ArgumentTypeError(f"a tensor has dtype {dtype} but must have one of {[str(known) for known in _DTYPES]}")
    return _DTYPES[dtype]
