"""The ranks of a benchmark: processes of this machine that form one Gloo group over the loopback interface.

They are forked from a process that has imported torch and run nothing, so that several groups cost one import.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import start_processes

_GROUP_TIMEOUT = timedelta(seconds=120)


def run_on_ranks(ranks: int, body: Callable[[], None]) -> None:
    """Runs `body` on every rank, inside the group, on one thread each.

    Raises:
        ProcessException: One of them has raised or died; the others have been ended.
    """
    sys.stdout.flush()
    with tempfile.TemporaryDirectory() as folder:
        start_processes(_run_rank, (ranks, Path(folder) / "store", body), nprocs=ranks, start_method="fork")


def _run_rank(rank: int, ranks: int, store: Path, body: Callable[[], None]) -> None:
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=ranks, timeout=_GROUP_TIMEOUT)
    body()
    dist.destroy_process_group()
