"""A job that its environment describes wrongly: said at once, by the variable's name, before anything is started."""

from __future__ import annotations

import socket

import pytest

from hyper_parallel import FailedPreconditionError, InvalidArgumentError, platform
from support.common import assert_raises

GOOD = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29999"}
WRONG: dict[str, tuple[dict[str, str], type[Exception], str]] = {
    "a rank that is no number": ({"RANK": "abc"}, InvalidArgumentError, "RANK is 'abc' but must be a number"),
    "a rank too high": ({"RANK": "1"}, InvalidArgumentError, "RANK is 1 but must be from 0 to 0: WORLD_SIZE is 1"),
    "a rank too low": (
        {"RANK": "-1", "WORLD_SIZE": "4"}, InvalidArgumentError, "RANK is -1 but must be from 0 to 3: WORLD_SIZE is 4"
    ),
    "nobody": ({"WORLD_SIZE": "0"}, InvalidArgumentError, "WORLD_SIZE is 0 but must be at least 1"),
    "an empty size": ({"WORLD_SIZE": ""}, InvalidArgumentError, "WORLD_SIZE is '' but must be a number"),
    "a size of two and a half": ({"WORLD_SIZE": "2.5"}, InvalidArgumentError, "WORLD_SIZE is '2.5' but must be"),
    "a port that is no number": ({"MASTER_PORT": "abc"}, InvalidArgumentError, "MASTER_PORT is 'abc' but must be a"),
    "a port too high": ({"MASTER_PORT": "65536"}, InvalidArgumentError, "MASTER_PORT is 65536 but must be from 1"),
    "no port": ({"MASTER_PORT": "0"}, InvalidArgumentError, "MASTER_PORT is 0 but must be from 1 to 65535"),
    "an empty address": ({"MASTER_ADDR": ""}, InvalidArgumentError, "MASTER_ADDR is '' but must be the name"),
    "an unknown name": (
        {"MASTER_ADDR": "unknown.invalid"}, FailedPreconditionError,
        "MASTER_ADDR is 'unknown.invalid', which leads to no IPv4 address",
    ),
    "a name that is none": ({"MASTER_ADDR": "." * 70}, FailedPreconditionError, "which leads to no IPv4 address"),
    "an address of another host": (
        {"MASTER_ADDR": "192.0.2.1"}, FailedPreconditionError,
        "MASTER_ADDR is '192.0.2.1' and MASTER_PORT 29999, where rank 0 cannot listen: Cannot assign requested address",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", list(WRONG))
def test_what_cannot_be_is_named_with_its_value(monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    changed, kind, text = WRONG[what]
    for name, value in {**GOOD, **changed}.items():
        monkeypatch.setenv(name, value)
    assert_raises(kind, text, lambda: platform.initialize("cpu"))
    assert not platform.is_initialized()


def test_all_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in GOOD:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RANK", "0")
    text = "the environment has no WORLD_SIZE, MASTER_ADDR, MASTER_PORT: start the program with msrun"
    assert_raises(FailedPreconditionError, text, lambda: platform.initialize("cpu"))


def test_a_port_that_is_in_use_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        for name, value in {**GOOD, "MASTER_PORT": port}.items():
            monkeypatch.setenv(name, value)
        text = f"MASTER_ADDR is '127.0.0.1' and MASTER_PORT {port}, where rank 0 cannot listen: Address already in use"
        assert_raises(FailedPreconditionError, text, lambda: platform.initialize("cpu"))
