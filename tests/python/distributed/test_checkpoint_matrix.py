"""Every layout on 1 to 4 ranks, saved and loaded as every other one: bit for bit, each byte stored once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import strategies as st

from hyper_parallel import DeviceMesh, DTensor, Placement, RaggedShard, Replicate, Shard, checkpoint, distribute_tensor
from support.checkpoints import (
    DTYPES,
    assert_same_bits,
    bits,
    chunks_of,
    data_files,
    local_of,
    metadata_of,
    random_bits,
    stored_bytes,
)
from support.checks import assert_consistent, make_mesh
from support.drawing import drawn
from support.pool import RankPools
from support.ranks import ranks
from support.strategies import Transition, transitions
from support.truth import Spread
from support.worker import Rank

SHAPE = (6, 4, 5)
Layout = tuple[tuple[int, ...], tuple[Placement, ...]]
"""The shape of a mesh and a placement for each of its dims; of a plain tensor none."""

PLAIN: Layout = ((), ())
ROWS = {1: (3,), 2: (2, 1), 3: (0, 2, 1), 4: (1, 0, 3, 2)}
CELLS = {1: (12,), 2: (5, 7), 3: (7, 5, 0), 4: (5, 0, 1, 6)}
ELEMENTS = {1: (60,), 2: (23, 37), 3: (0, 59, 1), 4: (17, 0, 40, 3)}


def layouts(size: int) -> dict[str, Layout]:
    """All layouts of a (6, 4, 5) tensor on `size` ranks, by name."""
    found: dict[str, Layout] = {
        "ragged rows": ((size,), (RaggedShard((0,), ROWS[size]),)),
        "ragged cells": ((size,), (RaggedShard((0, 1), CELLS[size]),)),
        "ragged elements": ((size,), (RaggedShard((0, 1, 2), ELEMENTS[size]),)),
        "replicated": ((size,), (Replicate(),)),
        "sharded rows": ((size,), (Shard(0),)),
        "sharded columns": ((size,), (Shard(1),)),
        "sharded last dim": ((size,), (Shard(2),)),
        "plain": PLAIN,
    }
    if size == 4:
        found["rows nested"] = ((2, 2), (Shard(0), Shard(0)))
        found["replicated, ragged"] = ((2, 2), (Replicate(), RaggedShard((0, 1), CELLS[2])))
        found["ragged, replicated"] = ((2, 2), (RaggedShard((0,), ROWS[2]), Replicate()))
    return found


def laid_out(whole: torch.Tensor, layout: Layout) -> torch.Tensor:
    mesh_shape, placements = layout
    return whole.clone() if layout == PLAIN else distribute_tensor(whole, make_mesh(*mesh_shape), list(placements))


def part_of(whole: torch.Tensor, layout: Layout, rank: Rank) -> torch.Tensor:
    """What a rank must hold, by the definitions."""
    cells = Spread(tuple(whole.shape), *layout).cells(0 if layout == PLAIN else rank.index)
    size = whole.element_size()
    raw = whole.reshape(-1).view(torch.uint8).reshape(-1, size)[cells.reshape(-1)]
    return raw.reshape(-1).view(whole.dtype).reshape(cells.shape)


def wholes(layout: str) -> dict[str, torch.Tensor]:
    """A tensor of each dtype, others for each layout."""
    return {str(dtype): random_bits(SHAPE, dtype, seed=len(layout) + 100 * i) for i, dtype in enumerate(DTYPES)}


def save_all(rank: Rank, folder: Path) -> None:
    """Saves every layout that this number of ranks has, with every dtype."""
    checkpoint.save(
        {
            name: {dtype: laid_out(whole, layout) for dtype, whole in wholes(name).items()}
            for name, layout in layouts(rank.size).items()
        },
        folder,
    )


@pytest.fixture(scope="module")
def saved(rank_pools: RankPools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[int, Path]]:
    """A directory for each number of ranks, saved by so many."""
    folders = {size: tmp_path_factory.mktemp("matrix") / f"{size}ranks" for size in (1, 2, 3, 4)}
    for size, folder in folders.items():
        rank_pools[size].run(save_all, folder)
    yield folders


def load_all_under_all(rank: Rank, folder: Path, saved_by: int) -> None:
    """Loads each stored layout under each layout of these ranks: one load for each way to pair them."""
    sources, targets = list(layouts(saved_by)), layouts(rank.size)
    for shift in range(len(targets)):
        pairs = {source: list(targets)[(i + shift) % len(targets)] for i, source in enumerate(sources)}
        state = {
            source: {str(dtype): laid_out(torch.zeros(SHAPE, dtype=dtype), targets[target]) for dtype in DTYPES}
            for source, target in pairs.items()
        }
        kept = {source: dict(tensors) for source, tensors in state.items()}
        checkpoint.load(state, folder)
        for source, target in pairs.items():
            for dtype, whole in wholes(source).items():
                tensor = state[source][dtype]
                what = f"{dtype}, {source} of {saved_by} ranks as {target}"
                assert tensor is kept[source][dtype], what
                assert bits(local_of(tensor)) == bits(part_of(whole, targets[target], rank)), what


@pytest.mark.parametrize("loaded_by", [1, 2, 3, 4])
@pytest.mark.parametrize("saved_by", [1, 2, 3, 4])
def test_every_layout_loads_under_every_layout(
    saved: dict[int, Path], saved_by: int, loaded_by: int, rank_pools: RankPools
) -> None:
    rank_pools[loaded_by].run(load_all_under_all, saved[saved_by], saved_by)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_each_byte_is_stored_once(saved: dict[int, Path], size: int) -> None:
    expected = {f"{name}.{dtype}": whole.nbytes for name in layouts(size) for dtype, whole in wholes(name).items()}
    assert set(metadata_of(saved[size])["tensors"]) == set(expected)
    for name, size_of_tensor in expected.items():
        assert sum(len(chunk.data) for chunk in chunks_of(saved[size], name)) == size_of_tensor, name
    assert stored_bytes(saved[size]) == sum(expected.values())


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_read_gives_the_whole_tensors(saved: dict[int, Path], size: int) -> None:
    state = checkpoint.read(saved[size])
    assert set(state) == set(layouts(size))
    for name, tensors in state.items():
        assert set(tensors) == set(wholes(name))
        for dtype, whole in wholes(name).items():
            assert type(tensors[dtype]) is torch.Tensor
            assert_same_bits(tensors[dtype], whole)


@ranks(4)
def test_empty_ranks_write_no_file(rank: Rank, tmp_path: Path) -> None:
    whole = random_bits((6, 4), torch.float32)
    placements: list[Placement] = [RaggedShard((0,), (0, 1, 0, 2))]
    checkpoint.save({"w": distribute_tensor(whole, make_mesh(4), placements), "step": 1}, tmp_path / "d")
    writers = [name.removesuffix(".safetensors").rsplit("-", 1)[1] for name in data_files(tmp_path / "d")]
    assert writers == ["00001", "00003"]


@ranks(2)
def test_a_state_without_bytes_has_no_data_file(rank: Rank, tmp_path: Path) -> None:
    mesh = make_mesh(2)
    empty = {
        "sharded": distribute_tensor(torch.zeros(0, 4), mesh, [Shard(0)]),
        "ragged": distribute_tensor(torch.zeros(0, 3), mesh, [RaggedShard((0,), (1, 2))]),
        "plain": torch.zeros(2, 0),
    }
    checkpoint.save({**empty, "step": 3}, tmp_path / "d")
    assert data_files(tmp_path / "d") == []
    state = {**empty, "step": 0}
    checkpoint.load(state, tmp_path / "d")
    assert state["step"] == 3
    assert checkpoint.read(tmp_path / "d")["ragged"].shape == (0, 3)


@ranks(4)
def test_ranks_outside_the_mesh_take_part_with_nothing(rank: Rank, tmp_path: Path) -> None:
    whole = random_bits(SHAPE, torch.float32)
    for mesh_ranks, placements in (((1, 3), [RaggedShard((0,), (2, 1))]), ((2, 0, 1), [Shard(0)])):
        mesh = make_mesh_of(mesh_ranks)
        state: dict[str, object] = {"w": distribute_tensor(whole, mesh, placements)}
        if rank.index in mesh_ranks:
            state["plain"] = whole.clone()
        checkpoint.save(state, tmp_path / "d")
        assert stored_bytes(tmp_path / "d") == 2 * whole.nbytes
        target = {"w": distribute_tensor(torch.zeros(SHAPE), make_mesh_of((3, 2)), [RaggedShard((0,), (1, 2))])}
        checkpoint.load(target, tmp_path / "d", allow_extra=["plain"])
        position = {3: 0, 2: 1}.get(rank.index)
        if position is None:
            assert local_of(target["w"]).numel() == 0
        else:
            rows = whole[:2] if position == 0 else whole[2:]
            assert bits(local_of(target["w"])) == bits(rows)


def make_mesh_of(mesh_ranks: tuple[int, ...]) -> DeviceMesh:
    return DeviceMesh((len(mesh_ranks),), ("dp",), mesh_ranks)


@ranks(2)
def test_targets_stay_tensors_that_train(rank: Rank, tmp_path: Path) -> None:
    """Parameters are filled in place, outside the graph, and their version says so."""
    whole = random_bits((6, 4), torch.float32)
    mesh = make_mesh(2)
    checkpoint.save({"w": distribute_tensor(whole, mesh, [Shard(0)]), "p": whole}, tmp_path / "d")
    w = torch.nn.Parameter(distribute_tensor(torch.zeros(6, 4), mesh, [RaggedShard((0,), (1, 2))]))
    p = torch.nn.Parameter(torch.zeros(6, 4))
    assert isinstance(w, DTensor)
    address = w._local_tensor.data_ptr()
    version = w._version, p._version
    checkpoint.load({"w": w, "p": p}, tmp_path / "d")
    assert_consistent(w)
    assert w._local_tensor.data_ptr() == address
    assert w.is_leaf
    assert w.requires_grad
    assert p.is_leaf
    assert p.requires_grad
    assert w._version > version[0]
    assert p._version > version[1]
    assert bits(w._local_tensor) == bits(whole[:2] if rank.index == 0 else whole[2:])
    assert_same_bits(p, whole)


KINDS = ("ragged", "shard", "replicate")
MESHES = ((4,), (2, 2))


@st.composite
def any_transition(draw: st.DrawFn) -> Transition:
    mesh_shape = draw(st.sampled_from(MESHES), label="mesh shape")
    source, target = draw(st.sampled_from(KINDS), label="source"), draw(st.sampled_from(KINDS), label="target")
    return draw(transitions(source, target, mesh_shape, DTYPES))


@drawn(examples=60, case=any_transition())
@ranks(4)
def test_any_layout_loads_under_any_other(rank: Rank, case: Transition) -> None:
    """Saved into one directory again and again: each save replaces the one before."""
    folder = rank.folder / "drawn"
    source = (case.source.mesh_shape, case.source.placements)
    target = (case.target.mesh_shape, case.target.placements)
    whole = random_bits(case.source.shape, case.dtype)
    checkpoint.save({"w": laid_out(whole, source)}, folder)
    assert stored_bytes(folder) == whole.nbytes
    state = {"w": laid_out(torch.zeros(case.source.shape, dtype=case.dtype), target)}
    checkpoint.load(state, folder)
    assert bits(local_of(state["w"])) == bits(part_of(whole, target, rank))
