"""Reductions and losses of parts that are uneven or empty: what a mean of means, or an own part, would get wrong."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from hyper_parallel import DTensor, Partial, Replicate, Shard, distribute_tensor
from support.checks import assert_equal, assert_raises, gradient_of, make_mesh
from support.normal_checks import assert_close
from support.ranks import ranks
from support.truth import Spread
from support.values import numbered
from support.worker import Rank

FLOATS = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


@pytest.mark.parametrize("rows", [5, 3, 1])
@ranks(4)
def test_a_mean_counts_cells_not_parts(rank: Rank, rows: int) -> None:
    whole = numbered((rows, 3), torch.float64).square().requires_grad_()
    x = distribute_tensor(whole, make_mesh(4), [Shard(0)])
    for mean, expected in ((x.mean(), whole.mean()), (x.mean(0), whole.mean(0))):
        assert mean.placements == (Partial("sum"),)
        assert_close(mean.full_tensor(), expected)
    x.mean().backward()
    spread = Spread((rows, 3), (4,), (Shard(0),))
    assert_close(gradient_of(x)._local_tensor, spread.part(torch.full((rows, 3), 1 / (3 * rows)).double(), rank.index))


@ranks(2)
def test_a_mean_of_halves_does_not_leave_their_range(rank: Rank) -> None:
    for dtype in (torch.float16, torch.bfloat16):
        x = distribute_tensor(torch.full((1000, 100), 3.0, dtype=dtype), make_mesh(2), [Shard(0)])
        assert_equal(x.mean().full_tensor(), torch.tensor(3.0, dtype=dtype))
        zeros = distribute_tensor(torch.zeros(1000, 100, dtype=dtype), make_mesh(2), [Shard(0)])
        assert_equal(F.mse_loss(x, zeros).full_tensor(), torch.tensor(9.0, dtype=dtype))


@ranks(2)
def test_a_mean_takes_a_dtype(rank: Rank) -> None:
    x = distribute_tensor(torch.arange(5), make_mesh(2), [Shard(0)])
    assert_equal(x.mean(dtype=torch.float32).full_tensor(), torch.tensor(2.0))
    assert_raises(ValueError, "takes a floating or complex dtype, not Long", lambda: x.mean())
    assert_equal(x.sum(dtype=torch.float64).full_tensor(), torch.tensor(10.0, dtype=torch.float64))


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS], ids=str)
@ranks(4)
def test_an_empty_part_takes_no_part_in_an_extreme(rank: Rank, dtype: torch.dtype) -> None:
    sign = 1 if dtype == torch.uint8 else -1
    whole = (sign * (numbered((3, 2)) + 1)).to(dtype)
    x = distribute_tensor(whole, make_mesh(4), [Shard(0)])
    assert_equal(x.amax(0).full_tensor(), whole.amax(0))
    assert_equal(x.amin((0, 1)).full_tensor(), whole.amin((0, 1)))
    assert_equal(x.max().full_tensor(), whole.max())
    assert_equal((x if sign > 0 else -x).min().full_tensor(), (sign * whole).to(dtype).min())


@ranks(4)
def test_an_extreme_of_bools_raises_on_every_rank(rank: Rank) -> None:
    for rows in (3, 8):
        x = distribute_tensor(torch.ones(rows).bool(), make_mesh(4), [Shard(0)])
        assert_raises(NotImplementedError, "takes a floating or integer dtype, not Bool", lambda x=x: x.amax(0))
    whole = distribute_tensor(torch.ones(3).bool(), make_mesh(4), [Replicate()])
    assert_equal(whole.amax(0).full_tensor(), torch.tensor(True))


@pytest.mark.parametrize("place", range(4))
@ranks(4)
def test_a_nan_is_the_extreme_wherever_it_lies(rank: Rank, place: int) -> None:
    values = torch.tensor([1.0, -3.0, 2.0, 0.5])
    values[place] = math.nan
    x = distribute_tensor(values, make_mesh(4), [Shard(0)])
    for result in (x.amax(0), x.amin(0), x.max(), x.min()):
        assert result.full_tensor().isnan()


@ranks(4)
def test_argmax_is_the_first_place_over_all_parts(rank: Rank) -> None:
    whole = torch.tensor([1.0, 4.0, 2.0, 4.0, 3.0])
    x = distribute_tensor(whole, make_mesh(4), [Shard(0)])
    assert_equal(x.argmax().full_tensor(), torch.tensor(whole.argmax().item()))
    values, places = x.max(0)
    assert_equal(values.full_tensor(), whole.max())
    assert_equal(places.full_tensor(), whole.max(0).indices)


@ranks(2)
def test_no_dims_mean_what_they_mean_in_torch(rank: Rank) -> None:
    whole = numbered((1, 3, 1))
    x = distribute_tensor(whole, make_mesh(2), [Shard(1)])
    for run in (
        lambda t: t.squeeze(()), lambda t: t.sum(()), lambda t: t.amax(()), lambda t: (t > 1).all(dim=()),
        lambda t: (t > 1).any(dim=()), lambda t: t.count_nonzero(dim=()), lambda t: t.flip(()), lambda t: t.var(dim=()),
    ):  # fmt: skip
        assert_equal(run(x).full_tensor(), run(whole))


@ranks(4)
def test_ignored_targets_count_where_they_lie_unevenly(rank: Rank) -> None:
    scores = torch.randn(7, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64).requires_grad_()
    for ignored in ([0, 1], [0, 1, 2, 3, 6], list(range(7)), []):
        target = torch.tensor([0, 1, 2, 2, 1, 0, 2])
        target[ignored] = -100
        for smoothing in (0.0, 0.3):
            for weight in (None, torch.tensor([0.5, 2.0, 1.0], dtype=torch.float64)):
                expected = F.cross_entropy(scores, target, weight, label_smoothing=smoothing)
                gradient = torch.autograd.grad(expected, scores)[0]
                x = distribute_tensor(scores.detach().clone().requires_grad_(), make_mesh(4), [Shard(0)])
                labels = distribute_tensor(target, make_mesh(4), [Replicate()])
                weights = None if weight is None else distribute_tensor(weight, make_mesh(4), [Replicate()])
                loss = F.cross_entropy(x, labels, weights, label_smoothing=smoothing)
                assert_close(loss.full_tensor(), expected)
                loss.backward()
                own = Spread((7, 3), (4,), (Shard(0),)).part(gradient, rank.index)
                assert_close(gradient_of(x)._local_tensor, own)


@ranks(2)
def test_a_loss_of_halves_has_the_range_and_digits_of_a_mean(rank: Rank) -> None:
    generator = torch.Generator().manual_seed(2)
    scores = torch.randn(3001, 4, generator=generator) * 40
    target = torch.randint(0, 4, (3001,), generator=generator)
    for dtype in (torch.float16, torch.bfloat16):
        x = distribute_tensor(scores.to(dtype), make_mesh(2), [Shard(0)])
        loss = F.cross_entropy(x, distribute_tensor(target, make_mesh(2), [Shard(0)]))
        assert loss.dtype == dtype
        expected = F.cross_entropy(scores.to(dtype).double(), target).to(dtype)
        assert_close(loss.full_tensor(), expected)


@ranks(2)
def test_equal_extremes_share_the_gradient_wherever_they_lie(rank: Rank) -> None:
    whole = torch.tensor([8.0, 1.0, 2.0, 8.0, 8.0, 8.0])
    quarters = torch.tensor([[0.25, 0.0, 0.0], [0.25, 0.25, 0.25]])
    for dtype in FLOATS:
        for resolve in (
            lambda y: y.full_tensor([Replicate()]).backward(),
            lambda y: y.redistribute(placements=[Replicate()]).backward(),
            lambda y: y.backward(),
        ):
            x = distribute_tensor(whole.to(dtype).requires_grad_(), make_mesh(2), [Shard(0)])
            resolve(x.amax(0))
            assert_equal(gradient_of(x)._local_tensor, quarters[rank.index].to(dtype))


@ranks(4)
def test_a_rank_without_cells_has_no_part_in_the_gradient_of_an_extreme(rank: Rank) -> None:
    # The least value is also what stands for no cells.
    whole = torch.full((3,), -math.inf, requires_grad=True)
    x = distribute_tensor(whole, make_mesh(4), [Shard(0)])
    x.max().full_tensor([Replicate()]).backward()
    assert_equal(gradient_of(x).full_tensor(), torch.full((3,), 1 / 3))


@ranks(2)
def test_a_share_of_an_extreme_that_was_written_counts_for_one(rank: Rank) -> None:
    # Shared equally among the ranks that hold it, then among the cells of each.
    x = distribute_tensor(torch.tensor([5.0, 1.0, 5.0, 5.0]).requires_grad_(), make_mesh(2), [Shard(0)])
    y = x.amax(0).clone()
    with torch.no_grad():
        y.copy_(DTensor.from_local(torch.tensor(3.0), make_mesh(2), [Partial("max")]))
    y.full_tensor([Replicate()]).backward()
    assert_equal(gradient_of(x)._local_tensor, torch.tensor([[0.5, 0.0], [0.25, 0.25]])[rank.index])


NANS = [1.0, math.nan, 2.0, math.nan, 3.0, math.nan]


@pytest.mark.parametrize("values", [NANS, [3.0, 1.0, 2.0, math.nan], [1.0, 3.0, math.nan, 2.0]], ids=str)
@ranks(2)
def test_the_gradient_of_an_extreme_of_nans_is_torchs(rank: Rank, values: list[float]) -> None:
    for reduce in (
        lambda t: torch.linalg.vector_norm(t, math.inf), lambda t: t.max(), lambda t: t.min(), lambda t: t.amax(0),
        lambda t: t.amin(0),
    ):  # fmt: skip
        whole = torch.tensor(values).requires_grad_()
        x = distribute_tensor(whole.detach(), make_mesh(2), [Shard(0)]).requires_grad_()
        reduce(x).full_tensor([Replicate()]).backward()
        reduce(whole).backward()
        assert whole.grad is not None
        assert_equal(gradient_of(x).full_tensor(), whole.grad)


@ranks(2)
def test_the_greatest_of_complex_numbers_has_its_gradient(rank: Rank) -> None:
    whole = torch.tensor([3 + 4j, 1, 5j, 0]).requires_grad_()
    x = distribute_tensor(whole.detach(), make_mesh(2), [Shard(0)]).requires_grad_()
    torch.linalg.vector_norm(x, math.inf).full_tensor([Replicate()]).backward()
    torch.linalg.vector_norm(whole, math.inf).backward()
    assert whole.grad is not None
    assert_close(gradient_of(x).full_tensor(), whole.grad)


@ranks(4)
def test_a_share_that_is_resolved_step_by_step_keeps_its_cells(rank: Rank) -> None:
    whole = torch.tensor([[5.0, 0, 5], [5, 5, 0], [1, 5, 5], [5, 1, 5], [5, 5, 2], [0, 5, 5]])
    plain = whole.clone().requires_grad_()
    (plain.amax(0) * torch.arange(1.0, 4)).sum().backward()
    mesh = make_mesh(2, 2)
    top, weight = Partial("max"), distribute_tensor(torch.arange(1.0, 4), mesh, [Replicate()] * 2)
    for lies, steps in (
        ([Shard(0), Shard(0)], [[top, Replicate()]]),
        ([Shard(0), Shard(0)], [[Replicate(), top]]),
        ([Shard(0), Shard(1)], [[top, Replicate()]]),
        ([Shard(1), Shard(0)], [[Replicate(), top]]),
        ([Replicate(), Shard(0)], [[Shard(0), top]]),
    ):
        x = distribute_tensor(whole, mesh, lies).requires_grad_()
        y = x.amax(0)
        for step in (*steps, [Replicate(), Replicate()]):
            y = y.view_as(y).redistribute(placements=step)
        (y * weight).sum().backward()
        assert_close(gradient_of(x).full_tensor(), plain.grad)


@ranks(2)
def test_a_write_to_an_extreme_is_found_out_on_every_rank(rank: Rank) -> None:
    # One row: the other rank has no cells.
    x = distribute_tensor(torch.ones(1, 3).requires_grad_(), make_mesh(2), [Shard(0)])
    y = x.amax(0)
    y.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.full_tensor([Replicate()]).sum().backward()


@ranks(2)
def test_attention_on_a_rank_without_samples_stays_in_the_graph(rank: Rank) -> None:
    mesh = make_mesh(2)
    generator = torch.Generator().manual_seed(3)
    whole = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in [(1, 1, 3, 2)] * 3 + [(3, 3)]]
    for wants in ((True,) * 4, (False, False, False, True)):
        plain = [tensor.clone().requires_grad_(want) for tensor, want in zip(whole, wants, strict=True)]
        lies = [Shard(0)] * 3 + [Replicate()]
        given = [distribute_tensor(tensor, mesh, [how]) for tensor, how in zip(plain, lies, strict=True)]
        result = F.scaled_dot_product_attention(*given)
        assert result.requires_grad
        result.sum().backward()
        F.scaled_dot_product_attention(*plain).sum().backward()
        assert_close(gradient_of(given[3]).full_tensor(), plain[3].grad)
