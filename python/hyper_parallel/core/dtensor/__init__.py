"""``DTensor`` under the path of the specification, both as a module and as a package.

The framework is imported when ``DTensor`` is asked for, not by ``core.dtensor.layout`` and its like.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import hyper_parallel

if TYPE_CHECKING:
    from hyper_parallel import DTensor, distribute_tensor

__all__ = ["DTensor", "distribute_tensor"]


def __getattr__(name: str) -> Any:  # noqa: ANN401
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(hyper_parallel, name)
