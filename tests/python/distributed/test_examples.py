"""The examples run as a user starts them."""

from __future__ import annotations

import json
import os
import re
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from hyper_parallel import RaggedShard

EXAMPLES = Path(__file__).parents[3] / "examples"
TIME_LIMIT = 50.0
"""Seconds of one start, which imports torch once for torchrun and once for each rank."""
STEPS = 3
WRONG_ARGUMENTS = 2
WORDS = "embeddings.word_embeddings.weight"


@pytest.fixture
def examples_on_path(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Lets a test import an example's parts."""
    monkeypatch.syspath_prepend(EXAMPLES)
    yield
    for name in [name for name in sys.modules if name.split(".")[0] == "embedding_training"]:
        del sys.modules[name]


def write_model(file: Path, *, rows: int = 36, columns: int = 8, padding: int = 0) -> torch.Tensor:
    """Writes a safetensors file of one float32 matrix behind `padding` bytes of another tensor; returns the matrix."""
    matrix = torch.randn(rows, columns, generator=torch.Generator().manual_seed(7))
    end = padding + matrix.nbytes
    header = json.dumps(
        {
            "__metadata__": {"format": "pt"},
            "first": {"dtype": "U8", "shape": [padding], "data_offsets": [0, padding]},
            WORDS: {"dtype": "F32", "shape": [rows, columns], "data_offsets": [padding, end]},
        }
    ).encode()
    file.write_bytes(struct.pack("<Q", len(header)) + header + bytes(padding) + matrix.numpy().tobytes())
    return matrix


def train_embedding(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Runs the example; as long as it is not under torchrun it starts that itself."""
    environment = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")}
    command = [sys.executable, EXAMPLES / "train_embedding.py", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=TIME_LIMIT, env=environment, check=False)


def test_train_embedding_on_two_ranks_equals_one_process(tmp_path: Path) -> None:
    write_model(tmp_path / "tiny.safetensors")
    ran = train_embedding(
        "--file", tmp_path / "tiny.safetensors", "--ranks", "2", "--units", "1,0", "--steps", str(STEPS)
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    lines = ran.stdout.splitlines()
    assert re.fullmatch(r"equal to one process: 5 of 5 parameters \(largest difference \d\.\de[-+]\d\d\)", lines[-1])
    losses = [line.split()[1:3] for line in lines if re.match(r"\d ", line) and " s " in line]
    assert len(losses) == STEPS
    assert all(float(together) == pytest.approx(float(alone), abs=1e-5) for together, alone in losses)
    assert float(losses[-1][0]) < float(losses[0][0])


@pytest.mark.usefixtures("examples_on_path")
@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--file", "."], ".: Is a directory"),
        (["--file", "tiny", "--tensor", "x"], "tiny: there is no tensor x"),
        (["--file", "tiny", "--tensor", "first"], "tiny: first is no float32 matrix: {'dtype': 'U8'"),
        (["--file", "tiny", "--units", "1,2"], "--units 1,2: there are 2 of them but 4 ranks"),
        (["--file", "tiny", "--units", "1,x,2,3"], "--units 1,x,2,3: must be integers with commas between them"),
        (["--file", "tiny", "--units", "0,0,0,0"], "--units 0,0,0,0: RaggedShard local_units is (0, 0, 0, 0)"),
        (["--file", "tiny", "--ranks", "0"], "--ranks 0: must be 1 to 64"),
        (["--file", "tiny", "--steps", "0"], "--steps 0: must be at least 1"),
    ],
    ids=lambda value: "_".join(value[2:] or value) if isinstance(value, list) else "",
)
def test_train_embedding_says_in_one_line_what_is_wrong(
    arguments: list[str],
    text: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from embedding_training.options import parse_options  # noqa: PLC0415

    write_model(tmp_path / "tiny")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        parse_options(arguments)
    assert ended.value.code == WRONG_ARGUMENTS
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"train_embedding: {text}")


@pytest.mark.usefixtures("examples_on_path")
def test_train_embedding_refuses_other_ranks_than_torchrun_started_once_for_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from embedding_training.options import parse_options  # noqa: PLC0415

    write_model(tmp_path / "tiny")
    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank, text in enumerate(["train_embedding: --ranks 3: torchrun has started 2\n", ""]):
        monkeypatch.setenv("RANK", str(rank))
        with pytest.raises(SystemExit):
            parse_options(["--file", str(tmp_path / "tiny"), "--ranks", "3"])
        assert capsys.readouterr().err == text


def test_train_embedding_without_its_file_starts_no_rank(tmp_path: Path) -> None:
    ran = train_embedding("--file", tmp_path / "missing")
    assert ran.returncode == WRONG_ARGUMENTS
    assert (ran.stdout, ran.stderr) == ("", f"train_embedding: {tmp_path / 'missing'}: No such file or directory\n")


@pytest.mark.usefixtures("examples_on_path")
@pytest.mark.parametrize(
    ("shape", "dims", "units"),
    [
        ((12, 8), (0,), (1, 2, 0, 3)),
        ((10, 96), (0, 1), (1, 2, 0, 3)),
        ((10,), (0,), (1, 4, 0, 5)),
        ((5, 7), (0,), (0, 2, 0, 3)),
    ],
    ids=["rows_divide", "elements_divide", "vector", "nothing_divides"],
)
def test_ragged_placement_cuts_any_shape(shape: tuple[int, ...], dims: tuple[int, ...], units: tuple[int, ...]) -> None:
    from embedding_training.network import ragged_placement  # noqa: PLC0415

    assert ragged_placement(shape, (1, 2, 0, 3)) == RaggedShard(dims, units)


@pytest.mark.usefixtures("examples_on_path")
def test_difference_sees_what_is_beyond_the_tolerance() -> None:
    from embedding_training.comparison import difference, verdict  # noqa: PLC0415

    one = torch.ones(3)
    same, other = difference("same", one, one + 1e-6), difference("other", one, torch.tensor([1.0, 1.0, 1.1]))
    assert (same.equal, other.equal) == (True, False)
    assert other.largest == pytest.approx(0.1)
    assert not difference("nan", one, torch.tensor([1.0, 1.0, torch.nan])).equal
    assert not difference("shape", one, one[:2]).equal
    assert verdict([same, other]) == "equal to one process: 1 of 2 parameters (largest difference 1.0e-01); not other"


@pytest.mark.usefixtures("examples_on_path")
@pytest.mark.parametrize("padding", [0, 4, 3])
def test_map_matrix_reads_the_bytes_of_its_tensor(padding: int, tmp_path: Path) -> None:
    from embedding_training.model_file import map_matrix  # noqa: PLC0415

    matrix = write_model(tmp_path / "tiny", padding=padding)
    mapped = map_matrix(tmp_path / "tiny", WORDS)
    assert mapped.equal(matrix)
    mapped.zero_()
    assert map_matrix(tmp_path / "tiny", WORDS).equal(matrix)


@pytest.mark.usefixtures("examples_on_path")
@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"1234567", "it has 7 bytes"),
        (struct.pack("<Q", 2**63), "its header does not fit"),
        (struct.pack("<Q", 3) + b"{]}", "Expecting property name"),
        (struct.pack("<Q", 2) + b"\xff\xff", "can't decode"),
        (struct.pack("<Q", 2) + b"[]", "its header is no JSON object"),
    ],
    ids=["short", "long_header", "not_json", "not_text", "list"],
)
def test_map_matrix_refuses_what_is_no_safetensors_file(content: bytes, text: str, tmp_path: Path) -> None:
    from embedding_training.model_file import ModelFileError, map_matrix  # noqa: PLC0415

    (tmp_path / "broken").write_bytes(content)
    with pytest.raises(ModelFileError, match=text):
        map_matrix(tmp_path / "broken", WORDS)


@pytest.mark.usefixtures("examples_on_path")
def test_map_matrix_refuses_bytes_that_are_not_there(tmp_path: Path) -> None:
    from embedding_training.model_file import ModelFileError, map_matrix  # noqa: PLC0415

    write_model(tmp_path / "cut")
    (tmp_path / "cut").write_bytes((tmp_path / "cut").read_bytes()[:-1])
    with pytest.raises(ModelFileError, match=r"its bytes 0 to 1152 do not hold \[36, 8\] of float32"):
        map_matrix(tmp_path / "cut", WORDS)
