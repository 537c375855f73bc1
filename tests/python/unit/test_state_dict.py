"""State dicts as entries: flatten, assign and unflatten, on objects that stand for tensors."""

from __future__ import annotations

import enum
import math
import os
from collections import OrderedDict, defaultdict, namedtuple
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import strategies as st

from hyper_parallel.checkpoint._state_dict import MAX_DEPTH, FlatState, assign, flatten, unflatten
from hyper_parallel.errors import (
    ArgumentTypeError,
    CheckpointError,
    FailedPreconditionError,
    HyperParallelError,
    InvalidArgumentError,
)
from support.drawing import drawn
from support.state_dicts import SCALARS, expected_entries, state_dicts, typed


class Tensor:
    """What the tests call a tensor."""

    def __repr__(self) -> str:
        return "Tensor()"


class Color(enum.IntEnum):
    RED = 1


class Kind(enum.Enum):
    BIG = "big"


class Text(str):
    __slots__ = ()


Point = namedtuple("Point", ["x", "y"])
W, V = Tensor(), Tensor()


def is_tensor(value: object) -> bool:
    return isinstance(value, Tensor)


def flat(state_dict: object) -> FlatState:
    return flatten(state_dict, is_tensor)


def refused(state_dict: object, error: type[HyperParallelError] = InvalidArgumentError) -> str:
    """The text with which a state dict is refused."""
    with pytest.raises(error) as caught:
        flat(state_dict)
    assert type(caught.value) is error
    return str(caught.value)


# What entries there are


def test_dicts_are_traversed_and_names_are_paths() -> None:
    found = flat({"model": {"layer": {"w": W}}, "lr": 0.1, 3: {"a": "x"}})
    assert found.entries == {"model.layer.w": W, "lr": 0.1, "3.a": "x"}
    assert list(found.entries) == ["model.layer.w", "lr", "3.a"]
    assert found.structure == {"model": {"layer": {"w": "model.layer.w"}}, "lr": "lr", 3: {"a": "3.a"}}
    assert found.paths == {"model.layer.w": ("model", "layer", "w"), "lr": ("lr",), "3.a": (3, "a")}
    assert found.tensor_names == {"model.layer.w"}
    assert found.tensors == {"model.layer.w": W}
    assert found.values == {"lr": 0.1, "3.a": "x"}


def test_an_empty_state_dict_has_no_entries() -> None:
    assert flat({}) == FlatState()
    assert unflatten({}, {}) == {}


@pytest.mark.parametrize("value", [[1, 2], (0.9, 0.99), [], (), [{"lr": 0.1, "params": [0, 1]}], ([],)])
def test_a_list_or_tuple_without_tensors_is_one_value(value: object) -> None:
    found = flat({"v": value})
    assert found.entries["v"] is value
    assert found.structure == {"v": "v"}


def test_a_list_or_tuple_with_a_tensor_anywhere_below_is_traversed() -> None:
    found = flat({"a": [1, (W, 2)], "b": ([{"deep": [V]}], [5])})
    assert found.entries == {"a.0": 1, "a.1.0": W, "a.1.1": 2, "b.0.0.deep.0": V, "b.1": [5]}
    assert found.structure == {"a": ["a.0", ("a.1.0", "a.1.1")], "b": ([{"deep": ["b.0.0.deep.0"]}], "b.1")}


def test_an_empty_dict_is_a_value_wherever_it_is() -> None:
    found = flat({"state": {}, "a": [W, {}], "b": {"c": {}}})
    assert found.entries == {"state": {}, "a.0": W, "a.1": {}, "b.c": {}}


def test_dict_subclasses_are_traversed_as_dicts() -> None:
    state = OrderedDict(model=OrderedDict(w=W), state=defaultdict(list, {0: {"step": 1}}), empty=OrderedDict())
    found = flat(state)
    assert found.entries == {"model.w": W, "state.0.step": 1, "empty": {}}
    assert typed(found.structure) == typed(
        {"model": {"w": "model.w"}, "state": {0: {"step": "state.0.step"}}, "empty": "empty"}
    )
    assert type(found.entries["empty"]) is dict


def test_entries_are_the_objects_themselves() -> None:
    value = [1, [2]]
    found = flat({"w": W, "v": value})
    assert found.entries["w"] is W
    assert found.entries["v"] is value


