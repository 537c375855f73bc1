"""shard: modules laid out by a plan train as in one process, and a wrong plan changes nothing."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from hyper_parallel import (
    DeviceMesh,
    DTensor,
    Partial,
    Placement,
    RaggedShard,
    Replicate,
    Shard,
    distribute_tensor,
    shard,
)
from support.checks import assert_consistent, assert_equal, assert_part, assert_raises, make_mesh, whole_of
from support.ranks import ranks
from support.truth import Spread
from support.values import random_values
from support.worker import Rank

DOUBLE = torch.float64
STEPS = 20


class Mlp(nn.Module):
    """Two layers with a nonlinearity between."""

    def __init__(self, width: int = 8, hidden: int = 16, *, bias: bool = True) -> None:
        super().__init__()
        self.up = nn.Linear(width, hidden, bias=bias, dtype=DOUBLE)
        self.down = nn.Linear(hidden, width, bias=bias, dtype=DOUBLE)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.down(F.gelu(self.up(x)))
        return out


class Attention(nn.Module):
    """Causal self-attention over heads of width 4, of which a rank of a tensor-parallel mesh dim holds some."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False, dtype=DOUBLE) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        q, k, v = (layer(x).view(batch, length, -1, 4).transpose(1, 2) for layer in (self.q, self.k, self.v))
        heads = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        out: torch.Tensor = self.o(heads.transpose(1, 2).reshape(batch, length, -1))
        return out


