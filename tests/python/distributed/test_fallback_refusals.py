"""What does not run through torch's own DTensor either: random numbers, memory, traces, ragged arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from hyper_parallel import DeviceMesh, RaggedShard, Replicate, Shard, distribute_tensor, fallback_counts
from support.checks import assert_equal, assert_raises, make_mesh
from support.fallback import falling_back
from support.ranks import ranks
from support.values import numbered
from support.worker import Rank

RANDOM: dict[str, Callable[[Any], Any]] = {
    "bernoulli": lambda x: torch.bernoulli(x),
    "exponential_": lambda x: x.exponential_(),
    "multinomial": lambda x: torch.multinomial(x, 1),
    "poisson": lambda x: torch.poisson(x),
    "alpha_dropout": lambda x: F.alpha_dropout(x, training=True),
    "rrelu": lambda x: F.rrelu(x - 1, training=True),
    "gumbel_softmax": lambda x: F.gumbel_softmax(x),
}


@pytest.mark.parametrize("name", list(RANDOM))
@ranks(2)
@falling_back
def test_random_numbers_are_refused_on_replicas_too(rank: Rank, name: str) -> None:
    for placement in (Replicate(), Shard(0)):
        x = distribute_tensor(torch.full((4, 2), 0.5), make_mesh(2), [placement])
        assert_raises(NotImplementedError, "equal seeds would give equal shares", lambda x=x: RANDOM[name](x))
        assert_equal(x.full_tensor(), torch.full((4, 2), 0.5))


@ranks(2)
@falling_back
def test_dropout_that_drops_nothing_hands_back_its_input(rank: Rank) -> None:
    x = distribute_tensor(numbered((4, 2)), make_mesh(2), [Shard(0)])
    assert_equal(F.alpha_dropout(x, training=False).full_tensor(), numbered((4, 2)))


NEVER: dict[str, Callable[[Any], Any]] = {
    "numpy": lambda x: x.numpy(),
    "new_empty": lambda x: x.new_empty(3),
    "__array__": lambda x: x.__array__(),
    "__dlpack__": lambda x: x.__dlpack__(),
    "tolist": lambda x: x.tolist(),
    "data_ptr": lambda x: x.data_ptr(),
    "untyped_storage": lambda x: x.untyped_storage(),
    "resize_": lambda x: x.resize_(2, 2),
    "share_memory_": lambda x: x.share_memory_(),
    "as_strided": lambda x: x.as_strided((2, 2), (1, 1)),
    "apply_": lambda x: x.apply_(lambda value: value),
}


@pytest.mark.parametrize("name", list(NEVER))
@ranks(2)
@falling_back
def test_memory_and_its_size_are_never_handed_out(rank: Rank, name: str) -> None:
    for placement in (Replicate(), Shard(0)):
        x = distribute_tensor(numbered((4, 2)), make_mesh(2), [placement])
        assert_raises(NotImplementedError, f"operation '{name}' is not supported", lambda x=x: NEVER[name](x))
        assert_equal(x.full_tensor(), numbered((4, 2)))
    assert fallback_counts() == {}


@ranks(2)
@falling_back
def test_transformed_and_traced_calls_are_refused(rank: Rank) -> None:
    x = distribute_tensor(numbered((4, 2)), make_mesh(2), [Replicate()])
    assert_raises(
        NotImplementedError,
        "is not supported",
        lambda: torch.func.vmap(lambda row: x.logcumsumexp(0) + row)(torch.ones(3)),
    )
    with pytest.raises(NotImplementedError, match="cannot be traced by torch"):
        torch.jit.trace(lambda plain: x.logcumsumexp(0), (torch.ones(1),), check_trace=False)
    assert fallback_counts() == {}


@ranks(2)
@falling_back
def test_a_ragged_argument_is_refused_wherever_it_stands(rank: Rank) -> None:
    mesh = make_mesh(2)
    x = distribute_tensor(numbered((4, 2)), mesh, [Shard(0)])
    ragged = distribute_tensor(numbered((4, 2)), mesh, [RaggedShard((0,), (1, 3))])
    row = distribute_tensor(torch.tensor([1]), mesh, [RaggedShard((0,), (0, 1))])
    for action in (
        lambda: torch.logcumsumexp(ragged, 0),
        lambda: torch.logaddexp2(x, ragged),
        lambda: torch.logaddexp2(input=x, other=ragged),
        lambda: torch.block_diag(x, ragged),
        lambda: torch.atleast_2d([x, ragged]),
        lambda: torch.einsum("ij,jk,kl->il", [x, ragged, x]),
    ):
        assert_raises(NotImplementedError, "is not supported on a ragged DTensor", action)
    assert_raises(NotImplementedError, "x[i]", lambda: x[row])
    assert fallback_counts() == {}


@ranks(2)
@falling_back
def test_arguments_that_do_not_belong_together_are_named(rank: Rank) -> None:
    x = distribute_tensor(numbered((4, 2)), make_mesh(2), [Shard(0)])
    elsewhere = distribute_tensor(numbered((4, 2)), DeviceMesh((2,), ("other",)), [Shard(0)])
    assert_raises(
        TypeError, "a plain tensor of shape (4, 2) but must be a DTensor", lambda: torch.logaddexp2(x, numbered((4, 2)))
    )
    assert_raises(TypeError, "a plain tensor of shape (0,)", lambda: torch.logaddexp2(x, torch.empty(0)))
    assert_raises(ValueError, "redistribute one to the other's mesh", lambda: torch.logaddexp2(x, elsewhere))
    assert_raises(
        NotImplementedError, "argument 'out' is not supported", lambda: torch.logaddexp2(x, x, out=torch.empty(4, 2))
    )
    assert_raises(NotImplementedError, "torch's DTensor does not know it either", lambda: torch.block_diag(x))
    assert fallback_counts().keys() <= {"block_diag"}
