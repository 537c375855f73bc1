"""The installed wheel with MindSpore alone: `tools/run_tests.py wheel` runs this in an environment of its own."""

from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import hyper_parallel
from hyper_parallel import platform

TWO_RANKS = """
import mindspore
import numpy as np
from hyper_parallel import DTensor, RaggedShard, Shard, distribute_tensor, init_device_mesh

mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("fsdp",))
rank = mesh.get_rank()
whole = np.arange(24, dtype=np.float32).reshape(6, 4)
ragged = distribute_tensor(mindspore.Tensor(whole), mesh, (RaggedShard((0,), (1, 2)),))
own = whole.reshape(-1)[:8] if rank == 0 else whole.reshape(-1)[8:]
assert ragged.to_local().asnumpy().tolist() == own.tolist()
rows = ragged.redistribute(mesh, (Shard(0),))
assert rows.to_local().asnumpy().tolist() == whole[3 * rank : 3 * rank + 3].tolist()

def loss(local):
    full = (DTensor.from_local(local, mesh, ragged.placements, shape=(6, 4)) * 2).full_tensor()
    assert full.asnumpy().tolist() == (whole * 2).tolist()
    return full.sum()

gradient = mindspore.grad(loss)(ragged.to_local())
assert gradient.asnumpy().tolist() == [4.0] * own.size
mesh.get_group()
print("done", flush=True)
import os
os._exit(0)
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def test_package_comes_from_the_environment_which_has_no_torch() -> None:
    assert Path(hyper_parallel.__file__).is_relative_to(sys.prefix)
    assert importlib.util.find_spec("torch") is None
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("torch")
    assert platform.name() == "mindspore"


def test_the_command_runs() -> None:
    command = Path(sys.executable).parent / "hyper-parallel"
    shown = subprocess.run([command, "--version"], capture_output=True, text=True, check=True, timeout=30, env={})
    assert hyper_parallel.__version__ in shown.stdout


def test_two_ranks_distribute_redistribute_compute_and_differentiate(tmp_path: Path) -> None:
    shared = {**os.environ, "OMP_NUM_THREADS": "1", "GLOG_v": "3", "WORLD_SIZE": "2"}
    shared |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", TWO_RANKS],
            cwd=tmp_path,
            env={**shared, "RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        outputs = [rank.communicate(timeout=50)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    assert [output.splitlines()[-1] for output in outputs] == ["done"] * 2, outputs
