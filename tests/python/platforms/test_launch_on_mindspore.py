"""Programs as users start them: under msrun, and in graph mode."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import mindspore
import pytest

import hyper_parallel
from hyper_parallel import DeviceMesh, RaggedShard, UnimplementedError, distribute_tensor
from hyper_parallel.core.dtensor import DTensor

PROGRAM = """
import mindspore
import numpy as np

from hyper_parallel import DTensor, RaggedShard, Replicate, distribute_tensor, init_device_mesh, platform

mesh = init_device_mesh("cpu", ({ranks},), mesh_dim_names=("fsdp",))
rank = mesh.get_rank()
whole = np.arange(24, dtype=np.float32).reshape(6, 4)
x = distribute_tensor(mindspore.Tensor(whole), mesh, [RaggedShard((0,), {units})], src_data_rank=0)
assert (x.full_tensor().asnumpy() == whole).all()


def loss(local):
    share = DTensor(local, mesh, x.placements, shape=x.shape)
    return (share * share).full_tensor([Replicate()]).sum()


gradient = mindspore.grad(loss)(x.to_local())
assert (gradient.asnumpy() == 2 * x.to_local().asnumpy()).all()
gathered = platform.message_group().gather(str(rank).encode())
print(f"rank {{rank}} of {{platform.get_world_size()}} is done", gathered if rank == 0 else "", flush=True)
"""
LIMIT = 150.0
"""Seconds: the start of a job alone takes up to 40."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def output_under_msrun(folder: Path, program: str, ranks: int) -> str:
    """What all ranks print, after the job has ended well within the limit."""
    script = folder / "program.py"
    script.write_text(program)
    command = [
        str(Path(sys.executable).parent / "msrun"),
        *(f"--worker_num={ranks}", f"--local_worker_num={ranks}", "--master_addr=127.0.0.1"),
        *(f"--master_port={free_port()}", "--bind_core=False", "--join=True", f"--log_dir={folder / 'logs'}"),
        str(script),
    ]
    environment = {
        **os.environ,
        "GLOG_v": "3",
        "OMP_NUM_THREADS": "1",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(Path(hyper_parallel.__file__).absolute().parents[1]),
    }
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    ) as job:
        try:
            printed, _ = job.communicate(timeout=LIMIT)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(job.pid, signal.SIGKILL)
    logs = "".join(log.read_text(errors="replace") for log in sorted((folder / "logs").glob("worker_*.log")))
    assert job.returncode == 0, printed.decode(errors="replace") + logs
    return logs


@pytest.mark.timeout(LIMIT + 30)
@pytest.mark.parametrize(("ranks", "units"), [(2, (1, 2)), (4, (0, 3, 1, 2))])
def test_a_program_runs_under_msrun(tmp_path: Path, ranks: int, units: tuple[int, ...]) -> None:
    logs = output_under_msrun(tmp_path, PROGRAM.format(ranks=ranks, units=units), ranks)
    for rank in range(ranks):
        assert f"rank {rank} of {ranks} is done" in logs
    assert str([str(rank).encode() for rank in range(ranks)]) in logs


@pytest.mark.parametrize("entry", ["distribute_tensor", "from_local"])
def test_graph_mode_is_refused_by_name(entry: str) -> None:
    mesh, placements = DeviceMesh((1,), ("fsdp",)), [RaggedShard((0,), (1,))]
    mindspore.set_context(mode=mindspore.GRAPH_MODE)
    try:
        with pytest.raises(UnimplementedError, match=f"{entry}: hyper_parallel works in PyNative mode alone; call"):
            if entry == "from_local":
                DTensor.from_local(mindspore.Tensor([1.0, 2.0]), mesh, placements, shape=(2,))
            else:
                distribute_tensor(mindspore.Tensor([1.0, 2.0]), mesh, placements)
    finally:
        mindspore.set_context(mode=mindspore.PYNATIVE_MODE)
