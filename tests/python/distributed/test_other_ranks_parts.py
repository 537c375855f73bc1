"""A tensor read from another rank's file is that rank's part: it takes no part in what this rank computes."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from hyper_parallel import DeviceMesh, DTensor, Placement, RaggedShard, Replicate, Shard, distribute_tensor
from hyper_parallel.errors import FailedPreconditionError
from support.checks import assert_equal, assert_raises, gradient_of, make_mesh, whole_of
from support.ranks import ranks
from support.values import numbered
from support.worker import Rank

SHAPE = (6, 4)
PLACEMENTS: dict[str, Placement] = {
    "sharded": Shard(0),
    "ragged": RaggedShard((0,), (1, 1)),
    "replicated": Replicate(),
}
every_layout = pytest.mark.parametrize("layout", list(PLACEMENTS))


def make(layout: str, mesh: DeviceMesh | None = None, *, requires_grad: bool = False) -> DTensor:
    whole = numbered(SHAPE).requires_grad_(requires_grad)
    return distribute_tensor(whole, mesh or make_mesh(2), [PLACEMENTS[layout]])


def by_pickle(tensor: torch.Tensor) -> tuple[bytes, Callable[[bytes], Any]]:
    return pickle.dumps(tensor), pickle.loads


def by_torch(tensor: torch.Tensor) -> tuple[bytes, Callable[[bytes], Any]]:
    file = io.BytesIO()
    torch.save(tensor, file)
    return file.getvalue(), lambda content: torch.load(io.BytesIO(content))


FILES = {"pickle": by_pickle, "torch.save": by_torch}


def from_rank_0(tensor: torch.Tensor, file: str = "torch.save") -> DTensor:
    """What rank 0 wrote, read on every rank."""
    content, read = FILES[file](tensor)
    contents: list[bytes] = [b""] * dist.get_world_size()
    dist.all_gather_object(contents, content)
    found = read(contents[0])
    assert isinstance(found, DTensor)
    return found


def load(target: DTensor, source: DTensor, *, assign: bool) -> nn.Module:
    module = nn.Module()
    module.weight = nn.Parameter(target)
    module.load_state_dict({"weight": source}, assign=assign)
    return module


# x: of this rank, y: rank 0's.
USES: dict[str, Callable[[DTensor, DTensor], Any]] = {
    "x + y": lambda x, y: x + y,
    "y + x": lambda x, y: y + x,
    "x *= y": lambda x, y: x.__imul__(y),
    "torch.where(x > 0, x, y)": lambda x, y: torch.where(x > 0, x, y),
    "torch._foreach_add_([x], [y])": lambda x, y: torch._foreach_add_([x], [y]),
    "x.copy_(y)": lambda x, y: x.copy_(y),
    "y.copy_(x)": lambda x, y: y.copy_(x),
    "x.data = y": lambda x, y: setattr(x, "data", y),
    "y.data = x": lambda x, y: setattr(y, "data", x),
    "x.grad = y": lambda x, y: setattr(x, "grad", y),
    "y.grad = x": lambda x, y: setattr(y, "grad", x),
    "y.full_tensor()": lambda x, y: y.full_tensor(),
    "y.redistribute(Shard(1))": lambda x, y: y.redistribute([Shard(1)]),
}


@pytest.mark.parametrize("use", list(USES))
@every_layout
@ranks(2, check=True)
def test_another_ranks_part_is_refused(rank: Rank, layout: str, use: str) -> None:
    x, y = make(layout), from_rank_0(make(layout))
    if rank.index == 1:
        with pytest.raises(RuntimeError, match=r"rank 0\b") as caught:
            USES[use](x, y)
        assert isinstance(caught.value, FailedPreconditionError), repr(caught.value)
        assert_equal(x._local_tensor, make(layout)._local_tensor)
        assert x.grad is None


@every_layout
@ranks(2, check=True)
def test_a_state_of_another_rank_is_not_loaded(rank: Rank, layout: str) -> None:
    x, y = make(layout), from_rank_0(make(layout))
    if rank.index == 1:
        # torch makes one RuntimeError of what went wrong with each parameter.
        with pytest.raises(RuntimeError, match="is the part of rank 0 but another operand that of rank 1"):
            load(x, y, assign=False)
        assert_equal(x._local_tensor, make(layout)._local_tensor)
    module = load(x, y, assign=True)  # takes the file's tensor itself, which stays what it was
    if rank.index == 1:
        assert_raises(RuntimeError, "rank 0", lambda: module.weight + make(layout))


@pytest.mark.parametrize("file", list(FILES))
@every_layout
@ranks(2)
def test_on_its_own_rank_the_part_computes_on(rank: Rank, layout: str, file: str) -> None:
    x = make(layout)
    content, read = FILES[file](x)
    y = read(content)
    assert_equal((x + y).full_tensor(), numbered(SHAPE) * 2)
    module = load(x, y, assign=False)
    assert_equal(whole_of(module.weight), numbered(SHAPE))
    x.data = y * 3
    assert_equal(x.full_tensor(), numbered(SHAPE) * 3)
    x.grad = y
    assert_equal(whole_of(gradient_of(x)), numbered(SHAPE))


@ranks(2)
def test_a_gradient_of_another_ranks_part_is_refused_by_backward(rank: Rank) -> None:
    x, y = make("sharded", requires_grad=True), from_rank_0(make("sharded"))
    if rank.index == 1:
        assert_raises(RuntimeError, "rank 0", lambda: (x * 2).backward(gradient=y))
        assert_raises(RuntimeError, "rank 0", lambda: torch.autograd.grad([x * 2], [x], [y]))


@pytest.mark.parametrize("file", list(FILES))
@ranks(2)
def test_what_was_read_first_does_not_speak_for_the_mesh(rank: Rank, file: str) -> None:
    """A mesh that no tensor of this rank was made on yet, so that the file's is the first of its value."""
    name = f"first_by_{file.replace('.', '_')}"
    contents: list[bytes] = [b""] * rank.size
    dist.all_gather_object(contents, FILES[file](make("sharded", DeviceMesh((2,), (name,))))[0])
    fresh = {rank_: content.replace(name.encode(), name[::-1].encode()) for rank_, content in enumerate(contents)}
    read = FILES[file](torch.ones(1))[1]
    other = read(contents[0]) if file == "torch.save" else read(fresh[0])
    known = other.device_mesh
    mesh = DeviceMesh((2,), known.mesh_dim_names)
    for on in (mesh, known, make("sharded", mesh).device_mesh, make("sharded", known).device_mesh):
        mine = make("sharded", on)
        assert on.get_coordinate() == (rank.index,)
        assert_equal(mine._local_tensor, numbered(SHAPE)[3 * rank.index : 3 * rank.index + 3])
        assert f"rank={rank.index}" in repr(mine)
        assert_equal(mine.full_tensor(), numbered(SHAPE))
        assert_equal((mine + make("sharded", mesh)).full_tensor(), numbered(SHAPE) * 2)


@ranks(2)
def test_a_part_says_whose_it_is(rank: Rank) -> None:
    y = from_rank_0(make("sharded"))
    assert "rank=0" in repr(y)
    assert_equal(y._local_tensor, numbered(SHAPE)[:3])
    assert_equal((y * 2)._local_tensor, numbered(SHAPE)[:3] * 2)
