"""State dicts taken apart into named entries, and put together again. Knows no framework: what a tensor is, is told.

A state dict is a dict that nests dicts, lists and tuples. Its *entries* are what hangs in it: tensors, and values that
go into the metadata as they are. Dicts are always traversed; lists and tuples are traversed if a tensor hangs anywhere
below them, else the whole of one is a value; an empty dict is a value.

The *path* of an entry is the keys and positions that lead to it, its *name* the path joined by ".". The *structure* has
the nesting without the entries: the same dicts, lists and tuples with names in the entries' places.

    {"model": {"w": tensor}, "steps": [1, 2]}    entries    {"model.w": tensor, "steps": [1, 2]}
                                                 structure  {"model": {"w": "model.w"}, "steps": "steps"}
"""

from __future__ import annotations

import enum
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from hyper_parallel.errors import ArgumentTypeError, CheckpointError, FailedPreconditionError, InvalidArgumentError

__all__ = ["MAX_DEPTH", "FlatState", "Path", "Structure", "assign", "flatten", "unflatten"]

MAX_DEPTH = 64
"""How many dicts, lists and tuples may lie around each other, the state dict among them: `kMaxValueDepth` of C++."""

Path = tuple[str | int, ...]
"""Keys of dicts and positions in lists and tuples, outermost first."""

Structure = dict[str | int, "Structure"] | list["Structure"] | tuple["Structure", ...] | str

_Key = object  # any key that a dict within a value may have
_SCALARS = (type(None), bool, int, float, complex, str, bytes)
_KINDS = "tensors, None, bool, int, float, complex, str, bytes, list, tuple and dict"
_SHOWN = 200
_LONG_INT_BITS = 2048  # shorter ones have fewer digits than any limit that Python takes, 640 at least


@dataclass(frozen=True)
class FlatState:
    """A state dict as entries.

    Attributes:
        entries: Each tensor and value by its name, in the order of the state dict. The objects themselves, no copies.
        structure: The nesting: dicts, lists and tuples that have the entries' names in the entries' places.
        paths: The way to each entry.
        tensor_names: Which entries are tensors.
    """

    entries: dict[str, object] = field(default_factory=dict)
    structure: dict[str | int, Structure] = field(default_factory=dict)
    paths: dict[str, Path] = field(default_factory=dict)
    tensor_names: set[str] = field(default_factory=set)

    @property
    def tensors(self) -> dict[str, object]:
        """The entries that are tensors, in order."""
        return {name: entry for name, entry in self.entries.items() if name in self.tensor_names}

    @property
    def values(self) -> dict[str, object]:
        """The entries that are not, in order."""
        return {name: entry for name, entry in self.entries.items() if name not in self.tensor_names}


def flatten(state_dict: object, is_tensor: Callable[[object], bool]) -> FlatState:
    """Takes a state dict apart.

    Args:
        state_dict: The dict. Subclasses of dict count as dicts where they are traversed.
        is_tensor: Whether an object is a tensor.

    Returns:
        Its entries, structure and paths.

    Raises:
        ArgumentTypeError: ``state_dict`` is no dict.
        InvalidArgumentError: Two entries of one name; a value of another type than None, bool, int, float, complex,
            str, bytes, list, tuple and dict exactly, or a traversed dict with a key that is neither str nor int: what
            would come back as something else is not stored; text that is not UTF-8; a container in itself; more than
            ``MAX_DEPTH`` of them around each other. The message shows the path.

    Example:
        >>> flat = flatten({"model": {"w": 1.5}, "betas": (0.9, 0.99)}, lambda value: isinstance(value, float))
        >>> list(flat.entries), flat.structure["betas"]
        (['model.w', 'betas.0', 'betas.1'], ('betas.0', 'betas.1'))
    """
    if not isinstance(state_dict, dict):
        raise ArgumentTypeError(f"state_dict is of type {_type_name(state_dict)} but must be a dict")
    return _Flattening(is_tensor).run(state_dict)


