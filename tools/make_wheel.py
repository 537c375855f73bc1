#!/usr/bin/env python3
"""Builds the source distribution and, from nothing but it, the wheel.

    tools/make_wheel.py [--as-preset-dev] FOLDER

Both go into FOLDER. The wheel is built with optimisation as pyproject.toml says; --as-preset-dev takes the flags of the
preset 'dev' instead and puts the build where that preset has it inside the unpacked sources, so that the compiler cache
holds every object already. Runs in the environment that has requirements.txt and requirements-test.txt.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from scikit_build_core import build

ROOT = Path(__file__).resolve().parent.parent
SHARED_SETTINGS = ("CMAKE_CXX_", "HYPER_PARALLEL_WARNINGS_AS_ERRORS")
"""What decides a compiler's command line beside the build type."""


def main() -> int:
    parser = argparse.ArgumentParser(description="Builds the source distribution and the wheel from it.")
    parser.add_argument("--as-preset-dev", action="store_true", help="with the flags of the CMake preset 'dev'")
    parser.add_argument("folder", type=Path, help="where both go")
    arguments = parser.parse_args()
    folder: Path = arguments.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)

    os.chdir(ROOT)
    sources = folder / build.build_sdist(str(folder))
    print(f"built {sources.name}", flush=True)
    with tempfile.TemporaryDirectory(prefix="hyper_parallel_wheel_") as scratch:
        tree = unpack(sources, Path(scratch) / "sources")
        options = preset_options(tree) if arguments.as_preset_dev else []
        wheel = build_wheel(tree, Path(scratch) / "wheel", options)
        shutil.move(wheel, folder / wheel.name)
        print(f"built {wheel.name}")
    return 0


def unpack(sources: Path, folder: Path) -> Path:
    """Unpacks the source distribution and returns its one folder."""
    with tarfile.open(sources) as archive:
        archive.extractall(folder)
    (tree,) = folder.iterdir()
    return tree


def preset_options(tree: Path) -> list[str]:
    """The settings under which `tree` compiles what the preset 'dev' compiles.

    The compiler cache compares paths relative to the tree, so .venv has to be inside it as well.
    """
    presets = json.loads((tree / "CMakePresets.json").read_text())["configurePresets"]
    variables = {preset["name"]: preset.get("cacheVariables", {}) for preset in presets}
    settings = variables["base"] | variables["dev"]
    (tree / ".venv").symlink_to(sys.prefix)
    return [
        "build-dir=build/dev",
        f"cmake.build-type={settings['CMAKE_BUILD_TYPE']}",
        f"cmake.define.HYPER_PARALLEL_PYTHON={tree}/.venv/bin/python",
        *(f"cmake.define.{name}={value}" for name, value in settings.items() if name.startswith(SHARED_SETTINGS)),
    ]


def build_wheel(tree: Path, folder: Path, options: list[str]) -> Path:
    """Builds the wheel of `tree` into an empty folder, with the tools of this environment."""
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-build-isolation", "--no-deps", "--no-index"]
    command += [f"--config-settings={option}" for option in options]
    subprocess.run([*command, f"--wheel-dir={folder}", tree], check=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


if __name__ == "__main__":
    sys.exit(main())
