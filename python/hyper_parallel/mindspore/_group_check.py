"""HYPER_PARALLEL_CHECK=1: before a collective, its ranks compare what each is about to do.

Without the check a fault that only one rank can see (its split lists, its dtype) raises on that rank alone. MindSpore's
messages have no tag, so its peers wait 30 s, or take the next message for the missing one. With the check every rank
puts a short text into the job's store, reads the texts of all others, and all ranks raise the same error at once.

Each rank counts its rounds in the store, under the ranks that compare. Its text of a round is written over that of
three rounds before, which everybody must have read. So nothing has to be removed, and few requests are made:
MindSpore's store forgets none of those that it has answered.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from hyper_parallel import _core, platform
from hyper_parallel.errors import FailedPreconditionError, HyperParallelError, InvalidArgumentError
from hyper_parallel.platform import _mindspore

__all__ = ["Participants", "RankReport", "check_enabled", "check_mesh_together", "validate_together"]

_VARIABLE = "HYPER_PARALLEL_CHECK"

# Texts of so many rounds are there at once.
_KEPT = 3

# How many rounds the ranks under a prefix have begun, as this one counts.
_rounds: Counter[str] = Counter()


class Participants(NamedTuple):
    """Who compares."""

    name: str
    """The same on all of them; tells these ranks' rounds from others'."""
    ranks: tuple[int, ...]
    """What messages call them, in order."""
    place: int
    """This rank's position among them."""


class RankReport(NamedTuple):
    """What one rank tells the others before a collective."""

    digest: str
    """Must be equal on all ranks."""
    detail: str = ""
    """Handed to all ranks uncompared, for rules between ranks."""


class _Statement(NamedTuple):
    """What one rank published."""

    operation: str
    digest: str
    detail: str
    fault: str | None


def check_enabled() -> bool:
    """Whether ``HYPER_PARALLEL_CHECK`` is "1", read at each call. Unset, "" and "0" mean no.

    Raises:
        InvalidArgumentError: It is anything else.
    """
    text = os.environ.get(_VARIABLE, "")
    if text not in {"", "0", "1"}:
        raise InvalidArgumentError(f"{_VARIABLE} is '{text}' but must be 0 or 1")
    return text == "1"


def check_mesh_together(
    mesh: _core.DeviceMesh, operation: str, validate: Callable[[], object], describe: Callable[[], str]
) -> None:
    """Runs ``validate``, this rank's own checks; with the check on the ranks of the mesh also compare ``describe()``.

    A rank outside the mesh only validates. Raises what ``validate`` raises, else as ``validate_together``.
    """
    rank = platform.get_rank()
    if not check_enabled() or not mesh.contains(rank):
        validate()
        return
    ranks = mesh.rank_list
    participants = Participants(f"mesh/{','.join(map(str, ranks))}", ranks, ranks.index(rank))
    validate_together(participants, operation, validate, lambda: RankReport(describe()))


def validate_together(
    participants: Participants,
    operation: str,
    validate: Callable[[], object],
    report: Callable[[], RankReport],
) -> list[str]:
    """Validates this rank's arguments of a collective.

    If the check is off that is all, and the result is empty. If it is on, a fault of any rank raises on all of them,
    the faulty rank raising its own error, and what ``report`` says (asked after ``validate`` passed) is compared.

    Args:
        participants: Who must call.
        operation: What they are about to do.
        validate: Raises if this rank's arguments are wrong.
        report: What this rank tells the others.

    Returns:
        Each participant's ``detail``, in order; nothing with the check off.

    Raises:
        FailedPreconditionError: With the same text on all ranks, where they disagree (naming both sides) or another
            rank has found a fault (naming the rank); and where a rank did not come in time (naming it).
    """
    if not check_enabled():
        validate()
        return []
    try:
        validate()
    except HyperParallelError as error:
        # A peer that is missing too must not hide this rank's own error.
        with contextlib.suppress(HyperParallelError):
            _publish_and_read(participants, operation, RankReport(""), str(error))
        raise
    statements = _publish_and_read(participants, operation, report(), None)
    _check_no_fault(participants, operation, statements)
    _check_equal(participants, operation, "the operation", [statement.operation for statement in statements])
    _check_equal(participants, operation, "its arguments", [statement.digest for statement in statements])
    return [statement.detail for statement in statements]


def _publish_and_read(
    participants: Participants, operation: str, report: RankReport, fault: str | None
) -> list[_Statement]:
    store = _mindspore.store()
    prefix = f"hyper_parallel/check/{participants.name}"
    own = participants.ranks[participants.place]
    _rounds[prefix] += 1
    turn = _rounds[prefix]
    statement = _Statement(operation, report.digest, report.detail, fault)
    store.write(f"{prefix}/{own}/{turn % _KEPT}", json.dumps([turn, *statement]).encode())
    store.add(f"{prefix}/{own}/rounds", 1)
    others = [rank for rank in participants.ranks if rank != own]
    absent = store.wait_for_counts([f"{prefix}/{rank}/rounds" for rank in others], turn, store.timeout)
    if absent:
        raise FailedPreconditionError(
            f"{operation}: rank {_joined(others, absent)} of {len(participants.ranks)} did not come within "
            f"{store.timeout.total_seconds() * 1000:.0f} ms"
        )
    found = {own: statement}
    for rank in others:
        spoken, *parts = json.loads(store.read(f"{prefix}/{rank}/{turn % _KEPT}"))
        if spoken != turn:
            raise FailedPreconditionError(
                f"{operation}: rank {rank} went on without rank {own} in comparison {turn}, which it did not wait for"
            )
        found[rank] = _Statement(*parts)
    return [found[rank] for rank in participants.ranks]


def _check_no_fault(participants: Participants, operation: str, statements: Sequence[_Statement]) -> None:
    faults = [
        f"rank {rank}: {statement.fault}"
        for rank, statement in zip(participants.ranks, statements, strict=True)
        if statement.fault is not None
    ]
    if faults:
        raise FailedPreconditionError(f"{operation}: refused on another rank: {'; '.join(faults)}")


def _check_equal(participants: Participants, operation: str, what: str, texts: Sequence[str]) -> None:
    """Raises the same text on every rank if the texts are not all equal: "rank 0, 2: <text>; rank 1: <text>"."""
    sides: dict[str, list[int]] = {}
    for index, text in enumerate(texts):
        sides.setdefault(text, []).append(index)
    if len(sides) > 1:
        parts = (f"rank {_joined(participants.ranks, indices)}: {text}" for text, indices in sides.items())
        raise FailedPreconditionError(f"{operation}: the ranks of the group disagree about {what}: {'; '.join(parts)}")


def _joined(ranks: Sequence[int], indices: Sequence[int]) -> str:
    return ", ".join(str(ranks[index]) for index in indices)