def test_a_container_in_two_places_is_two_entries() -> None:
    shared = [W]
    assert list(flat({"a": shared, "b": shared, "c": {"d": shared}}).entries) == ["a.0", "b.0", "c.d.0"]
    value = [1]
    assert flat({"a": [value, value]}).entries == {"a": [[1], [1]]}


@pytest.mark.parametrize("key", ["", ".", "..", "a/b", "\0", "ключ", "x" * 300, 0, -1, 2**70])
def test_any_text_and_any_int_is_a_key(key: str | int) -> None:
    found = flat({key: W, "d": {key: 1}})
    assert found.entries == {str(key): W, f"d.{key}": 1}
    assert unflatten(found.structure, found.entries) == {key: W, "d": {key: 1}}


def test_a_tensor_is_told_by_the_predicate_alone() -> None:
    assert flatten({"a": [1]}, lambda value: value == 1).entries == {"a.0": 1}
    assert flatten({"a": torch.ones(1)}, lambda value: isinstance(value, torch.Tensor)).tensor_names == {"a"}


# What is refused


@pytest.mark.parametrize("state_dict", [None, [W], W, "text", OrderedDict])
def test_a_state_dict_that_is_no_dict_is_refused(state_dict: object) -> None:
    assert "but must be a dict" in refused(state_dict, ArgumentTypeError)


@pytest.mark.parametrize(
    ("state_dict", "text"),
    [
        ({"a.b": [1], "a": {"b": [2]}}, "'a.b': state_dict['a.b'] and state_dict['a']['b']"),
        ({1: 1, "1": 2}, "'1': state_dict[1] and state_dict['1']"),
        ({"a": [W], "a.0": W}, "'a.0': state_dict['a'][0] and state_dict['a.0']"),
        ({"": {"": 1}, ".": 2}, "'.': state_dict['']['']"),
    ],
)
def test_two_entries_of_one_name_are_refused(state_dict: object, text: str) -> None:
    assert "two entries of one name, " + text in refused(state_dict)


def test_what_a_message_shows_is_cut() -> None:
    text = refused({"a" * 10**6: W, "b": {"c" * 10**6: {1}}})
    assert len(text) < 1000
    assert text.startswith("state_dict['b']['cccc")
    assert len(refused({"a." + "b" * 10**6: W, "a": {"b" * 10**6: W}})) < 1000


UNSUPPORTED: dict[str, tuple[object, str, str]] = {
    "a set": ({1}, "set", "list(...)"),
    "a frozenset": (frozenset(), "frozenset", "list(...)"),
    "a bytearray": (bytearray(b"x"), "bytearray", "bytes(...)"),
    "a memoryview": (memoryview(b"x"), "memoryview", "bytes(...)"),
    "a namedtuple": (Point(1, 2), "Point", "tuple(...)"),
    "a shape": (torch.Size([2]), "torch.Size", "tuple(...)"),
    "an IntEnum": (Color.RED, "Color", ".value"),
    "an Enum": (Kind.BIG, "Kind", ".value"),
    "a str subclass": (Text("x"), "Text", "str(...)"),
    "a numpy float, which is a float": (np.float64(1), "numpy.float64", ".item()"),
    "a numpy int": (np.int32(1), "numpy.int32", ".item()"),
    "a numpy array": (np.ones(2), "numpy.ndarray", "make a tensor"),
    "a dtype": (torch.float32, "torch.dtype", "leave it out"),
    "a function": (len, "builtin_function_or_method", "leave it out"),
    "a class": (int, "type", "leave it out"),
}


@pytest.mark.parametrize("where", ["entry", "in a value", "in a traversed list"])
@pytest.mark.parametrize("kind", list(UNSUPPORTED))
def test_a_value_of_another_type_is_refused_by_place_and_type(kind: str, where: str) -> None:
    value, name, remedy = UNSUPPORTED[kind]
    if where == "entry":
        text, place = refused({"a": {"b": value}}), "state_dict['a']['b']"
    elif where == "in a value":
        text, place = refused({"a": [{"k": (value,)}]}), "state_dict['a'][0]['k'][0]"
    else:
        text, place = refused({"a": [W, value]}), "state_dict['a'][1]"
    assert text.startswith(f"{place} is of type ")
    assert name in text
    assert "stores tensors, None, bool, int, float, complex, str, bytes, list, tuple and dict" in text
    assert remedy in text


