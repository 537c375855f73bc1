"""What the test process and a rank's process say to each other.

The test process owns one end of a connection to each rank's. An empty `Answer` says that the rank is ready. Then a
`Call` goes out to every rank and exactly one `Answer` comes back from each, call after call, both pickled.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

GROUP_TIMEOUT = timedelta(seconds=10)
"""How long one operation of a process group may take in a test."""


@dataclass(frozen=True)
class Group:
    """A process group: ranks that hold an equal `Group` meet in the same rendezvous file."""

    rendezvous: str
    timeout: timedelta = GROUP_TIMEOUT


@dataclass(frozen=True)
class Call:
    """One function to be run on every rank, as `function(rank, *args, **kwargs)`."""

    module: str
    qualname: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    group: Group
    seed: int
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Failure:
    """An exception of one rank, as text: exceptions need not survive pickling."""

    kind: str
    text: str
    traceback: str


@dataclass(frozen=True)
class Answer:
    """What a rank's function returned, or how it failed."""

    value: Any = None
    failure: Failure | None = None
