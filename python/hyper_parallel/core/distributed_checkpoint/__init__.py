"""``hyper_parallel.checkpoint`` under the path of the specification."""

from __future__ import annotations

from hyper_parallel.checkpoint import *  # noqa: F403
from hyper_parallel.checkpoint import __all__ as __all__
