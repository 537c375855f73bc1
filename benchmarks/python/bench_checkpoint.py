"""What checkpoints cost, beside torch.distributed.checkpoint and beside copying, in the same run.

    python benchmarks/python/bench_checkpoint.py [--pairs 15] [--rows save load ...] [--bytes 64MiB] [--quick]

paired/measure.py says how rows are timed. They run on 4 ranks, then on 1:

    save, load    of 256 MiB, uneven and even, beside torch's
    small         save and load of 2000 tensors of 4 KiB, beside torch's
    async         how long async_save keeps its caller, beside copies of the same bytes
    memory        the peaks of a save and of a load
    reshard       `hyper-parallel reshard` of 1 GiB, beside cp and fsync
    boxes         a chunk of 64 MiB loaded through 64 boxes, beside one
    metadata      reading that of 1 000 000 chunks
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from checkpoint_bench import background, boxes, memory, metadata, resharding, transfers
from checkpoint_bench.bench import Bench, Sizes
from checkpoint_bench.line import Line, print_header
from paired.measure import Effort
from paired.options import pairs_option
from paired.ranks import run_on_ranks

import hyper_parallel

Lines = Callable[[Bench], Iterator[Line]]

ROWS: dict[int, dict[str, Lines]] = {
    4: {
        "save": transfers.save_lines,
        "load": transfers.load_lines,
        "small": transfers.small_lines,
        "async": background.background_lines,
        "memory": memory.memory_lines,
        "reshard": resharding.resharding_lines,
    },
    1: {
        "async": background.background_lines,
        "boxes": boxes.box_lines,
        "metadata": metadata.metadata_lines,
    },
}
"""By the number of ranks."""

NAMES = list(dict.fromkeys(name for rows in ROWS.values() for name in rows))
QUICK_EFFORT = Effort(pairs=3, seconds=0, warm_up_pairs=0)
QUICK_SIZES = Sizes(1 << 20, 1 << 20, 1 << 20, small_tensors=20, names=20, chunks_per_name=10)
UNITS = {"": 1, "MIB": 1 << 20, "GIB": 1 << 30}
TREE = Path(__file__).parents[2]


@dataclass(frozen=True)
class Options:
    """Which rows to run, how thoroughly, how large, and where."""

    effort: Effort
    sizes: Sizes
    rows: frozenset[str]
    directory: Path
    command: Path


def main() -> None:
    options = parse_options(sys.argv[1:])
    print_header(options.effort)
    with tempfile.TemporaryDirectory(prefix="bench_checkpoint_", dir=options.directory) as directory:
        for ranks, rows in ROWS.items():
            if not options.rows.isdisjoint(rows):
                run_on_ranks(ranks, partial(run_rank, options, Path(directory)))


def parse_options(arguments: Sequence[str]) -> Options:
    parser = argparse.ArgumentParser(prog="bench_checkpoint", description="Times checkpoints beside torch's own.")
    pairs_option(parser, 15)
    parser.add_argument("--rows", nargs="+", choices=NAMES, default=NAMES, help="which rows (all)", metavar="ROW")
    parser.add_argument("--bytes", type=_bytes, help="size of every state dict and chunk, in MiB or GiB (as above)")
    parser.add_argument("--directory", type=_directory, help="where checkpoints go, for the time of the run (build)")
    parser.add_argument("--command", type=Path, default=_built_command(), help="hyper-parallel (the package's build)")
    parser.add_argument("--quick", action="store_true", help="only shows that it runs: few calls, small tensors")
    given = parser.parse_args(arguments)
    sizes = QUICK_SIZES if given.quick else Sizes()
    if given.bytes is not None:
        sizes = replace(sizes, state=given.bytes, chunk=given.bytes, resharded=given.bytes)
    effort = QUICK_EFFORT if given.quick else replace(QUICK_EFFORT, pairs=given.pairs)
    return Options(effort, sizes, frozenset(given.rows), given.directory or _build_folder(), given.command)


def _bytes(text: str) -> int:
    found = re.fullmatch(r"(\d{1,15})(|MiB|GiB)", text, re.IGNORECASE)
    size = int(found[1]) * UNITS[found[2].upper()] if found else 0
    if size <= 0 or size % (1 << 20) != 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a multiple of 1MiB, as 64MiB or 1GiB are")
    return size


def _directory(text: str) -> Path:
    if not Path(text).is_dir():
        raise argparse.ArgumentTypeError(f"{text!r} is not a directory")
    return Path(text).absolute()


def _build_folder() -> Path:
    """On the disk of the tree."""
    folder = TREE / "build"
    folder.mkdir(exist_ok=True)
    return folder


def _built_command() -> Path:
    """Of the build whose package this is: `python` lies beside `src` there."""
    return Path(hyper_parallel.__file__).parents[2] / "src" / "hyper_parallel" / "tools" / "hyper-parallel"


def run_rank(options: Options, directory: Path) -> None:
    """Runs the rows of this number of ranks on this rank; rank 0 prints them."""
    bench = Bench(options.effort, options.sizes, directory, options.command)
    for name, lines in ROWS[bench.ranks].items():
        if name not in options.rows:
            continue
        for line in lines(bench):
            if bench.rank == 0:
                line.print()


if __name__ == "__main__":
    main()
