"""Cases from public fault reports about what a checkpoint stores: 35 (copies), 37 (replicas) and 38 (boxes)."""

from __future__ import annotations

import copy
import pickle
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from hyper_parallel import DTensor, Placement, RaggedShard, Replicate, Shard, checkpoint, distribute_tensor
from support.checkpoints import (
    assert_same_bits,
    bits,
    chunks_of,
    content_of,
    data_files,
    local_of,
    raised_everywhere,
    random_bits,
    stored_bytes,
)
from support.checks import assert_consistent, assert_equal, make_mesh, whole_of
from support.pool import RankPools
from support.ranks import ranks
from support.values import numbered
from support.worker import Rank

# 35: copies have the shape and the placements of what they are copies of, in the file too

SOURCES_35: dict[str, tuple[tuple[int, ...], Placement]] = {
    "sharded": ((5,), Shard(0)),
    "ragged": ((6, 4, 8), RaggedShard((0, 1), (1, 2))),
}
COPIES_35: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda x: pickle.loads(pickle.dumps(x)),
    "detach": lambda x: x.clone().detach(),
    "Parameter": lambda x: torch.nn.Parameter(x.clone()),
    "clone": torch.clone,
    "to(dtype)": lambda x: x.to(torch.float64),
}


@pytest.mark.parametrize("saver", ["save", "async_save"])
@pytest.mark.parametrize("source", list(SOURCES_35))
@ranks(2)
def test_case35_copies_are_saved_with_global_shape_and_values(
    rank: Rank, source: str, saver: str, tmp_path: Path
) -> None:
    shape, placement = SOURCES_35[source]
    x = distribute_tensor(numbered(shape), make_mesh(2), [placement])
    copies = {kind: make(x) for kind, make in COPIES_35.items()}
    with torch.no_grad():
        for copied in copies.values():
            local_of(copied).add_(100)
    if saver == "save":
        checkpoint.save({"x": x, **copies}, tmp_path / "d")
    else:
        checkpoint.async_save({"x": x, **copies}, tmp_path / "d").wait()
    state = checkpoint.read(tmp_path / "d")
    assert_equal(state["x"], numbered(shape))
    for kind, copied in copies.items():
        assert_equal(state[kind], numbered(shape, copied.dtype) + 100)


@pytest.mark.parametrize("source", list(SOURCES_35))
@ranks(2)
def test_case35_targets_keep_shape_placements_dtype_and_requires_grad(rank: Rank, source: str, tmp_path: Path) -> None:
    shape, placement = SOURCES_35[source]
    mesh = make_mesh(2)
    checkpoint.save({kind: distribute_tensor(numbered(shape), mesh, [Shard(0)]) for kind in COPIES_35}, tmp_path / "d")
    zeros = distribute_tensor(torch.zeros(shape), mesh, [placement])
    targets = {kind: make(zeros) for kind, make in COPIES_35.items()}
    before = {kind: (target.dtype, target.requires_grad) for kind, target in targets.items()}
    checkpoint.load(targets, tmp_path / "d", allow_cast=["to(dtype)"])
    for kind, target in targets.items():
        assert isinstance(target, DTensor)
        assert_consistent(target)
        assert tuple(target.shape) == shape
        assert target.placements == (placement,)
        assert (target.dtype, target.requires_grad) == before[kind]
        assert_equal(whole_of(target), numbered(shape, target.dtype))
    assert targets["Parameter"].requires_grad
    assert_equal(whole_of(zeros), torch.zeros(shape))


# 37: who is left out where several ranks could write the same

ORDERS_37 = {"rank 0 first": (0.0, 0.1, 0.2, 0.3), "rank 3 first": (0.3, 0.2, 0.1, 0.0), "odd first": (0.2, 0, 0.2, 0)}


