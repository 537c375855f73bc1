"""torch.distributed.checkpoint as torch ships it saves and loads DTensors of every layout."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.distributed.tensor as torch_tensor
from torch.distributed.checkpoint.metadata import MetadataIndex, TensorStorageMetadata
from torch.distributed.checkpoint.planner import SavePlan
from torch.distributed.checkpoint.state_dict import (
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)

from hyper_parallel import (
    DeviceMesh,
    DTensor,
    Partial,
    Placement,
    RaggedShard,
    Replicate,
    Shard,
    distribute_tensor,
    to_torch_dtensor,
)
from hyper_parallel._stock_checkpoint import CopyStager
from support.checks import assert_consistent, assert_equal, assert_part, assert_raises, make_mesh
from support.ranks import ranks
from support.truth import Spread
from support.values import DTYPES, random_values
from support.worker import Rank

Layout = tuple[tuple[int, ...], tuple[Placement, ...]]

SHAPE = (3, 4, 5)

# The mesh's shape and the placements. Ragged shares with one box, with five, and with none.
LAYOUTS: dict[str, dict[int, Layout]] = {
    "ragged rows": {2: ((2,), (RaggedShard((0,), (1, 2)),)), 4: ((4,), (RaggedShard((0,), (0, 2, 0, 1)),))},
    "ragged cells": {
        2: ((2,), (RaggedShard((0, 1, 2), (7, 53)),)),
        4: ((4,), (RaggedShard((0, 1, 2), (7, 46, 0, 7)),)),
    },
    "ragged over replicas": {
        2: ((2, 1), (Replicate(), RaggedShard((0, 1), (12,)))),
        4: ((2, 2), (Replicate(), RaggedShard((0, 1), (5, 7)))),
    },
    "replicated": {2: ((2,), (Replicate(),)), 4: ((2, 2), (Replicate(), Replicate()))},
    "sharded": {2: ((2,), (Shard(0),)), 4: ((4,), (Shard(0),))},
    "sharded inside": {2: ((2,), (Shard(-1),)), 4: ((4,), (Shard(1),))},
    "sharded twice": {2: ((2, 1), (Shard(2), Shard(0))), 4: ((2, 2), (Shard(1), Shard(1)))},
}


def layout_of(name: str, size: int) -> tuple[DeviceMesh, tuple[Placement, ...]]:
    mesh_shape, placements = LAYOUTS[name][size]
    return make_mesh(*mesh_shape), placements


def make(name: str, size: int, whole: torch.Tensor) -> DTensor:
    return distribute_tensor(whole, *layout_of(name, size))


def assert_loaded(tensor: DTensor, whole: torch.Tensor, rank: Rank) -> None:
    spread = Spread(tuple(whole.shape), tensor.device_mesh.shape, tensor.placements)
    assert_part(tensor, whole, spread, rank.index)


def chunks_in(folder: Path, name: str) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Offsets and sizes of the chunks that a checkpoint of torch's has of a tensor."""
    with (folder / ".metadata").open("rb") as file:
        stored = pickle.load(file).state_dict_metadata[name]
    assert isinstance(stored, TensorStorageMetadata)
    return sorted((tuple(chunk.offsets), tuple(chunk.sizes)) for chunk in stored.chunks)


@pytest.mark.parametrize("source", list(LAYOUTS))
@ranks(2, 4)
def test_a_saved_tensor_loads_into_every_layout(rank: Rank, source: str, tmp_path: Path) -> None:
    whole = random_values(SHAPE, torch.float32)
    dcp.save({"w": make(source, rank.size, whole)}, checkpoint_id=tmp_path)
    targets: dict[str, Any] = {name: make(name, rank.size, torch.zeros(SHAPE)) for name in LAYOUTS}
    for name, target in targets.items():
        state = {"w": target}
        dcp.load(state, checkpoint_id=tmp_path)
        assert state["w"] is target, name
        assert_loaded(target, whole, rank)


