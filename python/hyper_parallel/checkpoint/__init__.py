"""Distributed checkpoints: saved under one layout and number of ranks, loaded under any other.

    save(state_dict, "run/step100")                    every rank, with its own part
    load(state_dict, "run/step100")                    in place; any layout, any number of ranks
    handle = async_save(state_dict, "run/step200")     goes on in the background
    whole = read("run/step100")                        one process, plain tensors

A checkpoint is a directory of safetensors files and a ``.metadata`` that makes them one: it is the last to appear, so a
directory holds the old checkpoint or the new one, complete, whatever dies in between. All bytes carry checksums;
nothing is pickled. It is the same on torch and on MindSpore: what one of them saved, the other loads.

Who plans and where bytes go can be changed: derive from ``StandardSavePlanner`` or ``StandardLoadPlanner``, or from
``StorageWriter`` and ``StorageReader``.
"""

from __future__ import annotations

from hyper_parallel._core import (
    CheckpointMetadata,
    CheckpointParts,
    ChunkStorageMetadata,
    FileSystemReader,
    FileSystemWriter,
    GlobalSavePlan,
    LoadPlan,
    LoadPlanner,
    MetadataIndex,
    PlannedTensor,
    Progress,
    RangeReader,
    ReadItem,
    SavePlan,
    SavePlanner,
    StorageInfo,
    StorageReader,
    StorageWriter,
    TensorStorageMetadata,
    WriteItem,
    block_checksums,
)
from hyper_parallel.checkpoint._api import async_save, load, read, save
from hyper_parallel.checkpoint._async import AsyncSave
from hyper_parallel.checkpoint._framework import CopyStager
from hyper_parallel.checkpoint._planners import StandardLoadPlanner, StandardSavePlanner
from hyper_parallel.errors import CheckpointError

__all__ = [
    "AsyncSave",
    "CheckpointError",
    "CheckpointMetadata",
    "CheckpointParts",
    "ChunkStorageMetadata",
    "CopyStager",
    "FileSystemReader",
    "FileSystemWriter",
    "GlobalSavePlan",
    "LoadPlan",
    "LoadPlanner",
    "MetadataIndex",
    "PlannedTensor",
    "Progress",
    "RangeReader",
    "ReadItem",
    "SavePlan",
    "SavePlanner",
    "StandardLoadPlanner",
    "StandardSavePlanner",
    "StorageInfo",
    "StorageReader",
    "StorageWriter",
    "TensorStorageMetadata",
    "WriteItem",
    "async_save",
    "block_checksums",
    "load",
    "read",
    "save",
]
