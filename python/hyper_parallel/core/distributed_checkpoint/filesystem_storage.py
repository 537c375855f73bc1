"""The file system's storage under the path of the specification."""

from __future__ import annotations

from hyper_parallel.checkpoint import FileSystemReader, FileSystemWriter, StorageInfo

__all__ = ["FileSystemReader", "FileSystemWriter", "StorageInfo"]
