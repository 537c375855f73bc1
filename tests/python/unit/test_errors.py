"""The errors: one class per code, below the builtin that fits."""

from __future__ import annotations

import pickle

import pytest

import hyper_parallel
from hyper_parallel import DeviceMesh, HyperParallelError, Layout, Shard, _core, errors

CLASSES = {
    "ArgumentTypeError": TypeError,
    "CheckpointError": OSError,
    "FailedPreconditionError": RuntimeError,
    "InternalError": RuntimeError,
    "InvalidArgumentError": ValueError,
    "OutOfRangeError": IndexError,
    "UnimplementedError": NotImplementedError,
}


@pytest.mark.parametrize(("name", "builtin"), CLASSES.items())
def test_class_derives_from_the_base_and_the_builtin(name: str, builtin: type[Exception]) -> None:
    error_class = getattr(errors, name)
    assert error_class.__bases__ == (HyperParallelError, builtin)
    assert (error_class.__module__, error_class.__qualname__) == ("hyper_parallel.errors", name)
    assert error_class.__doc__
    assert getattr(hyper_parallel, name) is error_class is getattr(_core, name)


@pytest.mark.parametrize("name", [*CLASSES, "HyperParallelError"])
def test_error_keeps_its_text_through_pickle(name: str) -> None:
    error = pickle.loads(pickle.dumps(getattr(errors, name)("the text")))
    assert type(error) is getattr(errors, name)
    assert str(error) == "the text"


def test_base_is_a_plain_exception() -> None:
    assert HyperParallelError.__bases__ == (Exception,)
    assert sorted(errors.__all__) == sorted([*CLASSES, "HyperParallelError"])


def test_errors_of_the_core_are_of_these_classes() -> None:
    layout = Layout((2,), ("dp",))
    with pytest.raises(
        errors.InvalidArgumentError, match=r"^DeviceMesh shape is \(0,\) but every dim must be at least 1$"
    ):
        DeviceMesh((0,))
    with pytest.raises(errors.ArgumentTypeError, match=r"^mesh_shape is 2 but must be a tuple of ints$"):
        DeviceMesh(2)  # type: ignore[arg-type]
    with pytest.raises(errors.OutOfRangeError, match=r"^Shard\(2\) is out of range for a tensor of 2 dims$"):
        layout([Shard(2)]).placement_to_tensor_map(2)
    with pytest.raises(errors.UnimplementedError, match="by an inner mesh axis first"):
        Layout((2, 2))(((0, 1),))
    with pytest.raises(errors.FailedPreconditionError, match=r"^this process has no rank yet"):
        DeviceMesh((2,)).get_rank()


def test_long_value_is_cut_in_the_text() -> None:
    with pytest.raises(errors.ArgumentTypeError) as raised:
        DeviceMesh("ä" * 1000)  # type: ignore[arg-type]
    assert str(raised.value) == "mesh_shape is '" + "ä" * 99 + ".. but must be a tuple of ints"
