"""torch's optimizers on ragged parameters: single-process training, with state of this rank's share alone."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from torch import nn

from hyper_parallel import DTensor, RaggedShard, Shard, distribute_tensor
from support.checks import assert_consistent, make_mesh, whole_of
from support.ranks import ranks
from support.values import numbered
from support.worker import Rank

STEPS = 4
Factory = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]

OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "SGD": lambda parameters, **kw: torch.optim.SGD(parameters, lr=0.05, **kw),
    "SGD, momentum": lambda parameters, **kw: torch.optim.SGD(parameters, lr=0.05, momentum=0.9, **kw),
    "SGD, nesterov, decay": lambda parameters, **kw: torch.optim.SGD(
        parameters, lr=0.05, momentum=0.9, nesterov=True, weight_decay=0.1, **kw
    ),
    "SGD, dampening, maximize": lambda parameters, **kw: torch.optim.SGD(
        parameters, lr=0.01, momentum=0.9, dampening=0.5, maximize=True, **kw
    ),
    "AdamW": lambda parameters, **kw: torch.optim.AdamW(parameters, lr=0.05, **kw),
    "AdamW, decay": lambda parameters, **kw: torch.optim.AdamW(parameters, lr=0.05, weight_decay=0.2, **kw),
    "AdamW, maximize": lambda parameters, **kw: torch.optim.AdamW(parameters, lr=0.01, maximize=True, **kw),
    # torch itself has no foreach form with a tensor for lr.
    "AdamW, tensor lr": lambda parameters, **_: torch.optim.AdamW(parameters, lr=torch.tensor(0.05), foreach=False),
    "Adam, decay": lambda parameters, **kw: torch.optim.Adam(parameters, lr=0.05, weight_decay=0.1, **kw),
}
every_optimizer = pytest.mark.parametrize("name", list(OPTIMIZERS))
both_forms = pytest.mark.parametrize("foreach", [True, False], ids=["foreach", "loop"])


def starts() -> list[torch.Tensor]:
    return [torch.sin(numbered((6, 4))), torch.cos(numbered((6,))), torch.sin(numbered((4, 3)) + 2)]


def spread_parameters(rank: Rank) -> list[nn.Parameter]:
    """The middle one has no element on rank 0, the last is sharded."""
    placements = [RaggedShard((0,), (1, 2)), RaggedShard((0,), (0, 3)), Shard(0)]
    if rank.size == 4:
        placements = [RaggedShard((0,), (1, 2, 0, 3)), RaggedShard((0,), (0, 1, 0, 0)), Shard(0)]
    mesh = make_mesh(rank.size)
    return [
        nn.Parameter(distribute_tensor(whole, mesh, [placement]))
        for whole, placement in zip(starts(), placements, strict=True)
    ]


def loss(weight: torch.Tensor, bias: torch.Tensor, head: torch.Tensor, index: int, step: int) -> torch.Tensor:
    """Of rank `index`'s own data."""
    data = torch.sin(numbered((5, 4)) * (index + 1) + step)
    return (torch.tanh(data @ weight.t() + bias) @ torch.ones(6, 1) + (data @ head)).square().mean()


def train(rank: Rank, optimizer: torch.optim.Optimizer, parameters: list[nn.Parameter], steps: range) -> None:
    for step in steps:
        optimizer.zero_grad()
        loss(*(parameter.full_tensor() for parameter in parameters), rank.index, step).backward()
        optimizer.step()


def train_alone(size: int, make: Factory) -> list[torch.Tensor]:
    """The same training in one process, which has the data of all ranks."""
    parameters = [nn.Parameter(whole) for whole in starts()]
    optimizer = make(parameters)
    for step in range(STEPS):
        optimizer.zero_grad()
        torch.stack([loss(*parameters, index, step) for index in range(size)]).sum().backward()
        optimizer.step()
    return [parameter.detach() for parameter in parameters]


@every_optimizer
@both_forms
@ranks(2, 4)
def test_training_is_that_of_one_process(rank: Rank, name: str, foreach: bool) -> None:
    parameters = spread_parameters(rank)
    identities = [(parameter, parameter._local_tensor.data_ptr()) for parameter in parameters]
    train(rank, OPTIMIZERS[name](parameters, foreach=foreach), parameters, range(STEPS))
    expected = train_alone(rank.size, OPTIMIZERS[name])
    for (parameter, address), whole in zip(identities, expected, strict=True):
        assert_consistent(parameter)
        assert parameter._local_tensor.data_ptr() == address, "parameters are changed in place"
        torch.testing.assert_close(whole_of(parameter), whole)


@every_optimizer
@both_forms
@ranks(2)
def test_state_has_exactly_the_elements_of_this_ranks_share(rank: Rank, name: str, foreach: bool) -> None:
    parameters = spread_parameters(rank)
    optimizer = OPTIMIZERS[name](parameters, foreach=foreach)
    train(rank, optimizer, parameters, range(1))
    states = 0
    for parameter in parameters:
        for key, value in optimizer.state[parameter].items():
            if key == "step" or value is None:
                continue
            states += 1
            assert isinstance(value, DTensor)
            assert value.placements == parameter.placements
            assert value._local_tensor.numel() == parameter.local_numel
            assert_consistent(value)
    assert states > 0 or name == "SGD"


