"""What a test asks of the framework that it runs on. Each of `on_torch` and `on_mindspore` is a module with all of it.

Values come and go as numpy arrays and dtypes as their names ("float32", "bfloat16", ..). numpy has no bfloat16: its
values are float32 arrays, of which they are a part.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from support.protocol import Group
from support.spread import Spread

Array = np.ndarray[Any, Any]
Tensor = Any


class Framework(Protocol):
    """A framework, as a module."""

    NAME: str
    """As `hyper_parallel.platform.name()` says it."""
    PRELOAD: list[str]
    """What the process imports from which the ranks are forked."""
    REJOINS: bool
    """Whether a process that has been in a group can join another one."""
    EXAMPLES: int
    """How many cases a test draws whose calls are many."""
    COMPUTED_DTYPES: tuple[str, ...]
    """The floating-point dtypes that it multiplies and sums."""
    FLOAT32_AND_FLOAT64: tuple[str, str]
    """How it prints these dtypes."""
    OPTIMIZERS: dict[str, Callable[..., Any]]
    """Makers of optimizers, by a name that says what they do."""
    NOT_OFFERED: list[str]
    """The public names of the package that raise here."""
    REDUCTIONS: dict[str, Callable[[Any], object]]
    """Functions of its own that would have a result if they took a share for the whole."""

    def prepare(self) -> None:
        """Once in each rank's process, before its first group."""
        ...

    def join(self, group: Group, index: int, size: int) -> None:
        """Makes `group` the default process group, of which this process is rank `index`."""
        ...

    def seed(self, value: int) -> None:
        """Of the framework's random numbers."""
        ...

    def tensor(self, array: Array, dtype: str = "float32") -> Tensor:
        """A plain tensor of these values in storage of its own."""
        ...

    def array(self, tensor: Tensor) -> Array:
        """The values of a plain tensor."""
        ...

    def from_bytes(self, data: bytes, shape: tuple[int, ...], dtype: str) -> Tensor:
        """A plain tensor of these very bits."""
        ...

    def to_bytes(self, tensor: Tensor) -> bytes:
        """The bits of a plain tensor, row-major."""
        ...

    def dtype_of(self, tensor: Tensor) -> str:
        """The dtype of a plain or distributed tensor."""
        ...

    def is_plain(self, tensor: Tensor) -> bool:
        """Whether it is one of the framework's own tensors, no DTensor."""
        ...

    def weighted_sum(self, tensor: Tensor, weights: Array) -> Tensor:
        """The sum of the elements of a plain tensor times the weights, also of no elements."""
        ...

    def gradients(self, function: Callable[..., Tensor], tensors: Sequence[Tensor]) -> list[Array]:
        """Of the scalar `function(*tensors)` with respect to each of the plain tensors."""
        ...

    def second_derivative(self, function: Callable[..., Tensor], tensor: Tensor) -> Array:
        """The gradient of the sum of the gradient of the scalar `function(tensor)`."""
        ...

    def call(self, name: str, tensor: Tensor) -> Tensor:
        """The operation of one operand that is called `name` in the specification, on a DTensor."""
        ...

    def train(
        self,
        starts: Sequence[Array],
        spreads: Sequence[Spread] | None,
        loss: Callable[[list[Tensor], int], Tensor],
        optimizer: str,
        steps: int,
    ) -> list[Array]:
        """Steps an optimizer of its own on parameters, and returns what they have become, whole.

        Args:
            starts: Their whole values.
            spreads: How they lie; None for plain parameters of this process alone.
            loss: Of the whole parameters and the number of the step.
            optimizer: One of `OPTIMIZERS`.
            steps: How many.
        """
        ...

    def sum_over_ranks(self, value: float) -> float:
        """By the framework's own collective over all ranks."""
        ...
