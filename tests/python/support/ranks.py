"""`@ranks(2, 4)`: a test whose body runs on every rank of a pool.

    @ranks(2, 4)
    @pytest.mark.parametrize("dim", [0, 1])
    def test_something(rank: Rank, dim: int) -> None:
        ...

The body's parameters but the first are pytest's, as of any test: marks and fixtures of this process, sent to the ranks
pickled. The test fails if any rank raises.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from support.pool import RankPools

Test = Callable[..., Any]


def ranks(*sizes: int, check: bool = False, group_timeout: timedelta | None = None) -> Callable[[Test], Test]:
    """Runs the decorated body on pools of these sizes, as one test each.

    Args:
        sizes: Of the pools.
        check: Sets HYPER_PARALLEL_CHECK=1.
        group_timeout: A process group of the test's own with that timeout. For bodies after which ranks may still wait
            for one another.
    """

    def decorate(body: Test) -> Test:
        def test(*args: Any, rank_pools: RankPools, world_size: int, **kwargs: Any) -> None:
            rank_pools[world_size].run(test, *args, check=check, group_timeout=group_timeout, **kwargs)

        test.__module__, test.__name__, test.__qualname__ = body.__module__, body.__name__, body.__qualname__
        test.__doc__ = body.__doc__
        test.__dict__.update(body.__dict__)
        own = list(inspect.signature(body).parameters.values())[1:]
        pool = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in ("rank_pools", "world_size")]
        # An attribute that a worker looks up and a signature that pytest does: both dynamic by nature.
        setattr(test, "__signature__", inspect.Signature([*own, *pool]))  # noqa: B010
        setattr(test, "body_on_ranks", body)  # noqa: B010
        of_every_size: Test = pytest.mark.parametrize("world_size", sizes, ids=[f"{size}ranks" for size in sizes])(test)
        return of_every_size

    return decorate
