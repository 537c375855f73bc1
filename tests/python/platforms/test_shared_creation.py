"""Making distributed tensors and taking them apart: from_local, distribute_tensor, to_local, full_tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

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
from support.arrays import DTYPES, numbered, random_values, small_integers
from support.common import assert_raises, make_mesh
from support.drawing import drawn
from support.frameworks import framework
from support.layout_strategies import Transition, transitions
from support.platform_checks import assert_part, assert_values, distributed
from support.pool import RankPools
from support.ranks import ranks
from support.spread import Spread
from support.worker import Rank

MESHES = [(1,), (2,), (3,), (2, 2)]
SHAPE = (6, 4)


def ragged(*units: int) -> RaggedShard:
    return RaggedShard((0,), units)


def check_creation(rank: Rank, spread: Spread, dtype: str) -> None:
    whole = random_values(spread.shape, dtype)
    mesh = make_mesh(*spread.mesh_shape)
    placed = distribute_tensor(framework.tensor(whole, dtype), mesh, spread.placements)
    assert_part(placed, whole, spread, rank.index, dtype)
    assert_values(placed.full_tensor(), whole, dtype)
    local = framework.tensor(spread.part_of(whole, rank.index), dtype)
    for made in (
        DTensor.from_local(local, mesh, spread.placements, shape=spread.shape),
        DTensor(local, mesh, spread.placements, spread.shape),
    ):
        assert_part(made, whole, spread, rank.index, dtype)
        assert_values(made.full_tensor(), whole, dtype)


@pytest.mark.parametrize("kind", ["ragged", "shard", "replicate"])
@pytest.mark.parametrize("mesh_shape", MESHES, ids=str)
@drawn(examples=5, data=st.data())
def test_both_ways_to_make_a_tensor_agree_with_the_definitions(
    rank_pools: RankPools, mesh_shape: tuple[int, ...], kind: str, data: st.DataObject
) -> None:
    transition: Transition = data.draw(transitions(kind, "replicate", mesh_shape))
    rank_pools[transition.source.size].run(check_creation, transition.source, transition.dtype)


def check_source(rank: Rank, spread: Spread, dtype: str, source: int) -> None:
    """Every rank holds values of its own; those of rank `source` of the mesh's one group count."""
    mine = random_values(spread.shape, dtype, seed=rank.index)
    placed = distribute_tensor(
        framework.tensor(mine, dtype), make_mesh(*spread.mesh_shape), spread.placements, src_data_rank=source
    )
    assert_part(placed, random_values(spread.shape, dtype, seed=source), spread, rank.index, dtype)


@pytest.mark.parametrize("kind", ["ragged", "shard", "replicate"])
@pytest.mark.parametrize("mesh_shape", MESHES[:3], ids=str)
@drawn(examples=4, data=st.data())
def test_only_the_values_of_the_source_rank_count(
    rank_pools: RankPools, mesh_shape: tuple[int, ...], kind: str, data: st.DataObject
) -> None:
    transition: Transition = data.draw(transitions(kind, "replicate", mesh_shape))
    source = data.draw(st.integers(0, mesh_shape[0] - 1), label="source")
    rank_pools[mesh_shape[0]].run(check_source, transition.source, transition.dtype, source)


