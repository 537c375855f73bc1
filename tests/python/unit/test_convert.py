"""Checkpoints of torch's converted into ours and back, and hostile ones refused."""

from __future__ import annotations

import collections
import copyreg
import io
import json
import os
import pickle
import struct
import subprocess
import sys
import tracemalloc
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from safetensors.torch import load_file
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import (
    _MEM_FORMAT_ENCODING,
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorStorageMetadata,
)

import hyper_parallel
from hyper_parallel import CheckpointError, HyperParallelError, InvalidArgumentError, UnimplementedError, checkpoint
from hyper_parallel.checkpoint import _foreign_pickle, convert
from hyper_parallel.checkpoint._own_directory import OwnDirectory
from hyper_parallel.checkpoint._torch_directory import TorchDirectory
from hyper_parallel.checkpoint._torch_writer import write_torch_directory

DTYPES = (
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.uint16, torch.int32, torch.uint32, torch.int64,
    torch.uint64, torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.float8_e4m3fn,
    torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.float8_e8m0fnu,
)  # fmt: skip

VALUES: dict[str, Any] = {
    "none": None,
    "flags": [True, False, 1, 0],
    "big": 2**80,
    "floats": (0.1, -0.0, float("inf"), 1e-320),
    "complex": 3 - 4j,
    "text": "grüße\0\n",
    "bytes": b"\x00\xff",
    "no bytes": b"",
    "dict": {"lr": 0.1, "betas": (0.9, 0.999)},
    "nested": [[1, (2, [3])], []],
}


