"""Whether two trainings came to the same."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Difference:
    """The largest difference of a parameter's elements, and whether it is within torch's tolerance for the dtype."""

    name: str
    largest: float
    equal: bool


def difference(name: str, given: torch.Tensor, expected: torch.Tensor) -> Difference:
    """Compares with the tolerance of `torch.testing.assert_close`: 1e-5 + 1.3e-6 of the value for float32."""
    try:
        torch.testing.assert_close(given, expected)
    except AssertionError:
        equal = False
    else:
        equal = True
    largest = (given - expected).abs().max().item() if given.shape == expected.shape else float("inf")
    return Difference(name, largest, equal)


def verdict(differences: list[Difference]) -> str:
    """The last line of the program."""
    equal = sum(each.equal for each in differences)
    largest = max(each.largest for each in differences)
    unequal = "".join(f"; not {each.name}" for each in differences if not each.equal)
    return f"equal to one process: {equal} of {len(differences)} parameters (largest difference {largest:.1e}){unequal}"
