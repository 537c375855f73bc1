"""Checkpoints of torch's whose files are damaged or disagree: they raise and say what is wrong."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.checkpoint.metadata import BytesStorageMetadata, Metadata, TensorStorageMetadata

from hyper_parallel import CheckpointError, HyperParallelError, UnimplementedError
from hyper_parallel.checkpoint import convert
from hyper_parallel.checkpoint._torch_directory import TorchDirectory
from support.torch_checkpoints import (
    WRITERS,
    doubled,
    read_metadata,
    replace_item,
    save_with_torch,
    write_chunks,
    write_metadata,
)


@pytest.mark.parametrize(
    ("item", "text"),
    [
        (torch.ones(3), r"has dtype torch.float32 and shape \(3,\) but the metadata says torch.float32 and \(2,\)"),
        (torch.ones(2, dtype=torch.int32), r"has dtype torch.int32 and shape \(2,\) but the metadata says"),
        (torch.nn.Parameter(torch.ones(2)), r"names torch\._utils\._rebuild_parameter"),
        (torch.ones(2).to_sparse(), r"names torch\._utils\._rebuild_sparse_tensor"),
        ([1.0, 2.0], "is of type list but must be a strided tensor"),
    ],
    ids=["shape", "dtype", "Parameter", "sparse", "list"],
)
def test_data_that_is_not_what_the_metadata_says_raises(item: object, text: str, tmp_path: Path) -> None:
    save_with_torch({"w": torch.ones(2)}, tmp_path / "torch")
    replace_item(tmp_path / "torch", "w", item)
    with pytest.raises(CheckpointError, match=text):
        convert.from_torch(tmp_path / "torch", tmp_path / "ours")


def test_a_box_larger_than_its_bytes_raises_before_memory_is_taken(tmp_path: Path) -> None:
    save_with_torch({"w": torch.ones(2)}, tmp_path / "torch")
    metadata = read_metadata(tmp_path / "torch")
    entry = metadata.state_dict_metadata["w"]
    assert isinstance(entry, TensorStorageMetadata)
    entry.size = entry.chunks[0].sizes = torch.Size([1 << 50])
    write_metadata(tmp_path / "torch", metadata)
    replace_item(tmp_path / "torch", "w", torch.ones(1).expand(1 << 50))
    with pytest.raises(CheckpointError, match=r"bytes, too few for \(1125899906842624,\) of torch.float32"):
        convert.from_torch(tmp_path / "torch", tmp_path / "ours")


def change_size(metadata: Metadata) -> None:
    entry = metadata.state_dict_metadata["w"]
    assert isinstance(entry, TensorStorageMetadata)
    entry.size = torch.Size([5, 3])


def change_dims(metadata: Metadata) -> None:
    entry = metadata.state_dict_metadata["w"]
    assert isinstance(entry, TensorStorageMetadata)
    entry.size = torch.Size([1 << 62] * 100_000)


def change_offsets(metadata: Metadata) -> None:
    entry = metadata.state_dict_metadata["w"]
    assert isinstance(entry, TensorStorageMetadata)
    entry.chunks[0].offsets = torch.Size([1, 0])


def change_place(**fields: Any) -> Callable[[Metadata], None]:
    def change(metadata: Metadata) -> None:
        for place in metadata.storage_data.values():
            vars(place).update(fields)

    return change


def change_metadata(**fields: Any) -> Callable[[Metadata], None]:
    return lambda metadata: vars(metadata).update(fields)


LIES: dict[str, tuple[Callable[[Metadata], None], type[HyperParallelError], str]] = {
    "size": (change_size, CheckpointError, "the boxes of the tensor 'w' do not fill its shape (5, 3)"),
    "offsets": (change_offsets, CheckpointError, "has a chunk at (1, 0) of sizes (2, 3), which is not in it"),
    "place": (change_metadata(storage_data={}), CheckpointError, "does not say where 'w' at offset (0, 0) lies"),
    "no places": (
        change_metadata(storage_data=None),
        CheckpointError,
        "storage_data is of type NoneType but must be a",
    ),
    "entries": (change_metadata(state_dict_metadata=[1]), CheckpointError, "state_dict_metadata is of type list"),
    "entry": (change_metadata(state_dict_metadata={"w": 1}), CheckpointError, "the entry 'w' is of type int"),
    "name": (
        change_metadata(state_dict_metadata={1: BytesStorageMetadata()}),
        CheckpointError,
        "a name in the metadata is of type int",
    ),
    "negative": (change_place(offset=-1), CheckpointError, "is -1 but must be in [0, 2^63)"),
    "bool": (change_place(length=True), CheckpointError, "is of type bool but must be a int"),
    "beyond": (change_place(offset=1 << 40), CheckpointError, "bytes but the metadata speaks of bytes [1099511627776,"),
    "transformed": (change_place(transform_descriptors=["zstd"]), UnimplementedError, "is transformed by ['zstd']"),
    "path": (change_metadata(planner_data={"w": ("a", "w")}), CheckpointError, "the path of 'w' is ('a', 'w') but"),
    "path in itself": (
        change_metadata(planner_data={"w": doubled(100)}),
        CheckpointError,
        "the path of 'w' is of tuple, tuple but must be the str keys",
    ),
    "path number": (change_metadata(planner_data={"w": (10**5000,)}), CheckpointError, "the path of 'w' is of int but"),
    "huge": (change_place(offset=10**5000), CheckpointError, "is of 16610 bits but must be in [0, 2^63)"),
    "dims": (change_dims, CheckpointError, "the size of the tensor 'w' has 100000 dims but must have at most 64"),
    "surrogate": (
        change_metadata(state_dict_metadata={"\ud800": BytesStorageMetadata()}),
        CheckpointError,
        r"the name '\ud800' in the metadata is no text",
    ),
    "transforms": (
        change_place(transform_descriptors=[doubled(100)]),
        CheckpointError,
        "a transform of the place of 'w' is of type tuple",
    ),
    "path type": (change_metadata(planner_data={"w": "w"}), CheckpointError, "the path of 'w' is of type str"),
}


@pytest.mark.parametrize("lie", list(LIES))
def test_metadata_that_lies_raises(lie: str, tmp_path: Path) -> None:
    change, kind, text = LIES[lie]
    save_with_torch({"w": torch.ones(2, 3)}, tmp_path / "torch")
    metadata = read_metadata(tmp_path / "torch")
    change(metadata)
    write_metadata(tmp_path / "torch", metadata)
    with pytest.raises(kind) as caught:
        convert.from_torch(tmp_path / "torch", tmp_path / "ours")
    assert text in str(caught.value)
    assert not (tmp_path / "ours" / ".metadata").exists()


@WRITERS
def test_overlapping_boxes_raise_before_anything_is_written(
    write: Callable[[Path, Path], object], tmp_path: Path
) -> None:
    chunks = [((0,), (2,)), ((1,), (2,))]
    write_chunks(tmp_path / "torch", "w", torch.arange(4.0), chunks)
    with pytest.raises(CheckpointError, match=r"boxes that are not a tensor: .*'w'"):
        write(tmp_path / "torch", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"no pickle",
        b"\x80\x04",
        b"\x80\x04N.",
        b"\x80\x04]\x94h\x00a.",
        b"\x80\x05\x96" + struct.pack("<Q", 1 << 60),
    ],
    ids=["empty", "text", "cut", "None", "in itself", "huge"],
)
def test_metadata_that_is_no_metadata_raises(damage: bytes, tmp_path: Path) -> None:
    folder = tmp_path / "torch"
    folder.mkdir()
    (folder / ".metadata").write_bytes(damage)
    with pytest.raises(CheckpointError, match=r"readable pickle|the metadata is of type|with a bytearray"):
        TorchDirectory(folder)


def test_records_without_state_raise(tmp_path: Path) -> None:
    folder = tmp_path / "torch"
    folder.mkdir()
    (folder / ".metadata").write_bytes(b"ctorch.distributed.checkpoint.metadata\nMetadata\n)\x81.")
    with pytest.raises(CheckpointError, match="state_dict_metadata is of type NoneType"):
        TorchDirectory(folder)


def test_a_value_that_holds_itself_too_often_raises(tmp_path: Path) -> None:
    save_with_torch({"v": (doubled(60),), "w": ([[1] * 10] * 1000,)}, tmp_path / "torch")
    with TorchDirectory(tmp_path / "torch") as found:
        assert found.read_value("w") == ([[1] * 10] * 1000,)
        with pytest.raises(CheckpointError, match=r"'v' in .* holds one container in so many places"):
            found.read_value("v")


def test_every_cut_and_every_changed_byte_raises_or_reads(tmp_path: Path) -> None:
    save_with_torch({"w": torch.ones(2, 3), "v": (1, "x")}, tmp_path / "torch")
    whole = (tmp_path / "torch" / ".metadata").read_bytes()
    cut = [whole[:length] for length in range(0, len(whole), 3)]
    damaged = [*cut, *(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :] for at in range(len(whole)))]
    raised = 0
    for data in damaged:
        (tmp_path / "torch" / ".metadata").write_bytes(data)
        try:
            with TorchDirectory(tmp_path / "torch") as found:
                for name, entry in found.tensors.items():
                    for number in range(len(entry.boxes)):
                        found.read_box(name, number)
        except HyperParallelError:
            raised += 1
    assert len(cut) < raised < len(damaged)