def save_with_torch(state: dict[str, Any], folder: Path, **options: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.save(state, storage_writer=dcp.FileSystemWriter(folder, **options))


def load_with_torch(folder: Path) -> dict[str, Any]:
    """All of a checkpoint, by torch."""
    state: dict[str, Any] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.state_dict_loader._load_state_dict(
            state,
            storage_reader=dcp.FileSystemReader(folder),
            planner=dcp.default_planner._EmptyStateDictLoadPlanner(),
            no_dist=True,
        )
    return state


def bits(tensor: torch.Tensor) -> bytes:
    return bytes(tensor.detach().contiguous().flatten().view(torch.uint8).tolist())


def assert_same(given: Any, expected: Any) -> None:
    """Equal types, nesting and bits."""
    assert type(given) is type(expected)
    if isinstance(expected, torch.Tensor):
        assert (given.dtype, given.shape) == (expected.dtype, expected.shape)
        assert bits(given) == bits(expected)
    elif isinstance(expected, dict):
        assert list(given) == list(expected) or set(given) == set(expected)
        for key, item in expected.items():
            assert_same(given[key], item)
    elif isinstance(expected, list | tuple):
        assert len(given) == len(expected)
        for mine, item in zip(given, expected, strict=True):
            assert_same(mine, item)
    else:
        assert repr(given) == repr(expected)


def every_dtype() -> dict[str, torch.Tensor]:
    """A tensor of each dtype, whose bytes are 0, 1, 2, .. (for bool 0 and 1)."""
    tensors = {}
    for dtype in DTYPES:
        raw = torch.arange(12 * dtype.itemsize, dtype=torch.uint8)
        tensors[str(dtype)] = (raw % 2).bool() if dtype == torch.bool else raw.view(dtype)
    return tensors


def nested_state() -> dict[str, Any]:
    return {
        "model": {"w": torch.arange(6.0).view(2, 3).t(), "deep": {"b": torch.tensor(3, dtype=torch.int64)}},
        "optimizer": {"state": [{"m": torch.ones(2)}, {"m": torch.zeros(0, 3)}], "groups": [{"lr": 0.1}]},
        "step": 7,
    }


def convert_both_ways(folder: Path, state: dict[str, Any]) -> tuple[Path, Path]:
    save_with_torch(state, folder / "torch")
    convert.from_torch(folder / "torch", folder / "ours")
    convert.to_torch(folder / "ours", folder / "again")
    return folder / "ours", folder / "again"


@pytest.mark.parametrize("state", [every_dtype(), VALUES, nested_state()], ids=["dtypes", "values", "nested"])
def test_a_checkpoint_is_the_same_in_both_formats(state: dict[str, Any], tmp_path: Path) -> None:
    ours, again = convert_both_ways(tmp_path, state)
    assert not dist.is_initialized()
    expected = load_with_torch(tmp_path / "torch")
    assert_same(load_with_torch(again), expected)
    assert_same(checkpoint.read(ours), expected)


def test_every_box_stays_a_box(tmp_path: Path) -> None:
    whole = torch.arange(60.0).view(3, 4, 5)
    write_chunks(
        tmp_path / "torch", "w", whole, [((0, 0, 0), (1, 4, 5)), ((1, 0, 0), (2, 2, 5)), ((1, 2, 0), (2, 2, 5))]
    )
    convert.from_torch(tmp_path / "torch", tmp_path / "ours")
    convert.to_torch(tmp_path / "ours", tmp_path / "again")
    with TorchDirectory(tmp_path / "torch") as before, TorchDirectory(tmp_path / "again") as after:
        boxes = before.tensors["w"].boxes
        assert len(boxes) == 3
        assert sorted(OwnDirectory(tmp_path / "ours").tensors["w"].boxes) == sorted(boxes)
        assert sorted(after.tensors["w"].boxes) == sorted(boxes)
    assert_same(load_with_torch(tmp_path / "again"), {"w": whole})


def test_our_own_checkpoint_becomes_torchs(tmp_path: Path) -> None:
    state = {"model": {"w": torch.arange(6.0), 7: torch.ones(2)}, "pair": (torch.ones(1), 2), "values": VALUES}
    checkpoint.save(state, tmp_path / "ours")
    convert.to_torch(tmp_path / "ours", tmp_path / "torch")
    loaded = load_with_torch(tmp_path / "torch")
    assert_same(loaded["model"], {"w": torch.arange(6.0), "7": torch.ones(2)})
    assert_same(loaded["pair"], [torch.ones(1), 2])
    assert_same(loaded["values"], VALUES)


MEASURE = """
import sys
from pathlib import Path
import test_convert
from hyper_parallel.checkpoint import _foreign_pickle, convert
def peak():
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])
write = {"ours": convert.from_torch, "torchs": test_convert.rewrite}[sys.argv[1]]
Path("/proc/self/clear_refs").write_text("5")
before = peak()
write(Path("torch"), Path(sys.argv[1]))
print((peak() - before) // 1024)
"""


@pytest.mark.parametrize("format_name", ["ours", "torchs"])
def test_two_boxes_are_held_at_a_time(format_name: str, tmp_path: Path) -> None:
    save_with_torch({f"{number}": torch.full((1 << 20,), float(number)) for number in range(16)}, tmp_path / "torch")
    command = [sys.executable, "-W", "ignore", "-c", MEASURE, format_name]
    paths = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    ran = subprocess.run(
        command, capture_output=True, text=True, check=True, cwd=tmp_path, env={**os.environ, "PYTHONPATH": paths}
    )
    assert int(ran.stdout) < 36, "MiB, of 64 in all and 4 a box"


def test_empty_shares_that_torch_saves_are_left_out(tmp_path: Path) -> None:
    whole = torch.arange(10.0).view(5, 2)
    chunks = [((0, 0), (3, 2)), ((3, 0), (2, 2)), ((5, 0), (0, 2))]
    write_chunks(tmp_path / "torch", "w", whole, chunks)
    convert.from_torch(tmp_path / "torch", tmp_path / "ours")
    assert_same(checkpoint.read(tmp_path / "ours"), {"w": whole})


def test_tensors_in_a_list_with_a_gap_raise(tmp_path: Path) -> None:
    save_with_torch({"l": [torch.ones(1), {}, torch.ones(1)]}, tmp_path / "torch")
    with pytest.raises(InvalidArgumentError, match=r"a list has entries at the positions \[0, 2\] and no others"):
        convert.from_torch(tmp_path / "torch", tmp_path / "ours")
    assert not (tmp_path / "ours").exists()


# --- what cannot be converted ----------------------------------------------------------------------------------------


class Custom:
    """A class of a program."""


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Custom(), "names test_convert.Custom, which is not among the names"),
        (collections.OrderedDict(a=1), "names collections.OrderedDict"),
        (torch.float32, "names torch.float32"),
        ((torch.ones(1), 1), "'v' in "),
        ({1, 2}, "names __builtin__.set"),
        (Path("x"), "names pathlib.PosixPath"),
        (int, "names __builtin__.long"),
    ],
    ids=["class", "OrderedDict", "dtype", "tensor in a tuple", "set", "path", "type"],
)
def test_a_value_of_another_type_raises_by_name(value: object, text: str, tmp_path: Path) -> None:
    # A tuple of one keeps torch from traversing a dict.
    save_with_torch({"v": (value,)}, tmp_path / "torch")
    with pytest.raises(CheckpointError) as caught:
        convert.from_torch(tmp_path / "torch", tmp_path / "ours")
    assert "value 'v' in " in str(caught.value)
    assert text in str(caught.value)
    assert not (tmp_path / "ours").exists()


