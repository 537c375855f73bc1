"""Checkpoints of torch's converted into ours and back."""

from __future__ import annotations

import collections
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from hyper_parallel import CheckpointError, InvalidArgumentError, UnimplementedError, checkpoint
from hyper_parallel.checkpoint import convert
from hyper_parallel.checkpoint._own_directory import OwnDirectory
from hyper_parallel.checkpoint._torch_directory import TorchDirectory
from support.torch_checkpoints import (
    WRITERS,
    assert_same,
    load_with_torch,
    nested_state,
    save_with_torch,
    write_chunks,
)

DTYPES = (
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.uint16, torch.int32, torch.uint32, torch.int64,
    torch.uint64, torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.float8_e4m3fn,
    torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.float8_e8m0fnu,
)  # fmt: skip

VALUES: dict[str, Any] = {
    "none": None,
    "flags": [True, False, 1, 0],
    "big": 2**80,
    "floats": (0.1, -0.0, float("inf"), 1e-320),
    "complex": 3 - 4j,
    "text": "grüße\0\n",
    "bytes": b"\x00\xff",
    "no bytes": b"",
    "dict": {"lr": 0.1, "betas": (0.9, 0.999)},
    "nested": [[1, (2, [3])], []],
}


def every_dtype() -> dict[str, torch.Tensor]:
    """A tensor of each dtype, whose bytes are 0, 1, 2, .. (for bool 0 and 1)."""
    tensors = {}
    for dtype in DTYPES:
        raw = torch.arange(12 * dtype.itemsize, dtype=torch.uint8)
        tensors[str(dtype)] = (raw % 2).bool() if dtype == torch.bool else raw.view(dtype)
    return tensors


def convert_both_ways(folder: Path, state: dict[str, Any]) -> tuple[Path, Path]:
    save_with_torch(state, folder / "torch")
    convert.from_torch(folder / "torch", folder / "ours")
    convert.to_torch(folder / "ours", folder / "again")
    return folder / "ours", folder / "again"


@pytest.mark.parametrize("state", [every_dtype(), VALUES, nested_state()], ids=["dtypes", "values", "nested"])
def test_a_checkpoint_is_the_same_in_both_formats(state: dict[str, Any], tmp_path: Path) -> None:
    ours, again = convert_both_ways(tmp_path, state)
    assert not dist.is_initialized()
    expected = load_with_torch(tmp_path / "torch")
    assert_same(load_with_torch(again), expected)
    assert_same(checkpoint.read(ours), expected)


def test_every_box_stays_a_box(tmp_path: Path) -> None:
    whole = torch.arange(60.0).view(3, 4, 5)
    write_chunks(
        tmp_path / "torch", "w", whole, [((0, 0, 0), (1, 4, 5)), ((1, 0, 0), (2, 2, 5)), ((1, 2, 0), (2, 2, 5))]
    )
    convert.from_torch(tmp_path / "torch", tmp_path / "ours")
    convert.to_torch(tmp_path / "ours", tmp_path / "again")
    with TorchDirectory(tmp_path / "torch") as before, TorchDirectory(tmp_path / "again") as after:
        boxes = before.tensors["w"].boxes
        assert len(boxes) == 3
        assert sorted(OwnDirectory(tmp_path / "ours").tensors["w"].boxes) == sorted(boxes)
        assert sorted(after.tensors["w"].boxes) == sorted(boxes)
    assert_same(load_with_torch(tmp_path / "again"), {"w": whole})


def test_our_own_checkpoint_becomes_torchs(tmp_path: Path) -> None:
    state = {"model": {"w": torch.arange(6.0), 7: torch.ones(2)}, "pair": (torch.ones(1), 2), "values": VALUES}
    checkpoint.save(state, tmp_path / "ours")
    convert.to_torch(tmp_path / "ours", tmp_path / "torch")
    loaded = load_with_torch(tmp_path / "torch")
    assert_same(loaded["model"], {"w": torch.arange(6.0), "7": torch.ones(2)})
    assert_same(loaded["pair"], [torch.ones(1), 2])
    assert_same(loaded["values"], VALUES)


MEASURE = """
import sys
from pathlib import Path
from support import torch_checkpoints
from hyper_parallel.checkpoint import convert
def peak():
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])
write = {"ours": convert.from_torch, "torchs": torch_checkpoints.rewrite}[sys.argv[1]]
Path("/proc/self/clear_refs").write_text("5")
before = peak()
write(Path("torch"), Path(sys.argv[1]))
print((peak() - before) // 1024)
"""


