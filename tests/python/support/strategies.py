"""Hypothesis strategies of what torch alone is tested with; those of layouts are in `layout_strategies`."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from hyper_parallel import Placement, Replicate, Shard
from support import layout_strategies
from support.normal_checks import Case
from support.normal_forms import ALL_FORMS
from support.operands import letters_of, parse_operands
from support.truth import Spread
from support.values import DTYPES


@dataclass(frozen=True)
class Transition:
    """A tensor that goes from one layout to another."""

    source: Spread
    target: Spread
    dtype: torch.dtype


@st.composite
def transitions(
    draw: DrawFn, source: str, target: str, mesh_shape: tuple[int, ...], dtypes: tuple[torch.dtype, ...] = DTYPES
) -> Transition:
    """A transition from a layout of kind `source` to one of kind `target`."""
    names = tuple(str(dtype).removeprefix("torch.") for dtype in dtypes)
    drawn = draw(layout_strategies.transitions(source, target, mesh_shape, names))
    ends = [Spread(end.shape, end.mesh_shape, end.placements) for end in (drawn.source, drawn.target)]
    return Transition(ends[0], ends[1], getattr(torch, drawn.dtype))


@st.composite
def normal_cases(
    draw: DrawFn, name: str, mesh_shape: tuple[int, ...], dtypes: tuple[torch.dtype, ...] = (torch.float64,)
) -> Case:
    """A form on operands of drawn sizes, each laid out by Replicate and Shard as it comes."""
    form = ALL_FORMS[name]
    operands = parse_operands(form.operands)
    sizes = {letter: draw(st.sampled_from(form.sizes), label=letter) for letter in letters_of(operands)}
    lies = []
    for operand in operands:
        one: st.SearchStrategy[Placement] = st.just(Replicate())
        if operand.dims:
            one = st.one_of(one, st.integers(0, len(operand.dims) - 1).map(Shard))
        lies.append(tuple(draw(one, label=operand.dims) for _ in mesh_shape))
    wants = draw(st.sampled_from([(True,) * len(operands), *_single_flags(len(operands))]), label="requires grad")
    return Case(name, sizes, mesh_shape, tuple(lies), wants, draw(st.sampled_from(dtypes), label="dtype"))


def _single_flags(count: int) -> list[tuple[bool, ...]]:
    """Each way to set one flag of several."""
    return [tuple(index == flag for index in range(count)) for flag in range(count)]
