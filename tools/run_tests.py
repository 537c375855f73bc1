#!/usr/bin/env python3
"""Runs each named stage and adds up what its test runner reported.

    tools/run_tests.py STAGE...

A stage is a CMake preset (configured, built, tested by ctest) or one of

    python   the Python tests, on the modules that the preset 'dev' has built: name it after 'dev'
    wheel    the wheel, built from the source distribution and installed into a fresh environment

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
    report = ROOT / "build" / stage / "junit.xml"
    report.unlink(missing_ok=True)
    begin = time.monotonic()
    if stage == "python":
        status = test_package(report)
    elif stage == "wheel":
        status = test_wheel(report)
    else:
        status = run([BIN / "cmake", "--workflow", "--preset", stage])
    outcome = Outcome(stage, seconds=time.monotonic() - begin)
    if report.exists():
        read_report(report, outcome)
    if status != 0 and not outcome.failed:
        outcome.failed.append("the stage itself: no test of it failed")
    return outcome


def test_package(report: Path) -> int:
    """Runs tests/python on the build of the preset 'dev'."""
    variables = {"PYTHONPATH": str(ROOT / "build" / "dev" / "python"), "OMP_NUM_THREADS": "1"}
    return run([BIN / "python", *pytest_arguments(report)], variables=variables, limit=PYTHON_LIMIT)


def test_wheel(report: Path) -> int:
    """Builds the wheel as the preset 'dev' builds the tree, installs it where the tree is out of sight, and tests it.

    The environment sees the packages of .venv, torch among them, behind its own.
    """
    folder = report.parent
    wheels, environment, elsewhere = folder / "dist", folder / "venv", folder / "elsewhere"
    shutil.rmtree(wheels, ignore_errors=True)
    elsewhere.mkdir(parents=True, exist_ok=True)
    if status := run([BIN / "python", ROOT / "tools" / "make_wheel.py", "--as-preset-dev", wheels], limit=WHEEL_LIMIT):
        return status
    if status := run([BIN / "python", "-m", "venv", "--clear", "--without-pip", environment], limit=WHEEL_LIMIT):
        return status
    packages = Path(sysconfig.get_path("purelib"))
    (environment / packages.relative_to(sys.prefix) / "packages_behind.pth").write_text(f"{packages}\n")
    python = environment / "bin" / "python"
    install: list[str | Path] = [BIN / "python", "-m", "pip", "--python", python, "install", "--quiet"]
    if status := run([*install, "--no-index", "--no-deps", *wheels.glob("*.whl")], limit=WHEEL_LIMIT):
        return status
    tests = [python, *pytest_arguments(report), ROOT / "tests" / "wheel"]
    return run(tests, folder=elsewhere, variables={"HP_WHEEL_FOLDER": str(wheels)}, limit=PYTHON_LIMIT)


def pytest_arguments(report: Path) -> list[str | Path]:
    return ["-m", "pytest", f"--junit-xml={report}"]


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
