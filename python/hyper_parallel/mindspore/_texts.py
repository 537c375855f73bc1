"""How layouts and tensors are named in messages: as the C++ layer on torch names them."""

from __future__ import annotations

from collections.abc import Sequence

import mindspore

from hyper_parallel import _core
from hyper_parallel.mindspore._graph import is_tracked
from hyper_parallel.placement import Placement

__all__ = ["describe", "placement_text", "placements_text"]

# Ranks whose units and numbers a message lists one by one.
_LISTED = 64


def placements_text(layout: _core.Layout) -> str:
    """ "[Shard(0), Replicate()]"."""
    text = _core.Layout.__repr__(layout)
    return text[text.rindex("[") : -1]


def placement_text(placement: Placement, mesh: _core.DeviceMesh) -> str:
    """ "Shard(0)"."""
    return placements_text(_core.Layout(mesh.flattened(), [placement]))[1:-1]


def describe(layout: _core.Layout, shape: Sequence[int], local: mindspore.Tensor) -> str:
    """The facts of a tensor of which this rank has ``local`` that must be the same on every rank, as one text."""
    mesh = layout.core_mesh
    gradient = "with" if is_tracked(local) else "without"
    if mesh.size() <= _LISTED:
        where = f"{placements_text(layout)} on {_core.DeviceMesh.__repr__(mesh)}"
    else:
        # The hash stands for units and ranks too many to list; ranks of one job run one program and hash alike.
        where = f"on a mesh of shape {mesh.shape}, layout hash {hash(layout)}"
    return f"shape {tuple(shape)} {local.dtype} {gradient} gradient, {where}"
