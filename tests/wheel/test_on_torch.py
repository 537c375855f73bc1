"""The installed wheel on torch: `tools/run_tests.py wheel` runs this in an environment of its own, out of the tree."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import torch

import hyper_parallel
from hyper_parallel import checkpoint

PACKAGE = Path(hyper_parallel.__file__).parent
WHEELS = Path(os.environ["HP_WHEEL_FOLDER"])

TWO_RANKS = """
import sys
import torch
import torch.distributed as dist
from datetime import timedelta
from hyper_parallel import RaggedShard, Replicate, Shard, distribute_tensor, init_device_mesh

rank = int(sys.argv[1])
dist.init_process_group("gloo", f"file://{sys.argv[2]}", timeout=timedelta(seconds=10), rank=rank, world_size=2)
mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("fsdp",))
whole = torch.arange(24.0).reshape(6, 4)
ragged = distribute_tensor(whole.clone().requires_grad_(), mesh, (RaggedShard((0,), (1, 2)),))
assert ragged.to_local().tolist() == (whole.flatten()[:8] if rank == 0 else whole.flatten()[8:]).tolist()
rows = ragged.redistribute(mesh, (Shard(0),))
assert rows.to_local().tolist() == whole[3 * rank : 3 * rank + 3].tolist()
full = (ragged * 2).full_tensor()
assert full.tolist() == (whole * 2).tolist()
full.sum().backward()
assert ragged.grad.to_local().tolist() == [4.0] * (8 if rank == 0 else 16)
dist.destroy_process_group()
print("done")
"""


def wheel_names() -> list[str]:
    (wheel,) = WHEELS.glob("*.whl")
    return zipfile.ZipFile(wheel).namelist()


def shared_objects() -> list[Path]:
    return sorted(path for path in PACKAGE.iterdir() if ".so" in path.name)


def test_package_comes_from_the_environment_and_has_the_wheels_version() -> None:
    assert PACKAGE.is_relative_to(sys.prefix)
    (wheel,) = WHEELS.glob("*.whl")
    assert wheel.name.startswith(f"hyper_parallel-{hyper_parallel.__version__}-cp311-cp311-linux_")
    assert importlib.metadata.version("hyper-parallel") == hyper_parallel.__version__


def test_wheel_names_the_torch_that_it_is_linked_against_and_needs_neither_framework() -> None:
    assert importlib.metadata.requires("hyper-parallel") == [
        'torch==2.13.0; extra == "torch"',
        'mindspore==2.10.0; extra == "mindspore"',
        'numpy<2; extra == "mindspore"',
        'matplotlib==3.11.2; extra == "plot"',
        'fsspec==2026.9.0; extra == "fsspec"',
    ]


def test_wheel_holds_the_package_and_nothing_else() -> None:
    foreign = [name for name in wheel_names() if not re.match(r"hyper_parallel(-[\d.]+\.dist-info)?/", name)]
    assert foreign == [f"hyper_parallel-{hyper_parallel.__version__}.data/scripts/hyper-parallel"]
    assert [name for name in wheel_names() if re.search(r"test|\.(cc|h|cmake|pyc)$", name)] == []
    assert {"hyper_parallel/py.typed", "hyper_parallel/_core.pyi", "hyper_parallel/_torch.pyi"} <= set(wheel_names())


def test_wheel_brings_the_command_which_needs_no_torch(tmp_path: Path) -> None:
    command = Path(sys.executable).parent / "hyper-parallel"
    checkpoint.save({"w": torch.arange(4.0)}, tmp_path / "saved")
    verified = [command, "verify", tmp_path / "saved"]
    assert "ok" in subprocess.run(verified, capture_output=True, text=True, check=True, timeout=30, env={}).stdout
    needed = subprocess.run(["readelf", "-d", command], capture_output=True, text=True, check=True, timeout=30).stdout
    assert "torch" not in needed


def test_wheel_holds_each_shared_object_once() -> None:
    names = [re.sub(r"\.cpython-311-[\w-]+\.so$", ".so", path.name) for path in shared_objects()]
    version = ".".join(hyper_parallel.__version__.split(".")[:2])
    libraries = [f"libhyper_parallel.so.{version}", f"libhyper_parallel_torch.so.{version}"]
    assert names == ["_core.so", "_torch.so", *libraries]


@pytest.mark.parametrize("path", shared_objects(), ids=lambda path: path.name.split(".")[0])
def test_shared_object_looks_only_beside_itself_and_in_the_neighbouring_torch(path: Path) -> None:
    dynamic = subprocess.run(["readelf", "-d", path], capture_output=True, text=True, check=True, timeout=30).stdout
    (places,) = re.findall(r"\((?:RUNPATH|RPATH)\).*\[(.*)\]", dynamic)
    wanted = {"$ORIGIN"} | ({"$ORIGIN/../torch/lib"} if "_torch" in path.name else set())
    assert {place for place in places.split(":") if place} == wanted


def test_source_distribution_has_what_a_build_needs_and_no_build() -> None:
    (sources,) = WHEELS.glob("*.tar.gz")
    with tarfile.open(sources) as archive:
        names = [name.partition("/")[2] for name in archive.getnames()]
    assert {"CMakeLists.txt", "CMakePresets.json", "LICENSE", "README.md", "pyproject.toml"} <= set(names)
    assert [name for name in names if name.startswith(("build/", ".venv/", ".git/")) or ".so" in name] == []


def test_two_ranks_distribute_redistribute_compute_and_differentiate(tmp_path: Path) -> None:
    command = [sys.executable, "-c", TWO_RANKS]
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    ranks = [
        subprocess.Popen(
            [*command, str(rank), str(tmp_path / "rendezvous")],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        outputs = [rank.communicate(timeout=30)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    assert outputs == ["done\n"] * 2
