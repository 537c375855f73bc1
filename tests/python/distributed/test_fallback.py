"""Operations without a rule on normal layouts run through torch's own DTensor, right or not at all."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from hyper_parallel import (
    DeviceMesh,
    DTensor,
    Partial,
    Placement,
    RaggedShard,
    Replicate,
    Shard,
    distribute_tensor,
    fallback_counts,
    reset_fallback_counts,
)
from support.checks import assert_consistent, assert_equal, assert_raises, gradient_of, make_mesh, whole_of
from support.ranks import ranks
from support.values import numbered, random_values
from support.worker import Rank, environment

Body = Callable[..., None]


def falling_back(body: Body) -> Body:
    """Runs a body without STRICT, which the tests of everything else are run with, and with counts of its own."""

    @functools.wraps(body)
    def run(*args: Any, **kwargs: Any) -> None:
        with environment({"HYPER_PARALLEL_STRICT": "0"}):
            reset_fallback_counts()
            body(*args, **kwargs)

    return run


def layouts_of(ranks_count: int) -> dict[str, tuple[DeviceMesh, tuple[Placement, ...]]]:
    line = make_mesh(ranks_count)
    chosen: dict[str, tuple[DeviceMesh, tuple[Placement, ...]]] = {
        "replicated": (line, (Replicate(),)),
        "rows": (line, (Shard(0),)),
        "columns": (line, (Shard(1),)),
        "pending": (line, (Partial(),)),
        "pending max": (line, (Partial("max"),)),
    }
    if ranks_count == 4:
        square, permuted = make_mesh(2, 2), DeviceMesh((2, 2), ("dp", "tp"), (3, 0, 1, 2))
        chosen["grid"] = square, (Shard(0), Shard(1))
        chosen["nested"] = square, (Shard(0), Shard(0))
        chosen["pending beside rows"] = square, (Shard(0), Partial())
        chosen["permuted"] = permuted, (Shard(1), Replicate())
    return chosen


# 8 rows and 4 columns split evenly everywhere, 5 and 3 nowhere, 1 row leaves ranks empty.
SHAPES = [(8, 4), (5, 3), (1, 4)]


def spread(whole: torch.Tensor, mesh: DeviceMesh, placements: tuple[Placement, ...]) -> DTensor:
    """A leaf of the value `whole`, whatever is pending."""
    whole = whole.detach()
    replicas = [Replicate() if placement.is_partial() else placement for placement in placements]
    local = distribute_tensor(whole, mesh, replicas)._local_tensor.clone()
    coordinate = mesh.get_coordinate()
    assert coordinate is not None
    for position, size, placement in zip(coordinate, mesh.shape, placements, strict=True):
        if placement.is_partial("sum"):
            local = local / size + (position - (size - 1) / 2)
        elif placement.is_partial("max"):
            local -= (position != size - 1) * 3
    return DTensor(local.requires_grad_(whole.is_floating_point()), mesh, placements, shape=whole.shape)


# --- right ------------------------------------------------------------------------------------------------------------


# Functions without a rule that torch's DTensor knows, by what it has to do to the dims. Those with "0" work along rows.
FORWARD: dict[str, Callable[[Any], Any]] = {
    "cov": lambda x: torch.cov(x),
    "logcumsumexp": lambda x: x.logcumsumexp(0),
    "diff": lambda x: x.diff(dim=0),
    "kron": lambda x: torch.kron(x, x),
    "kthvalue": lambda x: x.kthvalue(1, 0).values,
    "linalg_norm": lambda x: torch.linalg.norm(x),
    "median": lambda x: x.median(0).values,
    "nansum": lambda x: x.nansum(),
    "pad": lambda x: F.pad(x, (1, 1)),
    "repeat": lambda x: x.repeat(2, 1),
    "roll": lambda x: torch.roll(x, 1, 0),
    "svdvals": lambda x: torch.linalg.svdvals(x),
}


def assert_as_in_one_process(
    operation: Callable[[Any], Any], shape: tuple[int, ...], mesh: DeviceMesh, placements: tuple[Placement, ...]
) -> None:
    """Values, dtype, shape and, where there is one, the gradient of `operation` are those of the whole tensor."""
    whole = random_values(shape, torch.float64).requires_grad_()
    x = spread(whole, mesh, placements)
    y, expected = operation(x), operation(whole)
    assert_consistent(y)
    assert y.requires_grad == expected.requires_grad
    torch.testing.assert_close(whole_of(y), expected.detach())
    if not expected.requires_grad:
        return
    weight = random_values(tuple(expected.shape), torch.float64, seed=1)
    y.backward(distribute_tensor(weight, mesh, [Replicate()] * mesh.ndim))
    expected.backward(weight)
    assert whole.grad is not None
    if placements != (Partial("max"),):  # whose gradient is that of the ranks that hold the extreme
        torch.testing.assert_close(whole_of(gradient_of(x)), whole.grad)


@pytest.mark.parametrize("name", list(FORWARD))
@ranks(2)
@falling_back
def test_values_and_gradients_are_those_of_one_process(rank: Rank, name: str) -> None:
    for mesh, placements in layouts_of(2).values():
        for shape in SHAPES:
            assert_as_in_one_process(FORWARD[name], shape, mesh, placements)


@pytest.mark.parametrize("name", ["logcumsumexp", "nansum", "kron", "median", "roll"])
@ranks(4)
@falling_back
def test_values_and_gradients_on_grids_are_those_of_one_process(rank: Rank, name: str) -> None:
    for mesh, placements in layouts_of(4).values():
        for shape in SHAPES[:2]:
            assert_as_in_one_process(FORWARD[name], shape, mesh, placements)


@pytest.mark.parametrize("shape", SHAPES)
@ranks(2, 4)
@falling_back
def test_a_chain_of_ruled_and_other_operations_has_the_gradients_of_one_process(
    rank: Rank, shape: tuple[int, int]
) -> None:
    def chain(x: Any, w: Any) -> Any:
        return torch.sigmoid(torch.logaddexp2((x * 2).nansum(1), w.logcumsumexp(0))) * 3

    for name, (mesh, placements) in layouts_of(rank.size).items():
        if name == "pending max":  # which * 2 does not commute with
            continue
        whole = random_values(shape, torch.float64).requires_grad_()
        other = random_values(shape[:1], torch.float64, seed=1).requires_grad_()
        x, w = spread(whole, mesh, placements), spread(other, mesh, (Replicate(),) * mesh.ndim)
        y = chain(x, w)
        assert_consistent(y)
        expected = chain(whole, other)
        torch.testing.assert_close(whole_of(y), expected.detach())
        gradient = random_values(shape[:1], torch.float64, seed=2)
        y.backward(distribute_tensor(gradient, mesh, [Replicate()] * mesh.ndim))
        expected.backward(gradient)
        for given, truth in ((x, whole), (w, other)):
            assert truth.grad is not None
            torch.testing.assert_close(whole_of(gradient_of(given)), truth.grad)
    assert fallback_counts().keys() >= {"nansum", "logaddexp2", "logcumsumexp"}


@ranks(2)
@falling_back
def test_the_gradient_of_a_pending_extreme_goes_to_the_ranks_that_hold_it(rank: Rank) -> None:
    shares = [torch.tensor([1.0, 5.0, 2.0]), torch.tensor([4.0, 3.0, 2.0])]
    own = shares[rank.index].clone().requires_grad_()
    y = torch.i0(DTensor(own, make_mesh(2), [Partial("max")]))
    y.backward(distribute_tensor(torch.ones(3), y.device_mesh, [Replicate()]))
    top = torch.tensor([4.0, 5.0, 2.0], requires_grad=True)
    torch.i0(top).sum().backward()
    assert own.grad is not None
    assert top.grad is not None
    held = torch.tensor([[0.0, 1.0, 0.5], [1.0, 0.0, 0.5]])[rank.index]
    torch.testing.assert_close(own.grad, top.grad * held)


@ranks(2)
@falling_back
def test_containers_of_results_keep_their_kind(rank: Rank) -> None:
    x = distribute_tensor(numbered((4, 2)), make_mesh(2), [Replicate()])
    values, indices = x.sort(0, descending=True)
    named = torch.sort(x, 0, descending=True)
    assert type(named).__name__ == "sort"
    for given in (values, named.values, named[0]):
        assert_equal(whole_of(given), numbered((4, 2)).flip(0))
    assert_equal(whole_of(indices), torch.arange(4).flip(0).unsqueeze(1).expand(4, 2))
    parts = torch.tensor_split(x, 2)
    assert type(parts) is tuple
    assert_equal(whole_of(parts[1]), numbered((4, 2))[2:])


@ranks(2, 4)
@falling_back
def test_values_for_python_are_those_of_the_whole(rank: Rank) -> None:
    mesh = make_mesh(rank.size)
    same = distribute_tensor(numbered((8, 2)), mesh, [Shard(0)])
    other_rows = numbered((8, 2))
    other_rows[-1, -1] = 0
    other = distribute_tensor(other_rows, mesh, [Shard(0)])  # differs on the last rank alone
    assert torch.equal(same, same.clone()) is True
    assert torch.equal(same, other) is False
    assert torch.allclose(same, same + 1e-9)
    assert torch.allclose(same, other) is False
    assert 15.0 in same
    assert 15.0 not in other


@ranks(4)
@falling_back
def test_a_mesh_over_some_ranks_needs_no_others(rank: Rank) -> None:
    mesh = DeviceMesh((2,), ("dp",), (3, 1))
    whole = numbered((4, 2))
    x = distribute_tensor(whole, mesh, [Shard(0)]).requires_grad_()
    y = torch.logcumsumexp(x, 0)
    total = torch.nansum(y, (0, 1))
    assert y.requires_grad
    assert y.shape == (4, 2)
    assert total.shape == ()
    if rank.index in (1, 3):
        assert_equal(y.full_tensor().detach(), whole.logcumsumexp(0))
    else:
        assert y.local_numel == total.local_numel == 0
        assert_raises(RuntimeError, "which a rank outside the mesh has no part of", lambda: torch.allclose(x, y))
    if rank.index in (1, 3):
        assert not torch.allclose(x.detach(), y.detach())
    y.backward(distribute_tensor(torch.ones(4, 2), mesh, [Shard(0)]))
    if rank.index in (1, 3):
        truth = whole.requires_grad_()
        truth.logcumsumexp(0).sum().backward()
        assert truth.grad is not None
        torch.testing.assert_close(whole_of(gradient_of(x)), truth.grad)


@ranks(2)
@falling_back
def test_a_mesh_makes_its_groups_once(rank: Rank) -> None:
    torch.logcumsumexp(distribute_tensor(numbered((4,)), DeviceMesh((1, 2), ("a", "b"), (1, 0)), [Replicate()] * 2), 0)
    before = len(torch.distributed.distributed_c10d._world.pg_map)
    for _ in range(3):
        x = distribute_tensor(numbered((4,)), DeviceMesh((1, 2), ("a", "b"), (1, 0)), [Replicate(), Shard(0)])
        assert_equal(torch.logcumsumexp(x, 0).full_tensor(), numbered((4,)).logcumsumexp(0))
    assert len(torch.distributed.distributed_c10d._world.pg_map) == before


@ranks(2)
@falling_back
def test_a_plain_tensor_of_one_element_stands_for_a_replica_and_gets_the_whole_gradient(rank: Rank) -> None:
    x = distribute_tensor(numbered((4,)) + 1, make_mesh(2), [Shard(0)])
    scale = torch.tensor(3.0, requires_grad=True)
    y = torch.logaddexp2(x, scale)
    y.backward(distribute_tensor(torch.ones(4), x.device_mesh, [Shard(0)]))
    truth = torch.tensor(3.0, requires_grad=True)
    torch.logaddexp2(numbered((4,)) + 1, truth).sum().backward()
    torch.testing.assert_close(scale.grad, truth.grad)


# --- views and writes ------------------------------------------------------------------------------------------------

VIEWS: dict[str, Callable[[Any], Any]] = {
    "narrow": lambda x: x.narrow(1, 1, 2),
    "select": lambda x: x.select(1, 1),
    "x[:, 1:3]": lambda x: x[:, 1:3],
    "x[..., None, 0]": lambda x: x[..., None, 0],
    "T": lambda x: x.T,
    "movedim": lambda x: torch.movedim(x, 0, 1),
    "unbind": lambda x: x.unbind(1)[2],
    "diagonal": lambda x: x.unsqueeze(0).diagonal(0, 0, 2),
    "unflatten": lambda x: x.unflatten(1, (2, 2)),
    "tensor_split": lambda x: torch.tensor_split(x, 2, 1)[1],
}


@pytest.mark.parametrize("name", list(VIEWS))
@pytest.mark.parametrize("shape", [(6, 4), (5, 4), (1, 4)])
@ranks(2)
@falling_back
def test_views_of_dims_that_are_not_sharded_are_views(rank: Rank, name: str, shape: tuple[int, int]) -> None:
    for placement in (Shard(0), Replicate()):
        x = distribute_tensor(numbered(shape), make_mesh(2), [placement])
        whole = numbered(shape)
        if name == "diagonal" and placement == Shard(0):
            assert_raises(NotImplementedError, "makes a copy", lambda x=x: VIEWS[name](x))
            continue
        view = VIEWS[name](x)
        version = x._version
        view.mul_(0)
        VIEWS[name](whole).mul_(0)
        assert_equal(x.full_tensor(), whole)
        assert x._version > version
        x.add_(1)
        whole.add_(1)
        assert_equal(whole_of(view), VIEWS[name](whole).contiguous())


@ranks(2, 4)
@falling_back
def test_views_that_torch_would_copy_raise_on_every_rank(rank: Rank) -> None:
    mesh = make_mesh(rank.size)
    for rows in (8, 5):
        x = distribute_tensor(numbered((rows, 2)), mesh, [Shard(0)])
        assert_raises(NotImplementedError, "has no rule, and torch's DTensor", lambda x=x: torch.tensor_split(x, 2))
        assert_equal(x.full_tensor(), numbered((rows, 2)))


@ranks(2)
@falling_back
def test_writes_of_pending_tensors_raise(rank: Rank) -> None:
    mesh = make_mesh(2)
    pending = DTensor(numbered((4, 2)), mesh, [Partial()])
    assert_raises(ValueError, "reduce_partial() first", lambda: pending.erf_())


@ranks(2)
@falling_back
def test_a_write_through_a_view_never_loses_a_gradient(rank: Rank) -> None:
    def program(x: Any, w: Any) -> Any:
        y = x * 2
        y.narrow(1, 1, 2).mul_(w)
        return y * y

    whole = random_values((5, 4), torch.float64).requires_grad_()
    weight = random_values((5, 2), torch.float64, seed=1).requires_grad_()
    x, w = (distribute_tensor(value, make_mesh(2), [Shard(0)]) for value in (whole, weight))
    ones = torch.ones(5, 4, dtype=torch.float64)
    program(x, w).backward(distribute_tensor(ones, make_mesh(2), [Shard(0)]))
    program(whole, weight).backward(ones)
    for given, truth in ((x, whole), (w, weight)):
        assert truth.grad is not None
        torch.testing.assert_close(whole_of(gradient_of(given)), truth.grad)


IN_PLACE: dict[str, Callable[[Any], Any]] = {
    "erf_": lambda x: x.erf_(),
    "tril_": lambda x: x.tril_(),
    "floor_divide_": lambda x: x.floor_divide_(2),
    "masked_fill_": lambda x: x.masked_fill_(x > 2, 9.0),
    "hardtanh_": lambda x: F.hardtanh_(x),
    "leaky_relu": lambda x: F.leaky_relu(x, 0.5, inplace=True),
}


@pytest.mark.parametrize("name", list(IN_PLACE))
@ranks(2, 4)
@falling_back
def test_in_place_forms_write_the_very_tensor_and_keep_its_layout(rank: Rank, name: str) -> None:
    for mesh, placements in layouts_of(rank.size).values():
        if any(placement.is_partial() for placement in placements):
            continue
        for shape in SHAPES:
            whole = random_values(shape, torch.float32) * 4
            x = distribute_tensor(whole, mesh, placements)
            local, version = x._local_tensor, x._version
            assert IN_PLACE[name](x) is x
            assert x._local_tensor is local
            assert x._version > version
            assert x.placements == placements
            assert_equal(x.full_tensor(), IN_PLACE[name](whole))


@ranks(2)
@falling_back
def test_in_place_forms_are_differentiable_and_refuse_leaves(rank: Rank) -> None:
    whole = random_values((5, 2), torch.float64).requires_grad_()
    x = distribute_tensor(whole, make_mesh(2), [Shard(0)])
    y = x * 2
    assert y.erf_() is y
    (y * 3).backward(distribute_tensor(torch.ones(5, 2, dtype=torch.float64), x.device_mesh, [Shard(0)]))
    (torch.erf(whole * 2) * 3).sum().backward()
    assert whole.grad is not None
    torch.testing.assert_close(whole_of(gradient_of(x)), whole.grad)
    with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
        x.erf_()
    assert_equal(whole_of(x), whole.detach())


@ranks(2)
@falling_back
def test_writes_that_no_in_place_name_tells_of_are_refused(rank: Rank) -> None:
    x = distribute_tensor(numbered((4, 2)), make_mesh(2), [Shard(0)])
    mean, var = (distribute_tensor(numbered((2,)), make_mesh(2), [Replicate()]) for _ in range(2))
    text = "writes to one of its arguments"
    assert_raises(NotImplementedError, text, lambda: F.batch_norm(x, mean, var, training=True))
    for stays in (mean, var):
        assert_equal(stays.full_tensor(), numbered((2,)))
    assert_raises(NotImplementedError, "would change the shape", lambda: x.unsqueeze_(0))
    counts = distribute_tensor(torch.arange(4), make_mesh(2), [Shard(0)])
    assert_raises(RuntimeError, "cannot be cast to torch.int64 in place", lambda: counts.hypot_(x.sum(1)))
    assert_equal(x.full_tensor(), numbered((4, 2)))
    assert_equal(counts.full_tensor(), torch.arange(4))


# --- refused ---------------------------------------------------------------------------------------------------------

RANDOM: dict[str, Callable[[Any], Any]] = {
    "bernoulli": lambda x: torch.bernoulli(x),
    "exponential_": lambda x: x.exponential_(),
    "multinomial": lambda x: torch.multinomial(x, 1),
    "poisson": lambda x: torch.poisson(x),
    "alpha_dropout": lambda x: F.alpha_dropout(x, training=True),
    "rrelu": lambda x: F.rrelu(x - 1, training=True),
    "gumbel_softmax": lambda x: F.gumbel_softmax(x),
}


@pytest.mark.parametrize("name", list(RANDOM))
@ranks(2)
@falling_back
def test_random_numbers_are_refused_on_replicas_too(rank: Rank, name: str) -> None:
    for placement in (Replicate(), Shard(0)):
        x = distribute_tensor(torch.full((4, 2), 0.5), make_mesh(2), [placement])
        assert_raises(NotImplementedError, "equal seeds would give equal shares", lambda x=x: RANDOM[name](x))
        assert_equal(x.full_tensor(), torch.full((4, 2), 0.5))


@ranks(2)
@falling_back
def test_dropout_that_drops_nothing_hands_back_its_input(rank: Rank) -> None:
    x = distribute_tensor(numbered((4, 2)), make_mesh(2), [Shard(0)])
    assert_equal(F.alpha_dropout(x, training=False).full_tensor(), numbered((4, 2)))


NEVER: dict[str, Callable[[Any], Any]] = {
    "numpy": lambda x: x.numpy(),
    "new_tensor": lambda x: x.new_tensor([1.0]),
    "new_empty": lambda x: x.new_empty(3),
    "__array__": lambda x: x.__array__(),
    "__dlpack__": lambda x: x.__dlpack__(),
    "tolist": lambda x: x.tolist(),
    "data_ptr": lambda x: x.data_ptr(),
    "untyped_storage": lambda x: x.untyped_storage(),
    "resize_": lambda x: x.resize_(2, 2),
    "share_memory_": lambda x: x.share_memory_(),
    "as_strided": lambda x: x.as_strided((2, 2), (1, 1)),
    "apply_": lambda x: x.apply_(lambda value: value),
}


@pytest.mark.parametrize("name", list(NEVER))
@ranks(2)
@falling_back
def test_memory_and_its_size_are_never_handed_out(rank: Rank, name: str) -> None:
    for placement in (Replicate(), Shard(0)):
        x = distribute_tensor(numbered((4, 2)), make_mesh(2), [placement])
        assert_raises(NotImplementedError, f"operation '{name}' is not supported", lambda x=x: NEVER[name](x))
        assert_equal(x.full_tensor(), numbered((4, 2)))
    assert fallback_counts() == {}


@ranks(2)
@falling_back
def test_transformed_and_traced_calls_are_refused(rank: Rank) -> None:
    x = distribute_tensor(numbered((4, 2)), make_mesh(2), [Replicate()])
    assert_raises(
        NotImplementedError,
        "is not supported",
        lambda: torch.func.vmap(lambda row: x.logcumsumexp(0) + row)(torch.ones(3)),
    )
    with pytest.raises(NotImplementedError, match="cannot be traced by torch"):
        torch.jit.trace(lambda plain: x.logcumsumexp(0), (torch.ones(1),), check_trace=False)
    assert fallback_counts() == {}


@ranks(2)
@falling_back
def test_a_ragged_argument_is_refused_wherever_it_stands(rank: Rank) -> None:
    mesh = make_mesh(2)
    x = distribute_tensor(numbered((4, 2)), mesh, [Shard(0)])
    ragged = distribute_tensor(numbered((4, 2)), mesh, [RaggedShard((0,), (1, 3))])
    row = distribute_tensor(torch.tensor([1]), mesh, [RaggedShard((0,), (0, 1))])
    for action in (
        lambda: torch.logcumsumexp(ragged, 0),
        lambda: torch.logaddexp2(x, ragged),
        lambda: torch.logaddexp2(input=x, other=ragged),
        lambda: torch.block_diag(x, ragged),
        lambda: torch.atleast_2d([x, ragged]),
        lambda: torch.einsum("ij,jk,kl->il", [x, ragged, x]),
    ):
        assert_raises(NotImplementedError, "is not supported on a ragged DTensor", action)
    assert_raises(NotImplementedError, "x[i]", lambda: x[row])
    assert fallback_counts() == {}


@ranks(2)
@falling_back
def test_arguments_that_do_not_belong_together_are_named(rank: Rank) -> None:
    x = distribute_tensor(numbered((4, 2)), make_mesh(2), [Shard(0)])
    elsewhere = distribute_tensor(numbered((4, 2)), DeviceMesh((2,), ("other",)), [Shard(0)])
    assert_raises(
        TypeError, "a plain tensor of shape (4, 2) but must be a DTensor", lambda: torch.logaddexp2(x, numbered((4, 2)))
    )
    assert_raises(TypeError, "a plain tensor of shape (0,)", lambda: torch.logaddexp2(x, torch.empty(0)))
    assert_raises(ValueError, "redistribute one to the other's mesh", lambda: torch.logaddexp2(x, elsewhere))
    assert_raises(
        NotImplementedError, "argument 'out' is not supported", lambda: torch.logaddexp2(x, x, out=torch.empty(4, 2))
    )
    assert_raises(NotImplementedError, "torch's DTensor does not know it either", lambda: torch.block_diag(x))
    assert fallback_counts().keys() <= {"block_diag"}


# --- told ------------------------------------------------------------------------------------------------------------


@contextmanager
def logged() -> Iterator[list[logging.LogRecord]]:
    """What the package logs meanwhile."""
    records: list[logging.LogRecord] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            records.append(record)

    logger, handler = logging.getLogger("hyper_parallel"), Keep()
    logger.addHandler(handler)
    try:
        yield records
    finally:
        logger.removeHandler(handler)


@ranks(2)
@falling_back
def test_each_operation_is_counted_and_logged_once_by_the_first_rank_of_the_mesh(rank: Rank) -> None:
    x = distribute_tensor(numbered((4, 2)), DeviceMesh((2,), ("dp",), (1, 0)), [Shard(0)])
    with logged() as records:
        for _ in range(3):
            torch.i0(x)
        x.logcumsumexp(0)
        x * 2
    assert fallback_counts() == {"i0": 3, "logcumsumexp": 1}
    assert [record.levelno for record in records] == [logging.WARNING] * (2 if rank.index == 1 else 0)
    for record, name in zip(records, ("i0", "logcumsumexp"), strict=False):
        assert record.getMessage() == (
            f"operation '{name}' has no rule and runs through torch's DTensor; HYPER_PARALLEL_STRICT=1 refuses instead"
        )
    counts = fallback_counts()
    counts["other"] = 1
    assert "other" not in fallback_counts()
    reset_fallback_counts()
    assert fallback_counts() == {}


@ranks(2)
@falling_back
def test_strict_refuses_as_ever_and_counts_nothing(rank: Rank) -> None:
    x = distribute_tensor(numbered((4, 2)), make_mesh(2), [Shard(0)])
    with environment({"HYPER_PARALLEL_STRICT": "1"}), logged() as records:
        text = "operation 'logcumsumexp' is not supported on a DTensor with placements [Shard(0)]"
        assert_raises(NotImplementedError, text, lambda: x.logcumsumexp(0))
        assert_raises(NotImplementedError, "x[i] of a DTensor takes one int", lambda: x[torch.tensor([0])])
    assert records == []
    assert fallback_counts() == {}


@ranks(2)
@falling_back
def test_rows_of_a_tensor_sharded_by_rows_stay_ragged_views(rank: Rank) -> None:
    x = distribute_tensor(numbered((4, 2)), make_mesh(2), [Shard(0)])
    x[2].zero_()
    assert x[2].placements == (RaggedShard((0,), (0, 1)),)
    assert_equal(x.full_tensor()[2], torch.zeros(2))
    replicated = distribute_tensor(numbered((4, 2)), make_mesh(2), [Replicate()])
    assert_equal(replicated[2].full_tensor(), numbered((4, 2))[2])
    assert_raises(NotImplementedError, "x[i] = v", lambda: replicated.__setitem__(0, 1.0))
    assert fallback_counts() == {}