def test_a_dict_subclass_within_a_value_is_refused_since_its_type_would_be_lost() -> None:
    text = refused({"a": [OrderedDict(x=1)]})
    assert text.startswith("state_dict['a'][0] is of type collections.OrderedDict")
    assert text.endswith("convert it with dict(...)")


def test_a_tuple_or_list_subclass_with_a_tensor_is_refused() -> None:
    assert "state_dict['a'] is of type" in refused({"a": Point(W, 1)})

    class Items(list[object]):
        pass

    assert "convert it with list(...)" in refused({"a": Items([W])})


@pytest.mark.parametrize("key", [True, None, 1.0, (0, 1), b"x", Color.RED, Text("x"), np.int64(1)])
def test_a_key_of_another_type_on_the_way_to_an_entry_is_refused(key: object) -> None:
    for state_dict, place in (({key: 1}, "state_dict has"), ({"a": {key: W}}, "state_dict['a'] has")):
        text = refused(state_dict)
        assert text.startswith(f"{place} the key {key!r} of type ")
        assert "must be of type str or int" in text


def test_keys_within_a_value_are_any_values_that_can_be_keys() -> None:
    value = [{None: 0, True: 1, 2: 2, 0.5: 3, 1j: 4, "s": 5, b"b": 6, (1, (None, "x")): 7, (): 8}]
    assert flat({"a": value}).entries == {"a": value}


@pytest.mark.parametrize("key", [Color.RED, frozenset({1}), Point(1, 2), (1, Kind.BIG), int])
def test_other_keys_within_a_value_are_refused(key: object) -> None:
    text = refused({"a": [{key: 1}]})
    assert text.startswith(f"the key {key!r} of state_dict['a'][0] is of type ")


@pytest.mark.parametrize("key", [math.nan, (1, math.nan), complex(0, math.nan)])
def test_a_key_that_is_not_a_number_is_refused(key: object) -> None:
    assert "of state_dict['a'][0] is not a number, equal to no key" in refused({"a": [{key: 1}]})


LONE = os.fsdecode(b"a\xff")


@pytest.mark.parametrize(
    ("state_dict", "text"),
    [
        ({"a": LONE}, r"the text at state_dict['a'] is not UTF-8: it has '\udcff' at position 1"),
        ({"a": [{"b": LONE}]}, "the text at state_dict['a'][0]['b'] is not UTF-8"),
        ({LONE: 1}, r"the key of state_dict['a\udcff'] is not UTF-8"),
        ({"m": {LONE: W}}, r"the key of state_dict['m']['a\udcff'] is not UTF-8"),
        ({"a": [{LONE: 1}]}, r"the key of state_dict['a'][0]['a\udcff'] is not UTF-8"),
        ({"a": [{(1, LONE): 1}]}, r"the key of state_dict['a'][0][(1, 'a\udcff')] is not UTF-8"),
    ],
)
def test_text_that_is_not_utf8_is_refused(state_dict: object, text: str) -> None:
    assert refused(state_dict).startswith(text)


HUGE = 10**5000


@pytest.mark.parametrize(
    ("state_dict", "place"),
    [
        ({"a": HUGE}, "state_dict['a']"),
        ({"a": [{"b": -HUGE}]}, "state_dict['a'][0]['b']"),
        ({"a": {HUGE: 1}}, "a key of state_dict['a']"),
        ({"a": [{HUGE: 1}]}, "a key of state_dict['a'][0]"),
        ({"a": [{(1, HUGE): 1}]}, "a key of state_dict['a'][0]"),
        ({"a": [{Point(1, HUGE): 1}]}, f"the key <{__name__}.Point> of state_dict['a'][0] is of type"),
    ],
)
def test_integers_that_python_does_not_print_are_refused(state_dict: object, place: str) -> None:
    text = refused(state_dict)
    assert text.startswith(place)
    assert "digits" in text or "Point" in place


def test_integers_up_to_the_limit_of_python_are_values_and_keys() -> None:
    longest = 10**4300 - 1
    state = {"a": longest, "b": [{longest: -longest}]}
    assert flat(state).entries == state
    assert "more than 4300 digits" in refused({"a": longest + 1})


