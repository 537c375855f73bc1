"""Operands of operations on normal layouts, written as text: "ab bc" are two tensors whose sizes a, b and c are drawn.

A letter is a size, equal wherever it stands; a digit is that size. ":" and a word say what the values are:

    ab        any float
    ab:pos    floats above zero             ab:unit   floats between 0 and 1
    ab:weight floats above zero that need no gradient
    ab:ties   floats of which many are equal
    ab:bool   True and False                ab:int    small integers
    ab:<c     integers below the size c     a:<4      integers below 4
    ()        a tensor of no dims

No two other floats of an operand are equal, so that no maximum is held twice.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from hyper_parallel import Partial, Placement, Replicate, Shard

Sizes = dict[str, int]


@dataclass(frozen=True)
class OperandText:
    """One operand: its dims, and what its values are."""

    dims: str
    values: str = "float"

    @property
    def is_float(self) -> bool:
        """Whether the operand can require grad."""
        return self.values in {"float", "pos", "unit", "ties"}

    def shape(self, sizes: Sizes) -> tuple[int, ...]:
        """The shape under drawn sizes."""
        return tuple(_size(name, sizes) for name in self.dims)

    def make(self, sizes: Sizes, dtype: torch.dtype, seed: int) -> torch.Tensor:
        """The operand; `dtype` is that of floats."""
        shape = self.shape(sizes)
        generator = torch.Generator().manual_seed(seed)
        match self.values:
            case "bool":
                return torch.randint(0, 2, shape, generator=generator).bool()
            case "int":
                return torch.randint(1, 9, shape, generator=generator)
            case "ties":
                return torch.randint(-1, 2, shape, generator=generator).to(dtype)
            case "float" | "pos" | "unit" | "weight":
                return self._floats(shape, generator).to(dtype)
        return torch.randint(0, max(_size(self.values.removeprefix("<"), sizes), 1), shape, generator=generator)

    def _floats(self, shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
        count = math.prod(shape)
        steps = torch.randperm(count, generator=generator).double()
        fractions = (steps + torch.rand(1, generator=generator, dtype=torch.float64) * 0.8 + 0.1) / max(count, 1)
        between = {"unit": (0.0, 1.0), "pos": (0.2, 3.0), "weight": (0.2, 3.0), "float": (-2.0, 2.0)}[self.values]
        return (fractions * (between[1] - between[0]) + between[0]).reshape(shape)


def parse_operands(text: str) -> list[OperandText]:
    """The operands that `text` names.

    Args:
        text: Operands, separated by blanks.

    Returns:
        As many as there are.
    """
    parsed = []
    for word in text.split():
        dims, _, values = word.partition(":")
        parsed.append(OperandText("" if dims == "()" else dims, values or "float"))
    return parsed


def parse_placements(text: str) -> list[Placement]:
    """Placements written short: "R, S(1), P, P(max)".

    Args:
        text: One for each mesh dim.

    Returns:
        As many.
    """
    return [_placement(word.strip()) for word in text.split(",")]


def letters_of(operands: list[OperandText]) -> list[str]:
    """The sizes that are to be drawn, in order."""
    names = [name for operand in operands for name in (*operand.dims, operand.values.removeprefix("<"))]
    return sorted({name for name in names if len(name) == 1 and name.isalpha()})


def _size(name: str, sizes: Sizes) -> int:
    return int(name) if name.isdigit() else sizes[name]


def _placement(word: str) -> Placement:
    kind, _, argument = word.rstrip(")").partition("(")
    match kind:
        case "R":
            return Replicate()
        case "S":
            return Shard(int(argument))
        case "P":
            return Partial(argument or "sum")
    raise AssertionError(f"a test knows no placement {word}")
