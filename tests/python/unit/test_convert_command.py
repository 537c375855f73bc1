"""Conversions of torch checkpoints by command: by this package alone and by `hyper-parallel`, of which it is a step."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import hyper_parallel
from hyper_parallel import checkpoint
from hyper_parallel.checkpoint import convert
from hyper_parallel.checkpoint._own_directory import OwnDirectory
from support.torch_checkpoints import assert_same, load_with_torch, nested_state, save_with_torch, write_chunks

# --- the command -----------------------------------------------------------------------------------------------------


def run_command(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hyper_parallel.checkpoint.convert", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=50)


def test_the_command_converts_and_says_what(tmp_path: Path) -> None:
    state = nested_state()
    save_with_torch(state, tmp_path / "torch")
    ran = run_command(tmp_path / "torch", tmp_path / "ours", "--to", "hyper_parallel")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout == f"{tmp_path / 'ours'}: 4 tensors, 2 values, 40 B\n"
    assert convert.main([str(tmp_path / "ours"), str(tmp_path / "again"), "--to", "torch"]) == 0
    assert_same(load_with_torch(tmp_path / "again"), load_with_torch(tmp_path / "torch"))


def test_the_command_fails_with_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert convert.main([str(tmp_path / "none"), str(tmp_path / "out"), "--to", "hyper_parallel"]) == 1
    assert (
        capsys.readouterr().err == f"convert: {tmp_path / 'none'} is no readable directory: No such file or directory\n"
    )
    assert convert.main([str(tmp_path), str(tmp_path / "out"), "--to", "hyper_parallel"]) == 1
    assert "has no .metadata" in capsys.readouterr().err
    checkpoint.save({"w": torch.ones(2)}, tmp_path / "ours")
    assert convert.main([str(tmp_path / "ours"), str(tmp_path / "out"), "--to", "hyper_parallel"]) == 1
    assert "is a checkpoint of hyper_parallel, not of torch" in capsys.readouterr().err
    save_with_torch({"w": torch.ones(2)}, tmp_path / "torch")
    assert convert.main([str(tmp_path / "torch"), str(tmp_path / "out"), "--to", "torch"]) == 1
    assert "is no checkpoint of hyper_parallel" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "arguments", [(), ("in", "out"), ("in", "out", "--to", "safetensors"), ("in", "--to", "torch")]
)
def test_wrong_arguments_exit_with_2(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        convert.main(arguments)
    assert caught.value.code == 2
    assert "usage: python -m hyper_parallel.checkpoint.convert" in capsys.readouterr().err


def test_help_has_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        convert.main(["--help"])
    assert caught.value.code == 0
    text = capsys.readouterr().out
    assert "python -m hyper_parallel.checkpoint.convert run/torch_step_1000 run/step_1000 --to hyper_parallel" in text
    assert "exit codes: 0 converted, 1 failed (OUT holds no checkpoint), 2 wrong arguments" in text


def test_progress_counts_every_byte_once(tmp_path: Path) -> None:
    save_with_torch({"a": torch.ones(1000), "b": torch.ones(1000)}, tmp_path / "torch")
    told: list[tuple[int, int]] = []
    done = convert.from_torch(tmp_path / "torch", tmp_path / "ours", progress=lambda *counts: told.append(counts))
    assert done == "2 tensors, 0 values, 7.8 KiB"
    assert told == [(0, 8000), (4000, 8000), (8000, 8000)]
    told.clear()
    convert.to_torch(tmp_path / "ours", tmp_path / "again", progress=lambda *counts: told.append(counts))
    assert told == [(0, 8000), (4000, 8000), (8000, 8000)]


# --- the command hyper-parallel, of which this module is one step -----------------------------------------------------

RAGGED_BOXES = [((0, 0), (1, 4)), ((1, 0), (1, 1)), ((1, 1), (1, 3)), ((2, 0), (4, 4))]
"""What RaggedShard((0, 1), (5, 19)) makes of (6, 4)."""


def run_hyper_parallel(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Runs the command that was built together with the package, this Python in it."""
    command = Path(hyper_parallel.__file__).parents[2] / "src" / "hyper_parallel" / "tools" / "hyper-parallel"
    if not command.exists():
        pytest.skip("the command hyper-parallel is not built")
    environment = {**os.environ, "HYPER_PARALLEL_PYTHON": sys.executable}
    return subprocess.run(
        [command, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=50, env=environment
    )


def convert_with_command(source: Path, target: Path, to: str, *options: object) -> None:
    ran = run_hyper_parallel("convert", source, target, "--to", to, *options)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


def load_with_safetensors(folder: Path) -> dict[str, torch.Tensor]:
    """All of a Hugging Face folder, by the stock reader, each tensor from the file that the index says."""
    weight_map = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]
    files = {name: load_file(folder / name) for name in set(weight_map.values())}
    assert sorted(weight_map) == sorted(name for file in files.values() for name in file)
    return {name: files[file][name] for name, file in weight_map.items()}


