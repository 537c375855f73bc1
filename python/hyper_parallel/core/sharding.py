"""``custom_shard`` and ``shard`` beside the import paths of the specification."""

from __future__ import annotations

from hyper_parallel import custom_shard, shard

__all__ = ["custom_shard", "shard"]
