"""What sharding asks of MindSpore: trees of values, and the parts of a cell."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import mindspore
from mindspore import nn

from hyper_parallel.mindspore._graph import is_tracked
from hyper_parallel.mindspore.dtensor import DTensor, distribute_tensor
from hyper_parallel.mindspore.parameter import LocalParameter, set_parameter

__all__ = [
    "MODULE_NAME",
    "DTensor",
    "Module",
    "Tensor",
    "check_ready",
    "detached",
    "distribute_tensor",
    "named_modules",
    "named_tensors",
    "needs_gradient",
    "owner_of",
    "put",
    "tree_flatten",
    "tree_leaves",
    "tree_map",
    "tree_unflatten",
]

MODULE_NAME = "mindspore.nn.Cell"
Module = nn.Cell
Tensor = mindspore.Tensor


def needs_gradient(tensor: DTensor) -> bool:
    """Whether a gradient for the tensor will come back."""
    return is_tracked(tensor._local_tensor)


# --- trees of tuples, lists and dicts --------------------------------------------------------------------------------


def tree_leaves(tree: Any) -> list[Any]:  # noqa: ANN401  (a tree of anything)
    """What the tuples, lists and dicts in ``tree`` hold, in order."""
    return list(_leaves(tree))


def tree_map(function: Callable[[Any], Any], tree: Any) -> Any:  # noqa: ANN401  (as above)
    """The same tree with each leaf changed."""
    if isinstance(tree, dict):
        changed = copy.copy(tree)  # what else a class of dicts has: a defaultdict its factory
        for key, value in tree.items():
            changed[key] = tree_map(function, value)
        return changed
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(tree_map(function, value) for value in tree))
    if isinstance(tree, list | tuple):
        return type(tree)(tree_map(function, value) for value in tree)
    return function(tree)


def tree_flatten(tree: Any) -> tuple[list[Any], Any]:  # noqa: ANN401  (as above)
    """The leaves, and the tree for ``tree_unflatten``."""
    return tree_leaves(tree), tree


def tree_unflatten(leaves: Sequence[Any], structure: Any) -> Any:  # noqa: ANN401  (as above)
    """The tree with other leaves."""
    following = iter(leaves)
    return tree_map(lambda _: next(following), structure)


def _leaves(tree: Any) -> Iterator[Any]:  # noqa: ANN401  (as above)
    if isinstance(tree, dict):
        for value in tree.values():
            yield from _leaves(value)
    elif isinstance(tree, list | tuple):
        for value in tree:
            yield from _leaves(value)
    else:
        yield tree


# --- parts of a cell -------------------------------------------------------------------------------------------------


def named_modules(model: nn.Cell) -> dict[str, nn.Cell]:
    """All cells by their dotted names, "" for the model itself."""
    found = {"": model}
    for name, cell in model._cells.items():
        if cell is not None:
            found |= {f"{name}.{inner}" if inner else name: part for inner, part in named_modules(cell).items()}
    return found


def named_tensors(model: nn.Cell) -> dict[str, Any]:
    """All parameters and buffers by their dotted names, tied ones under each; of distributed ones the DTensor."""
    found: dict[str, Any] = {}
    for path, cell in named_modules(model).items():
        prefix = f"{path}." if path else ""
        for name, tensor in (*cell._params.items(), *cell._buffers.items()):
            if tensor is not None:
                found[f"{prefix}{name}"] = tensor.dtensor if isinstance(tensor, LocalParameter) else tensor
    return found


def owner_of(model: nn.Cell, name: str) -> tuple[nn.Cell, str]:
    """The cell that holds a tensor, and its attribute there."""
    owner, _, attribute = name.rpartition(".")
    return named_modules(model)[owner], attribute


def check_ready(tensor: mindspore.Tensor, what: str) -> None:
    """Nothing to check: a Parameter of MindSpore's has its shape, its values and no gradient."""


def detached(tensor: mindspore.Tensor) -> mindspore.Tensor:
    """The values in memory of their own; of a DTensor itself."""
    return tensor.detach() if isinstance(tensor, DTensor) else mindspore.Tensor.from_numpy(tensor.asnumpy().copy())


def put(places: Sequence[tuple[nn.Cell, str]], old: mindspore.Tensor, value: DTensor) -> None:
    """Puts a DTensor where ``old`` was: a distributed parameter if that was one."""
    cell, attribute = places[0]
    if attribute in cell._params:
        set_parameter(places, value)
        return
    for owner, name in places:
        owner._buffers[name] = value
