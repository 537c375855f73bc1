"""What the autograd engine itself does with wrappers; everything else that reaches `__torch_dispatch__` is refused.

The engine adds the gradients that meet in one DTensor, detaches what a function saved, and casts a gradient to the
dtype of its tensor. These run on the DTensor as anywhere.
"""

from __future__ import annotations

from typing import Any

import torch

from hyper_parallel import _torch
from hyper_parallel.errors import UnimplementedError

_OPERATIONS = {
    torch.ops.aten.add.Tensor: "add",
    torch.ops.aten.add_.Tensor: "add_",
    torch.ops.aten.alias.default: "detach",
    torch.ops.aten.detach.default: "detach",
}


def run(function: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401
    """Runs one of the engine's operations.

    Raises:
        UnimplementedError: Any other operation: it came past torch's Python functions.
    """
    operation = _OPERATIONS.get(function)  # type: ignore[call-overload]
    if operation is not None:
        return _torch.call(operation, *args, **kwargs)
    if function is torch.ops.aten._to_copy.default and kwargs.get("dtype") is not None:
        return _torch.call("to", args[0], kwargs["dtype"], False, True)  # always a copy
    raise UnimplementedError(
        f"{function} bypassed DTensor: it reached the storage-less wrapper below torch's Python functions; "
        "take to_local() for this rank's part or full_tensor() for the whole"
    )
