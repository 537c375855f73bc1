"""Copies of distributed tensors: clone, deepcopy, pickle and torch.save keep shape, placements, dtype and more."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from hyper_parallel import DTensor, Partial, Placement, RaggedShard, Replicate, Shard, distribute_tensor
from support.checks import assert_consistent, assert_equal, assert_raises, make_mesh, whole_of
from support.pool import RankPools
from support.ranks import ranks
from support.values import numbered
from support.worker import Rank


def through_pickle(tensor: torch.Tensor) -> torch.Tensor:
    copied = pickle.loads(pickle.dumps(tensor))
    assert isinstance(copied, torch.Tensor)
    return copied


def through_torch_save(tensor: torch.Tensor) -> torch.Tensor:
    """By torch.load's default rules, which take no class that is not known to be safe."""
    file = io.BytesIO()
    torch.save(tensor, file)
    file.seek(0)
    copied = torch.load(file)
    assert isinstance(copied, torch.Tensor)
    return copied


OWNING: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "copy.deepcopy": copy.deepcopy,
    "clone": torch.clone,
    "pickle": through_pickle,
    "torch.save": through_torch_save,
    "to(copy=True)": lambda x: x.to(x.dtype, copy=True),
}
SOURCES: dict[str, tuple[tuple[int, ...], Placement, torch.dtype]] = {
    "sharded": ((5,), Shard(0), torch.float32),
    "ragged": ((6, 4, 8), RaggedShard((0, 1), (1, 2)), torch.float64),
    "ragged, empty rank": ((6,), RaggedShard((0,), (0, 3)), torch.int64),
    "replicated": ((3, 2), Replicate(), torch.bfloat16),
}


def make(source: str, *, requires_grad: bool = False) -> DTensor:
    shape, placement, dtype = SOURCES[source]
    return distribute_tensor(numbered(shape, dtype).requires_grad_(requires_grad), make_mesh(2), [placement])


@pytest.mark.parametrize("kind", list(OWNING))
@pytest.mark.parametrize("source", list(SOURCES))
@ranks(2)
def test_case35_copies_keep_everything_and_own_their_storage(rank: Rank, source: str, kind: str) -> None:
    differentiable = SOURCES[source][2].is_floating_point
    x = make(source, requires_grad=differentiable)
    copied = OWNING[kind](x)
    assert isinstance(copied, DTensor)
    assert copied is not x
    assert copied.shape == x.shape
    assert copied.placements == x.placements
    assert copied.device_mesh == x.device_mesh
    assert copied.dtype == x.dtype
    assert copied.requires_grad == x.requires_grad
    assert_consistent(copied)
    with torch.no_grad():
        copied._local_tensor.add_(100)
    assert_equal(whole_of(copied), numbered(*SOURCES[source][::2]) + 100)
    assert_equal(whole_of(x), numbered(*SOURCES[source][::2]))


@pytest.mark.parametrize("source", list(SOURCES))
@ranks(2)
def test_case35_detach_and_parameter_share_storage(rank: Rank, source: str) -> None:
    x = make(source)
    copies = [x.detach(), x.data]
    if x.is_floating_point():
        copies.append(torch.nn.Parameter(x))
        assert copies[-1].requires_grad
    for shared in copies:
        assert isinstance(shared, DTensor)
        assert shared.shape == x.shape
        assert shared.placements == x.placements
        assert shared._local_tensor.data_ptr() == x._local_tensor.data_ptr()
        assert_consistent(shared)
    with torch.no_grad():
        copies[0]._local_tensor.add_(100)
    for shared in copies:
        assert_equal(whole_of(shared), numbered(*SOURCES[source][::2]) + 100)


@pytest.mark.parametrize("kind", ["copy.deepcopy", "pickle", "torch.save"])
@ranks(2)
def test_copies_of_a_parameter_are_parameters(rank: Rank, kind: str) -> None:
    for requires_grad in (True, False):
        parameter = torch.nn.Parameter(make("ragged"), requires_grad=requires_grad)
        copied = OWNING[kind](parameter)
        assert isinstance(copied, torch.nn.Parameter)
        assert isinstance(copied, DTensor)
        assert copied.requires_grad == requires_grad
        assert copied.is_leaf
        assert_equal(whole_of(copied), numbered((6, 4, 8), torch.float64))


