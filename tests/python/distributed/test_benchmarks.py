"""The benchmarks run; what they find is not judged here."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[3] / "benchmarks" / "python"
WRONG_ARGUMENTS = 2
TIME_LIMIT = 110.0
"""Seconds of a quick run, which imports torch once for torchrun and once for each rank."""


def bench_dtensor(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs the program; as long as it is not under torchrun it starts that itself."""
    environment = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")}
    command = [sys.executable, BENCHMARKS / "bench_dtensor.py", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=TIME_LIMIT, env=environment, check=False)


@pytest.mark.timeout(TIME_LIMIT + 10)
def test_quick_run_prints_a_row_of_every_kind() -> None:
    ran = bench_dtensor("--quick")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    rows = [line for line in ran.stdout.splitlines() if line.endswith((" yes", " missed"))]
    for kind in ("a + b, RaggedShard", "from_local, Shard(0)", "AdamW.step, 50 parameters, foreach=True, RaggedShard"):
        assert sum(row.startswith(kind) for row in rows) == 1
    assert not any("MiB" in row for row in rows)
    (row,) = [row for row in rows if row.startswith("Shard(0) -> Shard(1), 1 KiB")]
    assert re.search(r"\d (ms|µs) +\d+\.\d\d \[\d+\.\d\d, \d+\.\d\d\] +\d+\.\d\d \[\d+\.\d\d, \d+\.\d\d\] +<= 1 ", row)


def test_wrong_arguments_end_before_any_rank_starts() -> None:
    for arguments, text in (
        (["--pairs", "0"], "--pairs 0: must be at least 1"),
        (["--only", "("], "'(' is not a regular"),
    ):
        ran = bench_dtensor(*arguments)
        assert (ran.returncode, ran.stdout) == (WRONG_ARGUMENTS, "")
        assert text in ran.stderr
