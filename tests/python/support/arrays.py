"""Values for the tests of both platforms, as numpy arrays. Equal on all ranks: they depend on their arguments alone.

numpy has no bfloat16: its values are float32 arrays, of which they are a part.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

FLOATS = ("float64", "float32", "bfloat16", "float16")
DTYPES = (*FLOATS, "int64", "bool")


def numpy_dtype(dtype: str) -> np.dtype[Any]:
    """In which arrays hold the values of a dtype."""
    return np.dtype("float32" if dtype == "bfloat16" else dtype)


def numbered(shape: tuple[int, ...], dtype: str = "float32") -> Array:
    """0, 1, 2, .. in row-major order."""
    return np.arange(math.prod(shape)).reshape(shape).astype(numpy_dtype(dtype))


def random_values(shape: tuple[int, ...], dtype: str, seed: int = 0) -> Array:
    """Values that use all bits of the dtype."""
    generator = np.random.default_rng(seed)
    if dtype == "bool":
        return generator.integers(0, 2, shape).astype(bool)
    if dtype == "int64":
        return generator.integers(-(2**62), 2**62, shape)
    values = generator.standard_normal(shape).astype(numpy_dtype(dtype))
    return _without_low_bits(values) if dtype == "bfloat16" else values


def small_integers(shape: tuple[int, ...], dtype: str, seed: int = 0) -> Array:
    """Integers from -4 to 4, whose sums and products over few ranks are exact in every dtype."""
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(numpy_dtype(dtype))


def _without_low_bits(values: Array) -> Array:
    """The float32 values cut to what bfloat16 holds."""
    return (values.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
