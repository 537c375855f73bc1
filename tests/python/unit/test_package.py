"""What the package promises as a whole: its version, names, types, stubs and what importing it brings along."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch

import hyper_parallel

ROOT = Path(__file__).parents[3]
SOURCES = ROOT / "python" / "hyper_parallel"
PREFIX = "hyper_parallel."
MODULES = ["hyper_parallel", *(found.name for found in pkgutil.walk_packages(hyper_parallel.__path__, PREFIX))]
# What is MindSpore's own is tested where that is.
MODULES = [name for name in MODULES if not name.startswith("hyper_parallel.mindspore")]
PUBLIC_MODULES = [name for name in MODULES if not any(part.startswith("_") for part in name.split("."))]


def in_fresh_python(program: str) -> str:
    """What the program prints in a process of its own, which has imported nothing yet."""
    command = [sys.executable, "-c", program]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.strip()


def test_version_is_that_of_the_cmake_project() -> None:
    project = re.search(r"^project\(\n  hyper_parallel\n  VERSION (\S+)$", (ROOT / "CMakeLists.txt").read_text(), re.M)
    assert project is not None
    assert hyper_parallel.__version__ == project[1]


def test_distribution_takes_its_version_from_the_cmake_project() -> None:
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert pyproject["project"]["dynamic"] == ["version"]
    (version,) = pyproject["tool"]["dynamic-metadata"]
    found = re.search(version["regex"], (ROOT / version["input"]).read_text(), re.M)
    assert found is not None
    assert found["value"] == hyper_parallel.__version__


def test_pinned_releases_agree_wherever_they_stand() -> None:
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = [*pyproject["build-system"]["requires"], *pyproject["project"]["dependencies"]]
    for extra in ("torch", "mindspore", "plot"):
        wanted += [needed for needed in pyproject["project"]["optional-dependencies"][extra] if "==" in needed]
    installed = [line for file in ROOT.glob("requirements*.txt") for line in file.read_text().splitlines()]
    assert [requirement for requirement in wanted if requirement not in installed] == []


@pytest.mark.parametrize("name", PUBLIC_MODULES)
def test_every_name_of_all_is_there_once(name: str) -> None:
    module = importlib.import_module(name)
    names = getattr(module, "__all__", [])
    assert sorted(set(names)) == sorted(names)
    assert [missing for missing in names if not hasattr(module, missing)] == []


@pytest.mark.parametrize("name", PUBLIC_MODULES)
def test_all_is_complete(name: str) -> None:
    """A public class or function that a module defines is in its `__all__`."""
    module = importlib.import_module(name)
    own = {
        attribute
        for attribute, value in vars(module).items()
        if not attribute.startswith("_")
        and (inspect.isclass(value) or inspect.isroutine(value))
        and value.__module__ == name
    }
    assert own - set(getattr(module, "__all__", [])) == set()


@pytest.mark.parametrize("name", hyper_parallel.__all__)
def test_public_name_says_what_it_is(name: str) -> None:
    value = getattr(hyper_parallel, name)
    assert inspect.getdoc(value), f"{name} has no docstring"
    own = vars(value) if inspect.isclass(value) else {}
    # What torch.Tensor has as well means the same here.
    public = [name for name in own if not name.startswith("_") and not hasattr(torch.Tensor, name)]
    assert [name for name in public if not inspect.getdoc(own[name])] == []


def test_import_brings_no_torch_along() -> None:
    program = "import sys, hyper_parallel; hyper_parallel.RaggedShard((0,), (1, 2)); print('torch' in sys.modules)"
    assert in_fresh_python(program) == "False"


def test_torch_comes_with_the_first_name_that_needs_it() -> None:
    program = "import sys, hyper_parallel; hyper_parallel.DTensor; print('torch' in sys.modules)"
    assert in_fresh_python(program) == "True"


@pytest.mark.parametrize("name", PUBLIC_MODULES)
def test_every_public_module_can_be_imported_first(name: str) -> None:
    assert in_fresh_python(f"import sys, {name}; print(sys.modules[{name!r}].__name__)") == name


def test_core_is_free_of_torch() -> None:
    """Neither the module nor the library under it is linked against torch."""
    package = Path(hyper_parallel.__file__).parent
    (module,) = package.glob("_core.*.so")
    needed = subprocess.run(["ldd", module], capture_output=True, text=True, check=True, timeout=30).stdout
    assert "libhyper_parallel.so" in needed
    assert "not found" not in needed
    assert re.search(r"libtorch|libc10", needed) is None


def test_package_is_marked_as_typed() -> None:
    assert (Path(hyper_parallel.__file__).parent / "py.typed").is_file()
    assert (SOURCES / "py.typed").read_bytes() == b""


def test_stubs_are_those_of_the_built_modules() -> None:
    command = [sys.executable, ROOT / "tools" / "make_stubs.py", "check"]
    made = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert made.returncode == 0, made.stderr


@pytest.mark.timeout(240)
def test_package_is_clean_under_strict_mypy() -> None:
    command = [sys.executable, "-m", "mypy", "python"]
    checked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=200)
    assert checked.returncode == 0, checked.stdout
