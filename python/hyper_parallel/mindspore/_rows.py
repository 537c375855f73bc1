"""x[i]: a row of a tensor that is sharded on dim 0, ragged with one unit on its owner."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hyper_parallel.errors import OutOfRangeError, UnimplementedError
from hyper_parallel.mindspore import _frames
from hyper_parallel.mindspore._arguments import integer, layout_on
from hyper_parallel.mindspore._group_check import check_mesh_together
from hyper_parallel.mindspore._shares import RowShare
from hyper_parallel.mindspore._texts import describe, placements_text
from hyper_parallel.placement import Placement, RaggedShard, Replicate, Shard

if TYPE_CHECKING:
    from hyper_parallel.mindspore.dtensor import DTensor

__all__ = ["row_of"]


def row_of(tensor: DTensor, index: object) -> DTensor:
    """Row ``index`` of dim 0: read and written through the tensor; raises as ``DTensor.__getitem__``."""
    row = integer(index, "x[i]: i")
    mesh_dim = _sharded_dim(tensor)
    rows = tensor.shape[0]
    if not -rows <= row < rows:
        raise OutOfRangeError(f"x[i]: index {row} is out of range for {rows} rows")
    row %= rows
    mesh = tensor.device_mesh
    check_mesh_together(
        mesh,
        "x[i]",
        lambda: None,
        lambda: f"{row} of {describe(tensor.layout, tensor.shape, tensor._local_tensor)}",
    )
    ranks = mesh.shape[mesh_dim]
    owner, local_row = divmod(row, -(-rows // ranks))
    placements: list[Placement] = [Replicate()] * mesh.ndim
    placements[mesh_dim] = RaggedShard((0,), tuple(int(rank == owner) for rank in range(ranks)))
    coordinate = mesh.get_coordinate()
    owns = coordinate is not None and coordinate[mesh_dim] == owner
    share = RowShare(_frames.share_of(tensor), local_row if owns else None)
    made: DTensor = _frames.make(share, layout_on(mesh, placements), tensor.shape[1:])
    return made


def _sharded_dim(tensor: DTensor) -> int:
    """The mesh dim of the one Shard(0) of a tensor whose rows can be taken."""
    if tensor.ndim == 1:
        raise UnimplementedError(
            "x[i] of a 1-D DTensor is not supported; redistribute it to Replicate(), or take to_local()"
        )
    if tensor.ndim == 0:
        raise OutOfRangeError("x[i] of a 0-D DTensor: there is no dim to index")
    sharded = [dim for dim, placement in enumerate(tensor.placements) if placement == Shard(0)]
    others = [placement for placement in tensor.placements if not placement.is_replicate()]
    if len(others) > 1 or len(sharded) != len(others):
        raise UnimplementedError(
            f"x[i] takes a DTensor with one Shard(0) and Replicate() beside, not {placements_text(tensor.layout)}; "
            "redistribute it first"
        )
    if not sharded:
        raise UnimplementedError(
            f"x[i] takes a DTensor with one Shard(0), not {placements_text(tensor.layout)}; take to_local()[i] of a "
            "replicated one"
        )
    return sharded[0]
