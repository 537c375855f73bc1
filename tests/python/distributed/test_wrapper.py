"""The wrapper in Python: a storage-less tensor of logical shape that agrees with its local tensor at all times."""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import FrameType
from typing import Any

import pytest
import torch

from hyper_parallel import DTensor, Partial, Placement, RaggedShard, Replicate, Shard, distribute_tensor
from support.checks import assert_consistent, assert_equal, assert_raises, make_mesh
from support.ranks import ranks
from support.values import numbered
from support.worker import Rank

SHAPE = (6, 4)
PLACEMENTS: dict[str, Placement] = {
    "ragged": RaggedShard((0,), (1, 2)),
    "empty": RaggedShard((0,), (0, 3)),
    "sharded": Shard(0),
    "replicated": Replicate(),
}
every_layout = pytest.mark.parametrize("layout", list(PLACEMENTS))


def make(layout: str = "ragged", *, requires_grad: bool = False) -> DTensor:
    whole = numbered(SHAPE).requires_grad_(requires_grad)
    return distribute_tensor(whole, make_mesh(2), [PLACEMENTS[layout]])


@every_layout
@ranks(2)
def test_it_is_a_tensor_of_the_logical_shape(rank: Rank, layout: str) -> None:
    x = make(layout)
    assert isinstance(x, torch.Tensor)
    assert type(x) is DTensor
    assert x.shape == x.size() == torch.Size(SHAPE)
    assert (x.dim(), x.ndim, x.numel(), x.nelement(), len(x)) == (2, 2, 24, 24, 6)
    assert x.size(1) == 4
    assert x.stride() == (4, 1)
    assert (x.dtype, x.device, x.layout.mesh) == (torch.float32, torch.device("cpu"), make_mesh(2))
    assert x.is_floating_point()
    assert not x.is_complex()
    assert x.element_size() == 4
    assert x._global_shape == SHAPE
    assert_consistent(x)


@every_layout
@ranks(2)
def test_it_has_no_storage(rank: Rank, layout: str) -> None:
    x = make(layout)
    for action in (x.data_ptr, x.untyped_storage, x.storage):
        with pytest.raises((NotImplementedError, RuntimeError)):
            action()


@every_layout
@ranks(2)
def test_what_bypasses_the_torch_function_raises_at_the_dispatcher(rank: Rank, layout: str) -> None:
    x = make(layout)
    with torch._C.DisableTorchFunctionSubclass():
        for action in (lambda: torch.mul(x, x), lambda: x.sum(), lambda: torch.Tensor.mul_(x, 2), lambda: x.clone()):
            assert_raises(NotImplementedError, "bypassed DTensor", action)
        # What the autograd engine itself calls runs on the DTensor, not on the share.
        doubled = torch.add(x, x)
    assert isinstance(doubled, DTensor)
    assert_equal(doubled.full_tensor(), numbered(SHAPE) * 2)
    assert_equal(x.full_tensor(), numbered(SHAPE))


@every_layout
@ranks(2)
def test_what_the_autograd_engine_does_with_gradients_runs_at_the_dispatcher(rank: Rank, layout: str) -> None:
    x = make(layout, requires_grad=True)
    with torch._C.DisableTorchFunctionSubclass():
        added, cast, detached = torch.add(x, x), x.to(torch.float64), x.detach()
    for result in (added, cast, detached):
        assert_consistent(result)
        assert isinstance(result, DTensor)
        assert result.placements == x.placements
    assert_equal(added.detach().full_tensor(), numbered(SHAPE) * 2)
    assert_equal(cast.detach().full_tensor(), numbered(SHAPE, torch.float64))
    assert detached._local_tensor.data_ptr() == x._local_tensor.data_ptr()
    added.full_tensor(grad_placements=[Replicate()]).sum().backward()
    assert x.grad is not None
    assert_equal(x.grad.full_tensor(), torch.full(SHAPE, 2.0))


