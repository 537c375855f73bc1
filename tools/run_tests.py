#!/usr/bin/env python3
"""Configures, builds and tests each named CMake preset, and adds up what ctest reported.

    tools/run_tests.py PRESET...

A preset that fails does not keep the next one from running. The last line is the total, "N passed, M failed"; the exit
status is 0 only if something passed and nothing failed. A preset that breaks before its tests counts as one failure.
"""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent


@dataclass
class Outcome:
    """What one preset's workflow came to."""

    preset: str
    passed: int = 0
    failed: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def line(self) -> str:
        return f"{self.preset:<12} {self.passed:>5} passed {len(self.failed):>4} failed {self.seconds:>7.0f} s"


def run_preset(preset: str) -> Outcome:
    """Runs the preset's workflow and reads the report that its ctest leaves."""
    print(f"\n=== {preset} ===", flush=True)
    report = ROOT / "build" / preset / "junit.xml"
    report.unlink(missing_ok=True)
    begin = time.monotonic()
    command = [Path(sys.executable).parent / "cmake", "--workflow", "--preset", preset]
    status = subprocess.run(command, cwd=ROOT, check=False).returncode
    outcome = Outcome(preset, seconds=time.monotonic() - begin)
    if report.exists():
        read_report(report, outcome)
    if status != 0 and not outcome.failed:
        outcome.failed.append("configure, build or ctest itself")
    return outcome


def read_report(report: Path, outcome: Outcome) -> None:
    """Counts each test by its status; one that could not run has not passed."""
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        if case.get("status") == "run":
            outcome.passed += 1
        else:
            outcome.failed.append(str(case.get("name")))


def main(presets: list[str]) -> int:
    if not presets:
        print(__doc__, file=sys.stderr)
        return 2
    outcomes = [run_preset(preset) for preset in presets]
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
