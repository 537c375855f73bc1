"""The placements under the path of the specification."""

from __future__ import annotations

from hyper_parallel.placement import Partial, Placement, RaggedShard, Replicate, Shard

__all__ = ["Partial", "Placement", "RaggedShard", "Replicate", "Shard"]