def test_whole_surrogate_pairs_and_all_planes_are_utf8() -> None:
    state = {"\U0001f600": "é\U0010ffff", "a": ["\x00\x7f\x80"]}
    assert flat(state).entries == state


def test_a_container_in_itself_is_refused() -> None:
    in_dict: dict[str, Any] = {}
    in_dict["self"] = in_dict
    assert refused({"a": in_dict}) == "state_dict['a']['self'] contains itself"
    in_list: list[Any] = [1]
    in_list.append((in_list,))
    assert refused({"a": in_list}) == "state_dict['a'][1][0] contains itself"
    around_a_tensor: list[Any] = [W]
    around_a_tensor.append({"x": around_a_tensor})
    assert refused({"a": around_a_tensor}) == "state_dict['a'][1]['x'] contains itself"


def nested(kind: str, depth: int, core: object) -> dict[str, Any]:
    """A state dict of `depth` containers around `core`, itself among them."""
    for _ in range(depth - 1):
        core = {"dict": {"k": core}, "list": [core], "tuple": (core,)}[kind]
    return {"k": core}


@pytest.mark.parametrize("core", [W, 1], ids=["tensor", "value"])
@pytest.mark.parametrize("kind", ["dict", "list", "tuple"])
def test_nesting_has_a_limit(kind: str, core: object) -> None:
    state = nested(kind, MAX_DEPTH, core)
    found = flat(state)
    assert unflatten(found.structure, found.entries) == state
    for depth in (MAX_DEPTH + 1, 5000):
        text = refused(nested(kind, depth, core))
        assert f"is a {kind} inside 64 others, but at most 64 dicts, lists and tuples may lie around each other" in text
        assert len(text) < 500


def test_an_empty_container_counts_as_one() -> None:
    for empty in ([], (), {}):
        assert flat(nested("dict", MAX_DEPTH - 1, empty)).entries
        assert "inside 64 others" in refused(nested("dict", MAX_DEPTH, empty))


# Putting values in


def test_assign_puts_values_into_the_containers_themselves() -> None:
    model, groups, items = OrderedDict(w=W, scale=1.0), [{"lr": 0.1}], [W, 1, {"n": 2}]
    state = {"model": model, "groups": groups, "items": items, "steps": 3}
    new = [{"lr": 0.5}]
    assign(state, flat(state), {"model.scale": 2.0, "groups": new, "items.1": 10, "items.2.n": 20})
    assert state == {
        "model": OrderedDict(w=W, scale=2.0),
        "groups": [{"lr": 0.5}],
        "items": [W, 10, {"n": 20}],
        "steps": 3,
    }
    assert state["model"] is model
    assert state["items"] is items
    assert state["groups"] is new
    assert model["w"] is W


def test_assign_makes_tuples_anew_up_to_the_next_dict_or_list() -> None:
    inner = [V, 1]
    state = {"a": [(W, (2, inner), 3)], "b": (W, 5)}
    outer, untouched = state["a"], state["b"]
    assign(state, flat(state), {"a.0.1.0": 20})
    assert state["a"] is outer
    assert outer == [(W, (20, [V, 1]), 3)]
    assert outer[0][1][1] is inner
    assert state["b"] is untouched


def test_assign_in_a_list_in_a_tuple_keeps_the_tuple() -> None:
    state = {"a": ([W, 1],)}
    kept = state["a"]
    assign(state, flat(state), {"a.0.1": 2})
    assert state["a"] is kept
    assert kept == ([W, 2],)


def test_assign_changes_the_type_of_a_value_to_the_stored_one() -> None:
    state: dict[Any, Any] = {"a": 1, 7: None, "e": OrderedDict(), "f": {}}
    assign(state, flat(state), {"a": True, "7": "text", "e": [], "f": 0})
    assert typed(state) == typed({"a": True, 7: "text", "e": [], "f": 0})


def test_assign_keeps_an_empty_dict_of_any_class() -> None:
    state = {"e": OrderedDict[str, int]()}
    kept = state["e"]
    assign(state, flat(state), {"e": {}})
    assert state["e"] is kept


def test_assign_of_nothing_changes_nothing() -> None:
    state = {"a": (W, 1)}
    kept = state["a"]
    assign(state, flat(state), {})
    assert state["a"] is kept


