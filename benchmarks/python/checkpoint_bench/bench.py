"""What every row needs: the ranks, how thoroughly to measure, how large, and where."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch.distributed as dist
from paired.measure import Effort
from torch.distributed.device_mesh import DeviceMesh as TorchDeviceMesh
from torch.distributed.device_mesh import init_device_mesh as init_torch_device_mesh

from hyper_parallel import DeviceMesh, init_device_mesh


@dataclass(frozen=True)
class Sizes:
    """How much is saved and loaded. Bytes are multiples of 1 MiB.

    Args:
        state: Bytes of a state dict.
        chunk: Bytes of the chunk that is loaded through many boxes.
        resharded: Bytes of the checkpoint that is resharded.
        small_tensors: The number of tensors of 4 KiB.
        names: The number of tensors in the large metadata.
        chunks_per_name: The number of chunks of each.
    """

    state: int = 256 << 20
    chunk: int = 64 << 20
    resharded: int = 1 << 30
    small_tensors: int = 2000
    names: int = 2000
    chunks_per_name: int = 500


@dataclass(frozen=True)
class Bench:
    """A run on one number of ranks.

    Args:
        effort: How thoroughly rows are timed.
        sizes: How much is saved and loaded.
        directory: Where rows keep their checkpoints: of all ranks, and of this run alone.
        command: The program `hyper-parallel`.
        mesh: All ranks in a row.
        torch_mesh: The same for torch.
    """

    effort: Effort
    sizes: Sizes
    directory: Path
    command: Path
    mesh: DeviceMesh = field(default_factory=lambda: init_device_mesh("cpu", (dist.get_world_size(),)))
    torch_mesh: TorchDeviceMesh = field(default_factory=lambda: init_torch_device_mesh("cpu", (dist.get_world_size(),)))

    @property
    def ranks(self) -> int:
        return dist.get_world_size()

    @property
    def rank(self) -> int:
        return dist.get_rank()

    @contextmanager
    def folder(self) -> Iterator[Path]:
        """A directory for one row, removed after it. After a fault it stays: the other ranks do not come here."""
        made = self.directory / "row"
        if self.rank == 0:
            made.mkdir()
        dist.barrier()
        yield made
        dist.barrier()
        if self.rank == 0:
            shutil.rmtree(made)
