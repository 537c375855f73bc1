"""Saving in the background under the path of the specification."""

from __future__ import annotations

from hyper_parallel.checkpoint import AsyncSave, async_save

__all__ = ["AsyncSave", "async_save"]
