"""The four gradient rules of the design, each with losses that differ per rank."""

from __future__ import annotations

import pytest
import torch

from hyper_parallel import DTensor, Partial, Placement, RaggedShard, Replicate, Shard, distribute_tensor
from support.checks import assert_equal, assert_raises, gradient_of, make_mesh
from support.ranks import ranks
from support.truth import Spread
from support.values import numbered
from support.worker import Rank

LAYOUTS: dict[str, Placement] = {
    "ragged": RaggedShard((0,), (1, 2)),
    "empty rank": RaggedShard((0, 1), (0, 5)),
    "sharded": Shard(0),
    "sharded columns": Shard(1),
}
every_layout = pytest.mark.parametrize("layout", list(LAYOUTS))
SHAPE = (6, 5)


def leaf(placement: Placement) -> DTensor:
    return distribute_tensor(numbered(SHAPE).requires_grad_(), make_mesh(2), [placement])


def part(whole: torch.Tensor, placement: Placement, rank: Rank) -> torch.Tensor:
    return Spread(tuple(whole.shape), (2,), (placement,)).part(whole, rank.index)


@every_layout
@ranks(2)
def test_inside_gathering_slices_the_gradient_and_does_not_sum_replicas(rank: Rank, layout: str) -> None:
    x = leaf(LAYOUTS[layout])
    gradient = numbered(SHAPE) + 1
    x.redistribute([Replicate()]).backward(distribute_tensor(gradient, x.device_mesh, [Replicate()]))
    assert_equal(gradient_of(x)._local_tensor, part(gradient, LAYOUTS[layout], rank))


@every_layout
@ranks(2)
def test_inside_slicing_gathers_the_gradient(rank: Rank, layout: str) -> None:
    x = leaf(Replicate())
    gradient = numbered(SHAPE) + 1
    placements = [LAYOUTS[layout]]
    x.redistribute(placements).backward(distribute_tensor(gradient, x.device_mesh, placements))
    assert_equal(gradient_of(x)._local_tensor, gradient)


@pytest.mark.parametrize("layout", ["ragged", "empty rank"])
@ranks(2)
def test_a_replicated_operand_beside_a_ragged_one_gets_the_whole_gradient(rank: Rank, layout: str) -> None:
    x, bias = leaf(LAYOUTS[layout]), leaf(Replicate())
    weight = numbered(SHAPE) * 10
    placed = distribute_tensor(weight, x.device_mesh, x.placements)
    (x * bias).backward(placed)
    assert_equal(gradient_of(bias)._local_tensor, weight * numbered(SHAPE))
    assert_equal(gradient_of(x)._local_tensor, part(weight * numbered(SHAPE), LAYOUTS[layout], rank))


@pytest.mark.parametrize("plain", [False, True])
@ranks(2)
def test_the_gradient_of_one_element_is_summed_over_the_ranks_that_split_its_partner(rank: Rank, plain: bool) -> None:
    x = leaf(RaggedShard((0,), (0, 3)))
    scale = torch.tensor(3.0, requires_grad=True)
    operand = scale if plain else distribute_tensor(scale, x.device_mesh, [Replicate()])
    (x * operand).backward(distribute_tensor(torch.ones(SHAPE), x.device_mesh, x.placements))
    gradient = scale.grad if plain else gradient_of(operand)._local_tensor
    assert gradient is not None
    assert_equal(gradient, numbered(SHAPE).sum())


@every_layout
@ranks(2)
def test_leaving_by_full_tensor_sums_the_losses_of_the_ranks(rank: Rank, layout: str) -> None:
    x = leaf(LAYOUTS[layout])
    (x.full_tensor() * (rank.index + 1)).sum().backward()
    assert_equal(gradient_of(x)._local_tensor, part(torch.full(SHAPE, 3.0), LAYOUTS[layout], rank))


@every_layout
@ranks(2)
def test_leaving_with_grad_placements_takes_the_losses_for_the_same(rank: Rank, layout: str) -> None:
    x = leaf(LAYOUTS[layout])
    (x.full_tensor(grad_placements=[Replicate()]) * 5).sum().backward()
    assert_equal(gradient_of(x)._local_tensor, part(torch.full(SHAPE, 5.0), LAYOUTS[layout], rank))


@pytest.mark.parametrize(
    ("grad_placements", "expected"),
    [(None, 3.0), ([Partial("sum")], 3.0), ([Partial("avg")], 1.5)],
    ids=["default", "sum", "avg"],
)
@ranks(2)
def test_to_local_of_a_replica_sums_or_averages(
    rank: Rank, grad_placements: list[Placement] | None, expected: float
) -> None:
    x = leaf(Replicate())
    (x.to_local(grad_placements) * (rank.index + 1)).sum().backward()
    assert_equal(gradient_of(x)._local_tensor, torch.full(SHAPE, expected))


@ranks(2)
def test_to_local_of_a_replica_may_say_that_all_losses_are_the_same(rank: Rank) -> None:
    x = leaf(Replicate())
    (x.to_local([Replicate()]) * 2).sum().backward()
    assert_equal(gradient_of(x)._local_tensor, torch.full(SHAPE, 2.0))


@pytest.mark.parametrize("leave", ["to_local", "full_tensor"])
@ranks(2)
def test_grad_placements_that_do_not_fit_raise(rank: Rank, leave: str) -> None:
    x = leaf(RaggedShard((0,), (1, 2)))
    exit_by = x.to_local if leave == "to_local" else x.full_tensor
    assert_raises(ValueError, "grad_placements", lambda: exit_by([Replicate(), Replicate()]))
    assert_raises(ValueError, "grad_placements", lambda: exit_by([Shard(0)]))
    assert_raises(ValueError, "grad_placements", lambda: exit_by([Partial("max")]))


