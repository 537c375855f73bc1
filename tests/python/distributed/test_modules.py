"""nn.Parameter and nn.Module over distributed tensors: state_dict and its loading, casts, hooks, deepcopy."""

from __future__ import annotations

import copy
import io

import pytest
import torch
from torch import nn

from hyper_parallel import DTensor, Placement, RaggedShard, Replicate, distribute_tensor
from support.checks import assert_consistent, assert_equal, gradient_of, make_mesh, whole_of
from support.ranks import ranks
from support.values import numbered
from support.worker import Rank

WEIGHT = RaggedShard((0,), (1, 2))
BIAS = RaggedShard((0,), (0, 3))


def spread(whole: torch.Tensor, placement: Placement = WEIGHT) -> DTensor:
    return distribute_tensor(whole, make_mesh(2), [placement])


class Affine(nn.Module):
    """x @ weight.T + bias over gathered ragged parameters, and a ragged buffer that counts calls."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(spread(numbered((6, 4)) / 10))
        self.bias = nn.Parameter(spread(numbered((6,)), BIAS))
        self.register_buffer("seen", spread(torch.zeros(6), BIAS))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            self.seen.add_(1)
        return nn.functional.linear(x, self.weight.full_tensor(), self.bias.full_tensor())


class Plain(nn.Module):
    """The same in one process."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(numbered((6, 4)) / 10)
        self.bias = nn.Parameter(numbered((6,)))
        self.register_buffer("seen", torch.zeros(6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen += 1
        return nn.functional.linear(x, self.weight, self.bias)


def parameters_agree(module: nn.Module) -> None:
    """Each parameter is a leaf parameter whose wrapper and local tensor agree."""
    for parameter in module.parameters():
        assert isinstance(parameter, nn.Parameter)
        assert isinstance(parameter, DTensor)
        assert parameter.is_leaf
        assert_consistent(parameter)


@ranks(2)
def test_a_parameter_is_a_parameter_and_a_dtensor(rank: Rank) -> None:
    source = spread(numbered((6, 4)))
    parameter = nn.Parameter(source)
    assert isinstance(parameter, nn.Parameter)
    assert isinstance(parameter, DTensor)
    assert type(parameter) is DTensor
    assert parameter.requires_grad
    assert not source.requires_grad
    assert parameter.placements == (WEIGHT,)
    assert parameter._local_tensor.data_ptr() == source._local_tensor.data_ptr()
    assert_consistent(parameter)
    assert not nn.Parameter(source, requires_grad=False).requires_grad
    assert not isinstance(parameter * 2, nn.Parameter)
    assert not isinstance(source, nn.Parameter)
    assert "requires_grad=True" in repr(parameter)


@ranks(2)
def test_a_module_finds_its_parameters_and_computes_one_process_gradients(rank: Rank) -> None:
    module, plain = Affine(), Plain()
    assert [name for name, _ in module.named_parameters()] == ["weight", "bias"]
    assert sum(parameter.numel() for parameter in module.parameters()) == 30
    parameters_agree(module)
    module(torch.full((3, 4), float(rank.index + 1))).square().sum().backward()
    for index in range(2):
        plain(torch.full((3, 4), float(index + 1))).square().sum().backward()
    for name, parameter in module.named_parameters():
        expected = plain.get_parameter(name).grad
        assert expected is not None
        torch.testing.assert_close(whole_of(gradient_of(parameter)), expected)
    module.zero_grad()
    assert module.weight.grad is None
    assert_equal(whole_of(module.seen), torch.ones(6))


@pytest.mark.parametrize("set_to_none", [True, False])
@ranks(2)
def test_zero_grad(rank: Rank, set_to_none: bool) -> None:
    module = Affine()
    module(torch.ones(3, 4)).sum().backward()
    module.zero_grad(set_to_none=set_to_none)
    for parameter in module.parameters():
        if set_to_none:
            assert parameter.grad is None
        else:
            assert_equal(whole_of(gradient_of(parameter)), torch.zeros(tuple(parameter.shape)))


@ranks(2)
def test_state_dict_shares_storage_and_has_no_graph(rank: Rank) -> None:
    module = Affine()
    state = module.state_dict()
    assert list(state) == ["weight", "bias", "seen"]
    for name, value in state.items():
        assert isinstance(value, DTensor)
        assert not value.requires_grad
        assert value.placements == module.state_dict(keep_vars=True)[name].placements
    state["weight"].fill_(5)
    assert_equal(whole_of(module.weight), torch.full((6, 4), 5.0))


@pytest.mark.parametrize("assign", [False, True])
@ranks(2)
def test_load_state_dict_copies_or_assigns(rank: Rank, assign: bool) -> None:
    module, other = Affine(), Affine()
    with torch.no_grad():
        other.weight.mul_(2)
        other.bias.add_(1)
    before = module.weight
    result = module.load_state_dict(other.state_dict(), assign=assign)
    assert not result.missing_keys
    assert not result.unexpected_keys
    assert (module.weight is before) != assign
    parameters_agree(module)
    assert module.weight.requires_grad
    for name, parameter in module.named_parameters():
        assert parameter.placements == other.get_parameter(name).placements
        assert_equal(whole_of(parameter), whole_of(other.get_parameter(name)))
    with torch.no_grad():
        other.weight.zero_()
    assert (module.weight.detach()._local_tensor.abs().sum().item() == 0) == (assign or module.weight.local_numel == 0)
    module(torch.ones(3, 4)).sum().backward()
    assert_equal(whole_of(gradient_of(module.weight)), torch.full((6, 4), 6.0))


@ranks(2)
def test_load_state_dict_assign_changes_the_dtype_with_the_tensor(rank: Rank) -> None:
    module = Affine()
    state = {name: value.double() for name, value in module.state_dict().items()}
    module.load_state_dict(state, assign=True)
    parameters_agree(module)
    assert module.weight.dtype == module.weight._local_tensor.dtype == torch.float64
    module(torch.ones(3, 4, dtype=torch.float64)).sum().backward()
    assert gradient_of(module.weight).dtype == torch.float64


@ranks(2)
def test_load_state_dict_of_another_layout_or_shape_raises_and_changes_nothing(rank: Rank) -> None:
    module = Affine()
    unlike_units = {**module.state_dict(), "weight": spread(torch.zeros(6, 4), RaggedShard((0,), (2, 1)))}
    plain = {**module.state_dict(), "weight": torch.zeros(6, 4)}
    for state in (unlike_units, plain):
        with pytest.raises(RuntimeError, match="weight"):
            module.load_state_dict(state)
    unlike_shape = {**module.state_dict(), "weight": spread(torch.zeros(3, 8))}
    with pytest.raises(RuntimeError, match="size mismatch for weight"):
        module.load_state_dict(unlike_shape)
    assert_equal(whole_of(module.weight), numbered((6, 4)) / 10)


@ranks(2)
def test_a_replicated_state_is_sliced_into_ragged_parameters(rank: Rank) -> None:
    module = Affine()
    state = {**module.state_dict(), "weight": spread(torch.ones(6, 4), Replicate())}
    module.load_state_dict(state)
    assert module.weight.placements == (WEIGHT,)
    assert_equal(whole_of(module.weight), torch.ones(6, 4))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
@ranks(2)
def test_casting_a_module_casts_wrapper_and_local_alike(rank: Rank, dtype: torch.dtype) -> None:
    module = Affine()
    before = dict(module.named_parameters())
    module.to(dtype)
    parameters_agree(module)
    assert module.seen.dtype == dtype
    for name, parameter in module.named_parameters():
        assert parameter.dtype == dtype
        assert parameter is before[name], "as in torch, the parameter is kept and its data replaced"
        assert parameter.requires_grad
    module(torch.ones(3, 4, dtype=dtype)).sum().backward()
    assert gradient_of(module.weight).dtype == dtype
    assert_equal(whole_of(gradient_of(module.weight)), torch.full((6, 4), 6.0, dtype=dtype))


@ranks(2)
def test_casting_a_module_casts_its_gradients(rank: Rank) -> None:
    module = Affine()
    module(torch.ones(3, 4)).sum().backward()
    module.double()
    parameters_agree(module)
    assert gradient_of(module.weight).dtype == torch.float64
    assert_equal(whole_of(gradient_of(module.weight)), torch.full((6, 4), 6.0, dtype=torch.float64))


@pytest.mark.parametrize("method", ["double", "float", "half", "bfloat16"])
@ranks(2)
def test_the_named_casts_of_a_module(rank: Rank, method: str) -> None:
    module = getattr(Affine(), method)()
    parameters_agree(module)
    assert module.weight.dtype == getattr(torch.ones(1), method)().dtype


@ranks(2)
def test_requires_grad_and_train_flags(rank: Rank) -> None:
    module = Affine().requires_grad_(False).eval()
    parameters_agree(module)
    assert not any(parameter.requires_grad for parameter in module.parameters())
    assert not module(torch.ones(3, 4)).requires_grad
    module.requires_grad_()
    parameters_agree(module)
    assert module(torch.ones(3, 4)).requires_grad


@ranks(2)
def test_deepcopy_of_a_module_is_independent(rank: Rank) -> None:
    module = Affine()
    module.tied = module.weight
    copied = copy.deepcopy(module)
    parameters_agree(copied)
    assert copied.tied is copied.weight
    with torch.no_grad():
        copied.weight.zero_()
    assert_equal(whole_of(module.weight), numbered((6, 4)) / 10)


@ranks(2)
def test_a_state_dict_goes_through_torch_save_and_its_default_load(rank: Rank) -> None:
    module, fresh = Affine(), Affine()
    with torch.no_grad():
        module.weight.mul_(3)
    file = io.BytesIO()
    torch.save(module.state_dict(), file)
    file.seek(0)
    fresh.load_state_dict(torch.load(file))
    assert_equal(whole_of(fresh.weight), whole_of(module.weight))
    parameters_agree(fresh)


@ranks(2)
def test_initialisation_by_constants(rank: Rank) -> None:
    module = Affine()
    nn.init.zeros_(module.weight)
    assert_equal(whole_of(module.weight), torch.zeros(6, 4))
    nn.init.ones_(module.bias)
    assert_equal(whole_of(module.bias), torch.ones(6))
    nn.init.constant_(module.bias, 2.5)
    assert_equal(whole_of(module.bias), torch.full((6,), 2.5))


@ranks(2)
def test_module_hooks_and_parametrisation_free_containers(rank: Rank) -> None:
    containers = nn.ParameterList([nn.Parameter(spread(numbered((6,)), BIAS)) for _ in range(2)])
    assert len(list(containers.parameters())) == 2
    mapping = nn.ParameterDict({"a": containers[0]})
    assert mapping["a"] is containers[0]
    seen: list[torch.Size] = []
    module = Affine()
    module.register_forward_hook(lambda _, args, output: seen.append(output.shape))
    module.register_full_backward_hook(lambda _, grad_input, grad_output: seen.append(grad_output[0].shape))
    module(torch.ones(3, 4, requires_grad=True)).sum().backward()
    assert seen == [torch.Size([3, 6]), torch.Size([3, 6])]


@ranks(2)
def test_a_module_can_be_printed(rank: Rank) -> None:
    assert repr(Affine()) == "Affine()"
    assert "of size 6" in repr(nn.ParameterList([nn.Parameter(spread(numbered((6,)), BIAS))]))
