"""What a checkpoint asks of the framework that this process computes with; chosen at the first import."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hyper_parallel import platform

if TYPE_CHECKING or platform.name() == "torch":
    from hyper_parallel.checkpoint._torch_framework import (
        CopyStager,
        Tensor,
        TensorLoadPlanner,
        TensorSavePlanner,
        boxes_of,
        empty_tensor,
        exchange_over,
        own_tensor,
        view_of,
    )
else:
    from hyper_parallel.checkpoint._mindspore_framework import (
        CopyStager,
        Tensor,
        TensorLoadPlanner,
        TensorSavePlanner,
        boxes_of,
        empty_tensor,
        exchange_over,
        own_tensor,
        view_of,
    )

__all__ = [
    "CopyStager",
    "Tensor",
    "TensorLoadPlanner",
    "TensorSavePlanner",
    "boxes_of",
    "empty_tensor",
    "exchange_over",
    "own_tensor",
    "view_of",
]