class Block(nn.Module):
    """A transformer block."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = (nn.LayerNorm(8, dtype=DOUBLE) for _ in range(2))
        self.attn, self.mlp = Attention(), Mlp(bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attn(self.norm1(x))
        out: torch.Tensor = x + self.mlp(self.norm2(x))
        return out


class Stack(nn.Module):
    """Several blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Block(), Block()])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def train(
    model: nn.Module, inputs: list[Any], targets: list[Any], *, after: Callable[[nn.Module], None] | None = None
) -> list[float]:
    """The losses of a step for each input; `after` sees the gradients of every step."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for x, target in zip(inputs, targets, strict=True):
        optimizer.zero_grad()
        loss = ((model(x) - target) ** 2).mean()
        loss.backward()
        losses.append(loss.item())
        if after is not None:
            after(model)
        optimizer.step()
    return losses


def gradients_of(model: nn.Module, kept: list[dict[str, torch.Tensor]]) -> None:
    """Keeps the whole gradients of a step."""
    step = {}
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None
        is_ours = isinstance(parameter.grad, DTensor)
        step[name] = whole_of(parameter.grad) if is_ours else parameter.grad.detach().clone()
    kept.append(step)


def assert_trains_alike(
    rank: Rank,
    made: Callable[[], nn.Module],
    mesh: DeviceMesh,
    plan: dict[str, Any],
    data: tuple[Placement, ...],
    shape: tuple[int, ...],
) -> tuple[nn.Module, list[float]]:
    """The model under the plan has the losses, gradients and weights of one process; gives its twin and the losses."""
    torch.manual_seed(0)
    alone = made()
    start = copy.deepcopy(alone)
    sharded = shard(copy.deepcopy(alone), plan, mesh)
    inputs = [random_values(shape, DOUBLE, seed) for seed in range(STEPS)]
    targets = [random_values(shape, DOUBLE, STEPS + seed) for seed in range(STEPS)]
    expected_gradients: list[dict[str, torch.Tensor]] = []
    gradients: list[dict[str, torch.Tensor]] = []
    expected = train(alone, inputs, targets, after=lambda model: gradients_of(model, expected_gradients))
    # Plain inputs are this rank's part.
    parts = [Spread(shape, mesh.shape, data).part(x, rank.index) for x in inputs]
    spread_targets = [distribute_tensor(target, mesh, data) for target in targets]
    losses = train(sharded, parts, spread_targets, after=lambda model: gradients_of(model, gradients))
    torch.testing.assert_close(losses, expected)
    torch.testing.assert_close(gradients, expected_gradients)
    for name, parameter in sharded.named_parameters():
        torch.testing.assert_close(whole_of(parameter), alone.get_parameter(name).detach())
    return start, losses


COLUMN, ROW = (Replicate(), Shard(0)), (Replicate(), Shard(1))
SAMPLES = (Shard(0), Replicate())

MLP_PLAN: dict[str, Any] = {
    "parameter": {"up.weight": COLUMN, "up.bias": COLUMN, "down.weight": ROW},
    "forward": {"input": SAMPLES, "output": SAMPLES},
}


@ranks(4)
def test_a_data_and_tensor_parallel_mlp_trains_as_in_one_process(rank: Rank) -> None:
    assert_trains_alike(rank, Mlp, make_mesh(2, 2), MLP_PLAN, SAMPLES, (4, 8))


def block_plan(prefix: str, *outer: Placement) -> dict[str, Any]:
    """Attention by heads and the MLP by its hidden layer on the last mesh dim; activations lie as `outer` besides."""
    columns, rows = (*(Replicate() for _ in outer), Shard(0)), (*(Replicate() for _ in outer), Shard(1))
    whole = (*outer, Replicate())
    return {
        "parameter": {
            f"{prefix}attn.[qkv].weight": columns,
            f"{prefix}attn.o.weight": rows,
            f"{prefix}mlp.up.weight": columns,
            f"{prefix}mlp.down.weight": rows,
        },
        "forward": {
            "input": whole,
            "output": whole,
            f"{prefix}attn": {"output": whole},
            f"{prefix}mlp": {"output": whole},
        },
    }


@ranks(2)
def test_a_tensor_parallel_block_trains_as_in_one_process_and_as_torchs(rank: Rank) -> None:
    mesh = make_mesh(2)
    start, losses = assert_trains_alike(rank, Block, mesh, block_plan(""), (Replicate(),), (2, 3, 8))
    columns, rows = ("attn.q", "attn.k", "attn.v", "mlp.up"), ("attn.o", "mlp.down")
    torchs = parallelize_module(
        start,
        mesh.to_torch(),
        {name: ColwiseParallel() for name in columns} | {name: RowwiseParallel() for name in rows},
    )
    inputs = [random_values((2, 3, 8), DOUBLE, seed) for seed in range(STEPS)]
    targets = [random_values((2, 3, 8), DOUBLE, STEPS + seed) for seed in range(STEPS)]
    torch.testing.assert_close(losses, train(torchs, inputs, targets))


@ranks(4)
def test_blocks_named_by_a_wildcard_train_data_and_tensor_parallel(rank: Rank) -> None:
    assert_trains_alike(rank, Stack, make_mesh(2, 2), block_plan("layers.*.", Shard(0)), SAMPLES, (2, 3, 8))


# --- parameters ------------------------------------------------------------------------------------------------------


class Everything(nn.Module):
    """Tied weights, a buffer, a frozen parameter, none, and a place that is empty."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4, dtype=DOUBLE)
        self.second = nn.Linear(4, 4, bias=False, dtype=DOUBLE)
        self.second.weight = self.first.weight
        self.frozen = nn.Parameter(torch.ones(6, dtype=DOUBLE), requires_grad=False)
        self.register_buffer("table", random_values((6, 2), DOUBLE))
        self.register_buffer("nothing", None)


@ranks(2)
def test_parameters_and_buffers_become_distributed_and_tied_ones_stay_tied(rank: Rank) -> None:
    model, mesh = Everything(), make_mesh(2)
    names, ragged = list(model.state_dict()), RaggedShard((0,), (1, 2))
    weight = model.first.weight.detach().clone()
    assert (
        shard(model, {"parameter": {"second.weight": [Shard(0)], "table": [Shard(0)], "frozen": [ragged]}}, mesh)
        is model
    )
    assert list(model.state_dict()) == names
    assert model.second.weight is model.first.weight
    assert len(list(model.parameters())) == 3
    for parameter in model.parameters():
        assert isinstance(parameter, nn.Parameter)
        assert_consistent(parameter)
        assert parameter.is_leaf
    assert isinstance(model.table, DTensor)
    assert not isinstance(model.table, nn.Parameter)
    assert_part(model.table, random_values((6, 2), DOUBLE), Spread((6, 2), (2,), (Shard(0),)), rank.index)
    assert_part(model.frozen, torch.ones(6, dtype=DOUBLE), Spread((6,), (2,), (ragged,)), rank.index)
    assert not model.frozen.requires_grad
    assert model.first.weight.requires_grad
    whole = distribute_tensor(weight, mesh, [Replicate()], 0)._local_tensor
    assert_part(model.first.weight, whole, Spread((4, 4), (2,), (Shard(0),)), rank.index)
    bias: Any = model.first.bias
    assert bias.placements == (Replicate(),)
    assert model.nothing is None


