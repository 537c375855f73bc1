"""Holds an operation on normal layouts against unsharded torch. The checks run on every rank of a pool."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist

from hyper_parallel import DTensor, Placement, Replicate, distribute_tensor, fallback_counts, reset_fallback_counts
from support.checks import assert_consistent, gradient_of, make_mesh
from support.normal_forms import ALL_FORMS
from support.operands import Sizes, parse_operands
from support.truth import Spread
from support.worker import Rank

SMALL_TOLERANCE = 0.06
"""Of sums of a few halves, which may be close to zero."""


@dataclass(frozen=True)
class Case:
    """A form with sizes, and how each operand lies and whether it requires grad."""

    form: str
    sizes: Sizes
    mesh_shape: tuple[int, ...]
    placements: tuple[tuple[Placement, ...], ...]
    wants: tuple[bool, ...]
    dtype: torch.dtype = torch.float64

    def plain(self) -> list[torch.Tensor]:
        """The operands as one process has them."""
        form = ALL_FORMS[self.form]
        texts = parse_operands(form.operands)
        return [
            text.make(self.sizes, self.dtype, seed).requires_grad_(wants and text.is_float and form.differentiable)
            for seed, (text, wants) in enumerate(zip(texts, self.wants, strict=True))
        ]


@contextlib.contextmanager
def strict() -> Iterator[None]:
    """Refuses what has no rule, and finds nothing that has fallen back."""
    before = os.environ.get("HYPER_PARALLEL_STRICT")
    os.environ["HYPER_PARALLEL_STRICT"] = "1"
    reset_fallback_counts()  # those of tests that mean the fallback
    try:
        yield
        assert fallback_counts() == {}
    finally:
        if before is None:
            del os.environ["HYPER_PARALLEL_STRICT"]
        else:
            os.environ["HYPER_PARALLEL_STRICT"] = before


def as_list(results: Any) -> list[Any]:
    """The results of a form, one or several."""
    return list(results) if isinstance(results, (tuple, list)) else [results]


def spread_of(tensor: DTensor) -> Spread:
    """How a DTensor lies; its mesh holds ranks 0, 1, 2, .."""
    return Spread(tuple(tensor.shape), tensor.device_mesh.shape, tensor.placements)


def assert_lies_right(result: DTensor, rank: int) -> None:
    """The local tensor has the size that the placements say."""
    assert_consistent(result)
    assert tuple(result._local_tensor.shape) == tuple(spread_of(result).cells(rank).shape)


def assert_close(given: torch.Tensor, expected: torch.Tensor, *, exact: bool = False) -> None:
    """Equal dtype and shape; bits too, or values within the dtype's tolerance: halves are summed in another order."""
    is_small = expected.dtype in {torch.float16, torch.bfloat16}
    tolerance = 0.0 if exact else SMALL_TOLERANCE if is_small else None
    torch.testing.assert_close(given, expected, rtol=tolerance, atol=tolerance, equal_nan=True)


def assert_replicas_equal(tensor: DTensor) -> None:
    """Ranks that hold the same cells hold the same bits. Communicates: every rank must call."""
    spread, rank = spread_of(tensor), dist.get_rank()
    parts: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(parts, tensor._local_tensor.detach().clone())
    cells = spread.cells(rank)
    for other in range(spread.size):
        pending_alike = all(
            mine == theirs or not placement.is_partial()
            for mine, theirs, placement in zip(
                spread.coordinate(rank), spread.coordinate(other), spread.placements, strict=True
            )
        )
        if pending_alike and torch.equal(spread.cells(other), cells):
            torch.testing.assert_close(parts[other], parts[rank], rtol=0, atol=0, equal_nan=True)


def upstream(expected: torch.Tensor, index: int) -> torch.Tensor:
    """A gradient for a result, equal on all ranks."""
    return torch.randn(expected.shape, generator=torch.Generator().manual_seed(50 + index), dtype=torch.float64).to(
        expected.dtype
    )


def run_backward(expected: Sequence[torch.Tensor], results: Sequence[DTensor]) -> None:
    """Backward of one loss over all differentiable results, in one process and on the ranks."""
    whole: list[torch.Tensor] = []
    spread: list[torch.Tensor] = []
    for index, (plain, result) in enumerate(zip(expected, results, strict=True)):
        if not plain.requires_grad:
            continue
        weight = upstream(plain, index)
        same_loss = [Replicate()] * result.device_mesh.ndim
        whole.append((plain * weight).sum())
        spread.append((result.full_tensor(grad_placements=same_loss) * weight).sum())
    if whole:
        torch.stack(whole).sum().backward()
        torch.stack(spread).sum().backward()


def check_case(rank: Rank, case: Case) -> None:
    """The form on distributed operands is the form on whole ones: values, gradients and how they lie."""
    form = ALL_FORMS[case.form]
    mesh = make_mesh(*case.mesh_shape)
    plain = case.plain()
    given = [distribute_tensor(tensor, mesh, list(lies)) for tensor, lies in zip(plain, case.placements, strict=True)]
    with strict():
        try:
            expected = as_list(form.run(*plain))
        except Exception as error:
            assert_refuses_too(error, lambda: form.run(*given))
            return
        results = as_list(form.run(*given))
        assert len(results) == len(expected)
        for result, whole in zip(results, expected, strict=True):
            assert_lies_right(result, rank.index)
            assert result.requires_grad == whole.requires_grad
            assert_close(result.detach().full_tensor(), whole.detach(), exact=form.exact)
            assert_replicas_equal(result)
        run_backward(expected, results)
    for tensor, whole in zip(given, plain, strict=True):
        assert_gradient(rank, tensor, whole.grad)


def assert_gradient(rank: Rank, tensor: DTensor, expected: torch.Tensor | None) -> None:
    """The gradient is that of one process, lies as the tensor does and has the same bits on all replicas."""
    assert (tensor.grad is None) == (expected is None)
    if expected is None:
        return
    gradient = gradient_of(tensor)
    assert_close(gradient._local_tensor, spread_of(gradient).part(expected, rank.index))
    assert_replicas_equal(gradient)


def assert_refuses_too(error: Exception, action: Callable[[], object]) -> None:
    """Where plain torch raises, so does the call on the ranks: all of them, since they all come here."""
    try:
        action()
    except Exception:
        return
    raise AssertionError(f"torch raised {error!r}, but the DTensor's operation did not")


def in_turn(rank: Rank, action: Callable[[], Any]) -> Any:
    """Runs `action` on one rank after the other: were it to communicate, it would wait for ranks that do not come."""
    result = None
    for turn in range(rank.size):
        dist.barrier()
        if turn == rank.index:
            result = action()
    dist.barrier()
    return result


def replaced(case: Case, operand: int, placements: tuple[Placement, ...]) -> Case:
    """The case with one operand laid out otherwise."""
    lies = list(case.placements)
    lies[operand] = placements
    return replace(case, placements=tuple(lies))
