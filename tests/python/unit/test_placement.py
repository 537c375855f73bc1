"""Placements as Python values."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from collections.abc import Callable

import pytest

import hyper_parallel
from hyper_parallel import (
    ArgumentTypeError,
    DeviceMesh,
    InvalidArgumentError,
    Partial,
    Placement,
    RaggedShard,
    Replicate,
    Shard,
    _core,
)

ALL = [
    Replicate(),
    Shard(0),
    Shard(1),
    Shard(-1),
    Partial("sum"),
    Partial("avg"),
    Partial("max"),
    Partial("min"),
    RaggedShard((0,), (1, 2)),
    RaggedShard((0,), (2, 1)),
    RaggedShard((0, 1), (1, 2)),
]


def test_attributes_are_what_was_given() -> None:
    assert Shard(2).dim == 2
    assert Shard(dim=-1).dim == -1
    assert Partial().reduce_op == "sum"
    assert Partial(reduce_op="max").reduce_op == "max"
    ragged = RaggedShard(dims=(0, 1), local_units=(2, 3, 0, 5))
    assert (ragged.dims, ragged.local_units) == ((0, 1), (2, 3, 0, 5))


def test_repr_is_constructor_syntax() -> None:
    assert repr(Replicate()) == "Replicate()"
    assert repr(Shard(0)) == "Shard(dim=0)"
    assert repr(Partial()) == "Partial(reduce_op='sum')"
    assert repr(RaggedShard((0, 1), (1, 2))) == "RaggedShard(dims=(0, 1), local_units=(1, 2))"
    assert repr(RaggedShard((0,), (1,))) == "RaggedShard(dims=(0,), local_units=(1,))"


@pytest.mark.parametrize("placement", ALL, ids=repr)
def test_repr_copy_and_pickle_give_an_equal_placement(placement: Placement) -> None:
    for made in (
        eval(repr(placement)),
        copy.copy(placement),
        copy.deepcopy([placement])[0],
        pickle.loads(pickle.dumps(placement)),
        pickle.loads(pickle.dumps(placement, protocol=0)),
    ):
        assert type(made) is type(placement)
        assert made == placement
        assert hash(made) == hash(placement)


def test_equality_and_hash_tell_all_placements_apart() -> None:
    assert len({*ALL}) == len(ALL)
    for i, a in enumerate(ALL):
        assert [a == b for b in ALL] == [i == j for j in range(len(ALL))]
        assert a != repr(a)
        assert a != a.__reduce__()[1]


@pytest.mark.parametrize("placement", ALL, ids=repr)
def test_exactly_one_predicate_holds(placement: Placement) -> None:
    assert isinstance(placement, Placement)
    answers = (
        placement.is_replicate(),
        placement.is_shard(),
        placement.is_partial(),
        placement.is_ragged_shard(),
    )
    kinds = (Replicate, Shard, Partial, RaggedShard)
    assert answers == tuple(isinstance(placement, kind) for kind in kinds)
    assert sum(answers) == 1


def test_predicates_take_the_dim_and_the_op() -> None:
    assert Shard(1).is_shard(1)
    assert not Shard(1).is_shard(0)
    assert not Shard(-1).is_shard(1)
    assert not Replicate().is_shard(0)
    assert Partial("max").is_partial("max")
    assert not Partial("max").is_partial("sum")
    assert not Shard(0).is_partial("sum")
    with pytest.raises(InvalidArgumentError, match=r"^Partial op is 'prod' but must be one of sum, avg, max, min$"):
        Partial().is_partial("prod")
    with pytest.raises(ArgumentTypeError, match=r"^dim is '0' but must be an int$"):
        Shard(0).is_shard("0")  # type: ignore[arg-type]


def test_placements_match_by_position() -> None:
    match RaggedShard((0,), (1, 2)):
        case RaggedShard(dims, units):
            assert (dims, units) == ((0,), (1, 2))
        case _:
            pytest.fail("no match")


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Shard(1.0), "Shard dim is 1.0 but must be an int"),
        (lambda: Shard(True), "Shard dim is True but must be an int"),
        (lambda: Shard(None), "Shard dim is None but must be an int"),
        (lambda: Partial(None), "Partial reduce_op is None but must be a str"),
        (lambda: RaggedShard([0], (1, 2)), "RaggedShard dims is [0] but must be a tuple of ints"),
        (lambda: RaggedShard(0, (1, 2)), "RaggedShard dims is 0 but must be a tuple of ints"),
        (lambda: RaggedShard(("0",), (1, 2)), "RaggedShard dims[0] is '0' but must be an int"),
        (lambda: RaggedShard((False,), (1, 2)), "RaggedShard dims[0] is False but must be an int"),
        (lambda: RaggedShard((0,), [1, 2]), "RaggedShard local_units is [1, 2] but must be a tuple of ints"),
        (lambda: RaggedShard((0,), (1, 2.0)), "RaggedShard local_units[1] is 2.0 but must be an int"),
        (lambda: RaggedShard((0,), (True, 1)), "RaggedShard local_units[0] is True but must be an int"),
    ],
)
def test_argument_of_another_type_raises(make: Callable[[], Placement], text: str) -> None:
    with pytest.raises(ArgumentTypeError) as raised:
        make()
    assert str(raised.value) == text
    assert isinstance(raised.value, TypeError)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Shard(2**63), "Shard dim is 9223372036854775808, which does not fit in int64"),
        (lambda: Partial("prod"), "Partial op is 'prod' but must be one of sum, avg, max, min"),
        (lambda: Partial("SUM"), "Partial op is 'SUM' but must be one of sum, avg, max, min"),
        (lambda: RaggedShard((), (1,)), "RaggedShard dims is () but must name at least one dim"),
        (lambda: RaggedShard((1,), (1,)), "RaggedShard dims is (1,) but must be the leading dims (0, 1, ..) in order"),
        (
            lambda: RaggedShard((0, 2), (1,)),
            "RaggedShard dims is (0, 2) but must be the leading dims (0, 1, ..) in order",
        ),
        (
            lambda: RaggedShard((-1,), (1,)),
            "RaggedShard dims is (-1,) but must be the leading dims (0, 1, ..) in order",
        ),
        (lambda: RaggedShard((0,), ()), "RaggedShard local_units is () but must have an entry for each rank"),
        (lambda: RaggedShard((0,), (1, -1)), "RaggedShard local_units[1] is -1 but units must not be negative"),
        (lambda: RaggedShard((0,), (0, 0)), "RaggedShard local_units is (0, 0) but at least one unit must be positive"),
        (
            lambda: RaggedShard((0,), (1, 2**64)),
            "RaggedShard local_units[1] is 18446744073709551616, which does not fit in int64",
        ),
        (
            lambda: RaggedShard((0,), (2**62, 2**62)),
            "4611686018427387904 + 4611686018427387904 does not fit in int64",
        ),
    ],
)
def test_argument_that_breaks_a_rule_raises(make: Callable[[], Placement], text: str) -> None:
    with pytest.raises(InvalidArgumentError) as raised:
        make()
    assert str(raised.value) == text
    assert isinstance(raised.value, ValueError)


@pytest.mark.parametrize(("placement", "name"), [(Shard(0), "dim"), (Partial(), "reduce_op"), (Shard(0), "new")])
def test_attributes_cannot_be_set(placement: Placement, name: str) -> None:
    with pytest.raises(AttributeError):
        setattr(placement, name, 1)


def test_placements_have_no_other_subclass() -> None:
    with pytest.raises(TypeError, match="No constructor defined"):
        Placement()
    with pytest.raises(TypeError, match="is not an acceptable base type"):
        type("Other", (Shard,), {})


@pytest.mark.parametrize(
    ("placements", "text"),
    [
        (Shard(0), "placements is Shard(dim=0) but must be a tuple or list with a placement for each mesh dim"),
        ("Shard(0)", "placements is 'Shard(0)' but must be a tuple or list with a placement for each mesh dim"),
        ([Shard(0), None], "placements[1] is None but must be a placement: Replicate, Shard, Partial or RaggedShard"),
        ([Shard], "placements[0] is <class 'hyper_parallel.placement.Shard'> but must be a placement"),
    ],
)
def test_what_is_no_list_of_placements_raises(placements: object, text: str) -> None:
    with pytest.raises(ArgumentTypeError) as raised:
        _core.Layout(DeviceMesh((2, 2)), placements)  # type: ignore[arg-type]
    assert str(raised.value).startswith(text)


def test_placements_are_read_from_text() -> None:
    assert _core.parse_placements("[S(0), P(max), R]") == (Shard(0), Partial("max"), Replicate())
    assert _core.parse_placements("[RaggedShard(dims=(0,), local_units=(1*2, 3))]") == (RaggedShard((0,), (1, 1, 3)),)
    with pytest.raises(InvalidArgumentError, match="'X' is not a placement"):
        _core.parse_placements("[X]")


def test_package_and_values_import_no_framework() -> None:
    code = (
        "import sys, hyper_parallel; from hyper_parallel.core.dtensor.placement_types import Shard; "
        "from hyper_parallel.core.dtensor.layout import Layout; Layout((2,), ('dp',))([Shard(0)]); "
        "print([name for name in ('torch', 'numpy', 'mindspore', 'matplotlib') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"


def test_all_paths_of_the_specification_give_the_same_classes() -> None:
    from hyper_parallel.core import placement_types as first  # noqa: PLC0415
    from hyper_parallel.core.dtensor import placement_types as second  # noqa: PLC0415

    for name in ("Partial", "Placement", "RaggedShard", "Replicate", "Shard"):
        assert getattr(first, name) is getattr(second, name) is getattr(hyper_parallel, name)