def test_a_ragged_checkpoint_of_torchs_goes_to_hugging_face_and_back(tmp_path: Path) -> None:
    whole = torch.arange(24.0).view(6, 4)
    write_chunks(tmp_path / "torch", "w", whole, RAGGED_BOXES)
    convert_with_command(tmp_path / "torch", tmp_path / "hf", "huggingface")
    assert_same(load_with_safetensors(tmp_path / "hf"), {"w": whole})
    convert_with_command(tmp_path / "hf", tmp_path / "again", "torch")
    assert_same(load_with_torch(tmp_path / "again"), {"w": whole})
    assert sorted(folder.name for folder in tmp_path.iterdir()) == ["again", "hf", "torch"]


def test_a_ragged_checkpoint_of_ours_goes_to_hugging_face_and_back(tmp_path: Path) -> None:
    whole, short, empty = torch.arange(24.0).view(6, 4), torch.arange(6, dtype=torch.bfloat16), torch.zeros(0, 2)
    checkpoint.save({"model": {"w": whole, "b": short}, "none": empty}, tmp_path / "saved")
    options = ("--ranks", 3, "--units", "5,0,19", "--dims", "0,1", "--fallback", "shard")
    assert run_hyper_parallel("reshard", tmp_path / "saved", tmp_path / "ours", *options).returncode == 0
    assert sorted(OwnDirectory(tmp_path / "ours").tensors["model.w"].boxes) == RAGGED_BOXES
    convert_with_command(tmp_path / "ours", tmp_path / "hf", "huggingface", "--max-file-size", 20)
    tensors = {"model.w": whole, "model.b": short, "none": empty}
    assert_same(load_with_safetensors(tmp_path / "hf"), tensors)
    assert len(list((tmp_path / "hf").glob("*.safetensors"))) > 1
    convert_with_command(tmp_path / "hf", tmp_path / "again", "hyper_parallel")
    assert_same(checkpoint.read(tmp_path / "again"), tensors)


def test_values_of_torchs_do_not_go_to_hugging_face_unless_dropped(tmp_path: Path) -> None:
    save_with_torch(nested_state(), tmp_path / "torch")
    ran = run_hyper_parallel("convert", tmp_path / "torch", tmp_path / "hf", "--to", "huggingface")
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr.startswith("hyper-parallel: IN holds 2 values beside tensors, 'optimizer.groups.0.lr' for one")
    assert os.listdir(tmp_path) == ["torch"]
    convert_with_command(tmp_path / "torch", tmp_path / "hf", "huggingface", "--drop-values")
    assert set(load_with_safetensors(tmp_path / "hf")) == {
        "model.w", "model.deep.b", "optimizer.state.0.m", "optimizer.state.1.m",
    }  # fmt: skip


def test_a_damaged_checkpoint_of_torchs_leaves_nothing_beside_it(tmp_path: Path) -> None:
    save_with_torch({"w": torch.ones(2)}, tmp_path / "torch")
    (tmp_path / "torch" / "__0_0.distcp").unlink()
    ran = run_hyper_parallel("convert", tmp_path / "torch", tmp_path / "hf", "--to", "huggingface")
    assert (ran.returncode, ran.stdout) == (1, "")
    first, second = ran.stderr.splitlines()
    assert first.startswith("convert: ")
    assert first.endswith("cannot be opened: No such file or directory")
    assert second == (
        f"hyper-parallel: '{sys.executable}', which converts torch checkpoints, ended with exit code 1; "
        "its message stands above"
    )
    assert os.listdir(tmp_path) == ["torch"]
