"""Cases from public fault reports about gradients of collectives and of redistribution."""

from __future__ import annotations

from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

from hyper_parallel import (
    DTensor,
    HyperParallelError,
    Partial,
    Placement,
    RaggedShard,
    Replicate,
    Shard,
    distribute_tensor,
)
from hyper_parallel.platform import differentiable_all_to_all_single, differentiable_variable_all_gather
from support.checks import assert_equal, assert_raises, gradient_of, make_mesh
from support.ranks import ranks
from support.worker import Rank

SPLITS = [2, 0, 4, 0]


def world() -> dist.ProcessGroup:
    group = dist.group.WORLD
    assert group is not None
    return group


def weighted_sum(rank: Rank, *, leave: bool) -> tuple[DTensor, DTensor]:
    """The weight, and the sum of its products with the data [3, 4], replicated.

    A sum is not offered: it is made of local sums, once staying inside and once leaving and coming back.
    """
    mesh = make_mesh(2)
    weight = distribute_tensor(torch.tensor([1.0, 2.0], requires_grad=True), mesh, [Replicate()])
    data = distribute_tensor(torch.tensor([3.0, 4.0]), mesh, [Shard(0)])
    share = (weight.redistribute([Shard(0)]) * data).to_local().sum()
    pending = DTensor.from_local(share, mesh, [Partial()])
    if leave:
        pending = DTensor.from_local(pending.to_local(), mesh, [Partial()])
    return weight, pending.redistribute([Replicate()])


@pytest.mark.parametrize("leave", [False, True])
@ranks(2)
def test_case17_leaving_and_coming_back_as_partial_keeps_the_gradient(rank: Rank, leave: bool) -> None:
    weight, total = weighted_sum(rank, leave=leave)
    assert total.item() == 11.0
    total.backward()
    assert_equal(gradient_of(weight)._local_tensor, torch.tensor([3.0, 4.0]))


@pytest.mark.parametrize(
    ("grad_placements", "expected"), [(None, [6.0, 8.0]), ([Replicate()], [3.0, 4.0])], ids=["summed", "the same"]
)
@ranks(2)
def test_case17_leaving_as_a_plain_loss_sums_or_does_not(
    rank: Rank, grad_placements: list[Placement] | None, expected: list[float]
) -> None:
    weight, total = weighted_sum(rank, leave=False)
    total.to_local(grad_placements).backward()
    assert_equal(gradient_of(weight)._local_tensor, torch.tensor(expected))


def own_rows(rank: Rank, *, requires_grad: bool = True) -> torch.Tensor:
    begin = sum(SPLITS[: rank.index])
    return torch.arange(6.0)[begin : begin + SPLITS[rank.index]].clone().requires_grad_(requires_grad)


@ranks(4)
def test_case19_expanded_and_transposed_gradients_of_the_gather(rank: Rank) -> None:
    own = own_rows(rank)
    differentiable_variable_all_gather(own, SPLITS, world()).sum().backward()
    assert own.grad is not None
    assert own.grad.tolist() == [[4, 4], [], [4, 4, 4, 4], []][rank.index]
    own = own_rows(rank)
    gathered = differentiable_variable_all_gather(own, SPLITS, world())
    (gathered.view(2, 3).t() @ torch.tensor([1.0, 10.0])).sum().backward()
    assert own.grad is not None
    assert own.grad.tolist() == [[4, 4], [], [4, 40, 40, 40], []][rank.index]


@ranks(2)
def test_case19_expanded_and_transposed_gradients_of_the_exchange(rank: Rank) -> None:
    table = [[1, 3], [3, 3]]
    for weights in (None, torch.tensor([1.0, 10.0])):
        own = torch.arange(float(sum(table[rank.index]))).requires_grad_()
        column = [row[rank.index] for row in table]
        received = differentiable_all_to_all_single(own, table[rank.index], column, world())
        if weights is None:
            (received.sum() * (rank.index + 1)).backward()
            expected = [[1, 2, 2, 2], [1, 1, 1, 2, 2, 2]][rank.index]
        else:
            # 4 rows on rank 0, 6 on rank 1: the first half counts once, the second tenfold.
            (received.view(2, -1).t() @ weights).sum().backward()
            expected = [[1, 1, 1, 1], [1, 10, 10, 10, 10, 10]][rank.index]
        assert own.grad is not None
        assert own.grad.tolist() == expected


@ranks(2)
def test_case20_the_primitive_sums_and_full_tensor_does_as_told(rank: Rank) -> None:
    own = torch.arange(4.0).split(2)[rank.index].clone().requires_grad_()
    (differentiable_variable_all_gather(own, [2, 2], world()).sum() * (rank.index + 1)).backward()
    assert own.grad is not None
    assert own.grad.tolist() == [3, 3]
    for grad_placements, expected in ((None, [3, 3]), ([Replicate()], [rank.index + 1] * 2)):
        x = distribute_tensor(torch.arange(4.0, requires_grad=True), make_mesh(2), [Shard(0)])
        (x.full_tensor(grad_placements).sum() * (rank.index + 1)).backward()
        assert gradient_of(x)._local_tensor.tolist() == expected


