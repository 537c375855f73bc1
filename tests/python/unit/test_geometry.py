"""What a rank owns, and what a redistribution costs: the core's geometry seen from Python."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

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


def on(size: int, placement: Placement) -> Layout:
    return Layout((size,), ("dp",))([placement])


def shapes(layout: Layout, shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    return [_core.local_shape(layout, shape, position) for position in range(layout.mesh.size())]


def intervals(layout: Layout, shape: tuple[int, ...]) -> list[tuple[int, int] | None]:
    return [_core.owned_interval(layout, shape, position) for position in range(layout.mesh.size())]


def offsets(layout: Layout, shape: tuple[int, ...], dim: int) -> list[int]:
    boxes = [_core.owned_boxes(layout, shape, position) for position in range(layout.mesh.size())]
    return [box[0][0][dim] for box in boxes if box]


def test_example_of_the_specification() -> None:
    layout = on(2, RaggedShard((0, 1), (1, 2)))
    assert intervals(layout, (6, 4, 8)) == [(0, 64), (64, 192)]
    assert shapes(layout, (6, 4, 8)) == [(64,), (128,)]
    assert _core.owned_boxes(layout, (6, 4, 8), 0) == [((0, 0, 0), (2, 4, 8))]
    assert _core.owned_boxes(layout, (6, 4, 8), 1) == [((2, 0, 0), (4, 4, 8))]


def test_case05_empty_and_nested_uneven_shards() -> None:
    rows = on(4, Shard(0))
    assert shapes(rows, (5, 10)) == [(2, 10), (2, 10), (1, 10), (0, 10)]
    assert offsets(rows, (5, 10), 0) == [0, 2, 4]
    nested = Layout((2, 2), ("a", "b"))([Shard(0), Shard(0)])
    assert shapes(nested, (5, 3)) == [(2, 3), (1, 3), (1, 3), (1, 3)]
    assert offsets(nested, (5, 3), 0) == [0, 2, 3, 4]
    assert intervals(on(4, RaggedShard((0,), (0, 3, 0, 1))), (4,)) == [(0, 0), (0, 3), (3, 3), (3, 4)]


def test_case38_interval_as_boxes() -> None:
    layout = on(3, RaggedShard((0, 1, 2), (7, 46, 7)))
    assert intervals(layout, (3, 4, 5)) == [(0, 7), (7, 53), (53, 60)]
    assert _core.owned_boxes(layout, (3, 4, 5), 1) == [
        ((0, 1, 2), (1, 1, 3)),
        ((0, 2, 0), (1, 2, 5)),
        ((1, 0, 0), (1, 4, 5)),
        ((2, 0, 0), (1, 2, 5)),
        ((2, 2, 0), (1, 1, 3)),
    ]
    units = on(4, RaggedShard((0, 1), (0, 3, 1, 2)))
    assert [_core.owned_boxes(units, (3, 4, 2), position) for position in range(4)] == [
        [],
        [((0, 0, 0), (1, 4, 2)), ((1, 0, 0), (1, 2, 2))],
        [((1, 2, 0), (1, 2, 2))],
        [((2, 0, 0), (1, 4, 2))],
    ]


def test_columns_are_no_run_of_the_flat_tensor() -> None:
    layout = on(2, Shard(1))
    assert intervals(layout, (2, 4)) == [None, None]
    assert _core.owned_boxes(layout, (2, 4), 1) == [((0, 2), (2, 2))]
    assert intervals(on(2, Replicate()), (2, 4)) == [(0, 8), (0, 8)]


def test_zero_size_and_zero_dims() -> None:
    assert shapes(on(2, RaggedShard((0,), (1, 1))), (0, 4)) == [(0,), (0,)]
    assert shapes(on(2, Shard(1)), (4, 0)) == [(4, 0), (4, 0)]
    assert shapes(on(2, Replicate()), ()) == [(), ()]
    assert _core.owned_boxes(on(2, Replicate()), (), 0) == [((), ())]


@given(data=st.data())
def test_boxes_of_all_ranks_cover_each_cell_once(data: Any) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    dims = data.draw(st.integers(1, len(shape)))
    cells = math.prod(shape[:dims])
    cuts = sorted(data.draw(st.lists(st.integers(0, cells), min_size=2, max_size=2)))
    units = (cuts[0], cuts[1] - cuts[0], cells - cuts[1])
    layout = on(3, RaggedShard(tuple(range(dims)), units))
    flat: list[int] = []
    for position in range(3):
        boxes = _core.owned_boxes(layout, shape, position)
        assert len(boxes) <= 2 * len(shape) - 1
        for start, sizes in boxes:
            flat += [
                sum(
                    (start[d] + index // math.prod(sizes[d + 1 :]) % sizes[d]) * math.prod(shape[d + 1 :])
                    for d in range(len(shape))
                )
                for index in range(math.prod(sizes))
            ]
    assert flat == list(range(math.prod(shape)))


@pytest.mark.parametrize(
    ("shape", "position", "error", "text"),
    [
        ((6, 4), 2, OutOfRangeError, "position 2 is out of range for a mesh of 2 ranks"),
        ((6, 4), -1, OutOfRangeError, "position -1 is out of range for a mesh of 2 ranks"),
        ((6, 4), True, ArgumentTypeError, "position is True but must be an int"),
        ((6, -4), 0, InvalidArgumentError, "global shape (6, -4) has the negative size -4"),
        ((6, 4.0), 0, ArgumentTypeError, "shape[1] is 4.0 but must be an int"),
        ((6, 2**63), 0, InvalidArgumentError, "shape[1] is 9223372036854775808, which does not fit in int64"),
        (6, 0, ArgumentTypeError, "shape is 6 but must be a tuple of ints"),
        (
            (6,),
            0,
            InvalidArgumentError,
            "RaggedShard dims (0, 1) are more than the tensor's 1 dims",
        ),
        (
            (5, 4, 8),
            0,
            InvalidArgumentError,
            "RaggedShard local_units sum to 3 but dims (0, 1) of shape (5, 4, 8) have 20 cells, which must be a "
            "multiple of it",
        ),
    ],
)
def test_what_does_not_fit_raises(shape: Any, position: Any, error: type[Exception], text: str) -> None:
    layout = on(2, RaggedShard((0, 1), (1, 2)))
    for question in (_core.local_shape, _core.owned_boxes, _core.owned_interval):
        with pytest.raises(error) as raised:
            question(layout, shape, position)
        assert str(raised.value) == text


def test_traffic_of_a_move_is_its_lower_bound() -> None:
    source = on(2, RaggedShard((0,), (1, 3)))
    traffic = _core.plan_traffic(source, source([RaggedShard((0,), (3, 1))]), (8, 2))
    assert (traffic.total_received, traffic.lower_bound, traffic.max_received, traffic.rounds) == (8, 8, 8, 1)
    assert repr(traffic) == "MeshTraffic(total_received=8, max_received=8, lower_bound=8, rounds=1)"
    assert _core.plan_traffic(source, source, (8, 2)).rounds == 0


def test_plan_reads_as_text() -> None:
    source = on(2, RaggedShard((0,), (1, 3)))
    text = _core.plan_text(source, source([Shard(0)]), (8, 2))
    assert "RaggedShard((0,), (1, 3))" in text
    assert "all_to_all" in text


def test_plan_to_partial_raises() -> None:
    layout = Layout.from_device_mesh(DeviceMesh((2,), ("dp",)))
    with pytest.raises(InvalidArgumentError, match="Partial"):
        _core.plan_text(layout, layout([Partial()]), (4,))
