"""Gradients: what torch's functions of the graph mean on a DTensor. The graph lives on its local tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar, cast

import torch

from hyper_parallel import _torch
from hyper_parallel._handlers import _Args, _Function, _handles, _handles_attribute, _is_dtensor, _Kwargs
from hyper_parallel.errors import ArgumentTypeError, InvalidArgumentError, UnimplementedError

if TYPE_CHECKING:
    from hyper_parallel.dtensor import DTensor

_Item = TypeVar("_Item")

# What torch takes as tensors: one, or several.
_Tensors = torch.Tensor | Sequence[torch.Tensor]
_Gradients = torch.Tensor | Sequence[torch.Tensor | None] | None


def _scalar_gradient(tensor: DTensor) -> tuple[DTensor, torch.Tensor]:
    """A DTensor of one element, reduced if that is pending, and the gradient 1 of its local tensor."""
    if tensor.numel() != 1:
        raise InvalidArgumentError(
            f"backward takes a tensor of one element but this one has shape {tuple(tensor.shape)}"
        )
    reduced = tensor.reduce_partial()
    return reduced, torch.ones_like(_torch.local(reduced))


def _outgoing(tensor: torch.Tensor, gradient: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
    """The local tensor that a backward pass starts from, and its gradient."""
    if not _is_dtensor(tensor):
        if gradient is None and tensor.numel() == 1:
            gradient = torch.ones_like(tensor)
        if gradient is None:
            raise InvalidArgumentError("grad can be implicitly created only for scalar outputs")
        return tensor, gradient
    if gradient is None:
        reduced, one = _scalar_gradient(tensor)
        return _torch.local(reduced), one
    # A share of a pending reduction has no gradient that means the same on all ranks: its sum has.
    reduced = tensor.reduce_partial()
    return _torch.local(reduced), _torch.gradient_local(reduced, cast("DTensor", gradient))  # raises for a plain one


def _outgoing_pairs(tensors: _Tensors, gradients: _Gradients) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """`_outgoing` of each tensor; with no gradients each is 1."""
    tensor_list = _as_list(tensors)
    given: list[torch.Tensor | None] = [None] * len(tensor_list) if gradients is None else _as_list(gradients)
    if len(given) != len(tensor_list):
        raise InvalidArgumentError(f"{len(tensor_list)} tensors were given {len(given)} gradients")
    return [_outgoing(tensor, gradient) for tensor, gradient in zip(tensor_list, given, strict=True)]


def _local_of(tensor: torch.Tensor) -> torch.Tensor:
    return _torch.local(tensor) if _is_dtensor(tensor) else tensor


def _as_list(value: _Item | Sequence[_Item]) -> list[_Item]:
    return list(value) if isinstance(value, Sequence) else [value]


@_handles(torch.Tensor.backward)
def _backward(function: _Function, args: _Args, kwargs: _Kwargs) -> None:
    def run(
        tensor: torch.Tensor,
        gradient: torch.Tensor | None = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        inputs: _Tensors | None = None,
    ) -> None:
        torch.autograd.backward([tensor], [gradient], retain_graph, create_graph, inputs=inputs)

    run(*args, **kwargs)


@_handles(torch.autograd.backward)
def _autograd_backward(function: _Function, args: _Args, kwargs: _Kwargs) -> None:
    def run(  # noqa: PLR0913, PLR0917  (torch's signature)
        tensors: _Tensors,
        grad_tensors: _Gradients = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        grad_variables: _Gradients = None,
        inputs: _Tensors | None = None,
    ) -> None:
        pairs = _outgoing_pairs(tensors, grad_variables if grad_tensors is None else grad_tensors)
        locals_of_inputs = None if inputs is None else [_local_of(value) for value in _as_list(inputs)]
        torch.autograd.backward(
            [local for local, _ in pairs],
            [gradient for _, gradient in pairs],
            retain_graph,
            create_graph,
            inputs=locals_of_inputs,
        )

    run(*args, **kwargs)


@_handles(torch.autograd.grad)
def _grad(function: _Function, args: _Args, kwargs: _Kwargs) -> _Args:
    def run(  # noqa: PLR0913, PLR0917  (torch's signature)
        outputs: _Tensors,
        inputs: _Tensors,
        grad_outputs: _Gradients = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        only_inputs: bool = True,
        allow_unused: bool | None = None,
        is_grads_batched: bool = False,
        materialize_grads: bool = False,
    ) -> tuple[torch.Tensor | None, ...]:
        if is_grads_batched:
            raise UnimplementedError("torch.autograd.grad: is_grads_batched is not supported with a DTensor")
        pairs, input_list = _outgoing_pairs(outputs, grad_outputs), _as_list(inputs)
        gradients = torch.autograd.grad(
            [local for local, _ in pairs],
            [_local_of(value) for value in input_list],
            [gradient for _, gradient in pairs],
            retain_graph,
            create_graph,
            only_inputs,
            allow_unused=allow_unused,
            materialize_grads=materialize_grads,
        )
        return tuple(
            _torch.wrap_gradient(value, gradient) if gradient is not None and _is_dtensor(value) else gradient
            for value, gradient in zip(input_list, gradients, strict=True)
        )

    return run(*args, **kwargs)


@_handles_attribute("grad", "set")
def _set_grad(function: _Function, args: _Args, kwargs: _Kwargs) -> None:
    tensor, gradient = args
    if gradient is None:
        _torch.local(tensor).grad = None
        return
    _torch.local(tensor).grad = _torch.gradient_local(tensor, gradient)


@_handles_attribute("grad", "delete")
def _delete_grad(function: _Function, args: _Args, kwargs: _Kwargs) -> None:
    _torch.local(args[0]).grad = None


@_handles(torch.Tensor.requires_grad_)
def _requires_grad_(function: _Function, args: _Args, kwargs: _Kwargs) -> DTensor:
    tensor: DTensor
    tensor, *rest = args
    _torch.local(tensor).requires_grad_(*rest, **kwargs)
    _torch.follow_local(tensor)
    return tensor


@_handles(torch.Tensor.detach_)
def _detach_(function: _Function, args: _Args, kwargs: _Kwargs) -> DTensor:
    tensor: DTensor = args[0]
    _torch.local(tensor).detach_()
    _torch.follow_local(tensor)
    return tensor


@_handles(torch.Tensor.register_hook)
def _register_hook(function: _Function, args: _Args, kwargs: _Kwargs) -> object:
    tensor, hook = args[0], kwargs["hook"] if "hook" in kwargs else args[1]
    if not callable(hook):
        raise ArgumentTypeError(f"register_hook: hook is {hook!r} but must be callable")
    current = _current(tensor)

    def run(gradient: torch.Tensor) -> torch.Tensor | None:
        like = current()
        replaced = hook(_torch.wrap_gradient(like, gradient))
        return None if replaced is None else _torch.gradient_local(like, replaced)

    return _torch.local(tensor).register_hook(run)


@_handles(torch.Tensor.register_post_accumulate_grad_hook)
def _register_post_accumulate_grad_hook(function: _Function, args: _Args, kwargs: _Kwargs) -> object:
    tensor, hook = args[0], kwargs["hook"] if "hook" in kwargs else args[1]
    current = _current(tensor)

    def run(local: torch.Tensor) -> None:
        like = current()
        hook(like if _torch.local(like) is local else _torch.wrap_like(like, local))

    return _torch.local(tensor).register_post_accumulate_grad_hook(run)


def _current(tensor: DTensor) -> Callable[[], DTensor]:
    """The tensor as it is laid out when a hook runs. Hooks live on the local tensor and do not keep the DTensor."""
    weak, detached = _torch.WeakDTensor(tensor), tensor.detach()
    return lambda: detached if (alive := weak()) is None else alive