@ranks(2)
def test_deepcopy_keeps_the_gradient_and_shared_references(rank: Rank) -> None:
    x = make("ragged", requires_grad=True)
    x.full_tensor().sum().backward()
    first, second = copy.deepcopy([x, x])
    assert first is second
    assert isinstance(first.grad, DTensor)
    assert_equal(whole_of(first.grad), torch.full((6, 4, 8), 2.0, dtype=torch.float64))
    first.grad.zero_()
    assert_equal(whole_of(x.grad), torch.full((6, 4, 8), 2.0, dtype=torch.float64))


@pytest.mark.parametrize("kind", ["copy.deepcopy", "pickle"])
@ranks(2)
def test_only_leaves_are_copied_as_in_torch(rank: Rank, kind: str) -> None:
    inner = make("ragged", requires_grad=True) * 2
    if kind == "copy.deepcopy":
        with pytest.raises(RuntimeError, match="leaves of the graph"):
            OWNING[kind](inner)
    assert_equal(whole_of(OWNING[kind](inner.detach())), numbered((6, 4, 8), torch.float64) * 2)


@ranks(2)
def test_attributes_are_copied(rank: Rank) -> None:
    x = make("ragged")
    x.tag = ["mine"]  # type: ignore[attr-defined]
    for kind in ("copy.deepcopy", "pickle", "torch.save"):
        copied = OWNING[kind](x)
        assert copied.tag == ["mine"]  # type: ignore[attr-defined]
        assert copied.tag is not x.tag  # type: ignore[attr-defined]


@ranks(2)
def test_a_pending_tensor_stays_pending(rank: Rank) -> None:
    p = DTensor.from_local(torch.tensor([1.0 + rank.index]), make_mesh(2), [Partial()])
    for make_copy in OWNING.values():
        copied = make_copy(p)
        assert isinstance(copied, DTensor)
        assert copied.placements == (Partial(),)
        assert_equal(copied.full_tensor(), torch.tensor([3.0]))


@ranks(2)
def test_pickled_and_used_in_the_same_job_it_computes_on(rank: Rank) -> None:
    x = through_pickle(make("ragged", requires_grad=True))
    assert isinstance(x, DTensor)
    (x * 2 + make("ragged")).full_tensor().sum().backward()
    assert isinstance(x.grad, DTensor)
    assert_equal(whole_of(x.grad), torch.full((6, 4, 8), 4.0, dtype=torch.float64))
    assert x.redistribute([Shard(0)]).placements == (Shard(0),)


def save_share(rank: Rank, folder: Path) -> list[int]:
    x = make("ragged")
    torch.save({"weight": x, "plain": torch.ones(2)}, folder / f"rank{rank.index}.pt")
    (folder / f"rank{rank.index}.pickle").write_bytes(pickle.dumps(x))
    return x._local_tensor.tolist()


def test_unpickling_makes_no_process_group(rank_pools: RankPools, tmp_path: Path) -> None:
    """This process has none, and needs none to look at the shares."""
    shares = rank_pools[2].run(save_share, tmp_path)
    for index, share in enumerate(shares):
        by_torch = torch.load(tmp_path / f"rank{index}.pt")["weight"]
        by_pickle = pickle.loads((tmp_path / f"rank{index}.pickle").read_bytes())
        for tensor in (by_torch, by_pickle):
            assert isinstance(tensor, DTensor)
            assert tuple(tensor.shape) == (6, 4, 8)
            assert tensor.placements == (RaggedShard((0, 1), (1, 2)),)
            assert tensor._local_tensor.tolist() == share
            assert "RaggedShard" in repr(tensor)
            assert_equal((tensor + 1)._local_tensor, tensor._local_tensor + 1)
            assert not dist.is_initialized()
            assert_raises(RuntimeError, "torch.distributed is not initialised", tensor.full_tensor)


@ranks(2)
def test_a_share_that_another_rank_saved_does_not_communicate_as_ones_own(rank: Rank) -> None:
    gathered: list[bytes] = [b"", b""]
    dist.all_gather_object(gathered, pickle.dumps(make("ragged")))
    other = pickle.loads(gathered[1 - rank.index])
    with pytest.raises((RuntimeError, ValueError), match="rank"):
        other.full_tensor()