@ranks(4)
def test_values_are_those_of_the_first_rank_whatever_the_others_hold(rank: Rank) -> None:
    mesh = DeviceMesh((2, 2), ("dp", "tp"), (2, 0, 3, 1))
    plans = {"weight": (Shard(0), Shard(1)), "ragged": (Replicate(), RaggedShard((0,), (1, 3))), "other": None}
    model = nn.ParameterDict({name: nn.Parameter(torch.full((4, 4), float(rank.index))) for name in plans})
    shard(model, {"parameter": {name: plan for name, plan in plans.items() if plan is not None}}, mesh)
    for parameter in model.values():
        assert_equal(parameter._local_tensor.detach(), torch.full_like(parameter._local_tensor, 2.0))


@ranks(2)
def test_what_is_distributed_already_is_redistributed_where_it_is_named_and_else_left(rank: Rank) -> None:
    mesh = make_mesh(2)
    model = shard(Mlp(), {"parameter": {"up.weight": [Shard(0)], "down.weight": [Shard(1)]}}, mesh)
    before = dict(model.named_parameters())
    whole = whole_of(model.down.weight)
    shard(model, {"parameter": {"down.weight": [Shard(0)]}}, mesh)
    assert model.up.weight is before["up.weight"]
    assert model.up.bias is before["up.bias"]
    assert_part(model.down.weight, whole, Spread((8, 16), (2,), (Shard(0),)), rank.index)
    assert isinstance(model.down.weight, nn.Parameter)


