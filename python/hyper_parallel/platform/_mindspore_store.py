"""A key-value store that the ranks of a MindSpore job share, beside its collectives.

What MindSpore sends between processes carries no tag, and a receive without a sender ends after 30 s that nobody can
change. What must not meet the program's own messages, or must notice that a rank stays away, goes over this store: the
comparison of ``HYPER_PARALLEL_CHECK`` and the messages of a checkpoint. It works in any thread. Rank 0 holds it, so
rank 0 must be the last to leave: at the end of its program it waits until all messages are received.
"""

from __future__ import annotations

import atexit
import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import NamedTuple, Protocol, TypeVar

from hyper_parallel.errors import FailedPreconditionError

__all__ = ["MessageGroup", "Patience", "RawStore", "Store", "first_line"]

# How often a rank looks for a key that is not there yet: often at first, then as seldom as a person would notice.
_FIRST_PAUSE_S = 0.0005
_LONGEST_PAUSE_S = 0.05

# How often it asks whether there is hope yet, and how long what a rank has sent before its end may be under way.
_ASK_S = 1.0
_ON_THE_WAY_S = 5.0

# How many messages were sent and not received yet, and how long rank 0 waits for that at its end: a rank that has died
# receives no more.
_UNDER_WAY = "hyper_parallel/messages/under_way"
_FAREWELL = timedelta(seconds=10)

_Result = TypeVar("_Result")


class RawStore(Protocol):
    """What ``mindspore.mint.distributed.TCPStore`` offers."""

    def add(self, key: str, amount: int, /) -> int:
        """Adds to a counter, 0 at first, and tells its new value."""

    def set(self, key: str, value: bytes, /) -> None:
        """Writes a value."""

    def get(self, key: str, /) -> bytes:
        """Reads a value; waits where there is none."""

    def delete_key(self, key: str, /) -> bool:
        """Removes a value."""


class Store:
    """Values under keys. Unlike MindSpore's, it can tell at once that a key is missing, and serves several threads.

    Args:
        raw: Where the values are.
        timeout: How long a rank waits for another.

    Attributes:
        raw: MindSpore's own.
        timeout: How long a rank waits for another; may be changed.
    """

    def __init__(self, raw: RawStore, timeout: timedelta) -> None:
        self.raw = raw
        self._lock = threading.Lock()
        self.timeout = timeout

    def add(self, key: str, amount: int) -> int:
        """Adds to a counter, 0 at first, and tells its new value.

        Raises:
            FailedPreconditionError: The store does not answer: rank 0 has left.
        """
        return self._call(lambda: self.raw.add(key, amount))

    def put(self, key: str, value: bytes) -> None:
        """Writes a value under a key that has none.

        Raises:
            FailedPreconditionError: As :meth:`add`.
        """
        self.write(key, value)
        self.add(_mark(key), 1)

    def write(self, key: str, value: bytes) -> None:
        """Writes a value for :meth:`read` alone, over another too: no other rank can tell that it is there.

        MindSpore's store keeps a few hundred bytes for good of each request that it answers; this is none of them.

        Raises:
            FailedPreconditionError: As :meth:`add`, though not always.
        """
        # One byte in front: a value may be empty, and the store takes none that is.
        self._call(lambda: self.raw.set(key, b"=" + value))

    def read(self, key: str) -> bytes:
        """The value that was put under a key; waits where there is none.

        Raises:
            FailedPreconditionError: As :meth:`add`.
        """
        return bytes(self._call(lambda: self.raw.get(key)))[1:]

    def remove(self, key: str) -> None:
        """Takes a value away again.

        Raises:
            FailedPreconditionError: As :meth:`add`.
        """
        self._call(lambda: self.raw.delete_key(key))
        self._call(lambda: self.raw.delete_key(_mark(key)))

    def wait(self, keys: Sequence[str], timeout: timedelta, is_hopeless: Callable[[], bool] | None = None) -> list[int]:
        """Waits until every key has a value or the time is over; tells which keys, by position, have none then.

        Args:
            keys: The keys.
            timeout: How long.
            is_hopeless: Asked now and then; once it says yes, values that are on their way still have some seconds.

        Raises:
            FailedPreconditionError: As :meth:`add`.
        """
        # The store's own get would wait; a counter is there from the first question on.
        return self.wait_for_counts([_mark(key) for key in keys], 1, timeout, is_hopeless)

    def wait_for_counts(
        self, keys: Sequence[str], least: int, timeout: timedelta, is_hopeless: Callable[[], bool] | None = None
    ) -> list[int]:
        """As :meth:`wait`, until each key's counter is at least so high."""
        now = time.monotonic()
        end, ask = now + timeout.total_seconds(), now + _ASK_S
        missing = list(range(len(keys)))
        pause = _FIRST_PAUSE_S
        while missing := [index for index in missing if self.add(keys[index], 0) < least]:
            now = time.monotonic()
            if now > end:
                return missing
            if is_hopeless is not None and now > ask:
                ask = now + _ASK_S
                if is_hopeless():
                    end, is_hopeless = min(end, now + _ON_THE_WAY_S), None
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)
        return []

    def hold(self) -> None:
        """Has this process, which is rank 0, stay at its end until all messages are received."""
        _held.append(self)

    def wait_for_receivers(self, timeout: timedelta) -> None:
        """Waits until no message is under way or the time is over.

        Raises:
            FailedPreconditionError: As :meth:`add`.
        """
        end = time.monotonic() + timeout.total_seconds()
        while self.add(_UNDER_WAY, 0) > 0 and time.monotonic() < end:
            time.sleep(_LONGEST_PAUSE_S)

    def _call(self, call: Callable[[], _Result]) -> _Result:
        try:
            with self._lock:
                return call()
        except RuntimeError as error:
            raise FailedPreconditionError(f"the store, which rank 0 holds, failed: {first_line(error)}") from error