@ranks(2)
def test_torch_ops_do_not_run_on_the_share(rank: Rank) -> None:
    x = make()
    for action in (lambda: torch.ops.aten.tanh(x), lambda: torch.ops.aten.sum.default(x)):
        assert_raises(NotImplementedError, "to_local()", action)
    assert_equal(x.full_tensor(), numbered(SHAPE))


@ranks(2)
def test_a_tensor_that_was_relabelled_carries_no_share(rank: Rank) -> None:
    relabelled = torch.ones(2).as_subclass(DTensor)  # type: ignore[arg-type]
    with pytest.raises((TypeError, NotImplementedError)):
        relabelled + 1
    with pytest.raises((TypeError, NotImplementedError)):
        relabelled.full_tensor()


IN_PLACE: dict[str, Callable[[DTensor], Any]] = {
    "add_": lambda x: x.add_(1),
    "+=": lambda x: x.__iadd__(x),
    "zero_": lambda x: x.zero_(),
    "fill_": lambda x: x.fill_(3),
    "copy_": lambda x: x.copy_(x + 1),
    "mul_ out of a function": lambda x: torch.relu_(x),
    "requires_grad_": lambda x: x.requires_grad_(),
    "requires_grad_(False)": lambda x: x.requires_grad_(False),
    "detach_": lambda x: x.detach_(),
}


@pytest.mark.parametrize("form", list(IN_PLACE))
@every_layout
@ranks(2)
def test_in_place_operations_return_the_same_object(rank: Rank, layout: str, form: str) -> None:
    x = make(layout)
    assert IN_PLACE[form](x) is x
    assert_consistent(x)


@every_layout
@ranks(2)
def test_version_dtype_and_requires_grad_follow_the_local_tensor(rank: Rank, layout: str) -> None:
    x = make(layout)
    x.add_(1)
    assert x._version == 1
    x._local_tensor.add_(1)  # from outside
    assert x._version == x._local_tensor._version == 2
    x.detach().add_(1)
    assert x._version == 3
    assert_equal(x.full_tensor(), numbered(SHAPE) + 3)
    x.requires_grad = True
    assert_consistent(x)
    x.requires_grad_(False)
    assert_consistent(x)
    x._local_tensor.requires_grad_()
    assert_consistent(x)
    y = x * 2
    assert y.requires_grad
    assert not y.is_leaf
    assert_consistent(y)
    assert_consistent(y.detach())
    assert_consistent(x.double())
    assert_consistent(x > 1)


@every_layout
@ranks(2)
def test_assigning_data_changes_dtype_and_values_of_wrapper_and_local_alike(rank: Rank, layout: str) -> None:
    x = make(layout, requires_grad=True)
    x.data = x.data.double() + 1
    assert x.dtype == torch.float64
    assert x.requires_grad
    assert x.is_leaf
    assert_consistent(x)
    assert_equal(x.detach().full_tensor(), numbered(SHAPE, torch.float64) + 1)
    x.data.zero_()
    assert_equal(x.detach().full_tensor(), torch.zeros(SHAPE, dtype=torch.float64))
    (x * 3).full_tensor(grad_placements=[Replicate()]).sum().backward()
    assert x.grad is not None
    assert x.grad.dtype == torch.float64
    assert_consistent(x.grad)


@ranks(2)
def test_assigning_plain_data_raises(rank: Rank) -> None:
    x = make()
    with pytest.raises((TypeError, ValueError), match="DTensor"):
        x.data = torch.zeros(SHAPE)
    assert_equal(x.full_tensor(), numbered(SHAPE))


@every_layout
@ranks(2)
def test_detach_shares_storage_and_has_no_graph(rank: Rank, layout: str) -> None:
    x = make(layout, requires_grad=True)
    y = (x * 2).detach()
    assert not y.requires_grad
    assert y.grad_fn is None
    shared = x.detach()
    assert shared is not x
    assert not shared.requires_grad
    assert shared.placements == x.placements
    assert shared._local_tensor.data_ptr() == x._local_tensor.data_ptr()
    shared.fill_(7)
    assert_equal(x.detach().full_tensor(), torch.full(SHAPE, 7.0))


