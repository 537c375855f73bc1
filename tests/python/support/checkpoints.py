"""Checkpoints in tests: bits of every dtype, what lies in a directory, and calls that must raise on every rank.

A directory is read here by the definition of its formats alone.
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from hyper_parallel import DTensor, HyperParallelError, checkpoint
from support.worker import Rank

DTYPES = (
    torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int64, torch.int8, torch.uint8, torch.bool,
    torch.complex64, torch.float8_e4m3fn,
)  # fmt: skip
SOON = 5.0
"""Seconds within which a fault of one rank must have raised on all: well before the group's timeout."""


def random_bits(shape: tuple[int, ...], dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    """A tensor of any bits, NaN and infinities among them; of bool True and False."""
    generator = torch.Generator().manual_seed(seed)
    size = torch.empty((), dtype=dtype).element_size()
    raw = torch.randint(0, 256, (math.prod(shape) * size,), dtype=torch.uint8, generator=generator)
    return (raw % 2 == 0 if dtype == torch.bool else raw.view(dtype)).reshape(shape)


def bits(tensor: torch.Tensor) -> bytes:
    """The elements' bytes, in row-major order."""
    whole = tensor.detach()
    return bytes(whole.contiguous().reshape(-1).view(torch.uint8).tolist())


def assert_same_bits(given: torch.Tensor, expected: torch.Tensor) -> None:
    """Equal dtype, shape and bytes."""
    assert given.dtype == expected.dtype
    assert given.shape == expected.shape
    assert bits(given) == bits(expected)


def local_of(tensor: torch.Tensor) -> torch.Tensor:
    """What this rank holds of it."""
    return tensor._local_tensor if isinstance(tensor, DTensor) else tensor


@dataclass(frozen=True)
class Chunk:
    """A chunk as the directory has it."""

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    file: str
    key: str
    data: bytes


def metadata_of(folder: Path) -> dict[str, Any]:
    """The JSON of `.metadata`, without the checksum that would refuse a changed one."""
    parsed: dict[str, Any] = json.loads((folder / ".metadata").read_text(encoding="utf-8"))
    parsed.pop("crc32c", None)
    return parsed


def write_metadata(folder: Path, metadata: object) -> None:
    """Replaces `.metadata`, by an object or by a text."""
    text = metadata if isinstance(metadata, str) else json.dumps(metadata)
    (folder / ".metadata").write_text(text, encoding="utf-8")


def read_safetensors(path: Path) -> dict[str, tuple[str, list[int], bytes]]:
    """Dtype, shape and bytes of each tensor of a file, which must be filled without a hole."""
    content = path.read_bytes()
    begin = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:begin])
    header.pop("__metadata__", None)
    spans = sorted(entry["data_offsets"] for entry in header.values())
    ends = [0, *(end for _, end in spans)]
    assert [start for start, _ in spans] == ends[:-1], "no hole and no overlap"
    assert begin + ends[-1] == len(content), "nothing behind the last tensor"
    return {
        key: (
            entry["dtype"],
            entry["shape"],
            content[begin + entry["data_offsets"][0] : begin + entry["data_offsets"][1]],
        )
        for key, entry in header.items()
    }


def data_files(folder: Path) -> list[str]:
    """The names of the data files, sorted: by save and then by rank."""
    return sorted(path.name for path in folder.glob("*.safetensors"))


def stored_bytes(folder: Path) -> int:
    """The bytes of all tensors in all data files."""
    return sum(len(data) for name in data_files(folder) for _, _, data in read_safetensors(folder / name).values())


def chunks_of(folder: Path, name: str) -> list[Chunk]:
    """The chunks of a tensor, in the order of the metadata; each is what its file says under the chunk's key."""
    metadata = metadata_of(folder)
    tensor = metadata["tensors"][name]
    dims = len(tensor["shape"])
    keys = tensor.get("tensor_keys") or [""] * len(tensor["chunks"])
    chunks = []
    for (file, begin, *box), key in zip(tensor["chunks"], keys, strict=True):
        path = folder / metadata["files"][file][0]
        assert metadata["files"][file][1] == path.stat().st_size
        dtype, shape, data = read_safetensors(path)[key or name]
        assert dtype == tensor["dtype"]
        assert shape == box[dims:]
        assert path.read_bytes()[begin : begin + len(data)] == data
        chunks.append(Chunk(tuple(box[:dims]), tuple(box[dims:]), path.name, key or name, data))
    return chunks


def content_of(folder: Path) -> dict[str, bytes]:
    """Every file below a folder with its bytes, but for the lock, whose content is the savers' own affair."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != ".save.lock"
    }


def raised_everywhere(
    rank: Rank, kind: type[BaseException], action: Callable[[], object], *texts: str, group: Any = None
) -> str:
    """The text with which `action` raised on this rank: the library's own error that is a `kind`, soon, on every rank.

    Args:
        rank: This rank.
        kind: The builtin that the error is.
        action: What must raise.
        texts: Parts of the message of every rank.
        group: Whose ranks all take part; the job's by default.
    """
    started = time.monotonic()
    with pytest.raises(kind) as caught:
        action()
    seconds = time.monotonic() - started
    message = str(caught.value)
    messages: list[str] = [""] * (rank.size if group is None else group.size())
    dist.all_gather_object(messages, message, group=group)
    assert isinstance(caught.value, HyperParallelError), f"{type(caught.value)}: {message}"
    assert seconds < SOON, f"raised after {seconds:.1f} s: {message}"
    assert all(messages)
    for text in texts:
        assert all(text in there for there in messages), f"{text!r} is not in {messages}"
    return message


class ForwardingWriter(checkpoint.StorageWriter):
    """A user's own storage, which leaves everything to the file system's."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.inner = checkpoint.FileSystemWriter(folder)

    def begin(self) -> str:
        return self.inner.begin()

    def write(
        self,
        save_id: str,
        rank: int,
        plan: checkpoint.SavePlan,
        planner: checkpoint.SavePlanner,
        progress: checkpoint.Progress,
    ) -> checkpoint.CheckpointParts:
        return self.inner.write(save_id, rank, plan, planner, progress)

    def publish(self, metadata: checkpoint.CheckpointMetadata) -> None:
        self.inner.publish(metadata)

    def abandon(self) -> None:
        self.inner.abandon()


class GatedWriter(ForwardingWriter):
    """Writes nothing until it may."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.may_write = threading.Event()

    def write(self, *args: Any, **kwargs: Any) -> Any:
        assert self.may_write.wait(20), "nobody let it write"
        return super().write(*args, **kwargs)


class FailingWriter(ForwardingWriter):
    """Fails where it writes."""

    def write(self, *args: Any, **kwargs: Any) -> Any:
        raise OSError("the disk of a test is full")


class ForwardingReader(checkpoint.StorageReader):
    """A user's own storage, which leaves everything to the file system's."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.inner = checkpoint.FileSystemReader(folder)

    def read_metadata(self) -> bytes:
        return self.inner.read_metadata()

    def open(self, metadata: checkpoint.CheckpointMetadata, plan: checkpoint.LoadPlan) -> bool:
        return self.inner.open(metadata, plan)

    def read(
        self,
        metadata: checkpoint.CheckpointMetadata,
        plan: checkpoint.LoadPlan,
        planner: checkpoint.LoadPlanner,
        progress: checkpoint.Progress,
    ) -> None:
        self.inner.read(metadata, plan, planner, progress)