@ranks(4)
def test_case07_source_rank_counts_inside_the_group(rank: Rank) -> None:
    mesh = make_mesh(2, 2)["tp"]
    x = framework.tensor(np.arange(4.0) + 100 * rank.index)
    row = 100.0 + 200 * (rank.index // 2) + np.arange(4)
    for placement, part in (
        (Shard(0), row[:2] if rank.index % 2 == 0 else row[2:]),
        (ragged(1, 3), row[:1] if rank.index % 2 == 0 else row[1:]),
    ):
        assert_values(distribute_tensor(x, mesh, [placement], src_data_rank=1).to_local(), part)
        for source in (2, -1):
            assert_raises(
                IndexError, f"source {source}", lambda p=placement, s=source: distribute_tensor(x, mesh, [p], s)
            )


@ranks(4)
def test_replicate_dims_beside_a_ragged_one_are_not_communicated(rank: Rank) -> None:
    mesh = make_mesh(2, 2)
    x = framework.tensor(np.arange(4.0) + 100 * rank.index)
    placed = distribute_tensor(x, mesh, [Replicate(), ragged(1, 3)], src_data_rank=1)
    row = 100.0 + 200 * (rank.index // 2) + np.arange(4)
    assert_values(placed.to_local(), row[:1] if rank.index % 2 == 0 else row[1:])


@ranks(2)
def test_a_distributed_tensor_has_storage_of_its_own(rank: Rank) -> None:
    whole = framework.tensor(numbered(SHAPE))
    for placement in (Replicate(), Shard(0), ragged(1, 2)):
        placed = distribute_tensor(whole, make_mesh(2), [placement])
        placed.zero_()
        assert_values(whole, numbered(SHAPE))
        assert_values(placed.full_tensor(), np.zeros(SHAPE))


@ranks(4)
def test_case01_the_global_shape_is_never_guessed_from_one_rank(rank: Rank) -> None:
    mesh, whole = make_mesh(4), numbered((10, 2))
    chunk = whole[3 * rank.index : 3 * rank.index + 3]
    given = DTensor.from_local(framework.tensor(chunk), mesh, [Shard(0)], shape=(10, 2))
    told = DTensor.from_local(framework.tensor(chunk), mesh, [Shard(0)])
    for tensor in (given, told):
        assert tuple(tensor.shape) == (10, 2)
        assert_values(tensor.full_tensor(), whole)
    flat = framework.tensor(chunk.reshape(-1))
    assert_raises(ValueError, "shape is missing", lambda: DTensor.from_local(flat, mesh, [ragged(3, 3, 3, 1)]))
    assert_values(DTensor.from_local(flat, mesh, [ragged(3, 3, 3, 1)], shape=(10, 2)).full_tensor(), whole)


@ranks(4)
def test_case08_a_mesh_over_some_ranks_leaves_the_others_out(rank: Rank) -> None:
    mesh = DeviceMesh((2,), ("dp",), rank_list=[2, 3])
    whole = framework.tensor(np.arange(4.0))
    sharded = distribute_tensor(whole, mesh, [Shard(0)])
    one_holds_all = distribute_tensor(whole, mesh, [ragged(0, 4)])
    if rank.index < 2:
        assert mesh.get_coordinate() is None
        for tensor in (sharded, one_holds_all):
            assert tensor.local_numel == 0
            assert tuple(tensor.shape) == (4,)
            assert "outside" in repr(tensor)
            # No collective is entered: the others are not waiting for these.
            assert framework.array(tensor.full_tensor()).size == 0
            assert (tensor + 1).local_numel == 0
        return
    assert_values(sharded.to_local(), np.array([[0.0, 1.0], [2.0, 3.0]])[rank.index - 2])
    assert one_holds_all.local_numel == [0, 4][rank.index - 2]
    assert_values(sharded.full_tensor(), np.arange(4.0))
    assert_values((one_holds_all + 1).redistribute([Shard(0)]).full_tensor(), np.arange(4.0) + 1)


@ranks(4)
def test_groups_follow_the_order_of_the_mesh_not_of_the_ranks(rank: Rank) -> None:
    mesh = DeviceMesh((3,), ("dp",), rank_list=[3, 0, 2])
    whole = np.arange(12.0)
    placed = distribute_tensor(framework.tensor(whole), mesh, [ragged(1, 2, 3)])
    share = {3: whole[:2], 0: whole[2:6], 2: whole[6:], 1: whole[:0]}[rank.index]
    assert_values(placed.to_local(), share)
    from_third = distribute_tensor(framework.tensor(whole + rank.index), mesh, [ragged(1, 2, 3)], src_data_rank=2)
    assert_values(from_third.to_local(), share + 2)
    if rank.index == 1:
        return
    for target in (Shard(0), ragged(3, 0, 1), Replicate()):
        assert_values(placed.redistribute([target]).full_tensor(), whole)


@pytest.mark.parametrize("source", [None, 0])
@ranks(1, 2)
def test_case25_tensors_without_elements_are_spread_and_gathered(rank: Rank, source: int | None) -> None:
    units = (1, 3)[: rank.size]
    for shape, placement in (
        ((0, 4), Shard(0)),
        ((4, 0), Shard(0)),
        ((4, 0), Shard(1)),
        ((0, 4), RaggedShard((0,), units)),
        ((4, 0), RaggedShard((0, 1), units)),
        ((0,), Replicate()),
    ):
        spread = Spread(shape, (rank.size,), (placement,))
        whole = np.zeros(shape)
        placed = distribute_tensor(framework.tensor(whole), make_mesh(rank.size), [placement], src_data_rank=source)
        for given in (placed, placed + 1, placed.redistribute([Replicate()]).redistribute([placement])):
            assert_part(given, whole, spread, rank.index)
            assert_values(given.full_tensor(), whole)


@ranks(2)
def test_a_scalar_is_replicated_or_pending_alone(rank: Rank) -> None:
    placed = distribute_tensor(framework.tensor(np.array(3.0)), make_mesh(2), [Replicate()])
    assert_part(placed, np.array(3.0), Spread((), (2,), (Replicate(),)), rank.index)
    pending = DTensor.from_local(framework.tensor(np.array(1.0)), make_mesh(2), [Partial()])
    assert_values(pending.full_tensor(), np.array(2.0))
    assert_raises(
        IndexError, "Shard", lambda: distribute_tensor(framework.tensor(np.array(3.0)), make_mesh(2), [Shard(0)])
    )


@pytest.mark.parametrize("operation", ["sum", "avg", "max", "min"])
@ranks(2, 4)
def test_full_tensor_of_a_pending_one_is_its_reduction(rank: Rank, operation: str) -> None:
    shares = [small_integers(SHAPE, "float32", seed=index) for index in range(rank.size)]
    pending = DTensor.from_local(framework.tensor(shares[rank.index]), make_mesh(rank.size), [Partial(operation)])
    reduction: Callable[..., Any] = {"sum": np.sum, "avg": np.mean, "max": np.max, "min": np.min}[operation]
    assert_values(pending.full_tensor(), reduction(shares, axis=0).astype(np.float32))


def place(*placements: Placement) -> DTensor:
    return distribute_tensor(framework.tensor(numbered(SHAPE)), make_mesh(2), placements)


FAULTS: dict[str, tuple[Callable[[], object], type[BaseException], str]] = {
    "units count": (
        lambda: place(ragged(1, 1, 1)),
        ValueError,
        "RaggedShard local_units has 3 entries but mesh dim 'dp' has size 2",
    ),
    "units that do not divide": (
        lambda: place(ragged(1, 3)),
        ValueError,
        "RaggedShard local_units sum to 4 but dims (0,) of shape (6, 4) have 6 cells, which must be a multiple of it",
    ),
    "dims beyond the tensor": (
        lambda: place(RaggedShard((0, 1, 2), (1, 1))),
        ValueError,
        "RaggedShard dims (0, 1, 2) are more than the tensor's 2 dims",
    ),
    "shard dim": (lambda: place(Shard(2)), IndexError, "Shard(2) is out of range for a tensor of 2 dims"),
    "negative shard dim": (lambda: place(Shard(-3)), IndexError, "Shard(-3) is out of range for a tensor of 2 dims"),
    "partial": (
        lambda: place(Partial()),
        ValueError,
        "distribute: placements [Partial(sum)] hold Partial, but a whole tensor is no share of a pending reduction",
    ),
    "placements count": (
        lambda: place(Shard(0), Shard(1)),
        ValueError,
        "placements [Shard(0), Shard(1)] are 2 but the mesh has 1 dims (dp,)",
    ),
    "no placements": (place, ValueError, "placements [] are 0 but the mesh has 1 dims (dp,)"),
    "not a placement": (
        lambda: place("shard"),  # type: ignore[arg-type]
        TypeError,
        "placements[0] is 'shard' but must be a placement: Replicate, Shard, Partial or RaggedShard",
    ),
    "not a tensor": (
        lambda: distribute_tensor([1.0], make_mesh(2), [Shard(0)]),  # type: ignore[arg-type]
        TypeError,
        f"distribute_tensor: tensor must be a {framework.NAME}.Tensor, not [1.0]",
    ),
    "a shape that is a number": (
        lambda: DTensor.from_local(framework.tensor(np.zeros(4)), make_mesh(2), [Replicate()], shape=4),  # type: ignore[arg-type]
        TypeError,
        "shape is 4 but must be a tuple of ints",
    ),
    "not a mesh": (
        lambda: distribute_tensor(framework.tensor(numbered(SHAPE)), None, [Shard(0)]),  # type: ignore[arg-type]
        TypeError,
        "distribute_tensor: device_mesh must be a hyper_parallel.DeviceMesh, not None",
    ),
}


@pytest.mark.parametrize("fault", list(FAULTS))
@ranks(2)
def test_what_does_not_fit_raises_on_every_rank(rank: Rank, fault: str) -> None:
    action, kind, text = FAULTS[fault]
    assert_raises(kind, text, action)


@ranks(4)
def test_two_ragged_dims_and_shards_beside_one_raise_on_every_rank(rank: Rank) -> None:
    whole, mesh = framework.tensor(numbered(SHAPE)), make_mesh(2, 2)
    for placements in ([ragged(1, 1), ragged(1, 1)], [ragged(1, 1), Shard(0)], [Partial(), ragged(1, 1)]):
        assert_raises(ValueError, "RaggedShard", lambda given=placements: distribute_tensor(whole, mesh, given))


@ranks(2)
def test_ragged_locals_of_another_kind_raise(rank: Rank) -> None:
    mesh = make_mesh(2)

    def make(local: Any, shape: tuple[int, ...] = (4, 2)) -> DTensor:
        return DTensor.from_local(framework.tensor(local), mesh, [ragged(1, 1)], shape=shape)

    assert_raises(ValueError, "1-D", lambda: make(np.zeros((2, 2))))
    assert_raises(ValueError, "owns 4", lambda: make(np.zeros(5)))
    assert_raises(ValueError, "owns 4", lambda: make(np.zeros(0)))
    for shape in ((-4, 2), (4.0, 2)):
        with pytest.raises((TypeError, ValueError), match="shape"):
            make(np.zeros(4), shape)
    assert make(np.zeros(4)).local_numel == 4


@ranks(4)
def test_case02_sizes_that_break_the_shard_rule_raise_where_they_are_wrong(rank: Rank) -> None:
    local = framework.tensor(np.zeros((2, 2 + rank.index)))

    def make() -> DTensor:
        return DTensor.from_local(local, make_mesh(4), [Shard(1)], shape=(2, 14))

    if rank.index == 2:  # the rule for 14 over 4 is 4, 4, 4, 2
        assert make().local_numel == 8
    else:
        assert_raises(ValueError, "owns", make)


@ranks(2)
def test_factories_of_distributed_tensors_are_refused(rank: Rank) -> None:
    for name in ("empty", "full", "ones", "zeros", "rand", "randn"):
        assert_raises(NotImplementedError, "distribute_tensor", getattr(DTensor, name))


@ranks(2)
def test_a_negative_shard_dim_is_folded(rank: Rank) -> None:
    placed = distributed(numbered(SHAPE), Spread(SHAPE, (2,), (Shard(-1),)))
    assert placed.placements == (Shard(1),)
    assert_part(placed, numbered(SHAPE), Spread(SHAPE, (2,), (Shard(1),)), rank.index)


@ranks(2)
def test_every_dtype_keeps_its_name_and_values(rank: Rank) -> None:
    for dtype in DTYPES:
        whole = random_values(SHAPE, dtype)
        placed = distributed(whole, Spread(SHAPE, (2,), (ragged(2, 1),)), dtype)
        assert framework.dtype_of(placed) == dtype
        assert_values(placed.full_tensor(), whole, dtype)
