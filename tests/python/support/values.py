"""Tensors for tests. Equal on all ranks and in the test process: they depend on their arguments alone."""

from __future__ import annotations

import math

import torch

FLOATS = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
DTYPES = (*FLOATS, torch.int64, torch.bool)


def numbered(shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """0, 1, 2, .. in row-major order."""
    return torch.arange(math.prod(shape), dtype=torch.float64).reshape(shape).to(dtype)


def random_values(shape: tuple[int, ...], dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    """Values that use all bits of the dtype."""
    generator = torch.Generator().manual_seed(seed)
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=generator).bool()
    if dtype == torch.int64:
        return torch.randint(-(2**62), 2**62, shape, generator=generator)
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


def small_integers(shape: tuple[int, ...], dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    """Integers from -4 to 4, whose sums and products over few ranks are exact in every dtype."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-4, 5, shape, generator=generator).to(dtype)
