"""What a checkpoint asks of torch."""

from __future__ import annotations

from typing import Any

import torch
from torch.distributed.tensor import DTensor as TorchDTensor

from hyper_parallel import _core, _torch, platform
from hyper_parallel._stock_checkpoint import CopyStager, boxes_of, view_of
from hyper_parallel._torch import TensorLoadPlanner, TensorSavePlanner
from hyper_parallel.checkpoint._dtypes import DTYPES
from hyper_parallel.dtensor import from_torch_dtensor
from hyper_parallel.errors import FailedPreconditionError, UnimplementedError

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

Tensor = torch.Tensor


def own_tensor(tensor: Any) -> Any:  # noqa: ANN401  (a tensor or DTensor)
    """What stands for a tensor of a state dict in a plan: torch's DTensor as ours, over the same memory."""
    return from_torch_dtensor(tensor) if isinstance(tensor, TorchDTensor) else tensor


def empty_tensor(name: str, stored: _core.TensorStorageMetadata) -> torch.Tensor:
    """A tensor for all of a stored one, not filled yet.

    Raises:
        UnimplementedError: torch lacks the dtype.
        FailedPreconditionError: There is no memory for it.
    """
    dtype = DTYPES.get(stored.dtype)
    if dtype is None:
        raise UnimplementedError(f"checkpoint entry '{name}' is stored as {stored.dtype}, which torch has no dtype for")
    try:
        return torch.empty(stored.size, dtype=dtype)
    except RuntimeError as error:
        raise FailedPreconditionError(f"no memory for checkpoint entry '{name}' of shape {stored.size}") from error


def exchange_over(group: Any) -> _core.Exchange:  # noqa: ANN401  (a process group)
    """How the ranks of a process group talk: over a Gloo group of its own, which all of them make here."""
    return _torch.GroupExchange(platform.message_group(group))
