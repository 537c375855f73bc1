"""Checkpoints between the frameworks: what one of them has saved both load, bit for bit."""

from __future__ import annotations

from pathlib import Path

import pytest

from hyper_parallel import checkpoint
from support.frameworks import framework
from support.pool import RankPools
from support.ranks import ranks
from support.shared_checkpoints import (
    STORED_DTYPES,
    assert_same_state,
    bits,
    data_of,
    filled,
    golden_state,
    laid_out,
    layouts,
    metadata_of,
    random_tensor,
)
from support.worker import Rank

GOLDEN = Path(__file__).parents[2] / "golden" / "checkpoint"
WRITTEN_BY = ["torch", "mindspore"]
SHAPE = (6, 4)


@pytest.mark.parametrize("writer", WRITTEN_BY)
def test_what_either_framework_has_written_is_read_bit_for_bit(rank_pools: RankPools, writer: str) -> None:
    rank_pools[2].run(reads_the_golden_state, GOLDEN / f"written_by_{writer}")


def reads_the_golden_state(rank: Rank, folder: Path) -> None:
    expected = golden_state()
    state = filled(expected, 1)
    checkpoint.load(state, folder)
    assert_same_state(state, expected)
    whole = {**expected, "ragged": {d: random_tensor(f"ragged {d}", (5, 3), d) for d in STORED_DTYPES}}
    whole["layouts"] = {name: random_tensor(name, SHAPE) for name in layouts(2)}
    assert_same_state(checkpoint.read(folder), whole)


@pytest.mark.parametrize("writer", WRITTEN_BY)
@pytest.mark.parametrize("size", [1, 3])
def test_what_either_framework_has_written_loads_under_other_layouts(
    rank_pools: RankPools, writer: str, size: int
) -> None:
    rank_pools[size].run(loads_the_golden_layouts, GOLDEN / f"written_by_{writer}")


def loads_the_golden_layouts(rank: Rank, folder: Path) -> None:
    stored, placements = list(layouts(2)), list(layouts(rank.size).values())
    for turn in range(len(stored)):
        expected = {
            name: laid_out(random_tensor(name, SHAPE), placements[(at + turn) % len(stored)], rank.size)
            for at, name in enumerate(stored)
        }
        state = {"layouts": filled(expected, -9)}
        checkpoint.load(state, folder, allow_extra=["*"])
        assert_same_state(state, {"layouts": expected})


@pytest.mark.parametrize("writer", WRITTEN_BY)
@ranks(2)
def test_both_frameworks_write_the_same_bytes(rank: Rank, writer: str, tmp_path: Path) -> None:
    """The golden directories are `save(golden_state(), ...)` on two ranks; chunks, checksums and files are equal."""
    checkpoint.save(golden_state(), tmp_path / "d")
    golden = GOLDEN / f"written_by_{writer}"
    assert metadata_of(tmp_path / "d") == metadata_of(golden)
    assert data_of(tmp_path / "d") == data_of(golden)


def test_the_golden_directory_of_the_format_is_read() -> None:
    """Byte i of a tensor is 17 i + the sum of its name's letters, and i mod 2 where it is a bool."""
    read = checkpoint.read(GOLDEN / "v1")["model"]
    assert {name: framework.dtype_of(tensor) for name, tensor in read.items()} == {
        "b": "bfloat16", "empty": "float32", "flags": "bool", "ids": "int64", "scale": "float64", "w": "float32",
        "z": "complex64",
    }  # fmt: skip
    for name, tensor in read.items():
        start = sum(f"model.{name}".encode())
        count = len(bits(tensor))
        expected = bytes(i % 2 if name == "flags" else (17 * i + start) % 256 for i in range(count))
        assert bits(tensor) == expected, name