@pytest.mark.parametrize("operation", ["sum", "avg", "max", "min"])
@ranks(2)
def test_the_gradient_of_a_pending_reduction_is_that_of_its_shares(rank: Rank, operation: str) -> None:
    shares = [torch.tensor([1.0, 5.0, 2.0]), torch.tensor([4.0, 3.0, 2.0])]
    own = shares[rank.index].clone().requires_grad_()
    pending = DTensor.from_local(own, make_mesh(2), [Partial(operation)])
    incoming = torch.tensor([10.0, 20.0, 30.0])
    reduced = pending.redistribute([Replicate()])
    reduced.backward(distribute_tensor(incoming, pending.device_mesh, [Replicate()]))
    first_holds_max = torch.tensor([0.0, 1.0, 0.5])
    share = {
        "sum": [torch.ones(3)] * 2,
        "avg": [torch.full((3,), 0.5)] * 2,
        "max": [first_holds_max, 1 - first_holds_max],
        "min": [torch.tensor([1.0, 0.0, 0.5]), torch.tensor([0.0, 1.0, 0.5])],
    }[operation][rank.index]
    assert own.grad is not None
    assert_equal(own.grad, incoming * share)


@ranks(2)
def test_backward_of_one_element_is_that_of_one_process(rank: Rank) -> None:
    x = distribute_tensor(torch.tensor([3.0], requires_grad=True), make_mesh(2), [RaggedShard((0,), (0, 1))])
    (x * x).backward()
    assert_equal(gradient_of(x).full_tensor(), torch.tensor([6.0]))


@ranks(2)
def test_backward_of_a_pending_scalar_is_that_of_its_reduction(rank: Rank) -> None:
    own = torch.tensor(float(rank.index + 1), requires_grad=True)
    DTensor.from_local(own, make_mesh(2), [Partial("avg")]).backward()
    assert own.grad is not None
    assert own.grad.item() == 0.5


@ranks(2)
def test_backward_of_more_than_one_element_needs_a_gradient(rank: Rank) -> None:
    with pytest.raises((ValueError, RuntimeError), match=r"one element|scalar"):
        (leaf(RaggedShard((0,), (1, 2))) * 2).backward()


@ranks(2)
def test_requires_grad_is_a_fact_of_all_ranks_also_of_empty_ones(rank: Rank) -> None:
    x = leaf(RaggedShard((0,), (0, 3)))
    y = (x * 2).redistribute([Shard(0)]).redistribute([RaggedShard((0,), (3, 0))])
    assert x.requires_grad
    assert y.requires_grad
    assert x._local_tensor.requires_grad
    assert y._local_tensor.requires_grad
    y.to_local().sum().backward()
    assert_equal(gradient_of(x).full_tensor(), torch.full(SHAPE, 2.0))


@pytest.mark.parametrize("exit_by", ["full_tensor", "to_local"])
@ranks(2)
def test_expanded_and_strided_incoming_gradients_are_taken_as_they_are(rank: Rank, exit_by: str) -> None:
    x = leaf(Shard(1))
    y = x.redistribute([RaggedShard((0,), (1, 2))])
    out = y.full_tensor() if exit_by == "full_tensor" else y.redistribute([Replicate()]).to_local()
    out.sum().backward()  # an expanded gradient
    assert_equal(gradient_of(x).full_tensor(), torch.full(SHAPE, 2.0))
    x.grad = None
    y = x.redistribute([RaggedShard((0,), (1, 2))])
    out = y.full_tensor() if exit_by == "full_tensor" else y.redistribute([Replicate()]).to_local()
    (out.t() * numbered((5, 6))).sum().backward()  # a transposed one
    assert_equal(gradient_of(x).full_tensor(), 2 * numbered((5, 6)).t())


@ranks(4)
def test_replicas_of_a_ragged_tensor_have_bit_equal_gradients(rank: Rank) -> None:
    mesh = make_mesh(2, 2)
    placements = [Replicate(), RaggedShard((0,), (1, 2))]
    x = distribute_tensor(torch.zeros(SHAPE).requires_grad_(), mesh, placements)
    weight = torch.randn(SHAPE, generator=torch.Generator().manual_seed(rank.index))
    (x.full_tensor() * weight).sum().backward()
    own = gradient_of(x)._local_tensor
    gathered: list[torch.Tensor | None] = [None] * 4
    torch.distributed.all_gather_object(gathered, own)
    replica = gathered[(rank.index + 2) % 4]
    assert replica is not None
    assert_equal(own, replica)


@pytest.mark.parametrize("layout", ["ragged", "sharded"])
@ranks(2)
def test_second_derivatives_go_through_redistribution(rank: Rank, layout: str) -> None:
    x = distribute_tensor((numbered(SHAPE) + 1).requires_grad_(), make_mesh(2), [LAYOUTS[layout]])
    whole = x.redistribute([RaggedShard((0,), (2, 1))])
    cube = whole * whole * whole
    ones = distribute_tensor(torch.ones(SHAPE), x.device_mesh, whole.placements)
    (first,) = torch.autograd.grad(cube, x, ones, create_graph=True)
    (second,) = torch.autograd.grad(first, x, distribute_tensor(torch.ones(SHAPE), x.device_mesh, x.placements))
    assert isinstance(second, DTensor)
    assert_equal(second.full_tensor().detach(), 6 * (numbered(SHAPE) + 1))
