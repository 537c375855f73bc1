"""Cases from public fault reports about making distributed tensors and taking them apart."""

from __future__ import annotations

import pytest
import torch

from hyper_parallel import (
    DeviceMesh,
    DTensor,
    Partial,
    Placement,
    RaggedShard,
    Replicate,
    Shard,
    distribute_tensor,
)
from support.checks import assert_equal, assert_raises, make_mesh
from support.ranks import ranks
from support.worker import Rank


def on_last_two_ranks() -> DeviceMesh:
    return DeviceMesh((2,), ("dp",), rank_list=[2, 3])


def wrong_chunk(rank: Rank) -> torch.Tensor:
    return torch.full((2, 2 + rank.index), float(rank.index))


@ranks(4, check=True)
def test_case02_sizes_that_break_the_shard_rule_raise_everywhere_under_the_check(rank: Rank) -> None:
    with pytest.raises((ValueError, RuntimeError)) as caught:
        DTensor.from_local(wrong_chunk(rank), make_mesh(4), [Shard(1)], shape=(2, 14))
    faults = {other: f"local has shape (2, {2 + other}) but rank {other} owns" for other in (0, 1, 3)}
    for other in faults if rank.index == 2 else [rank.index]:
        assert faults[other] in str(caught.value)


@ranks(4)
def test_case02_ragged_takes_the_sizes_that_its_units_say(rank: Rank) -> None:
    whole = torch.arange(28.0).view(14, 2)
    begin, end = [(0, 4), (4, 10), (10, 18), (18, 28)][rank.index]
    placements = [RaggedShard((0,), (2, 3, 4, 5))]
    given = DTensor.from_local(whole.flatten()[begin:end].clone(), make_mesh(4), placements, shape=(14, 2))
    assert_equal(given.full_tensor(), whole)
    assert_equal(distribute_tensor(whole, make_mesh(4), placements)._local_tensor, whole.flatten()[begin:end])


@pytest.mark.parametrize("source", [None, 0])
@ranks(2)
def test_case25_tensors_without_elements_are_spread_and_gathered(rank: Rank, source: int | None) -> None:
    mesh = make_mesh(2)
    for shape, placement, local_shape in (
        ((0, 4), Shard(0), (0, 4)),
        ((4, 0), Shard(0), (2, 0)),
        ((4, 0), Shard(1), (4, 0)),
        ((0, 4), RaggedShard((0,), (1, 1)), (0,)),
        ((4, 0), RaggedShard((0,), (1, 3)), (0,)),
        ((0,), Replicate(), (0,)),
    ):
        tensor = distribute_tensor(torch.zeros(shape), mesh, [placement], src_data_rank=source)
        for given in (tensor, tensor + 1, tensor.redistribute([Replicate()]).redistribute([placement])):
            assert isinstance(given, DTensor)
            assert tuple(given._local_tensor.shape) == local_shape
            assert tuple(given.shape) == shape
            assert tuple(given.full_tensor().shape) == shape


@ranks(2)
def test_case26_strided_input_is_taken_in_row_major_order(rank: Rank) -> None:
    mesh = make_mesh(2)
    x = torch.arange(12.0).view(3, 4).t()
    ragged = RaggedShard((0, 1), (1, 3))
    flat = [[0, 4, 8], [1, 5, 9, 2, 6, 10, 3, 7, 11]][rank.index]
    rows = [[[0, 4, 8], [1, 5, 9]], [[2, 6, 10], [3, 7, 11]]][rank.index]
    for source in (0, None):
        assert distribute_tensor(x, mesh, [Shard(0)], source)._local_tensor.tolist() == rows
        assert_equal(distribute_tensor(x, mesh, [Replicate()], source)._local_tensor, x)
        assert distribute_tensor(x, mesh, [ragged], source)._local_tensor.tolist() == flat
        assert distribute_tensor(x, mesh, [ragged], source)._local_tensor.is_contiguous()
    strided = torch.arange(24.0)[::2][: len(flat)]
    assert_raises(ValueError, "contiguous", lambda: DTensor.from_local(strided, mesh, [ragged], shape=(4, 3)))


@ranks(2)
def test_case34_scalars_and_ragged_dims_that_do_not_fit(rank: Rank) -> None:
    mesh = make_mesh(2)
    five = torch.tensor(5.0)
    assert_raises(IndexError, "Shard", lambda: distribute_tensor(five, mesh, [Shard(0)]))
    replicated = distribute_tensor(five, mesh, [Replicate()])
    assert_equal(replicated.full_tensor(), five)
    total = distribute_tensor(torch.arange(4.0), mesh, [Shard(0)]) + replicated
    assert_equal(total.full_tensor(), torch.arange(5.0, 9.0))
    assert_raises(ValueError, "dims", lambda: distribute_tensor(five, mesh, [RaggedShard((0,), (1, 1))]))
    assert_raises(ValueError, "dims", lambda: RaggedShard((), (1,)))
    for shape, dims in (((0,), (0,)), ((2, 0, 3), (0, 1))):
        empty = distribute_tensor(torch.zeros(shape), mesh, [RaggedShard(dims, (1, 6))])
        assert empty.local_numel == 0
        assert tuple(empty.full_tensor().shape) == shape