@pytest.mark.parametrize("order", list(ORDERS_37))
@ranks(4)
def test_case37_an_empty_shard_at_the_offset_of_a_real_one_takes_nothing_away(
    rank: Rank, order: str, tmp_path: Path
) -> None:
    mesh = make_mesh(4)
    rows = numbered((5, 2))
    time.sleep(ORDERS_37[order][rank.index])
    ragged = distribute_tensor(numbered((8,)), mesh, [RaggedShard((0,), (0, 3, 0, 1))])
    checkpoint.save({"g": ragged, "s": distribute_tensor(rows, mesh, [Shard(0)])}, tmp_path / "d")
    assert [(chunk.offsets, chunk.sizes) for chunk in chunks_of(tmp_path / "d", "g")] == [((0,), (6,)), ((6,), (2,))]
    assert [chunk.offsets[0] for chunk in chunks_of(tmp_path / "d", "s")] == [0, 2, 4]
    state = {"g": torch.zeros(8), "s": distribute_tensor(torch.zeros(5, 2), mesh, [RaggedShard((0,), (1, 0, 4, 0))])}
    checkpoint.load(state, tmp_path / "d")
    assert_equal(state["g"], numbered((8,)))
    assert_equal(whole_of(state["s"]), rows)


def winner_of_37(name: str, holders: int, box: int = 0) -> int:
    """The rule: holder number (FNV-1a-64 of the name + number of the box) mod holders."""
    value = 0xCBF29CE484222325
    for byte in name.encode():
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return (value + box) % 2**64 % holders


NAMES_37 = ("w", "bias", "layer.0.weight", "layer.1.weight", "ключ")


@ranks(2)
def test_case37_of_unequal_replicas_a_fixed_function_of_the_name_decides(rank: Rank, tmp_path: Path) -> None:
    assert {winner_of_37(name, 2) for name in NAMES_37} == {0, 1}, "the names show both winners"
    local = torch.full((3,), rank.index + 1.0)
    mesh = make_mesh(2)
    for delay in (0.0, 0.2, 0.0):
        time.sleep(delay * rank.index)
        for state in (
            {name: DTensor.from_local(local, mesh, [Replicate()], shape=(3,)) for name in NAMES_37},
            {name: local for name in NAMES_37},
        ):
            checkpoint.save({"model": state}, tmp_path / "d")
            loaded = checkpoint.read(tmp_path / "d")["model"]
            for name in NAMES_37:
                assert loaded[name].tolist() == [winner_of_37(f"model.{name}", 2) + 1.0] * 3
            torch.distributed.barrier()


@pytest.mark.parametrize("kind", ["replicated", "plain", "value"])
@ranks(2, check=True)
def test_case37_under_the_check_unequal_replicas_raise(rank: Rank, kind: str, tmp_path: Path) -> None:
    local = torch.full((3,), rank.index + 1.0)
    entry: object = {
        "replicated": DTensor.from_local(local, make_mesh(2), [Replicate()], shape=(3,)),
        "plain": local,
        "value": rank.index,
    }[kind]
    raised_everywhere(
        rank, RuntimeError, lambda: checkpoint.save({"model": {"w": entry}}, tmp_path / "d"), "model.w", "0", "1"
    )
    assert content_of(tmp_path) == {}


@ranks(4)
def test_case37_replicas_of_a_ragged_tensor_are_stored_once_and_share_the_work(rank: Rank, tmp_path: Path) -> None:
    mesh = make_mesh(2, 2)
    wholes = {f"layer.{i}": random_bits((8, 3), torch.float32, seed=i) for i in range(16)}
    placements: list[Placement] = [Replicate(), RaggedShard((0,), (1, 3))]
    checkpoint.save(
        {name: distribute_tensor(whole, mesh, placements) for name, whole in wholes.items()}, tmp_path / "d"
    )
    assert stored_bytes(tmp_path / "d") == 16 * 8 * 3 * 4
    assert len(data_files(tmp_path / "d")) == 4, "every replica writes something"
    for name, whole in wholes.items():
        assert_same_bits(checkpoint.read(tmp_path / "d")[name], whole)


