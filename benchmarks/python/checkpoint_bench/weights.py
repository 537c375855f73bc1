"""The tensors that are saved and loaded, as ours and as torch's own."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch.distributed.tensor import DTensor as TorchDTensor
from torch.distributed.tensor import Shard as TorchShard

from checkpoint_bench.bench import Bench
from hyper_parallel import DTensor, RaggedShard

UNEVEN = (1, 2, 0, 5)
"""Units of four ranks, one of them with nothing."""
EVEN = (1, 1, 1, 1)

_TENSORS = 8
_COLUMNS = 4096
_SMALL_SHAPE = (8, 128)
_ITEM_BYTES = 4

Fill = Callable[[int, range], torch.Tensor]
"""Makes a part of a tensor, flat: of the tensor with that number, the elements at those flat indices."""


def numbered(number: int, part: range) -> torch.Tensor:
    """Every element of every tensor another one, up to rounding."""
    return torch.arange(part.start, part.stop, dtype=torch.float32) + number


def empty(_number: int, part: range) -> torch.Tensor:
    """Memory to load into."""
    return torch.empty(len(part), dtype=torch.float32)


@dataclass(frozen=True)
class Weights:
    """Float32 tensors of equal shapes, ours by RaggedShard.

    Torch's are by Shard(0), in equal parts whatever our units are: its own DTensor knows no others, and none suit it
    better.

    Args:
        bench: The ranks.
        units: Ours, of every tensor.
        tensors: How many.
        shape: Of each.
    """

    bench: Bench
    units: tuple[int, ...]
    tensors: int
    shape: tuple[int, int]

    @property
    def bytes(self) -> int:
        """Of all tensors and ranks."""
        return self.tensors * math.prod(self.shape) * _ITEM_BYTES

    @property
    def units_text(self) -> str:
        return "even" if len(set(self.units)) == 1 else f"units {','.join(map(str, self.units))}"

    def own_part(self) -> range:
        """What of each tensor this rank has of ours."""
        ends = [0, *itertools.accumulate(self.units)]
        unit = math.prod(self.shape) // sum(self.units)
        return range(ends[self.bench.rank] * unit, ends[self.bench.rank + 1] * unit)

    def their_part(self) -> range:
        """What of each tensor this rank has of torch's."""
        share = math.prod(self.shape) // self.bench.ranks
        return range(self.bench.rank * share, (self.bench.rank + 1) * share)

    def ours(self, fill: Fill) -> dict[str, DTensor]:
        """A state dict of ours."""
        mesh, placements, part = self.bench.mesh, [RaggedShard((0,), self.units)], self.own_part()
        return {
            _name(number): DTensor.from_local(fill(number, part), mesh, placements, self.shape)
            for number in range(self.tensors)
        }

    def theirs(self, fill: Fill) -> dict[str, TorchDTensor]:
        """A state dict of torch's."""
        mesh, placements, part = self.bench.torch_mesh, [TorchShard(0)], self.their_part()
        return {
            _name(number): TorchDTensor.from_local(
                fill(number, part).view(-1, self.shape[1]), mesh, placements, run_check=False
            )
            for number in range(self.tensors)
        }

    def check_numbered(self, loaded: Mapping[str, DTensor | TorchDTensor]) -> None:
        """Raises unless this rank's parts are what `numbered` made, bit for bit."""
        for number in range(self.tensors):
            tensor = loaded[_name(number)]
            part = self.own_part() if isinstance(tensor, DTensor) else self.their_part()
            if not tensor.to_local().flatten().equal(numbered(number, part)):
                raise AssertionError(f"{_name(number)} was loaded with other elements than were saved, as {tensor}")


def large_weights(bench: Bench, units: tuple[int, ...]) -> Weights:
    """A few tensors, of `bench.sizes.state` bytes in all."""
    return Weights(bench, units, _TENSORS, (bench.sizes.state // (_TENSORS * _COLUMNS * _ITEM_BYTES), _COLUMNS))


def small_weights(bench: Bench, units: tuple[int, ...]) -> Weights:
    """Many tensors of 4 KiB."""
    return Weights(bench, units, bench.sizes.small_tensors, _SMALL_SHAPE)


def _name(number: int) -> str:
    return f"layers.{number}.weight"
