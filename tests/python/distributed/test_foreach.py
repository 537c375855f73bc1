"""The forms on lists that torch's optimizers call: on each element what the single operation does."""

from __future__ import annotations

import pytest
import torch

from hyper_parallel import Replicate, Shard, distribute_tensor
from support import layouts
from support.checks import assert_part, assert_raises, make_mesh
from support.forms import FOREACH_FORMS, FOREACH_IN_PLACE_FORMS, ListForm
from support.normal_checks import strict
from support.ranks import ranks
from support.truth import Spread
from support.worker import Rank

LAYOUTS = ("ragged", "one holder", "sharded")


def plain_lists() -> list[list[torch.Tensor]]:
    steps = torch.arange(24.0).reshape(layouts.SHAPE)
    makers = (lambda i: steps / 4 + i, lambda i: torch.cos(steps + i) + 2, lambda i: torch.sin(steps - i) + 1.5)
    return [[make(i) for i in range(len(LAYOUTS))] for make in makers]


def spread_out(rank: Rank, lists: list[list[torch.Tensor]]) -> list[list[torch.Tensor]]:
    mesh = make_mesh(rank.size)
    placements = [layouts.placement_of(layout, rank.size) for layout in LAYOUTS]
    return [
        [distribute_tensor(tensor, mesh, [placement]) for tensor, placement in zip(row, placements, strict=True)]
        for row in lists
    ]


def check_list(rank: Rank, results: list[torch.Tensor], expected: list[torch.Tensor]) -> None:
    assert len(results) == len(expected) == len(LAYOUTS)
    for layout, result, whole in zip(LAYOUTS, results, expected, strict=True):
        spread = Spread(layouts.SHAPE, (rank.size,), (layouts.placement_of(layout, rank.size),))
        assert_part(result, whole, spread, rank.index, exact=False)


@pytest.mark.parametrize("form", list(FOREACH_FORMS))
@ranks(4)
def test_every_element_is_the_single_operation(rank: Rank, form: str) -> None:
    run: ListForm = FOREACH_FORMS[form]
    check_list(rank, list(run(*spread_out(rank, plain_lists()))), list(run(*plain_lists())))


@pytest.mark.parametrize("form", list(FOREACH_IN_PLACE_FORMS))
@ranks(4)
def test_in_place_forms_change_every_element(rank: Rank, form: str) -> None:
    run: ListForm = FOREACH_IN_PLACE_FORMS[form]
    plain, given = plain_lists(), spread_out(rank, plain_lists())
    before = [(tensor, tensor._version) for tensor in given[0]]
    run(*plain)
    run(*given)
    check_list(rank, given[0], plain[0])
    assert all(tensor._version > version for tensor, version in before)


UNLIKE = (
    (Shard(0), Shard(0), Replicate()),
    (Replicate(), Shard(1), Shard(0)),
    (Shard(1), Shard(0), Shard(0)),
)


def spread_unlike(lists: list[list[torch.Tensor]]) -> list[list[torch.Tensor]]:
    """Normal layouts, of which those of one element differ between the lists."""
    mesh = make_mesh(2)
    return [
        [distribute_tensor(tensor, mesh, [placement]) for tensor, placement in zip(row, placements, strict=True)]
        for row, placements in zip(lists, UNLIKE, strict=True)
    ]


@pytest.mark.parametrize("form", [*FOREACH_FORMS, *FOREACH_IN_PLACE_FORMS])
@ranks(2)
def test_operands_that_lie_unlike_are_laid_out_as_the_single_operation_does(rank: Rank, form: str) -> None:
    run: ListForm = (FOREACH_FORMS | FOREACH_IN_PLACE_FORMS)[form]
    plain, given = plain_lists(), spread_unlike(plain_lists())
    with strict():
        results, expected = run(*given), run(*plain)
    if form in FOREACH_IN_PLACE_FORMS:
        results, expected = given[0], plain[0]
        assert [tensor.placements[0] for tensor in results] == list(UNLIKE[0])
    for result, whole in zip(results, expected, strict=True):
        torch.testing.assert_close(result.full_tensor(), whole)


