"""Factories, random numbers and dropout: the same whole tensor under every layout, on every replica."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

import hyper_parallel as hp
from hyper_parallel import DeviceMesh, DTensor, Partial, Placement, RaggedShard, Replicate, Shard
from support.checks import assert_consistent, assert_equal, assert_part, assert_raises, gradient_of, make_mesh
from support.ranks import ranks
from support.truth import Spread
from support.worker import Rank

SHAPE = (5, 3, 6)
R, S0, S1, S2 = Replicate(), Shard(0), Shard(1), Shard(2)
FLAT: list[list[Placement]] = [[R], [S0], [S1], [S2], [Shard(-1)]]
SQUARE: list[list[Placement]] = [
    [R, R], [S0, R], [R, S1], [S0, S0], [S2, S2], [S0, S1], [S1, S0], [S2, S0], [R, Shard(-2)],
]  # fmt: skip

Make = Callable[[DeviceMesh, list[Placement]], DTensor]
RANDOM: dict[str, Make] = {
    "rand": lambda mesh, to: hp.rand(*SHAPE, device_mesh=mesh, placements=to),
    "rand of float64": lambda mesh, to: hp.rand(SHAPE, device_mesh=mesh, placements=to, dtype=torch.float64),
    "randn": lambda mesh, to: hp.randn(list(SHAPE), device_mesh=mesh, placements=to),
    "randn of bfloat16": lambda mesh, to: hp.randn(*SHAPE, device_mesh=mesh, placements=to, dtype=torch.bfloat16),
    "rand_like": lambda mesh, to: as_dtensor(torch.rand_like(hp.zeros(SHAPE, device_mesh=mesh, placements=to))),
    "randn_like": lambda mesh, to: as_dtensor(
        torch.randn_like(hp.zeros(SHAPE, device_mesh=mesh, placements=to, dtype=torch.int64), dtype=torch.float16)
    ),
    "dropout": lambda mesh, to: as_dtensor(F.dropout(hp.ones(SHAPE, device_mesh=mesh, placements=to), 0.4)),
}


def as_dtensor(tensor: torch.Tensor) -> DTensor:
    assert isinstance(tensor, DTensor)
    return tensor


def meshes(rank: Rank) -> list[tuple[DeviceMesh, list[list[Placement]]]]:
    """Every mesh shape over all ranks, with its layouts."""
    flat = [(make_mesh(rank.size), FLAT)]
    return [*flat, (make_mesh(2, 2), SQUARE)] if rank.size == 4 else flat


def spread_of(tensor: DTensor) -> Spread:
    return Spread(tuple(tensor.shape), tensor.device_mesh.shape, tensor.placements)


# --- random numbers --------------------------------------------------------------------------------------------------


@ranks(2, 4)
@pytest.mark.parametrize("name", RANDOM)
def test_every_layout_is_the_same_tensor_and_replicas_are_equal(rank: Rank, name: str) -> None:
    hp.manual_seed(7)
    whole = RANDOM[name](make_mesh(rank.size), [R]).full_tensor()
    assert len(whole.unique()) > (1 if name == "dropout" else 40)
    for mesh, layouts in meshes(rank):
        for placements in layouts:
            hp.manual_seed(7)
            made = RANDOM[name](mesh, placements)
            assert_part(made, whole, spread_of(made), rank.index)
            assert_equal(made.full_tensor(), whole)


@ranks(2, 4)
def test_a_mesh_seeded_by_itself_draws_what_one_rank_draws(rank: Rank) -> None:
    alone = DeviceMesh((1,), ("dp",), rank_list=[rank.index])
    hp.manual_seed(3, alone)
    whole = hp.randn(SHAPE, device_mesh=alone).full_tensor()
    for mesh, layouts in meshes(rank):
        hp.manual_seed(3, mesh)
        assert_equal(hp.randn(SHAPE, device_mesh=mesh, placements=layouts[-1]).full_tensor(), whole)


@ranks(2)
def test_manual_seed_repeats_the_numbers_and_calls_draw_unlike_ones(rank: Rank) -> None:
    mesh = make_mesh(2)
    hp.manual_seed(-1)
    first, second = (hp.rand(6, device_mesh=mesh, placements=[S0]).full_tensor() for _ in range(2))
    assert not torch.equal(first, second)
    hp.manual_seed(2**64 - 1)  # the same 64 bits
    assert_equal(hp.rand(6, device_mesh=mesh).full_tensor(), first)
    state = hp.get_rng_state()
    assert_equal(hp.rand(6, device_mesh=mesh, placements=[S0]).full_tensor(), second)
    hp.set_rng_state(state)
    assert_equal(hp.rand(6, device_mesh=mesh).full_tensor(), second)
    hp.manual_seed(1)
    assert not torch.equal(hp.rand(6, device_mesh=mesh).full_tensor(), first)


@ranks(4)
def test_ranks_seeded_unlike_by_torch_draw_the_same_numbers(rank: Rank) -> None:
    hp.set_rng_state("no seed")
    torch.manual_seed(100 + rank.index)
    mesh = DeviceMesh((3,), ("dp",), rank_list=[3, 0, 2])
    before = torch.get_rng_state()
    drawn = hp.randn(9, device_mesh=mesh, placements=[S0])
    assert_equal(torch.get_rng_state(), before)
    if rank.index == 1:
        assert drawn.local_numel == 0
        assert hp.get_rng_state() == "no seed"
        return
    assert hp.get_rng_state() == "no seed; (3, 0, 2) agreed 103 next 1"
    hp.manual_seed(103)
    assert_equal(hp.randn(9, device_mesh=mesh).full_tensor(), drawn.full_tensor())


@ranks(4)
def test_meshes_that_only_some_ranks_draw_on_stay_in_step(rank: Rank) -> None:
    hp.manual_seed(5)
    whole = make_mesh(2, 2)
    pair = whole["tp"]
    for _ in range(1 + rank.index // 2):  # ranks 2 and 3 draw more often
        on_pair = hp.rand(4, device_mesh=pair, placements=[S0]).full_tensor()
    drawn = hp.rand(4, device_mesh=whole, placements=[R, R])
    hp.manual_seed(5)
    assert_equal(hp.rand(4, device_mesh=whole.flatten(), placements=[S0]).full_tensor(), drawn.to_local())
    assert not torch.equal(on_pair, drawn.to_local())


@ranks(4)
def test_disjoint_meshes_draw_unlike_numbers(rank: Rank) -> None:
    hp.manual_seed(5)
    drawn = hp.rand(4, device_mesh=make_mesh(2, 2)["tp"]).to_local()
    gathered = [torch.empty(4) for _ in range(4)]
    torch.distributed.all_gather(gathered, drawn)
    assert_equal(gathered[0], gathered[1])
    assert_equal(gathered[2], gathered[3])
    assert not torch.equal(gathered[0], gathered[2])


@ranks(2, check=True, group_timeout=timedelta(seconds=10))
def test_unlike_seeds_and_numbers_raise_everywhere_under_the_check(rank: Rank) -> None:
    mesh = make_mesh(2)
    hp.manual_seed(rank.index)
    assert_raises(RuntimeError, "seed 1; (0, 1) next 0", lambda: hp.rand(4, device_mesh=mesh))
    hp.manual_seed(4)
    if rank.index == 1:
        hp.set_rng_state("seed 4; (0, 1) next 3")
    x = hp.ones(4, device_mesh=mesh)
    assert_raises(RuntimeError, "seed 4; (0, 1) next 3", lambda: F.dropout(x))


@ranks(2)
def test_seeds_and_states_that_are_none_raise(rank: Rank) -> None:
    assert_raises(TypeError, "seed is 1.5 but must be an int", lambda: hp.manual_seed(1.5))  # type: ignore[arg-type]
    assert_raises(TypeError, "seed is True", lambda: hp.manual_seed(True))
    assert_raises(ValueError, "must be in [-2**63, 2**64)", lambda: hp.manual_seed(2**64))
    assert_raises(TypeError, "device_mesh must be", lambda: hp.manual_seed(1, "dp"))  # type: ignore[arg-type]
    assert_raises(TypeError, "state is 3", lambda: hp.set_rng_state(3))  # type: ignore[arg-type]
    assert_raises(ValueError, "nonsense", lambda: hp.set_rng_state("nonsense"))


# --- constants -------------------------------------------------------------------------------------------------------


@ranks(2, 4)
def test_constants_are_each_ranks_part(rank: Rank) -> None:
    for mesh, layouts in meshes(rank):
        for placements in layouts:
            for made, whole in (
                (hp.zeros(*SHAPE, device_mesh=mesh, placements=placements), torch.zeros(SHAPE)),
                (hp.ones(SHAPE, device_mesh=mesh, placements=placements, dtype=torch.int32), torch.ones(SHAPE).int()),
                (hp.full(SHAPE, 2.5, device_mesh=mesh, placements=placements), torch.full(SHAPE, 2.5)),
                (hp.full(SHAPE, True, device_mesh=mesh, placements=placements), torch.full(SHAPE, True)),
                (hp.full(SHAPE, 3, device_mesh=mesh, placements=placements), torch.full(SHAPE, 3)),
                (hp.full(SHAPE, 1j, device_mesh=mesh, placements=placements), torch.full(SHAPE, 1j)),
            ):
                assert_part(made, whole, spread_of(made), rank.index)
            unwritten = hp.empty(SHAPE, device_mesh=mesh, placements=placements, dtype=torch.float64)
            assert_consistent(unwritten)
            assert unwritten.dtype == torch.float64


@ranks(2)
def test_defaults_are_torchs(rank: Rank) -> None:
    mesh = make_mesh(2)
    torch.set_default_dtype(torch.float64)
    try:
        made = hp.randn(3, device_mesh=mesh)
    finally:
        torch.set_default_dtype(torch.float32)
    assert made.dtype == torch.float64
    assert made.placements == (R,)
    assert not made.requires_grad
    with mesh:
        assert hp.zeros(2, 2).device_mesh == mesh
    leaf = hp.randn(4, 2, device_mesh=mesh, placements=[S0], requires_grad=True)
    assert leaf.is_leaf
    assert leaf.requires_grad
    scalar = hp.rand((), device_mesh=mesh)
    assert scalar.shape == ()
    assert 0 <= scalar.item() < 1


@ranks(2)
def test_shapes_without_elements_are_made(rank: Rank) -> None:
    mesh = make_mesh(2)
    for shape in ((0, 4), (3, 0), (1,)):
        for make in (hp.zeros, hp.empty, hp.rand, hp.randn):
            made = make(*shape, device_mesh=mesh, placements=[S0])
            assert_consistent(made)
            assert tuple(made.shape) == shape


@ranks(2)
@pytest.mark.parametrize("name", ["zeros", "ones", "empty", "full", "rand", "randn"])
def test_what_no_tensor_can_be_raises_on_every_rank(rank: Rank, name: str) -> None:
    mesh = make_mesh(2)

    def make(size: Any, placements: Any, **options: Any) -> Callable[[], object]:
        values = (1.5,) if name == "full" else ()
        return lambda: getattr(hp, name)(size, *values, device_mesh=mesh, placements=placements, **options)

    assert_raises(NotImplementedError, "ragged factories are not supported", make((6,), [RaggedShard((0,), (1, 2))]))
    assert_raises(ValueError, "no share of a pending reduction", make((6,), [Partial()]))
    assert_raises(ValueError, "-1", make((6, -1), [S0]))
    assert_raises(ValueError, "int64", make((2**40, 2**40), [S0]))
    assert_raises(ValueError, "", make((6,), [S0, S0]))
    assert_raises(IndexError, "Shard(1)", make((6,), [S1]))
    assert_raises(TypeError, "size", make((6.5,), [S0]))
    assert_raises(TypeError, "placements", make((6,), ["S(0)"]))
    assert_raises(TypeError, "fill_value must be a number", lambda: hp.full(3, "one", device_mesh=mesh))  # type: ignore[arg-type]
    assert_raises(ValueError, "have gradients", make((6,), [S0], dtype=torch.int64, requires_grad=True))
    if name.startswith("rand"):
        assert_raises(TypeError, "no random numbers", make((6,), [S0], dtype=torch.int64))


@ranks(2)
def test_without_any_mesh_they_raise(rank: Rank) -> None:
    assert_raises(ValueError, "zeros: device_mesh is missing", lambda: hp.zeros(3))
    assert_raises(TypeError, "rand: device_mesh must be", lambda: hp.rand(3, device_mesh="dp", placements=[S0]))  # type: ignore[arg-type]


@ranks(4)
def test_a_rank_outside_the_mesh_holds_nothing_and_waits_for_nobody(rank: Rank) -> None:
    mesh = DeviceMesh((2,), ("dp",), rank_list=[2, 3])
    leaf = hp.randn(6, device_mesh=mesh, placements=[S0], requires_grad=True)
    dropped = as_dtensor(F.dropout(leaf, 0.5))
    assert leaf.local_numel == dropped.local_numel == (3 if rank.index >= 2 else 0)
    assert leaf.requires_grad
    assert dropped.requires_grad
    assert hp.full((6,), 2, device_mesh=mesh).local_numel == (6 if rank.index >= 2 else 0)


# --- dropout ---------------------------------------------------------------------------------------------------------


@ranks(2, 4)
def test_dropout_has_the_same_mask_forward_and_backward_under_every_layout(rank: Rank) -> None:
    expected: torch.Tensor | None = None
    for mesh, layouts in meshes(rank):
        for placements in layouts:
            hp.manual_seed(11)
            x = hp.rand(SHAPE, device_mesh=mesh, placements=placements, requires_grad=True)
            y = as_dtensor(F.dropout(x, 0.3))
            y.backward(hp.ones(SHAPE, device_mesh=mesh, placements=placements))
            assert_consistent(y)
            mask = gradient_of(x).full_tensor()
            assert_equal(y.full_tensor().detach(), x.full_tensor().detach() * mask)
            assert set(mask.unique().tolist()) == {0.0, torch.tensor(1 / 0.7).item()}
            expected = mask if expected is None else expected
            assert_equal(mask, expected)


@ranks(2)
def test_dropout_keeps_the_probability_and_the_mean(rank: Rank) -> None:
    hp.manual_seed(0)
    y = F.dropout(hp.ones(400, 250, device_mesh=make_mesh(2), placements=[S1]), 0.2)
    whole = as_dtensor(y).full_tensor()
    assert abs((whole == 0).float().mean().item() - 0.2) < 0.01
    assert abs(whole.mean().item() - 1) < 0.01


@ranks(2)
def test_every_form_of_dropout_is_the_same(rank: Rank) -> None:
    mesh = make_mesh(2)
    forms: list[Callable[[DTensor], torch.Tensor]] = [
        lambda x: F.dropout(x, p=0.5, training=True, inplace=False),
        lambda x: F.dropout(x, inplace=True),
        lambda x: torch.dropout(x, 0.5, True),
        lambda x: torch.dropout_(x, 0.5, train=True),
        torch.nn.Dropout(0.5),
        torch.nn.Dropout(0.5, inplace=True),
    ]
    results = []
    for index, form in enumerate(forms):
        hp.manual_seed(1)
        x = hp.ones(5, 4, device_mesh=mesh, placements=[S0])
        y = form(x)
        in_place = index in (1, 3, 5)
        assert (y is x) == in_place
        assert_consistent(x)
        assert_consistent(y)
        assert x._version == (1 if in_place else 0)
        results.append(as_dtensor(y).full_tensor())
    for result in results[1:]:
        assert_equal(result, results[0])


@ranks(2)
def test_where_nothing_is_dropped_it_is_the_very_same_tensor(rank: Rank) -> None:
    x = hp.ones(5, 4, device_mesh=make_mesh(2), placements=[S0], requires_grad=True)
    hp.manual_seed(1)
    assert F.dropout(x, 0.5, training=False) is x
    assert F.dropout(x, 0.0) is x
    assert torch.nn.Dropout(0.5).eval()(x) is x
    assert_equal(as_dtensor(F.dropout(x, 1.0)).full_tensor().detach(), torch.zeros(5, 4))
    assert hp.get_rng_state() == "seed 1"


@ranks(2)
def test_what_cannot_be_dropped_raises_on_every_rank(rank: Rank) -> None:
    mesh = make_mesh(2)
    x = hp.ones(4, device_mesh=mesh, placements=[S0])
    assert_raises(ValueError, "p is 1.5 but must be in [0, 1]", lambda: F.dropout(x, 1.5))
    assert_raises(ValueError, "p is -0.1 but must be in [0, 1]", lambda: torch.dropout(x, -0.1, False))
    ragged = hp.distribute_tensor(torch.ones(4), mesh, [RaggedShard((0,), (1, 3))])
    partial = DTensor.from_local(torch.ones(4), mesh, [Partial()])
    for action in (lambda x: F.dropout(x), torch.rand_like, torch.randn_like):
        assert_raises(NotImplementedError, "draws random numbers", lambda action=action: action(ragged))
        assert_raises(ValueError, "Partial(sum)", lambda action=action: action(partial))
        assert_raises(TypeError, "dtype Long", lambda action=action: action(hp.ones(4, device_mesh=mesh).long()))
    leaf = hp.ones(4, device_mesh=mesh, requires_grad=True)
    with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
        F.dropout(leaf, inplace=True)


@ranks(2)
def test_like_functions_refuse_what_a_dtensor_has_not(rank: Rank) -> None:
    x = hp.ones(4, device_mesh=make_mesh(2), placements=[S0])
    made = torch.rand_like(x, dtype=torch.float64, requires_grad=True, memory_format=torch.preserve_format)
    assert_consistent(made)
    assert made.dtype == torch.float64
    assert made.requires_grad
    assert_raises(NotImplementedError, "device=meta", lambda: torch.rand_like(x, device="meta"))
    assert_raises(NotImplementedError, "layout=", lambda: torch.randn_like(x, layout=torch.sparse_coo))


# --- checkpointing ---------------------------------------------------------------------------------------------------


@ranks(2)
def test_a_checkpointed_dropout_drops_the_same_elements_again(rank: Rank) -> None:
    x = hp.ones(8, 4, device_mesh=make_mesh(2), placements=[S0], requires_grad=True)
    hp.manual_seed(2)

    def run(x: torch.Tensor) -> torch.Tensor:
        return F.dropout(F.dropout(x, 0.3) * 2, 0.3)

    y = as_dtensor(checkpoint(run, x, use_reentrant=False, context_fn=hp.replay_random))
    after = hp.get_rng_state()
    ones = hp.ones(8, 4, device_mesh=x.device_mesh, placements=[S0])
    for _ in range(2):  # a graph that is kept is walked again
        x.grad = None
        y.backward(ones, retain_graph=True)
        assert_equal(gradient_of(x).full_tensor(), y.full_tensor().detach())
        assert hp.get_rng_state() == after


@ranks(2)
def test_a_checkpointed_dropout_without_replay_raises_and_drops_nothing_silently(rank: Rank) -> None:
    x = hp.ones(8, 4, device_mesh=make_mesh(2), placements=[S0], requires_grad=True)
    y = as_dtensor(checkpoint(lambda x: F.dropout(x, 0.3) * 2, x, use_reentrant=False))
    ones = hp.ones(8, 4, device_mesh=x.device_mesh, placements=[S0])
    assert_raises(NotImplementedError, "context_fn=hyper_parallel.replay_random", lambda: y.backward(ones))


@ranks(2)
def test_a_hook_may_draw_in_a_backward_pass(rank: Rank) -> None:
    x = hp.ones(8, device_mesh=make_mesh(2), placements=[S0], requires_grad=True)
    x.register_hook(lambda gradient: gradient + torch.randn_like(gradient))
    (x * 2).backward(hp.ones(8, device_mesh=x.device_mesh, placements=[S0]))
    noise = gradient_of(x).full_tensor() - 2
    assert noise.abs().max() > 0