def assign(state_dict: dict[str | int, object], flat: FlatState, values: Mapping[str, object]) -> None:
    """Puts values into the places of a state dict's entries.

    Dicts and lists are changed in place and stay the same objects, and so do tensors; a tuple around a value is made
    anew and put into the tuple's place. All is put in or nothing is.

    Args:
        state_dict: The dict that was taken apart.
        flat: What it came to. Containers must not have changed since.
        values: New values, by name; entries that are not named keep theirs.

    Raises:
        InvalidArgumentError: A name of no entry, or of a tensor.
        FailedPreconditionError: The state dict has changed: an entry is not where it was.

    Example:
        >>> state = {"steps": 3, "model": {"bias": ("w", 0.5)}}
        >>> flat = flatten(state, lambda value: value == "w")
        >>> assign(state, flat, {"steps": 7, "model.bias.1": 0.25})
        >>> state
        {'steps': 7, 'model': {'bias': ('w', 0.25)}}
    """
    changes: dict[str | int, object] = {}
    for name, value in values.items():
        if name not in flat.entries or name in flat.tensor_names:
            what = "a tensor" if name in flat.entries else "none of its entries"
            raise InvalidArgumentError(
                f"a value for {_shown(name)} was to be put into state_dict, where that is {what}"
            )
        _add_change(changes, flat.paths[name], value)
    edits: list[_Edit] = []
    _changed(state_dict, changes, (), edits)
    _apply(edits)


def unflatten(structure: object, entries: Mapping[str, object]) -> dict[Any, object]:
    """Puts entries together.

    Args:
        structure: What ``flatten`` made, untrusted as it comes from a file. None stands for a flat dict.
        entries: The entries by name.

    Returns:
        The nested dict; dict subclasses have become dicts.

    Raises:
        CheckpointError: A structure that is none, or does not name every entry exactly once.

    Example:
        >>> unflatten({"model": {"w": "model.w"}, 7: "7"}, {"model.w": 1.5, "7": None})
        {'model': {'w': 1.5}, 7: None}
        >>> unflatten(None, {"model.w": 1.5})
        {'model.w': 1.5}
    """
    if structure is None:
        return dict(entries)
    if not isinstance(structure, dict):
        raise CheckpointError(f"the structure of the checkpoint is of type {_type_name(structure)} but must be a dict")
    left = dict(entries)
    whole = {key: _put_together(node, left) for key, node in structure.items()}
    if left:
        raise CheckpointError(f"the structure of the checkpoint has no place for {_first_names(left)}")
    return whole


class _Flattening:
    """One run of `flatten`: what it has found, and the containers that it is in."""

    def __init__(self, is_tensor: Callable[[object], bool]) -> None:
        self._is_tensor = is_tensor
        self._flat = FlatState()
        self._around: set[int] = set()  # ids of the containers around the current place
        self._holds_tensor: dict[int, bool] = {}  # by id of a container

    def run(self, state_dict: dict[object, object]) -> FlatState:
        self._flat.structure.update(self._visit_dict(state_dict, ()))
        return self._flat

    def _visit(self, found: object, path: Path) -> Structure:
        """Adds what hangs at `path`; its part of the structure."""
        if self._is_tensor(found):
            self._flat.tensor_names.add(self._add_entry(found, path))
            return _name_of(path)
        if isinstance(found, dict) and found:
            return self._visit_dict(found, path)
        if isinstance(found, list | tuple) and self._has_tensor_below(found, len(path)):
            return self._visit_sequence(found, path)
        # The type of an empty dict says nothing that is stored: a traversed dict's is not either.
        value = {} if isinstance(found, dict) else found
        self._check_value(value, path, ())
        return self._add_entry(value, path)

    def _visit_dict(self, found: dict[object, object], path: Path) -> dict[str | int, Structure]:
        structure: dict[str | int, Structure] = {}
        with _Inside(self._around, found, path, len(path)):
            for key, item in found.items():
                # `type` and not `isinstance`: True would come back as "True" is named, as 1.
                if type(key) is not str and type(key) is not int:
                    raise InvalidArgumentError(
                        f"{_place(path)} has the key {_shown(key)} of type {_type_name(key)}, but the keys of a dict "
                        f"with entries of its own must be of type str or int: {_remedy(key)}"
                    )
                if _is_too_long(key):
                    raise _too_long(f"a key of {_place(path)}")
                _check_text(key, "the key of", (*path, key))
                structure[key] = self._visit(item, (*path, key))
        return structure

    def _visit_sequence(self, found: list[object] | tuple[object, ...], path: Path) -> Structure:
        if type(found) is not list and type(found) is not tuple:
            raise _unsupported(found, _place(path))
        with _Inside(self._around, found, path, len(path)):
            nodes = [self._visit(item, (*path, position)) for position, item in enumerate(found)]
        return nodes if type(found) is list else tuple(nodes)

    def _add_entry(self, entry: object, path: Path) -> str:
        name = _name_of(path)
        if name in self._flat.entries:
            raise InvalidArgumentError(
                f"state_dict has two entries of one name, {_shown(name)}: {_place(self._flat.paths[name])} and "
                f"{_place(path)}; names are paths joined by '.' and must be unique"
            )
        self._flat.entries[name] = entry
        self._flat.paths[name] = path
        return name

    def _has_tensor_below(self, found: object, depth: int) -> bool:
        """Whether a tensor hangs in a container. Of one in itself or too deep the answer does not count: it raises."""
        if self._is_tensor(found):
            return True
        if not isinstance(found, dict | list | tuple) or depth > MAX_DEPTH:
            return False
        if id(found) not in self._holds_tensor:
            self._holds_tensor[id(found)] = False
            items: Iterable[object] = found.values() if isinstance(found, dict) else found
            self._holds_tensor[id(found)] = any(self._has_tensor_below(item, depth + 1) for item in items)
        return self._holds_tensor[id(found)]

    def _check_value(self, value: object, path: Path, within: tuple[_Key, ...]) -> None:
        """Raises unless all of a value would come back as it is. `within` leads from the entry at `path` to it."""
        if type(value) in _SCALARS:
            if _is_too_long(value):
                raise _too_long(_place(path, within))
            _check_text(value, "the text at", path, within)
            return
        if type(value) not in {list, tuple, dict}:
            raise _unsupported(value, _place(path, within))
        with _Inside(self._around, value, path, len(path) + len(within), within):
            for key, item in _items(value):
                if isinstance(value, dict):
                    self._check_key(key, path, within)
                self._check_value(item, path, (*within, key))

    def _check_key(self, key: _Key, path: Path, within: tuple[_Key, ...]) -> None:
        """Raises unless a key of a dict within a value would come back as it is."""
        parts = list(_leaves(key, MAX_DEPTH))
        for part in parts:
            if type(part) not in _SCALARS:
                raise _unsupported(part, f"the key {_shown(key)} of {_place(path, within)}")
            if part != part:  # noqa: PLR0124
                raise InvalidArgumentError(
                    f"the key {_shown(key)} of {_place(path, within)} is not a number, equal to no key"
                )
            if _is_too_long(part):
                raise _too_long(f"a key of {_place(path, within)}")
            _check_text(part, "the key of", path, (*within, key))


