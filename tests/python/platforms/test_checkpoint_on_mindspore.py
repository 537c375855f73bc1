"""Checkpoints of what only MindSpore has: parameters of cells, and names of process groups."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mindspore
import numpy as np
import pytest
from mindspore import nn, ops

from hyper_parallel import DTensor, RaggedShard, Shard, UnimplementedError, checkpoint, platform
from hyper_parallel._core import Checkpointer, FileSystemReader, MessageExchange, terminal_progress
from hyper_parallel.checkpoint import convert
from hyper_parallel.core.distributed_checkpoint import ragged_utils
from hyper_parallel.mindspore.parameter import distribute_parameter
from support.common import assert_raises, make_mesh
from support.frameworks import framework
from support.ranks import ranks
from support.shared_checkpoints import assert_same_bits, bits, laid_out, random_tensor
from support.worker import Rank


class Scaled(nn.Cell):  # type: ignore[misc]  # MindSpore has no types
    """A cell with a parameter of its own and one in a cell inside."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Dense(4, 6)
        self.scale = mindspore.Parameter(random_tensor("scale", (3,)), name="scale")
        self.dense.weight.copy_(random_tensor("weight", (6, 4)))
        self.dense.bias.copy_(random_tensor("bias", (6,)))


def distributed_cell(units: tuple[int, ...]) -> Scaled:
    cell = Scaled()
    distribute_parameter(cell.dense, "weight", make_mesh(len(units)), [RaggedShard((0,), units)])
    return cell


@pytest.mark.parametrize("units", [(1, 2), (3, 0), (0, 1)])
@ranks(2)
def test_what_a_cell_lists_is_saved_and_loaded_as_the_dtensor_it_belongs_to(
    rank: Rank, units: tuple[int, ...], tmp_path: Path
) -> None:
    cell = distributed_cell(units)
    checkpoint.save({"model": cell.parameters_dict()}, tmp_path / "d")
    read = checkpoint.read(tmp_path / "d")["model"]
    assert_same_bits(read["dense.weight"], random_tensor("weight", (6, 4)))
    assert_same_bits(read["scale"], random_tensor("scale", (3,)))
    other = distributed_cell((2, 1))
    for parameter in other.get_parameters():
        parameter.copy_(ops.zeros_like(parameter))
    checkpoint.load({"model": other.parameters_dict()}, tmp_path / "d")
    assert_same_bits(other.dense.weight.full_tensor(), random_tensor("weight", (6, 4)))
    assert bits(other.dense.bias) == bits(random_tensor("bias", (6,)))
    assert isinstance(other.dense.weight, DTensor)


@ranks(2)
def test_a_loaded_parameter_is_what_the_cell_computes_with(rank: Rank, tmp_path: Path) -> None:
    checkpoint.save({"w": framework.tensor(np.full((6, 4), 2.0))}, tmp_path / "d")
    cell = distributed_cell((0, 1))
    checkpoint.load({"w": cell.dense.weight}, tmp_path / "d")
    assert (cell.dense.weight * 3).full_tensor().asnumpy().tolist() == np.full((6, 4), 6.0).tolist()
    (share,) = (listed for listed in cell.trainable_params() if listed.name == "dense.weight")
    assert share.asnumpy().tolist() == ([2.0] * 24 if rank.index else [0.0])


@ranks(2)
def test_a_row_is_saved_and_loaded_through_its_tensor(rank: Rank, tmp_path: Path) -> None:
    x = laid_out(framework.tensor(np.zeros((4, 3))), [Shard(0)], 2)
    for index in (1, 3):
        checkpoint.save({"row": framework.tensor(np.arange(3) + index)}, tmp_path / "d")
        checkpoint.load({"row": x[index]}, tmp_path / "d")
        checkpoint.save({"row": x[index]}, tmp_path / "d")
        assert checkpoint.read(tmp_path / "d")["row"].asnumpy().tolist() == [index, index + 1, index + 2]
    assert x.full_tensor().asnumpy().tolist() == [[0, 0, 0], [1, 2, 3], [0, 0, 0], [3, 4, 5]]


@ranks(3)
def test_a_group_is_named_and_its_ranks_save_together(rank: Rank, tmp_path: Path) -> None:
    if rank.index != 1:
        group = platform.new_group([2, 0])
        part = {f"from {rank.index}": random_tensor("x", (2,)), "both": random_tensor("y", (2,))}
        checkpoint.save(part, tmp_path / "d", process_group=group)
        assert sorted(checkpoint.read(tmp_path / "d")) == ["both", "from 0", "from 2"]
        checkpoint.load({"both": random_tensor("z", (2,))}, tmp_path / "d", process_group=group, allow_extra=["*"])
    assert_raises(TypeError, "process_group is 3", lambda: checkpoint.save({}, tmp_path / "e", process_group=3))  # type: ignore[arg-type]
    assert_raises(ValueError, "which this process is not in", lambda: checkpoint.save({}, "e", process_group="none"))