@pytest.mark.parametrize("source", list(LAYOUTS))
@ranks(2, 4)
def test_a_saved_tensor_loads_into_plain_and_torch_tensors(rank: Rank, source: str, tmp_path: Path) -> None:
    whole = random_values(SHAPE, torch.float64)
    dcp.save({"model": {"w": make(source, rank.size, whole)}}, checkpoint_id=tmp_path)
    mesh = make_mesh(rank.size).to_torch()
    targets: list[Any] = [
        torch.zeros_like(whole),
        torch_tensor.distribute_tensor(torch.zeros_like(whole), mesh, [torch_tensor.Shard(1)]),
        torch_tensor.distribute_tensor(torch.zeros_like(whole), mesh, [torch_tensor.Replicate()]),
    ]
    for target in targets:
        dcp.load({"model": {"w": target}}, checkpoint_id=tmp_path)
        assert_equal(target.full_tensor() if isinstance(target, torch_tensor.DTensor) else target, whole)


@pytest.mark.parametrize("target", list(LAYOUTS))
@ranks(2, 4)
def test_what_torch_has_saved_loads_into_every_layout(rank: Rank, target: str, tmp_path: Path) -> None:
    whole = random_values(SHAPE, torch.float32)
    mesh = make_mesh(rank.size).to_torch()
    placements: list[torch_tensor.placement_types.Placement] = [torch_tensor.Shard(2), torch_tensor.Replicate()]
    saved: dict[str, torch.Tensor] = {
        f"{number}": torch_tensor.distribute_tensor(whole, mesh, [placement])
        for number, placement in enumerate(placements)
    }
    dcp.save({**saved, "plain": whole}, checkpoint_id=tmp_path)
    state = {name: make(target, rank.size, torch.zeros(SHAPE)) for name in ("0", "1", "plain")}
    dcp.load(state, checkpoint_id=tmp_path)
    for tensor in state.values():
        assert_loaded(tensor, whole, rank)


@pytest.mark.parametrize("dtype", [*DTYPES, torch.uint8, torch.complex64, torch.float8_e4m3fn])
@ranks(2)
def test_every_dtype_comes_back_bit_for_bit(rank: Rank, dtype: torch.dtype, tmp_path: Path) -> None:
    whole = torch.arange(60 * dtype.itemsize, dtype=torch.uint8).reshape(60, -1)
    whole = (whole % 2).bool().flatten() if dtype == torch.bool else whole.view(dtype)
    whole = whole.flatten()[:60].reshape(SHAPE)
    mesh = make_mesh(2)
    source = RaggedShard((0, 1, 2), (7, 53))
    begin, end = ((0, 7), (7, 60))[rank.index]
    x = DTensor(whole.flatten()[begin:end].clone(), mesh, [source], shape=SHAPE)
    dcp.save({"w": x}, checkpoint_id=tmp_path)
    y = DTensor(torch.zeros(end - begin, dtype=dtype), mesh, [source], shape=SHAPE)
    dcp.load({"w": y}, checkpoint_id=tmp_path)
    kept = torch.empty(SHAPE, dtype=dtype)
    dcp.load({"w": kept}, checkpoint_id=tmp_path)
    assert torch.equal(y.to_local().view(torch.uint8), x.to_local().view(torch.uint8))
    assert torch.equal(kept.view(torch.uint8), whole.view(torch.uint8))


@ranks(4)
def test_case37_an_empty_share_does_not_take_the_place_of_a_real_one(rank: Rank, tmp_path: Path) -> None:
    mesh = make_mesh(4)
    whole = {"ragged": torch.arange(8.0), "rows": random_values((5, 3), torch.float32)}
    placements: dict[str, Placement] = {"ragged": RaggedShard((0,), (0, 3, 0, 1)), "rows": Shard(0)}
    dcp.save(
        {name: distribute_tensor(whole[name], mesh, [placement]) for name, placement in placements.items()},
        checkpoint_id=tmp_path,
    )
    assert chunks_in(tmp_path, "ragged") == [((0,), (6,)), ((6,), (2,))]
    assert chunks_in(tmp_path, "rows") == [((0, 0), (2, 3)), ((2, 0), (2, 3)), ((4, 0), (1, 3))]
    plain = {name: torch.zeros_like(tensor) for name, tensor in whole.items()}
    dcp.load(plain, checkpoint_id=tmp_path)
    for name, tensor in plain.items():
        assert_equal(tensor, whole[name])


