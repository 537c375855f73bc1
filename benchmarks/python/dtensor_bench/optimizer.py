"""What a step of AdamW over many small DTensors adds to the same step over plain tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from paired.figure import AtMost, Figure
from paired.measure import Call, Sides
from torch import nn

from dtensor_bench.worlds import Worlds, check_equal
from hyper_parallel import Placement, RaggedShard, Shard

_PARAMETERS = 50
_ROWS, _COLUMNS = 8, 8  # of a rank's part
_GOAL = AtMost(0.5)


def figures(worlds: Worlds) -> list[Figure]:
    """A step over ours by Shard(0) and by RaggedShard, both beside torch's Shard(0)."""
    placements: dict[str, Placement] = {
        "Shard(0)": Shard(0),
        "RaggedShard": RaggedShard((0,), (1,) * worlds.mesh.size()),
    }
    loops = {"": None, ", foreach=True": True}
    return [
        Figure(f"AdamW.step, {_PARAMETERS} parameters{loop}, {placed}", _GOAL, _step(worlds, placement, foreach))
        for loop, foreach in loops.items()
        for placed, placement in placements.items()
    ]


def _step(worlds: Worlds, placement: Placement, foreach: bool | None) -> Callable[[], Sides]:
    """The sides of a step."""

    def step_of(tensors: Sequence[torch.Tensor]) -> Call:
        """What steps parameters over these tensors, which share their storage."""
        parameters = [nn.Parameter(tensor) for tensor in tensors]
        for parameter in parameters:
            parameter.grad = torch.ones_like(parameter)
        return torch.optim.AdamW(parameters, foreach=foreach).step

    def make_sides() -> Sides:
        blocks = [torch.rand(_ROWS, _COLUMNS) for _ in range(_PARAMETERS)]
        parts = [block.flatten() if isinstance(placement, RaggedShard) else block for block in blocks]
        shape = (_ROWS * worlds.mesh.size(), _COLUMNS)
        plain = [part.clone() for part in parts]
        ours = [worlds.ours(part.clone(), placement, shape) for part in parts]
        theirs = [worlds.theirs(block.clone(), Shard(0)) for block in blocks]
        sides = Sides(step_of(ours), step_of(theirs), step_of(plain))
        sides.ours()
        sides.theirs()
        for our, their in zip(ours, theirs, strict=True):
            check_equal(our.to_local().flatten(), their.to_local().flatten())
        return sides

    return make_sides