class _Inside:
    """While a container is being visited: it must not be met again, nor be too deep."""

    def __init__(
        self, around: set[int], container: object, path: Path, depth: int, within: tuple[_Key, ...] = ()
    ) -> None:
        if id(container) in around:
            raise InvalidArgumentError(f"{_place(path, within)} contains itself")
        if depth >= MAX_DEPTH:
            raise InvalidArgumentError(
                f"{_place(path, within)} is a {_type_name(container)} inside {depth} others, but at most {MAX_DEPTH} "
                "dicts, lists and tuples may lie around each other"
            )
        self._around, self._id = around, id(container)

    def __enter__(self) -> None:
        self._around.add(self._id)

    def __exit__(self, *_: object) -> None:
        self._around.discard(self._id)


@dataclass(frozen=True)
class _Edit:
    """One item of a dict or list to be replaced."""

    container: dict[Any, object] | list[object]
    key: Any
    new: object

    def apply(self) -> None:
        self.container[self.key] = self.new

    def inverse(self) -> _Edit:
        return _Edit(self.container, self.key, self.container[self.key])


class _New:
    """A value at the end of a path of changes, told from the dicts on the way."""

    def __init__(self, value: object) -> None:
        self.value = value


def _add_change(changes: dict[str | int, object], path: Path, value: object) -> None:
    """Adds a path to a tree of changes: key by key, and a `_New` at its end."""
    for key in path[:-1]:
        branch = changes.setdefault(key, {})
        assert isinstance(branch, dict), "no entry hangs below another"
        changes = branch
    changes[path[-1]] = _New(value)


def _changed(node: object, change: object, path: Path, edits: list[_Edit]) -> object:
    """What stands in the place of `node` after the change; adds what is to be done inside to `edits`."""
    if isinstance(change, _New):
        # An empty dict of any class is stored as {}, and a dict stays the same object.
        return node if isinstance(node, dict) and node == change.value == {} else change.value
    assert isinstance(change, dict)
    if not isinstance(node, dict | list | tuple):
        raise _gone(path)
    items = dict(_items(node))
    new: dict[Any, object] = {}
    for key, below in change.items():
        if key not in items:
            raise _gone((*path, key))
        item = _changed(items[key], below, (*path, key), edits)
        if item is not items[key]:
            new[key] = item
    if isinstance(node, tuple):
        return tuple((items | new).values()) if new else node
    assert isinstance(node, dict | list)
    edits.extend(_Edit(node, key, item) for key, item in new.items())
    return node


