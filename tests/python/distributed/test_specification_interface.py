"""The specification on RaggedShard from section 4.7: operations, the interface and acceptance.

Names and docstrings give the section, as in test_specification.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from hyper_parallel import DeviceMesh, DTensor, Partial, Placement, RaggedShard, Replicate, Shard, distribute_tensor
from support.checks import assert_consistent, assert_equal, assert_raises
from support.ranks import ranks
from support.specification import EXAMPLE, NUMEL, SHAPE, line, spread
from support.values import numbered
from support.worker import Rank

UNARY: dict[str, Callable[[Any], Any]] = {
    "abs": torch.abs,
    "absolute": torch.absolute,
    "clone": torch.clone,
    "cos": torch.cos,
    "exp": torch.exp,
    "gelu": F.gelu,
    "isinf": torch.isinf,
    "isnan": torch.isnan,
    "log": torch.log,
    "neg": torch.neg,
    "negative": torch.negative,
    "relu": torch.relu,
    "rsqrt": torch.rsqrt,
    "sigmoid": torch.sigmoid,
    "silu": F.silu,
    "sin": torch.sin,
    "sqrt": torch.sqrt,
    "square": torch.square,
}
# torch has no real_div: its division of ints is real.
BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": torch.add,
    "div": torch.div,
    "mul": torch.mul,
    "pow": torch.pow,
    "real_div": lambda x, y: x / y,
    "sub": torch.sub,
    "true_divide": torch.true_divide,
}
REVERSED: dict[str, Callable[[Any], Any]] = {
    "__rsub__": lambda x: 1 - x,
    "__rpow__": lambda x: 2**x,
}


@pytest.mark.parametrize("operation", [*UNARY, *BINARY, *REVERSED])
@ranks(2)
def test_4_7_the_whitelist_runs_on_shares_and_keeps_layout_and_shape(rank: Rank, operation: str) -> None:
    generator = torch.Generator().manual_seed(1)
    a, b = (torch.rand(SHAPE, generator=generator) - 0.25 for _ in range(2))
    function = (UNARY | BINARY | REVERSED)[operation]
    operands = (a, b) if operation in BINARY else (a,)
    result = function(*(spread(operand) for operand in operands))
    assert isinstance(result, DTensor)
    assert (result._global_shape, result.layout) == (SHAPE, spread(a).layout)
    assert_consistent(result)
    torch.testing.assert_close(result.full_tensor(), function(*operands), equal_nan=True)


@ranks(2)
def test_4_7_a_row_lies_on_its_owner_and_is_written_in_place(rank: Rank) -> None:
    """The special case: x[i] on Shard(0)."""
    full_x = torch.tensor([[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12], [13, 14, 15, 16]])
    tp_mesh = DeviceMesh((2,), ("tp",))
    x = distribute_tensor(full_x, tp_mesh, (Shard(0),))
    assert_equal(x[2]._local_tensor, {0: full_x[2][:0], 1: full_x[2]}[rank.index])
    assert x[2].shape == (4,)
    assert x[2].placements == (RaggedShard((0,), (0, 1)),)
    x[2].zero_()
    assert_equal(x[2]._local_tensor, torch.zeros(4 * rank.index, dtype=full_x.dtype))
    assert_equal(x.full_tensor(), torch.tensor([[1, 2, 3, 4], [5, 6, 7, 8], [0, 0, 0, 0], [13, 14, 15, 16]]))


FAIL_CLOSED: dict[str, Callable[[Any], Any]] = {
    "mean": torch.mean,
    "sum": torch.sum,
    "view": lambda x: x.view(-1),
    "reshape": lambda x: x.reshape(-1),
    "flatten": torch.flatten,
    "indexing": lambda x: x[0],
    "matmul": lambda x: x @ x,
    "norm": lambda x: x.norm(),
    "layer norm": lambda x: F.layer_norm(x, (8,)),
    "attention": lambda x: F.scaled_dot_product_attention(x, x, x),
    "an operation on no list": torch.erf,
}


@pytest.mark.parametrize("operation", list(FAIL_CLOSED))
@ranks(2)
def test_4_7_everything_else_is_refused(rank: Rank, operation: str) -> None:
    x = spread(numbered(SHAPE))
    advice = "redistribute it first" if operation == "indexing" else "to_local()"
    assert_raises(NotImplementedError, advice, lambda: FAIL_CLOSED[operation](x))
    assert_equal(x.full_tensor(), numbered(SHAPE))


# --- 5, the interface ------------------------------------------------------------------------------------------------


def test_5_1_placement() -> None:
    from hyper_parallel import RaggedShard as Exported  # noqa: PLC0415

    placement = Exported(
        dims=(0, 1),
        local_units=(1, 2),
    )
    assert placement == EXAMPLE
    assert isinstance(placement, Placement)
    assert placement.is_ragged_shard()
    assert not (placement.is_shard() or placement.is_replicate() or placement.is_partial())


@ranks(2)
def test_5_2_from_a_whole_tensor(rank: Rank) -> None:
    global_tensor = numbered(SHAPE) if rank.index == 0 else torch.zeros(SHAPE)
    mesh = line()
    dt = distribute_tensor(
        global_tensor,
        mesh,
        (RaggedShard((0, 1), (1, 2)),),
        src_data_rank=0,
    )
    assert_equal(dt.full_tensor(), numbered(SHAPE))


@ranks(2)
def test_5_4_laying_out_otherwise_and_the_whole(rank: Rank) -> None:
    mesh = line()
    whole = numbered(SHAPE)
    dt = spread(whole)
    full = dt.full_tensor()
    changed = dt.redistribute(
        mesh,
        (RaggedShard((0, 1), (2, 1)),),
    )
    replicated = dt.redistribute(mesh, (Replicate(),))
    sharded = dt.redistribute(mesh, (Shard(0),))
    assert_equal(full, whole)
    assert_equal(changed._local_tensor, whole.flatten().split([128, 64])[rank.index])
    assert_equal(replicated._local_tensor, whole)
    assert_equal(sharded._local_tensor, whole.chunk(2)[rank.index])


# --- 9, acceptance ---------------------------------------------------------------------------------------------------


@ranks(4)
def test_9_1_a_rank_without_units_takes_part_everywhere(rank: Rank) -> None:
    whole = numbered((8, 3))
    units = RaggedShard((0,), (2, 3, 0, 3))
    others = (RaggedShard((0,), (0, 0, 5, 3)), RaggedShard((0, 1), (0, 1, 2, 5)), Shard(0), Replicate())
    for source in (None, 2):
        x = distribute_tensor(whole, line(4), (units,), src_data_rank=source)
        assert_equal(x._local_tensor, whole.split(units.local_units)[rank.index].flatten())
        assert_equal((x * 2 + x).full_tensor(), whole * 3)
        for other in others:
            there = x.redistribute(line(4), (other,))
            assert_equal(there.full_tensor(), whole)
            assert_equal(there.redistribute(line(4), (units,))._local_tensor, x._local_tensor)


LAYOUT_FAULTS: dict[str, tuple[tuple[int, ...], tuple[Placement, ...], str]] = {
    "several ragged placements": (SHAPE, (EXAMPLE, EXAMPLE), "RaggedShard"),
    "prefix cells that the units do not divide": ((5, 5), (Replicate(), EXAMPLE), "25"),
    "units that are not as many as the ranks": (SHAPE, (Replicate(), RaggedShard((0,), (1, 2, 3))), "local_units"),
    "a Shard beside": (SHAPE, (EXAMPLE, Shard(1)), "Replicate"),
    "a Partial beside": (SHAPE, (Partial(), EXAMPLE), "Replicate"),
    "more dims than the tensor": ((6,), (Replicate(), EXAMPLE), "dims"),
}


@pytest.mark.parametrize("fault", list(LAYOUT_FAULTS))
@ranks(4)
def test_9_3_layouts_that_are_refused_on_every_rank(rank: Rank, fault: str) -> None:
    mesh = DeviceMesh((2, 2), ("dp", "tp"))
    shape, placements, text = LAYOUT_FAULTS[fault]
    x = distribute_tensor(numbered(shape), mesh, (Replicate(), Replicate()))
    local = torch.zeros(math.prod(shape) // 2)
    assert_raises(ValueError, text, lambda: distribute_tensor(numbered(shape), mesh, placements))
    assert_raises(ValueError, text, lambda: distribute_tensor(numbered(shape), mesh, placements, src_data_rank=0))
    assert_raises(ValueError, text, lambda: DTensor.from_local(local, mesh, placements, shape=shape))
    assert_raises(ValueError, text, lambda: x.redistribute(mesh, placements))


@ranks(2)
def test_9_3_local_tensors_that_are_refused(rank: Rank) -> None:
    mesh, own = line(), NUMEL[rank.index]

    def make(local: torch.Tensor, shape: Any = SHAPE) -> DTensor:
        return DTensor.from_local(local, mesh, (EXAMPLE,), shape=shape)

    assert_raises(ValueError, "shape", lambda: make(torch.zeros(own), None))
    assert_raises(ValueError, "1-D", lambda: make(torch.zeros(own // 8, 8)))
    assert_raises(ValueError, "contiguous", lambda: make(torch.zeros(2 * own)[::2]))
    assert_raises(ValueError, str(own), lambda: make(torch.zeros(own + 1)))
    assert_raises(ValueError, "shape", lambda: make(torch.zeros(own), (-6, 4, 8)))
    assert_raises(TypeError, "shape", lambda: make(torch.zeros(own), (6.0, 4, 8)))
    assert_raises(ValueError, "dims", lambda: make(torch.zeros(own), (192,)))


@ranks(2)
def test_9_3_ragged_factories_are_refused(rank: Rank) -> None:
    x = spread(numbered(SHAPE))
    for name, factory in {
        "new_zeros": lambda: x.new_zeros(SHAPE),
        "new_ones": lambda: x.new_ones(SHAPE),
        "new_empty": lambda: x.new_empty(SHAPE),
        "new_full": lambda: x.new_full(SHAPE, 1.0),
        "rand_like": lambda: torch.rand_like(x),
    }.items():
        assert_raises(NotImplementedError, f"operation '{name}'", factory)
