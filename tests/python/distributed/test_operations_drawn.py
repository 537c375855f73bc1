"""Every operation with a rule on normal layouts against unsharded torch, forward and backward, over drawn layouts.

Each operand has a layout of its own: nested, uneven and empty shards, dims of size 1 and 0. Where torch raises for the
drawn sizes, so must the operation, on all ranks.
"""

from __future__ import annotations

import pytest
import torch
from hypothesis import strategies as st

from hyper_parallel import _torch
from support.drawing import drawn
from support.forms import BINARY, BINARY_IN_PLACE, BINARY_OF_TENSORS, UNARY, UNARY_IN_PLACE
from support.normal_checks import check_case
from support.normal_forms import ALL_FORMS, names_of
from support.pool import RankPools
from support.strategies import normal_cases

EXAMPLES = 8
MESHES = ((2,), (4,), (2, 2))


def run_drawn(
    rank_pools: RankPools, form: str, data: st.DataObject, dtypes: tuple[torch.dtype, ...] = (torch.float64,)
) -> None:
    mesh_shape = data.draw(st.sampled_from(MESHES), label="mesh")
    rank_pools[2 if mesh_shape == (2,) else 4].run(check_case, data.draw(normal_cases(form, mesh_shape, dtypes)))


@pytest.mark.parametrize("form", list(ALL_FORMS))
@drawn(examples=EXAMPLES, data=st.data())
def test_every_form_is_plain_torch(rank_pools: RankPools, form: str, data: st.DataObject) -> None:
    run_drawn(rank_pools, form, data)


@pytest.mark.parametrize("form", names_of("broadcast", "products", "shapes", "pieces"))
@drawn(examples=2, data=st.data())
def test_other_dtypes_are_plain_torch(rank_pools: RankPools, form: str, data: st.DataObject) -> None:
    run_drawn(rank_pools, form, data, (torch.float32, torch.bfloat16, torch.float16))


# Elementwise operations, which `support.forms` holds against torch on layouts that are alike.
ELEMENTWISE = {
    "__radd__", "__rdiv__", "__rmul__", "__rpow__", "__rsub__", "__rtruediv__", "addcdiv_", "clamp_", "clamp_max",
    "clamp_max_", "clamp_min", "clamp_min_", "detach", "empty_like", "fill_", "full_like", "gelu", "gelu_", "ones_like",
    "radd", "rdiv", "real_div", "rmul", "rpow", "silu", "silu_", "to", "zero_", "zeros_like",
    *UNARY, *UNARY_IN_PLACE, *BINARY, *BINARY_OF_TENSORS, *BINARY_IN_PLACE,
}  # fmt: skip
# Not by a rule of axes: tests of their own.
OTHERS = {"normal_", "uniform_"}


def test_every_operation_with_a_rule_has_a_form() -> None:
    names = {name for name in _torch.operation_names() if not name.startswith("_foreach_")}
    assert names - {form.operation for form in ALL_FORMS.values()} - ELEMENTWISE - OTHERS == set()
