"""What is not elementwise is refused: on every rank, by name, with what to do instead, and nothing has changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from hyper_parallel import DTensor, HyperParallelError, Partial, RaggedShard, Replicate, Shard, distribute_tensor
from support import layouts
from support.checks import assert_equal, assert_raises, make_mesh
from support.ranks import ranks
from support.values import numbered
from support.worker import Rank

REFUSED: dict[str, Callable[[Any], Any]] = {
    "sum": lambda x: x.sum(),
    "mean": lambda x: torch.mean(x),
    "prod": lambda x: x.prod(),
    "max": lambda x: x.max(),
    "min": lambda x: x.min(dim=0),
    "amax": lambda x: x.amax(),
    "argmax": lambda x: x.argmax(),
    "var": lambda x: x.var(),
    "std": lambda x: torch.std(x),
    "linalg_vector_norm": lambda x: torch.linalg.vector_norm(x),
    "any": lambda x: x.any(),
    "all": lambda x: x.all(),
    "cumsum": lambda x: x.cumsum(0),
    "sort": lambda x: x.sort(),
    "topk": lambda x: x.topk(1),
    "view": lambda x: x.view(-1),
    "reshape": lambda x: x.reshape(-1),
    "flatten": lambda x: torch.flatten(x),
    "unsqueeze": lambda x: x.unsqueeze(0),
    "squeeze": lambda x: x.squeeze(),
    "expand": lambda x: x.expand(2, 6, 4),
    "transpose": lambda x: x.transpose(0, 1),
    "permute": lambda x: x.permute(1, 0),
    "t": lambda x: x.t(),
    "split": lambda x: x.split(2),
    "chunk": lambda x: x.chunk(2),
    "cat": lambda x: torch.cat([x, x]),
    "stack": lambda x: torch.stack([x, x]),
    "index_select": lambda x: x.index_select(0, torch.tensor([0])),
    "gather": lambda x: x.gather(0, torch.zeros(1, 1, dtype=torch.int64)),
    "masked_fill": lambda x: x.masked_fill(x > 0, 1.0),
    "tril": lambda x: x.tril(),
    "matmul": lambda x: x @ torch.ones(4, 2),
    "mm": lambda x: torch.mm(x, torch.ones(4, 2)),
    "einsum": lambda x: torch.einsum("ij->i", x),
    "linear": lambda x: F.linear(torch.ones(2, 4), x),
    "embedding": lambda x: F.embedding(torch.tensor([0]), x),
    "softmax": lambda x: torch.softmax(x, 0),
    "layer_norm": lambda x: F.layer_norm(x, [4]),
    "scaled_dot_product_attention": lambda x: F.scaled_dot_product_attention(x, x, x),
    "mse_loss": lambda x: F.mse_loss(x, x),
    "equal": lambda x: torch.equal(x, x),
    "allclose": lambda x: torch.allclose(x, x),
    "tanh": lambda x: torch.tanh(x),
    "round": lambda x: x.round(),
    "floor_divide": lambda x: x // 2,
    "remainder": lambda x: x % 2,
    "tolist": lambda x: x.tolist(),
    "numpy": lambda x: x.numpy(),
    "__array__": lambda x: np.asarray(x),
    "__dlpack__": lambda x: x.__dlpack__(),
    "untyped_storage": lambda x: x.untyped_storage(),
    "data_ptr": lambda x: x.data_ptr(),
    "resize_": lambda x: x.resize_(2, 2),
    "share_memory_": lambda x: x.share_memory_(),
}

RANDOM: dict[str, Callable[[Any], Any]] = {
    "rand_like": lambda x: torch.rand_like(x),
    "randn_like": lambda x: torch.randn_like(x),
    "randint_like": lambda x: torch.randint_like(x, 3),
    "bernoulli": lambda x: torch.bernoulli(x),
    "bernoulli_": lambda x: x.bernoulli_(),
    "random_": lambda x: x.random_(),
    "exponential_": lambda x: x.exponential_(),
    "dropout": lambda x: F.dropout(x),
    "multinomial": lambda x: torch.multinomial(x, 1),
}


def ragged(rank: Rank) -> DTensor:
    """A tensor of which the last rank holds nothing."""
    return distribute_tensor(numbered(layouts.SHAPE), make_mesh(rank.size), [RaggedShard((0,), (3, 0))])


def assert_refused(name: str, action: Callable[[], object], *, advice: str) -> None:
    with pytest.raises(NotImplementedError, match=f"operation '(__)?{name}(__)?'") as caught:
        action()
    assert isinstance(caught.value, HyperParallelError)
    assert advice in str(caught.value)


@pytest.mark.parametrize("name", list(REFUSED))
@ranks(2)
def test_operations_outside_the_list_are_refused_on_every_rank(rank: Rank, name: str) -> None:
    x = ragged(rank)
    assert_refused(name, lambda: REFUSED[name](x), advice="to_local()")
    assert_equal(x.full_tensor(), numbered(layouts.SHAPE))


@pytest.mark.parametrize("name", list(RANDOM))
@ranks(2)
def test_random_operations_are_refused_for_equal_seeds_would_give_equal_shares(rank: Rank, name: str) -> None:
    x = ragged(rank)
    assert_refused(name, lambda: RANDOM[name](x), advice="equal shares")
    assert_equal(x.full_tensor(), numbered(layouts.SHAPE))


@ranks(2)
def test_indexing_a_ragged_tensor_is_refused(rank: Rank) -> None:
    x = ragged(rank)
    for index in (0, -1, slice(0, 2), (0, 0), None, ..., [0, 1], torch.tensor([0]), True):
        with pytest.raises(NotImplementedError, match="x\\[i\\]"):
            x[index]
    with pytest.raises(NotImplementedError, match="operation 'unbind'"):
        list(x)


@ranks(2)
def test_assigning_to_an_index_is_refused_and_changes_nothing(rank: Rank) -> None:
    for placement in (RaggedShard((0,), (1, 2)), Shard(0), Replicate()):
        x = distribute_tensor(numbered(layouts.SHAPE), make_mesh(2), [placement])
        for index in (0, slice(0, 2), (0, 0), ...):
            with pytest.raises(NotImplementedError, match="x\\[i\\] = v"):
                x[index] = 1.0
        assert_equal(x.full_tensor(), numbered(layouts.SHAPE))


@ranks(2)
def test_out_is_refused(rank: Rank) -> None:
    x = ragged(rank)
    into = torch.empty(layouts.SHAPE)
    for action in (
        lambda: torch.add(x, x, out=into),
        lambda: torch.add(x, x, out=torch.zeros_like(x)),
        lambda: torch.sqrt(x, out=torch.zeros_like(x)),
        lambda: torch.add(into, into, out=x),
    ):
        assert_raises(NotImplementedError, "'out'", action)


@ranks(2)
def test_unlike_operands_are_refused_on_every_rank(rank: Rank) -> None:
    mesh = make_mesh(2)

    def spread(shape: tuple[int, ...], *placements: Any) -> DTensor:
        return distribute_tensor(numbered(shape), mesh, placements)

    x = spread((8,), RaggedShard((0,), (1, 3)))
    assert_raises(ValueError, "operation 'add'", lambda: x + spread((8,), RaggedShard((0,), (3, 1))))
    assert_raises(ValueError, "operation 'mul'", lambda: x * spread((8,), Shard(0)))
    assert_raises(ValueError, "operation 'add'", lambda: x + spread((4, 2), RaggedShard((0,), (1, 3))))
    assert_raises(ValueError, "operation 'add'", lambda: x + spread((1, 8), Replicate()))
    # torch's operators turn a TypeError into "unsupported operand type(s)"; the text must get through all the same.
    assert_raises(TypeError, "operation 'add': argument 'other' is a plain tensor", lambda: x + torch.ones(8))
    assert_raises(TypeError, "must have one element", lambda: torch.ones(8) * x)
    assert_raises(TypeError, "must have one element", lambda: torch.add(x, torch.ones(8)))
    assert_raises(TypeError, "must have one element", lambda: x.mul_(torch.ones(8)))
    assert_raises(ValueError, "operation 'add'", lambda: x + torch.ones(1, 1))
    other_mesh = type(mesh)((2,), ("other",))
    assert_raises(
        ValueError, "mesh", lambda: x + distribute_tensor(numbered((8,)), other_mesh, [RaggedShard((0,), (1, 3))])
    )
    # Equal local sizes on every rank, but unlike cells.
    a = distribute_tensor(numbered((4,)), mesh, [RaggedShard((0,), (1, 1))])
    b = distribute_tensor(numbered((2, 2)), mesh, [RaggedShard((0,), (1, 1))])
    assert_raises(ValueError, "shape", lambda: a + b)


@ranks(2)
def test_unknown_arguments_are_named(rank: Rank) -> None:
    x = ragged(rank)
    for action in (
        lambda: torch.add(x, x, beta=2),  # type: ignore[call-overload]
        lambda: x.add("text"),  # type: ignore[arg-type]
        lambda: torch.add(x),  # type: ignore[call-overload]
        lambda: x + object(),  # type: ignore[operator]
    ):
        with pytest.raises(TypeError, match=r"add|\+"):
            action()
    assert_raises(ValueError, "int64", lambda: x + 2**70)
    assert_raises(NotImplementedError, "memory_format", lambda: x.clone(memory_format=torch.channels_last))


@ranks(2)
def test_a_pending_tensor_refuses_what_does_not_commute_with_its_reduction(rank: Rank) -> None:
    mesh = make_mesh(2)

    def pending(operation: str = "sum") -> DTensor:
        return DTensor.from_local(torch.tensor([3.0, -5.0]) + rank.index, mesh, [Partial(operation)])

    p = pending()
    for action in (
        lambda: p * pending(),
        lambda: abs(p),
        lambda: p + 1,
        lambda: p + torch.tensor(1.0),
        lambda: p.relu(),
        lambda: p.clamp(max=0),
        lambda: p**2,
        lambda: 1 / p,
        lambda: p == pending(),
        lambda: p.to(torch.bfloat16),
        lambda: p + pending("avg"),
        lambda: pending("max") * 2,
        lambda: pending("max") + pending("max"),
        lambda: -pending("min"),
    ):
        assert_raises(ValueError, "does not commute with the pending reduction", action)
    assert_equal((p + pending()).full_tensor(), torch.tensor([14.0, -18.0]))
    assert_equal((-p).full_tensor(), torch.tensor([-7.0, 9.0]))
    assert_equal((p * 2 / 4).full_tensor(), torch.tensor([3.5, -4.5]))
