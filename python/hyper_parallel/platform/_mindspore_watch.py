"""Which ranks of a job have ended.

Each rank holds a connection to rank 0, which the operating system closes with the process, however that ends. A rank
has nothing to do to be known to run: one that computes, or writes for long, is never taken for one that has ended. Rank
0 tells the others over the store.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import secrets
import selectors
import socket
import threading
from collections.abc import Sequence
from datetime import timedelta

from hyper_parallel.errors import FailedPreconditionError
from hyper_parallel.platform._mindspore_store import Store

__all__ = ["Watch"]

# Where rank 0 listens, and who has ended: how many, and the rank of each in turn.
_PLACE = "hyper_parallel/watch/place"
_ENDED = "hyper_parallel/watch/ended"

# What a connection says first: a word that the store tells the job's ranks alone, and a rank.
_WORD_BYTES = 16
_RANK_DIGITS = 10
_GREETING = 2 * _WORD_BYTES + _RANK_DIGITS

# A host that is lost closes nothing: it is asked by the operating system whether it is there, from this many seconds of
# silence on, so often, and so many times in vain.
_SILENCE_S, _EVERY_S, _TIMES = 30, 10, 6


class Watch:
    """Knows which ranks have ended; every rank of the job makes one. Works in any thread.

    Args:
        store: The job's store.
        rank: This process's.
        address: Where rank 0 is reached.
        timeout: How long rank 0 may take to come.

    Raises:
        FailedPreconditionError: Rank 0 did not come in time or cannot be reached; the store does not answer.
    """

    def __init__(self, store: Store, rank: int, address: str, timeout: timedelta) -> None:
        self._store = store
        self._rank = rank
        self._lock = threading.Lock()
        self._ended: list[int] = []
        self._listener = _Listener(store, address) if rank == 0 else None
        self._to_rank_0 = _connected(store, rank, address, timeout) if rank else None

    def find_ended(self, ranks: Sequence[int]) -> int | None:
        """One of the ranks that has ended, None if none has.

        Raises:
            FailedPreconditionError: The store does not answer: rank 0 has ended.
        """
        if self._to_rank_0 is not None and 0 in ranks and _is_closed(self._to_rank_0):
            return 0
        count = self._store.add(_ENDED, 0)
        with self._lock:
            while len(self._ended) < count:
                self._ended.append(int(self._store.read(f"{_ENDED}/{len(self._ended)}")))
            return next((rank for rank in self._ended if rank in ranks), None)


class _Listener:
    """Rank 0's part: a thread that waits for connections to end."""

    def __init__(self, store: Store, address: str) -> None:
        self._store = store
        self._count = 0
        self._word = secrets.token_hex(_WORD_BYTES).encode()
        self._selector = selectors.DefaultSelector()
        self._door = socket.create_server((address, 0))
        self._waker, self._woken = socket.socketpair()
        # What each connection has said.
        self._said: dict[socket.socket, bytes] = {}
        for watched in (self._door, self._woken):
            self._selector.register(watched, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name="hyper_parallel watch", daemon=True)
        self._thread.start()
        store.put(_PLACE, b"%d %s" % (self._door.getsockname()[1], self._word))
        # A thread that came back from the store while Python is being taken down would take the process with it.
        atexit.register(self._stop)
        os.register_at_fork(after_in_child=self._leave_to_parent)

    def _run(self) -> None:
        # Without the store nobody can be told anything.
        with contextlib.suppress(FailedPreconditionError):
            while True:
                for key, _ in self._selector.select():
                    if key.fileobj is self._woken:
                        return
                    if key.fileobj is self._door:
                        self._accept()
                    else:
                        assert isinstance(key.fileobj, socket.socket)
                        self._hear(key.fileobj)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            connection, _ = self._door.accept()
            _keep_alive(connection)
            self._said[connection] = b""
            self._selector.register(connection, selectors.EVENT_READ)

    def _hear(self, connection: socket.socket) -> None:
        data = b""
        with contextlib.suppress(OSError):
            data = connection.recv(_GREETING)
        said = self._said.pop(connection) + data
        if data and len(said) <= _GREETING and self._word.startswith(said[: len(self._word)]):
            self._said[connection] = said
            return
        # The end of a rank, or a stranger.
        self._selector.unregister(connection)
        connection.close()
        if not data and len(said) == _GREETING:
            self._tell(int(said[len(self._word) :]))

    def _tell(self, rank: int) -> None:
        self._store.put(f"{_ENDED}/{self._count}", str(rank).encode())
        self._count = self._store.add(_ENDED, 1)

    def _stop(self) -> None:
        self._waker.send(b"x")
        self._thread.join()
        self._close()

    def _leave_to_parent(self) -> None:
        """In a forked process, which would keep the connections open and has not got the thread."""
        atexit.unregister(self._stop)
        self._close()

    def _close(self) -> None:
        self._selector.close()
        for one in (*self._said, self._door, self._waker, self._woken):
            one.close()


def _connected(store: Store, rank: int, address: str, timeout: timedelta) -> socket.socket:
    if store.wait([_PLACE], timeout):
        raise FailedPreconditionError(f"rank {rank}: rank 0 did not come within {timeout.total_seconds():g} s")
    port, word = store.read(_PLACE).decode().split()
    try:
        made = socket.create_connection((address, int(port)), timeout.total_seconds())
        made.settimeout(None)
        _keep_alive(made)
        made.sendall(f"{word}{rank:0{_RANK_DIGITS}}".encode())
    except OSError as error:
        raise FailedPreconditionError(f"rank {rank} cannot reach rank 0 at {address}:{port}: {error}") from error
    os.register_at_fork(after_in_child=made.close)
    return made


def _is_closed(connection: socket.socket) -> bool:
    """Whether the other end, which says nothing, has closed it."""
    try:
        return not connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True


def _keep_alive(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _SILENCE_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _EVERY_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _TIMES)