def test_a_dtype_that_ours_lacks_raises_by_name(tmp_path: Path) -> None:
    save_with_torch({"z": torch.ones(2, dtype=torch.complex128)}, tmp_path / "torch")
    with pytest.raises(UnimplementedError, match=r"the tensor 'z' has dtype torch\.complex128"):
        convert.from_torch(tmp_path / "torch", tmp_path / "ours")
    assert not (tmp_path / "ours").exists()


def rewrite(source: Path, target: Path) -> None:
    """Writes a checkpoint of torch's again, in its own format."""
    with TorchDirectory(source) as found:
        write_torch_directory(found, target)


WRITERS = pytest.mark.parametrize("write", [convert.from_torch, rewrite], ids=["ours", "torchs"])


@WRITERS
def test_a_directory_in_use_is_left_alone(write: Callable[[Path, Path], object], tmp_path: Path) -> None:
    save_with_torch({"w": torch.ones(2)}, tmp_path / "torch")
    used = tmp_path / "used"
    used.mkdir()
    (used / "notes").write_text("mine")
    plain = tmp_path / "plain"
    plain.write_text("mine")
    for target in (used, plain):
        with pytest.raises(InvalidArgumentError, match="must be a new or an empty directory"):
            write(tmp_path / "torch", target)
    with pytest.raises(InvalidArgumentError, match="cannot be made: No such file or directory"):
        write(tmp_path / "torch", tmp_path / "no" / "parent")
    assert [file.name for file in used.iterdir()] == ["notes"]
    empty = tmp_path / "empty"
    empty.mkdir()
    write(tmp_path / "torch", empty)
    assert (empty / ".metadata").is_file()


@WRITERS
def test_after_a_fault_no_checkpoint_is_left_and_another_try_works(
    write: Callable[[Path, Path], object], tmp_path: Path
) -> None:
    save_with_torch({"a": torch.ones(4), "b": torch.arange(4.0)}, tmp_path / "torch")
    data = tmp_path / "torch" / "__0_0.distcp"
    whole = data.read_bytes()
    data.write_bytes(whole[:-64])
    empty = tmp_path / "empty"
    empty.mkdir()
    for target in (tmp_path / "new", empty):
        with pytest.raises(CheckpointError, match=r"__0_0\.distcp has \d+ bytes but the metadata speaks of"):
            write(tmp_path / "torch", target)
    data.write_bytes(whole)
    for target in (tmp_path / "new", empty):
        assert not target.exists() or {file.name for file in target.iterdir()} <= {".save.lock"}
        write(tmp_path / "torch", target)


# --- files that are not to be trusted --------------------------------------------------------------------------------


def write_chunks(folder: Path, name: str, whole: torch.Tensor, chunks: list[tuple[Any, Any]]) -> None:
    """A checkpoint of torch's with a tensor in these boxes."""
    save_with_torch({name: whole}, folder)
    metadata = read_metadata(folder)
    entry = metadata.state_dict_metadata[name]
    assert isinstance(entry, TensorStorageMetadata)
    entry.chunks = []
    metadata.storage_data = {}
    with (folder / "boxes.distcp").open("wb") as file:
        for offsets, sizes in chunks:
            begin = file.tell()
            cells = tuple(slice(offset, offset + size) for offset, size in zip(offsets, sizes, strict=True))
            torch.save(whole[cells].clone(), file)
            entry.chunks.append(dcp.metadata.ChunkStorageMetadata(torch.Size(offsets), torch.Size(sizes)))
            place = _StorageInfo("boxes.distcp", begin, file.tell() - begin)
            metadata.storage_data[MetadataIndex(name, torch.Size(offsets))] = place
    write_metadata(folder, metadata)


def read_metadata(folder: Path) -> Metadata:
    metadata = pickle.loads((folder / ".metadata").read_bytes())
    assert isinstance(metadata, Metadata)
    return metadata


