"""What the documentation shows of MindSpore runs there: docstrings on one rank, pages on as many as they say.

The first block of a page may make the process group; here it is there already.
"""

from __future__ import annotations

import contextlib
import doctest
from typing import Any

import mindspore
import pytest

from support.documentation import (
    ROOT,
    OwnFinder,
    Program,
    compare_output,
    docstrings,
    is_of_mindspore,
    module_names,
    pages_of,
    programs_of,
    run_block,
)
from support.pool import RankPools
from support.worker import Rank


def examples() -> dict[str, doctest.DocTest]:
    names = [name for name in module_names() if is_of_mindspore(name)]
    return {example.name: example for example in docstrings(names, {"mindspore": mindspore}, OwnFinder())}


def run_example(rank: Rank, name: str) -> None:
    compare_output(examples()[name])


@pytest.mark.parametrize("name", list(examples()))
def test_docstring_shows_what_its_example_prints(name: str, rank_pools: RankPools) -> None:
    rank_pools[1].run(run_example, name)


def run_program(rank: Rank, program: Program) -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    folder = rank.folder / program.page.replace("/", "_")
    folder.mkdir(exist_ok=True)
    with contextlib.chdir(folder):
        for block in program.blocks:
            run_block(block, ROOT / program.page, names)


def test_pages_run(rank_pools: RankPools) -> None:
    for page in pages_of("mindspore"):
        programs = programs_of(page)
        assert programs, f"{page.name} has no program"
        for program in programs:
            rank_pools[program.ranks].run(run_program, program)