@ranks(2)
def test_ragged_parameters_train_where_the_module_gathers_them(rank: Rank) -> None:
    class Gathering(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(random_values((6, 4), DOUBLE))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            weight: Any = self.weight
            whole = weight.redistribute([Replicate()]) if isinstance(weight, DTensor) else weight
            return x * whole

    plan = {"parameter": {"weight": [RaggedShard((0, 1), (1, 5))]}, "forward": {"input": [Replicate()]}}
    assert_trains_alike(rank, Gathering, make_mesh(2), plan, (Replicate(),), (6, 4))


# --- forward ---------------------------------------------------------------------------------------------------------


class Outputs(NamedTuple):
    total: Any
    text: Any


class Taking(nn.Module):
    """Hands on what it is given."""

    def forward(self, x: Any, y: Any = None, *, named: Any = None, form: type = tuple) -> Any:
        if form is dict:
            return {"x": x, "y": y}
        if form is Outputs:
            return Outputs(x, named)
        return x if form is type(None) else form((x, y, named))


@ranks(2)
def test_inputs_are_placed_by_position_or_by_keyword(rank: Rank) -> None:
    mesh, whole = make_mesh(2), random_values((4, 2), DOUBLE)
    part = Spread((4, 2), (2,), (Shard(0),)).part(whole, rank.index)
    first = shard(Taking(), {"forward": {"input": [Shard(0)]}}, mesh)
    x, y, named = first(part, part, named=part)
    assert_part(x, whole, Spread((4, 2), (2,), (Shard(0),)), rank.index)
    assert y is part
    assert named is part
    second = shard(Taking(), {"forward": {"input": (None, [Shard(0)])}}, mesh)
    x, y, named = second(part, distribute_tensor(whole, mesh, [Replicate()]))
    assert x is part
    assert_part(y, whole, Spread((4, 2), (2,), (Shard(0),)), rank.index)
    by_name = shard(Taking(), {"forward": {"input": {"named": [Replicate()]}}}, mesh)
    x, y, named = by_name(part, named=whole)
    assert x is part
    assert_part(named, whole, Spread((4, 2), (2,), (Replicate(),)), rank.index)


@ranks(2)
def test_outputs_are_placed_and_keep_their_container(rank: Rank) -> None:
    mesh, whole = make_mesh(2), random_values((4, 2), DOUBLE)
    x, rows = distribute_tensor(whole, mesh, [Replicate()]), Spread((4, 2), (2,), (Shard(0),))
    one = shard(Taking(), {"forward": {"output": [Shard(0)]}}, mesh)(x, form=type(None))
    assert_part(one, whole, rows, rank.index)
    several: dict[str, Any] = {"forward": {"output": ([Shard(0)], None)}}
    for form in (tuple, list):
        made = shard(Taking(), several, mesh)(x, 3, named=4, form=form)
        assert type(made) is form
        assert_part(made[0], whole, rows, rank.index)
        assert list(made[1:]) == [3, 4]
    pair = shard(Taking(), several, mesh)(x, named="text", form=Outputs)
    assert isinstance(pair, Outputs)
    assert_part(pair.total, whole, rows, rank.index)
    assert pair.text == "text"
    by_key = shard(Taking(), {"forward": {"output": {"x": [Shard(0)]}}}, mesh)(x, form=dict)
    assert_part(by_key["x"], whole, rows, rank.index)
    assert by_key["y"] is None


@ranks(2)
def test_values_that_do_not_fit_the_plan_raise_by_name(rank: Rank) -> None:
    mesh = make_mesh(2)
    x = distribute_tensor(torch.ones(4), mesh, [Shard(0)])
    elsewhere = distribute_tensor(torch.ones(4), DeviceMesh((2,), ("other",)), [Shard(0)])

    def run(sides: dict[str, Any], *args: Any, **kwargs: Any) -> Callable[[], Any]:
        model = nn.ModuleDict({"inner": Taking()})
        shard(model, {"forward": {"inner": sides}}, mesh)
        return lambda: model["inner"](*args, **kwargs)

    assert_raises(TypeError, "module 'inner': input 0 is a int but the plan says", run({"input": [Shard(0)]}, 3))
    assert_raises(ValueError, "the plan has 3 entries but there are 1 values", run({"input": (None, None, None)}, x))
    assert_raises(ValueError, "module 'inner': input 0: it lies on", run({"input": [Shard(0)]}, elsewhere))
    assert_raises(IndexError, "module 'inner': input 0: ", run({"input": [Shard(1)]}, x))
    assert_raises(
        ValueError, "input: the plan names ['named'] but there are []", run({"input": {"named": [Shard(0)]}}, x)
    )
    assert_raises(TypeError, "module 'inner': output is a tuple but", run({"output": [Shard(0)]}, x))
    assert_raises(
        TypeError, "output is a DTensor but the plan has 1 entries", run({"output": ([Shard(0)],)}, x, form=type(None))
    )
    assert_raises(
        TypeError, "output is a tuple but the plan names its entries ['x']", run({"output": {"x": [Shard(0)]}}, x)
    )


# --- plans that are wrong --------------------------------------------------------------------------------------------

Wrong = tuple[type[Exception], str, Any]
WRONG: dict[str, Wrong] = {
    "no dict": (TypeError, "sharding_plan is 3 but must be a dict", 3),
    "unknown part": (ValueError, "sharding_plan has the keys ['parameters']", {"parameters": {}}),
    "no such name": (ValueError, "'up.weigth' matches no parameter", {"parameter": {"up.weigth": (Shard(0),)}}),
    "wildcard over a dot": (ValueError, "'*' matches no parameter", {"parameter": {"*": (Shard(0),)}}),
    "key of another type": (TypeError, "has the key 3 but its keys must be str", {"parameter": {3: (Shard(0),)}}),
    "None": (TypeError, "['up.bias'] is None but must be", {"parameter": {"up.bias": None}}),
    "no placements": (TypeError, "['up.bias'] is 'Shard' but must be", {"parameter": {"up.bias": "Shard"}}),
    "for a mesh of two dims": (ValueError, "['up.bias']", {"parameter": {"up.bias": (Shard(0), Replicate())}}),
    "dim out of range": (IndexError, "'up.bias'", {"parameter": {"up.bias": (Shard(1),)}}),
    "pending": (ValueError, "'up.bias' cannot be Partial", {"parameter": {"up.bias": (Partial(),)}}),
    "ragged of three": (ValueError, "['up.bias']", {"parameter": {"up.bias": (RaggedShard((0,), (1, 1, 1)),)}}),
    "ragged that does not divide": (ValueError, "'up.bias'", {"parameter": {"up.bias": (RaggedShard((0,), (1, 2)),)}}),
    "two minds": (ValueError, "for the same tensor", {"parameter": {"up.bias": (Shard(0),), "*.bias": (Replicate(),)}}),
    "no module of that name": (ValueError, "'upper' matches no module", {"forward": {"upper": {"input": (Shard(0),)}}}),
    "unknown side": (ValueError, "has the keys ['inputs']", {"forward": {"up": {"inputs": (Shard(0),)}}}),
    "side of another mesh": (ValueError, "['input']", {"forward": {"input": (Shard(0), Shard(1))}}),
    "entry of another mesh": (ValueError, "['output'][1]", {"forward": {"output": (None, (Shard(0), Shard(1)))}}),
    "side that is no placement": (TypeError, "['input'] is 3 but must be", {"forward": {"input": 3}}),
    "module twice": (ValueError, "which has a plan already", {"forward": {"up": {}, "u*": {}}}),
}  # fmt: skip


@pytest.mark.parametrize("name", list(WRONG))
@ranks(2)
def test_a_wrong_plan_raises_before_anything_is_changed(rank: Rank, name: str) -> None:
    kind, text, plan = WRONG[name]
    model = Mlp()
    before = dict(model.named_parameters())
    good = {"parameter": {"down.weight": (Shard(1),)}, "forward": {"input": (Replicate(),)}}
    whole = (
        plan
        if not isinstance(plan, dict)
        else {key: {**good.get(key, {}), **plan.get(key, {})} for key in {**good, **plan}}
    )
    assert_raises(kind, text, lambda: shard(model, whole, make_mesh(2)))
    assert all(parameter is before[known] for known, parameter in model.named_parameters())
    assert not any(module._forward_pre_hooks or module._forward_hooks for module in model.modules())


@ranks(2)
def test_models_that_cannot_be_sharded_raise_before_anything_is_changed(rank: Rank) -> None:
    mesh, other = make_mesh(2), DeviceMesh((2,), ("other",))
    elsewhere = shard(Mlp(), {}, other)
    assert_raises(ValueError, "'up.weight' lies on", lambda: shard(elsewhere, {}, mesh))
    with torch.device("meta"):
        virtual = Mlp()
    assert_raises(NotImplementedError, "'up.weight' is on the meta device", lambda: shard(virtual, {}, mesh))
    assert_raises(RuntimeError, "has no shape yet", lambda: shard(nn.LazyLinear(2), {}, mesh))
    used = Mlp()
    used(torch.ones(2, 8, dtype=DOUBLE)).sum().backward()
    assert_raises(RuntimeError, "has a gradient", lambda: shard(used, {}, mesh))
    assert not any(isinstance(parameter, DTensor) for parameter in used.parameters())
    assert_raises(TypeError, "model is 3 but must be", lambda: shard(3, {}, mesh))  # type: ignore[type-var]
    assert_raises(TypeError, "device_mesh is (2,) but must be", lambda: shard(Mlp(), {}, (2,)))  # type: ignore[arg-type]


# --- the current mesh ------------------------------------------------------------------------------------------------


@ranks(2)
def test_the_mesh_of_the_innermost_block_counts_unless_one_is_given(rank: Rank) -> None:
    def mesh_of(model: nn.Module) -> DeviceMesh:
        weight: Any = next(model.parameters())
        mesh: DeviceMesh = weight.device_mesh
        return mesh

    outer, inner = make_mesh(2), DeviceMesh((2,), ("inner",))
    missing = "there is no mesh; give device_mesh, or call inside `with device_mesh:`"
    assert_raises(RuntimeError, missing, lambda: shard(Mlp(), {}))
    with outer as entered:
        assert entered is outer
        with inner, outer, inner:
            assert mesh_of(shard(Mlp(), {})) == inner
            assert mesh_of(shard(Mlp(), {}, outer)) == outer
        assert mesh_of(shard(Mlp(), {})) == outer
        with pytest.raises(KeyError), inner:
            raise KeyError
        assert mesh_of(shard(Mlp(), {})) == outer
    assert_raises(RuntimeError, missing, lambda: shard(Mlp(), {}))


@ranks(2)
def test_a_current_mesh_is_its_threads_own(rank: Rank) -> None:
    raised: list[BaseException] = []

    def elsewhere() -> None:
        try:
            shard(Mlp(), {})
        except RuntimeError as error:
            raised.append(error)

    with make_mesh(2):
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
    assert len(raised) == 1
    assert "there is no mesh" in str(raised[0])