def write_metadata(folder: Path, metadata: object) -> None:
    (folder / ".metadata").write_bytes(pickle.dumps(metadata))


class Malicious:
    """Runs a function when it is unpickled."""

    def __init__(self, function: Callable[..., object], *arguments: object) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> Any:
        return self.call


ATTACKS = {
    "os.system": (os.system, "posix.system"),
    "eval": (eval, "builtins.eval"),
    "setattr": (setattr, "builtins.setattr"),
    "subprocess": (subprocess.Popen, "subprocess.Popen"),
    "torch.load": (torch.load, "torch.serialization.load"),
}


@pytest.mark.parametrize("attack", list(ATTACKS))
@pytest.mark.parametrize("protocol", [2, 4])
def test_metadata_that_calls_a_function_raises_and_does_not_call_it(attack: str, protocol: int, tmp_path: Path) -> None:
    function, name = ATTACKS[attack]
    witness = tmp_path / "witness"
    save_with_torch({"w": torch.ones(2)}, tmp_path / "torch")
    metadata = read_metadata(tmp_path / "torch")
    metadata.planner_data = {"w": Malicious(function, f"touch {witness}")}
    (tmp_path / "torch" / ".metadata").write_bytes(pickle.dumps(metadata, protocol=protocol, fix_imports=False))
    with pytest.raises(CheckpointError) as caught:
        convert.from_torch(tmp_path / "torch", tmp_path / "ours")
    assert f"names {name}, which is not among" in str(caught.value)
    assert "it was not imported" in str(caught.value)
    assert not witness.exists()
    assert not (tmp_path / "ours").exists()


@pytest.mark.parametrize("protocol", [2, 4])
def test_getattr_reaches_nothing_but_members_of_torchs_enums(protocol: int, tmp_path: Path) -> None:
    save_with_torch({"w": torch.ones(2)}, tmp_path / "torch")
    metadata = read_metadata(tmp_path / "torch")
    path = tmp_path / "torch" / ".metadata"
    # As releases of Python before 3.11.4 write the member of an enum.
    metadata.planner_data = {"w": Malicious(getattr, _MEM_FORMAT_ENCODING, "TORCH_CONTIGUOUS_FORMAT")}
    path.write_bytes(pickle.dumps(metadata, protocol=protocol, fix_imports=False))
    _foreign_pickle.read_metadata_pickle(path.read_bytes(), "it")
    for owner, name in ((torch.Size, "__init__"), ("text", "join"), (ChunkStorageMetadata, "__reduce__")):
        metadata.planner_data = {"w": Malicious(getattr, owner, name)}
        path.write_bytes(pickle.dumps(metadata, protocol=protocol, fix_imports=False))
        with pytest.raises(CheckpointError, match=r"builtins\.getattr of .*, which is no enum of torch's"):
            convert.from_torch(tmp_path / "torch", tmp_path / "ours")


def test_a_module_named_in_metadata_is_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "trap.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    folder = tmp_path / "torch"
    folder.mkdir()
    for pickled in (b"ctrap\nfunction\n.", b"\x80\x04\x8c\x04trap\x8c\x08function\x93.", b"(itrap\nfunction\n."):
        (folder / ".metadata").write_bytes(pickled)
        with pytest.raises(CheckpointError, match=r"names trap\.function"):
            TorchDirectory(folder)
    assert "trap" not in sys.modules


def test_a_dotted_name_does_not_reach_through_an_allowed_module(tmp_path: Path) -> None:
    folder = tmp_path / "torch"
    folder.mkdir()
    (folder / ".metadata").write_bytes(b"\x80\x04\x8c\x05torch\x8c\x09os.system\x93.")
    with pytest.raises(CheckpointError, match=r"names torch\.os\.system"):
        TorchDirectory(folder)


@pytest.mark.parametrize("attack", list(ATTACKS))
def test_a_value_that_calls_a_function_raises_and_does_not_call_it(attack: str, tmp_path: Path) -> None:
    witness = tmp_path / "witness"
    save_with_torch({"v": (Malicious(ATTACKS[attack][0], f"touch {witness}"),)}, tmp_path / "torch")
    with pytest.raises(CheckpointError, match="it was not imported"):
        convert.from_torch(tmp_path / "torch", tmp_path / "ours")
    assert not witness.exists()


