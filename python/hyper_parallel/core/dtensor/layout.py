"""``Layout`` under the path of the specification."""

from __future__ import annotations

from hyper_parallel.layout import Layout, RaggedShardInfo

__all__ = ["Layout", "RaggedShardInfo"]
