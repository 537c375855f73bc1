"""How the results of operations on normal layouts lie, and what is not communicated for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from hyper_parallel import DTensor, Partial, Replicate, Shard, distribute_tensor
from support.checks import assert_equal, make_mesh
from support.normal_checks import as_list, assert_close, assert_lies_right, in_turn, strict
from support.operands import parse_placements
from support.ranks import ranks
from support.values import small_integers
from support.worker import Rank


@dataclass(frozen=True)
class Row:
    """An operation, its operands' shapes and placements (of a mesh of 4, or of (2, 2)), and how its results lie."""

    run: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]
    placements: tuple[str, ...]
    result: str


def linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    return F.linear(x, weight, bias)


X, W, B = (8, 4), (12, 4), (12,)

# Nothing of these is communicated.
STAYING: dict[str, Row] = {
    "contracted dims sharded alike": Row(torch.matmul, (X, (4, 6)), ("S(1)", "S(0)"), "P"),
    "contracted dims that are uneven": Row(torch.matmul, ((3, 5), (5, 2)), ("S(1)", "S(0)"), "P"),
    "bmm by batches": Row(torch.bmm, ((8, 2, 3), (8, 3, 2)), ("S(0)", "S(0)"), "S(0)"),
    "column-parallel linear": Row(linear, (X, W, B), ("R", "S(0)", "S(0)"), "S(1)"),
    "column-parallel linear of a whole bias": Row(linear, (X, W, B), ("R", "S(0)", "R"), "S(1)"),
    "row-parallel linear": Row(linear, (X, W, B), ("S(1)", "S(1)", "R"), "P"),
    "data-parallel linear": Row(linear, (X, W, B), ("S(0)", "R", "R"), "S(0)"),
    "linear of data and columns": Row(linear, (X, W, B), ("S(0), R", "R, S(0)", "R, S(0)"), "S(0), S(1)"),
    "linear of data and rows": Row(linear, (X, W, B), ("S(0), S(1)", "R, S(1)", "R, R"), "S(0), P"),
    "einsum of heads": Row(
        lambda x, y: torch.einsum("bhd,hde->bhe", x, y), ((2, 4, 3), (4, 3, 5)), ("S(1)", "S(0)"), "S(1)"
    ),
    "a replicated factor": Row(torch.mul, (X, X), ("S(1)", "R"), "S(1)"),
    "a replicated first factor": Row(torch.mul, (X, X), ("R", "S(0)"), "S(0)"),
    "a broadcast row": Row(torch.add, (X, (4,)), ("S(1)", "R"), "S(1)"),
    "a broadcast row beside rows": Row(torch.add, (X, (4,)), ("S(0)", "R"), "S(0)"),
    "a row sharded alike": Row(torch.add, (X, (4,)), ("S(1)", "S(0)"), "S(1)"),
    "factors on two mesh dims": Row(torch.mul, (X, X), ("S(0), R", "R, S(1)"), "S(0), S(1)"),
    "sum of a sharded dim": Row(lambda x: x.sum(0), ((5, 3),), ("S(0)",), "P"),
    "sum beside a sharded dim": Row(lambda x: x.sum(0), ((5, 3),), ("S(1)",), "S(0)"),
    "mean": Row(lambda x: x.mean(), ((5, 3),), ("S(0)",), "P"),
    "amax of a sharded dim": Row(lambda x: x.amax(0), ((5, 3),), ("S(0)",), "P(max)"),
    "min": Row(lambda x: x.min(), ((5, 3),), ("S(1)",), "P(min)"),
    "transpose": Row(lambda x: x.t(), (X,), ("S(1)",), "S(0)"),
    "permute": Row(lambda x: x.permute(2, 0, 1), ((2, 3, 4),), ("S(0), S(2)",), "S(1), S(0)"),
    "heads taken apart": Row(lambda x: x.view(3, 4, 2), ((3, 8),), ("S(1)",), "S(1)"),
    "heads put together": Row(lambda x: x.view(3, 8), ((3, 4, 2),), ("S(1)",), "S(1)"),
    "rows merged": Row(lambda x: x.flatten(0, 1), ((4, 3, 2),), ("S(0), S(2)",), "S(0), S(1)"),
    "nested rows merged": Row(lambda x: x.flatten(), ((4, 3),), ("S(0), S(0)",), "S(0), S(0)"),
    "unsqueeze": Row(lambda x: x.unsqueeze(0), ((5,),), ("S(0)",), "S(1)"),
    "squeeze": Row(lambda x: x.squeeze(), ((1, 5, 1),), ("S(1)",), "S(0)"),
    "expand": Row(lambda x: x.expand(3, 5, 4), ((5, 1),), ("S(0)",), "S(1)"),
    "softmax of another dim": Row(lambda x: x.softmax(1), ((5, 3),), ("S(0)",), "S(0)"),
    "layer_norm of rows": Row(lambda x, w: F.layer_norm(x, (4,), w), (X, (4,)), ("S(0)", "R"), "S(0)"),
    "attention of heads": Row(F.scaled_dot_product_attention, ((2, 4, 3, 2),) * 3, ("S(1)",) * 3, "S(1)"),
    "attention of rows": Row(F.scaled_dot_product_attention, ((2, 5, 2),) * 3, ("S(1)", "R", "R"), "S(1)"),
    "cat of columns": Row(lambda x, y: torch.cat([x, y], 1), ((5, 2), (5, 3)), ("S(0)", "S(0)"), "S(0)"),
    "stack": Row(lambda x, y: torch.stack([x, y]), ((5,), (5,)), ("S(0)", "R"), "S(1)"),
    "chunk of another dim": Row(lambda x: x.chunk(2, 1), ((5, 4),), ("S(0)",), "S(0)"),
    "a slice of all": Row(lambda x: x[:, 1:3], ((5, 4),), ("S(0)",), "S(0)"),
    "mse": Row(F.mse_loss, ((5, 2), (5, 2)), ("S(0)", "S(0)"), "P"),
}