def _apply(edits: list[_Edit]) -> None:
    """Makes all edits or, if a container of the caller's own kind refuses one, none."""
    done: list[_Edit] = []
    try:
        for edit in edits:
            inverse = edit.inverse()
            edit.apply()
            done.append(inverse)
    except BaseException:
        for inverse in reversed(done):
            inverse.apply()
        raise


def _put_together(node: object, left: dict[str, object]) -> object:
    """What a part of a structure stands for; takes the entries that it names out of `left`."""
    if isinstance(node, str):
        if node not in left:
            raise CheckpointError(
                f"the structure of the checkpoint names {_shown(node)}, which is no entry or has its place"
            )
        return left.pop(node)
    if isinstance(node, dict):
        return {key: _put_together(item, left) for key, item in node.items()}
    if isinstance(node, list):
        return [_put_together(item, left) for item in node]
    if isinstance(node, tuple):
        return tuple(_put_together(item, left) for item in node)
    raise CheckpointError(
        f"the structure of the checkpoint holds a value of type {_type_name(node)} but must hold names, dicts, lists "
        "and tuples"
    )


def _items(container: object) -> Iterable[tuple[_Key, object]]:
    """Keys or positions, each with its item."""
    if isinstance(container, dict):
        return container.items()
    assert isinstance(container, list | tuple)
    return enumerate(container)


def _leaves(key: _Key, depth: int) -> Iterator[object]:
    """The key, or what hangs in it if it is a tuple, `depth` levels down."""
    if type(key) is tuple and depth > 0:
        for item in key:
            yield from _leaves(item, depth - 1)
    else:
        yield key


def _is_too_long(value: object) -> bool:
    """Whether it is an integer of so many digits that Python itself neither writes nor reads them."""
    if type(value) is not int or value.bit_length() < _LONG_INT_BITS:
        return False
    limit = sys.get_int_max_str_digits()
    return limit > 0 and abs(value) >= 10**limit


def _too_long(where: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"{where} is an integer of more than {sys.get_int_max_str_digits()} digits, which Python does not convert to "
        "text: convert it with .to_bytes(...) or raise the limit with sys.set_int_max_str_digits(...)"
    )


def _check_text(value: object, what: str, path: Path, within: tuple[_Key, ...] = ()) -> None:
    """Raises for text that is not UTF-8: the halves of surrogate pairs, which os.fsdecode makes of foreign bytes."""
    if type(value) is str and not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise InvalidArgumentError(
                f"{what} {_place(path, within)} is not UTF-8: it has {value[error.start]!r} at position {error.start}"
            ) from None


def _unsupported(value: object, where: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"{where} is of type {_type_name(value)}, but a checkpoint stores {_KINDS} and no other types: {_remedy(value)}"
    )


def _remedy(value: object) -> str:
    """What to do about a value that is not of a type that can be stored."""
    if isinstance(value, enum.Enum):
        return "convert it with .value"
    if type(value).__module__.partition(".")[0] == "numpy":
        return "convert it with .item() or make a tensor of it"
    if isinstance(value, set | frozenset):
        return "convert it with list(...)"
    if isinstance(value, bytearray | memoryview):
        return "convert it with bytes(...)"
    for kind in (bool, int, float, complex, str, bytes, list, tuple, dict):
        if isinstance(value, kind):
            return f"convert it with {'str' if isinstance(value, bool) else kind.__name__}(...)"
    return "convert it to one of these or leave it out"


def _gone(path: Path) -> FailedPreconditionError:
    return FailedPreconditionError(f"{_place(path)} is gone: state_dict must not change between flatten and assign")


def _name_of(path: Path) -> str:
    return ".".join(map(str, path))


def _place(path: Path, within: tuple[_Key, ...] = ()) -> str:
    """The way to a place as Python says it, cut in the middle: "state_dict['model'][0]['w']"."""
    return _cut("state_dict" + "".join(f"[{_shown(key)}]" for key in (*path, *within)))


def _shown(value: object) -> str:
    try:
        return _cut(repr(value))
    except Exception:  # a class of the user's own may raise anything, and int does of many digits
        return f"<{_type_name(value)}>"


def _cut(text: str) -> str:
    half = _SHOWN // 2
    return text if len(text) <= _SHOWN else f"{text[:half]}..{text[-half:]}"


def _first_names(names: Iterable[str]) -> str:
    """Up to three names and how many there are beside."""
    every = list(names)
    more = f" and {len(every) - 3} more" if len(every) > 3 else ""  # noqa: PLR2004
    return ", ".join(_shown(name) for name in every[:3]) + more


def _type_name(value: object) -> str:
    kind = type(value)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
