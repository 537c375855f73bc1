"""Checkpoints of torch's made to do harm: nothing of them runs, and nothing outside the directory is read."""

from __future__ import annotations

import io
import os
import pickle
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.checkpoint.metadata import _MEM_FORMAT_ENCODING, ChunkStorageMetadata

from hyper_parallel import CheckpointError
from hyper_parallel.checkpoint import _foreign_pickle, convert
from hyper_parallel.checkpoint._torch_directory import TorchDirectory
from support.torch_checkpoints import read_metadata, replace_bytes, replace_item, save_with_torch, write_metadata


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


def test_another_file_before_the_archive_raises(tmp_path: Path) -> None:
    save_with_torch({"w": torch.ones(2)}, tmp_path / "torch")
    archive, legacy = io.BytesIO(), io.BytesIO()
    torch.save(torch.ones(2), archive)
    torch.save(torch.zeros(2), legacy, _use_new_zipfile_serialization=False)
    replace_bytes(tmp_path / "torch", "w", legacy.getvalue() + archive.getvalue())
    with TorchDirectory(tmp_path / "torch") as found, pytest.raises(CheckpointError, match="does not begin as an"):
        found.read_box("w", 0)