# These need a dim whole, or evenly cut, and gather what they must.
MOVING: dict[str, Row] = {
    "factors along unlike dims": Row(torch.mul, (X, X), ("S(0)", "S(1)"), "S(0)"),
    "softmax of the dim": Row(lambda x: x.softmax(0), ((5, 3),), ("S(0)",), "R"),
    "layer_norm of columns": Row(lambda x: F.layer_norm(x, (4,)), (X,), ("S(1)",), "R"),
    "argmax of the dim": Row(lambda x: x.argmax(0), ((5, 3),), ("S(0)",), "R"),
    "max with indices": Row(lambda x: x.max(0), ((5, 3),), ("S(0)",), "R"),
    "rows merged unevenly": Row(lambda x: x.view(15), ((5, 3),), ("S(0)",), "R"),
    "parts that the ranks do not divide": Row(lambda x: x.view(2, 3), ((6,),), ("S(0)",), "R"),
    "columns merged": Row(lambda x: x.flatten(), (X,), ("S(1)",), "R"),
    "nested rows of which the outer divide": Row(lambda x: x.flatten(), ((6, 4),), ("S(0), S(0)",), "S(0), R"),
    "cat of rows": Row(lambda x, y: torch.cat([x, y]), ((5, 2), (3, 2)), ("S(0)", "S(0)"), "R"),
    "split of the dim": Row(lambda x: x.split(2), ((5, 2),), ("S(0)",), "R"),
    "causal attention of rows": Row(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), ((2, 5, 2),) * 3, ("S(1)",) * 3, "R"
    ),
}
ROWS = STAYING | MOVING


