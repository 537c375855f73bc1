"""Checkpoints of torch's in tests: saved and loaded by torch, and changed behind its back."""

from __future__ import annotations

import io
import pickle
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.checkpoint.default_planner import _EmptyStateDictLoadPlanner
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter, _StorageInfo
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, Metadata, MetadataIndex, TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import _load_state_dict
from torch.distributed.checkpoint.state_dict_saver import save

from hyper_parallel.checkpoint import convert
from hyper_parallel.checkpoint._torch_directory import TorchDirectory
from hyper_parallel.checkpoint._torch_writer import write_torch_directory
from support.checkpoints import bits


def save_with_torch(state: dict[str, Any], folder: Path, **options: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        save(state, storage_writer=FileSystemWriter(folder, **options))


def load_with_torch(folder: Path) -> dict[str, Any]:
    """All of a checkpoint, by torch."""
    state: dict[str, Any] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _load_state_dict(
            state,
            storage_reader=FileSystemReader(folder),
            planner=_EmptyStateDictLoadPlanner(),
            no_dist=True,
        )
    return state


def assert_same(given: Any, expected: Any) -> None:
    """Equal types, nesting and bits."""
    assert type(given) is type(expected)
    if isinstance(expected, torch.Tensor):
        assert (given.dtype, given.shape) == (expected.dtype, expected.shape)
        assert bits(given) == bits(expected)
    elif isinstance(expected, dict):
        assert list(given) == list(expected) or set(given) == set(expected)
        for key, item in expected.items():
            assert_same(given[key], item)
    elif isinstance(expected, list | tuple):
        assert len(given) == len(expected)
        for mine, item in zip(given, expected, strict=True):
            assert_same(mine, item)
    else:
        assert repr(given) == repr(expected)


def nested_state() -> dict[str, Any]:
    return {
        "model": {"w": torch.arange(6.0).view(2, 3).t(), "deep": {"b": torch.tensor(3, dtype=torch.int64)}},
        "optimizer": {"state": [{"m": torch.ones(2)}, {"m": torch.zeros(0, 3)}], "groups": [{"lr": 0.1}]},
        "step": 7,
    }


def rewrite(source: Path, target: Path) -> None:
    """Writes a checkpoint of torch's again, in its own format."""
    with TorchDirectory(source) as found:
        write_torch_directory(found, target)


WRITERS = pytest.mark.parametrize("write", [convert.from_torch, rewrite], ids=["ours", "torchs"])


def write_chunks(folder: Path, name: str, whole: torch.Tensor, chunks: list[tuple[Any, Any]]) -> None:
    """A checkpoint of torch's with a tensor in these boxes."""
    save_with_torch({name: whole}, folder)
    metadata = read_metadata(folder)
    entry = metadata.state_dict_metadata[name]
    assert isinstance(entry, TensorStorageMetadata)
    entry.chunks = []
    metadata.storage_data = {}
    with (folder / "boxes.distcp").open("wb") as file:
        for offsets, sizes in chunks:
            begin = file.tell()
            cells = tuple(slice(offset, offset + size) for offset, size in zip(offsets, sizes, strict=True))
            torch.save(whole[cells].clone(), file)
            entry.chunks.append(ChunkStorageMetadata(torch.Size(offsets), torch.Size(sizes)))
            place = _StorageInfo("boxes.distcp", begin, file.tell() - begin)
            metadata.storage_data[MetadataIndex(name, torch.Size(offsets))] = place
    write_metadata(folder, metadata)


def read_metadata(folder: Path) -> Metadata:
    metadata = pickle.loads((folder / ".metadata").read_bytes())
    assert isinstance(metadata, Metadata)
    return metadata


def write_metadata(folder: Path, metadata: object) -> None:
    (folder / ".metadata").write_bytes(pickle.dumps(metadata))


def replace_item(folder: Path, name: str, item: object, *, length: int | None = None) -> None:
    """Puts what torch.save makes of `item` where the metadata has the data of `name`."""
    saved = io.BytesIO()
    torch.save(item, saved)
    replace_bytes(folder, name, saved.getvalue(), length=length)


def replace_bytes(folder: Path, name: str, data: bytes, *, length: int | None = None) -> None:
    metadata = read_metadata(folder)
    (folder / "other.distcp").write_bytes(data)
    for index, place in metadata.storage_data.items():
        if index.fqn == name:
            place.relative_path, place.offset = "other.distcp", 0
            place.length = len(data) if length is None else length
    write_metadata(folder, metadata)


def doubled(depth: int) -> tuple[Any, ...]:
    """A tuple of little memory and 2^depth items."""
    value: tuple[Any, ...] = ()
    for _ in range(depth):
        value = (value, value)
    return value
