"""The command line of train_embedding.py."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from embedding_training.model_file import ModelFileError, map_matrix
from hyper_parallel import HyperParallelError, RaggedShard

MOST_RANKS = 64
DEFAULT_RANKS = 4
DEFAULT_UNITS = (1, 2, 0, 3)
DEFAULT_TENSOR = "embeddings.word_embeddings.weight"


@dataclass(frozen=True)
class Options:
    """What to train and on how many ranks; valid, the file included."""

    file: Path
    tensor: str
    ranks: int
    units: tuple[int, ...]
    steps: int


class _OneLineParser(argparse.ArgumentParser):
    """Says what is wrong in one line, once for all ranks."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}\n" if os.environ.get("RANK", "0") == "0" else None)


def parse_options(arguments: Sequence[str]) -> Options:
    """Reads the arguments; prints what is wrong with them or the file and ends the program with code 2."""
    parser = _OneLineParser(prog="train_embedding", description="Trains a network over a model's embedding.")
    parser.add_argument("--file", type=Path, required=True, help="a .safetensors file")
    parser.add_argument("--tensor", default=DEFAULT_TENSOR, help="its embedding (default %(default)s)")
    parser.add_argument("--ranks", type=int, help=f"how many processes (default {DEFAULT_RANKS}, or torchrun's)")
    parser.add_argument("--units", help="relative shares, one per rank (default 1,2,0,3 over and over)")
    parser.add_argument("--steps", type=int, default=5, help="training steps (default %(default)s)")
    given = parser.parse_args(arguments)

    world_size = os.environ.get("WORLD_SIZE")
    ranks = given.ranks if given.ranks is not None else int(world_size or DEFAULT_RANKS)
    if not 1 <= ranks <= MOST_RANKS:
        parser.error(f"--ranks {ranks}: must be 1 to {MOST_RANKS}")
    if world_size not in (None, str(ranks)):
        parser.error(f"--ranks {ranks}: torchrun has started {world_size}")
    if given.steps < 1:
        parser.error(f"--steps {given.steps}: must be at least 1")
    try:
        map_matrix(given.file, given.tensor)
    except ModelFileError as error:
        parser.error(str(error))
    return Options(given.file, given.tensor, ranks, _units(parser, given.units, ranks), given.steps)


def _units(parser: _OneLineParser, text: str | None, ranks: int) -> tuple[int, ...]:
    """One unit for each rank that together make a RaggedShard."""
    if text is None:
        return tuple(DEFAULT_UNITS[rank % len(DEFAULT_UNITS)] for rank in range(ranks))
    try:
        units = tuple(int(unit) for unit in text.split(","))
        RaggedShard((0,), units)
    except HyperParallelError as error:
        parser.error(f"--units {text}: {error}")
    except ValueError:
        parser.error(f"--units {text}: must be integers with commas between them")
    if len(units) != ranks:
        parser.error(f"--units {text}: there are {len(units)} of them but {ranks} ranks")
    return units
