"""One stored chunk that is loaded through many boxes, beside the same chunk loaded as one box."""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from paired.figure import AtMost
from paired.measure import Sides
from paired.table import size_text

from checkpoint_bench.bench import Bench
from checkpoint_bench.line import Line
from hyper_parallel import checkpoint
from hyper_parallel.checkpoint import ChunkStorageMetadata as Box

_GOAL = AtMost(1.2)
_BOXES = 64
_COLUMNS = 4096
_ITEM_BYTES = 4
_NAME = "weight"

Shape = tuple[int, int]


def box_lines(bench: Bench) -> Iterator[Line]:
    """Boxes of rows, which lie apart in the chunk, and of columns, which lie between each other."""
    shape = (bench.sizes.chunk // (_COLUMNS * _ITEM_BYTES), _COLUMNS)
    rows, columns = shape
    yield _line(bench, shape, "rows", _boxes(shape, (rows // _BOXES, columns)))
    yield _line(bench, shape, "columns", _boxes(shape, (rows, columns // _BOXES)))


def _line(bench: Bench, shape: Shape, what: str, boxes: Sequence[Box]) -> Line:
    with bench.folder() as folder:
        stored = torch.arange(shape[0] * shape[1], dtype=torch.float32).view(shape)
        checkpoint.save({_NAME: stored}, folder / "saved", progress=False)
        whole = _boxes(shape, shape)
        sides = Sides(lambda: _loaded(folder / "saved", shape, boxes), lambda: _loaded(folder / "saved", shape, whole))
        for wanted in (boxes, whole):
            _check(stored, _loaded(folder / "saved", shape, wanted))
        text = f"load a chunk of {size_text(bench.sizes.chunk)} through {len(boxes)} boxes of {what}"
        return Line.timed(text, "the same through one box", _GOAL, sides, bench.effort)


class _BoxPlanner(checkpoint.LoadPlanner):
    """Loads boxes of the tensor into fresh memory, end to end."""

    def __init__(self, shape: Shape, boxes: Sequence[Box]) -> None:
        super().__init__()
        self._shape = shape
        self.boxes = boxes
        memory = memoryview(mmap.mmap(-1, shape[0] * shape[1] * _ITEM_BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
        self.places: dict[tuple[int, ...], memoryview] = {}
        begin = 0
        for box in boxes:
            end = begin + box.sizes[0] * box.sizes[1] * _ITEM_BYTES
            self.places[box.offsets] = memory[begin:end]
            begin = end

    def build_local_plan(self, metadata: checkpoint.CheckpointMetadata) -> checkpoint.LoadPlan:
        return self.plan(metadata, [checkpoint.PlannedTensor(_NAME, "F32", self._shape, list(self.boxes))])

    def acquire_tensor(self, item: checkpoint.ReadItem) -> memoryview:
        """The whole box: there is one chunk, so the overlap is the box."""
        return self.places[item.dest_index.offset]


def _loaded(directory: Path, shape: Shape, boxes: Sequence[Box]) -> _BoxPlanner:
    planner = _BoxPlanner(shape, boxes)
    checkpoint.load({}, directory, planner=planner, progress=False)
    return planner


def _boxes(shape: Shape, sizes: Shape) -> list[Box]:
    """Boxes of those sizes that fill the shape."""
    return [
        Box((row, column), sizes) for row in range(0, shape[0], sizes[0]) for column in range(0, shape[1], sizes[1])
    ]


def _check(stored: torch.Tensor, loaded: _BoxPlanner) -> None:
    """Raises unless every box holds what is stored there."""
    for box in loaded.boxes:
        row, column = box.offsets
        cells = stored[row : row + box.sizes[0], column : column + box.sizes[1]]
        place = torch.frombuffer(loaded.places[box.offsets], dtype=torch.float32)
        if not place.equal(cells.flatten()):
            raise AssertionError(f"{box} was loaded with other elements than were saved")