@ranks(4)
def test_case37_replicas_store_each_byte_once(rank: Rank, tmp_path: Path) -> None:
    whole = random_values((64, 1024), torch.float32)
    mesh = make_mesh(2, 2)
    dcp.save({"w": distribute_tensor(whole, mesh, [Replicate(), RaggedShard((0,), (1, 3))])}, checkpoint_id=tmp_path)
    assert chunks_in(tmp_path, "w") == [((0, 0), (16, 1024)), ((16, 0), (48, 1024))]
    stored = sum(file.stat().st_size for file in tmp_path.glob("*.distcp"))
    assert whole.nbytes <= stored < whole.nbytes * 1.1


@ranks(2)
def test_case37_of_differing_replicas_the_same_one_wins_every_time(rank: Rank, tmp_path: Path) -> None:
    x = DTensor(torch.full((3,), 1.0 + rank.index), make_mesh(2), [Replicate()])
    for attempt in range(3):
        folder = tmp_path / str(attempt)
        dcp.save({"w": x}, checkpoint_id=folder)
        kept = torch.zeros(3)
        dcp.load({"w": kept}, checkpoint_id=folder)
        assert_equal(kept, torch.ones(3))


@pytest.mark.parametrize("shape", [(0, 4), (4, 0), (0,)])
@ranks(2)
def test_a_tensor_without_elements_is_known_by_its_name(rank: Rank, shape: tuple[int, ...], tmp_path: Path) -> None:
    mesh = make_mesh(2)
    placements: dict[str, Placement] = {"r": Replicate(), "s": Shard(0), "g": RaggedShard((0,), (1, 3))}
    state = {name: distribute_tensor(torch.zeros(shape), mesh, [placement]) for name, placement in placements.items()}
    dcp.save(state, checkpoint_id=tmp_path)
    dcp.load(state, checkpoint_id=tmp_path)
    plain = {name: torch.zeros(shape) for name in placements}
    dcp.load(plain, checkpoint_id=tmp_path)
    for name in placements:
        assert chunks_in(tmp_path, name) == [((0,) * len(shape), shape)]


@ranks(2)
def test_a_number_and_a_world_of_one_rank(rank: Rank, tmp_path: Path) -> None:
    mesh = make_mesh(2)
    dcp.save({"n": distribute_tensor(torch.tensor(5.0), mesh, [Replicate()])}, checkpoint_id=tmp_path)
    target = distribute_tensor(torch.tensor(0.0), mesh, [Replicate()])
    dcp.load({"n": target}, checkpoint_id=tmp_path)
    assert target.item() == 5.0
    alone = DeviceMesh((1,), ("dp",), [rank.index])
    folder = tmp_path / f"alone{rank.index}"
    x = distribute_tensor(random_values(SHAPE, torch.float32), alone, [RaggedShard((0,), (3,))])
    dcp.save({"w": x}, checkpoint_id=folder, no_dist=True)
    y = distribute_tensor(torch.zeros(SHAPE), alone, [RaggedShard((0, 1), (1,))])
    dcp.load({"w": y}, checkpoint_id=folder, no_dist=True)
    assert_equal(y.full_tensor(), x.full_tensor())


@ranks(4)
def test_ranks_outside_the_mesh_save_and_load_nothing(rank: Rank, tmp_path: Path) -> None:
    whole = random_values((6, 5), torch.float32)
    mesh = DeviceMesh((2,), ("dp",), [3, 1])
    placement = RaggedShard((0, 1), (7, 23))
    dcp.save({"w": distribute_tensor(whole, mesh, [placement])}, checkpoint_id=tmp_path)
    target = distribute_tensor(torch.zeros(6, 5), mesh, [RaggedShard((0, 1), (1, 2))])
    dcp.load({"w": target}, checkpoint_id=tmp_path)
    position = {3: 0, 1: 1}.get(rank.index)
    expected = torch.zeros(0) if position is None else whole.flatten()[10 * position : 10 + 20 * position]
    assert_equal(target.to_local(), expected)


