"""What one call on a small DTensor adds to the same call on plain tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from paired.figure import AtMost, Figure
from paired.measure import Call, Sides, nothing
from torch.distributed.tensor import DTensor as TorchDTensor

from dtensor_bench.worlds import Worlds, check_equal
from hyper_parallel import DTensor, Placement, RaggedShard, Shard

_ROWS, _COLUMNS = 8, 8  # of a rank's part
_OPERATION = AtMost(0.6)
_WRAPPING = AtMost(0.3)


def figures(worlds: Worlds) -> list[Figure]:
    """Operations on ours by Shard(0) and by RaggedShard, both beside torch's Shard(0); then wrapping."""
    ranks = worlds.mesh.size()
    placements = {"Shard(0)": Shard(0), "RaggedShard": RaggedShard((0,), (1,) * ranks)}
    operations: dict[str, Callable[[Any, Any], Any]] = {
        "a + b": lambda a, b: a + b,
        "a.mul_(1.0)": lambda a, _: a.mul_(1.0),
        "torch.relu(a)": lambda a, _: torch.relu(a),
    }
    return [
        *(
            Figure(f"{name}, {placed}", _OPERATION, _operation(worlds, operation, placement))
            for name, operation in operations.items()
            for placed, placement in placements.items()
        ),
        *(
            Figure(f"from_local, {placed}", _WRAPPING, _from_local(worlds, placement))
            for placed, placement in placements.items()
        ),
        Figure("redistribute to the same layout", _WRAPPING, _no_redistribution(worlds)),
    ]


def _operation(worlds: Worlds, operation: Callable[[Any, Any], Any], placement: Placement) -> Callable[[], Sides]:
    """The sides of an operation on two tensors."""

    def called_with(operands: Sequence[torch.Tensor]) -> Call:
        a, b = operands
        return lambda: operation(a, b)

    def sides() -> Sides:
        blocks = [torch.rand(_ROWS, _COLUMNS) for _ in range(2)]
        plain = [_part(block, placement).clone() for block in blocks]
        ours = [worlds.ours(part.clone(), placement, _shape(worlds)) for part in plain]
        theirs = [worlds.theirs(block.clone(), Shard(0)) for block in blocks]
        check_equal(operation(*ours).to_local(), _part(operation(*theirs).to_local(), placement))
        return Sides(called_with(ours), called_with(theirs), called_with(plain))

    return sides


def _from_local(worlds: Worlds, placement: Placement) -> Callable[[], Sides]:
    """The sides of wrapping a local tensor; all that they do is added."""

    def sides() -> Sides:
        block = torch.rand(_ROWS, _COLUMNS)
        part, shape = _part(block, placement), _shape(worlds)
        mesh, placements = worlds.mesh, [placement]
        torch_mesh, torch_placements = worlds.torch_mesh, [worlds.torch_placement(Shard(0))]
        from_local, torch_from_local = DTensor.from_local, TorchDTensor.from_local
        return Sides(
            lambda: from_local(part, mesh, placements, shape),
            lambda: torch_from_local(block, torch_mesh, torch_placements, run_check=False),
            nothing,
        )

    return sides


def _no_redistribution(worlds: Worlds) -> Callable[[], Sides]:
    """The sides of a redistribution that has nothing to do; all that they do is added."""

    def sides() -> Sides:
        block = torch.rand(_ROWS, _COLUMNS)
        ours, theirs = worlds.ours(block, Shard(0), _shape(worlds)), worlds.theirs(block, Shard(0))
        mesh, placements = worlds.mesh, [Shard(0)]
        torch_mesh, torch_placements = worlds.torch_mesh, [worlds.torch_placement(Shard(0))]
        return Sides(
            lambda: ours.redistribute(mesh, placements),
            lambda: theirs.redistribute(torch_mesh, torch_placements),
            nothing,
        )

    return sides


def _shape(worlds: Worlds) -> tuple[int, int]:
    return _ROWS * worlds.mesh.size(), _COLUMNS


def _part(block: torch.Tensor, placement: Placement) -> torch.Tensor:
    """The block as a rank holds it: flat where the placement is ragged."""
    return block.flatten() if isinstance(placement, RaggedShard) else block
