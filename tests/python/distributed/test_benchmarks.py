"""The benchmarks run; what they find is not judged here."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[3] / "benchmarks" / "python"
WRONG_ARGUMENTS = 2
TIME_LIMIT = 170.0
"""Seconds of a quick run, which imports torch and forks its ranks."""
SPREAD = r"\d+\.\d\d \[\d+\.\d\d, \d+\.\d\d\]"


def bench(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs one of the programs."""
    command = [sys.executable, BENCHMARKS / f"bench_{program}.py", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=TIME_LIMIT, check=False)


def only_row(ran: subprocess.CompletedProcess[str], kind: str) -> str:
    """The row that starts so: there is one, and it ends with a verdict."""
    (row,) = [line for line in ran.stdout.splitlines() if line.startswith(kind)]
    assert row.endswith((" yes", " missed"))
    return row


@pytest.mark.timeout(TIME_LIMIT + 10)
def test_quick_run_prints_a_row_of_every_kind() -> None:
    ran = bench("dtensor", "--quick")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    for kind in ("a + b, RaggedShard", "from_local, Shard(0)", "AdamW.step, 50 parameters, foreach=True, RaggedShard"):
        only_row(ran, kind)
    assert "MiB" not in ran.stdout
    row = only_row(ran, "Shard(0) -> Shard(1), 1 KiB")
    assert re.search(rf"\d (ms|µs) +{SPREAD} +{SPREAD} +<= 1 ", row)


@pytest.mark.timeout(TIME_LIMIT + 10)
def test_quick_run_of_checkpoints_prints_a_row_of_every_kind_and_leaves_nothing(tmp_path: Path) -> None:
    ran = bench("checkpoint", "--quick", "--directory", str(tmp_path), "--command", str(tmp_path / "no-program"))
    assert ran.returncode == 0, ran.stdout + ran.stderr
    for what in ("save", "load"):
        for kind in ("1 MiB: 8 x 128 KiB, 4 ranks, units 1,2,0,5", "80 KiB: 20 x 4 KiB, 4 ranks, even"):
            row = only_row(ran, f"{what} {kind}")
            assert re.search(rf"\d ms +torch DCP, Shard\(0\) +\d+\.\d\d ms +{SPREAD} +{SPREAD} +<= 0\.[15] ", row)
        row = only_row(ran, f"peak memory of a {what}, 4 ranks, units 1,2,0,5")
        assert re.search(r"\d [KM]?i?B +torch DCP, Shard\(0\) of 256 KiB +\d.* +<= .*B \+ 64 MiB +yes", row)
    for ranks in ("4 ranks", "1 rank"):
        rows = [
            line for line in ran.stdout.splitlines() if line.startswith(f"blocked by async_save of 1 MiB, {ranks} ")
        ]
        assert ["fresh" in row for row in rows] == [True, False]
    only_row(ran, "load a chunk of 1 MiB through 64 boxes of rows")
    only_row(ran, "load a chunk of 1 MiB through 64 boxes of columns")
    assert " < 2 s " in only_row(ran, "read metadata: 200 chunks, 20 names")
    (row,) = [line for line in ran.stdout.splitlines() if line.startswith("reshard 1 MiB, units 1,2,0,5 -> 3,0,1")]
    assert row.endswith("skipped")
    assert "no-program has no subcommand reshard" in row
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("program", "arguments", "text"),
    [
        ("dtensor", ["--pairs", "1"], "argument --pairs: '1' is not a number of at least 2"),
        ("dtensor", ["--only", "("], "'(' is not a regular"),
        ("checkpoint", ["--bytes", "1000"], "argument --bytes: '1000' is not a multiple of 1MiB"),
        ("checkpoint", ["--rows", "saves"], "argument --rows: invalid choice: 'saves'"),
        ("checkpoint", ["--directory", "/no/such"], "argument --directory: '/no/such' is not a directory"),
    ],
)
def test_wrong_arguments_end_before_any_rank_starts(program: str, arguments: list[str], text: str) -> None:
    ran = bench(program, *arguments)
    assert (ran.returncode, ran.stdout) == (WRONG_ARGUMENTS, "")
    assert text in ran.stderr
