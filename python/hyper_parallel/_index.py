"""x[...] by ints, slices, None and Ellipsis: a chain of selects and slices, each by its rule."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, cast

from hyper_parallel import _torch
from hyper_parallel.errors import InvalidArgumentError, OutOfRangeError

if TYPE_CHECKING:
    from hyper_parallel.dtensor import DTensor


def basic_index(tensor: DTensor, index: object) -> DTensor | None:
    """The tensor that x[index] is in numpy and torch; None for an index of another kind.

    Args:
        tensor: On a normal layout.
        index: What stands in the brackets.

    Raises:
        OutOfRangeError: An int outside its dim, or more ints and slices than dims.
        InvalidArgumentError: A slice with a step that is not positive, or two Ellipses.
    """
    items = index if isinstance(index, tuple) else (index,)
    if not all(_is_basic(item) for item in items):
        return None
    result, dim = tensor, 0
    for item in _without_ellipsis(tensor, items):
        if item is None:
            result = _call("unsqueeze", result, dim)
            dim += 1
        elif isinstance(item, slice):
            result = _sliced(result, dim, item)
            dim += 1
        else:
            result = _call("select", result, dim, operator.index(item))
    return _call("view", tensor, tuple(tensor.shape)) if result is tensor else result


def _is_basic(item: object) -> bool:
    if isinstance(item, bool):
        return False
    if item is None or item is Ellipsis or isinstance(item, (int, slice)):
        return True
    # numpy's integers, but no arrays or tensors, which index by their values.
    return hasattr(item, "__index__") and not hasattr(item, "__len__")


def _without_ellipsis(tensor: DTensor, items: tuple[Any, ...]) -> list[Any]:
    """As many ints and slices as there are dims."""
    taken = sum(item is not None and item is not Ellipsis for item in items)
    if taken > tensor.dim():
        raise OutOfRangeError(f"x[...]: {taken} indices were given for a tensor of {tensor.dim()} dims")
    places = [place for place, item in enumerate(items) if item is Ellipsis]
    if len(places) > 1:
        raise InvalidArgumentError("x[...]: an index holds one Ellipsis at most")
    rest = [slice(None)] * (tensor.dim() - taken)
    place = places[0] if places else len(items)
    return [*items[:place], *rest, *items[place + 1 :]]


def _sliced(tensor: DTensor, dim: int, item: slice) -> DTensor:
    size = tensor.shape[dim]
    if item.step is not None and operator.index(item.step) <= 0:
        raise InvalidArgumentError(f"x[...]: a slice has step {item.step} but it must be positive")
    begin, end, step = item.indices(size)
    if (begin, step) == (0, 1) and end >= size:
        return tensor
    return _call("slice", tensor, dim, begin, max(begin, end), step)


def _call(name: str, *args: Any) -> DTensor:  # noqa: ANN401
    return cast("DTensor", _torch.call(name, *args))