@ranks(4)
def test_case22_unlike_losses_over_unequal_and_empty_shares(rank: Rank) -> None:
    weight = (rank.index + 1) * torch.arange(1.0, 7.0)
    expected = [[10, 20], [], [30, 40, 50, 60], []][rank.index]
    own = own_rows(rank)
    (differentiable_variable_all_gather(own, SPLITS, world()) * weight).sum().backward()
    assert own.grad is not None
    assert own.grad.tolist() == expected
    # Through a DTensor, whose requires_grad is global.
    x = distribute_tensor(torch.arange(6.0, requires_grad=True), make_mesh(4), [RaggedShard((0,), (1, 0, 2, 0))])
    (x.full_tensor() * weight).sum().backward()
    assert gradient_of(x)._local_tensor.tolist() == expected


@ranks(4, check=True)
def test_case22_requires_grad_that_differs_raises_everywhere_under_the_check(rank: Rank) -> None:
    own = own_rows(rank, requires_grad=rank.index != 1)
    assert_raises(RuntimeError, "requires_grad", lambda: differentiable_variable_all_gather(own, SPLITS, world()))


@pytest.mark.parametrize("placement", [Shard(0), RaggedShard((0,), (1, 3)), RaggedShard((0,), (0, 4))], ids=str)
@ranks(2)
def test_case23_leaves_and_their_redistributions(rank: Rank, placement: Placement) -> None:
    d = distribute_tensor(torch.arange(4.0, requires_grad=True), make_mesh(2), [placement])
    e = d.redistribute([Replicate()])
    f = d.detach()
    assert d.is_leaf
    assert d.requires_grad
    assert not e.is_leaf
    assert e.requires_grad
    assert not f.requires_grad
    assert f._local_tensor.data_ptr() == d._local_tensor.data_ptr()
    e.full_tensor(grad_placements=[Replicate()]).square().sum().backward()
    gradient = gradient_of(d)
    assert gradient.placements == d.placements
    assert_equal(gradient.full_tensor(), 2 * torch.arange(4.0))


FAULTY_SPLITS: dict[str, tuple[object, object]] = {
    "input splits that do not sum to the rows": ([2, 2], [1, 1]),
    "one entry": ([4], [4]),
    "a negative entry": ([2, 2], [-1, 5]),
    "None for both": (None, None),
    "empty for both": ([], []),
    "None for the output": (None, [2, 2]),
    "None for the input": ([2, 2], None),
    "floats": ([2.0, 2.0], [2.0, 2.0]),
}


@pytest.mark.parametrize("fault", list(FAULTY_SPLITS))
@ranks(2)
def test_case28_split_lists_are_checked_before_anything_is_sent(rank: Rank, fault: str) -> None:
    output_splits, input_splits = FAULTY_SPLITS[fault]
    x = torch.arange(4.0) + 10 * rank.index
    with pytest.raises((ValueError, TypeError)) as caught:
        differentiable_all_to_all_single(x, input_splits, output_splits, world())  # type: ignore[arg-type]
    assert "splits" in str(caught.value)
    # The group is as it was: the next exchange is right.
    received = differentiable_all_to_all_single(
        x, [1, 3] if rank.index == 0 else [3, 1], [1, 3] if rank.index == 0 else [3, 1], world()
    )
    assert received.tolist() == ([0, 10, 11, 12] if rank.index == 0 else [1, 2, 3, 13])


@ranks(2)
def test_case28_zeros_send_nothing(rank: Rank) -> None:
    received = differentiable_all_to_all_single(torch.zeros(0, 3), [0, 0], [0, 0], world())
    assert tuple(received.shape) == (0, 3)


def mismatched(rank: Rank) -> torch.Tensor:
    """Sums are right on each rank, the two lists are not each other's."""
    x = torch.arange(4.0)
    return differentiable_all_to_all_single(x, [1, 3] if rank.index == 0 else [2, 2], [2, 2], world())


@ranks(2, check=True)
def test_case28_lists_of_unlike_ranks_raise_everywhere_under_the_check(rank: Rank) -> None:
    with pytest.raises(HyperParallelError, match="rank 0"):
        mismatched(rank)


@ranks(2, group_timeout=timedelta(seconds=2))
def test_case28_without_the_check_lists_of_unlike_ranks_never_give_wrong_data(rank: Rank) -> None:
    with pytest.raises(HyperParallelError):
        mismatched(rank)
