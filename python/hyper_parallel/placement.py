"""Placements: how a tensor lies along one mesh dim.

===================================  ===============================================================================
``Replicate()``                      every rank holds all of it
``Shard(dim)``                       tensor dim ``dim`` in chunks of ``ceil(n / p)`` rows; the last may be empty
``Partial(reduce_op="sum")``         every rank holds a share; the value is their sum, avg, max or min
``RaggedShard(dims, local_units)``   every rank holds an uneven, contiguous run of the row-major tensor
===================================  ===============================================================================
"""

from __future__ import annotations

from hyper_parallel._core import Partial, Placement, RaggedShard, Replicate, Shard

__all__ = ["Partial", "Placement", "RaggedShard", "Replicate", "Shard"]
