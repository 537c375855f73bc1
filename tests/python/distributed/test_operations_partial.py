"""Pending reductions before operations on normal layouts: kept where the operation commutes with them, else refused."""

from __future__ import annotations

import pytest
import torch

from hyper_parallel import DTensor, Partial, Replicate, Shard, distribute_tensor
from support.checks import assert_raises, make_mesh
from support.normal_checks import Case, as_list, assert_close, assert_lies_right, strict
from support.normal_forms import ALL_FORMS, EVERY, names_of
from support.operands import letters_of, parse_operands
from support.ranks import ranks
from support.truth import Shares, Spread
from support.worker import Rank

PENDING_GROUPS = ("products", "reductions", "along a dim", "attention", "losses", "shapes", "pieces")
REFUSED = "does not commute with the pending reduction of argument"
SIZES = {letter: 4 for letter in "abcdels"}


def make_pending(rank: Rank, whole: torch.Tensor, operation: str, seed: int) -> tuple[DTensor, torch.Tensor]:
    """A tensor of pending shares, and its value; integers stay indices that fit."""
    spread = Spread(tuple(whole.shape), (2,), (Partial(operation),))
    if whole.is_floating_point():
        offset = torch.randn((2, *whole.shape), generator=torch.Generator().manual_seed(seed), dtype=whole.dtype)
        shares = Shares(spread, whole.detach() + offset)
    else:
        shares = Shares(spread, torch.stack([whole, torch.zeros_like(whole)]))
    local = shares.of(rank.index).clone().requires_grad_(whole.requires_grad)
    return DTensor.from_local(local, make_mesh(2), [Partial(operation)]), shares.value()


def operands_of(rank: Rank, form: str, operation: str, pending: set[int]) -> tuple[list[DTensor], list[torch.Tensor]]:
    texts = parse_operands(ALL_FORMS[form].operands)
    sizes = {letter: SIZES[letter] for letter in letters_of(texts)}
    plain = Case(form, sizes, (2,), (), (True,) * len(texts)).plain()
    given, whole = [], []
    for index, tensor in enumerate(plain):
        if index in pending:
            made, value = make_pending(rank, tensor, operation, index)
        else:
            made, value = distribute_tensor(tensor, make_mesh(2), [Replicate()]), tensor
        given.append(made)
        whole.append(value.detach().clone().requires_grad_(tensor.requires_grad))
    return given, whole


def check_pending(rank: Rank, form: str, operation: str, pending: set[int], *, passes: bool) -> None:
    given, whole = operands_of(rank, form, operation, pending)
    with strict():
        if not passes:
            assert_raises(ValueError, REFUSED, lambda: ALL_FORMS[form].run(*given))
            return
        results = as_list(ALL_FORMS[form].run(*given))
    expected = as_list(ALL_FORMS[form].run(*whole))
    for result, value in zip(results, expected, strict=True):
        assert result.placements == (Partial(operation),)
        assert_lies_right(result, rank.index)
        assert_close(result.detach().full_tensor(), value.detach())
    differentiable = [index for index, value in enumerate(expected) if value.requires_grad]
    if not differentiable:
        return
    sum(results[i].full_tensor([Replicate()]).sum() for i in differentiable).backward()
    sum(expected[i].sum() for i in differentiable).backward()
    for index, (tensor, plain) in enumerate(zip(given, whole, strict=True)):
        if index not in pending and plain.grad is not None:
            assert_close(tensor.grad.full_tensor(), plain.grad)


def passing(form: str, operand: int) -> tuple[str, ...]:
    """The reductions of one operand that the form lets through; integers and flags have none but what it says."""
    allowed = ALL_FORMS[form].pending_one
    return allowed[operand] if operand < len(allowed) else ()


@pytest.mark.parametrize("operation", EVERY)
@pytest.mark.parametrize("form", names_of(*PENDING_GROUPS))
@ranks(2)
def test_one_pending_operand_stays_pending_or_raises(rank: Rank, form: str, operation: str) -> None:
    for index, text in enumerate(parse_operands(ALL_FORMS[form].operands)):
        if text.values == "bool" or (not text.is_float and operation == "avg"):
            continue  # no such reduction of the dtype
        passes = operation in passing(form, index)
        check_pending(rank, form, operation, {index}, passes=passes)


@pytest.mark.parametrize("operation", EVERY)
@pytest.mark.parametrize("form", names_of(*PENDING_GROUPS))
@ranks(2)
def test_operands_pending_alike_stay_pending_or_raise(rank: Rank, form: str, operation: str) -> None:
    texts = parse_operands(ALL_FORMS[form].operands)
    if len(texts) > 1 and all(text.is_float for text in texts):
        passes = operation in ALL_FORMS[form].pending_all
        check_pending(rank, form, operation, set(range(len(texts))), passes=passes)


@ranks(2)
def test_a_sum_to_another_dtype_is_no_sum_of_shares(rank: Rank) -> None:
    pending = DTensor.from_local(torch.full((3,), 0.5), make_mesh(2), [Partial("sum")])
    for dtype in (torch.int64, torch.float64):
        assert_raises(ValueError, REFUSED, lambda dtype=dtype: pending.sum(dtype=dtype))
        assert_raises(ValueError, REFUSED, lambda dtype=dtype: pending.mean(dtype=dtype))
    reduced = pending.redistribute(placements=[Replicate()])
    assert reduced.sum(dtype=torch.int64).full_tensor() == 3


@ranks(4)
def test_a_pending_mesh_dim_beside_a_cut_one_has_the_whole_mean(rank: Rank) -> None:
    mesh = make_mesh(2, 2)
    spread = Spread((3, 5), (2, 2), (Partial("sum"), Shard(1)))
    shares = Shares(spread, torch.randn((2, 3, 5), generator=torch.Generator().manual_seed(1), dtype=torch.float64))
    local = spread.part(shares.of(rank.index), rank.index)
    x = DTensor.from_local(local, mesh, list(spread.placements), shape=(3, 5))
    result = x.mean(1)
    assert result.placements == (Partial("sum"), Partial("sum"))
    assert_close(result.full_tensor(), shares.value().mean(1))
    assert_close(x.sum().full_tensor(), shares.value().sum())


@ranks(4)
def test_a_pending_mesh_dim_beside_an_empty_part_has_the_whole_extreme(rank: Rank) -> None:
    mesh = make_mesh(2, 2)
    spread = Spread((3, 1), (2, 2), (Partial("max"), Shard(1)))
    values = -1 - torch.rand((2, 3, 1), generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    shares = Shares(spread, values)
    x = DTensor.from_local(spread.part(shares.of(rank.index), rank.index), mesh, list(spread.placements), shape=(3, 1))
    result = x.amax(1)
    assert result.placements == (Partial("max"), Partial("max"))
    assert_close(result.full_tensor(), shares.value().amax(1))
