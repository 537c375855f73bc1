"""What redistributions between normal layouts receive, beside the lower bound and torch DTensor's own sequences.

    python benchmarks/python/bench_plans.py [--meshes 2,2 2,3 2,2,2] [--one-in N]

Nothing is sent: plans say what they cost. plan_bench/torch_sequences.py has the formulas for torch's. Its graph planner
takes minutes for all pairs on a mesh of three dims: without --one-in one in 23 of these is taken, and every other pair.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from plan_bench.pairs import MESHES, SHAPES, World, received, some_pairs_on
from plan_bench.report import print_header, rows
from plan_bench.torch_sequences import fake_world

MOST_RANKS = 64


@dataclass(frozen=True)
class Options:
    """Which meshes, and how many of their pairs."""

    meshes: tuple[tuple[int, ...], ...]
    one_in: int | None


def main() -> None:
    options = parse_options(sys.argv[1:])
    print_header()
    for mesh in options.meshes:
        with fake_world(math.prod(mesh)):
            for shape in SHAPES:
                world = World(mesh, shape)
                pairs = some_pairs_on(len(mesh), options.one_in)
                for row in rows(world, received(world, pairs)):
                    row.print()


def parse_options(arguments: Sequence[str]) -> Options:
    parser = argparse.ArgumentParser(
        prog="bench_plans", description="Counts what plans receive, beside torch DTensor's sequences."
    )
    parser.add_argument(
        "--meshes", nargs="+", type=_mesh, default=MESHES, help="their shapes (2,2 2,3 2,2,2)", metavar="SHAPE"
    )
    parser.add_argument("--one-in", type=_one_in, help="takes one pair in so many (all; 23 where a mesh has 3 dims)")
    given = parser.parse_args(arguments)
    return Options(tuple(given.meshes), given.one_in)


def _mesh(text: str) -> tuple[int, ...]:
    shape = tuple(int(size) for size in text.split(",")) if re.fullmatch(r"\d{1,3}(,\d{1,3}){0,2}", text) else ()
    if not 0 < math.prod(shape or (0,)) <= MOST_RANKS:
        raise argparse.ArgumentTypeError(f"{text!r} is not the shape of a mesh of up to 3 dims and {MOST_RANKS} ranks")
    return shape


def _one_in(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least 1")
    return int(text)


if __name__ == "__main__":
    main()
