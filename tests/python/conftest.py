"""Fixtures of all tests of the Python package, and the seed of its property tests."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

pytest.register_assert_rewrite("support.checks", "support.torch_checkpoints")

from support.drawing import SEED  # noqa: E402
from support.pool import RankPools  # noqa: E402


def pytest_report_header() -> str:
    """Says how to replay the property tests of this run."""
    return f"HP_TEST_SEED={SEED}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Says it again where a test has failed: a quiet run shows no header."""
    if terminalreporter.stats.get("failed"):
        terminalreporter.write_line(f"replay the property tests with HP_TEST_SEED={SEED}")


@pytest.fixture(scope="session")
def rank_pools() -> Iterator[RankPools]:
    """The pools of ranks, each started when a test first needs it."""
    pools = RankPools()
    yield pools
    pools.stop()
