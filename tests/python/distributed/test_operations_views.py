"""Views on normal layouts: where nothing moves they share the operand's storage and its place in the graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from hyper_parallel import DTensor, Placement, Replicate, Shard, _torch, distribute_tensor
from support.checks import assert_consistent, assert_equal, assert_raises, gradient_of, make_mesh, whole_of
from support.ranks import ranks
from support.truth import Spread
from support.values import numbered
from support.worker import Rank

# A view, of a tensor of this shape that lies so on 2 ranks.
VIEWS: dict[str, tuple[Callable[[Any], Any], tuple[int, ...], Placement]] = {
    "view": (lambda x: x.view(4, 2, 3), (4, 6), Shard(0)),
    "view of merged rows": (lambda x: x.view(24), (4, 6), Shard(0)),
    "reshape": (lambda x: x.reshape(24), (4, 6), Shard(0)),
    "flatten": (lambda x: x.flatten(), (4, 6), Replicate()),
    "unflatten": (lambda x: x.unflatten(1, (2, 3)), (5, 6), Shard(0)),
    "squeeze": (lambda x: x.squeeze(1), (5, 1, 3), Shard(0)),
    "unsqueeze": (lambda x: x.unsqueeze(0), (5, 3), Shard(1)),
    "transpose": (lambda x: x.transpose(0, 1), (5, 3), Shard(1)),
    "permute": (lambda x: x.permute(1, 2, 0), (5, 3, 2), Shard(0)),
    "t": (lambda x: x.t(), (5, 3), Shard(0)),
    "select": (lambda x: x.select(1, 2), (5, 3), Shard(0)),
    "narrow": (lambda x: x.narrow(1, 1, 2), (5, 3), Shard(0)),
    "slice": (lambda x: x[:, 1:], (5, 3), Shard(0)),
    "an int and a slice": (lambda x: x[..., 0:2, 1], (5, 3, 2), Shard(0)),
    "a piece of split": (lambda x: x.split(2, 1)[1], (5, 3), Shard(0)),
    "a piece of chunk": (lambda x: x.chunk(2, 1)[0], (5, 3), Shard(0)),
    "a piece of unbind": (lambda x: x.unbind(1)[1], (5, 3), Shard(0)),
}


def make(view: str, *, requires_grad: bool = False) -> tuple[DTensor, torch.Tensor]:
    _, shape, placement = VIEWS[view]
    whole = numbered(shape, torch.float64).requires_grad_(requires_grad)
    return distribute_tensor(whole, make_mesh(2), [placement]), whole


@pytest.mark.parametrize("view", list(VIEWS))
@ranks(2)
def test_a_write_through_the_view_is_seen_in_the_base(rank: Rank, view: str) -> None:
    x, whole = make(view)
    version = x._version
    VIEWS[view][0](x).mul_(10).add_(1)
    VIEWS[view][0](whole).mul_(10).add_(1)
    assert_consistent(x)
    assert_equal(whole_of(x), whole)
    assert x._version == version + 2


@pytest.mark.parametrize("view", list(VIEWS))
@ranks(2)
def test_a_write_to_the_base_is_seen_in_the_view(rank: Rank, view: str) -> None:
    x, whole = make(view)
    seen, expected = VIEWS[view][0](x), VIEWS[view][0](whole)
    x.mul_(-2)
    whole.mul_(-2)
    assert_equal(whole_of(seen), expected)
    assert seen._version == x._version


@pytest.mark.parametrize("view", [view for view in VIEWS if not view.startswith("a piece")])
@ranks(2)
def test_a_write_through_the_view_is_in_the_graph_of_the_base(rank: Rank, view: str) -> None:
    leaf, plain = make(view, requires_grad=True)
    results = []
    for tensor in (leaf, plain):
        base = tensor * 3
        VIEWS[view][0](base).mul_(-0.5)
        results.append(base)
    assert_consistent(results[0])
    weight = torch.cos(numbered(tuple(plain.shape), torch.float64))
    (results[0].full_tensor([Replicate()]) * weight).sum().backward()
    (results[1] * weight).sum().backward()
    assert plain.grad is not None
    spread = Spread(tuple(plain.shape), (2,), leaf.placements)
    torch.testing.assert_close(gradient_of(leaf)._local_tensor, spread.part(plain.grad, rank.index))


@ranks(2)
def test_a_piece_of_several_views_is_not_written_in_a_graph_as_in_torch(rank: Rank) -> None:
    leaf, plain = make("a piece of split", requires_grad=True)
    for tensor in (leaf, plain):
        with pytest.raises(RuntimeError, match="is a view and is being modified inplace"):
            (tensor * 3).split(2, 1)[0].mul_(2)


@ranks(4)
def test_strides_that_no_view_fits_raise_on_ranks_without_cells_too(rank: Rank) -> None:
    x = distribute_tensor(numbered((5, 3, 4)), make_mesh(4), [Shard(0)])
    with pytest.raises(RuntimeError, match="view size is not compatible"):
        x.transpose(1, 2).view(5, 12)
    assert_equal(x.transpose(1, 2).reshape(5, 12).full_tensor(), numbered((5, 3, 4)).transpose(1, 2).reshape(5, 12))
    assert_equal(x.transpose(1, 2).unsqueeze(1).full_tensor(), numbered((5, 3, 4)).transpose(1, 2).unsqueeze(1))


@ranks(2)
def test_a_view_of_what_had_to_move_is_not_written(rank: Rank) -> None:
    x = distribute_tensor(numbered((5, 3)), make_mesh(2), [Shard(0)])
    for moved in (x.view(15), x.narrow(0, 1, 2), x.split(2)[0], x[1:3]):
        assert_raises(ValueError, "a view of a tensor that was redistributed for it", lambda view=moved: view.zero_())
        moved.clone().zero_()
    assert_equal(whole_of(x), numbered((5, 3)))


IN_PLACE = [
    name
    for name in _torch.operation_names()
    if name.endswith("_") and not name.startswith(("_", "normal_", "uniform_"))
]


def arguments_of(operation: str) -> tuple[Any, ...]:
    """What an in-place operation takes beside a tensor of shape (1, 2)."""
    other = torch.full((1, 2), 0.5)
    choices: list[tuple[Any, ...]] = [(), (other,), (0.25,), (other, other), (other > 0, 2.0), (other, 0.5)]
    for choice in choices:
        try:
            getattr(torch.ops.aten, operation)(torch.full((1, 2), 0.5), *choice)
        except (TypeError, RuntimeError):
            continue
        return choice
    raise AssertionError(f"a test knows no arguments of {operation}")


@pytest.mark.parametrize("operation", IN_PLACE)
@ranks(2)
def test_no_operation_writes_a_view_of_what_had_to_move(rank: Rank, operation: str) -> None:
    base = distribute_tensor(torch.full((2, 2), 0.5), make_mesh(2), [Shard(0)])
    view = base.narrow(0, 0, 1)
    arguments = [
        distribute_tensor(value, make_mesh(2), [Replicate()]) if isinstance(value, torch.Tensor) else value
        for value in arguments_of(operation)
    ]
    assert_raises(ValueError, "would write to a view", lambda: _torch.call(operation, view, *arguments))
    assert base.full_tensor().eq(0.5).all()
