"""Cases from public fault reports on layouts of Replicate, Shard and Partial, over all kinds of operations.

What these layouts share with ragged ones is tested with them, in the other test_cases_*.py, test_values.py and
test_copies.py.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import pytest
import torch

from hyper_parallel import DTensor, Partial, Placement, Replicate, Shard, distribute_tensor
from support.checks import (
    assert_consistent,
    assert_equal,
    assert_part,
    assert_raises,
    gradient_of,
    make_mesh,
    whole_of,
)
from support.ranks import ranks
from support.truth import Spread
from support.values import numbered
from support.worker import Rank

NESTED = [Shard(0), Shard(0)]


def spread(shape: tuple[int, ...], placement: Placement, factor: float = 1.0) -> DTensor:
    """0, 1, 2, .. times the factor, on a mesh of two ranks."""
    return distribute_tensor(numbered(shape) * factor, make_mesh(2), [placement])


def pending(*shares: list[float], rank: Rank) -> DTensor:
    """A Partial(sum) of each rank's share."""
    return DTensor.from_local(torch.tensor(shares[rank.index]), make_mesh(len(shares)), [Partial()])


@pytest.mark.parametrize("flattened_group", [False, True])
@ranks(4)
def test_case04_nested_uneven_shards_are_gathered_axis_by_axis(rank: Rank, flattened_group: bool) -> None:
    mesh = make_mesh(2, 2)
    if flattened_group:
        mesh.flatten("both").get_group()
    x = numbered((5, 3))
    d = distribute_tensor(x, mesh, NESTED)
    first, rows = [(0, 2), (2, 1), (3, 1), (4, 1)][rank.index]
    assert_equal(d._local_tensor, x[first : first + rows])
    assert_equal(d.full_tensor(), x)
    for target in ([Replicate(), Replicate()], [Shard(0), Replicate()], [Replicate(), Shard(0)], [Shard(1), Shard(0)]):
        moved = d.redistribute(target)
        assert_part(moved, x, Spread((5, 3), (2, 2), tuple(target)), rank.index)
        assert_equal(moved.redistribute(NESTED)._local_tensor, x[first : first + rows])


@ranks(4)
def test_case04_nested_uneven_shards_are_reduced_axis_by_axis(rank: Rank) -> None:
    shares = numbered((5, 3)) * (rank.index + 1)
    p = DTensor.from_local(shares, make_mesh(2, 2), [Partial(), Partial()])
    first, rows = [(0, 2), (2, 1), (3, 1), (4, 1)][rank.index]
    assert_equal(p.redistribute(NESTED)._local_tensor, 10 * numbered((5, 3))[first : first + rows])
    assert_equal(p.full_tensor(), 10 * numbered((5, 3)))


@ranks(4)
def test_case05_empty_and_nested_shards_hold_what_follows_the_shards_before(rank: Rank) -> None:
    x = numbered((5, 10))
    d = distribute_tensor(x, make_mesh(4), [Shard(0)])
    first, rows = [(0, 2), (2, 2), (4, 1), (5, 0)][rank.index]
    assert tuple(d._local_tensor.shape) == (rows, 10)
    assert_equal(d._local_tensor, x[first : first + rows])
    told = DTensor.from_local(x[first : first + rows].clone(), make_mesh(4), [Shard(0)], shape=(5, 10))
    assert_equal(told.redistribute([Shard(1)]).full_tensor(), x)


@ranks(4)
def test_case11_order_and_arguments_are_part_of_what_is_kept_for_an_operation(rank: Rank) -> None:
    """The same operation and shape on meshes of unlike axes, with other dims and arguments, one after the other."""
    x = numbered((4, 8))
    for shape in ((2, 2), (4,), (2, 2)):
        mesh = make_mesh(*shape)
        for placements in ([Shard(0), Shard(1)], [Shard(1), Shard(0)]):
            d = distribute_tensor(x, mesh, placements[: len(shape)])
            for dim in (0, 1, -1):
                for keepdim in (False, True):
                    assert_equal(d.sum(dim, keepdim=keepdim).full_tensor(), x.sum(dim, keepdim=keepdim))
            assert_equal(d.transpose(0, 1).full_tensor(), x.t())
            for rows in (2, 4, 16):
                assert_equal(d.reshape(rows, -1).full_tensor(), x.reshape(rows, -1))