def test_a_tensor_that_calls_a_function_raises_and_does_not_call_it(tmp_path: Path) -> None:
    witness = tmp_path / "witness"
    save_with_torch({"w": torch.ones(2)}, tmp_path / "torch")
    replace_item(tmp_path / "torch", "w", Malicious(os.system, f"touch {witness}"))
    with pytest.raises(CheckpointError, match=r"the box at \(0,\) of 'w' in .* names posix\.system"):
        convert.from_torch(tmp_path / "torch", tmp_path / "ours")
    assert not witness.exists()


def replace_item(folder: Path, name: str, item: object, *, length: int | None = None) -> None:
    """Puts what torch.save makes of `item` where the metadata has the data of `name`."""
    saved = io.BytesIO()
    torch.save(item, saved)
    replace_bytes(folder, name, saved.getvalue(), length=length)


def replace_bytes(folder: Path, name: str, data: bytes, *, length: int | None = None) -> None:
    metadata = read_metadata(folder)
    (folder / "other.distcp").write_bytes(data)
    for index, place in metadata.storage_data.items():
        if index.fqn == name:
            place.relative_path, place.offset = "other.distcp", 0
            place.length = len(data) if length is None else length
    write_metadata(folder, metadata)


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


def test_a_compressed_archive_raises(tmp_path: Path) -> None:
    save_with_torch({"w": torch.ones(2), "v": 1}, tmp_path / "torch")
    for name, member in (("w", "archive/data/0"), ("v", "archive/data.pkl")):
        bomb = io.BytesIO()
        with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(member, bytes(1 << 20))
        replace_bytes(tmp_path / "torch", name, bomb.getvalue())
        with TorchDirectory(tmp_path / "torch") as found, pytest.raises(CheckpointError, match="archive is compressed"):
            found.read_value("v") if name == "v" else found.read_box("w", 0)


@pytest.mark.parametrize(
    "path", ["../secret", "/etc/passwd", "a/b", "..", ".", ".hidden", "", "a\\b", "a\0b"], ids=lambda path: repr(path)
)
def test_a_path_outside_the_directory_raises(path: str, tmp_path: Path) -> None:
    save_with_torch({"w": torch.ones(2)}, tmp_path / "torch")
    (tmp_path / "secret").write_bytes((tmp_path / "torch" / "__0_0.distcp").read_bytes())
    metadata = read_metadata(tmp_path / "torch")
    for place in metadata.storage_data.values():
        place.relative_path = path
    write_metadata(tmp_path / "torch", metadata)
    with pytest.raises(CheckpointError, match="must be the name of a file in the directory itself"):
        convert.from_torch(tmp_path / "torch", tmp_path / "ours")
    assert not (tmp_path / "ours").exists()


def test_links_and_special_files_are_not_followed(tmp_path: Path) -> None:
    save_with_torch({"w": torch.ones(2)}, tmp_path / "torch")
    data = tmp_path / "torch" / "__0_0.distcp"
    data.rename(tmp_path / "elsewhere")
    data.symlink_to(tmp_path / "elsewhere")
    with TorchDirectory(tmp_path / "torch") as found:
        with pytest.raises(CheckpointError, match="cannot be opened: Too many levels of symbolic links"):
            found.read_box("w", 0)
        data.unlink()
        with pytest.raises(CheckpointError, match="cannot be opened: No such file"):
            found.read_box("w", 0)
        os.mkfifo(data)
        with pytest.raises(CheckpointError, match="is no regular file"):
            found.read_box("w", 0)
        data.unlink()
        data.mkdir()
        with pytest.raises(CheckpointError, match="is no regular file"):
            found.read_box("w", 0)
    metadata = tmp_path / "torch" / ".metadata"
    metadata.rename(tmp_path / "metadata")
    metadata.symlink_to(tmp_path / "metadata")
    with pytest.raises(CheckpointError, match="cannot be opened: Too many levels of symbolic links"):
        TorchDirectory(tmp_path / "torch")


def change_size(metadata: Metadata) -> None:
    entry = metadata.state_dict_metadata["w"]
    assert isinstance(entry, TensorStorageMetadata)
    entry.size = torch.Size([5, 3])


def change_dims(metadata: Metadata) -> None:
    entry = metadata.state_dict_metadata["w"]
    assert isinstance(entry, TensorStorageMetadata)
    entry.size = torch.Size([1 << 62] * 100_000)


def doubled(depth: int) -> tuple[Any, ...]:
    """A tuple of little memory and 2^depth items."""
    value: tuple[Any, ...] = ()
    for _ in range(depth):
        value = (value, value)
    return value


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


