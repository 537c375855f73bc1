"""The checkpointer of a process group: one for each, made when it is first asked for."""

from __future__ import annotations

import os
from typing import Any

from hyper_parallel import _core, platform
from hyper_parallel.checkpoint._framework import exchange_over

__all__ = ["checkpointer_of"]

# This process alone, without communication.
_alone = _core.Checkpointer(_core.SingleExchange())

# By process group, and the default group under which they were made: another job of the same process has others.
_world: Any = None
_by_group: dict[Any, _core.Checkpointer] = {}


# Those of the process that this one was forked from: their locks may be held by threads that are not here.
_of_parent: list[_core.Checkpointer] = []


def _forget_in_child() -> None:
    global _alone, _world
    _of_parent.extend([_alone, *_by_group.values()])
    _by_group.clear()
    _alone, _world = _core.Checkpointer(_core.SingleExchange()), None


os.register_at_fork(after_in_child=_forget_in_child)


def checkpointer_of(process_group: Any = None) -> _core.Checkpointer:  # noqa: ANN401
    """Finds or makes the checkpointer, which whose messages meet no others; all ranks of the group must call.

    Args:
        process_group: The ranks that save and load together; None for the whole job, or for this process alone where
            communication is not initialised.

    Raises:
        InvalidArgumentError: This process is not in the group.
        ArgumentTypeError: ``process_group`` is no process group.
        FailedPreconditionError: A group is given but communication is not initialised.
    """
    global _world  # noqa: PLW0603
    if process_group is None and not platform.is_initialized():
        return _alone
    world = platform.world_group()
    if world != _world:
        _by_group.clear()
        _world = world
    group = world if process_group is None else process_group
    if group not in _by_group:
        _by_group[group] = _core.Checkpointer(exchange_over(group))
    return _by_group[group]