VIEWS: dict[str, Callable[[Any], Any]] = {
    "rows from the first on": lambda x: x[0:2],
    "the first row": lambda x: x[0],
    "the last element": lambda x: x[2, 3],
    "all, in another shape": lambda x: x.reshape((2, 6)),
    "a row turned": lambda x: x[0:1].T,
    "columns": lambda x: x[:, 0:1],
    "a column": lambda x: x.permute(1, 0)[1],
}


@pytest.mark.parametrize("kind", list(VIEWS))
def test_a_view_is_filled_and_nothing_around_it(kind: str, tmp_path: Path) -> None:
    base = framework.tensor(np.zeros((3, 4)))
    target = VIEWS[kind](base)
    checkpoint.save({"x": ops.ones_like(target)}, tmp_path / "d")
    checkpoint.load({"x": target}, tmp_path / "d")
    assert target.asnumpy().min() == 1
    assert base.asnumpy().sum() == target.size


def test_a_buffer_of_a_view_is_refused() -> None:
    base = framework.tensor(np.zeros((3, 4)))
    assert memoryview(platform.writable_host_buffer(base)).nbytes == 48
    for view in (base[0:2], base[1:2], base.T):
        text = "a tensor to be filled must be contiguous, on the CPU and no view into another"
        assert_raises(ValueError, text, lambda made=view: platform.writable_host_buffer(made))  # type: ignore[misc]


def test_what_only_torch_has_says_so(tmp_path: Path) -> None:
    text = "convert reads and writes torch's checkpoints with torch, but this process computes with MindSpore"
    for call in (convert.from_torch, convert.to_torch):
        assert_raises(UnimplementedError, text, lambda made=call: made(tmp_path / "a", tmp_path / "b"))  # type: ignore[misc]
    assert convert.main([str(tmp_path / "a"), str(tmp_path / "b"), "--to", "torch"]) == 1
    assert_raises(UnimplementedError, "CopyStager is not offered on MindSpore, only on torch", checkpoint.CopyStager)


def test_import_brings_no_torch() -> None:
    program = "import sys, hyper_parallel.checkpoint, hyper_parallel.core.distributed_checkpoint.ragged_utils;"
    done = subprocess.run(
        [sys.executable, "-c", f"{program} print('torch' in sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.strip().splitlines()[-1] == "False"


LEAVES_AT_ONCE = """
import time
import hyper_parallel.checkpoint
from hyper_parallel import platform
platform.initialize("cpu")
group = platform.message_group()
if group.rank() == 0:
    group.scatter([b"", b"last words"])
else:
    time.sleep(1)
    print(group.scatter([]).decode())
"""


def test_rank_0_stays_until_its_last_message_is_received() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    where = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GLOG_v": "3"}
    started = [
        subprocess.Popen(
            [sys.executable, "-c", LEAVES_AT_ONCE],
            env={**os.environ, **where, "RANK": str(index)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for index in range(2)
    ]
    try:
        ended = [process.communicate(timeout=60) for process in started]
    finally:
        for process in started:
            process.kill()
    assert ended[1][0].strip().splitlines()[-1] == "last words", ended[1][1]


@ranks(2)
def test_ragged_boxes_are_told_and_not_viewed(rank: Rank) -> None:
    x = laid_out(random_tensor("x", (3, 2)), [RaggedShard((0, 1), (1, 5))], 2)
    expected = [[((0, 0), (1, 1), 0, 1)], [((0, 1), (1, 1), 0, 1), ((1, 0), (2, 2), 1, 5)]]
    assert ragged_utils.compute_ragged_boxes(x) == expected[rank.index]
    index = checkpoint.MetadataIndex("x", expected[rank.index][0][0])
    assert_raises(
        UnimplementedError,
        "a box of a DTensor's local storage is not offered as a tensor on MindSpore",
        lambda: ragged_utils.get_ragged_box_tensor(x, index),
    )


def test_an_exchange_reports_what_its_functions_raise_and_return(tmp_path: Path) -> None:
    def failing(_: object) -> Any:
        raise FileNotFoundError("the wire is cut")

    def load_over(gather: Any, scatter: Any) -> object:
        exchange = MessageExchange(0, 1, gather, scatter)
        planner = checkpoint.StandardLoadPlanner({})
        reader = FileSystemReader(str(tmp_path))
        return Checkpointer(exchange).load(planner, reader, (), (), (), terminal_progress(-1))

    assert_raises(OSError, "FileNotFoundError: the wire is cut", lambda: load_over(failing, failing))
    assert_raises(TypeError, "a message that gather returned is of type int", lambda: load_over(lambda _: [3], failing))
    assert_raises(
        ValueError, "gather returned 0 messages but the exchange has 1 ranks", lambda: load_over(lambda _: [], failing)
    )
    text = "what scatter returned is of type NoneType but must be bytes"
    assert_raises(TypeError, text, lambda: load_over(lambda message: [message], lambda _: None))
    assert_raises(ValueError, "rank is 2 but must be one of 2 ranks", lambda: MessageExchange(2, 2, failing, failing))
