"""Fixtures of all tests of the Python package, and the seed of its property tests."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

pytest.register_assert_rewrite(
    "support.checks", "support.common", "support.platform_checks", "support.torch_checkpoints"
)

from support.drawing import SEED  # noqa: E402
from support.frameworks import framework  # noqa: E402
from support.pool import RankPools  # noqa: E402

HERE = Path(__file__).parent
WITHOUT_TORCH = [
    HERE / "platforms",
    *(HERE / "unit" / f"test_{values}.py" for values in ("errors", "geometry", "layout", "placement")),
]
"""What MindSpore runs: the tests of both platforms, and those of values that know no framework."""


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leaves out what is for the other platform."""
    if framework.NAME == "torch":
        return True if collection_path.name.endswith("_on_mindspore.py") else None
    wanted = any(collection_path.is_relative_to(path) or path.is_relative_to(collection_path) for path in WITHOUT_TORCH)
    return None if wanted else True


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
