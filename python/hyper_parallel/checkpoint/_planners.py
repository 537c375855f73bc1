"""The standard planners: what a state dict of tensors says to a save or a load."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from hyper_parallel import _core
from hyper_parallel.checkpoint._framework import Tensor, TensorLoadPlanner, TensorSavePlanner, own_tensor
from hyper_parallel.checkpoint._state_dict import FlatState, flatten

__all__ = ["FailedLoadPlanner", "FailedSavePlanner", "StandardLoadPlanner", "StandardSavePlanner"]


def _is_tensor(value: object) -> bool:
    return isinstance(value, Tensor)


def _own_tensors(flat: FlatState) -> dict[str, Any]:
    """The tensors by name, as the framework's planners take them."""
    return {name: own_tensor(tensor) for name, tensor in flat.tensors.items()}


class StandardSavePlanner(TensorSavePlanner):
    """Plans the save of a state dict.

    Every DTensor is planned as the boxes of its layout, a plain tensor as one box, on every rank that has it. Derive
    from it to change what is saved or how: each method may be overridden, and is then called for its role.

    ``build_local_plan()`` says what this rank holds, a ``SavePlan``. ``build_global_plan(plans)`` runs on the
    coordinator and gives each box to one of the ranks that hold it. ``get_data(item)`` returns the box's elements.

    Args:
        state_dict: Nested dicts, lists and tuples of tensors and values.

    Raises:
        InvalidArgumentError: Two entries of one name, or a value that cannot be stored.

    Example:
        >>> planner = StandardSavePlanner({"w": torch.zeros(2, 3)})
        >>> planner.build_local_plan().items
        [WriteItem(MetadataIndex(fqn='w', offset=(0, 0)), sizes=(2, 3), dtype='F32')]
    """

    def __init__(self, state_dict: dict[Any, Any]) -> None:
        self.flat = flatten(state_dict, _is_tensor)
        super().__init__(_own_tensors(self.flat), self.flat.values, self.flat.structure)


class StandardLoadPlanner(TensorLoadPlanner):
    """Plans the load of a state dict, whose tensors are filled in place.

    ``build_local_plan(metadata)`` finds the chunks that fill this rank's boxes, ``acquire_tensor(item)`` returns the
    part of the target where an overlap goes, ``finish()`` is called when everything is read and verified. Each may be
    overridden.

    Args:
        state_dict: Nested dicts, lists and tuples of tensors and values.
        allow_missing: Names or patterns of entries that need not be stored.
        allow_cast: Names or patterns of tensors whose dtype may differ from the stored one.

    Raises:
        InvalidArgumentError: Two entries of one name, or a value that cannot be stored.
    """

    def __init__(
        self, state_dict: dict[Any, Any], allow_missing: Collection[str] = (), allow_cast: Collection[str] = ()
    ) -> None:
        self.flat = flatten(state_dict, _is_tensor)
        super().__init__(_own_tensors(self.flat), tuple(allow_missing), tuple(allow_cast))


class FailedSavePlanner(_core.SavePlanner):
    """Stands for a planner that could not be made on this rank: the other ranks hear of it in the first round."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self._error = error

    def build_local_plan(self) -> _core.SavePlan:
        raise self._error


class FailedLoadPlanner(_core.LoadPlanner):
    """The same for a load."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self._error = error

    def build_local_plan(self, metadata: _core.CheckpointMetadata) -> _core.LoadPlan:
        raise self._error
