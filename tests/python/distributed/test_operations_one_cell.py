"""Operations with a rule on operands of one element, under every layout.

One replicated element meets any layout without a rule where shapes differ, so equal shapes of one element are where the
two ways meet. Draws of many sizes seldom come there.
"""

from __future__ import annotations

import itertools
import random

import pytest
import torch

from hyper_parallel import Replicate, Shard, distribute_tensor
from support.checks import make_mesh
from support.drawing import SEED
from support.normal_checks import Case, assert_close, check_case, strict
from support.normal_forms import ALL_FORMS
from support.operands import letters_of, parse_operands
from support.pool import RankPools
from support.ranks import ranks
from support.worker import Rank

MOST = 25
"""Cases of one form; of more, so many are drawn."""


def cases_of(form: str) -> list[Case]:
    """The form on two ranks, with each operand laid out in every way: its sizes that are not numbers are 1."""
    texts = parse_operands(ALL_FORMS[form].operands)
    sizes = dict.fromkeys(letters_of(texts), 1)
    ways = [[(Replicate(),), *((Shard(dim),) for dim in range(len(text.dims)))] for text in texts]
    cases = [Case(form, sizes, (2,), lies, (True,) * len(texts)) for lies in itertools.product(*ways)]
    return random.Random(f"{SEED} {form}").sample(cases, min(MOST, len(cases)))


def check_cases(rank: Rank, cases: list[Case]) -> None:
    for case in cases:
        check_case(rank, case)


@pytest.mark.parametrize("form", list(ALL_FORMS))
def test_every_layout_of_one_cell_is_plain_torch(rank_pools: RankPools, form: str) -> None:
    rank_pools[2].run(check_cases, cases_of(form))


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)], ids=str)
@ranks(2)
def test_a_replicated_cell_that_is_written_stays_replicated(rank: Rank, shape: tuple[int, ...]) -> None:
    x = distribute_tensor(torch.ones(1, 1), make_mesh(2), [Replicate()])
    y = distribute_tensor(torch.full(shape, 3.0), make_mesh(2), [Shard(0) if shape else Replicate()])
    z = distribute_tensor(torch.ones(1, 1), make_mesh(2), [Replicate()])
    with strict():
        x.copy_(y)
        x += y
        torch._foreach_mul_([x, z], [y, y])
    for written, value in ((x, 18.0), (z, 3.0)):
        assert written.placements == (Replicate(),)
        assert_close(written._local_tensor, torch.full((1, 1), value))


@pytest.mark.parametrize("shape", [(1, 1), (2,), (0,)], ids=str)
@ranks(2)
def test_what_does_not_broadcast_to_a_written_cell_raises_and_writes_nothing(
    rank: Rank, shape: tuple[int, ...]
) -> None:
    x = distribute_tensor(torch.ones(1), make_mesh(2), [Replicate()])
    y = distribute_tensor(torch.ones(shape), make_mesh(2), [Shard(0)])
    for write in (x.add_, x.copy_, lambda other: torch._foreach_add_([x], [other])):
        with pytest.raises((RuntimeError, ValueError), match="shape"):
            write(y)
    assert x._version == 0
    assert_close(x._local_tensor, torch.ones(1))
