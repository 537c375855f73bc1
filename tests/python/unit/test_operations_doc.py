"""docs/operations.md is what the tables print."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_operations_page_is_the_table() -> None:
    program = ROOT / "tools" / "make_operations_doc.py"
    printed = subprocess.run([sys.executable, program], capture_output=True, text=True, check=True, timeout=60).stdout
    assert (ROOT / "docs" / "operations.md").read_text(encoding="utf-8") == printed, f"run {program.name}"
