"""Redistributions of numpy arrays for all ranks of a mesh in one process, as a framework without C++ runs them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from hyper_parallel import (
    ArgumentTypeError,
    DeviceMesh,
    InvalidArgumentError,
    Layout,
    OutOfRangeError,
    Partial,
    Placement,
    RaggedShard,
    Replicate,
    Shard,
    _core,
)
from support.spread import Spread

Array = np.ndarray[Any, Any]
Locals = dict[int, Array]

MESH = (2, 3)
SHAPE = (6, 4)
MOVES: list[tuple[list[Placement], list[Placement]]] = [
    ([Shard(0), Replicate()], [Shard(1), Replicate()]),
    ([Shard(0), Shard(0)], [Replicate(), Replicate()]),
    ([Shard(1), Shard(0)], [Shard(0), Shard(1)]),
    ([Replicate(), RaggedShard((0,), (1, 0, 2))], [Replicate(), RaggedShard((0, 1), (5, 2, 1))]),
    ([Replicate(), RaggedShard((0,), (0, 0, 3))], [RaggedShard((0, 1), (1, 3)), Replicate()]),
    ([RaggedShard((0,), (1, 2)), Replicate()], [Shard(1), Shard(0)]),
    ([Replicate(), Replicate()], [Replicate(), RaggedShard((0,), (2, 1, 0))]),
    ([Replicate(), Shard(0)], [Replicate(), Shard(0)]),
]
BYTES_OF_DTYPES = {"b1": bool, "u1": np.uint8, "f2": np.float16, "i4": np.int32, "f8": np.float64, "c16": np.complex128}


def run_everywhere(
    source: Layout, target: Layout, shape: tuple[int, ...], locals_: Mapping[int, Array], dtype: str = ""
) -> Locals:
    """The target's local arrays from the source's, of all ranks; `dtype` is needed where something is reduced."""
    plans = {rank: _core.plan_redistribution(source, target, shape, rank) for rank in locals_}
    buffers = {rank: local.reshape(-1) for rank, local in locals_.items()}
    for number in range(len(plans[min(plans)].steps)):
        buffers = run_step({rank: plan.steps[number] for rank, plan in plans.items()}, buffers, dtype)
    return {rank: buffer.reshape(plans[rank].target_shape) for rank, buffer in buffers.items()}


def run_step(steps: Mapping[int, _core.RankStep], sources: Mapping[int, Array], dtype: str) -> Locals:
    mail = {}
    for rank, step in steps.items():
        for index, (peer, numel) in enumerate(step.sends):
            message = mail[rank, peer] = np.empty(numel, sources[rank].dtype)
            step.pack(index, sources[rank], message, message.itemsize)
    targets = {}
    for rank, step in steps.items():
        source = sources[rank]
        target = targets[rank] = np.empty(step.target_numel, source.dtype)
        assert [mail[peer, rank].size for peer, _ in step.receives] == [numel for _, numel in step.receives]
        if step.is_reduction:
            step.combine(source, [mail[peer, rank] for peer, _ in step.receives], target, dtype)
            continue
        step.copy_own(source, target, source.itemsize)
        for index, (peer, _) in enumerate(step.receives):
            step.unpack(index, mail[peer, rank], target, source.itemsize)
    return targets


def counted(shape: tuple[int, ...], dtype: Any) -> Array:
    return np.arange(1, math.prod(shape) + 1).astype(dtype).reshape(shape)


def locals_of(whole: Array, mesh: tuple[int, ...], placements: list[Placement]) -> Locals:
    spread = Spread(whole.shape, mesh, tuple(placements))
    return {rank: spread.part_of(whole, rank) for rank in range(spread.size)}


def expect_equal(found: Locals, expected: Locals) -> None:
    assert found.keys() == expected.keys()
    for rank, local in expected.items():
        assert found[rank].dtype == local.dtype
        assert found[rank].shape == local.shape
        assert found[rank].tobytes() == local.tobytes(), f"rank {rank}"


@pytest.mark.parametrize("dtype", BYTES_OF_DTYPES.values(), ids=BYTES_OF_DTYPES)
@pytest.mark.parametrize(("source", "target"), MOVES)
@pytest.mark.parametrize("shape", [SHAPE, (6, 0), (3, 8)], ids=str)
def test_moves_of_all_ranks_give_each_its_part(
    source: list[Placement], target: list[Placement], shape: tuple[int, ...], dtype: Any
) -> None:
    whole = counted(shape, dtype)
    mesh = Layout(MESH, ("dp", "tp"))
    found = run_everywhere(mesh(source), mesh(target), shape, locals_of(whole, MESH, source))
    expect_equal(found, locals_of(whole, MESH, target))


def test_ranks_out_of_order_and_one_rank_are_meshes_like_others() -> None:
    whole = counted((5, 2), np.float32)
    mesh = Layout((3,), ("dp",), rank_list=(7, 2, 5))
    parts = list(locals_of(whole, (3,), [Shard(0)]).values())
    found = run_everywhere(mesh([Shard(0)]), mesh([Replicate()]), whole.shape, dict(zip((7, 2, 5), parts, strict=True)))
    expect_equal(found, dict.fromkeys((7, 2, 5), whole))
    alone = Layout((1,), ("dp",))
    for placement in (Shard(0), Partial("avg"), RaggedShard((0,), (5,))):
        found = run_everywhere(alone([placement]), alone([Replicate()]), whole.shape, {0: whole}, "F32")
        expect_equal(found, {0: whole})


def bfloat16_bits(values: Array) -> Array:
    """The nearest bfloat16 of each float, the even one of two, as its bits."""
    bits = values.astype(np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def floats_of_bfloat16(bits: Array) -> Array:
    return (bits.astype(np.uint32) << 16).view(np.float32)


def drawn(dtype: Any, seed: int) -> Array:
    """Integers of their whole range, which wrap, and floats of no round value."""
    draw = np.random.default_rng(seed)
    if np.issubdtype(dtype, np.integer):
        info = np.iinfo(dtype)
        return draw.integers(info.min, info.max, SHAPE, dtype, endpoint=True)
    return (draw.normal(size=SHAPE) * 100).astype(dtype)


def in_member_order(operation: str, shares: list[Array]) -> Array:
    """The shares combined as the library says: one after the other, each step rounded to the dtype."""
    with np.errstate(over="ignore"):
        value = shares[0]
        for share in shares[1:]:
            value = COMBINATIONS[operation](value, share)
        return (value / value.dtype.type(len(shares))).astype(value.dtype) if operation == "avg" else value


REDUCED = {
    "U8": np.uint8,
    "I8": np.int8,
    "I16": np.int16,
    "I32": np.int32,
    "I64": np.int64,
    "F16": np.float16,
    "F32": np.float32,
    "F64": np.float64,
}
COMBINATIONS: dict[str, Callable[[Array, Array], Array]] = {
    "sum": np.add,
    "avg": np.add,
    "max": np.maximum,
    "min": np.minimum,
}
REDUCTIONS = [(name, dtype) for name in COMBINATIONS for dtype in REDUCED if name != "avg" or dtype.startswith("F")]
TARGETS: list[Placement] = [Replicate(), Shard(0), Shard(1), RaggedShard((0,), (2, 0, 1))]


@pytest.mark.parametrize(("operation", "dtype"), REDUCTIONS)
@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_reductions_have_the_bits_of_one_step_after_the_other(operation: str, dtype: str, target: Placement) -> None:
    shares = [drawn(REDUCED[dtype], seed) for seed in range(3)]
    layout = Layout((3,), ("dp",))
    found = run_everywhere(layout([Partial(operation)]), layout([target]), SHAPE, dict(enumerate(shares)), dtype)
    expect_equal(found, locals_of(in_member_order(operation, shares), (3,), [target]))


def test_bfloat16_sums_are_rounded_after_each_term() -> None:
    draw = np.random.default_rng(8)
    shares = [bfloat16_bits(draw.normal(size=SHAPE)) for _ in range(3)]
    expected = shares[0]
    for share in shares[1:]:
        expected = bfloat16_bits(floats_of_bfloat16(expected) + floats_of_bfloat16(share))
    layout = Layout((3,), ("dp",))
    found = run_everywhere(layout([Partial()]), layout([Shard(0)]), SHAPE, dict(enumerate(shares)), "BF16")
    expect_equal(found, locals_of(expected, (3,), [Shard(0)]))


def test_complex_sums_add_part_by_part() -> None:
    shares = [counted(SHAPE, np.complex64) * (1 + 2j * rank) for rank in range(2)]
    layout = Layout((2,), ("dp",))
    found = run_everywhere(layout([Partial()]), layout([Replicate()]), SHAPE, dict(enumerate(shares)), "C64")
    expect_equal(found, dict.fromkeys(range(2), shares[0] + shares[1]))


def test_reductions_over_two_dims_of_unlike_ops_are_done_innermost_first() -> None:
    draw = np.random.default_rng(9)
    shares = {rank: draw.integers(-50, 50, SHAPE).astype(np.float64) for rank in range(6)}
    mesh = Layout(MESH, ("dp", "tp"))
    found = run_everywhere(mesh([Partial("max"), Partial()]), mesh([Shard(0), Replicate()]), SHAPE, shares, "F64")
    sums = [shares[0] + shares[1] + shares[2], shares[3] + shares[4] + shares[5]]
    expect_equal(found, locals_of(np.maximum(*sums), MESH, [Shard(0), Replicate()]))


def test_rank_outside_the_mesh_has_no_step_and_no_elements() -> None:
    layout = Layout((2,), ("dp",))
    plan = _core.plan_redistribution(layout([Shard(0)]), layout([Replicate()]), (4, 2), 5)
    assert (plan.steps, plan.target_shape) == ([], (0,))


def test_equal_layouts_have_no_step_also_where_a_dim_counts_from_the_end() -> None:
    layout = Layout((2,), ("dp",))
    plan = _core.plan_redistribution(layout([Shard(-1)]), layout([Shard(1)]), (4, 3), 1)
    assert (plan.steps, plan.target_shape) == ([], (4, 1))


def test_what_no_plan_does_raises_as_the_planner_does() -> None:
    layout = Layout((2,), ("dp",))
    with pytest.raises(InvalidArgumentError, match=r"nothing but the same Partial becomes Partial\(sum\)"):
        _core.plan_redistribution(layout([Shard(0)]), layout([Partial()]), (4, 2), 0)
    with pytest.raises(OutOfRangeError, match=r"Shard\(3\) is out of range for a tensor of 2 dims"):
        _core.plan_redistribution(layout([Shard(0)]), layout([Shard(3)]), (4, 2), 0)
    with pytest.raises(
        InvalidArgumentError, match=r"local_units sum to 3 but dims \(0,\) of shape \(4, 2\) have 4 cells"
    ):
        _core.plan_redistribution(layout([Shard(0)]), layout([RaggedShard((0,), (1, 2))]), (4, 2), 0)
    with pytest.raises(ArgumentTypeError, match=r"rank is 'a' but must be an int"):
        _core.plan_redistribution(layout([Shard(0)]), layout([Shard(1)]), (4, 2), "a")  # type: ignore[arg-type]


def rows_to_columns() -> _core.RankStep:
    layout = Layout((2,), ("dp",))
    return _core.plan_redistribution(layout([Shard(0)]), layout([Shard(1)]), (4, 4), 0).steps[0]


def sum_of_halves() -> _core.RankStep:
    layout = Layout((2,), ("dp",))
    return _core.plan_redistribution(layout([Partial()]), layout([Shard(0)]), (4,), 0).steps[0]


def test_step_says_what_it_sends_and_receives() -> None:
    step = rows_to_columns()
    assert (step.source_numel, step.target_numel, step.is_reduction) == (8, 8, False)
    assert (step.sends, step.receives) == ([(1, 4)], [(1, 4)])
    assert repr(step).startswith("send to 1: 4 elements")
    assert sum_of_halves().is_reduction


def test_buffers_of_another_size_raise() -> None:
    step, source, message = rows_to_columns(), np.zeros(8, np.float32), np.zeros(4, np.float32)
    text = r"message has 12 bytes but the step has 4 elements of 4 bytes there"
    with pytest.raises(InvalidArgumentError, match=text):
        step.pack(0, source, message[:3], 4)
    with pytest.raises(InvalidArgumentError, match=text):
        step.unpack(0, message[:3], source, 4)
    with pytest.raises(InvalidArgumentError, match=r"source has 32 bytes but the step has 8 elements of 8 bytes there"):
        step.copy_own(source, source.copy(), 8)
    with pytest.raises(InvalidArgumentError, match=r"there are 0 messages but the step receives 1"):
        sum_of_halves().combine(message, [], message[:2].copy(), "F32")


def test_buffers_that_are_no_memory_to_use_raise() -> None:
    step, source, message = rows_to_columns(), np.zeros(16, np.float32), np.zeros(4, np.float32)
    with pytest.raises(ArgumentTypeError, match=r"source is of type numpy\.ndarray but must be contiguous memory"):
        step.pack(0, source[::2], message, 4)
    with pytest.raises(ArgumentTypeError, match=r"message is of type bytes but must be contiguous memory"):
        step.pack(0, source[:8], bytes(16), 4)
    with pytest.raises(InvalidArgumentError, match=r"what is read and what is written share memory"):
        step.copy_own(source[:8], source[4:12], 4)


def test_message_or_kind_of_step_that_is_not_there_raises() -> None:
    source, message = np.zeros(8, np.float32), np.zeros(4, np.float32)
    with pytest.raises(OutOfRangeError, match=r"message 1 is out of range: the step sends 1"):
        rows_to_columns().pack(1, source, message, 4)
    with pytest.raises(InvalidArgumentError, match=r"combine: the step is a move; unpack its messages"):
        rows_to_columns().combine(source, [message], source.copy(), "F32")
    with pytest.raises(InvalidArgumentError, match=r"unpack: the step is a reduction; combine its messages"):
        sum_of_halves().unpack(0, message[:2], message[2:], 4)


@pytest.mark.parametrize(
    ("dtype", "operation", "text"),
    [
        ("BOOL", "sum", "redistribute: the input is bool, which has no sum"),
        ("C64", "max", "redistribute: the input is complex, which has no max"),
        ("I64", "avg", "redistribute: Partial(avg) of I64 has no exact value"),
        ("F8_E5M2", "min", "redistribute: the input is F8_E5M2, which has no min"),
    ],
)
def test_reduction_that_the_dtype_lacks_raises(dtype: str, operation: str, text: str) -> None:
    layout = Layout((2,), ("dp",))
    step = _core.plan_redistribution(layout([Partial(operation)]), layout([Replicate()]), (1,), 0).steps[0]
    with pytest.raises(ArgumentTypeError) as raised:
        step.combine(bytes(8), [bytes(8)], bytearray(8), dtype)
    assert str(raised.value) == text


def test_dtype_of_no_known_name_raises() -> None:
    with pytest.raises(InvalidArgumentError, match=r"dtype 'float32' is not one of BOOL, F4"):
        sum_of_halves().combine(bytes(16), [bytes(8)], bytearray(8), "float32")


def test_gradient_of_a_redistribution_goes_back_through_the_core() -> None:
    layout = Layout((2,), ("dp",))
    source, target = layout([Partial("avg")]), layout([Shard(-1)])
    move = _core.Redistribution(source, target, _core.gradient_layout(target), (4, 2))
    assert (move.is_identity, move.divisor, move.extreme, move.shape) == (False, 2, None, (4, 2))
    assert (move.source, move.target) == (source, layout([Shard(1)]))
    assert [part.target for part in move.parts] == [layout([Shard(1)])]
    assert (move.backward.source, move.backward.target) == (layout([Shard(1)]), layout([Replicate()]))
    assert (move.backward.divisor, move.backward.incoming) == (1, layout([Replicate()]))


def test_unlike_reductions_are_parts_and_a_max_says_how_its_holders_are_counted() -> None:
    mesh = Layout(MESH, ("dp", "tp"))
    whole = mesh([Replicate(), Replicate()])
    parts = _core.Redistribution(mesh([Partial(), Partial("max")]), whole, whole, SHAPE).parts
    between = mesh([Partial(), Replicate()])
    assert [(part.source, part.target) for part in parts] == [
        (mesh([Partial(), Partial("max")]), between),
        (between, whole),
    ]
    extreme = parts[0].extreme
    assert extreme is not None
    assert (extreme.reduced, extreme.counted, extreme.everywhere) == (between, mesh([Partial(), Partial()]), between)
    assert parts[1].extreme is None


def test_gradient_of_a_share_is_used_by_each_rank_for_its_own_cells() -> None:
    mesh = Layout(MESH, ("dp", "tp"))
    use = _core.use_of_gradient(mesh([Partial("avg"), Shard(0)]), SHAPE)
    assert use is not None
    alike = mesh([Replicate(), Shard(0)])
    assert (use.source, use.target, use.incoming) == (alike, alike, mesh([Partial(), Shard(0)]))
    assert _core.use_of_gradient(mesh([Partial("max"), Shard(0)]), SHAPE) is None
    assert _core.use_of_gradient(alike, SHAPE) is None


def test_layouts_of_gradients_from_outside() -> None:
    mesh = Layout(MESH, ("dp", "tp"))
    layout = mesh([Shard(0), Replicate()])
    assert _core.leaving_layout(layout) == mesh([Shard(0), Partial()])
    assert _core.outside_gradient_layout(layout, None, 2) == mesh([Shard(0), Partial()])
    assert _core.outside_gradient_layout(layout, [Shard(-2), Replicate()], 2) == layout
    with pytest.raises(InvalidArgumentError, match=r"grad_placements \[Shard\(0\)\] are 1 but the mesh has 2 dims"):
        _core.outside_gradient_layout(layout, [Shard(0)], 2)
    with pytest.raises(InvalidArgumentError, match=r"grad_placements have Replicate\(\) on mesh dim 'dp' where the"):
        _core.outside_gradient_layout(layout, [Replicate(), Replicate()], 2)


def test_local_shapes_are_checked_as_from_local_does() -> None:
    layout = Layout((2,), ("dp",))
    _core.check_local(layout([Shard(0)]), (5, 2), 0, (3, 2), (2, 1))
    with pytest.raises(InvalidArgumentError, match=r"local has shape \(2, 2\) but rank 0 owns \(3, 2\) of shape"):
        _core.check_local(layout([Shard(0)]), (5, 2), 0, (2, 2), (2, 1))
    with pytest.raises(InvalidArgumentError, match=r"local has stride 2 but with RaggedShard it must be contiguous"):
        _core.check_local(layout([RaggedShard((0,), (1, 3))]), (4, 2), 1, (6,), (2,))
    with pytest.raises(
        InvalidArgumentError, match=r"local has 2 elements but rank 4 is outside the mesh and owns none"
    ):
        _core.check_local(layout([Shard(0)]), (4,), 4, (2,), (1,))


def test_logical_shape_is_known_or_told_by_all() -> None:
    layout = Layout((2,), ("dp",))
    assert _core.known_global_shape(layout([Replicate()]), (3, 2), 1) == (3, 2)
    assert _core.known_global_shape(layout([Shard(0)]), (3, 2), 1) is None
    assert _core.infer_global_shape(layout([Shard(0)]), [(3, 2), (2, 2)]) == (5, 2)
    with pytest.raises(InvalidArgumentError, match=r"from_local: shape is missing but with RaggedShard the logical"):
        _core.known_global_shape(layout([RaggedShard((0,), (1, 1))]), (3,), 0)
    with pytest.raises(InvalidArgumentError, match=r"from_local: rank 0 has a local of shape \(2,\) but owns \(3,\)"):
        _core.infer_global_shape(layout([Shard(0)]), [(2,), (3,)])


@pytest.mark.parametrize("placements", list(itertools.product([Shard(0), Replicate()], repeat=2)), ids=str)
def test_shapes_told_by_all_are_those_of_the_whole(placements: tuple[Placement, ...]) -> None:
    mesh = DeviceMesh(MESH, ("dp", "tp"))
    parts = locals_of(counted((7, 2), np.int8), MESH, list(placements))
    shapes = [part.shape for part in parts.values()]
    assert _core.infer_global_shape(_core.Layout(mesh, placements), shapes) == (7, 2)
