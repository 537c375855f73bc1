#!/usr/bin/env python3
"""The type stubs of the extension modules, python/hyper_parallel/_core.pyi and _torch.pyi, made from the built modules.

    tools/make_stubs.py write   rewrites them
    tools/make_stubs.py check   changes nothing; fails, and shows the difference, if the modules have changed since

Reads the build of the preset 'dev'. A signature that pybind11 cannot express as Python is an error: bind it so that it
can.
"""

from __future__ import annotations

import difflib
import importlib
import re
import sys
import tempfile
from pathlib import Path
from types import ModuleType

import pybind11_stubgen

ROOT = Path(__file__).resolve().parent.parent
BUILT = ROOT / "build" / "dev" / "python"
PACKAGE = ROOT / "python" / "hyper_parallel"
MODULES = ("_core", "_torch")


def main(arguments: list[str]) -> int:
    if arguments not in (["write"], ["check"]):
        print(__doc__, file=sys.stderr)
        return 2
    stubs = make_stubs()
    if arguments == ["write"]:
        for module, text in stubs.items():
            (PACKAGE / f"{module}.pyi").write_text(text)
        return 0
    differences = [line for module, text in stubs.items() for line in difference(module, text)]
    sys.stderr.writelines(differences)
    if differences:
        print("the stubs are not those of the built modules: run 'make stubs'", file=sys.stderr)
    return 1 if differences else 0


def make_stubs() -> dict[str, str]:
    """The stub of each module as its text."""
    sys.path.insert(0, str(BUILT))
    names = [f"hyper_parallel.{module}" for module in MODULES]
    homes = {old: new for name in names for old, new in bring_home(importlib.import_module(name)).items()}
    with tempfile.TemporaryDirectory(prefix="hyper_parallel_stubs_") as folder:
        arguments = ["--exit-code", "--ignore-unresolved-names=^Number$", "--output-dir", folder]
        pybind11_stubgen.main([*arguments, *names])
        texts = {module: (Path(folder) / f"hyper_parallel/{module}.pyi").read_text() for module in MODULES}
    return {module: tidy(text, f"hyper_parallel.{module}", homes) for module, text in texts.items()}


def bring_home(module: ModuleType) -> dict[str, str]:
    """Has each class of `module` say that it is defined there, so that the stub defines it.

    The classes name the public Python module that hands them out, which in turn has them from the stub.

    Returns:
        The full name that each class has in signatures, and the one that it now has.
    """
    extensions = {f"hyper_parallel.{name}" for name in MODULES}
    classes = {name: value for name, value in vars(module).items() if isinstance(value, type)}
    homes = {}
    for name, value in classes.items():
        if value.__module__.startswith("hyper_parallel.") and value.__module__ not in extensions:
            homes[f"{value.__module__}.{name}"] = f"{module.__name__}.{name}"
            value.__module__ = module.__name__
    return homes


def tidy(text: str, module: str, homes: dict[str, str]) -> str:
    """The text with the names and the values that the generator gets wrong put right."""
    for old, new in homes.items():
        text = re.sub(rf"\b{re.escape(old)}\b", new.removeprefix(f"{module}."), text)
    foreign = "|".join({re.escape(old.rpartition(".")[0]) for old in homes})
    text = re.sub(rf"^import ({foreign})\n", "", text, flags=re.MULTILINE)
    # `self` needs no type, and pybind11 compares with anything.
    text = re.sub(r"\(self: [\w.]+", "(self", text)
    text = re.sub(r"def __(eq|ne)__\(self, \w+: [^)]+\)", r"def __\1__(self, other: object)", text)
    # A tuple of one.
    text = re.sub(r"\[tuple\] = \(('\w+')\)", r"[tuple] = (\1,)", text)
    # What torch calls its scalars.
    text = re.sub(r"\bNumber\b", "bool | int | float | complex", text)
    # What pybind11 takes for an int; a class of Python's that overrides the method is handed an int.
    text = text.replace("typing.SupportsInt | typing.SupportsIndex", "int")
    # A class whose objects can be compared and not hashed.
    text = re.sub(r"^(    __hash__: .* = None)$", r"\1  # type: ignore[assignment]", text, flags=re.MULTILINE)
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"


def difference(module: str, text: str) -> list[str]:
    """What `check` shows: the committed stub against the text of a fresh one."""
    file = PACKAGE / f"{module}.pyi"
    committed = file.read_text() if file.exists() else ""
    name = str(file.relative_to(ROOT))
    return list(
        difflib.unified_diff(
            committed.splitlines(keepends=True), text.splitlines(keepends=True), name, "the built module"
        )
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
