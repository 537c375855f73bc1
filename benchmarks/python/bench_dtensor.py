"""What a DTensor costs in Python, beside torch's own DTensor in the same run, on two Gloo ranks.

    python benchmarks/python/bench_dtensor.py [--pairs 21] [--only REGEX] [--quick]

Rows: what a call on a small DTensor adds to the same call on plain tensors, a tensor-parallel transformer block, what a
step of AdamW over many of them adds, and redistributions. paired/measure.py says how they are timed.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import torch.distributed as dist
from dtensor_bench import block, calls, optimizer, report, transfers
from dtensor_bench.worlds import Worlds
from paired.figure import Figure
from paired.measure import Effort
from paired.options import pairs_option, regex
from paired.ranks import run_on_ranks

from hyper_parallel import init_device_mesh

RANKS = 2


@dataclass(frozen=True)
class Options:
    """Which rows to run, and how thoroughly."""

    effort: Effort
    only: re.Pattern[str]


def main() -> None:
    os.environ["HYPER_PARALLEL_STRICT"] = "1"  # no row may run through torch's own DTensor on our side
    options = parse_options(sys.argv[1:])
    run_on_ranks(RANKS, lambda: run_rank(options))


def parse_options(arguments: Sequence[str]) -> Options:
    parser = argparse.ArgumentParser(prog="bench_dtensor", description="Times DTensor beside torch's own.")
    pairs_option(parser, 21)
    parser.add_argument("--only", type=regex, default=regex(""), help="rows in whose text this regex is found")
    parser.add_argument("--quick", action="store_true", help="only shows that it runs: few calls, no large tensors")
    given = parser.parse_args(arguments)
    effort = Effort(pairs=3, seconds=0.0005, most_bytes=1 << 10) if given.quick else Effort(pairs=given.pairs)
    return Options(effort, given.only)


def run_rank(options: Options) -> None:
    """Runs the rows on this rank; rank 0 prints them."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("x",))
    worlds = Worlds(mesh, mesh.to_torch("cpu"))
    figures: list[Figure] = [
        *calls.figures(worlds),
        *block.figures(worlds),
        *optimizer.figures(worlds),
        *transfers.figures(worlds),
    ]
    if dist.get_rank() == 0:
        report.print_header(options.effort)
    for figure in figures:
        if figure.bytes <= options.effort.most_bytes and options.only.search(figure.what):
            row = figure.run(options.effort)
            if dist.get_rank() == 0:
                report.print_row(row)


if __name__ == "__main__":
    main()