REFUSED_LAYOUTS: dict[str, tuple[tuple[int, ...], tuple[Placement, ...]]] = {
    "two ragged placements": ((4, 4), (RaggedShard((0,), (1, 1)), RaggedShard((0,), (1, 1)))),
    "ragged beside Shard": ((4, 4), (RaggedShard((0,), (1, 1)), Shard(1))),
    "ragged beside Partial": ((4, 4), (Partial(), RaggedShard((0,), (1, 1)))),
    "units for 3 ranks on a dim of 2": ((6, 4), (RaggedShard((0,), (1, 1, 1)), Replicate())),
    "prefix cells not divisible": ((4, 4), (RaggedShard((0,), (1, 2)), Replicate())),
    "prefix cells not divisible where the suffix is empty": ((4, 0), (RaggedShard((0,), (1, 2)), Replicate())),
    "dims longer than the tensor's rank": ((4, 4), (RaggedShard((0, 1, 2), (1, 1)), Replicate())),
    "too few placements": ((4, 4), (Replicate(),)),
    "too many placements": ((4, 4), (Replicate(), Replicate(), Replicate())),
    "Partial": ((4, 4), (Partial(), Replicate())),
}


@pytest.mark.parametrize("fault", list(REFUSED_LAYOUTS))
@ranks(4)
def test_layouts_that_do_not_fit_raise_before_any_communication(rank: Rank, fault: str) -> None:
    shape, placements = REFUSED_LAYOUTS[fault]
    for source in (None, 0):
        with pytest.raises(ValueError, match=r"placement|Partial|Ragged|unit|dims"):
            distribute_tensor(torch.zeros(shape), make_mesh(2, 2), placements, src_data_rank=source)
    if fault == "Partial":
        return
    whole = distribute_tensor(torch.zeros(shape), make_mesh(2, 2), [Replicate(), Replicate()])
    with pytest.raises(ValueError, match=r"placement|Partial|Ragged|unit|dims"):
        whole.redistribute(placements)


@ranks(2)
def test_faulty_local_tensors_raise_on_their_rank(rank: Rank) -> None:
    mesh = make_mesh(2)
    ragged = RaggedShard((0,), (1, 2))
    for local, text in (
        (torch.zeros(2 + rank.index, 2), "1-D"),
        (torch.zeros(7), "owns"),
        (torch.zeros(0), "owns"),
        (torch.zeros(20)[::2][: 4 * (rank.index + 1)], "contiguous"),
    ):
        assert_raises(ValueError, text, lambda given=local: DTensor(given, mesh, [ragged], shape=(6, 2)))
    for shape in ((-6, 2), (4, 2), (6, 3)):
        assert_raises(ValueError, "", lambda given=shape: DTensor(torch.zeros(4), mesh, [ragged], shape=given))
    for shape in ((6.0, 2), ("6", 2), 12, True):
        assert_raises(TypeError, "shape", lambda given=shape: DTensor(torch.zeros(4), mesh, [ragged], shape=given))
    assert_raises(IndexError, "Shard", lambda: DTensor(torch.zeros(3), mesh, [Shard(1)], shape=(6,)))
    assert_raises(TypeError, "local", lambda: DTensor([1.0], mesh, [Replicate()]))  # type: ignore[arg-type]
    assert_raises(TypeError, "mesh", lambda: DTensor(torch.zeros(3), None, [Replicate()]))  # type: ignore[arg-type]
    assert_raises(TypeError, "placement", lambda: DTensor(torch.zeros(3), mesh, ["Replicate"]))  # type: ignore[list-item]


@ranks(2)
def test_a_negative_shard_dim_is_folded(rank: Rank) -> None:
    x = distribute_tensor(torch.arange(6.0).view(2, 3), make_mesh(2), [Shard(-1)])
    assert x.placements == (Shard(1),)
    assert x.redistribute([Shard(-2)]).placements == (Shard(0),)
    assert x.redistribute([Shard(1)]) is x
    assert x.redistribute([Shard(-1)]) is x


@ranks(2)
def test_distributing_gives_a_leaf_with_storage_of_its_own(rank: Rank) -> None:
    whole = torch.arange(6.0, requires_grad=True)
    for placement in (Shard(0), Replicate(), RaggedShard((0,), (0, 1)), RaggedShard((0,), (1, 2))):
        for source in (None, 0):
            x = distribute_tensor(whole * 1, make_mesh(2), [placement], source)
            assert x.is_leaf
            assert x.requires_grad
            x.detach().zero_()
            assert_equal(whole.detach(), torch.arange(6.0))


@ranks(2)
def test_only_the_values_of_the_source_count(rank: Rank) -> None:
    x = torch.arange(6.0) if rank.index == 1 else torch.full((6,), float("nan"))
    for placement in (Shard(0), Replicate(), RaggedShard((0,), (2, 0)), RaggedShard((0,), (1, 2))):
        assert_equal(distribute_tensor(x, make_mesh(2), [placement], 1).full_tensor(), torch.arange(6.0))


@ranks(4)
def test_replicate_dims_beside_a_ragged_one_are_not_communicated(rank: Rank) -> None:
    x = torch.arange(6.0) + 10 * rank.index
    placements = [Replicate(), RaggedShard((0,), (1, 2))]
    local = distribute_tensor(x, make_mesh(2, 2), placements, src_data_rank=1)._local_tensor.tolist()
    assert local == [[10, 11], [12, 13, 14, 15], [30, 31], [32, 33, 34, 35]][rank.index]