def test_assign_refuses_names_of_tensors_and_of_no_entry() -> None:
    state = {"w": W, "a": 1}
    for name, text in (
        ("w", "'w' was to be put into state_dict, where that is a tensor"),
        ("x", "none of its entries"),
    ):
        with pytest.raises(InvalidArgumentError, match=text):
            assign(state, flat(state), {"a": 2, name: 5})
        assert state == {"w": W, "a": 1}


@pytest.mark.parametrize(
    ("change", "place"),
    [
        (lambda state: state.pop("b"), "state_dict['b']"),
        (lambda state: state["b"].pop(), "state_dict['b'][1]"),
        (lambda state: state.update(b=5), "state_dict['b']"),
    ],
)
def test_assign_refuses_a_state_dict_that_has_changed_since(change: Any, place: str) -> None:
    state: dict[str, Any] = {"a": 1, "b": [W, 1]}
    before = flat(state)
    change(state)
    changed = dict(state)
    with pytest.raises(FailedPreconditionError) as caught:
        assign(state, before, {"a": 2, "b.1": 3})
    assert str(caught.value) == f"{place} is gone: state_dict must not change between flatten and assign"
    assert state == changed


def test_assign_takes_all_back_if_a_dict_refuses_an_item() -> None:
    class ReadOnly(dict[str, Any]):
        def __setitem__(self, key: str, value: object) -> None:
            raise RuntimeError("read-only")

    state: dict[str, Any] = {"a": 1, "l": [W, 2], "r": ReadOnly(x=3)}
    with pytest.raises(RuntimeError, match="read-only"):
        assign(state, flat(state), {"a": 10, "l.1": 20, "r.x": 30})
    assert state == {"a": 1, "l": [W, 2], "r": {"x": 3}}


# Putting together


def test_unflatten_without_a_structure_is_a_flat_dict() -> None:
    entries = {"a.b": W, "c": 1}
    whole = unflatten(None, entries)
    assert whole == entries
    assert whole is not entries


@pytest.mark.parametrize(
    ("structure", "entries", "text"),
    [
        ("a", {"a": 1}, "is of type str but must be a dict"),
        (["a"], {"a": 1}, "is of type list but must be a dict"),
        ({"a": 5}, {"a": 1}, "holds a value of type int but must hold names, dicts, lists and tuples"),
        ({"a": None}, {}, "holds a value of type NoneType"),
        ({"a": "x"}, {"a": 1}, "names 'x', which is no entry"),
        ({"a": "a", "b": ["a"]}, {"a": 1}, "names 'a', which is no entry or has its place"),
        ({"a": "a"}, {"a": 1, "b": 2}, "has no place for 'b'"),
        ({}, dict.fromkeys("abcde", 1), "has no place for 'a', 'b', 'c' and 2 more"),
    ],
)
def test_unflatten_refuses_what_is_no_structure_of_the_entries(structure: object, entries: Any, text: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        unflatten(structure, entries)
    assert str(caught.value).startswith("the structure of the checkpoint ")
    assert text in str(caught.value)


# Any state dict

states = state_dicts(st.builds(Tensor))


@drawn(examples=500, state=states)
def test_any_state_dict_round_trips_with_its_types_or_has_a_name_twice(state: dict[Any, Any]) -> None:
    expected = expected_entries(state, is_tensor)
    if len(dict(expected)) < len(expected):
        assert "two entries of one name" in refused(state)
        return
    found = flat(state)
    assert typed(list(found.entries.items())) == typed(expected)
    assert list(found.paths) == list(found.entries)
    assert typed(unflatten(found.structure, found.entries)) == typed(state)
    for name, path in found.paths.items():
        assert name == ".".join(map(str, path))


@drawn(examples=300, state=states, data=st.data())
def test_any_values_are_put_in_where_they_belong(state: dict[Any, Any], data: st.DataObject) -> None:
    try:
        found = flat(state)
    except InvalidArgumentError:
        return
    names = data.draw(st.sets(st.sampled_from(sorted(found.values))) if found.values else st.just(set()))
    values = {name: data.draw(SCALARS) for name in names}
    assign(state, found, values)
    entries = {name: values.get(name, entry) for name, entry in found.entries.items()}
    assert typed(state) == typed(unflatten(found.structure, entries))
