"""State dicts for property tests, and what makes two of them the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

TEXTS = st.text(st.characters(codec="utf-8"), max_size=4)
SCALARS: st.SearchStrategy[Any] = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.complex_numbers(), TEXTS, st.binary(max_size=4)
)
KEYS: st.SearchStrategy[str | int] = st.one_of(TEXTS, st.integers(-3, 3), st.integers())


def containers(items: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Short lists, tuples and dicts of `items`."""
    return st.one_of(
        st.lists(items, max_size=3),
        st.lists(items, max_size=3).map(tuple),
        st.dictionaries(KEYS, items, max_size=3),
    )


def state_dicts(tensors: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str | int, Any]]:
    """Nested dicts of values and `tensors`; some have two entries of one name."""
    return st.dictionaries(KEYS, st.recursive(st.one_of(SCALARS, tensors), containers, max_leaves=12), max_size=4)


def typed(value: Any) -> Any:
    """The value with the types of all its parts, alike for equal values of equal types alone; NaN is like NaN."""
    if isinstance(value, dict):
        return (type(value), [(typed(key), typed(item)) for key, item in value.items()])
    if isinstance(value, list | tuple):
        return (type(value), [typed(item) for item in value])
    if isinstance(value, float | complex):
        return (type(value), repr(value))
    return (type(value), value)


def has_below(value: Any, is_tensor: Callable[[object], bool]) -> bool:
    """Whether the value is a tensor or has one anywhere below it."""
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return is_tensor(value) or any(has_below(item, is_tensor) for item in items)


def expected_entries(state_dict: dict[str | int, Any], is_tensor: Callable[[object], bool]) -> list[tuple[str, object]]:
    """Names and entries by the rule of the checkpoint; a name may come twice."""

    def below(value: Any, name: str) -> list[tuple[str, object]]:
        if isinstance(value, dict) and value:
            items = list(value.items())
        elif isinstance(value, list | tuple) and has_below(value, is_tensor):
            items = list(enumerate(value))
        else:
            return [(name, value)]
        return [entry for key, item in items for entry in below(item, f"{name}.{key}")]

    return [entry for key, item in state_dict.items() for entry in below(item, str(key))]
