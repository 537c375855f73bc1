"""What Python and NumPy may hand to a DTensor: numbers of every kind, odd calls of the protocol, indices, warnings."""

from __future__ import annotations

import sys
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from hyper_parallel import DTensor, HyperParallelError, Placement, RaggedShard, Replicate, Shard, distribute_tensor
from support.checks import assert_consistent, assert_equal, assert_raises, make_mesh
from support.ranks import ranks
from support.values import numbered
from support.worker import Rank

SHAPE = (6, 4)
RAGGED = RaggedShard((0,), (1, 2))


def make(placement: Placement = RAGGED, dtype: torch.dtype = torch.float32) -> DTensor:
    return distribute_tensor(numbered(SHAPE, dtype), make_mesh(2), [placement])


# --- numbers of NumPy ------------------------------------------------------------------------------------------------

NUMBERS = (
    "bool_", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64",
    "complex64", "complex128",
)  # fmt: skip
# What torch has no number for.
WIDER = ("longdouble", "clongdouble")

WITH_A_NUMBER: dict[str, Callable[[Any, Any], torch.Tensor]] = {
    "x + s": lambda x, s: x + s,
    "s * x": lambda x, s: s * x,
    "x - s": lambda x, s: x - s,
    "x == s": lambda x, s: x == s,
    "torch.add(x, s)": torch.add,
    "x.clone().fill_(s)": lambda x, s: x.clone().fill_(s),
    "torch._foreach_mul([x], s)": lambda x, s: torch._foreach_mul([x], s)[0],
}


@pytest.mark.parametrize("form", list(WITH_A_NUMBER))
@ranks(2)
def test_numbers_of_numpy_are_taken_as_pythons_are(rank: Rank, form: str) -> None:
    run = WITH_A_NUMBER[form]
    for dtype in (torch.float32, torch.int64):
        x, whole = make(dtype=dtype), numbered(SHAPE, dtype)
        for kind in NUMBERS:
            number = getattr(np, kind)(1)
            if np.iscomplexobj(number) and "fill_" in form:
                continue  # a cast that discards a part: of that torch has its own rule
            if kind == "bool_" and "-" in form:
                continue  # a bool is not subtracted in torch
            assert_equal(run(x, number).full_tensor(), run(whole, number.item()))


@pytest.mark.parametrize("kind", WIDER)
@pytest.mark.parametrize("form", list(WITH_A_NUMBER))
@ranks(2)
def test_numbers_wider_than_torchs_are_refused(rank: Rank, form: str, kind: str) -> None:
    assert_raises(TypeError, f"numpy.{kind}", lambda: WITH_A_NUMBER[form](make(), getattr(np, kind)(1)))


@pytest.mark.parametrize("form", list(WITH_A_NUMBER))
@ranks(2)
def test_what_numpy_has_and_is_no_number_is_refused(rank: Rank, form: str) -> None:
    record = np.array([("abc" * 10, 1)], dtype=[("a", "U30"), ("b", "i4")])[0]
    x = make()
    for thing in (record, np.void(b"ab"), np.str_("a"), np.bytes_(b"a"), np.datetime64(1, "s"), np.timedelta64(1, "s")):
        if "==" in form:
            continue  # equality with anything is a question that Python answers
        # ValueError: Python repeats a str by what counts as an int, and a whole matrix does not.
        with pytest.raises((TypeError, NotImplementedError, ValueError)):
            WITH_A_NUMBER[form](x, thing)
    assert_equal(x.full_tensor(), numbered(SHAPE))


@ranks(2)
def test_an_integer_beyond_int64_is_refused_by_its_value(rank: Rank) -> None:
    for number in (2**63, np.uint64(2**63), -(2**70)):
        assert_raises(ValueError, str(int(number)), lambda number=number: make() + number)


# --- the protocol ----------------------------------------------------------------------------------------------------


@ranks(2)
def test_odd_calls_of_the_protocol_are_type_errors(rank: Rank) -> None:
    x = make()
    call: Any = DTensor.__torch_function__
    assert_raises(TypeError, "args must be a tuple", lambda: call(torch.add, (DTensor,), [x, x]))
    assert_raises(TypeError, "kwargs must be a dict", lambda: call(torch.add, (DTensor,), (x, x), 5))
    assert_raises(TypeError, "must hold classes", lambda: call(torch.add, (1, 2), (x, x)))
    assert_raises(TypeError, "0 arguments", call)
    assert_raises(TypeError, "missing", lambda: call(torch.add, (DTensor,), ()))
    assert_raises(TypeError, "missing", lambda: call(torch.Tensor.add_, (DTensor,), (), {}))
    assert_raises(TypeError, "must be a tensor", lambda: call(torch.sum, (DTensor,), (3,)))
    assert_raises(TypeError, "no DTensor", lambda: call(torch.Tensor.shape.__get__, (DTensor,), (3,)))
    for odd in (
        lambda: call(torch.add, 7, (x, x)),
        lambda: call(3, (DTensor,), (x, x)),
        lambda: call(torch.add, (DTensor,), (x, x), {1: 2}),
    ):
        with pytest.raises(TypeError):
            odd()
    assert_equal(call(torch.add, (DTensor,), (x, x), None).full_tensor(), numbered(SHAPE) * 2)
    assert_equal(call(torch.add, (DTensor, torch.Tensor), (x,), {"other": 1}).full_tensor(), numbered(SHAPE) + 1)