READERS = pytest.mark.parametrize(
    "read",
    [
        _foreign_pickle.read_metadata_pickle,
        _foreign_pickle.read_value_pickle,
        _foreign_pickle.check_tensor_pickle,
    ],
    ids=["metadata", "value", "tensor"],
)

HUGE = 1 << 32
BOMBS = {
    "LONG_BINPUT": b"Nr" + struct.pack("<I", 1 << 27) + b".",
    "PUT": b"Np%d\n." % (1 << 27),
    "FRAME": b"\x80\x04\x95" + struct.pack("<Q", HUGE) + b"N.",
    "BINBYTES": b"B" + struct.pack("<I", HUGE - 1) + b".",
    "BINBYTES8": b"\x8e" + struct.pack("<Q", HUGE) + b".",
    "BINUNICODE8": b"\x8d" + struct.pack("<Q", HUGE) + b".",
    "BYTEARRAY8": b"\x96" + struct.pack("<Q", HUGE) + b".",
    "LONG4": b"\x8b" + struct.pack("<i", (1 << 31) - 1) + b".",
}


@READERS
@pytest.mark.parametrize("bomb", list(BOMBS))
def test_a_short_pickle_takes_little_memory(read: Callable[[bytes, str], object], bomb: str) -> None:
    tracemalloc.start()
    try:
        if bomb in {"LONG_BINPUT", "PUT", "FRAME"}:
            assert read(BOMBS[bomb], "it") is None
        else:
            with pytest.raises(CheckpointError, match="it is "):
                read(BOMBS[bomb], "it")
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("table", "read"),
    [
        (_foreign_pickle._METADATA_NAMES, _foreign_pickle.read_metadata_pickle),
        (_foreign_pickle._VALUE_NAMES, _foreign_pickle.read_value_pickle),
        (_foreign_pickle._TENSOR_NAMES, _foreign_pickle.check_tensor_pickle),
    ],
    ids=["metadata", "value", "tensor"],
)
@pytest.mark.parametrize(
    ("step", "text"),
    [
        (b"}\x8c\x01xK\x01sb", "state is given to"),
        (b"N}\x8c\x0c__defaults__K\x01\x85s\x86b", "state is given to"),
        (b"K\x01a", "an item is appended to"),
        (b"(K\x01K\x02e", "items are appended to"),
        (b"\x8c\x01xK\x01s", "a key is set in"),
        (b"(\x8c\x01xK\x01u", "a key is set in"),
        (b"(K\x01\x90", "with a set in it"),
    ],
    ids=["BUILD", "BUILD slots", "APPEND", "APPENDS", "SETITEM", "SETITEMS", "ADDITEMS"],
)
def test_no_step_of_a_pickle_changes_what_a_name_stands_for(
    table: dict[tuple[str, str], object], read: Callable[[bytes, str], object], step: bytes, text: str
) -> None:
    for (module, name), stands_for in table.items():
        before = dict(getattr(stands_for, "__dict__", {})), getattr(stands_for, "__defaults__", None)
        with pytest.raises(CheckpointError, match=text):
            read(b"c%s\n%s\n" % (module.encode(), name.encode()) + step + b".", "it")
        assert (dict(getattr(stands_for, "__dict__", {})), getattr(stands_for, "__defaults__", None)) == before


@READERS
def test_a_class_named_by_number_raises(read: Callable[[bytes, str], object]) -> None:
    copyreg.add_extension("os", "system", 200)
    try:
        for pickled in (b"\x82\xc8.", b"\x83\xc8\0.", b"\x84\xc8\0\0\0."):
            with pytest.raises(CheckpointError, match="names a class by a number"):
                read(pickled, "it")
    finally:
        copyreg.remove_extension("os", "system", 200)


@READERS
@pytest.mark.parametrize("key", ["doubled", "deep"])
def test_a_key_that_takes_forever_to_hash_raises(read: Callable[[bytes, str], object], key: str) -> None:
    # The second is deeper than the C stack.
    pickled = b")" + {"doubled": b"2\x86" * 100, "deep": b"\x85" * 1_000_000}[key]
    for filled in (b"}" + pickled + b"Ns.", b"}(" + pickled + b"Nu.", b"(" + pickled + b"Nd."):
        with pytest.raises(CheckpointError, match="a dict that has a tuple of more than 1000 items as a key"):
            read(filled, "it")


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


