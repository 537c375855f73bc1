"""Operations on ranks whose part has no cells, and on ranks outside the mesh: the dtypes, refusals and results of all.

torch's kernels refuse what they find a cell of; a rank that finds none must not go on to a collective alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from hyper_parallel import DTensor, Placement, Replicate, Shard, distribute_tensor
from support.checks import make_mesh
from support.ranks import ranks
from support.worker import Rank

Call = Callable[[DTensor], Any]


def spread(tensor: torch.Tensor, *placements: Placement) -> DTensor:
    """Over ranks 0 and 1; further ranks are outside the mesh."""
    return distribute_tensor(tensor, make_mesh(2), list(placements or (Shard(0),)))


REFUSED: dict[str, tuple[torch.Tensor, Call]] = {
    "softmax of bool": (torch.tensor([[True, False]]), lambda x: x.softmax(1)),
    "log_softmax of int": (torch.tensor([[1, 2]]), lambda x: x.log_softmax(1)),
    "matmul of bool": (torch.tensor([[True, False]]), lambda x: x @ spread(torch.ones(2, 2).bool(), Replicate())),
    "norm of int": (torch.tensor([[1, 2]]), torch.linalg.vector_norm),
    "list of norms of int": (torch.tensor([[1, 2]]), lambda x: torch._foreach_norm([x])),
    "floor_divide by zero": (torch.tensor([[7]]), lambda x: x // 0),
    "remainder by zero": (torch.tensor([[7]]), lambda x: x % 0),
    "remainder by a tensor of zero": (torch.tensor([[7]]), lambda x: torch.remainder(x, torch.tensor(0))),
    "fmod by zero": (torch.tensor([[7]]), lambda x: torch.fmod(x, 0)),
    "div by zero, rounded": (torch.tensor([[7]]), lambda x: torch.div(x, 0, rounding_mode="floor")),
    "bitwise_or of float": (torch.tensor([[1.5]]), lambda x: x | 3),
    "l1_loss of int": (torch.tensor([1, 2, 3]), lambda x: F.l1_loss(x, x)),
}


@pytest.mark.parametrize("case", list(REFUSED))
@ranks(2, 3)
def test_what_a_kernel_refuses_raises_on_every_rank(rank: Rank, case: str) -> None:
    whole, call = REFUSED[case]
    with pytest.raises(Exception, match=r".") as caught:
        call(spread(whole))
    assert not isinstance(caught.value, AssertionError)


@pytest.mark.parametrize("order", [1, 2, 3.5, math.inf])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64, torch.complex128])
@pytest.mark.parametrize("size", [0, 1, 5])
@ranks(2, 3)
def test_norms_have_one_dtype_on_all_ranks(rank: Rank, order: float, dtype: torch.dtype, size: int) -> None:
    whole = (torch.arange(2.0 * size).reshape(size, 2) - 1).to(dtype)
    x = spread(whole.clone())
    for dims in (None, 0, 1):
        if size == 0 and order == math.inf and dims != 1:
            continue  # torch has no such norm
        expected = torch.linalg.vector_norm(whole, order, dims)
        given = torch.linalg.vector_norm(x, order, dims)
        assert given.dtype == expected.dtype
        assert tuple(given.shape) == tuple(expected.shape)
        if rank.index < 2:
            torch.testing.assert_close(given.full_tensor(), expected)
    if size > 0:
        (listed,) = torch._foreach_norm([x], order)
        assert listed.dtype == torch.linalg.vector_norm(whole, order).dtype


@ranks(2, 3)
def test_norms_take_a_dtype_on_all_ranks(rank: Rank) -> None:
    x = spread(torch.ones(1, 2))
    for layout in ([Shard(0)], [Replicate()]):
        given = torch.linalg.vector_norm(x.redistribute(placements=layout), dtype=torch.float64)
        assert given.dtype == torch.float64


@ranks(2, 3)
def test_norms_differentiate_on_ranks_without_cells(rank: Rank) -> None:
    for dtype in (torch.float64, torch.complex128):
        for order in (2, math.inf):
            x = spread(torch.tensor([[3.0, 4.0]], dtype=dtype)).requires_grad_()
            plain = torch.tensor([[3.0, 4.0]], dtype=dtype, requires_grad=True)
            torch.linalg.vector_norm(x, order).full_tensor([Replicate()]).sum().backward()
            torch.linalg.vector_norm(plain, order).backward()
            if rank.index < 2:
                torch.testing.assert_close(x.grad.full_tensor(), plain.grad)


@pytest.mark.parametrize("placement", [Replicate(), Shard(1)], ids=str)
@ranks(2, 3)
def test_no_pieces_are_an_empty_tuple(rank: Rank, placement: Placement) -> None:
    x = spread(torch.zeros(0, 3), placement)
    assert x.unbind(0) == ()
    assert tuple(x.split([])) == ()
    assert tuple(torch.split_with_sizes(x, [])) == ()
    assert list(x) == []


@ranks(3)
def test_elements_of_no_dims_have_one_dtype_on_all_ranks(rank: Rank) -> None:
    element, row = spread(torch.ones(()), Replicate()), spread(torch.ones(2))
    wide = torch.ones((), dtype=torch.float64)
    for given, expected in (
        (element + wide, torch.float64),
        (torch.maximum(element, wide), torch.float64),
        (element * element, torch.float32),
        (row + element, torch.float32),
        (row.int() * element, torch.float32),
        (element.int() + row.bfloat16(), torch.bfloat16),
    ):
        assert given.dtype == expected
        if rank.index == 2:
            assert given._local_tensor.shape == (0,)
    filled = element.clone().fill_(element)
    assert tuple(filled.shape) == ()
    (sums,) = torch._foreach_add([row], element)
    torch._foreach_mul_([row], element * 2)
    if rank.index < 2:
        assert sums.full_tensor().tolist() == [2, 2]
        assert row.full_tensor().tolist() == [2, 2]


@ranks(3)
def test_elements_of_no_dims_differentiate_on_all_ranks(rank: Rank) -> None:
    element = spread(torch.full((), 3.0), Replicate()).requires_grad_()
    (element * element + torch.ones((), dtype=torch.float64)).full_tensor([Replicate()]).sum().backward()
    assert element.grad is not None
    if rank.index < 2:
        assert element.grad.full_tensor() == 6


@pytest.mark.parametrize("bound", [torch.float64, torch.bfloat16, torch.int64], ids=str)
@pytest.mark.parametrize("dtype", [torch.int64, torch.float32, torch.bfloat16], ids=str)
@ranks(2)
def test_clamp_promotes_bounds_without_dims_as_torch(rank: Rank, dtype: torch.dtype, bound: torch.dtype) -> None:
    whole, limit = torch.tensor([1, 2, 3]).to(dtype), torch.tensor(1.6).to(bound)
    x = spread(whole)
    for call in (
        lambda x: torch.clamp(x, limit),
        lambda x: torch.clamp(x, max=limit),
        lambda x: torch.clamp_min(x, limit),
        lambda x: torch.clamp_max(x, limit),
    ):
        expected = call(whole)
        given = call(x)
        assert given.dtype == expected.dtype
        torch.testing.assert_close(given.full_tensor(), expected)


@pytest.mark.parametrize("loss", [F.binary_cross_entropy, F.binary_cross_entropy_with_logits])
@ranks(2)
def test_losses_refuse_a_target_that_would_broadcast(rank: Rank, loss: Callable[..., DTensor]) -> None:
    x, target = spread(torch.full((2,), 0.5)), spread(torch.ones(1), Replicate())
    with pytest.raises(ValueError, match="target has shape"):
        loss(x, target)


@ranks(2)
def test_kl_div_of_no_dims_is_torchs(rank: Rank) -> None:
    x = torch.full((), 0.5)
    given = F.kl_div(spread(x, Replicate()), spread(x, Replicate()), reduction="batchmean")
    torch.testing.assert_close(given.full_tensor(), F.kl_div(x, x, reduction="batchmean"))


@ranks(2, 3)
def test_what_runs_on_ranks_with_cells_runs_on_all(rank: Rank) -> None:
    numbers = spread(torch.tensor(6), Replicate())
    assert torch.div(numbers, numbers, rounding_mode="trunc").dtype == torch.int64
    assert tuple((numbers // numbers).shape) == ()
    (root,) = torch._foreach_sqrt([spread(torch.ones(()), Replicate())])
    assert tuple(root.shape) == ()
    row = spread(torch.ones(1))
    row.lerp_(spread(torch.full((1,), 3.0), Replicate()), torch.tensor([0.5]))
    (norm,) = torch._foreach_norm([row])
    assert norm._local_tensor.shape == (() if rank.index < 2 else (0,))
    if rank.index < 2:
        assert row.full_tensor() == 2
        assert norm.full_tensor() == 2


@ranks(3)
def test_a_view_of_what_had_to_move_is_not_written_outside_either(rank: Rank) -> None:
    view = spread(torch.ones(2, 2)).narrow(0, 0, 1)
    for write in (view.ceil_, view.zero_, lambda: view.add_(1)):
        with pytest.raises(ValueError, match="would write to a view"):
            write()
