"""How long async_save keeps its caller, beside one copy of the same bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from paired.figure import AtMost
from paired.measure import Sides
from paired.table import size_text

from checkpoint_bench.bench import Bench
from checkpoint_bench.line import Line
from checkpoint_bench.weights import large_weights, numbered
from hyper_parallel import checkpoint

_GOAL = AtMost(1.5)


def background_lines(bench: Bench) -> Iterator[Line]:
    """Beside a copy into memory that is made for it, and into memory that is there."""
    for kept in (False, True):
        yield _line(bench, kept=kept)


def _line(bench: Bench, *, kept: bool) -> Line:
    weights = large_weights(bench, (1,) * bench.ranks)
    state = weights.ours(numbered)
    parts = [tensor.to_local() for tensor in state.values()]
    memory = _copied(parts, _memory_for(parts)) if kept else None
    under_way: list[checkpoint.AsyncSave] = []
    with bench.folder() as folder:

        def save() -> None:
            under_way.append(checkpoint.async_save(state, folder / "saved", progress=False))

        def copy() -> torch.Tensor:
            return _copied(parts, _memory_for(parts) if memory is None else memory)

        def settle() -> None:
            while under_way:
                under_way.pop().wait()

        ranks = f"{bench.ranks} rank{'s' * (bench.ranks != 1)}"
        text = f"blocked by async_save of {size_text(weights.bytes)}, {ranks}"
        baseline = f"copy into {'existing' if kept else 'fresh'} memory"
        return Line.timed(text, baseline, _GOAL, Sides(save, copy, settle=settle), bench.effort)


def _memory_for(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """One piece, which the allocator takes from the system and gives back to it."""
    return torch.empty(sum(part.numel() for part in parts), dtype=torch.float32)


def _copied(parts: Sequence[torch.Tensor], memory: torch.Tensor) -> torch.Tensor:
    begin = 0
    for part in parts:
        memory[begin : begin + part.numel()].copy_(part)
        begin += part.numel()
    return memory
