"""Cases from public fault reports about a checkpoint's bytes: 46 (untrusted numbers) and 47 (tensors as bytes)."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from hyper_parallel import (
    CheckpointError,
    DTensor,
    RaggedShard,
    Shard,
    checkpoint,
    distribute_tensor,
)
from support.checkpoints import (
    assert_same_bits,
    content_of,
    data_files,
    metadata_of,
    raised_everywhere,
    random_bits,
    read_safetensors,
    stored_bytes,
    write_metadata,
)
from support.checks import assert_equal, assert_raises, make_mesh
from support.ranks import ranks
from support.values import numbered
from support.worker import Rank

# 46: numbers of a file are not believed


def saved_46(folder: Path) -> dict[str, Any]:
    """One tensor of (2, 2) and one value, as the metadata has them."""
    checkpoint.save({"w": numbered((2, 2)), "step": 3}, folder)
    return metadata_of(folder)


def changed(metadata: dict[str, Any], change: Callable[[dict[str, Any]], object]) -> str:
    change(metadata)
    return json.dumps(metadata)


def put_in(metadata: dict[str, Any], field: str, text: str) -> str:
    """The JSON with a text at the begin of an object."""
    return json.dumps(metadata).replace(f'"{field}": {{', f'"{field}": {{{text}', 1)


def tensor_46(metadata: dict[str, Any]) -> dict[str, Any]:
    tensor: dict[str, Any] = metadata["tensors"]["w"]
    return tensor


def set_row(metadata: dict[str, Any], position: int, value: object) -> None:
    tensor_46(metadata)["chunks"][0][position] = value


FAULTS_46: dict[str, Callable[[dict[str, Any]], str]] = {
    "begin past the end of the file": lambda m: changed(m, lambda m: set_row(m, 1, 10**6)),
    "begin near the end of the file": lambda m: changed(m, lambda m: set_row(m, 1, m["files"][0][1] - 8)),
    "begin negative": lambda m: changed(m, lambda m: set_row(m, 1, -1)),
    "begin 2^63": lambda m: changed(m, lambda m: set_row(m, 1, 2**63)),
    "begin 2^63 - 1": lambda m: changed(m, lambda m: set_row(m, 1, 2**63 - 1)),
    "begin a float": lambda m: changed(m, lambda m: set_row(m, 1, 1.0)),
    "no such file number": lambda m: changed(m, lambda m: set_row(m, 0, 1)),
    "negative file number": lambda m: changed(m, lambda m: set_row(m, 0, -1)),
    "size over the shape": lambda m: changed(m, lambda m: set_row(m, 4, 3)),
    "size negative": lambda m: changed(m, lambda m: set_row(m, 4, -2)),
    "size zero": lambda m: changed(m, lambda m: set_row(m, 4, 0)),
    "offset and size overflow": lambda m: changed(m, lambda m: (set_row(m, 2, 2**62), set_row(m, 4, 2**62))),
    "a hole": lambda m: changed(m, lambda m: set_row(m, 4, 1)),
    "an overlap": lambda m: changed(m, lambda m: tensor_46(m).update(chunks=tensor_46(m)["chunks"] * 2)),
    "an overlap with checksums": lambda m: changed(
        m, lambda m: tensor_46(m).update(chunks=tensor_46(m)["chunks"] * 2, crc32c=tensor_46(m)["crc32c"] * 2)
    ),
    "format behind the rest": lambda m: json.dumps(dict(reversed(m.items()))),
    "no chunk": lambda m: changed(m, lambda m: tensor_46(m).update(chunks=[], crc32c=[])),
    "a short row": lambda m: changed(m, lambda m: tensor_46(m)["chunks"][0].pop()),
    "a long row": lambda m: changed(m, lambda m: tensor_46(m)["chunks"][0].append(1)),
    "shape larger than its bytes": lambda m: changed(m, lambda m: tensor_46(m).update(shape=[1000, 1000])),
    "shape [2^62, 4]": lambda m: changed(m, lambda m: tensor_46(m).update(shape=[2**62, 4])),
    "shape [-1]": lambda m: changed(m, lambda m: tensor_46(m).update(shape=[-1, 2])),
    "dtype Q99": lambda m: changed(m, lambda m: tensor_46(m).update(dtype="Q99")),
    "dtype wider than its bytes": lambda m: changed(m, lambda m: tensor_46(m).update(dtype="F64")),
    "a checksum too many": lambda m: changed(m, lambda m: tensor_46(m)["crc32c"].append(1)),
    "no checksum": lambda m: changed(m, lambda m: tensor_46(m)["crc32c"].pop()),
    "a checksum over 2^32": lambda m: changed(m, lambda m: tensor_46(m).update(crc32c=[2**32])),
    "another file size": lambda m: changed(m, lambda m: m["files"][0].__setitem__(1, m["files"][0][1] + 5)),
    "file size 2^63 - 1": lambda m: changed(m, lambda m: m["files"][0].__setitem__(1, 2**63 - 1)),
    "a path as file name": lambda m: changed(m, lambda m: m["files"][0].__setitem__(0, "../d/x")),
    "an absolute file name": lambda m: changed(m, lambda m: m["files"][0].__setitem__(0, "/etc/passwd")),
    "the metadata as data file": lambda m: changed(m, lambda m: m["files"][0].__setitem__(0, ".metadata")),
    "a file twice": lambda m: changed(m, lambda m: m.update(files=m["files"] * 2)),
    "a name twice": lambda m: put_in(m, "tensors", f'"w": {json.dumps(tensor_46(m))}, '),
    "a field twice": lambda m: json.dumps(m).replace('"values": {', '"values": {}, "values": {', 1),
    "a tensor's name as a value's": lambda m: changed(m, lambda m: m["values"].update(w=1)),
    "an unknown field": lambda m: changed(m, lambda m: m.update(more=1)),
    "no format": lambda m: changed(m, lambda m: m.pop("format")),
    "another format": lambda m: changed(m, lambda m: m.update(format="zip")),
    "a version of the future": lambda m: changed(m, lambda m: m.update(version=10**6)),
    "no version": lambda m: changed(m, lambda m: m.pop("version")),
    "a structure without the entries": lambda m: changed(m, lambda m: m.update(structure={"dict": []})),
    "cut": lambda m: json.dumps(m)[:-1],
    "cut in a string": lambda m: '{"a":',
    "a list": lambda m: "[]",
    "text behind it": lambda m: json.dumps(m) + " {}",
    "100k '['": lambda m: "[" * 100_000,
    "a value of 100k '['": lambda m: put_in(m, "values", '"x": ' + "[" * 100_000),
    "nothing": lambda m: "",
    "a NUL": lambda m: "\0",
}  # fmt: skip


@pytest.mark.parametrize("fault", list(FAULTS_46))
def test_case46_metadata_is_not_believed(fault: str, tmp_path: Path) -> None:
    text = FAULTS_46[fault](saved_46(tmp_path / "d"))
    assert text != json.dumps(metadata_of(tmp_path / "d")), "the fault is in the text"
    write_metadata(tmp_path / "d", text)
    target = {"w": torch.full((2, 2), -9.0), "step": 0}
    for action in (lambda: checkpoint.load(target, tmp_path / "d"), lambda: checkpoint.read(tmp_path / "d")):
        with pytest.raises(CheckpointError) as caught:
            action()
        assert len(str(caught.value)) < 2000
    assert (target["w"] == -9).all()  # type: ignore[union-attr]
    assert target["step"] == 0


def test_case46_metadata_that_says_the_same_in_other_words_is_read(tmp_path: Path) -> None:
    metadata = saved_46(tmp_path / "d")
    write_metadata(tmp_path / "d", json.dumps(metadata, indent=3) + "\n  ")
    assert_equal(checkpoint.read(tmp_path / "d")["w"], numbered((2, 2)))
    first = {"format": metadata["format"], "version": metadata["version"]}
    write_metadata(tmp_path / "d", json.dumps(first | dict(reversed(metadata.items()))))
    assert checkpoint.read(tmp_path / "d")["step"] == 3


@pytest.mark.parametrize("place", ["first byte of the tensor", "last byte"])
def test_case46_a_flipped_bit_raises_and_names_the_tensor(place: str, tmp_path: Path) -> None:
    checkpoint.save({"w": random_bits((700, 700), torch.float64)}, tmp_path / "d")
    path = tmp_path / "d" / data_files(tmp_path / "d")[0]
    content = bytearray(path.read_bytes())
    content[-1 if place == "last byte" else -700 * 700 * 8] ^= 1
    path.write_bytes(content)
    assert_raises(OSError, "'w'", lambda: checkpoint.read(tmp_path / "d"))


def test_case46_a_symbolic_link_in_place_of_a_file_raises(tmp_path: Path) -> None:
    saved_46(tmp_path / "d")
    path = tmp_path / "d" / data_files(tmp_path / "d")[0]
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert_raises(OSError, path.name, lambda: checkpoint.read(tmp_path / "d"))


# 47: from tensor to bytes and back


def test_case47_a_view_does_not_drag_its_storage_into_the_file(tmp_path: Path) -> None:
    checkpoint.save({"v": torch.zeros(10**6)[10:14]}, tmp_path / "d")
    assert sum(len(content) for content in content_of(tmp_path / "d").values()) < 64 * 1024
    assert_equal(checkpoint.read(tmp_path / "d")["v"], torch.zeros(4))


@ranks(2)
def test_case47_a_share_that_is_a_view_of_a_larger_buffer_is_stored_alone(rank: Rank, tmp_path: Path) -> None:
    mesh = make_mesh(2)
    buffer = numbered((10**6,))
    ragged = DTensor.from_local(buffer[100:106], mesh, [RaggedShard((0,), (1, 1))], shape=(4, 3))
    sharded = DTensor.from_local(buffer[:6].view(2, 3).t(), mesh, [Shard(0)], shape=(6, 2))
    checkpoint.save({"r": ragged, "s": sharded}, tmp_path / "d")
    assert stored_bytes(tmp_path / "d") == 12 * 4 + 12 * 4
    loaded = checkpoint.read(tmp_path / "d")
    assert loaded["r"].flatten().tolist() == [100, 101, 102, 103, 104, 105] * 2
    assert loaded["s"].tolist() == [[0, 3], [1, 4], [2, 5]] * 2


T_47 = torch.tensor([[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["same dtype", "cast"])
@ranks(2)
def test_case47_strided_tensors_go_into_contiguous_and_strided_targets(
    rank: Rank, dtype: torch.dtype, tmp_path: Path
) -> None:
    checkpoint.save({"t": numbered((2, 3)).t()}, tmp_path / "d")
    wide = torch.full((3, 4), -9.0, dtype=dtype)
    targets = {
        "contiguous": torch.zeros(3, 2, dtype=dtype),
        "transposed": torch.zeros(2, 3, dtype=dtype).t(),
        "every other column": wide[:, ::2],
        "a slice": torch.zeros(5, 4, dtype=dtype)[1:4, 1:3],
    }
    for target in targets.values():
        checkpoint.load({"t": target}, tmp_path / "d", allow_cast=["t"])
        assert_equal(target, T_47.to(dtype))
    assert (wide[:, 1::2] == -9).all(), "what lies between stays"


@ranks(2)
def test_case47_a_strided_share_is_loaded_into(rank: Rank, tmp_path: Path) -> None:
    checkpoint.save({"t": numbered((6, 2))}, tmp_path / "d")
    local = torch.zeros(2, 3).t()
    target = DTensor.from_local(local, make_mesh(2), [Shard(0)], shape=(6, 2))
    checkpoint.load({"t": target}, tmp_path / "d")
    assert_equal(local, numbered((6, 2))[3 * rank.index : 3 * rank.index + 3])


@ranks(2)
def test_case47_two_names_of_one_storage_are_two_tensors(rank: Rank, tmp_path: Path) -> None:
    tied = numbered((3,))
    shared = distribute_tensor(tied, make_mesh(2), [RaggedShard((0,), (1, 2))])
    checkpoint.save({"a": tied, "b": tied, "part": tied[1:], "x": shared, "y": shared}, tmp_path / "d")
    loaded = checkpoint.read(tmp_path / "d")
    for name in ("a", "b", "x", "y"):
        assert loaded[name].tolist() == [0, 1, 2]
    assert loaded["part"].tolist() == [1, 2]
    target = torch.zeros(3)
    checkpoint.load({"a": target, "b": target}, tmp_path / "d", allow_extra=["part", "x", "y"])
    assert target.tolist() == [0, 1, 2]


KINDS_47: dict[str, torch.Tensor] = {
    "e1": torch.tensor([]),
    "e2": torch.tensor([]),
    "rows without columns": torch.zeros(3, 0, 2, dtype=torch.int64),
    "complex": torch.tensor([1 + 2j, complex(math.nan, -0.0)], dtype=torch.complex64),
    "bool": torch.tensor([True, False, True]),
    "bf16": torch.tensor([1.5, -0.0, math.inf], dtype=torch.bfloat16),
    "f8": torch.tensor([1.5, -0.0, 448.0]).to(torch.float8_e4m3fn),
    "f8_e5m2": torch.tensor([1.5, -0.0, 448.0]).to(torch.float8_e5m2),
    "f16": torch.tensor([1.5, -0.0, math.nan], dtype=torch.float16),
    "i8": torch.tensor([-128, 127], dtype=torch.int8),
    "u8": torch.tensor([0, 255], dtype=torch.uint8),
    "i16": torch.tensor([-(2**15), 2**15 - 1], dtype=torch.int16),
    "i32": torch.tensor([-(2**31), 2**31 - 1], dtype=torch.int32),
    "i64": torch.tensor([-(2**63), 2**63 - 1]),
    "f64": torch.tensor([5e-324, math.inf, -0.0], dtype=torch.float64),
    "0-dim": torch.tensor(7.0),
    "0-dim bool": torch.tensor(True),
}


@ranks(1, 2)
def test_case47_every_dtype_and_shape_round_trips(rank: Rank, tmp_path: Path) -> None:
    checkpoint.save(KINDS_47, tmp_path / "d")
    loaded = checkpoint.read(tmp_path / "d")
    targets = {name: torch.zeros_like(tensor) for name, tensor in KINDS_47.items()}
    checkpoint.load(targets, tmp_path / "d")
    for name, tensor in KINDS_47.items():
        assert_same_bits(loaded[name], tensor)
        assert_same_bits(targets[name], tensor)


def test_case47_a_data_file_is_a_safetensors_file(tmp_path: Path) -> None:
    state = {"w": numbered((2, 3)), "b": torch.tensor([True]), "h": torch.ones(2, dtype=torch.bfloat16)}
    checkpoint.save(state, tmp_path / "d")
    (name,) = data_files(tmp_path / "d")
    assert {key: entry[:2] for key, entry in read_safetensors(tmp_path / "d" / name).items()} == {
        "w": ("F32", [2, 3]),
        "b": ("BOOL", [1]),
        "h": ("BF16", [2]),
    }


UNSUPPORTED_47: dict[str, Callable[[], torch.Tensor]] = {
    "complex128": lambda: torch.zeros(2, dtype=torch.complex128),
    "complex32": lambda: torch.zeros(2, dtype=torch.complex32),
    "quantized": lambda: torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8),
    "sparse": lambda: torch.eye(2).to_sparse(),
}


@pytest.mark.parametrize("kind", list(UNSUPPORTED_47))
@ranks(2)
def test_case47_what_cannot_be_stored_raises_by_name_before_anything_is_written(
    rank: Rank, kind: str, tmp_path: Path
) -> None:
    state = {"good": torch.ones(2), "model": {"bad": UNSUPPORTED_47[kind]()}}
    for call in (checkpoint.save, checkpoint.async_save):
        raised_everywhere(rank, Exception, functools.partial(call, state, tmp_path / "d"), "'model.bad'")
    assert content_of(tmp_path) == {}
