"""Functions and modules on distributed tensors: ``custom_shard`` and ``shard``."""

from __future__ import annotations

from hyper_parallel.sharding._custom_shard import custom_shard
from hyper_parallel.sharding._shard import shard

__all__ = ["custom_shard", "shard"]
