"""shard: a module whose parameters, inputs and outputs lie on a mesh as a plan says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from hyper_parallel import _current_mesh
from hyper_parallel.device_mesh import DeviceMesh
from hyper_parallel.errors import (
    ArgumentTypeError,
    FailedPreconditionError,
    HyperParallelError,
    InvalidArgumentError,
)
from hyper_parallel.placement import Placement, Replicate
from hyper_parallel.sharding._entries import Entries, Entry, named
from hyper_parallel.sharding._framework import (
    MODULE_NAME,
    DTensor,
    Module,
    Tensor,
    detached,
    distribute_tensor,
    put,
)
from hyper_parallel.sharding._plan import ForwardPlan, Side, TensorPlan, read_plan

__all__ = ["shard"]

_Module = TypeVar("_Module", bound=Module)


def shard(model: _Module, sharding_plan: Mapping[str, Any], device_mesh: DeviceMesh | None = None) -> _Module:
    """Lays a module out on a mesh, in place.

    The plan::

        {
            "parameter": {"layers.*.mlp.w1": (Replicate(), Shard(0)), ...},
            "forward": {
                "input": (Shard(0), Replicate()), "output": (Shard(0), Replicate()),       # of the model itself
                "layers.*.attn": {"input": ((Shard(0), Replicate()), None), "output": ...},  # of modules in it
            },
        }

    **Names** are those of ``named_parameters``, ``named_buffers`` and ``named_modules``; ``*``, ``?`` and ``[..]``
    match inside a component. Each pattern must match something, and no tensor may be told two different things.

    **Parameters** become DTensors, buffers too, and those that the plan does not name as well, as ``Replicate()``: a
    module computes on DTensors throughout, and its gradients are those of the unsharded module: summed over the ranks
    that saw unlike data. Values are those of the mesh's first rank, so that all ranks agree. Tied parameters stay tied.
    What is distributed already stays as it is unless named. Make optimizers afterwards: they hold the old parameters.

    **Forward** is taken over by hooks. ``"input"`` is the placements of the first positional argument, a sequence of
    placements (or None) for the first ones, or a dict by keyword; ``"output"`` is the placements of the tensor that
    comes out, a sequence for a tuple or list, or a dict for one. A DTensor is redistributed. A plain tensor is taken
    for *this rank's part* under the placements, as in torch's ``PrepareModuleInput``: with ``Shard(0)`` on a
    data-parallel mesh dim each rank gives its own samples, with ``Replicate()`` all ranks the same. The ranks tell each
    other their sizes; a DTensor saves that. What has no entry, or None, is handed on.

    Args:
        model: The module.
        sharding_plan: The plan; either part may be missing.
        device_mesh: The mesh; by default that of the innermost ``with device_mesh:`` block.

    Returns:
        The module itself.

    Raises:
        FailedPreconditionError: Neither ``device_mesh`` nor a current mesh; a parameter that has a gradient or no
            shape yet.
        InvalidArgumentError: A pattern that matches nothing or contradicts another; unknown keys; placements that do
            not fit the mesh or the tensor, or are Partial; a tensor on another mesh.
        OutOfRangeError: A ``Shard`` dim that a parameter does not have.
        ArgumentTypeError: An argument of another type.
        UnimplementedError: A parameter on the meta device.

    All of these raise before anything is changed.

    Example:
        >>> mesh = DeviceMesh((1,), ("tp",))
        >>> model = shard(torch.nn.Linear(4, 2), {"parameter": {"weight": (Shard(0),)}}, mesh)
        >>> model.weight.placements, model.bias.placements
        ((Shard(dim=0),), (Replicate(),))
    """
    if not isinstance(model, Module):
        raise ArgumentTypeError(f"shard: model is {model!r} but must be a {MODULE_NAME}")
    mesh = _current_mesh.current_mesh() if device_mesh is None else device_mesh
    if mesh is None:
        raise FailedPreconditionError("shard: there is no mesh; give device_mesh, or call inside `with device_mesh:`")
    if not isinstance(mesh, DeviceMesh):
        raise ArgumentTypeError(f"shard: device_mesh is {mesh!r} but must be a hyper_parallel.DeviceMesh")
    tensors, forwards = read_plan(model, sharding_plan, mesh)
    for plan, value in [(plan, _distributed(plan, mesh)) for plan in tensors]:
        if value is not plan.tensor:
            put(plan.places, plan.tensor, value)
    for forward in forwards:
        _hook(forward, mesh)
    return model


def _distributed(plan: TensorPlan, mesh: DeviceMesh) -> DTensor:
    """The tensor laid out as its plan says: the very same where it already is, else outside the graph."""
    if isinstance(plan.tensor, DTensor) and plan.tensor.placements == plan.placements:
        return plan.tensor
    whole = detached(plan.tensor)
    if isinstance(whole, DTensor):
        return whole.redistribute(plan.placements)
    if any(placement.is_ragged_shard() for placement in plan.placements):
        # A ragged distribution takes the values of one rank for each coordinate of the other mesh dims.
        return distribute_tensor(whole, mesh, [Replicate()] * mesh.ndim, 0).redistribute(plan.placements)
    return distribute_tensor(whole, mesh, plan.placements, 0)


# --- forward ---------------------------------------------------------------------------------------------------------


def _hook(plan: ForwardPlan, mesh: DeviceMesh) -> None:
    what = f"shard: module {plan.name!r}" if plan.name else "shard: the model"
    inputs, outputs = plan.inputs, plan.outputs
    if inputs is not None:
        plan.module.register_forward_pre_hook(_before(inputs, mesh, f"{what}: input"), with_kwargs=True)
    if outputs is not None:
        plan.module.register_forward_hook(_after(outputs, mesh, f"{what}: output"))


def _before(side: Side, mesh: DeviceMesh, what: str) -> Callable[..., Any]:
    def place(module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        if isinstance(side, dict):
            return args, _placed_by_key(kwargs, side, mesh, what)
        return _placed_in_order(args, side, mesh, what), kwargs

    return place


def _after(side: Side, mesh: DeviceMesh, what: str) -> Callable[..., Any]:
    def place(module: Module, args: tuple[Any, ...], output: Any) -> Any:  # noqa: ANN401
        if isinstance(side, dict):
            if not isinstance(output, dict):
                raise ArgumentTypeError(
                    f"{what} is a {type(output).__name__} but the plan names its entries {list(side)}"
                )
            return _placed_by_key(output, side, mesh, what)
        if side.is_single:
            return _placed(output, side.entries[0], mesh, what)
        if not isinstance(output, list | tuple):
            raise ArgumentTypeError(
                f"{what} is a {type(output).__name__} but the plan has {len(side.entries)} entries for a tuple or list"
            )
        placed = _placed_in_order(tuple(output), side, mesh, what)
        return type(output)(*placed) if hasattr(output, "_fields") else type(output)(placed)

    return place


def _placed_in_order(values: tuple[Any, ...], side: Entries, mesh: DeviceMesh, what: str) -> tuple[Any, ...]:
    if len(side.entries) > len(values):
        raise InvalidArgumentError(
            f"{what}: the plan has {len(side.entries)} entries but there are {len(values)} values"
        )
    placed = (
        _placed(value, entry, mesh, f"{what} {index}")
        for index, (value, entry) in enumerate(zip(values, side.entries, strict=False))
    )
    return (*placed, *values[len(side.entries) :])


def _placed_by_key(values: dict[str, Any], side: dict[str, Entry], mesh: DeviceMesh, what: str) -> dict[str, Any]:
    missing = [key for key in side if key not in values]
    if missing:
        raise InvalidArgumentError(f"{what}: the plan names {missing} but there are {list(values)}")
    return values | {key: _placed(values[key], entry, mesh, f"{what} {key!r}") for key, entry in side.items()}


def _placed(value: Any, placements: tuple[Placement, ...] | None, mesh: DeviceMesh, what: str) -> Any:  # noqa: ANN401
    if placements is None:
        return value
    if not isinstance(value, Tensor):
        raise ArgumentTypeError(
            f"{what} is a {type(value).__name__} but the plan says {placements}: it must be a tensor"
        )
    try:
        if not isinstance(value, DTensor):
            return DTensor(value, mesh, placements)
        if value.device_mesh != mesh:
            raise InvalidArgumentError(f"it lies on {value.device_mesh!r} but the plan is for {mesh!r}")
        return value.redistribute(placements)
    except HyperParallelError as error:
        raise named(error, what) from error