@every_layout
@ranks(2)
def test_under_no_grad_nothing_is_recorded(rank: Rank, layout: str) -> None:
    x = make(layout, requires_grad=True)
    with torch.no_grad():
        y = x * 2
        x.add_(1)
        z = y.redistribute([Shard(1)])
    assert not y.requires_grad
    assert not z.requires_grad
    assert x.requires_grad
    assert_consistent(x)
    assert_consistent(y)
    assert_equal(z.full_tensor(), numbered(SHAPE) * 2)
    with torch.inference_mode():
        assert_equal((x + 1).full_tensor(), numbered(SHAPE) + 2)


@every_layout
@ranks(2)
def test_a_leaf_that_requires_grad_refuses_in_place_writes_as_torch_does(rank: Rank, layout: str) -> None:
    x = make(layout, requires_grad=True)
    with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
        x.add_(1)
    assert_equal(x.detach().full_tensor(), numbered(SHAPE))


@ranks(2)
def test_repr_tells_layout_shapes_and_this_ranks_share_without_communication(rank: Rank) -> None:
    x = make(requires_grad=True)
    if rank.index == 0:  # alone: a collective would time out
        text = repr(x)
        for part in (
            "DTensor",
            "(6, 4)",
            "RaggedShard(dims=(0,), local_units=(1, 2))",
            "dp",
            "7.",
            "requires_grad=True",
        ):
            assert part in text
        assert "8." not in text, "the share of the other rank"
        assert text == str(x) == f"{x}"
        pending = DTensor(torch.ones(3), make_mesh(2), [Partial("max")])
        assert "Partial(reduce_op='max')" in repr(pending)
        assert "grad_fn" in repr(x * 2)


@ranks(2)
def test_repr_of_a_large_tensor_is_short(rank: Rank) -> None:
    x = distribute_tensor(torch.zeros(1000, 1000), make_mesh(2), [RaggedShard((0,), (1, 3))])
    assert len(repr(x)) < 2000


@ranks(2)
def test_it_lives_in_sets_and_dicts_by_identity(rank: Rank) -> None:
    x, y = make(), make()
    assert {x: 1, y: 2}[x] == 1
    assert len({x, y, x}) == 2
    assert x in [x]


@ranks(2)
def test_attributes_can_be_set(rank: Rank) -> None:
    x = make()
    x.tag = "mine"  # type: ignore[attr-defined]
    assert x.tag == "mine"  # type: ignore[attr-defined]
    assert (x * 1).placements == x.placements


@ranks(2)
def test_threads_may_compute_at_the_same_time(rank: Rank) -> None:
    x = make()

    def work(factor: int) -> bool:
        return all(torch.equal((x * factor)._local_tensor, x._local_tensor * factor) for _ in range(200))

    with ThreadPoolExecutor(4) as executor:
        assert all(executor.map(work, range(8)))


def frames_of(action: Callable[[], object]) -> list[str]:
    """The Python functions of our package that run in `action`."""
    seen: list[str] = []

    def watch(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and "hyper_parallel" in frame.f_code.co_filename.split("/"):
            seen.append(frame.f_code.co_qualname)

    sys.setprofile(watch)
    try:
        action()
    finally:
        sys.setprofile(None)
    return seen


FRAMELESS: dict[str, Callable[[DTensor, DTensor], object]] = {
    "a + b": lambda a, b: a + b,
    "2 * a": lambda a, b: 2 * a,
    "a.mul_(b)": lambda a, b: a.mul_(b),
    "torch.relu(a)": lambda a, b: torch.relu(a),
    "torch.addcmul(a, b, b)": lambda a, b: torch.addcmul(a, b, b),
    "torch._foreach_add_([a], [b])": lambda a, b: torch._foreach_add_([a], [b]),
}


@pytest.mark.parametrize("operation", list(FRAMELESS))
@every_layout
@ranks(2)
def test_no_python_frame_of_ours_runs_in_an_operation(rank: Rank, layout: str, operation: str) -> None:
    a, b = make(layout), make(layout)
    assert frames_of(lambda: FRAMELESS[operation](a, b)) == []
    assert frames_of(lambda: a.to_local()) != [], "the hook sees what it should"
