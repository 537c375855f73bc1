"""Reading a value: one element, the global one, on every rank."""

from __future__ import annotations

import pytest
import torch

from hyper_parallel import DTensor, Partial, Placement, RaggedShard, Replicate, Shard, distribute_tensor
from support.checks import assert_raises, make_mesh
from support.ranks import ranks
from support.worker import Rank


@ranks(2)
def test_case16_item_reads_the_global_value(rank: Rank) -> None:
    mesh = make_mesh(2)
    pending = DTensor.from_local(torch.tensor(1.0 + rank.index), mesh, [Partial()])
    assert pending.item() == 3.0
    assert float(pending) == 3.0
    assert pending.placements == (Partial(),)
    two = distribute_tensor(torch.tensor([1.0, 2.0]), mesh, [Shard(0)])
    assert two.local_numel == 1
    for read in (DTensor.item, float, bool, int):
        assert_raises(ValueError, "one element", lambda f=read: f(two))
    held_by_rank_0 = distribute_tensor(torch.tensor([[5.0]]), mesh, [RaggedShard((0,), (1, 0))])
    assert held_by_rank_0.item() == 5.0


@pytest.mark.parametrize(
    "placement", [Replicate(), Shard(0), RaggedShard((0,), (1, 0)), RaggedShard((0,), (0, 1))], ids=str
)
@ranks(2)
def test_every_conversion_gives_the_global_value_on_every_rank(rank: Rank, placement: Placement) -> None:
    x = distribute_tensor(torch.tensor([7]), make_mesh(2), [placement])
    assert x.item() == 7
    assert (float(x), int(x), complex(x), bool(x)) == (7.0, 7, 7 + 0j, True)
    assert [10, 20, 30, 40, 50, 60, 70, 80][x] == 80
    assert not bool(distribute_tensor(torch.tensor([0.0]), make_mesh(2), [placement]))
    assert bool(x == 7)
    if x == 8:
        raise AssertionError("a comparison decides as its value does")


@ranks(2)
def test_reading_keeps_no_graph_and_needs_none(rank: Rank) -> None:
    x = distribute_tensor(torch.tensor([2.0], requires_grad=True), make_mesh(2), [RaggedShard((0,), (0, 1))])
    assert (x * x).item() == 4.0
    assert f"{distribute_tensor(torch.tensor(2.5), make_mesh(2), [Replicate()]):.3f}" == "2.500"


@ranks(2)
def test_no_element_and_many_raise_also_where_this_rank_holds_one(rank: Rank) -> None:
    for shape, placement in (((0,), Shard(0)), ((2,), RaggedShard((0,), (1, 1))), ((3,), Replicate())):
        x = distribute_tensor(torch.zeros(shape), make_mesh(2), [placement])
        assert_raises(ValueError, "one element", x.item)
        assert_raises(ValueError, str(shape), lambda given=x: bool(given))