@pytest.mark.parametrize("format_name", ["ours", "torchs"])
def test_two_boxes_are_held_at_a_time(format_name: str, tmp_path: Path) -> None:
    save_with_torch({f"{number}": torch.full((1 << 20,), float(number)) for number in range(16)}, tmp_path / "torch")
    command = [sys.executable, "-W", "ignore", "-c", MEASURE, format_name]
    paths = os.pathsep.join(sys.path)
    ran = subprocess.run(
        command, capture_output=True, text=True, check=True, cwd=tmp_path, env={**os.environ, "PYTHONPATH": paths}
    )
    assert int(ran.stdout) < 36, "MiB, of 64 in all and 4 a box"


def test_empty_shares_that_torch_saves_are_left_out(tmp_path: Path) -> None:
    whole = torch.arange(10.0).view(5, 2)
    chunks = [((0, 0), (3, 2)), ((3, 0), (2, 2)), ((5, 0), (0, 2))]
    write_chunks(tmp_path / "torch", "w", whole, chunks)
    convert.from_torch(tmp_path / "torch", tmp_path / "ours")
    assert_same(checkpoint.read(tmp_path / "ours"), {"w": whole})


def test_tensors_in_a_list_with_a_gap_raise(tmp_path: Path) -> None:
    save_with_torch({"l": [torch.ones(1), {}, torch.ones(1)]}, tmp_path / "torch")
    with pytest.raises(InvalidArgumentError, match=r"a list has entries at the positions \[0, 2\] and no others"):
        convert.from_torch(tmp_path / "torch", tmp_path / "ours")
    assert not (tmp_path / "ours").exists()


# --- what cannot be converted ----------------------------------------------------------------------------------------


class Custom:
    """A class of a program."""


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Custom(), "names test_convert.Custom, which is not among the names"),
        (collections.OrderedDict(a=1), "names collections.OrderedDict"),
        (torch.float32, "names torch.float32"),
        ((torch.ones(1), 1), "'v' in "),
        ({1, 2}, "names __builtin__.set"),
        (Path("x"), "names pathlib.PosixPath"),
        (int, "names __builtin__.long"),
    ],
    ids=["class", "OrderedDict", "dtype", "tensor in a tuple", "set", "path", "type"],
)
def test_a_value_of_another_type_raises_by_name(value: object, text: str, tmp_path: Path) -> None:
    # A tuple of one keeps torch from traversing a dict.
    save_with_torch({"v": (value,)}, tmp_path / "torch")
    with pytest.raises(CheckpointError) as caught:
        convert.from_torch(tmp_path / "torch", tmp_path / "ours")
    assert "value 'v' in " in str(caught.value)
    assert text in str(caught.value)
    assert not (tmp_path / "ours").exists()


def test_a_dtype_that_ours_lacks_raises_by_name(tmp_path: Path) -> None:
    save_with_torch({"z": torch.ones(2, dtype=torch.complex128)}, tmp_path / "torch")
    with pytest.raises(UnimplementedError, match=r"the tensor 'z' has dtype torch\.complex128"):
        convert.from_torch(tmp_path / "torch", tmp_path / "ours")
    assert not (tmp_path / "ours").exists()


@WRITERS
def test_a_directory_in_use_is_left_alone(write: Callable[[Path, Path], object], tmp_path: Path) -> None:
    save_with_torch({"w": torch.ones(2)}, tmp_path / "torch")
    used = tmp_path / "used"
    used.mkdir()
    (used / "notes").write_text("mine")
    plain = tmp_path / "plain"
    plain.write_text("mine")
    for target in (used, plain):
        with pytest.raises(InvalidArgumentError, match="must be a new or an empty directory"):
            write(tmp_path / "torch", target)
    with pytest.raises(InvalidArgumentError, match="cannot be made: No such file or directory"):
        write(tmp_path / "torch", tmp_path / "no" / "parent")
    assert [file.name for file in used.iterdir()] == ["notes"]
    empty = tmp_path / "empty"
    empty.mkdir()
    write(tmp_path / "torch", empty)
    assert (empty / ".metadata").is_file()


@WRITERS
def test_after_a_fault_no_checkpoint_is_left_and_another_try_works(
    write: Callable[[Path, Path], object], tmp_path: Path
) -> None:
    save_with_torch({"a": torch.ones(4), "b": torch.arange(4.0)}, tmp_path / "torch")
    data = tmp_path / "torch" / "__0_0.distcp"
    whole = data.read_bytes()
    data.write_bytes(whole[:-64])
    empty = tmp_path / "empty"
    empty.mkdir()
    for target in (tmp_path / "new", empty):
        with pytest.raises(CheckpointError, match=r"__0_0\.distcp has \d+ bytes but the metadata speaks of"):
            write(tmp_path / "torch", target)
    data.write_bytes(whole)
    for target in (tmp_path / "new", empty):
        assert not target.exists() or {file.name for file in target.iterdir()} <= {".save.lock"}
        write(tmp_path / "torch", target)