@pytest.mark.parametrize("operation", ["avg", "max", "min"])
@ranks(2)
def test_case13_no_reduction_is_relabelled_as_another(rank: Rank, operation: str) -> None:
    p = pending([15.0], [-5.0], rank=rank)
    rule = f"nothing but the same Partial becomes Partial({operation})"
    assert_raises(ValueError, rule, lambda: p.redistribute([Partial(operation)]))
    other = DTensor.from_local(torch.tensor([1.0 + rank.index]), make_mesh(2), [Partial(operation)])
    for combine in (torch.add, torch.sub, torch.maximum):
        assert_raises(ValueError, "Partial", lambda given=combine: given(p, other))
    assert_equal(p.full_tensor(), torch.tensor([10.0]))


@ranks(2)
def test_case13_in_place_operations_that_do_not_commute_leave_an_average_alone(rank: Rank) -> None:
    for change in (
        lambda p: p.clamp_(max=2),
        lambda p: p.abs_(),
        lambda p: p.relu_(),
        lambda p: p.pow_(2),
        lambda p: p.mul_(p),
    ):
        p = DTensor.from_local(torch.tensor([15.0 - 20 * rank.index]), make_mesh(2), [Partial("avg")])
        assert_raises(ValueError, "does not commute", lambda given=p, f=change: f(given))
        assert p._version == 0
        assert_equal(p.full_tensor(), torch.tensor([5.0]))


@ranks(2)
def test_case14_norm_is_that_of_the_value(rank: Rank) -> None:
    p = pending([1.0, 3.0], [2.0, 1.0], rank=rank)
    for norm in (torch.linalg.vector_norm, torch.norm):
        assert_raises(ValueError, "does not commute", lambda given=norm: given(p))
        for placement in (Replicate(), Shard(0)):
            assert norm(p.redistribute([placement])).item() == 5.0


REDUCING: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "max": torch.max,
    "amax": lambda x: x.amax(0),
    "min": torch.min,
    "argmax": torch.argmax,
    "softmax": lambda x: x.softmax(0),
    "prod": torch.prod,
}


@pytest.mark.parametrize("operation", list(REDUCING))
@ranks(2)
def test_case14_non_linear_reductions_never_run_on_shares(rank: Rank, operation: str) -> None:
    p = pending([3.0, -5.0], [-4.0, 2.0], rank=rank)
    with pytest.raises((ValueError, NotImplementedError), match=r"commute|not supported"):
        REDUCING[operation](p)


@ranks(2)
def test_case14_linear_reductions_are_right_on_shares(rank: Rank) -> None:
    p = pending([3.0, -5.0], [-4.0, 2.0], rank=rank)
    for total in (p.sum(), p.sum(0)):
        assert isinstance(total, DTensor)
        assert total.full_tensor().item() == -4.0
    assert p.mean().full_tensor().item() == -2.0


@ranks(2)
def test_case16_scalars_that_operations_leave_pending_are_read_whole(rank: Rank) -> None:
    x = spread((5,), Shard(0))
    total = x.sum()
    assert (total.item(), float(total), int(total)) == (10.0, 10.0, 10)
    assert x.mean().item() == 2.0
    assert x.max().item() == 4.0
    assert f"{x.sum():.1f}" == "10.0"


@pytest.mark.parametrize("leave", [False, True])
@ranks(2)
def test_case17_a_sum_left_and_taken_up_again_has_the_same_gradient(rank: Rank, leave: bool) -> None:
    mesh = make_mesh(2)
    weight = distribute_tensor(torch.tensor([1.0, 2.0], requires_grad=True), mesh, [Replicate()])
    data = distribute_tensor(torch.tensor([3.0, 4.0]), mesh, [Shard(0)])
    total = (weight.redistribute([Shard(0)]) * data).sum()
    assert total.placements == (Partial(),)
    if leave:
        total = DTensor.from_local(total.to_local(), mesh, [Partial()])
    whole = total.redistribute([Replicate()])
    assert whole.item() == 11.0
    whole.backward()
    assert_equal(gradient_of(weight)._local_tensor, torch.tensor([3.0, 4.0]))


@ranks(2)
def test_case17_a_pending_loss_is_backpropagated_as_it_is(rank: Rank) -> None:
    weight = distribute_tensor(torch.tensor([1.0, 2.0], requires_grad=True), make_mesh(2), [Replicate()])
    (weight * spread((2,), Shard(0)).add(3)).sum().backward()
    assert_equal(gradient_of(weight)._local_tensor, torch.tensor([3.0, 4.0]))


