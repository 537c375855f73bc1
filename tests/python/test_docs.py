"""The documentation runs: every example of a docstring, and every ```python block of README.md and docs/guides.

Docstrings see the names of their module, the package's public names and `torch`, in a world of one rank. Their output
is compared.

Pages are complete programs. The blocks of a page are one program, run block by block in one namespace, as under
`torchrun` on one rank. A line `<!-- ranks: 2 -->` ends that program; the blocks after it are another one, on two ranks.
The process group is there already unless the program makes it. A block written as `>>>` has its output compared.
"""

from __future__ import annotations

import contextlib
import doctest
import importlib
import itertools
import pkgutil
import re
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import torch.distributed as dist

import hyper_parallel
from support.pool import RankPools
from support.protocol import GROUP_TIMEOUT
from support.worker import Rank, environment

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs" / "guides").glob("*.md"))]


@dataclass(frozen=True)
class Block:
    """A fenced block: its text, and the line of the page on which that begins."""

    line: int
    source: str


@dataclass(frozen=True)
class Program:
    """The blocks of a page that run in one namespace, on so many ranks."""

    page: str
    ranks: int
    blocks: list[Block] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.page}:{self.blocks[0].line}"

    def makes_its_group(self) -> bool:
        return any("init_process_group" in block.source for block in self.blocks)


def programs_of(page: Path) -> list[Program]:
    """The programs of a page, in its order; those without a block are left out."""
    name = str(page.relative_to(ROOT))
    programs = [Program(name, ranks=1)]
    lines = iter(enumerate(page.read_text().splitlines(), start=1))
    for number, line in lines:
        if marker := re.fullmatch(r"<!-- ranks: (\d+) -->", line):
            programs.append(Program(name, int(marker[1])))
        if line == "```python":
            body = [text for _, text in itertools.takewhile(lambda numbered: numbered[1] != "```", lines)]
            programs[-1].blocks.append(Block(number + 1, "\n".join(body) + "\n"))
    return [program for program in programs if program.blocks]


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


def run_block(block: Block, page: Path, names: dict[str, Any]) -> None:
    if block.source.startswith(">>>"):
        compare_output(doctest.DocTestParser().get_doctest(block.source, names, page.name, None, block.line))
    else:
        # With the page's own line numbers, so that a traceback shows the block.
        exec(compile("\n" * (block.line - 1) + block.source, page, "exec"), names)


def compare_output(example: doctest.DocTest) -> None:
    """Runs an example of a docstring or a page; what it prints must be what it shows."""
    report: list[str] = []
    doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(example, out=report.append, clear_globs=False)
    assert not report, "".join(report)


class OwnFinder(doctest.DocTestFinder):
    """Takes the objects that a module has made, with the names that it knows."""

    def _from_module(self, module: ModuleType | None, object: object) -> bool:
        owner = getattr(object, "__module__", None)
        return owner is None or (module is not None and owner == module.__name__)


class PackageFinder(doctest.DocTestFinder):
    """Takes an object as the package's whichever of its modules says so, compiled ones included."""

    def _from_module(self, module: ModuleType | None, object: object) -> bool:
        owner = getattr(object, "__module__", None)
        return owner is None or owner.split(".")[0] == hyper_parallel.__name__


def docstrings() -> list[doctest.DocTest]:
    """Every docstring of the package that has an example, once."""
    found = pkgutil.walk_packages(hyper_parallel.__path__, f"{hyper_parallel.__name__}.")
    names = [hyper_parallel.__name__, *(module.name for module in found)]
    public = {name: getattr(hyper_parallel, name) for name in hyper_parallel.__all__}
    modules = [importlib.import_module(name) for name in names]
    examples = [
        example
        for finder in (OwnFinder(), PackageFinder())
        for module in modules
        for example in finder.find(module, globs={**vars(module), **public, "torch": torch})
    ]
    by_text = {example.docstring: example for example in reversed(examples) if example.examples}
    return sorted(by_text.values(), key=lambda example: example.name)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


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


@pytest.mark.parametrize("example", docstrings(), ids=lambda example: example.name)
def test_docstring_shows_what_its_example_prints(example: doctest.DocTest, world_of_one: Rank) -> None:
    compare_output(example)


def has_example(value: object) -> bool:
    members = vars(value).values() if isinstance(value, type) else ()
    return any(">>>" in (getattr(documented, "__doc__", None) or "") for documented in (value, *members))


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
