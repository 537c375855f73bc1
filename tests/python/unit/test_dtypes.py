"""The two tables of dtypes, Python's and the C++ core's, say the same."""

from __future__ import annotations

import pytest
import torch

from hyper_parallel import ArgumentTypeError, InvalidArgumentError, _core
from hyper_parallel.checkpoint import StandardSavePlanner
from hyper_parallel.checkpoint._dtypes import DTYPE_NAMES, DTYPES

WITHOUT_TORCH = {"F4", "F6_E2M3", "F6_E3M2"}
"""What the safetensors format has and torch has not, or packs otherwise."""

QUANTIZED = {torch.quint8, torch.qint8, torch.qint32, torch.quint4x2, torch.quint2x4}
OTHERS = {value for value in vars(torch).values() if isinstance(value, torch.dtype)} - set(DTYPE_NAMES) - QUANTIZED


def test_python_has_the_names_of_the_core_but_for_those_without_torch() -> None:
    with pytest.raises(InvalidArgumentError, match="dtype 'X' is not one of ") as caught:
        _core.PlannedTensor("w", "X", [], [])
    names = str(caught.value).partition(" is not one of ")[2].split(", ")
    assert set(names) == set(DTYPES) | WITHOUT_TORCH
    assert [name for name in names if name in DTYPES] == list(DTYPES), "in one order"


@pytest.mark.parametrize("name", list(DTYPES))
def test_both_name_a_dtype_alike(name: str) -> None:
    planner = StandardSavePlanner({"w": torch.empty(2, dtype=DTYPES[name])})
    (item,) = planner.build_local_plan().items
    assert item.dtype == name, "the core's name of torch's dtype"
    assert planner.get_data(item).dtype == DTYPES[name], "and torch's dtype of the core's name"


def test_no_two_names_are_of_one_dtype() -> None:
    assert len(DTYPE_NAMES) == len(DTYPES)


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
@pytest.mark.parametrize("dtype", sorted(OTHERS, key=str), ids=str)
def test_a_dtype_without_a_name_has_none_in_the_core(dtype: torch.dtype) -> None:
    planner = StandardSavePlanner({"w": torch.empty(2, dtype=dtype)})
    with pytest.raises(ArgumentTypeError, match="'w' has dtype "):
        planner.build_local_plan()