@pytest.mark.parametrize("placements", [NESTED, [Shard(0), Replicate()], [Shard(1), Shard(0)]], ids=str)
@ranks(4)
def test_case23_leaves_on_two_mesh_dims_and_their_redistributions(rank: Rank, placements: list[Placement]) -> None:
    x = numbered((5, 3))
    d = distribute_tensor(x.clone().requires_grad_(), make_mesh(2, 2), placements)
    e = d.redistribute([Replicate(), Replicate()])
    f = d.detach()
    assert (d.is_leaf, d.requires_grad) == (True, True)
    assert (e.is_leaf, e.requires_grad) == (False, True)
    assert not f.requires_grad
    assert f._local_tensor.data_ptr() == d._local_tensor.data_ptr()
    e.square().sum().backward()
    gradient = gradient_of(d)
    assert gradient.placements == d.placements
    assert_equal(gradient.full_tensor(), 2 * x)


BROADCAST: dict[str, tuple[tuple[tuple[int, ...], Placement], tuple[tuple[int, ...], Placement]]] = {
    "columns and a row": (((20, 6), Shard(1)), ((6,), Shard(0))),
    "rows and a row": (((20, 6), Shard(0)), ((6,), Shard(0))),
    "middle and first": (((2, 4, 3), Shard(1)), ((2, 1, 3), Shard(0))),
    "a column and a row": (((4, 1), Shard(0)), ((1, 3), Shard(1))),
    "uneven": (((5, 3), Shard(0)), ((5, 1), Shard(0))),
    "more ranks than rows": (((1, 3), Shard(0)), ((4, 3), Shard(0))),
    "replicated": (((4, 3), Shard(0)), ((3,), Replicate())),
}
OPERATIONS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "add": torch.add,
    "mul": torch.mul,
    "sub": torch.sub,
    "where": lambda a, b: torch.where(a > b, a, b),
}


@pytest.mark.parametrize("operation", list(OPERATIONS))
@pytest.mark.parametrize("operands", list(BROADCAST))
@ranks(2)
def test_case31_operands_are_aligned_by_broadcasting(rank: Rank, operands: str, operation: str) -> None:
    (shape, placement), (other_shape, other_placement) = BROADCAST[operands]
    factor = 100.0 if operation == "mul" else 1000.0
    for flip in (False, True):
        given = [spread(shape, placement), spread(other_shape, other_placement, factor)]
        plain = [numbered(shape), numbered(other_shape) * factor]
        if flip:
            given.reverse()
            plain.reverse()
        result = OPERATIONS[operation](*given)
        assert_consistent(result)
        assert isinstance(result, DTensor)
        assert_equal(result.full_tensor(), OPERATIONS[operation](*plain))


@pytest.mark.parametrize("operands", list(BROADCAST))
@ranks(2)
def test_case31_gradients_of_aligned_operands_are_summed_over_what_was_repeated(rank: Rank, operands: str) -> None:
    (shape, placement), (other_shape, other_placement) = BROADCAST[operands]
    plain = [numbered(shape).requires_grad_(), numbered(other_shape).requires_grad_()]
    (plain[0] * plain[1]).sum().backward()
    given = [
        distribute_tensor(tensor.detach().clone().requires_grad_(), make_mesh(2), [own])
        for tensor, own in zip(plain, (placement, other_placement), strict=True)
    ]
    (given[0] * given[1]).sum().backward()
    for tensor, expected in zip(given, plain, strict=True):
        gradient = gradient_of(tensor)
        assert expected.grad is not None
        assert gradient.placements == tensor.placements
        assert_equal(gradient.full_tensor(), expected.grad)


@ranks(2)
def test_case31_in_place_forms_keep_the_layout_of_their_first_operand(rank: Rank) -> None:
    for shape, placement, other_shape, other_placement in (
        ((20, 6), Shard(1), (6,), Shard(0)),
        ((20, 6), Shard(0), (6,), Shard(0)),
        ((5, 3), Replicate(), (5, 3), Shard(0)),
    ):
        d = spread(shape, placement)
        assert d.add_(spread(other_shape, other_placement, 1000.0)) is d
        assert d.placements == (placement,)
        assert_equal(d.full_tensor(), numbered(shape) + numbered(other_shape) * 1000.0)


DTYPES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "t + f32 row": lambda t: t + torch.tensor(0.5),
    "sum": torch.sum,
    "mean of floats": lambda t: t.double().mean(),
    "amax": lambda t: t.amax(),
    "argmax": torch.argmax,
    "cumulative comparison": lambda t: (t > 2).sum(),
    "softmax": lambda t: t.float().softmax(0),
    "t @ t": lambda t: t @ t,
    "floor division": lambda t: t // 2,
    "bool and": lambda t: (t > 1) & (t < 4),
}


