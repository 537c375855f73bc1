"""The standard planners under the path of the specification."""

from __future__ import annotations

from hyper_parallel.checkpoint import StandardLoadPlanner, StandardSavePlanner

__all__ = ["StandardLoadPlanner", "StandardSavePlanner"]