@every_optimizer
@both_forms
@ranks(2)
def test_training_resumes_from_a_saved_state(rank: Rank, name: str, foreach: bool) -> None:
    parameters = spread_parameters(rank)
    optimizer = OPTIMIZERS[name](parameters, foreach=foreach)
    train(rank, optimizer, parameters, range(2))
    file = io.BytesIO()
    torch.save({"model": [parameter.detach() for parameter in parameters], "optimizer": optimizer.state_dict()}, file)
    file.seek(0)
    saved: dict[str, Any] = torch.load(file)
    resumed = [nn.Parameter(value) for value in saved["model"]]
    fresh = OPTIMIZERS[name](resumed, foreach=foreach)
    fresh.load_state_dict(saved["optimizer"])
    train(rank, fresh, resumed, range(2, STEPS))
    for parameter, whole in zip(resumed, train_alone(rank.size, OPTIMIZERS[name]), strict=True):
        torch.testing.assert_close(whole_of(parameter), whole)


@ranks(2)
def test_amsgrad_trains_on_lists_and_is_refused_in_the_loop_which_writes_into_out(rank: Rank) -> None:
    def make(parameters: Iterable[nn.Parameter], foreach: bool | None = None) -> torch.optim.Optimizer:
        return torch.optim.AdamW(parameters, lr=0.05, amsgrad=True, foreach=foreach)

    parameters = spread_parameters(rank)
    train(rank, make(parameters, foreach=True), parameters, range(STEPS))
    for parameter, whole in zip(parameters, train_alone(rank.size, make), strict=True):
        torch.testing.assert_close(whole_of(parameter), whole)
    with pytest.raises(NotImplementedError, match="operation 'maximum': argument 'out'"):
        train(rank, make(parameters, foreach=False), parameters, range(1))


@both_forms
@ranks(2)
def test_parameter_groups_and_a_scheduler(rank: Rank, foreach: bool) -> None:
    def make(parameters: Iterable[nn.Parameter], foreach: bool | None = None) -> torch.optim.Optimizer:
        first, *rest = parameters
        groups = [{"params": [first], "lr": 0.1}, {"params": rest, "weight_decay": 0.3}]
        return torch.optim.AdamW(groups, lr=0.02, foreach=foreach)

    parameters = spread_parameters(rank)
    optimizer = make(parameters, foreach)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
    train(rank, optimizer, parameters, range(STEPS))
    scheduler.step()
    for parameter, whole in zip(parameters, train_alone(rank.size, make), strict=True):
        torch.testing.assert_close(whole_of(parameter), whole)


@ranks(2)
def test_bfloat16_parameters_train(rank: Rank) -> None:
    mesh = make_mesh(2)
    placement = RaggedShard((0,), (0, 3))
    parameter = nn.Parameter(distribute_tensor(torch.ones(6, 4, dtype=torch.bfloat16), mesh, [placement]))
    optimizer = torch.optim.AdamW([parameter], lr=0.1, foreach=True)
    plain = nn.Parameter(torch.ones(6, 4, dtype=torch.bfloat16))
    alone = torch.optim.AdamW([plain], lr=0.1, foreach=True)
    for _ in range(3):
        optimizer.zero_grad()
        alone.zero_grad()
        (parameter.full_tensor() * numbered((6, 4), torch.bfloat16)).sum().backward()
        (plain * numbered((6, 4), torch.bfloat16) * 2).sum().backward()
        optimizer.step()
        alone.step()
    torch.testing.assert_close(whole_of(parameter), plain.detach())


@ranks(2)
def test_a_closure_and_an_unused_parameter(rank: Rank) -> None:
    used, unused, _ = spread_parameters(rank)
    optimizer = torch.optim.SGD([used, unused], lr=0.5)

    def closure() -> float:
        optimizer.zero_grad()
        value = used.full_tensor().sum()
        value.backward()
        return value.item()

    assert optimizer.step(closure) == pytest.approx(starts()[0].sum().item())
    torch.testing.assert_close(whole_of(used), starts()[0] - 1.0)
    torch.testing.assert_close(whole_of(unused), starts()[1])


@ranks(2)
def test_what_needs_a_reduction_over_ranks_raises(rank: Rank) -> None:
    parameters = spread_parameters(rank)
    loss(*(parameter.full_tensor() for parameter in parameters), rank.index, 0).backward()
    before = [whole_of(parameter.grad) for parameter in parameters if parameter.grad is not None]
    with pytest.raises(NotImplementedError, match="norm"):
        nn.utils.clip_grad_norm_(parameters, 1.0)
    for parameter, gradient in zip(parameters, before, strict=True):
        assert parameter.grad is not None
        torch.testing.assert_close(whole_of(parameter.grad), gradient, rtol=0, atol=0)
    nn.utils.clip_grad_value_(parameters, 0.01)
    for parameter, gradient in zip(parameters, before, strict=True):
        assert parameter.grad is not None
        torch.testing.assert_close(whole_of(parameter.grad), gradient.clamp(-0.01, 0.01))
