"""Operations on a mesh of 2 of 4 ranks: those outside know dtype, shape and requires_grad, and join no collective."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from hyper_parallel import DeviceMesh, DTensor, Replicate, Shard, distribute_tensor
from support.checks import assert_consistent, assert_equal, assert_raises
from support.normal_checks import Case, as_list, assert_close, strict
from support.normal_forms import ALL_FORMS
from support.operands import letters_of, parse_operands
from support.ranks import ranks
from support.values import numbered
from support.worker import Rank

INSIDE = (1, 3)


def mesh_of_two() -> DeviceMesh:
    return DeviceMesh((2,), ("tp",), list(INSIDE))


@pytest.mark.parametrize("form", list(ALL_FORMS))
@ranks(4)
def test_every_form_tells_ranks_outside_what_the_results_are(rank: Rank, form: str) -> None:
    texts = parse_operands(ALL_FORMS[form].operands)
    case = Case(form, dict.fromkeys(letters_of(texts), 5), (2,), (), (True,) * len(texts))
    plain = case.plain()
    lies = [Shard(0) if text.dims else Replicate() for text in texts]
    given = [distribute_tensor(tensor, mesh_of_two(), [how]) for tensor, how in zip(plain, lies, strict=True)]
    with strict():
        results = as_list(ALL_FORMS[form].run(*given))
    expected = as_list(ALL_FORMS[form].run(*plain))
    assert len(results) == len(expected)
    for result, whole in zip(results, expected, strict=True):
        assert_consistent(result)
        assert (result.dtype, tuple(result.shape)) == (whole.dtype, tuple(whole.shape))
        assert result.requires_grad == whole.requires_grad
        if rank.index in INSIDE:
            assert_close(result.detach().full_tensor(), whole.detach())
        else:
            assert result._local_tensor.numel() == 0


@ranks(4)
def test_a_program_runs_alike_inside_and_outside(rank: Rank) -> None:
    whole = [numbered(shape, torch.float64).cos().requires_grad_() for shape in ((5, 4), (6, 4), (6,))]
    lies = (Shard(0), Shard(0), Replicate())
    x, weight, bias = (distribute_tensor(t, mesh_of_two(), [how]) for t, how in zip(whole, lies, strict=True))
    loss = F.layer_norm(F.linear(x, weight, bias).tanh().softmax(1), (6,)).square().mean()
    assert loss.requires_grad
    loss.backward()
    expected = F.layer_norm(F.linear(*whole).tanh().softmax(1), (6,)).square().mean()
    expected.backward()
    for tensor, plain in zip((x, weight, bias), whole, strict=True):
        if rank.index in INSIDE:
            assert_close(tensor.grad.full_tensor(), plain.grad)


@ranks(4)
def test_a_write_counts_a_version_and_joins_the_graph_outside_too(rank: Rank) -> None:
    mesh = mesh_of_two()
    x = distribute_tensor(numbered((5, 4)), mesh, [Shard(0)])
    row = distribute_tensor(torch.ones(4).requires_grad_(), mesh, [Replicate()])
    version = x._version
    assert x.mul_(row) is x
    assert x._version == version + 1
    assert x.requires_grad
    assert_consistent(x)
    filled = x.detach().masked_fill_(distribute_tensor(torch.tensor([True, False, True, False]), mesh, [Shard(0)]), 2.0)
    assert_consistent(filled)


@ranks(4)
def test_a_wrong_call_raises_on_every_rank(rank: Rank) -> None:
    mesh = mesh_of_two()
    x, y = (distribute_tensor(numbered(shape), mesh, [Shard(0)]) for shape in ((5, 4), (3, 2)))
    assert_raises(ValueError, "the dims that meet have 4 and 3 cells", lambda: x @ y)
    assert_raises(ValueError, "does not broadcast", lambda: x + y)
    flags = distribute_tensor(torch.ones(1).bool(), mesh, [Shard(0)])
    assert_raises(NotImplementedError, "takes a floating or integer dtype, not Bool", lambda: flags.amax(0))
    other = DTensor.from_local(torch.ones(3), DeviceMesh((4,), ("all",)), [Replicate()])
    third = distribute_tensor(numbered((3,)), mesh, [Shard(0)])
    assert_raises(ValueError, "must be equal", lambda: other + third)
    assert_raises(ValueError, "the operands' meshes must be equal", lambda: other @ third)


@ranks(4)
def test_ranks_outside_are_not_waited_for(rank: Rank) -> None:
    x = distribute_tensor(numbered((5, 4)), mesh_of_two(), [Shard(0)])
    if rank.index in INSIDE:
        assert_equal((x.t() @ x).full_tensor(), numbered((5, 4)).t() @ numbered((5, 4)))
