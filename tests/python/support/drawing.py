"""Property tests: what is drawn, and from which seed.

A run draws one seed, prints it, and takes it back from HP_TEST_SEED; HP_TEST_TIMES draws so many times as often. Values
are drawn in the test process and sent to the ranks, so that all of them see the same.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, given, seed, settings
from hypothesis.strategies import SearchStrategy

SEED = int(os.environ.get("HP_TEST_SEED") or random.SystemRandom().randrange(2**32))
TIMES = int(os.environ.get("HP_TEST_TIMES") or 1)

Test = Callable[..., Any]


def drawn(examples: int, **strategies: SearchStrategy[Any]) -> Callable[[Test], Test]:
    """Runs a test on `examples` draws of its arguments, or `TIMES` as many, from the run's seed."""

    def decorate(test: Test) -> Test:
        limits = settings(
            max_examples=examples * TIMES,
            deadline=None,
            database=None,
            print_blob=True,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
        )
        decorated: Test = seed(SEED)(limits(given(**strategies)(test)))
        return decorated

    return decorate