@pytest.mark.parametrize("name", list(LAYOUTS))
@ranks(2)
def test_loading_writes_parameters_in_place_and_moves_their_version(rank: Rank, name: str, tmp_path: Path) -> None:
    whole = random_values(SHAPE, torch.float32)
    dcp.save({"w": whole}, checkpoint_id=tmp_path)
    parameter = torch.nn.Parameter(make(name, 2, torch.zeros(SHAPE)))
    assert isinstance(parameter, DTensor)
    address, version = parameter._local_tensor.data_ptr(), parameter._version
    dcp.load({"w": parameter}, checkpoint_id=tmp_path)
    assert parameter._local_tensor.data_ptr() == address
    assert parameter._version > version
    assert parameter.requires_grad
    assert parameter.is_leaf
    assert_consistent(parameter)
    assert_loaded(parameter, whole, rank)


@ranks(2)
def test_a_load_after_the_forward_is_seen_by_the_backward(rank: Rank, tmp_path: Path) -> None:
    dcp.save({"w": torch.ones(6)}, checkpoint_id=tmp_path)
    w = distribute_tensor(torch.zeros(6), make_mesh(2), [RaggedShard((0,), (1, 2))]).requires_grad_()
    loss = (w * w).full_tensor().sum()
    dcp.load({"w": w}, checkpoint_id=tmp_path)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def make_model(size: int, units: tuple[int, ...]) -> torch.nn.Module:
    """Parameters of many shapes, ragged over `size` ranks but for one, and a plain buffer."""
    model = torch.nn.Module()
    model.inner = torch.nn.Module()
    mesh = make_mesh(size)
    generator = torch.Generator().manual_seed(0)
    for owner, name, shape, placement in (
        (model, "weight", (6, 5), RaggedShard((0, 1), units)),
        (model.inner, "weight", (30,), RaggedShard((0,), units)),
        (model.inner, "bias", (4,), Replicate()),
    ):
        whole = torch.randn(shape, generator=generator)
        setattr(owner, name, torch.nn.Parameter(distribute_tensor(whole, mesh, [placement])))
    model.register_buffer("steps", torch.tensor(3))
    return model


