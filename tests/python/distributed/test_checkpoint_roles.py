"""Planners and storages of the user's own, groups of some ranks, progress, and plans that are used again."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh as torch_mesh
from torch.distributed.tensor import Shard as TorchShard
from torch.distributed.tensor import distribute_tensor as torch_distribute

from hyper_parallel import DeviceMesh, RaggedShard, Replicate, Shard, checkpoint, distribute_tensor
from hyper_parallel.checkpoint._jobs import checkpointer_of
from support.checkpoints import (
    ForwardingReader,
    ForwardingWriter,
    assert_same_bits,
    chunks_of,
    data_files,
    local_of,
    random_bits,
    stored_bytes,
)
from support.checks import assert_equal, make_mesh, whole_of
from support.ranks import ranks
from support.values import numbered
from support.worker import Rank

# Names


def test_the_specifications_path_has_the_same_names() -> None:
    package = importlib.import_module("hyper_parallel.core.distributed_checkpoint")
    for name in checkpoint.__all__:
        assert getattr(package, name) is getattr(checkpoint, name)


# Planners


@ranks(3)
def test_a_save_plan_says_every_box(rank: Rank) -> None:
    whole = numbered((3, 4, 5))
    w = distribute_tensor(whole, make_mesh(3), [RaggedShard((0, 1, 2), (7, 46, 7))])
    planner = checkpoint.StandardSavePlanner({"model": {"w": w}, "b": torch.zeros(2, dtype=torch.bfloat16), "n": 1})
    plan = planner.build_local_plan()
    assert plan.values == {"n": 1}
    assert plan.structure == {"model": {"w": "model.w"}, "b": "b", "n": "n"}
    w_items = [item for item in plan.items if item.index.fqn == "model.w"]
    (b,) = (item for item in plan.items if item.index.fqn == "b")
    assert (b.dtype, b.size, b.length) == ("BF16", (2,), 4)
    assert b.index == checkpoint.MetadataIndex("b", (0,))
    if rank.index == 1:
        assert [(item.chunk.offsets, item.chunk.sizes) for item in w_items] == [
            ((0, 1, 2), (1, 1, 3)),
            ((0, 2, 0), (1, 2, 5)),
            ((1, 0, 0), (1, 4, 5)),
            ((2, 0, 0), (1, 2, 5)),
            ((2, 2, 0), (1, 1, 3)),
        ]
    for item in w_items:
        where = tuple(
            slice(begin, begin + size) for begin, size in zip(item.chunk.offsets, item.chunk.sizes, strict=True)
        )
        assert_same_bits(planner.get_data(item), whole[where])


class DoublingPlanner(checkpoint.StandardSavePlanner):
    """Stores twice the value of what it is given."""

    def get_data(self, item: checkpoint.WriteItem) -> Any:
        return super().get_data(item) * 2


class WithoutOptimizer(checkpoint.StandardSavePlanner):
    """Leaves the optimizer out."""

    def build_local_plan(self) -> checkpoint.SavePlan:
        plan = super().build_local_plan()
        return checkpoint.SavePlan([tensor for tensor in plan.tensors if not tensor.name.startswith("optimizer.")])


class LastRankWrites(checkpoint.StandardSavePlanner):
    """Gives everything to the last rank, which must hold it."""

    def build_global_plan(self, plans: list[checkpoint.SavePlan]) -> checkpoint.GlobalSavePlan:
        united = super().build_global_plan(plans)
        united.assigned = [checkpoint.SavePlan([]) for _ in plans[:-1]] + [checkpoint.SavePlan(plans[-1].tensors)]
        return united


def state_of_2() -> dict[str, Any]:
    mesh = make_mesh(2)
    return {
        "model": {"w": distribute_tensor(numbered((6, 4)), mesh, [RaggedShard((0,), (1, 2))])},
        "optimizer": {"m": distribute_tensor(numbered((5,)), mesh, [Replicate()]), "p": numbered((3,))},
    }


@pytest.mark.parametrize("saver", ["save", "async_save"])
@ranks(2)
def test_a_planner_may_change_what_is_stored(rank: Rank, saver: str, tmp_path: Path) -> None:
    handle = getattr(checkpoint, saver)(state_of_2(), tmp_path / "d", planner=DoublingPlanner)
    if handle is not None:
        handle.wait()
    loaded = checkpoint.read(tmp_path / "d")
    assert_equal(loaded["model"]["w"], numbered((6, 4)) * 2)
    assert_equal(loaded["optimizer"]["m"], numbered((5,)) * 2)


@ranks(2)
def test_a_planner_may_leave_entries_out(rank: Rank, tmp_path: Path) -> None:
    checkpoint.save(state_of_2(), tmp_path / "d", planner=WithoutOptimizer)
    loaded = checkpoint.read(tmp_path / "d")
    assert list(loaded) == ["model.w"]
    assert_equal(loaded["model.w"], numbered((6, 4)))


@ranks(2)
def test_a_planner_may_say_who_writes(rank: Rank, tmp_path: Path) -> None:
    state = {name: distribute_tensor(numbered((4,)), make_mesh(2), [Replicate()]) for name in "abcdefgh"}
    checkpoint.save(state, tmp_path / "d")
    assert len(data_files(tmp_path / "d")) == 2
    checkpoint.save(state, tmp_path / "d", planner=LastRankWrites)
    assert [name[-17:] for name in data_files(tmp_path / "d")] == ["00001.safetensors"]
    assert_equal(checkpoint.read(tmp_path / "d")["h"], numbered((4,)))


class SeeingPlanner(checkpoint.StandardLoadPlanner):
    """Keeps what it is asked for."""

    def __init__(self, state_dict: dict[Any, Any]) -> None:
        super().__init__(state_dict)
        self.seen: list[checkpoint.ReadItem] = []
        self.has_finished = False

    def acquire_tensor(self, item: checkpoint.ReadItem) -> torch.Tensor:
        self.seen.append(item)
        view = super().acquire_tensor(item)
        assert tuple(view.shape) == item.lengths
        return view

    def finish(self) -> None:
        self.has_finished = True
        super().finish()


@ranks(2)
def test_a_load_planner_is_asked_for_every_overlap(rank: Rank, tmp_path: Path) -> None:
    mesh = make_mesh(2)
    checkpoint.save({"w": distribute_tensor(numbered((6, 4)), mesh, [Shard(0)])}, tmp_path / "d")
    target = distribute_tensor(torch.zeros(6, 4), mesh, [RaggedShard((0, 1), (5, 7))])
    planner = SeeingPlanner({"w": target})
    checkpoint.load({"w": target}, tmp_path / "d", planner=planner)
    assert_equal(whole_of(target), numbered((6, 4)))
    assert planner.has_finished
    seen = [(item.storage_index.offset, item.storage_offsets, item.dest_index.offset, item.dest_offsets, item.lengths)
            for item in planner.seen]  # fmt: skip
    # Stored: rows 0 to 2, rows 3 to 5. Wanted: cells 0 to 9 and 10 to 23.
    assert (
        seen
        == [
            [((0, 0), (0, 0), (0, 0), (0, 0), (2, 4)), ((0, 0), (2, 0), (2, 0), (0, 0), (1, 2))],
            [((0, 0), (2, 2), (2, 2), (0, 0), (1, 2)), ((3, 0), (0, 0), (3, 0), (0, 0), (3, 4))],
        ][rank.index]
    )
    assert {item.dest_index.fqn for item in planner.seen} == {"w"}
    assert {item.dtype for item in planner.seen} == {"F32"}


class HalvingPlanner(checkpoint.StandardLoadPlanner):
    """Halves every tensor of the model once it is read."""

    def __init__(self, state_dict: dict[Any, Any]) -> None:
        super().__init__(state_dict)
        self.model = state_dict["model"]

    def finish(self) -> None:
        super().finish()
        for tensor in self.model.values():
            local_of(tensor).div_(2)


@ranks(2)
def test_a_load_planner_may_change_what_was_read(rank: Rank, tmp_path: Path) -> None:
    checkpoint.save(state_of_2(), tmp_path / "d")
    state = state_of_2()
    checkpoint.load(state, tmp_path / "d", planner=HalvingPlanner)
    assert_equal(whole_of(state["model"]["w"]), numbered((6, 4)) / 2)
    assert_equal(state["optimizer"]["p"], numbered((3,)))


# Storages


class MemoryWriter(checkpoint.StorageWriter):
    """Keeps a checkpoint in a dict of files: one for each box."""

    def __init__(self, files: dict[str, bytes]) -> None:
        super().__init__()
        self.files = files

    def begin(self) -> str:
        return "00112233445566aa"

    def write(self, save_id: str, rank: int, plan: Any, planner: Any, progress: Any) -> checkpoint.CheckpointParts:
        parts = checkpoint.CheckpointParts()
        progress.start(sum(item.length for item in plan.items))
        for number, item in enumerate(plan.items):
            data = planner.get_data(item)
            content = data.reshape(-1).view(torch.uint8).numpy().tobytes() if isinstance(data, torch.Tensor) else data
            content = bytes(content)
            name = f"{rank}-{number}"
            self.files[name] = content
            parts.add_file(name, len(content))
            parts.add_chunk(item, name, 0, checkpoint.block_checksums(content))
            progress.advance(len(content))
        progress.finish()
        return parts

    def publish(self, metadata: checkpoint.CheckpointMetadata) -> None:
        self.files[".metadata"] = metadata.to_bytes()

    def abandon(self) -> None:
        self.files.clear()


class MemoryReader(checkpoint.StorageReader):
    """Reads it again."""

    def __init__(self, files: dict[str, bytes]) -> None:
        super().__init__()
        self.files = files

    def read_metadata(self) -> bytes:
        return self.files[".metadata"]

    def read(self, metadata: Any, plan: Any, planner: Any, progress: Any) -> None:
        tensors, places = metadata.state_dict_metadata, metadata.storage_data
        for item in plan.items:
            place = places[item.storage_index]
            (box,) = (
                chunk for chunk in tensors[item.storage_index.fqn].chunks if chunk.offsets == item.storage_index.offset
            )
            target = planner.acquire_tensor(item)
            content = self.files[place.relative_path][place.offset : place.offset + place.length]
            chunk = torch.frombuffer(bytearray(content), dtype=target.dtype).reshape(box.sizes)
            where = (slice(o, o + n) for o, n in zip(item.storage_offsets, item.lengths, strict=True))
            target.copy_(chunk[tuple(where)])


@pytest.mark.parametrize("saver", ["save", "async_save"])
@ranks(1)
def test_a_storage_of_the_users_own(rank: Rank, saver: str) -> None:
    files: dict[str, bytes] = {}
    mesh = make_mesh(1)
    state = {"w": distribute_tensor(numbered((6, 4)), mesh, [RaggedShard((0,), (1,))]), "p": numbered((3,)), "n": 5}
    handle = getattr(checkpoint, saver)(state, storage_writer=MemoryWriter(files))
    if handle is not None:
        handle.wait()
    assert set(files) == {".metadata", "0-0", "0-1"}
    target = {"w": distribute_tensor(torch.zeros(6, 4), mesh, [Shard(1)]), "p": torch.zeros(3), "n": 0}
    checkpoint.load(target, storage_reader=MemoryReader(files))
    assert_equal(whole_of(target["w"]), numbered((6, 4)))
    assert target["p"].tolist() == [0, 1, 2]
    assert target["n"] == 5
    assert_equal(checkpoint.read(storage_reader=MemoryReader(files))["w"], numbered((6, 4)))


@ranks(2)
def test_a_storage_around_the_file_systems(rank: Rank, tmp_path: Path) -> None:
    checkpoint.save(state_of_2(), storage_writer=ForwardingWriter(tmp_path / "d"))
    state = state_of_2()
    state["model"]["w"]._local_tensor.fill_(-9)
    checkpoint.load(state, storage_reader=ForwardingReader(tmp_path / "d"))
    assert_equal(whole_of(state["model"]["w"]), numbered((6, 4)))


# Groups


@ranks(4)
def test_a_group_of_some_ranks_saves_and_loads_alone(rank: Rank, tmp_path: Path) -> None:
    group = dist.new_group([3, 1])
    whole = random_bits((6, 4), torch.float32)
    if rank.index in {1, 3}:
        mesh = DeviceMesh((2,), ("dp",), (1, 3))
        state = {"w": distribute_tensor(whole, mesh, [RaggedShard((0,), (1, 2))]), "who": "some"}
        checkpoint.save(state, tmp_path / "d", process_group=group)
        target = {"w": distribute_tensor(torch.zeros(6, 4), mesh, [Shard(1)]), "who": ""}
        checkpoint.load(target, tmp_path / "d", process_group=group)
        assert_same_bits(whole_of(target["w"]), whole)
        assert target["who"] == "some"
        checkpoint.async_save(state, tmp_path / "e", process_group=group).wait()
        assert_same_bits(checkpoint.read(tmp_path / "e")["w"], whole)
    dist.barrier()
    assert stored_bytes(tmp_path / "d") == whole.nbytes


@ranks(4)
def test_two_groups_save_at_the_same_time(rank: Rank, tmp_path: Path) -> None:
    groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    mine = rank.index // 2
    state = {"w": torch.full((4,), float(mine)), "group": mine}
    for _ in range(3):
        checkpoint.save(state, tmp_path / f"d{mine}", process_group=groups[mine])
    target = {"w": torch.zeros(4), "group": -1}
    checkpoint.load(target, tmp_path / f"d{mine}", process_group=groups[mine])
    assert target["group"] == mine
    assert target["w"].tolist() == [mine] * 4


@ranks(2)
def test_a_tensor_of_torchs_own_kind_is_one_like_any_other(rank: Rank, tmp_path: Path) -> None:
    whole = random_bits((5, 4), torch.float32)
    theirs = torch_distribute(whole, torch_mesh("cpu", (2,)), [TorchShard(0)])
    checkpoint.save({"w": theirs}, tmp_path / "d")
    assert [chunk.sizes for chunk in chunks_of(tmp_path / "d", "w")] == [(3, 4), (2, 4)]
    target = torch_distribute(torch.zeros(5, 4), torch_mesh("cpu", (2,)), [TorchShard(1)])
    checkpoint.load({"w": target}, tmp_path / "d")
    assert_same_bits(target.to_local(), whole[:, 2 * rank.index : 2 * rank.index + 2].contiguous())


# Progress


@ranks(2)
def test_progress_counts_this_ranks_bytes(rank: Rank, tmp_path: Path) -> None:
    mesh = make_mesh(2)
    whole = random_bits((512, 1024), torch.float64)
    state = {"w": distribute_tensor(whole, mesh, [RaggedShard((0,), (1, 3))])}
    mine = whole.nbytes // 4 * (1, 3)[rank.index]
    for call in (checkpoint.save, checkpoint.async_save, checkpoint.load):
        told: list[tuple[int, int]] = []
        handle = call(state, tmp_path / "d", progress=lambda done, total, told=told: told.append((done, total)))
        if handle is not None:
            handle.wait()
        assert told[0] == (0, mine)
        assert told[-1] == (mine, mine)
        assert {total for _, total in told} == {mine}
        assert [done for done, _ in told] == sorted(done for done, _ in told)


# Plans that are used again


@ranks(2)
def test_the_plan_of_normal_tensors_is_used_again_and_that_of_ragged_ones_is_not(rank: Rank, tmp_path: Path) -> None:
    mesh = make_mesh(2)
    normal = {"s": distribute_tensor(numbered((5, 2)), mesh, [Shard(0)]), "p": torch.zeros(3), "step": 0}
    ragged = {**normal, "g": distribute_tensor(numbered((4,)), mesh, [RaggedShard((0,), (1, 3))])}
    job = checkpointer_of()

    def hits_of(state: dict[str, Any], times: int) -> int:
        before = job.plan_cache_hits
        for step in range(times):
            checkpoint.save({**state, "step": step}, tmp_path / "d")
            assert checkpoint.read(tmp_path / "d")["step"] == step
            dist.barrier()
        return job.plan_cache_hits - before

    assert hits_of(normal, 4) in {2, 3}
    assert hits_of(ragged, 3) == 0
    other_units = {**normal, "g": distribute_tensor(numbered((4,)), mesh, [RaggedShard((0,), (3, 1))])}
    assert hits_of(other_units, 2) == 0
    assert [chunk.sizes for chunk in chunks_of(tmp_path / "d", "g")] == [(3,), (1,)]
    dist.barrier()
    columns = {**normal, "s": distribute_tensor(numbered((5, 2)), mesh, [Shard(1)])}
    assert hits_of(columns, 1) == 0
    assert [chunk.sizes for chunk in chunks_of(tmp_path / "d", "s")] == [(5, 1), (5, 1)]
