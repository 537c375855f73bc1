"""Each whitelisted operation in each of torch's forms is plain torch on the whole tensor, forward and backward."""

from __future__ import annotations

import pytest
import torch

from hyper_parallel import DTensor, RaggedShard, Replicate, distribute_tensor
from support import layouts
from support.checks import assert_part, gradient_of, make_mesh
from support.forms import FORMS, IN_PLACE_FORMS, Form
from support.ranks import ranks
from support.truth import Spread
from support.worker import Rank


def operands() -> list[torch.Tensor]:
    """Three tensors of both signs, the first with a zero, the others without."""
    steps = torch.arange(24.0).reshape(layouts.SHAPE)
    return [(steps - 11) / 2, torch.cos(steps) + 2, torch.sin(steps) - 1.5]


def weight(index: int) -> torch.Tensor:
    """Of the loss of rank `index`."""
    return torch.arange(24.0).reshape(layouts.SHAPE) * (index + 1) - 7


def check_form(rank: Rank, form: Form, layout: str, *, others_replicated: bool) -> None:
    mesh = make_mesh(rank.size)
    placement = layouts.placement_of(layout, rank.size)
    spread = Spread(layouts.SHAPE, (rank.size,), (placement,))
    plain = [tensor.requires_grad_() for tensor in operands()]
    kinds = [placement] + [Replicate() if others_replicated else placement] * 2
    given = [distribute_tensor(tensor, mesh, [kind]) for tensor, kind in zip(plain, kinds, strict=True)]
    expected = form(*plain)
    result = form(*given)
    assert_part(result, expected, spread, rank.index, exact=False)
    assert result.requires_grad == expected.requires_grad
    if not expected.requires_grad:
        return
    total = torch.stack([weight(index) for index in range(rank.size)]).sum(0)
    (expected * total).sum().backward()
    assert isinstance(result, DTensor)
    (result.full_tensor() * weight(rank.index)).sum().backward()
    for whole, tensor, kind in zip(plain, given, kinds, strict=True):
        assert (whole.grad is None) == (tensor.grad is None)
        if whole.grad is not None:
            own = Spread(layouts.SHAPE, (rank.size,), (kind,)).part(whole.grad, rank.index)
            torch.testing.assert_close(gradient_of(tensor)._local_tensor, own, equal_nan=True)


@pytest.mark.parametrize("form", list(FORMS))
@ranks(2)
def test_every_layout_is_plain_torch(rank: Rank, form: str) -> None:
    for layout in layouts.ALL:
        check_form(rank, FORMS[form], layout, others_replicated=False)


@pytest.mark.parametrize("form", list(FORMS))
@ranks(4)
def test_replicated_operands_beside_a_ragged_one_are_sliced(rank: Rank, form: str) -> None:
    for layout in layouts.RAGGED:
        check_form(rank, FORMS[form], layout, others_replicated=True)


@pytest.mark.parametrize("form", list(IN_PLACE_FORMS))
@ranks(2)
def test_in_place_forms_have_the_values_and_gradients_of_plain_torch(rank: Rank, form: str) -> None:
    def on_a_copy(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        return IN_PLACE_FORMS[form](x.clone(), y, z)

    for layout in layouts.ALL:
        check_form(rank, on_a_copy, layout, others_replicated=False)
        if layout in layouts.RAGGED:
            check_form(rank, on_a_copy, layout, others_replicated=True)


@pytest.mark.parametrize("form", list(IN_PLACE_FORMS))
@ranks(2)
def test_in_place_forms_return_the_same_object_and_count_a_version(rank: Rank, form: str) -> None:
    placement = layouts.placement_of("one holder", rank.size)
    x, y, z = (distribute_tensor(tensor, make_mesh(rank.size), [placement]) for tensor in operands())
    local, before = x._local_tensor, x._version
    assert IN_PLACE_FORMS[form](x, y, z) is x
    assert x._local_tensor is local
    assert x._version == local._version > before


@ranks(2)
def test_the_first_ragged_operand_gives_the_layout(rank: Rank) -> None:
    mesh = make_mesh(2)
    whole = operands()[0]
    rows = distribute_tensor(whole, mesh, [layouts.placement_of("ragged", 2)])
    cells = distribute_tensor(whole, mesh, [RaggedShard((0, 1), (8, 16))])
    plain = distribute_tensor(whole, mesh, [Replicate()])
    for operand, other, expected in ((rows, cells, rows), (cells, rows, cells), (plain, cells, cells)):
        for result in (operand + other, operand * other, torch.maximum(operand, other)):
            assert isinstance(result, DTensor)
            assert result.placements == expected.placements


@ranks(2)
def test_a_number_keeps_its_class_in_type_promotion(rank: Rank) -> None:
    mesh = make_mesh(2)
    for layout in layouts.ALL:
        placement = layouts.placement_of(layout, 2)
        for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.bool):
            whole = operands()[0].to(dtype)
            x = distribute_tensor(whole, mesh, [placement])
            spread = Spread(layouts.SHAPE, (2,), (placement,))
            others = [2, 2.5, True, torch.tensor(2), torch.tensor(2.5, dtype=torch.float64)]
            others += [torch.tensor([2]), torch.tensor([[2.5]], dtype=torch.float64)]
            for other in others:
                assert_part(x + other, whole + other, spread, rank.index)
                assert_part(x * other, whole * other, spread, rank.index)
                assert_part(x / other, whole / other, spread, rank.index)
                assert_part(x == other, whole == other, spread, rank.index)
