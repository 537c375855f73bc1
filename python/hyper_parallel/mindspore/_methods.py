"""The methods and operators of a DTensor: those of the table run, every other one of ``mindspore.Tensor`` raises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mindspore

from hyper_parallel.mindspore._call import call, refuse
from hyper_parallel.mindspore._operations import OPERATIONS

__all__ = ["install"]

_OPERATORS = {
    "__abs__": "abs",
    "__add__": "add",
    "__eq__": "eq",
    "__ge__": "ge",
    "__gt__": "gt",
    "__iadd__": "add_",
    "__imul__": "mul_",
    "__ipow__": "pow_",
    "__isub__": "sub_",
    "__itruediv__": "div_",
    "__le__": "le",
    "__lt__": "lt",
    "__mul__": "mul",
    "__ne__": "ne",
    "__neg__": "neg",
    "__pow__": "pow",
    "__sub__": "sub",
    "__truediv__": "div",
}

# Other names of MindSpore's for operations in the table.
_ALIASES = {
    "divide": "div",
    "greater": "gt",
    "greater_equal": "ge",
    "less": "lt",
    "less_equal": "le",
    "multiply": "mul",
    "not_equal": "ne",
    "subtract": "sub",
}

# Methods whose arguments are in another order than the operation's, and functions that are no methods.
_NO_METHODS = frozenset({"where", "zeros_like", "ones_like", "full_like", "empty_like"})

# What every object has, and what makes a class of a class.
_OBJECT = frozenset(dir(object)) | {"__dict__", "__module__", "__weakref__", "__slots__", "__annotations__"}


def install(dtensor_class: type) -> None:
    """Gives the class the operations of the table, and refuses the rest by name; once, when it is defined."""
    own = {name for ours in dtensor_class.__mro__ if not issubclass(mindspore.Tensor, ours) for name in ours.__dict__}
    names = {name: name for name in OPERATIONS if name not in _NO_METHODS} | _OPERATORS | _ALIASES
    for name, operation in names.items():
        setattr(dtensor_class, name, _method(name, operation))
    setattr(dtensor_class, "where", _where)  # noqa: B010  (as the others)
    for name in dir(mindspore.Tensor):
        if name in own or name in names or name in _OBJECT or name == "where":
            continue
        attribute = getattr(mindspore.Tensor, name, None)
        setattr(dtensor_class, name, _refusal(name) if callable(attribute) else property(_refusal(name)))


def _method(name: str, operation: str) -> Callable[..., Any]:
    def method(self: Any, *arguments: Any, **keywords: Any) -> Any:  # noqa: ANN401
        return call(operation, self, *arguments, **keywords)

    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"Operation '{operation}' on this tensor; see ``hyper_parallel.mindspore.functional``."
    return method


def _where(self: Any, condition: Any, other: Any) -> Any:  # noqa: ANN401
    """This tensor where ``condition`` is true, else ``other``."""
    return call("where", condition, self, other)


def _refusal(name: str) -> Callable[..., Any]:
    def method(self: Any, *arguments: Any, **keywords: Any) -> Any:  # noqa: ANN401
        refuse(name, self)

    method.__name__ = method.__qualname__ = name
    method.__doc__ = "Not supported on a DTensor: raises."
    return method
