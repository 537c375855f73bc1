"""The baseline of saves and loads: torch.distributed.checkpoint, flushing its files as ours are."""

from __future__ import annotations

import warnings
from pathlib import Path

from torch.distributed.checkpoint import state_dict_loader, state_dict_saver
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.tensor import DTensor as TorchDTensor

NAME = "torch DCP, Shard(0)"

# Said by every save that replaces another, as all but the first do here.
warnings.filterwarnings("ignore", message="Detected an existing checkpoint")


def save(state_dict: dict[str, TorchDTensor], directory: Path) -> None:
    """Saves, in the place of what may be there."""
    state_dict_saver.save(state_dict, storage_writer=FileSystemWriter(directory, sync_files=True, overwrite=True))


def load(state_dict: dict[str, TorchDTensor], directory: Path) -> None:
    """Loads in place."""
    state_dict_loader.load(state_dict, storage_reader=FileSystemReader(directory))