@ranks(2)
def test_rows_are_broadcast_to_elements_and_gradients_reach_both(rank: Rank) -> None:
    plain, rows = plain_lists()[0], [torch.arange(4.0) + i for i in range(3)]
    given = [tensor.requires_grad_() for tensor in spread_unlike(plain_lists())[0]]
    spread_rows = [distribute_tensor(row, make_mesh(2), [Shard(0)]).requires_grad_() for row in rows]
    products = torch._foreach_mul(given, spread_rows)
    torch.stack([product.sum() for product in products]).sum().backward()
    for x, row, whole, whole_row in zip(given, spread_rows, plain, rows, strict=True):
        torch.testing.assert_close(row.grad.full_tensor(), whole.sum(0))
        torch.testing.assert_close(x.grad.full_tensor(), whole_row.expand_as(whole))


@ranks(2)
def test_a_fault_in_one_element_that_lies_unlike_changes_none(rank: Rank) -> None:
    x, y, _ = spread_unlike(plain_lists())
    before = [tensor._local_tensor.clone() for tensor in x]
    odd = distribute_tensor(torch.ones(5), make_mesh(2), [Shard(0)])
    assert_raises(ValueError, "broadcast", lambda: torch._foreach_add_(x, [y[0], y[1], odd]))
    assert_raises(ValueError, "_foreach_mul_", lambda: torch._foreach_mul_(x, y[:2]))
    enlarging = distribute_tensor(torch.ones(2, *layouts.SHAPE), make_mesh(2), [Replicate()])
    assert_raises(ValueError, "maximum", lambda: torch._foreach_maximum_(x, [y[0], y[1], enlarging]))
    leaves = [*x[:2], x[2].detach().requires_grad_()]
    assert_raises(RuntimeError, "a leaf Variable that requires grad", lambda: torch._foreach_add_(leaves, y))
    integers = [*x[:2], distribute_tensor(plain_lists()[0][2].long(), make_mesh(2), [Replicate()])]
    for change in (torch._foreach_add_, torch._foreach_maximum_):
        with pytest.raises((TypeError, RuntimeError), match=r"can't be cast|Promotion"):
            change(integers, y)
    for tensor, local in zip(x, before, strict=True):
        assert torch.equal(tensor._local_tensor, local)
        assert tensor._version == 0


@ranks(2)
def test_gradients_flow_through_lists(rank: Rank) -> None:
    plain = [tensor.requires_grad_() for tensor in plain_lists()[0]]
    given = [tensor.detach().requires_grad_() for tensor in spread_out(rank, plain_lists())[0]]
    torch.stack([doubled.full_tensor().sum() for doubled in torch._foreach_mul(given, 2.0)]).sum().backward()
    for tensor, whole in zip(given, plain, strict=True):
        torch.testing.assert_close(tensor.grad.full_tensor(), torch.full_like(whole, 2.0 * rank.size))


@ranks(2)
def test_a_fault_in_one_element_changes_none(rank: Rank) -> None:
    x, y, _ = spread_out(rank, plain_lists())
    before = [tensor._local_tensor.clone() for tensor in x]
    unlike = [y[0], y[0], y[2]]
    assert_raises(ValueError, "_foreach_add_", lambda: torch._foreach_add_(x, unlike))
    assert_raises(ValueError, "_foreach_mul_", lambda: torch._foreach_mul_(x, y[:2]))
    for tensor, local in zip(x, before, strict=True):
        assert torch.equal(tensor._local_tensor, local)
        assert tensor._version == 0


@ranks(2)
def test_an_operation_outside_the_list_is_refused(rank: Rank) -> None:
    x, _, _ = spread_out(rank, plain_lists())
    assert_raises(NotImplementedError, "_foreach_norm", lambda: torch._foreach_norm(x))
    assert_raises(NotImplementedError, "_foreach_tanh", lambda: torch._foreach_tanh(x))


@pytest.mark.parametrize("name", ["_foreach_maximum_", "_foreach_minimum_"])
@ranks(2)
def test_extremes_differentiate_where_one_element_lies_unlike(rank: Rank, name: str) -> None:
    mesh = make_mesh(2)
    written = [distribute_tensor(torch.tensor([1.0, 2.0]), mesh, [Replicate()]) for _ in range(2)]
    others = [distribute_tensor(torch.tensor([2.0, 1.0]), mesh, [lies]) for lies in (Shard(0), Replicate())]
    for other in others:
        other.requires_grad_()
    getattr(torch, name)(written, others)
    sum(tensor.full_tensor([Replicate()]).sum() for tensor in written).backward()
    expected = [1.0, 0.0] if name == "_foreach_maximum_" else [0.0, 1.0]
    for other in others:
        assert other.grad is not None
        assert other.grad.full_tensor().tolist() == expected