class Patience(NamedTuple):
    """How long a rank waits for another."""

    timeout: timedelta
    """In any case no longer."""
    find_ended: Callable[[Sequence[int]], int | None]
    """Finds one among ranks of the job whose process has ended: it sends no more."""


class MessageGroup:
    """Some ranks that send each other bytes over the store, in order, in any thread.

    Args:
        store: The store.
        name: Tells this group's messages from others'; the same on all its ranks.
        ranks: The ranks of the job that are in it.
        rank: This process's position in ``ranks``.
        patience: How long a rank waits for a message.
    """

    def __init__(self, store: Store, name: str, ranks: Sequence[int], rank: int, patience: Patience) -> None:
        self._store = store
        self._prefix = f"hyper_parallel/messages/{name}"
        self._sent = [0] * len(ranks)
        self._received = [0] * len(ranks)
        self._rank = rank
        self._timeout, self._find_ended = patience
        self.ranks = tuple(ranks)

    def rank(self) -> int:
        """This process's position in the group."""
        return self._rank

    def size(self) -> int:
        """How many ranks the group has."""
        return len(self.ranks)

    def send(self, to: int, message: bytes) -> None:
        """Sends to another position; does not wait for the receiver.

        Raises:
            FailedPreconditionError: The store does not answer.
        """
        self._store.add(_UNDER_WAY, 1)
        self._put(to, message)

    def receive(self, source: int) -> bytes:
        """The next message from another position.

        Raises:
            FailedPreconditionError: None came in time, that rank's process has ended, or the store does not answer.
        """
        return self._receive(source, (self.ranks[source],))

    def _receive(self, source: int, needed: Sequence[int]) -> bytes:
        """The same; raises when any of the ranks that it needs has ended."""
        key = f"{self._prefix}/{source}>{self._rank}/{self._received[source]}"
        if self._store.wait([key], self._timeout, lambda: self._find_ended(needed) is not None):
            ended = self._find_ended(needed)
            limit = f" within {self._timeout.total_seconds():g} s"
            why = limit if ended is None else f": the process of rank {ended} has ended"
            raise FailedPreconditionError(
                f"rank {self.ranks[self._rank]} got no message from rank {self.ranks[source]}{why}"
            )
        self._received[source] += 1
        message = self._store.read(key)
        self._store.remove(key)
        self._store.add(_UNDER_WAY, -1)
        return message

    def gather(self, message: bytes) -> list[bytes]:
        """The messages of all, by position, on position 0; nothing elsewhere.

        Raises:
            FailedPreconditionError: As :meth:`receive`.
        """
        if self._rank != 0:
            self.send(0, message)
            return []
        return [message, *(self.receive(source) for source in range(1, self.size()))]

    def scatter(self, messages: Sequence[bytes]) -> bytes:
        """Message i goes to position i; only the argument of position 0 counts.

        Raises:
            FailedPreconditionError: As :meth:`receive`.
        """
        if self._rank != 0:
            # Position 0 sends nothing, and need not end, where another rank has ended before it has sent its part.
            return self._receive(0, self.ranks)
        # All at once: who has received the first one may be rank 0 and leave.
        self._store.add(_UNDER_WAY, self.size() - 1)
        for to in range(1, self.size()):
            self._put(to, messages[to])
        return messages[0]

    def _put(self, to: int, message: bytes) -> None:
        self._store.put(f"{self._prefix}/{self._rank}>{to}/{self._sent[to]}", message)
        self._sent[to] += 1


# The stores that are in this process.
_held: list[Store] = []


@atexit.register
def _wait_for_receivers() -> None:
    for store in _held:
        with contextlib.suppress(FailedPreconditionError):
            store.wait_for_receivers(_FAREWELL)


def _mark(key: str) -> str:
    """The counter that says whether a key has a value."""
    return f"{key}#"


def first_line(error: BaseException) -> str:
    """MindSpore's texts go on with a trace of its C++."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