def test_another_file_before_the_archive_raises(tmp_path: Path) -> None:
    save_with_torch({"w": torch.ones(2)}, tmp_path / "torch")
    archive, legacy = io.BytesIO(), io.BytesIO()
    torch.save(torch.ones(2), archive)
    torch.save(torch.zeros(2), legacy, _use_new_zipfile_serialization=False)
    replace_bytes(tmp_path / "torch", "w", legacy.getvalue() + archive.getvalue())
    with TorchDirectory(tmp_path / "torch") as found, pytest.raises(CheckpointError, match="does not begin as an"):
        found.read_box("w", 0)


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


# --- the command -----------------------------------------------------------------------------------------------------


def run_command(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hyper_parallel.checkpoint.convert", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=50)


def test_the_command_converts_and_says_what(tmp_path: Path) -> None:
    state = nested_state()
    save_with_torch(state, tmp_path / "torch")
    ran = run_command(tmp_path / "torch", tmp_path / "ours", "--to", "hyper_parallel")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout == f"{tmp_path / 'ours'}: 4 tensors, 2 values, 40 B\n"
    assert convert.main([str(tmp_path / "ours"), str(tmp_path / "again"), "--to", "torch"]) == 0
    assert_same(load_with_torch(tmp_path / "again"), load_with_torch(tmp_path / "torch"))


def test_the_command_fails_with_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert convert.main([str(tmp_path / "none"), str(tmp_path / "out"), "--to", "hyper_parallel"]) == 1
    assert (
        capsys.readouterr().err == f"convert: {tmp_path / 'none'} is no readable directory: No such file or directory\n"
    )
    assert convert.main([str(tmp_path), str(tmp_path / "out"), "--to", "hyper_parallel"]) == 1
    assert "has no .metadata" in capsys.readouterr().err
    checkpoint.save({"w": torch.ones(2)}, tmp_path / "ours")
    assert convert.main([str(tmp_path / "ours"), str(tmp_path / "out"), "--to", "hyper_parallel"]) == 1
    assert "is a checkpoint of hyper_parallel, not of torch" in capsys.readouterr().err
    save_with_torch({"w": torch.ones(2)}, tmp_path / "torch")
    assert convert.main([str(tmp_path / "torch"), str(tmp_path / "out"), "--to", "torch"]) == 1
    assert "is no checkpoint of hyper_parallel" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "arguments", [(), ("in", "out"), ("in", "out", "--to", "safetensors"), ("in", "--to", "torch")]
)
def test_wrong_arguments_exit_with_2(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        convert.main(arguments)
    assert caught.value.code == 2
    assert "usage: python -m hyper_parallel.checkpoint.convert" in capsys.readouterr().err


def test_help_has_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        convert.main(["--help"])
    assert caught.value.code == 0
    text = capsys.readouterr().out
    assert "python -m hyper_parallel.checkpoint.convert run/torch_step_1000 run/step_1000 --to hyper_parallel" in text
    assert "exit codes: 0 converted, 1 failed (OUT holds no checkpoint), 2 wrong arguments" in text


def test_progress_counts_every_byte_once(tmp_path: Path) -> None:
    save_with_torch({"a": torch.ones(1000), "b": torch.ones(1000)}, tmp_path / "torch")
    told: list[tuple[int, int]] = []
    done = convert.from_torch(tmp_path / "torch", tmp_path / "ours", progress=lambda *counts: told.append(counts))
    assert done == "2 tensors, 0 values, 7.8 KiB"
    assert told == [(0, 8000), (4000, 8000), (8000, 8000)]
    told.clear()
    convert.to_torch(tmp_path / "ours", tmp_path / "again", progress=lambda *counts: told.append(counts))
    assert told == [(0, 8000), (4000, 8000), (8000, 8000)]


# --- the command hyper-parallel, of which this module is one step -----------------------------------------------------

RAGGED_BOXES = [((0, 0), (1, 4)), ((1, 0), (1, 1)), ((1, 1), (1, 3)), ((2, 0), (4, 4))]
"""What RaggedShard((0, 1), (5, 19)) makes of (6, 4)."""


def run_hyper_parallel(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Runs the command that was built together with the package, this Python in it."""
    command = Path(hyper_parallel.__file__).parents[2] / "src" / "hyper_parallel" / "tools" / "hyper-parallel"
    if not command.exists():
        pytest.skip("the command hyper-parallel is not built")
    environment = {**os.environ, "HYPER_PARALLEL_PYTHON": sys.executable}
    return subprocess.run(
        [command, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=50, env=environment
    )


def convert_with_command(source: Path, target: Path, to: str, *options: object) -> None:
    ran = run_hyper_parallel("convert", source, target, "--to", to, *options)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


def load_with_safetensors(folder: Path) -> dict[str, torch.Tensor]:
    """All of a Hugging Face folder, by the stock reader, each tensor from the file that the index says."""
    weight_map = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]
    files = {name: load_file(folder / name) for name in set(weight_map.values())}
    assert sorted(weight_map) == sorted(name for file in files.values() for name in file)
    return {name: files[file][name] for name, file in weight_map.items()}


def test_a_ragged_checkpoint_of_torchs_goes_to_hugging_face_and_back(tmp_path: Path) -> None:
    whole = torch.arange(24.0).view(6, 4)
    write_chunks(tmp_path / "torch", "w", whole, RAGGED_BOXES)
    convert_with_command(tmp_path / "torch", tmp_path / "hf", "huggingface")
    assert_same(load_with_safetensors(tmp_path / "hf"), {"w": whole})
    convert_with_command(tmp_path / "hf", tmp_path / "again", "torch")
    assert_same(load_with_torch(tmp_path / "again"), {"w": whole})
    assert sorted(folder.name for folder in tmp_path.iterdir()) == ["again", "hf", "torch"]


def test_a_ragged_checkpoint_of_ours_goes_to_hugging_face_and_back(tmp_path: Path) -> None:
    whole, short, empty = torch.arange(24.0).view(6, 4), torch.arange(6, dtype=torch.bfloat16), torch.zeros(0, 2)
    checkpoint.save({"model": {"w": whole, "b": short}, "none": empty}, tmp_path / "saved")
    options = ("--ranks", 3, "--units", "5,0,19", "--dims", "0,1", "--fallback", "shard")
    assert run_hyper_parallel("reshard", tmp_path / "saved", tmp_path / "ours", *options).returncode == 0
    assert sorted(OwnDirectory(tmp_path / "ours").tensors["model.w"].boxes) == RAGGED_BOXES
    convert_with_command(tmp_path / "ours", tmp_path / "hf", "huggingface", "--max-file-size", 20)
    tensors = {"model.w": whole, "model.b": short, "none": empty}
    assert_same(load_with_safetensors(tmp_path / "hf"), tensors)
    assert len(list((tmp_path / "hf").glob("*.safetensors"))) > 1
    convert_with_command(tmp_path / "hf", tmp_path / "again", "hyper_parallel")
    assert_same(checkpoint.read(tmp_path / "again"), tensors)


def test_values_of_torchs_do_not_go_to_hugging_face_unless_dropped(tmp_path: Path) -> None:
    save_with_torch(nested_state(), tmp_path / "torch")
    ran = run_hyper_parallel("convert", tmp_path / "torch", tmp_path / "hf", "--to", "huggingface")
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr.startswith("hyper-parallel: IN holds 2 values beside tensors, 'optimizer.groups.0.lr' for one")
    assert os.listdir(tmp_path) == ["torch"]
    convert_with_command(tmp_path / "torch", tmp_path / "hf", "huggingface", "--drop-values")
    assert set(load_with_safetensors(tmp_path / "hf")) == {
        "model.w", "model.deep.b", "optimizer.state.0.m", "optimizer.state.1.m",
    }  # fmt: skip


def test_a_damaged_checkpoint_of_torchs_leaves_nothing_beside_it(tmp_path: Path) -> None:
    save_with_torch({"w": torch.ones(2)}, tmp_path / "torch")
    (tmp_path / "torch" / "__0_0.distcp").unlink()
    ran = run_hyper_parallel("convert", tmp_path / "torch", tmp_path / "hf", "--to", "huggingface")
    assert (ran.returncode, ran.stdout) == (1, "")
    first, second = ran.stderr.splitlines()
    assert first.startswith("convert: ")
    assert first.endswith("cannot be opened: No such file or directory")
    assert second == (
        f"hyper-parallel: '{sys.executable}', which converts torch checkpoints, ended with exit code 1; "
        "its message stands above"
    )
    assert os.listdir(tmp_path) == ["torch"]
