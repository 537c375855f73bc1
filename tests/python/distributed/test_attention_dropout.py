"""Attention with dropout: one mask for the whole tensor, whatever lies where; the rest is attention by its formula."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

import hyper_parallel as hp
from hyper_parallel import DTensor, Partial, Placement, RaggedShard, Replicate, Shard
from support.checks import assert_equal, assert_raises, gradient_of, make_mesh
from support.normal_checks import assert_close, assert_lies_right, strict
from support.ranks import ranks
from support.worker import Rank

BATCH, HEADS, ROWS, KEYS, WIDTH, COLUMNS = 2, 3, 4, 5, 6, 7
DROPPED = 0.4
CUT = (Shard(3), Shard(3), Shard(0))
LAYOUTS: list[list[Placement]] = [
    [Replicate(), Replicate(), Replicate()],
    [Shard(0), Shard(0), Shard(0)],
    [Shard(1), Shard(1), Shard(1)],
    [Shard(2), Replicate(), Replicate()],
    [Replicate(), Replicate(), Shard(3)],
    [Shard(0), Shard(2), Shard(1)],
    [Replicate(), Shard(2), Shard(2)],
]


def operands() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(4)
    sizes = ((ROWS, WIDTH), (KEYS, WIDTH), (KEYS, COLUMNS))
    return [torch.randn(BATCH, HEADS, *size, generator=generator, dtype=torch.float64) for size in sizes]


def masks() -> dict[str, torch.Tensor | None]:
    generator = torch.Generator().manual_seed(5)
    kept = torch.rand(ROWS, KEYS, generator=generator) > 0.3
    kept[1] = False
    return {
        "none": None,
        "bool": kept,
        "float": torch.randn(BATCH, 1, ROWS, KEYS, generator=generator, dtype=torch.float64),
    }


def reference(
    tensors: list[torch.Tensor], mask: torch.Tensor | None, factor: torch.Tensor, *, is_causal: bool, scale: float
) -> torch.Tensor:
    query, key, value = tensors
    scores = query @ key.mT * scale
    if is_causal:
        mask = torch.ones(ROWS, KEYS).tril().bool()
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else scores + mask
    return torch._safe_softmax(scores, -1) * factor @ value


def factor_of(mesh: hp.DeviceMesh) -> torch.Tensor:
    """What the first dropout after the seed multiplies by."""
    hp.manual_seed(7)
    ones = hp.ones(BATCH, HEADS, ROWS, KEYS, device_mesh=mesh, dtype=torch.float64)
    dropped = F.dropout(ones, DROPPED)
    assert isinstance(dropped, DTensor)
    return dropped.full_tensor()


@pytest.mark.parametrize("kind", ["none", "bool", "float", "causal"])
@ranks(2)
def test_it_is_the_formula_with_one_mask_under_every_layout(rank: Rank, kind: str) -> None:
    mesh = make_mesh(2)
    factor = factor_of(mesh)
    mask = masks().get(kind)
    scale = 0.3 if kind == "float" else 1 / math.sqrt(WIDTH)
    plain = [tensor.requires_grad_() for tensor in operands()]
    expected = reference(plain, mask, factor, is_causal=kind == "causal", scale=scale)
    expected.square().sum().backward()
    for layout in LAYOUTS:
        given = [
            hp.distribute_tensor(tensor.detach(), mesh, [placement]).requires_grad_()
            for tensor, placement in zip(plain, layout, strict=True)
        ]
        spread = None if mask is None else hp.distribute_tensor(mask, mesh, [Replicate()])
        hp.manual_seed(7)
        with strict():
            result = F.scaled_dot_product_attention(
                *given, spread, DROPPED, is_causal=kind == "causal", scale=scale if kind == "float" else None
            )
            assert isinstance(result, DTensor)
            whole_result = result.redistribute(placements=[Replicate()])  # keys that are cut leave sums pending
            whole_result.square().sum().backward()
        assert_lies_right(result, rank.index)
        assert_close(result.full_tensor(), expected)
        for tensor, whole in zip(given, plain, strict=True):
            assert whole.grad is not None
            assert_close(gradient_of(tensor).full_tensor(), whole.grad)


@ranks(2)
def test_heads_that_lie_alike_need_no_communication_and_stay_cut(rank: Rank) -> None:
    given = [hp.distribute_tensor(tensor, make_mesh(2), [Shard(1)]) for tensor in operands()]
    result = F.scaled_dot_product_attention(*given, dropout_p=DROPPED, is_causal=True)
    assert isinstance(result, DTensor)
    assert result.placements == (Shard(1),)


@ranks(2)
def test_a_width_that_is_cut_is_summed_before_the_softmax(rank: Rank) -> None:
    mesh = make_mesh(2)
    factor = factor_of(mesh)
    query, key, value = operands()
    expected = reference([query, key, value], None, factor, is_causal=False, scale=1 / math.sqrt(WIDTH))
    cut = [hp.distribute_tensor(tensor, mesh, [how]) for tensor, how in zip((query, key, value), CUT, strict=True)]
    hp.manual_seed(7)
    result = F.scaled_dot_product_attention(*cut, dropout_p=DROPPED)
    assert isinstance(result, DTensor)
    assert_close(result.full_tensor(), expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@ranks(2)
def test_halves_keep_their_scores_in_float32(rank: Rank, dtype: torch.dtype) -> None:
    mesh = make_mesh(2)
    factor = factor_of(mesh)
    halves = [(tensor * 100).to(dtype) for tensor in operands()]
    mask = torch.randn(ROWS, KEYS, generator=torch.Generator().manual_seed(6))
    expected = reference(
        [half.double() for half in halves], mask.double(), factor, is_causal=False, scale=1 / math.sqrt(WIDTH)
    )
    given = [hp.distribute_tensor(half, mesh, [Shard(1)]) for half in halves]
    hp.manual_seed(7)
    result = F.scaled_dot_product_attention(*given, hp.distribute_tensor(mask, mesh, [Replicate()]), DROPPED)
    assert isinstance(result, DTensor)
    assert result.dtype == dtype
    torch.testing.assert_close(result.full_tensor().double(), expected, rtol=1e-2, atol=1e-2)


@ranks(2)
def test_the_ends_of_the_range(rank: Rank) -> None:
    given = [hp.distribute_tensor(tensor, make_mesh(2), [Shard(0)]) for tensor in operands()]
    all_dropped = F.scaled_dot_product_attention(*given, dropout_p=1.0)
    assert isinstance(all_dropped, DTensor)
    assert_equal(all_dropped.full_tensor(), torch.zeros(BATCH, HEADS, ROWS, COLUMNS, dtype=torch.float64))
    none_dropped = F.scaled_dot_product_attention(*given, dropout_p=0.0)
    assert isinstance(none_dropped, DTensor)
    assert_close(none_dropped.full_tensor(), F.scaled_dot_product_attention(*operands()))


@ranks(2)
def test_what_does_not_fit_raises_on_every_rank(rank: Rank) -> None:
    mesh = make_mesh(2)
    query, key, value = (hp.distribute_tensor(tensor, mesh, [Replicate()]) for tensor in operands())
    mask = hp.distribute_tensor(torch.ones(ROWS, KEYS).bool(), mesh, [Replicate()])
    pending = DTensor.from_local(operands()[0], mesh, [Partial()])
    few = hp.distribute_tensor(operands()[1][:, :1], mesh, [Replicate()])
    ragged = hp.distribute_tensor(operands()[0], mesh, [RaggedShard((0,), (1, 1))])
    attend = F.scaled_dot_product_attention
    refused: list[tuple[type[Exception], str, Callable[[], object]]] = [
        (ValueError, "dropout_p is 1.5 but must be in", lambda: attend(query, key, value, dropout_p=1.5)),
        (ValueError, "dropout_p is -1 but must be in", lambda: attend(query, key, value, dropout_p=-1)),
        (ValueError, "must be None if is_causal", lambda: attend(query, key, value, mask, 0.5, is_causal=True)),
        (ValueError, "they must be (..., L, E)", lambda: attend(query, value, value, None, 0.5)),
        (ValueError, "does not broadcast", lambda: attend(query, key, value, query, 0.5)),
        (TypeError, "attn_mask has dtype Long", lambda: attend(query, key, value, mask.long(), 0.5)),
        (TypeError, "dtypes Double, Float and Double", lambda: attend(query, key.float(), value, None, 0.5)),
        (NotImplementedError, "batch dims and heads must be equal", lambda: attend(query, few, few, None, 0.5)),
        (ValueError, "pending reduction", lambda: attend(pending, key, value, None, 0.5)),
        (NotImplementedError, "not supported on a ragged DTensor", lambda: attend(ragged, key, value, None, 0.5)),
    ]
    for error, text, action in refused:
        assert_raises(error, text, action)
