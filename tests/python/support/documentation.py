"""The examples of the documentation: those of docstrings, and the ```python blocks of README.md and docs/guides.

A page is for torch, or for MindSpore if a line `<!-- platform: mindspore -->` says so.
"""

from __future__ import annotations

import doctest
import importlib
import itertools
import pkgutil
import re
import socket
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import hyper_parallel

ROOT = Path(__file__).parents[3]


def pages_of(platform: str) -> list[Path]:
    """The pages whose programs run on a platform."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs" / "guides").glob("*.md"))]
    return [page for page in pages if platform_of(page) == platform]


def platform_of(page: Path) -> str:
    """What the programs of a page run on."""
    return "mindspore" if "<!-- platform: mindspore -->" in page.read_text().splitlines() else "torch"


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


def module_names() -> list[str]:
    """All modules of the package."""
    found = pkgutil.walk_packages(hyper_parallel.__path__, f"{hyper_parallel.__name__}.")
    return [hyper_parallel.__name__, *(module.name for module in found)]


def is_of_mindspore(name: str) -> bool:
    """Whether a module is MindSpore's part of the package."""
    return "mindspore" in name


def docstrings(names: list[str], known: dict[str, Any], *finders: doctest.DocTestFinder) -> list[doctest.DocTest]:
    """Every docstring of the modules that has an example, once; it sees what is `known` beside the package's names."""
    public = {name: getattr(hyper_parallel, name) for name in hyper_parallel.__all__}
    modules = [importlib.import_module(name) for name in names]
    examples = [
        example
        for finder in finders
        for module in modules
        for example in finder.find(module, globs={**vars(module), **public, **known})
    ]
    by_text = {example.docstring: example for example in reversed(examples) if example.examples}
    return sorted(by_text.values(), key=lambda example: example.name)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def has_example(value: object) -> bool:
    members = vars(value).values() if isinstance(value, type) else ()
    return any(">>>" in (getattr(documented, "__doc__", None) or "") for documented in (value, *members))
