"""What is not elementwise is refused: on every rank, by name, with what to do instead, and nothing has changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hyper_parallel import DTensor, HyperParallelError, Partial, Placement, RaggedShard, Replicate, Shard
from support import layouts
from support.arrays import numbered
from support.common import assert_raises, make_mesh
from support.frameworks import framework
from support.platform_checks import assert_values, distributed
from support.ranks import ranks
from support.spread import Spread
from support.worker import Rank

REFUSED: dict[str, tuple[Any, ...]] = {
    "sum": (),
    "mean": (),
    "prod": (),
    "max": (),
    "min": (),
    "argmax": (),
    "var": (),
    "std": (),
    "any": (),
    "all": (),
    "cumsum": (0,),
    "sort": (),
    "topk": (1,),
    "view": (-1,),
    "reshape": (-1,),
    "flatten": (),
    "unsqueeze": (0,),
    "squeeze": (),
    "transpose": (0, 1),
    "permute": (1, 0),
    "t": (),
    "split": (2,),
    "chunk": (2,),
    "tril": (),
    "tanh": (),
    "round": (),
    "tolist": (),
    "matmul": (framework.tensor(np.ones((4, 2))),),
    "__floordiv__": (2,),
    "__mod__": (2,),
}
OTHER_NAMES = {"__floordiv__": "floor_divide", "__mod__": "remainder"}
RANDOM: dict[str, tuple[Any, ...]] = {
    "bernoulli_": (),
    "random_": (),
    "exponential_": (),
}


def spread(shape: tuple[int, ...], *placements: Placement) -> DTensor:
    return distributed(numbered(shape), Spread(shape, (2,), placements))


def ragged() -> DTensor:
    """A tensor of which the last rank holds nothing."""
    return spread(layouts.SHAPE, RaggedShard((0,), (3, 0)))


def assert_refused(name: str, action: Callable[[], object], *, advice: str) -> None:
    names = f"{name}|{OTHER_NAMES.get(name, name)}"
    with pytest.raises(NotImplementedError, match=f"operation '({names})'") as caught:
        action()
    assert isinstance(caught.value, HyperParallelError)
    assert advice in str(caught.value)


@pytest.mark.parametrize("name", list(REFUSED))
@ranks(2)
def test_operations_outside_the_list_are_refused_on_every_rank(rank: Rank, name: str) -> None:
    x = ragged()
    assert_refused(
        name,
        lambda: getattr(x, name)(*REFUSED[name]),
        advice="is not supported on a ragged DTensor; redistribute to Replicate and leave by full_tensor(), or take "
        "to_local() for this rank's share",
    )
    assert_values(x.full_tensor(), numbered(layouts.SHAPE))


@pytest.mark.parametrize("name", [name for name in RANDOM if hasattr(DTensor, name)])
@ranks(2)
def test_random_operations_are_refused_for_equal_seeds_would_give_equal_shares(rank: Rank, name: str) -> None:
    x = ragged()
    assert_refused(name, lambda: getattr(x, name)(*RANDOM[name]), advice="equal shares")
    assert_values(x.full_tensor(), numbered(layouts.SHAPE))


@ranks(2)
def test_functions_of_the_framework_never_run_on_a_share(rank: Rank) -> None:
    x = ragged()
    for name, function in framework.REDUCTIONS.items():
        with pytest.raises((NotImplementedError, RuntimeError, TypeError, ValueError)):
            raise AssertionError(f"{name} ran on a share: {function(x)!r}")
    assert_values(x.full_tensor(), numbered(layouts.SHAPE))


@ranks(2)
def test_assigning_to_an_index_is_refused_and_changes_nothing(rank: Rank) -> None:
    for placement in (RaggedShard((0,), (1, 2)), Shard(0), Replicate()):
        x = spread(layouts.SHAPE, placement)
        for index in (0, slice(0, 2), (0, 0), ...):
            with pytest.raises(NotImplementedError, match=r"x\[i\] = v|__setitem__"):
                x[index] = 1.0
        assert_values(x.full_tensor(), numbered(layouts.SHAPE))


@ranks(2)
def test_unlike_operands_are_refused_on_every_rank(rank: Rank) -> None:
    x = spread((8,), RaggedShard((0,), (1, 3)))
    assert_raises(ValueError, "operation 'add'", lambda: x + spread((8,), RaggedShard((0,), (3, 1))))
    assert_raises(ValueError, "operation 'mul'", lambda: x * spread((8,), Shard(0)))
    assert_raises(ValueError, "operation 'add'", lambda: x + spread((4, 2), RaggedShard((0,), (1, 3))))
    assert_raises(ValueError, "operation 'add'", lambda: x + spread((1, 8), Replicate()))
    other_mesh = DTensor.from_local(
        framework.tensor(np.zeros(2 + 4 * rank.index)),
        type(make_mesh(2))((2,), ("other",)),
        [RaggedShard((0,), (1, 3))],
        shape=(8,),
    )
    assert_raises(ValueError, "mesh", lambda: x + other_mesh)
    # Equal local sizes on every rank, but unlike cells.
    a, b = spread((4,), RaggedShard((0,), (1, 1))), spread((2, 2), RaggedShard((0,), (1, 1)))
    assert_raises(ValueError, "shape", lambda: a + b)
    assert_values(x.full_tensor(), numbered((8,)))


@ranks(2)
def test_plain_tensors_of_more_than_one_element_are_refused_on_every_rank(rank: Rank) -> None:
    x, plain = spread((8,), RaggedShard((0,), (1, 3))), framework.tensor(np.ones(8))
    text = "beside a DTensor a plain tensor must have one element"
    for action in (lambda: x + plain, lambda: plain * x, lambda: x.mul(plain), lambda: x.mul_(plain)):
        assert_raises(TypeError, text, action)
    assert_raises(TypeError, "operation 'add': argument 'other' is a plain tensor of shape (8,)", lambda: x + plain)
    # One element, but of more dims than the tensor has.
    assert_raises(ValueError, "operation 'add'", lambda: x + framework.tensor(np.ones((1, 1))))
    assert_values(x.full_tensor(), numbered((8,)))


@ranks(2)
def test_what_is_no_operand_is_named(rank: Rank) -> None:
    x = ragged()
    for action in (lambda: x.add("text"), lambda: x.add(x, beta=2), lambda: x.add(), lambda: x + object()):
        with pytest.raises(TypeError, match=r"add|\+"):
            action()


@ranks(2)
def test_a_pending_tensor_refuses_what_does_not_commute_with_its_reduction(rank: Rank) -> None:
    def pending(operation: str = "sum") -> DTensor:
        local = framework.tensor(np.array([3.0, -5.0]) + rank.index)
        return DTensor.from_local(local, make_mesh(2), [Partial(operation)])

    p = pending()
    for action in (
        lambda: p * pending(),
        lambda: abs(p),
        lambda: p + 1,
        lambda: p + framework.tensor(np.array(1.0)),
        lambda: framework.call("relu", p),
        lambda: p.clamp(max=0),
        lambda: p**2,
        lambda: 1 / p,
        lambda: p == pending(),
        lambda: p + pending("avg"),
        lambda: pending("max") * 2,
        lambda: pending("max") + pending("max"),
        lambda: -pending("min"),
    ):
        assert_raises(ValueError, "does not commute with the pending reduction", action)
    assert_values(p.full_tensor(), np.array([7.0, -9.0]))


@ranks(2)
def test_no_class_is_made_from_dtensor(rank: Rank) -> None:
    assert_raises(NotImplementedError, "class Mine cannot be made from DTensor", lambda: type("Mine", (DTensor,), {}))
