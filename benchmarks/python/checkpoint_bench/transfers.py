"""Saves and loads of whole state dicts, beside torch.distributed.checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from paired.figure import AtMost
from paired.measure import Sides
from paired.table import size_text
from torch.distributed.tensor import DTensor as TorchDTensor

from checkpoint_bench import stock
from checkpoint_bench.bench import Bench
from checkpoint_bench.freeing import wait_until_freed
from checkpoint_bench.line import Line
from checkpoint_bench.weights import EVEN, UNEVEN, Weights, empty, large_weights, numbered, small_weights
from hyper_parallel import DTensor, checkpoint

_GOAL = AtMost(0.5)
_SMALL_GOAL = AtMost(0.1)


def save_lines(bench: Bench) -> Iterator[Line]:
    """Saves of large tensors."""
    for units in (UNEVEN, EVEN):
        yield _save_line(large_weights(bench, units), _GOAL)


def load_lines(bench: Bench) -> Iterator[Line]:
    """Loads of large tensors."""
    for units in (UNEVEN, EVEN):
        yield _load_line(large_weights(bench, units), _GOAL)


def small_lines(bench: Bench) -> Iterator[Line]:
    """Saves and loads of many small tensors, in as many chunks on both sides."""
    yield _save_line(small_weights(bench, EVEN), _SMALL_GOAL)
    yield _load_line(small_weights(bench, EVEN), _SMALL_GOAL)


def _save_line(weights: Weights, goal: AtMost) -> Line:
    bench = weights.bench
    with bench.folder() as folder:
        ours, theirs = weights.ours(numbered), weights.theirs(numbered)
        sides = Sides(
            lambda: checkpoint.save(ours, folder / "ours", progress=False),
            lambda: stock.save(theirs, folder / "theirs"),
            settle=wait_until_freed,
        )
        sides.ours()
        sides.theirs()
        _check_loads(weights, folder)
        return Line.timed(_text("save", weights), stock.NAME, goal, sides, bench.effort)


def _load_line(weights: Weights, goal: AtMost) -> Line:
    bench = weights.bench
    with bench.folder() as folder:
        checkpoint.save(weights.ours(numbered), folder / "ours", progress=False)
        stock.save(weights.theirs(numbered), folder / "theirs")
        _check_loads(weights, folder)
        sides = Sides(lambda: _loaded(weights, folder), lambda: _loaded_by_torch(weights, folder))
        return Line.timed(_text("load", weights), stock.NAME, goal, sides, bench.effort)


def _loaded(weights: Weights, folder: Path) -> dict[str, DTensor]:
    targets = weights.ours(empty)
    checkpoint.load(targets, folder / "ours", progress=False)
    return targets


def _loaded_by_torch(weights: Weights, folder: Path) -> dict[str, TorchDTensor]:
    targets = weights.theirs(empty)
    stock.load(targets, folder / "theirs")
    return targets


def _check_loads(weights: Weights, folder: Path) -> None:
    """Raises unless both sides load what was saved."""
    weights.check_numbered(_loaded(weights, folder))
    weights.check_numbered(_loaded_by_torch(weights, folder))


def _text(what: str, weights: Weights) -> str:
    each = size_text(weights.bytes // weights.tensors)
    return f"{what} {size_text(weights.bytes)}: {weights.tensors} x {each}, {weights.bench.ranks} ranks, " + (
        weights.units_text
    )
