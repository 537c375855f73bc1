"""What a DTensor costs in Python, beside torch's own DTensor in the same run, on two Gloo ranks.

    python benchmarks/python/bench_dtensor.py [--pairs 21] [--only REGEX] [--quick]

starts itself under torchrun. Rows: what a call on a small DTensor adds to the same call on plain tensors, what a step
of AdamW over many of them adds, and redistributions. dtensor_bench/measure.py says how they are timed.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import NoReturn

import torch
import torch.distributed as dist
from dtensor_bench import calls, optimizer, report, transfers
from dtensor_bench.figure import Effort, Figure
from dtensor_bench.worlds import Worlds

from hyper_parallel import init_device_mesh

RANKS = 2
GROUP_TIMEOUT = timedelta(seconds=120)


@dataclass(frozen=True)
class Options:
    """Which rows to run, and how thoroughly."""

    effort: Effort
    only: re.Pattern[str]


def main() -> None:
    options = parse_options(sys.argv[1:])
    if "RANK" not in os.environ:
        start_ranks()
    dist.init_process_group("gloo", timeout=GROUP_TIMEOUT)
    run_rank(options)
    dist.destroy_process_group()


def parse_options(arguments: Sequence[str]) -> Options:
    parser = argparse.ArgumentParser(prog="bench_dtensor", description="Times DTensor beside torch's own.")
    parser.add_argument("--pairs", type=int, default=21, help="timed pairs of a row (default %(default)s; at least 15)")
    parser.add_argument("--only", type=_regex, default=_regex(""), help="rows in whose text this regex is found")
    parser.add_argument("--quick", action="store_true", help="only shows that it runs: few calls, no large tensors")
    given = parser.parse_args(arguments)
    if given.pairs < 1:
        parser.error(f"--pairs {given.pairs}: must be at least 1")
    effort = Effort(pairs=3, seconds=0.0005, most_bytes=1 << 10) if given.quick else Effort(pairs=given.pairs)
    return Options(effort, given.only)


def _regex(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a regular expression: {error}") from error


def start_ranks() -> NoReturn:
    """Becomes the torchrun that runs this program on every rank."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1"]
    variables = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    os.execve(sys.executable, [*torchrun, "--nproc-per-node", str(RANKS), *sys.argv], os.environ | variables)


def run_rank(options: Options) -> None:
    """Runs the rows on this rank; rank 0 prints them."""
    torch.set_num_threads(1)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("x",))
    worlds = Worlds(mesh, mesh.to_torch("cpu"))
    figures: list[Figure] = [*calls.figures(worlds), *optimizer.figures(worlds), *transfers.figures(worlds)]
    if dist.get_rank() == 0:
        report.print_header(options.effort)
    for figure in figures:
        if figure.bytes <= options.effort.most_bytes and options.only.search(figure.what):
            row = figure.run(options.effort)
            if dist.get_rank() == 0:
                report.print_row(row)


if __name__ == "__main__":
    main()
