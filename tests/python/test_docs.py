"""The documentation runs: every example of a docstring, and every ```python block of README.md and docs/guides.

Docstrings see the names of their module, the package's public names and `torch`, in a world of one rank. Their output
is compared.

Pages are complete programs. The blocks of a page are one program, run block by block in one namespace, as under
`torchrun` on one rank. A line `<!-- ranks: 2 -->` ends that program; the blocks after it are another one, on two ranks.
The process group is there already unless the program makes it. A block written as `>>>` has its output compared.
What is written for MindSpore runs there: `platforms/test_docs_on_mindspore.py`.
"""

from __future__ import annotations

import contextlib
import doctest
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

import hyper_parallel
from support.documentation import (
    ROOT,
    OwnFinder,
    PackageFinder,
    Program,
    compare_output,
    docstrings,
    free_port,
    has_example,
    is_of_mindspore,
    module_names,
    pages_of,
    programs_of,
    run_block,
)
from support.pool import RankPools
from support.protocol import GROUP_TIMEOUT
from support.worker import Rank, environment

PAGES = pages_of("torch")


def run_program(rank: Rank, program: Program, port: int) -> None:
    """Runs the program on this rank, with the environment that `torchrun` gives, in a folder that its ranks share."""
    if program.makes_its_group() and dist.is_initialized():
        dist.destroy_process_group()
    names: dict[str, Any] = {"__name__": "__main__"}
    place = {"RANK": str(rank.index), "LOCAL_RANK": str(rank.index), "WORLD_SIZE": str(rank.size)}
    place["HYPER_PARALLEL_STRICT"] = "0"  # as users have it
    folder = rank.folder / f"page{port}"
    folder.mkdir(exist_ok=True)
    with environment({**place, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}), contextlib.chdir(folder):
        for block in program.blocks:
            run_block(block, ROOT / program.page, names)


@pytest.fixture
def world_of_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rank]:
    """A process group of this process alone, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    rendezvous = f"file://{tmp_path / 'rendezvous'}"
    dist.init_process_group("gloo", rendezvous, timeout=GROUP_TIMEOUT, rank=0, world_size=1)
    yield Rank(0, 1, tmp_path)
    if dist.is_initialized():
        dist.destroy_process_group()


EXAMPLES = docstrings(
    [name for name in module_names() if not is_of_mindspore(name)], {"torch": torch}, OwnFinder(), PackageFinder()
)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_docstring_shows_what_its_example_prints(example: doctest.DocTest, world_of_one: Rank) -> None:
    compare_output(example)


@pytest.mark.parametrize("name", [name for name in hyper_parallel.__all__ if not name.endswith("Error")])
def test_public_name_has_an_example(name: str) -> None:
    assert has_example(getattr(hyper_parallel, name))


@pytest.mark.parametrize("program", [program for page in PAGES for program in programs_of(page)], ids=str)
def test_page_runs(program: Program, request: pytest.FixtureRequest, rank_pools: RankPools) -> None:
    if program.ranks == 1:
        run_program(request.getfixturevalue("world_of_one"), program, free_port())
    else:
        rank_pools[program.ranks].run(run_program, program, free_port(), group_timeout=GROUP_TIMEOUT)


def test_every_page_has_a_program() -> None:
    assert [str(page) for page in PAGES if not programs_of(page)] == []