def make(rank: Rank, row: Row) -> tuple[list[DTensor], list[torch.Tensor]]:
    line = len(parse_placements(row.placements[0])) == 1
    mesh = make_mesh(4) if line else make_mesh(2, 2)
    plain = [small_integers(shape, torch.float64, seed) for seed, shape in enumerate(row.shapes)]
    pairs = zip(plain, row.placements, strict=True)
    return [distribute_tensor(tensor, mesh, parse_placements(text)) for tensor, text in pairs], plain


@pytest.mark.parametrize("row", list(ROWS))
@ranks(4)
def test_results_lie_as_the_rule_says(rank: Rank, row: str) -> None:
    given, plain = make(rank, ROWS[row])
    with strict():
        results = as_list(ROWS[row].run(*given))
    for result, expected in zip(results, as_list(ROWS[row].run(*plain)), strict=True):
        assert result.placements == tuple(parse_placements(ROWS[row].result))
        assert_lies_right(result, rank.index)
        assert_close(result.full_tensor(), expected)


@pytest.mark.parametrize("row", list(STAYING))
@ranks(4)
def test_operands_that_lie_right_are_not_communicated(rank: Rank, row: str) -> None:
    given, plain = make(rank, STAYING[row])
    results = as_list(in_turn(rank, lambda: STAYING[row].run(*given)))
    for result, expected in zip(results, as_list(STAYING[row].run(*plain)), strict=True):
        assert_close(result.full_tensor(), expected)


@ranks(4)
def test_a_bias_is_added_once_however_many_shares_there_are(rank: Rank) -> None:
    for mesh, placements in ((make_mesh(4), [Shard(1)]), (make_mesh(2, 2), [Shard(1), Shard(1)])):
        whole = [small_integers(shape, torch.float64, seed).requires_grad_() for seed, shape in enumerate((X, W, B))]
        layouts = [placements, placements, [Replicate()] * mesh.ndim]
        x, weight, bias = (distribute_tensor(t, mesh, lies) for t, lies in zip(whole, layouts, strict=True))
        result = F.linear(x, weight, bias)
        assert result.placements == (Partial("sum"),) * mesh.ndim
        expected = F.linear(*whole)
        assert_equal(result.full_tensor().detach(), expected.detach())
        result.sum().backward()
        expected.sum().backward()
        assert_equal(bias.grad.full_tensor(), whole[2].grad)
        assert bias.grad.placements == bias.placements


@ranks(4)
def test_a_bias_of_no_number_does_not_reach_the_other_shares(rank: Rank) -> None:
    mesh = make_mesh(4)
    x, weight = (distribute_tensor(torch.ones(4, 4), mesh, [Shard(1)]) for _ in range(2))
    bias = distribute_tensor(torch.tensor([1.0, float("inf"), float("-inf"), 2.0]), mesh, [Replicate()])
    assert_equal(F.linear(x, weight, bias).full_tensor(), torch.full((4, 4), 4.0) + bias.full_tensor())


@ranks(4)
def test_a_column_and_a_row_parallel_layer_reduce_once(rank: Rank) -> None:
    mesh = make_mesh(4)
    whole = [small_integers(shape, torch.float64, seed).requires_grad_() for seed, shape in enumerate((X, W, (4, 12)))]
    lies = ([Replicate()], [Shard(0)], [Shard(1)])
    x, up, down = (distribute_tensor(tensor, mesh, list(how)) for tensor, how in zip(whole, lies, strict=True))
    result = in_turn(rank, lambda: F.linear(F.relu(F.linear(x, up)), down))
    assert result.placements == (Partial("sum"),)
    expected = F.linear(F.relu(F.linear(whole[0], whole[1])), whole[2])
    assert_equal(result.full_tensor().detach(), expected.detach())
    result.sum().backward()
    expected.sum().backward()
    for tensor, plain in zip((x, up, down), whole, strict=True):
        assert_equal(tensor.grad.full_tensor(), plain.grad)
        assert tensor.grad.placements == tensor.placements
