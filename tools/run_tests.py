#!/usr/bin/env python3
"""Runs each named stage and adds up what its test runner reported.

    tools/run_tests.py STAGE...

A stage is a CMake preset (configured, built, tested by ctest) or one of

    python      the Python tests, on the modules that the preset 'dev' has built: name it after 'dev'
    mindspore   those of them that MindSpore runs, in .venv-mindspore and on a module that is built without torch
    wheel       the wheel, built from the source distribution and installed into fresh environments: with torch, with
                MindSpore alone

A stage that fails does not keep the next one from running. The last line is the total, "N passed, M failed"; the exit
status is 0 only if something passed and nothing failed. A stage that breaks before its tests counts as one failure, and
so does a test that was skipped.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
MINDSPORE_BIN = ROOT / ".venv-mindspore" / "bin"
PYTHON_LIMIT = 1800.0
"""Seconds that all Python tests may take; each has a limit of its own."""
WHEEL_LIMIT = 900.0
"""Seconds that one step of the stage 'wheel' may take: without a warm compiler cache it compiles the library."""


@dataclass
class Outcome:
    """What one stage came to."""

    stage: str
    passed: int = 0
    failed: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def line(self) -> str:
        return f"{self.stage:<12} {self.passed:>5} passed {len(self.failed):>4} failed {self.seconds:>7.0f} s"


def run_stage(stage: str) -> Outcome:
    """Runs the stage and reads the report that its test runner leaves."""
    print(f"\n=== {stage} ===", flush=True)
    folder = ROOT / "build" / stage
    for old in folder.glob("junit*.xml"):
        old.unlink()
    begin = time.monotonic()
    match stage:
        case "python":
            status = test_package(folder)
        case "mindspore":
            status = test_mindspore(folder)
        case "wheel":
            status = test_wheel(folder)
        case preset:
            status = run([BIN / "cmake", "--workflow", "--preset", preset])
    outcome = Outcome(stage, seconds=time.monotonic() - begin)
    for report in sorted(folder.glob("junit*.xml")):
        read_report(report, outcome)
    if status != 0 and not outcome.failed:
        outcome.failed.append("the stage itself: no test of it failed")
    return outcome


def test_package(folder: Path) -> int:
    """Runs tests/python on the build of the preset 'dev'."""
    tests = pytest_command(BIN / "python", folder / "junit.xml")
    return run(tests, variables=variables_of("dev"), limit=PYTHON_LIMIT)


def test_mindspore(folder: Path) -> int:
    """Runs tests/python on MindSpore, with the module of the preset 'mindspore'."""
    cmake = MINDSPORE_BIN / "cmake"
    return run_all(
        [cmake, "--preset", "mindspore"],
        [cmake, "--build", "--preset", "mindspore"],
        pytest_command(MINDSPORE_BIN / "python", folder / "junit.xml"),
        variables=variables_of("mindspore"),
        limit=PYTHON_LIMIT,
    )


def test_wheel(folder: Path) -> int:
    """Builds the wheel as the preset 'dev' builds the tree, and tests it where the tree is out of sight."""
    wheels = folder / "dist"
    shutil.rmtree(wheels, ignore_errors=True)
    if status := run([BIN / "python", ROOT / "tools" / "make_wheel.py", "--as-preset-dev", wheels], limit=WHEEL_LIMIT):
        return status
    statuses = [test_installed(folder, BIN, "torch"), test_installed(folder, MINDSPORE_BIN, "mindspore")]
    return max(statuses)


def test_installed(folder: Path, packages_of: Path, platform: str) -> int:
    """Installs the wheel into an environment of its own and runs tests/wheel/test_on_<platform>.py there.

    The environment sees the packages of another one, the framework among them, behind its own.
    """
    environment, elsewhere = folder / f"venv-{platform}", folder / "elsewhere"
    elsewhere.mkdir(parents=True, exist_ok=True)
    if status := run([BIN / "python", "-m", "venv", "--clear", "--without-pip", environment], limit=WHEEL_LIMIT):
        return status
    packages = Path(sysconfig.get_path("purelib")).relative_to(sys.prefix)
    (environment / packages / "packages_behind.pth").write_text(f"{packages_of.parent / packages}\n")
    python = environment / "bin" / "python"
    wheels = folder / "dist"
    install: list[str | Path] = [BIN / "python", "-m", "pip", "--python", python, "install", "--quiet"]
    install += ["--no-index", "--no-deps", *wheels.glob("*.whl")]
    tests = pytest_command(
        python, folder / f"junit-{platform}.xml", ROOT / "tests" / "wheel" / f"test_on_{platform}.py"
    )
    return run_all(
        install,
        tests,
        folder=elsewhere,
        variables={"HP_WHEEL_FOLDER": str(wheels)},
        limit=WHEEL_LIMIT,
    )


def pytest_command(python: Path, report: Path, *tests: Path) -> list[str | Path]:
    return [python, "-m", "pytest", f"--junit-xml={report}", *tests]


def variables_of(preset: str) -> dict[str, str]:
    """Of a process that runs the package as the preset has built it."""
    return {"PYTHONPATH": str(ROOT / "build" / preset / "python"), "OMP_NUM_THREADS": "1"}


def run_all(*commands: Sequence[str | Path], variables: Mapping[str, str], limit: float, folder: Path = ROOT) -> int:
    """Runs one command after the other until one fails, and returns the status of the last that ran."""
    status = 0
    for command in commands:
        status = status or run(command, folder=folder, variables=variables, limit=limit)
    return status


def run(
    command: Sequence[str | Path],
    *,
    folder: Path = ROOT,
    variables: Mapping[str, str] | None = None,
    limit: float | None = None,
) -> int:
    """Runs a command, with `variables` added to the environment, and returns its status.

    After `limit` seconds it ends, and with it all that it has started.
    """
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment["PATH"] = f"{BIN}{os.pathsep}{environment.get('PATH', os.defpath)}"
    environment.update(variables or {})
    with subprocess.Popen(command, cwd=folder, env=environment, start_new_session=True) as process:
        try:
            return process.wait(limit)
        except subprocess.TimeoutExpired:
            print(f"ended after {limit:.0f} s: {' '.join(map(str, command))}", flush=True)
            return 124
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def read_report(report: Path, outcome: Outcome) -> None:
    """Counts each test of a JUnit report, ctest's or pytest's; one that could not run has not passed."""
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        ran = case.get("status", "run") == "run"
        if ran and all(case.find(trouble) is None for trouble in ("failure", "error", "skipped")):
            outcome.passed += 1
        else:
            names = dict.fromkeys((case.get("classname"), case.get("name")))
            outcome.failed.append("::".join(str(name) for name in names))


def main(stages: list[str]) -> int:
    if not stages:
        print(__doc__, file=sys.stderr)
        return 2
    outcomes = [run_stage(stage) for stage in stages]
    passed = sum(outcome.passed for outcome in outcomes)
    failed = sum(len(outcome.failed) for outcome in outcomes)

    print("\n=== summary ===")
    for outcome in outcomes:
        print(outcome.line())
        for name in outcome.failed:
            print(f"  failed: {name}")
    print(f"{passed} passed, {failed} failed", flush=True)
    return 0 if passed > 0 and failed == 0 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
