"""The most memory that a save and a load take beyond what the process has when they are called.

It is counted from VmRSS at entry to VmHWM, which is set back before. What a load fills is made inside and counts.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
from paired.measure import Call
from paired.table import size_text

from checkpoint_bench import stock
from checkpoint_bench.bench import Bench
from checkpoint_bench.line import Line
from checkpoint_bench.weights import EVEN, UNEVEN, Weights, empty, large_weights, numbered
from hyper_parallel import checkpoint

_ALLOWED = 64 << 20  # beside the local bytes
_REPETITIONS = 3
_STATUS = Path("/proc/self/status")
_CLEAR_REFS = Path("/proc/self/clear_refs")
_RESET_PEAK = "5"


def memory_lines(bench: Bench) -> Iterator[Line]:
    """Saves and loads of large tensors."""
    for units in (UNEVEN, EVEN):
        weights = large_weights(bench, units)
        with bench.folder() as folder:
            ours, theirs = weights.ours(numbered), weights.theirs(numbered)
            save = partial(checkpoint.save, ours, folder / "ours", progress=False)
            yield _line("save", weights, save, partial(stock.save, theirs, folder / "theirs"))
            yield _line("load", weights, partial(_load, weights, folder), partial(_load_by_torch, weights, folder))


def _load(weights: Weights, folder: Path) -> None:
    checkpoint.load(weights.ours(empty), folder / "ours", progress=False)


def _load_by_torch(weights: Weights, folder: Path) -> None:
    stock.load(weights.theirs(empty), folder / "theirs")


def _line(what: str, weights: Weights, ours: Call, theirs: Call) -> Line:
    share = weights.bytes // sum(weights.units)
    own, own_local = _worst(ours, share * weights.units[weights.bench.rank])
    their, their_local = _worst(theirs, weights.bytes // weights.bench.ranks)
    return Line(
        f"peak memory of a {what}, {weights.bench.ranks} ranks, {weights.units_text}",
        size_text(own),
        f"{stock.NAME} of {size_text(their_local)}",
        size_text(their),
        "",
        "",
        f"<= {size_text(own_local)} + {size_text(_ALLOWED)}",
        "yes" if own <= own_local + _ALLOWED else "missed",
    )


def _worst(call: Call, local: int) -> tuple[int, int]:
    """The peak of the rank whose peak is furthest above its local bytes, and these."""
    peak = max(_peak(call) for _ in range(_REPETITIONS))
    found = [torch.zeros(2, dtype=torch.int64) for _ in range(dist.get_world_size())]
    dist.all_gather(found, torch.tensor([peak, local]))
    worst = max(found, key=lambda pair: int(pair[0] - pair[1]))
    return int(worst[0]), int(worst[1])


def _peak(call: Call) -> int:
    """Of one call on this rank, in bytes."""
    gc.collect()
    # What the allocator keeps for later would hide what the call takes.
    ctypes.CDLL(None).malloc_trim(0)
    dist.barrier()
    # Where it is not permitted the peak is that of the process's life so far, never too small.
    with contextlib.suppress(PermissionError):
        _CLEAR_REFS.write_text(_RESET_PEAK)
    entry = _status("VmRSS")
    call()
    return _status("VmHWM") - entry


def _status(name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+) kB$", _STATUS.read_text(), re.MULTILINE)
    if found is None:
        raise RuntimeError(f"{_STATUS} has no line {name}")
    return int(found[1]) << 10
