"""``DTensor`` under the path of the specification."""

from __future__ import annotations

from hyper_parallel import DTensor, distribute_tensor

__all__ = ["DTensor", "distribute_tensor"]
