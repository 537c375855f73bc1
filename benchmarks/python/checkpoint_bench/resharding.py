"""`hyper-parallel reshard` beside copying the same files."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch.distributed as dist
from paired.figure import AtMost
from paired.measure import Sides, nothing
from paired.table import size_text

from checkpoint_bench.bench import Bench
from checkpoint_bench.line import Line
from checkpoint_bench.weights import UNEVEN, large_weights, numbered
from hyper_parallel import checkpoint

_GOAL = AtMost(1.5)
_RANKS = 3
_UNITS = "3,0,1"


def resharding_lines(bench: Bench) -> Iterator[Line]:
    """Both read from the page cache and flush what they write. One rank starts the programs, the others wait."""
    large = replace(bench, sizes=replace(bench.sizes, state=bench.sizes.resharded))
    weights = large_weights(large, UNEVEN)
    what = f"reshard {size_text(weights.bytes)}, {weights.units_text} -> {_UNITS}"
    if not _has_reshard(bench.command):
        yield Line.skipped(what, f"{bench.command} has no subcommand reshard; --command says where one is that has")
        return
    with bench.folder() as folder:
        source, target = folder / "source", folder / "target"
        checkpoint.save(weights.ours(numbered), source, progress=False)

        def settle() -> None:
            if target.exists():
                shutil.rmtree(target)

        sides = Sides(nothing, nothing)
        if bench.rank == 0:
            sides = Sides(lambda: _reshard(bench.command, source, target), lambda: _copy(source, target), settle=settle)
            sides.ours()
            _check_file_count(target)
            settle()
        dist.barrier()
        yield Line.timed(what, "cp --reflink=never, fsync", _GOAL, sides, bench.effort)


def _has_reshard(command: Path) -> bool:
    if not command.is_file():
        return False
    shown = subprocess.run([command, "reshard", "--help"], capture_output=True, text=True, check=False)
    return shown.returncode == 0 and "reshard [OPTIONS] IN OUT" in shown.stdout


def _reshard(command: Path, source: Path, target: Path) -> None:
    arguments = ["--ranks", str(_RANKS), "--units", _UNITS]
    subprocess.run([command, "reshard", source, target, *arguments], capture_output=True, check=True)


def _copy(source: Path, target: Path) -> None:
    subprocess.run(["cp", "-r", "--reflink=never", source, target], check=True)
    for path in (*target.iterdir(), target, target.parent):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _check_file_count(target: Path) -> None:
    """Raises unless there is a file for each rank that stores anything."""
    metadata = checkpoint.CheckpointMetadata.parse((target / ".metadata").read_bytes())
    storing = sum(units != "0" for units in _UNITS.split(","))
    if len(metadata.files) != storing:
        raise AssertionError(f"reshard to units {_UNITS} has written {len(metadata.files)} files, not {storing}")