@pytest.mark.parametrize("operation", list(DTYPES))
@pytest.mark.parametrize("placement", [Shard(0), Replicate()], ids=str)
@ranks(2)
def test_case32_dtypes_are_those_of_the_result(rank: Rank, placement: Placement, operation: str) -> None:
    plain = torch.arange(5)
    d = distribute_tensor(plain, make_mesh(2), [placement])
    result, expected = DTYPES[operation](d), DTYPES[operation](plain)
    assert_consistent(result)
    assert isinstance(result, DTensor)
    assert result.dtype == result._local_tensor.dtype == expected.dtype
    assert_equal(result.full_tensor(), expected)


@pytest.mark.parametrize("first", [torch.int64, torch.bfloat16, torch.float32, torch.bool], ids=str)
@pytest.mark.parametrize("second", [torch.int64, torch.float16, torch.float64, torch.bool], ids=str)
@ranks(2)
def test_case32_two_operands_are_promoted_as_plain_ones(rank: Rank, first: torch.dtype, second: torch.dtype) -> None:
    a, b = numbered((5,), first), numbered((5,), second)
    for placement, other in ((Shard(0), Shard(0)), (Shard(0), Replicate()), (Replicate(), Replicate())):
        result = distribute_tensor(a, make_mesh(2), [placement]) + distribute_tensor(b, make_mesh(2), [other])
        assert_consistent(result)
        assert isinstance(result, DTensor)
        assert_equal(result.full_tensor(), a + b)


@ranks(2)
def test_case34_scalars_and_tensors_without_elements_go_through_operations(rank: Rank) -> None:
    mesh = make_mesh(2)
    five = distribute_tensor(torch.tensor(5.0), mesh, [Replicate()])
    assert_raises(IndexError, "Shard(0) is out of range for a tensor of 0 dims", lambda: five.redistribute([Shard(0)]))
    for placement in (Shard(0), Replicate()):
        assert_equal((spread((4,), placement) + five).full_tensor(), torch.arange(5.0, 9.0))
        assert_equal((five * spread((4,), placement)).full_tensor(), torch.arange(0.0, 20.0, 5.0))
    for shape in ((0, 4), (4, 0)):
        empty = torch.zeros(shape)
        for placement in (Shard(0), Shard(1), Replicate()):
            d = distribute_tensor(empty, mesh, [placement])
            assert d.sum().item() == 0.0
            for result, expected in (
                (d + 1, empty),
                (d.sum(0), empty.sum(0)),
                (d.sum(1), empty.sum(1)),
                (d @ d.t(), empty @ empty.t()),
                (d.reshape(0), empty.reshape(0)),
                (d.softmax(1), empty),
            ):
                assert isinstance(result, DTensor)
                assert_equal(result.full_tensor(), expected)


SOURCES: dict[str, tuple[tuple[int, int], list[Placement]]] = {
    "nested": ((2, 2), NESTED),
    "crossed": ((2, 2), [Shard(1), Shard(0)]),
    "replicas of shards": ((2, 2), [Replicate(), Shard(0)]),
}
COPIES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda d: pickle.loads(pickle.dumps(d)),
    "clone": torch.clone,
    "to": lambda d: d.to(torch.float64),
}


@pytest.mark.parametrize("kind", list(COPIES))
@pytest.mark.parametrize("source", list(SOURCES))
@ranks(4)
def test_case35_copies_on_two_mesh_dims_keep_everything(rank: Rank, source: str, kind: str) -> None:
    mesh_shape, placements = SOURCES[source]
    x = numbered((5, 3))
    d = distribute_tensor(x, make_mesh(*mesh_shape), placements)
    copied = COPIES[kind](d)
    assert isinstance(copied, DTensor)
    assert (copied.shape, copied.placements, copied.device_mesh) == (d.shape, d.placements, d.device_mesh)
    assert_consistent(copied)
    copied._local_tensor.add_(100)
    assert_equal(whole_of(copied), (x + 100).to(copied.dtype))
    assert_equal(whole_of(d), x)


@ranks(2)
def test_case35_copies_of_pending_tensors_stay_pending(rank: Rank) -> None:
    p = pending([3.0, -5.0], [-4.0, 2.0], rank=rank)
    for copied in (copy.deepcopy(p), pickle.loads(pickle.dumps(p)), p.clone(), p.detach()):
        assert copied.placements == (Partial(),)
        assert_equal(copied.full_tensor(), torch.tensor([-1.0, -3.0]))
