"""Converts checkpoints of ``torch.distributed.checkpoint`` into ours and back.

    python -m hyper_parallel.checkpoint.convert IN OUT --to hyper_parallel
    python -m hyper_parallel.checkpoint.convert IN OUT --to torch

Needs one process, no process group and the memory of two boxes, whatever wrote the checkpoint and how large it is. The
boxes stay what they are, so do names, nesting, dtypes and bits. What the other format cannot hold raises by name:

* a value of torch's that is not made of None, bool, int, float, complex, str, bytes, list, tuple and dict, a tensor in
  a tuple among them: nothing that a pickle names is imported but what is known to be harmless
* a dtype that one side lacks: complex128 here, F4 and F6 there
* a checkpoint of torch's that is compressed, or that every rank saved for itself

torch's format knows dicts with keys of text and lists: an int key becomes text, and a tuple with tensors a list.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from hyper_parallel import platform
from hyper_parallel.checkpoint._progress import ProgressOption, progress_of
from hyper_parallel.errors import HyperParallelError, UnimplementedError

if TYPE_CHECKING or platform.name() == "torch":
    from hyper_parallel.checkpoint._own_directory import OwnDirectory, write_own_directory
    from hyper_parallel.checkpoint._torch_directory import TorchDirectory
    from hyper_parallel.checkpoint._torch_writer import write_torch_directory

if TYPE_CHECKING:
    import torch

    from hyper_parallel._core import Progress
    from hyper_parallel.checkpoint._torch_contents import EntryPath, TensorEntry
    from hyper_parallel.checkpoint._torch_directory import Source

__all__ = ["from_torch", "main", "to_torch"]

_EXAMPLE = """example:
  python -m hyper_parallel.checkpoint.convert run/torch_step_1000 run/step_1000 --to hyper_parallel

exit codes: 0 converted, 1 failed (OUT holds no checkpoint), 2 wrong arguments"""

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")

_Folder = str | os.PathLike[str]


def from_torch(source: _Folder, target: _Folder, *, progress: ProgressOption = None) -> str:
    """Makes a checkpoint of ours of one that torch's ``FileSystemWriter`` wrote.

    Args:
        source: The directory of torch's checkpoint.
        target: A new or an empty directory.
        progress: None for a bar if standard error is a terminal, False for none, or a function of the bytes done and
            in all.

    Returns:
        What was converted, as one line.

    Raises:
        InvalidArgumentError: ``source`` is no checkpoint of torch's, or ``target`` is in use.
        CheckpointError: It is damaged or names what is not to be trusted.
        UnimplementedError: It holds what our format cannot; this process computes with MindSpore.

    Example:
        >>> import torch.distributed.checkpoint as dcp
        >>> _ = dcp.save({"w": torch.ones(2, 3)}, checkpoint_id="torch_step1")
        >>> from_torch("torch_step1", "step1")
        '1 tensor, 0 values, 24 B'
    """
    _check_platform()
    with TorchDirectory(source) as checkpoint:
        return _convert(checkpoint, write_own_directory, target, progress)


def to_torch(source: _Folder, target: _Folder, *, progress: ProgressOption = None) -> str:
    """Makes a checkpoint that ``torch.distributed.checkpoint`` loads of one of ours.

    Args:
        source: The directory of our checkpoint.
        target: A new or an empty directory.
        progress: None for a bar if standard error is a terminal, False for none, or a function of the bytes done and
            in all.

    Returns:
        What was converted, as one line.

    Raises:
        InvalidArgumentError: ``source`` is no checkpoint of ours, or ``target`` is in use.
        CheckpointError: It is damaged.
        UnimplementedError: It has a dtype that torch does not have; this process computes with MindSpore.

    Example:
        >>> from hyper_parallel import checkpoint
        >>> checkpoint.save({"w": torch.ones(2, 3)}, "step2")
        >>> to_torch("step2", "torch_step2")
        '1 tensor, 0 values, 24 B'
    """
    _check_platform()
    return _convert(OwnDirectory(source), write_torch_directory, target, progress)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command.

    Args:
        arguments: Without the program's name; those of the process if None.

    Returns:
        The exit code: 0 converted, 1 failed. Wrong arguments exit with 2.

    Example:
        >>> main(["no_such_checkpoint", "out", "--to", "torch"])
        1
    """
    given = _parser().parse_args(arguments)
    convert = from_torch if given.to == "hyper_parallel" else to_torch
    try:
        print(f"{given.target}: {convert(given.source, given.target)}")
    except (HyperParallelError, OSError) as error:
        print(f"convert: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("convert: interrupted", file=sys.stderr)
        return 1
    return 0


def _check_platform() -> None:
    if platform.name() != "torch":
        raise UnimplementedError(
            "convert reads and writes torch's checkpoints with torch, but this process computes with MindSpore; set "
            "HYPER_PARALLEL_PLATFORM=torch where torch is installed"
        )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m hyper_parallel.checkpoint.convert",
        description="Converts a checkpoint of torch.distributed.checkpoint into one of hyper_parallel, or back.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("source", metavar="IN", help="the directory of the checkpoint")
    parser.add_argument("target", metavar="OUT", help="a new or an empty directory; its parent must be there")
    parser.add_argument("--to", required=True, choices=("hyper_parallel", "torch"), help="the format of OUT")
    return parser


def _convert(
    source: Source, write: Callable[[Source, _Folder], None], target: _Folder, progress: ProgressOption
) -> str:
    total = sum(entry.nbytes for entry in source.tensors.values())
    told = progress_of(progress, is_coordinator=True)
    told.start(total)
    write(_Watched(source, told), target)
    told.finish()
    tensors, values = len(source.tensors), len(source.value_names)
    return f"{_count(tensors, 'tensor')}, {_count(values, 'value')}, {_size(total)}"


class _Watched:
    """A source that says what is read of it."""

    def __init__(self, source: Source, progress: Progress) -> None:
        self._source, self._progress = source, progress

    @property
    def tensors(self) -> Mapping[str, TensorEntry]:
        return self._source.tensors

    @property
    def value_names(self) -> list[str]:
        return self._source.value_names

    @property
    def paths(self) -> Mapping[str, EntryPath]:
        return self._source.paths

    def read_box(self, name: str, number: int) -> torch.Tensor:
        tensor = self._source.read_box(name, number)
        self._progress.advance(tensor.nbytes)
        return tensor

    def read_value(self, name: str) -> object:
        return self._source.read_value(name)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def _size(count: float) -> str:
    for unit in _UNITS[:-1]:
        if count < 1024:  # noqa: PLR2004
            return f"{count:.1f} {unit}" if unit != "B" else f"{count:.0f} B"
        count /= 1024
    return f"{count:.1f} {_UNITS[-1]}"


if __name__ == "__main__":
    sys.exit(main())