@ranks(2)
def test_a_class_of_another_kind_is_told_that_it_must_answer_itself(rank: Rank) -> None:
    call: Any = DTensor.__torch_function__
    assert call(torch.add, (DTensor, int), (make(), 1)) is NotImplemented


# --- indices ---------------------------------------------------------------------------------------------------------


@ranks(2)
def test_whatever_counts_as_an_int_takes_a_row(rank: Rank) -> None:
    class One:
        def __index__(self) -> int:
            return 1

    x = make(Shard(0))
    for index in (1, np.int64(1), np.uint8(1), One()):
        assert_equal(x[index].full_tensor(), numbered(SHAPE)[1])  # type: ignore[index]


@pytest.mark.parametrize("index", ["True", "np.bool_(True)", "1.0", "[0]", "'1'"])
@ranks(2)
def test_other_indices_are_refused(rank: Rank, index: str) -> None:
    x = make(Shard(0))
    assert_raises(NotImplementedError, "takes one int", lambda: x[eval(index)])


@ranks(2)
def test_a_tensor_is_no_index(rank: Rank) -> None:
    x = make(Shard(0))
    for index in (torch.tensor(1), torch.tensor([True] * 6), make()):
        assert_raises(NotImplementedError, "takes one int", lambda index=index: x[index])


@ranks(2)
def test_an_index_beyond_int64_is_out_of_range(rank: Rank) -> None:
    for index in (2**70, -(2**70)):
        assert_raises(IndexError, str(index), lambda index=index: make(Shard(0))[index])


# --- classes and factories -------------------------------------------------------------------------------------------


@ranks(2)
def test_it_cannot_be_subclassed(rank: Rank) -> None:
    with pytest.raises(NotImplementedError, match="class Mine cannot be made from DTensor") as caught:
        type("Mine", (DTensor,), {})
    assert isinstance(caught.value, HyperParallelError)


@pytest.mark.parametrize("factory", ["empty", "full", "ones", "zeros", "rand", "randn"])
@ranks(2)
def test_it_has_no_factories(rank: Rank, factory: str) -> None:
    make_one: Callable[..., object] = getattr(DTensor, factory)
    for action in (make_one, lambda: make_one(4, 4), lambda: make_one((4,), placements=[RAGGED])):
        assert_raises(NotImplementedError, "no factories", action)


# --- formats and dtypes ----------------------------------------------------------------------------------------------

IN_A_FORMAT: dict[str, Callable[..., object]] = {
    "x.to()": lambda x, **options: x.to(**options),
    "x.to(dtype)": lambda x, **options: x.to(torch.float64, **options),
    "x.to(device, dtype, False, True)": lambda x, **options: x.to("cpu", torch.float64, False, True, **options),
    "x.to(other)": lambda x, **options: x.to(torch.ones(1), **options),
    "x.double()": lambda x, **options: x.double(**options),
    "x.float()": lambda x, **options: x.float(**options),
    "x.contiguous()": lambda x, **options: x.contiguous(**options),
    "x.cpu()": lambda x, **options: x.cpu(**options),
    "x.clone()": lambda x, **options: x.clone(**options),
    "torch.clone(x)": torch.clone,
    "torch.zeros_like(x)": torch.zeros_like,
}


@pytest.mark.parametrize("form", list(IN_A_FORMAT))
@ranks(2)
def test_a_memory_format_is_kept_or_refused(rank: Rank, form: str) -> None:
    x = distribute_tensor(numbered((2, 3, 2, 2)), make_mesh(2), [Replicate()])
    refused = "memory format ChannelsLast"
    assert_raises(NotImplementedError, refused, lambda: IN_A_FORMAT[form](x, memory_format=torch.channels_last))
    kept = IN_A_FORMAT[form](x, memory_format=torch.contiguous_format)
    assert isinstance(kept, DTensor)
    assert kept._local_tensor.is_contiguous()