def train(model: torch.nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        losses = []
        for parameter in model.parameters():
            assert isinstance(parameter, DTensor)
            whole = parameter.full_tensor()
            losses.append((whole * whole).sum())
        torch.stack(losses).sum().backward()
        optimizer.step()


def whole_parameters(model: torch.nn.Module) -> list[torch.Tensor]:
    return [p.full_tensor().detach() for p in model.parameters() if isinstance(p, DTensor)]


@ranks(2)
def test_model_and_adamw_resume_under_other_units(rank: Rank, tmp_path: Path) -> None:
    model = make_model(2, (7, 23))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    train(model, optimizer, 3)
    saved = {"model": get_model_state_dict(model), "optimizer": get_optimizer_state_dict(model, optimizer)}
    dcp.save(saved, checkpoint_id=tmp_path)

    other = make_model(2, (30, 0))
    other_optimizer = torch.optim.AdamW(other.parameters(), lr=0.7)
    state = {"model": get_model_state_dict(other), "optimizer": get_optimizer_state_dict(other, other_optimizer)}
    dcp.load(state, checkpoint_id=tmp_path)
    set_model_state_dict(other, state["model"])
    set_optimizer_state_dict(other, other_optimizer, state["optimizer"])
    for given, expected in zip(whole_parameters(other), whole_parameters(model), strict=True):
        assert_equal(given, expected)
    assert other_optimizer.param_groups[0]["lr"] == 0.1
    train(model, optimizer, 2)
    train(other, other_optimizer, 2)
    for given, expected in zip(whole_parameters(other), whole_parameters(model), strict=True):
        assert_equal(given, expected)


@ranks(2)
def test_a_module_in_the_state_dict_is_saved_and_loaded_by_its_own_state_dict(rank: Rank, tmp_path: Path) -> None:
    model = make_model(2, (7, 23))
    dcp.save({"model": model}, checkpoint_id=tmp_path)
    other = make_model(2, (1, 2))
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.zero_()
    dcp.load({"model": other}, checkpoint_id=tmp_path)
    for given, expected in zip(whole_parameters(other), whole_parameters(model), strict=True):
        assert_equal(given, expected)


@ranks(2)
def test_async_save_with_our_stager_keeps_the_state_of_the_call(rank: Rank, tmp_path: Path) -> None:
    model = make_model(2, (7, 23))
    before = [whole.clone() for whole in whole_parameters(model)]
    plain = torch.arange(3)
    state = {"model": model.state_dict(), "rest": [plain, (plain[1:], "text")], "step": 7}
    future = dcp.async_save(state, checkpoint_id=tmp_path, async_stager=CopyStager())
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        plain.zero_()
    assert isinstance(future, dist.checkpoint.state_dict_saver.Future)
    future.result()
    dist.barrier()
    loaded = {"model": model.state_dict(), "rest": [torch.zeros(3, dtype=torch.int64), (plain[1:], "")], "step": 0}
    dcp.load(loaded, checkpoint_id=tmp_path)
    for given, expected in zip(whole_parameters(model), before, strict=True):
        assert_equal(given, expected)
    assert_equal(loaded["rest"][0], torch.arange(3))
    assert loaded["step"] == 7


@ranks(2)
def test_stagers_of_torch_raise(rank: Rank, tmp_path: Path) -> None:
    state = {"w": make("ragged cells", 2, torch.ones(SHAPE))}
    for writer in (None, dcp.FileSystemWriter(tmp_path)):
        with pytest.raises(NotImplementedError, match="data_ptr"):
            dcp.async_save(state, checkpoint_id=tmp_path, storage_writer=writer)


def assert_every_rank_raises(text: str, action: Any) -> None:
    """torch hands the errors of all ranks to all ranks."""
    with pytest.raises(dcp.CheckpointException) as caught:
        action()
    assert caught.value.failures
    for error, _ in caught.value.failures.values():
        assert text in str(error)


@ranks(2)
def test_a_pending_tensor_is_neither_saved_nor_loaded(rank: Rank, tmp_path: Path) -> None:
    pending = DTensor(torch.ones(3), make_mesh(2), [Partial()])
    text = "state dict entry 'a.w' is pending: its placement on mesh dim 'dp' is Partial(reduce_op='sum')"
    assert_every_rank_raises(text, lambda: dcp.save({"a": {"w": pending}}, checkpoint_id=tmp_path))
    assert not list(tmp_path.glob("*.distcp"))
    dcp.save({"w": torch.ones(3)}, checkpoint_id=tmp_path)
    text = "the DTensor to load into is pending: its placement on mesh dim 'dp' is Partial(reduce_op='sum')"
    assert_every_rank_raises(text, lambda: dcp.load({"w": pending}, checkpoint_id=tmp_path))
    assert_raises(
        NotImplementedError, "call reduce_partial() first", lambda: pending.__get_tensor_shard__(MetadataIndex("w"))
    )


@ranks(2)
def test_another_shape_and_a_missing_name_leave_the_target_untouched(rank: Rank, tmp_path: Path) -> None:
    dcp.save({"w": make("ragged cells", 2, torch.ones(SHAPE))}, checkpoint_id=tmp_path)
    target = distribute_tensor(torch.zeros(4, 3, 5), make_mesh(2), [RaggedShard((0,), (1, 3))])
    assert_every_rank_raises("Size mismatch", lambda: dcp.load({"w": target}, checkpoint_id=tmp_path))
    assert_every_rank_raises("Missing key", lambda: dcp.load({"v": target}, checkpoint_id=tmp_path))
    assert_equal(target.full_tensor(), torch.zeros(4, 3, 5))


@ranks(2)
def test_a_box_is_found_by_its_offset(rank: Rank) -> None:
    x = make("ragged cells", 2, torch.arange(60.0).reshape(SHAPE))
    boxes = x.__create_chunk_list__()
    expected = [[(1, 1, 5), (1, 1, 2)], [(1, 1, 3), (1, 2, 5), (2, 4, 5)]]
    assert [tuple(box.sizes) for box in boxes] == expected[rank.index]
    for box in boxes:
        cells = [slice(offset, offset + size) for offset, size in zip(box.offsets, box.sizes, strict=True)]
        view = x.__get_tensor_shard__(MetadataIndex("w", box.offsets, 1000))
        assert_equal(view, torch.arange(60.0).reshape(SHAPE)[tuple(cells)])
        assert view.untyped_storage().data_ptr() == x._local_tensor.untyped_storage().data_ptr()
    assert_raises(
        ValueError,
        f"state dict entry 'w' has no box at offset (2, 3, 4) on rank {rank.index}; its boxes are at [(0, ",
        lambda: x.__get_tensor_shard__(MetadataIndex("w", (2, 3, 4))),
    )
    y = make("sharded", 2, torch.ones(SHAPE))
    assert y.__get_tensor_shard__(MetadataIndex("w")).data_ptr() == y._local_tensor.data_ptr()


@pytest.mark.parametrize("save_distributed", [True, False])
@ranks(2)
def test_several_boxes_do_not_reach_a_writer_that_keeps_one(rank: Rank, save_distributed: bool, tmp_path: Path) -> None:
    state = {"model": {"w": make("ragged cells", 2, torch.ones(SHAPE))}}
    writers = [
        dcp.HuggingFaceStorageWriter(str(tmp_path), save_distributed=save_distributed),
        dcp.FileSystemWriter(tmp_path, serialization_format=dcp.filesystem.SerializationFormat.SAFETENSORS),
    ]
    for writer in writers:
        text = f"torch's {type(writer).__name__} keeps one tensor per name and file but this rank has "
        assert_every_rank_raises(text, lambda writer=writer: dcp.save(state, storage_writer=writer))
    assert not list(tmp_path.iterdir())
    dcp.save(state, storage_writer=dcp.FileSystemWriter(tmp_path))
    assert len(chunks_in(tmp_path, "model.w")) > 2


@ranks(2)
def test_a_writer_without_a_format_saves_several_boxes(rank: Rank, tmp_path: Path) -> None:
    class Plain(dcp.FileSystemWriter):
        """As in a release of torch whose writer does not say its format."""

        def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
            said = vars(self).pop("serialization_format")
            planned = super().prepare_local_plan(plan)
            self.serialization_format = said
            return planned

    whole = torch.arange(60.0).reshape(SHAPE)
    dcp.save({"w": make("ragged cells", 2, whole)}, storage_writer=Plain(tmp_path))
    target = make("ragged cells", 2, torch.zeros(SHAPE))
    dcp.load({"w": target}, checkpoint_id=tmp_path)
    assert_equal(target.full_tensor(), whole)


@ranks(2)
def test_one_box_a_rank_goes_through_torchs_hugging_face_writer(rank: Rank, tmp_path: Path) -> None:
    whole = random_values((6, 5), torch.float32)
    x = distribute_tensor(whole, make_mesh(2), [RaggedShard((0,), (1, 2))])
    dcp.save({"w": x}, storage_writer=dcp.HuggingFaceStorageWriter(str(tmp_path), save_distributed=True))
    y = distribute_tensor(torch.zeros(6, 5), make_mesh(2), [RaggedShard((0, 1), (7, 23))])
    dcp.load({"w": y}, storage_reader=dcp.HuggingFaceStorageReader(str(tmp_path)))
    assert_equal(y.full_tensor(), whole)


@ranks(2)
def test_ours_and_torchs_tensors_share_a_state_dict(rank: Rank, tmp_path: Path) -> None:
    whole = random_values(SHAPE, torch.float32)
    ours = make("sharded", 2, whole)
    state = {"ours": ours, "torchs": to_torch_dtensor(ours), "number": 3, "nested": [{"plain": whole}]}
    dcp.save(state, checkpoint_id=tmp_path)
    assert chunks_in(tmp_path, "ours") == chunks_in(tmp_path, "torchs")
    target = make("ragged cells", 2, torch.zeros(SHAPE))
    dcp.load({"torchs": target}, checkpoint_id=tmp_path)
    assert_loaded(target, whole, rank)