# 38: intervals as boxes

CHUNKS_38: dict[str, tuple[tuple[int, ...], RaggedShard, list[tuple[tuple[int, ...], tuple[int, ...]]]]] = {
    "3ranks (3, 4, 5)": (
        (3, 4, 5),
        RaggedShard((0, 1, 2), (7, 46, 7)),
        [
            ((0, 0, 0), (1, 1, 5)), ((0, 1, 0), (1, 1, 2)),
            ((0, 1, 2), (1, 1, 3)), ((0, 2, 0), (1, 2, 5)), ((1, 0, 0), (1, 4, 5)), ((2, 0, 0), (1, 2, 5)),
            ((2, 2, 0), (1, 1, 3)),
            ((2, 2, 3), (1, 1, 2)), ((2, 3, 0), (1, 1, 5)),
        ],
    ),
    "3ranks (2, 3, 4, 5)": (
        (2, 3, 4, 5),
        RaggedShard((0, 1, 2, 3), (17, 86, 17)),
        [
            ((0, 0, 0, 0), (1, 1, 3, 5)), ((0, 0, 3, 0), (1, 1, 1, 2)),
            ((0, 0, 3, 2), (1, 1, 1, 3)), ((0, 1, 0, 0), (1, 2, 4, 5)), ((1, 0, 0, 0), (1, 2, 4, 5)),
            ((1, 2, 0, 0), (1, 1, 1, 3)),
            ((1, 2, 0, 3), (1, 1, 1, 2)), ((1, 2, 1, 0), (1, 1, 3, 5)),
        ],
    ),
    "4ranks (3, 4, 2)": (
        (3, 4, 2),
        RaggedShard((0, 1), (0, 3, 1, 2)),
        [((0, 0, 0), (1, 4, 2)), ((1, 0, 0), (1, 2, 2)), ((1, 2, 0), (1, 2, 2)), ((2, 0, 0), (1, 4, 2))],
    ),
    "2ranks (6, 4, 8)": (
        (6, 4, 8),
        RaggedShard((0, 1), (1, 2)),
        [((0, 0, 0), (2, 4, 8)), ((2, 0, 0), (4, 4, 8))],
    ),
}  # fmt: skip


def save_38(rank: Rank, case: str, folder: Path) -> None:
    shape, placement, _ = CHUNKS_38[case]
    checkpoint.save({"w": distribute_tensor(numbered(shape), make_mesh(rank.size), [placement])}, folder)


@pytest.mark.parametrize("case", list(CHUNKS_38))
def test_case38_chunks_are_the_boxes_of_the_intervals(case: str, rank_pools: RankPools, tmp_path: Path) -> None:
    shape, _, expected = CHUNKS_38[case]
    rank_pools[int(case[0])].run(save_38, case, tmp_path / "d")
    chunks = chunks_of(tmp_path / "d", "w")
    assert [(chunk.offsets, chunk.sizes) for chunk in chunks] == expected
    # In order the boxes are the flat tensor, and none of an interval's are more than 2 * ndim - 1.
    assert b"".join(chunk.data for chunk in chunks) == bits(numbered(shape))
    for name in {chunk.file for chunk in chunks}:
        assert sum(chunk.file == name for chunk in chunks) <= 2 * len(shape) - 1


@pytest.mark.parametrize("case", list(CHUNKS_38))
def test_case38_several_chunks_in_a_file_have_keys_of_their_own(
    case: str, rank_pools: RankPools, tmp_path: Path
) -> None:
    rank_pools[int(case[0])].run(save_38, case, tmp_path / "d")
    chunks = chunks_of(tmp_path / "d", "w")
    for name in {chunk.file for chunk in chunks}:
        keys = [chunk.key for chunk in chunks if chunk.file == name]
        assert keys == (["w"] if len(keys) == 1 else [f"w.__dcp_chunk_{i}" for i in range(len(keys))])
