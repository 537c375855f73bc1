"""Reading a value as torch alone has it; the rest is in `test_shared_values.py`."""

from __future__ import annotations

import pytest
import torch

from hyper_parallel import Placement, RaggedShard, Replicate, Shard, distribute_tensor
from support.checks import make_mesh
from support.ranks import ranks
from support.worker import Rank


@pytest.mark.parametrize(
    "placement", [Replicate(), Shard(0), RaggedShard((0,), (1, 0)), RaggedShard((0,), (0, 1))], ids=str
)
@ranks(2)
def test_complex_and_index_give_the_global_value_on_every_rank(rank: Rank, placement: Placement) -> None:
    x = distribute_tensor(torch.tensor([7]), make_mesh(2), [placement])
    assert complex(x) == 7 + 0j
    assert [10, 20, 30, 40, 50, 60, 70, 80][x] == 80


@ranks(2)
def test_reading_keeps_no_graph_and_needs_none(rank: Rank) -> None:
    x = distribute_tensor(torch.tensor([2.0], requires_grad=True), make_mesh(2), [RaggedShard((0,), (0, 1))])
    assert (x * x).item() == 4.0
    assert f"{distribute_tensor(torch.tensor(2.5), make_mesh(2), [Replicate()]):.3f}" == "2.500"
