"""Random numbers in place: the same whole tensor under every layout, and torch.nn.init with them."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import nn

import hyper_parallel as hp
from hyper_parallel import DeviceMesh, DTensor, Partial, Placement, RaggedShard, Replicate, Shard
from support.checks import assert_consistent, assert_equal, assert_part, assert_raises, make_mesh, whole_of
from support.ranks import ranks
from support.truth import Spread
from support.worker import Rank

SHAPE = (8, 6)
DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
LAYOUTS: list[Placement] = [
    Replicate(), Shard(0), Shard(1), RaggedShard((0,), (3, 1)), RaggedShard((0,), (0, 1)), RaggedShard((0, 1), (5, 7)),
]  # fmt: skip

WRITES: dict[str, Callable[[DTensor], object]] = {
    "uniform_": lambda x: x.uniform_(),
    "uniform_ of bounds": lambda x: x.uniform_(-3, 5.5),
    "normal_": lambda x: x.normal_(),
    "normal_ of moments": lambda x: x.normal_(mean=2, std=0.1),
    "init.uniform_": lambda x: nn.init.uniform_(x, -1, 1),
    "init.normal_": lambda x: nn.init.normal_(x, std=0.02),
    "init.xavier_uniform_": nn.init.xavier_uniform_,
    "init.xavier_normal_": nn.init.xavier_normal_,
    "init.kaiming_uniform_": lambda x: nn.init.kaiming_uniform_(x, a=math.sqrt(5)),
    "init.kaiming_normal_": lambda x: nn.init.kaiming_normal_(x, mode="fan_out", nonlinearity="relu"),
}


def written(mesh: DeviceMesh, placement: Placement, write: Callable[[DTensor], object], dtype: torch.dtype) -> DTensor:
    hp.manual_seed(5)
    parameter = hp.zeros(SHAPE, device_mesh=mesh, dtype=dtype).redistribute(placements=[placement])
    parameter.requires_grad_()
    with torch.no_grad():
        assert write(parameter) is parameter
    assert parameter._version > 0
    return parameter


@pytest.mark.parametrize("name", list(WRITES))
@ranks(2)
def test_every_layout_is_written_as_the_whole_tensor_is(rank: Rank, name: str) -> None:
    mesh = make_mesh(2)
    for dtype in DTYPES:
        whole = written(mesh, Replicate(), WRITES[name], dtype).full_tensor().detach()
        assert whole.unique().numel() > 20  # of 48, in halves
        for placement in LAYOUTS:
            x = written(mesh, placement, WRITES[name], dtype)
            assert_consistent(x)
            assert_part(x, whole, Spread(SHAPE, (2,), (placement,)), rank.index)


@ranks(2)
def test_they_write_what_the_factories_draw(rank: Rank) -> None:
    mesh = make_mesh(2)
    for dtype in DTYPES:
        for write, make in ((torch.Tensor.uniform_, hp.rand), (torch.Tensor.normal_, hp.randn)):
            x = written(mesh, Shard(0), write, dtype)
            hp.manual_seed(5)
            assert_equal(x.full_tensor(), make(SHAPE, device_mesh=mesh, dtype=dtype).full_tensor())


@ranks(2)
def test_the_numbers_have_the_range_and_moments_that_are_asked_for(rank: Rank) -> None:
    mesh = make_mesh(2)
    hp.manual_seed(1)
    for dtype in DTYPES:
        x = hp.zeros(200, 300, device_mesh=mesh, placements=[Shard(0)], dtype=dtype)
        uniform = x.uniform_(1, 3).full_tensor().double()
        assert uniform.min() >= 1
        assert uniform.max() < 3
        assert abs(uniform.mean() - 2) < 0.02
        assert abs(uniform.var() - 4 / 12) < 0.01
        assert_equal(x.uniform_(2, 2).full_tensor(), torch.full((200, 300), 2.0, dtype=dtype))
        normal = x.normal_(-1, 2).full_tensor().double()
        assert abs(normal.mean() + 1) < 0.04
        assert abs(normal.std() - 2) < 0.03
        assert_equal(x.normal_(3, 0).full_tensor(), torch.full((200, 300), 3.0, dtype=dtype))


@ranks(2)
def test_the_open_end_is_not_reached_where_numbers_are_rounded(rank: Rank) -> None:
    # Between 64 and 64.5 a half has 8 values: an eighth of all numbers would be rounded up to the end or near it.
    x = hp.zeros(1000, device_mesh=make_mesh(2), placements=[Shard(0)], dtype=torch.float16)
    x.uniform_(64, 64.5)
    values = x.full_tensor()
    assert values.min() == 64
    assert values.max() < 64.5


@ranks(2)
def test_init_keeps_the_bounds_of_its_formulas(rank: Rank) -> None:
    mesh = make_mesh(2)
    x = hp.zeros(64, 32, device_mesh=mesh, placements=[Shard(0)])
    bounds = {
        "kaiming": (lambda: nn.init.kaiming_uniform_(x, a=math.sqrt(5)), 1 / math.sqrt(32)),
        "kaiming of fan_out": (
            lambda: nn.init.kaiming_uniform_(x, mode="fan_out", nonlinearity="relu"), math.sqrt(6 / 64),
        ),
        "xavier": (lambda: nn.init.xavier_uniform_(x), math.sqrt(6 / 96)),
        "truncated": (lambda: nn.init.trunc_normal_(x, std=2.0, a=-0.5, b=1.0), 1.0),
        "truncated wide": (lambda: nn.init.trunc_normal_(x, std=0.5, a=-1, b=1), 1.0),
    }  # fmt: skip
    for name, (write, bound) in bounds.items():
        write()
        values = x.full_tensor()
        assert 0.9 * bound < values.max() <= bound, name
        if name == "truncated":
            assert values.min() >= -0.5


@ranks(2)
def test_modules_reset_their_parameters(rank: Rank) -> None:
    mesh = make_mesh(2)
    module = nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.Embedding(4, 3))
    plan = {"0.weight": Shard(0), "0.bias": RaggedShard((0,), (1, 3)), "2.weight": RaggedShard((0,), (0, 1))}
    hp.shard(module, {"parameter": {name: (placement,) for name, placement in plan.items()}}, mesh)
    before = {name: parameter.detach().clone() for name, parameter in module.named_parameters()}
    for child in module:
        child.reset_parameters()
    for name, placement in plan.items():
        parameter = module.get_parameter(name)
        assert isinstance(parameter, DTensor)
        assert parameter.placements == (placement,)
        assert not torch.equal(parameter.full_tensor(), before[name].full_tensor())
    bound = 1 / math.sqrt(6)
    assert module.get_parameter("0.bias").full_tensor().abs().max() <= bound


@ranks(2)
def test_what_cannot_be_written_raises_on_every_rank_and_writes_nothing(rank: Rank) -> None:
    mesh = make_mesh(2)
    whole = torch.arange(12.0).reshape(4, 3)
    x = hp.distribute_tensor(whole, mesh, [Shard(0)])
    integers = hp.distribute_tensor(whole.long(), mesh, [Shard(0)])
    columns = hp.distribute_tensor(whole, mesh, [Shard(1)])
    refused: list[tuple[type[Exception], str, Callable[[], object]]] = [
        (ValueError, "operation 'uniform_': from is 2 and to is 1", lambda: x.uniform_(2, 1)),
        (ValueError, "from is 0 and to is inf", lambda: x.uniform_(0, math.inf)),
        (ValueError, "beyond the greatest Float", lambda: x.uniform_(0, 1e39)),
        (ValueError, "beyond the greatest Float", lambda: x.uniform_(-3e38, 3e38)),
        (ValueError, "beyond the greatest Float", lambda: x.uniform_(1e39, 1e39)),
        (ValueError, "beyond the greatest Half, 65504", lambda: x.half().uniform_(0, 1e5)),
        (ValueError, "operation 'normal_': std is -1 but must not be negative", lambda: x.normal_(0, -1)),
        (TypeError, "torch._C.Generator is not supported", lambda: x.normal_(generator=torch.Generator())),
        (TypeError, "dtype Long has no random numbers", lambda: integers.normal_()),
        (ValueError, "shares of a pending reduction", lambda: DTensor.from_local(whole, mesh, [Partial()]).uniform_()),
        (ValueError, "would write to a view", lambda: columns.view(-1).uniform_()),
        (ValueError, "mode is 'fan'", lambda: nn.init.kaiming_uniform_(x, mode="fan")),
        (NotImplementedError, "takes numbers, not a tensor", lambda: x.new_tensor(torch.ones(2))),
    ]  # fmt: skip
    for error, text, action in refused:
        assert_raises(error, text, action)
    leaf, before = x.detach().requires_grad_(), hp.get_rng_state()
    assert_raises(RuntimeError, "a leaf Variable that requires grad", leaf.normal_)
    assert hp.get_rng_state() == before
    assert_equal(x.full_tensor(), whole)


@ranks(2)
def test_a_write_ends_the_gradient_of_what_was_there(rank: Rank) -> None:
    x = hp.ones(4, 3, device_mesh=make_mesh(2), placements=[Shard(0)], requires_grad=True)
    y = x * 2
    y.normal_()
    y.sum().backward()
    assert x.grad is not None
    assert_equal(x.grad.full_tensor(), torch.zeros(4, 3))


@ranks(2, check=True)
def test_ranks_that_ask_for_unlike_numbers_raise_together_under_the_check(rank: Rank) -> None:
    x = hp.zeros(4, device_mesh=make_mesh(2))
    assert_raises(RuntimeError, "mean 0 std 2", lambda: x.normal_(0, 1 + rank.index))
    assert_raises(RuntimeError, "from 0 to 2", lambda: x.uniform_(0, 1 + rank.index))
    assert_equal(x.full_tensor(), torch.zeros(4))


@ranks(2)
def test_views_of_a_leaf_are_written_without_gradients(rank: Rank) -> None:
    for placement in LAYOUTS[:3]:
        weight = hp.distribute_tensor(torch.ones(4, 6), make_mesh(2), [placement]).requires_grad_()
        plain = torch.ones(4, 6, requires_grad=True)
        for tensor in (weight, plain):
            with torch.no_grad():
                tensor[1].fill_(0)
                tensor.view(2, 2, 6)[1].mul_(3)
                tensor.t().add_(1)
            (tensor * tensor).sum().backward()
        assert_equal(whole_of(weight), plain.detach())
        assert weight.grad is not None
        assert_equal(weight.grad.full_tensor(), plain.grad)
    for placement in LAYOUTS[:3]:
        embedding = nn.Embedding(4, 6, padding_idx=1)
        embedding.weight = nn.Parameter(hp.distribute_tensor(torch.ones(4, 6), make_mesh(2), [placement]))
        embedding.reset_parameters()
        assert_equal(whole_of(embedding.weight)[1], torch.zeros(6))


@ranks(4)
def test_ranks_outside_the_mesh_wait_for_nobody(rank: Rank) -> None:
    mesh = DeviceMesh((2,), ("d",), rank_list=(1, 3))
    x = hp.zeros(5, device_mesh=mesh, placements=[Shard(0)])
    assert x.uniform_() is x
    assert x._local_tensor.numel() == (0, 3, 0, 2)[rank.index]


@ranks(2)
def test_new_tensor_is_replicated_data(rank: Rank) -> None:
    x = hp.zeros(4, device_mesh=make_mesh(2), placements=[Shard(0)], dtype=torch.bfloat16)
    made = x.new_tensor([[1, 2], [3, 4]])
    assert isinstance(made, DTensor)
    assert made.placements == (Replicate(),)
    assert_equal(made.full_tensor(), torch.tensor([[1, 2], [3, 4]], dtype=torch.bfloat16))
    assert x.new_tensor(0.1, device="cpu").item() == torch.tensor(0.1, dtype=torch.bfloat16).item()
    assert x.new_tensor(3, dtype=torch.int64, requires_grad=False).dtype == torch.int64
