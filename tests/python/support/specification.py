"""The example of the specification on RaggedShard: its mesh, shape, placement and shares."""

from __future__ import annotations

import torch

from hyper_parallel import DeviceMesh, DTensor, Placement, RaggedShard, distribute_tensor

SHAPE = (6, 4, 8)
EXAMPLE = RaggedShard((0, 1), (1, 2))
NUMEL = {0: 64, 1: 128}


def line(size: int = 2) -> DeviceMesh:
    return DeviceMesh((size,), ("fsdp",))


def spread(whole: torch.Tensor, placement: Placement = EXAMPLE) -> DTensor:
    return distribute_tensor(whole, line(), (placement,))
