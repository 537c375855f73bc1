"""A state dict with an entry of every kind, and what a test of refusals puts into it, takes out of it and looks at."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from hyper_parallel import DTensor, Partial, RaggedShard, Shard, distribute_tensor
from support.checkpoints import bits, local_of
from support.checks import make_mesh
from support.values import numbered
from support.worker import Rank

State = dict[Any, Any]


def good() -> State:
    """A state with an entry of every kind."""
    mesh = make_mesh(2)
    return {
        "model": {
            "ragged": distribute_tensor(numbered((6, 4)), mesh, [RaggedShard((0,), (1, 2))]),
            "sharded": distribute_tensor(numbered((5, 2)), mesh, [Shard(0)]),
            "plain": numbered((3,), torch.float64),
        },
        "optimizer": {"lr": 0.1, "state": [numbered((2,)), "x"]},
        "step": 3,
    }


def with_entry(value: object, state: State | None = None) -> State:
    """A good state, but for `model.bad`."""
    state = good() if state is None else state
    state["model"]["bad"] = value
    return state


def without(*path: str) -> State:
    state = good()
    inner = state
    for key in path[:-1]:
        inner = inner[key]
    del inner[path[-1]]
    return state


def pending() -> DTensor:
    return DTensor.from_local(torch.ones(2), make_mesh(2), [Partial()])


Refusal = tuple[Callable[[], object], type[BaseException], tuple[str, ...]]
"""Makes the entry; the error that it is refused with; parts of the message."""

on_which_ranks = pytest.mark.parametrize("where", ["everywhere", "on rank 0", "on rank 1"])
every_saver = pytest.mark.parametrize("saver", ["save", "async_save"])


def is_there(rank: Rank, where: str) -> bool:
    return where in {"everywhere", f"on rank {rank.index}"}


def emptied(state: Any) -> Any:
    """The same state with -9 in tensors and "before" in the place of values."""
    if isinstance(state, DTensor):
        mine = state.clone()
        mine._local_tensor.fill_(-9)
        return mine
    if isinstance(state, torch.Tensor):
        return torch.full_like(state, -9)
    if isinstance(state, dict):
        return {key: emptied(value) for key, value in state.items()}
    return [emptied(value) for value in state] if isinstance(state, list) else "before"


def untouched(state: Any) -> bool:
    """Whether every entry is as `emptied` made it; one that was put in beside may be anything."""
    if isinstance(state, torch.Tensor):
        return bits(local_of(state)) == bits(torch.full_like(local_of(state), -9))
    if isinstance(state, dict):
        return all(untouched(value) for key, value in state.items() if key != "bad")
    return all(map(untouched, state)) if isinstance(state, list) else state == "before"


def replaced(path: tuple[str, str], value: object) -> State:
    state: State = emptied(good())
    state[path[0]][path[1]] = value
    return state