@ranks(2)
def test_a_copy_that_is_asked_for_is_made(rank: Rank) -> None:
    x, wide = make(), torch.ones(1, dtype=torch.float64)
    for same in (x.to(x.dtype), x.to("cpu"), x.to("cpu", x.dtype), x.to(torch.ones(1)), x.type(torch.float32)):
        assert same is x
    for copied in (
        x.to(x.dtype, False, True),
        x.to("cpu", x.dtype, False, True),
        x.to("cpu", copy=True),
        x.to(torch.ones(1), False, True),
        x.to(torch.ones(1), copy=True),
    ):
        assert copied is not x
        assert copied._local_tensor.data_ptr() != x._local_tensor.data_ptr() or x.local_numel == 0
        assert_equal(copied.full_tensor(), numbered(SHAPE))
    for cast in (
        x.to("cpu", torch.float64, False, True),
        x.to(wide, False, True),
        x.to(device="cpu", dtype=torch.float64),
        x.type(torch.float64, True),
        x.type(dtype=torch.float64),
        x.type_as(wide),
    ):
        assert_consistent(cast)
        assert_equal(cast.full_tensor(), numbered(SHAPE, torch.float64))  # type: ignore[union-attr]


@ranks(2)
def test_a_plain_tensor_goes_to_the_dtype_of_a_dtensor(rank: Rank) -> None:
    plain, wide = torch.ones(3), make(dtype=torch.float64)
    for cast in (plain.to(wide), plain.to(wide, False, True), plain.type_as(wide)):
        assert type(cast) is torch.Tensor
        assert_equal(cast, torch.ones(3, dtype=torch.float64))
    assert plain.to(make()) is plain
    assert plain.to(make(), copy=True) is not plain


# --- warnings --------------------------------------------------------------------------------------------------------


@ranks(2)
def test_a_warning_made_an_error_raises_and_leaks_nothing(rank: Rank) -> None:
    x, other = make(), make(dtype=torch.complex64)
    before = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            counts = []
            for _ in range(20):
                with pytest.raises(UserWarning, match="imaginary"):
                    x.copy_(other)
                with pytest.raises(UserWarning, match="imaginary"):
                    other.float()
                counts.append((sys.getrefcount(x), sys.getrefcount(other)))
    finally:
        torch.set_warn_always(before)
    assert len(set(counts)) == 1
    assert_equal((x * 0 + 1).full_tensor(), torch.ones(SHAPE))


# --- threads ---------------------------------------------------------------------------------------------------------

SECONDS = 1.5


def together(*loops: Callable[[], object]) -> None:
    """Runs each again and again, in a thread of its own; what one raises fails the test."""
    stop = time.monotonic() + SECONDS
    errors: list[BaseException] = []

    def run(loop: Callable[[], object]) -> None:
        try:
            while time.monotonic() < stop and not errors:
                loop()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(loop,)) for loop in loops]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def whole(value: float) -> DTensor:
    return distribute_tensor(torch.full((20_000,), value), make_mesh(1), [Shard(0)])


@ranks(1)
def test_data_may_be_assigned_while_other_threads_compute(rank: Rank) -> None:
    x = whole(1.0)

    def compute() -> None:
        assert (x + 1.0)._local_tensor.sum().item() in (40_000.0, 60_000.0)

    together(compute, compute, lambda: setattr(x, "data", whole(2.0)), lambda: x.placements)


@ranks(1)
def test_tensors_may_be_swapped_while_other_threads_compute(rank: Rank) -> None:
    x = whole(1.0)

    def swap() -> None:
        # torch refuses where another thread holds the tensor just then.
        try:
            torch.utils.swap_tensors(x, whole(2.0))
        except RuntimeError as error:
            assert "swap" in str(error).lower() or "use_count" in str(error) or "Expected" in str(error)

    def compute() -> None:
        assert (x * 2.0)._local_tensor[0].item() in (2.0, 4.0)

    together(compute, compute, swap)


@ranks(1)
def test_a_list_may_change_while_an_operation_runs_over_it(rank: Rank) -> None:
    items = [whole(1.0) for _ in range(20)]

    def replace() -> None:
        items[:] = [whole(1.0) for _ in range(20)]

    def shrink() -> None:
        del items[10:]

    together(lambda: torch._foreach_add(items, 1.0), lambda: torch._foreach_mul_(items, 1.0), replace, shrink)


@ranks(2)
def test_a_list_of_a_class_of_its_own_is_read_as_a_list(rank: Rank) -> None:
    class Liar(list[torch.Tensor]):
        def __getitem__(self, index: Any) -> Any:
            return torch.zeros(3)

        def __len__(self) -> int:
            return 1

    items = Liar([make(), make()])
    added = torch._foreach_add(items, 1.0)
    assert [type(item) for item in added] == [DTensor, DTensor]
    torch._foreach_add_(items, 1.0)
    for item in list(items):
        assert_consistent(item)
        assert_equal(item.full_tensor(), numbered(SHAPE) + 1)  # type: ignore[attr-defined]


@ranks(2)
def test_a_list_that_holds_itself_is_refused(rank: Rank) -> None:
    items: list[Any] = [make()]
    items.append(items)
    with pytest.raises((TypeError, RecursionError)):
        torch._foreach_add(items, 1.0)
