"""Comparisons of DTensors with the truth, on either platform. All run on every rank of a pool."""

from __future__ import annotations

import numpy as np

from hyper_parallel import DTensor, distribute_tensor
from support.arrays import Array
from support.common import make_mesh
from support.frameworks import framework
from support.spread import Spread

_TOLERANCES = {"float64": 1e-12, "float32": 2e-6, "float16": 2e-3, "bfloat16": 2e-2}
"""Of values that are computed otherwise than the expected ones, relative and absolute."""


def distributed(whole: Array, spread: Spread, dtype: str = "float32") -> DTensor:
    """The whole tensor laid out as `spread` says, without communication."""
    return distribute_tensor(framework.tensor(whole, dtype), make_mesh(*spread.mesh_shape), spread.placements)


def assert_values(given: object, expected: Array, dtype: str = "float32", *, exact: bool = True) -> None:
    """A plain tensor has this dtype, this shape and these values, bit by bit but for NaN, which is any NaN."""
    assert framework.is_plain(given)
    assert framework.dtype_of(given) == dtype
    values = framework.array(given)
    assert values.shape == expected.shape
    tolerance = 0.0 if exact else _TOLERANCES.get(dtype, 0.0)
    np.testing.assert_allclose(values, expected, rtol=tolerance, atol=tolerance)


def assert_part(
    tensor: DTensor, whole: Array, spread: Spread, rank: int, dtype: str = "float32", *, exact: bool = True
) -> None:
    """`tensor` is `whole`, laid out as `spread` says; looks at this rank's part and communicates nothing."""
    assert isinstance(tensor, DTensor)
    assert tuple(tensor.shape) == tensor._global_shape == spread.shape
    assert tensor.placements == tensor.layout.placements == spread.placements
    assert tensor.device_mesh == tensor.layout.mesh == make_mesh(*spread.mesh_shape)
    assert framework.dtype_of(tensor) == dtype
    part = spread.part_of(whole, rank)
    assert tensor.local_numel == part.size
    assert_values(tensor.to_local(), part, dtype, exact=exact)
