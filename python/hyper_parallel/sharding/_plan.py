"""A sharding plan read against a model and a mesh: everything that can be wrong with it is found here, before anything
is changed.

A *name* is a dotted path as ``named_parameters`` and ``named_modules`` give it, "" for the model itself. A *pattern* is
a name whose components may hold the wildcards of ``fnmatch``; a wildcard never matches a dot.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from hyper_parallel.device_mesh import DeviceMesh
from hyper_parallel.errors import ArgumentTypeError, HyperParallelError, InvalidArgumentError
from hyper_parallel.placement import Placement, Replicate
from hyper_parallel.sharding._entries import Entries, Entry, entries_of, entry_of, layout_of, named
from hyper_parallel.sharding._framework import (
    DTensor,
    Module,
    Tensor,
    check_ready,
    named_modules,
    named_tensors,
    owner_of,
)

Side = Entries | dict[str, Entry]
"""Placements by position, or by a keyword."""


@dataclass(frozen=True)
class TensorPlan:
    """A parameter or buffer, every place where it stands in the model, and how it shall lie."""

    tensor: Tensor
    places: list[tuple[Module, str]]
    placements: tuple[Placement, ...]


@dataclass(frozen=True)
class ForwardPlan:
    """A module, how its forward takes its arguments and gives its results; None to leave them."""

    name: str
    module: Module
    inputs: Side | None
    outputs: Side | None


def read_plan(model: Module, plan: Any, mesh: DeviceMesh) -> tuple[list[TensorPlan], list[ForwardPlan]]:  # noqa: ANN401
    """Reads a whole plan; raises as ``shard``."""
    parts = _mapping(plan, "sharding_plan")
    _check_keys(parts, ("parameter", "forward"), "sharding_plan")
    parameters = _mapping(parts.get("parameter", {}), "sharding_plan['parameter']")
    forward = _mapping(parts.get("forward", {}), "sharding_plan['forward']")
    return _tensor_plans(model, parameters, mesh), _forward_plans(model, forward, mesh)


# --- parameters ------------------------------------------------------------------------------------------------------


def _tensor_plans(model: Module, patterns: Mapping[str, Any], mesh: DeviceMesh) -> list[TensorPlan]:
    """A plan for each parameter and buffer, tied ones once.

    What no pattern names becomes Replicate, or stays as it is if it is distributed already.
    """
    tensors = named_tensors(model)
    chosen: dict[
        int, tuple[str, tuple[Placement, ...]]
    ] = {}  # by tensor: the pattern that named it, and what that says
    for pattern, value in patterns.items():
        what = f"sharding_plan['parameter'][{pattern!r}]"
        placements = entry_of(value, mesh, what)
        if placements is None:
            raise ArgumentTypeError(f"{what} is None but must be a list or tuple of placements")
        for name in _matches(pattern, tensors, "sharding_plan['parameter']", "parameter or buffer"):
            wanted = layout_of(placements, mesh, f"{what}: {name!r}", tensors[name].ndim).placements
            known = chosen.setdefault(id(tensors[name]), (pattern, wanted))
            if known[1] != wanted:
                raise InvalidArgumentError(
                    f"{what} says {wanted} for {name!r} but {known[0]!r} says {known[1]} for the same tensor"
                )
    plans: dict[int, TensorPlan] = {}
    for name, tensor in tensors.items():
        place = owner_of(model, name)
        if id(tensor) in plans:
            plans[id(tensor)].places.append(place)
            continue
        unnamed = tensor.placements if isinstance(tensor, DTensor) else (Replicate(),) * mesh.ndim
        placements = chosen[id(tensor)][1] if id(tensor) in chosen else unnamed
        _check_tensor(name, tensor, placements, mesh)
        plans[id(tensor)] = TensorPlan(tensor, [place], placements)
    return list(plans.values())


def _check_tensor(name: str, tensor: Tensor, placements: tuple[Placement, ...], mesh: DeviceMesh) -> None:
    what = f"sharding_plan: {name!r}"
    if isinstance(tensor, DTensor) and tensor.device_mesh != mesh:
        raise InvalidArgumentError(f"{what} lies on {tensor.device_mesh!r} but the plan is for {mesh!r}")
    check_ready(tensor, what)
    if any(placement.is_partial() for placement in placements):
        raise InvalidArgumentError(f"{what} cannot be Partial, as {placements} says: it has no shares to add up")
    layout = layout_of(placements, mesh, what, tensor.ndim)
    try:
        layout.check_shape(tuple(tensor.shape))
    except HyperParallelError as error:
        raise named(error, what) from error


# --- forward ---------------------------------------------------------------------------------------------------------


def _forward_plans(model: Module, forward: Mapping[str, Any], mesh: DeviceMesh) -> list[ForwardPlan]:
    """The root's own plan, where "input" and "output" stand for themselves, and those of the modules that are named."""
    what = "sharding_plan['forward']"
    modules = named_modules(model)
    own = {
        key: value
        for key, value in forward.items()
        if key in {"input", "output"} and not (key in modules and _is_sides(value))
    }
    plans: dict[str, ForwardPlan] = {}
    if own:
        plans[""] = _forward_plan("", model, own, mesh, what)
    for pattern, sides in forward.items():
        if pattern in own:
            continue
        for name in _matches(pattern, modules, what, "module"):
            if name in plans:
                raise InvalidArgumentError(f"{what}: {pattern!r} names module {name!r}, which has a plan already")
            plans[name] = _forward_plan(name, modules[name], sides, mesh, f"{what}[{pattern!r}]")
    return list(plans.values())


def _is_sides(value: object) -> bool:
    """Whether a value is the plan of a module that happens to be called "input" or "output"."""
    return isinstance(value, Mapping) and len(value) > 0 and set(value) <= {"input", "output"}


def _forward_plan(name: str, module: Module, sides: Any, mesh: DeviceMesh, what: str) -> ForwardPlan:  # noqa: ANN401
    given = _mapping(sides, what)
    _check_keys(given, ("input", "output"), what)
    inputs, outputs = (
        _side(given[side], mesh, f"{what}[{side!r}]") if side in given else None for side in ("input", "output")
    )
    return ForwardPlan(name, module, inputs, outputs)


def _side(value: Any, mesh: DeviceMesh, what: str) -> Side:  # noqa: ANN401
    if not isinstance(value, Mapping):
        return entries_of(value, mesh, what)
    return {key: entry_of(entry, mesh, f"{what}[{key!r}]") for key, entry in _mapping(value, what).items()}


# --- names -----------------------------------------------------------------------------------------------------------


def _mapping(value: Any, what: str) -> Mapping[str, Any]:  # noqa: ANN401
    if not isinstance(value, Mapping):
        raise ArgumentTypeError(f"{what} is {value!r} but must be a dict")
    for key in value:
        if not isinstance(key, str):
            raise ArgumentTypeError(f"{what} has the key {key!r} but its keys must be str")
    return value


def _check_keys(given: Mapping[str, Any], allowed: tuple[str, ...], what: str) -> None:
    unknown = [key for key in given if key not in allowed]
    if unknown:
        raise InvalidArgumentError(f"{what} has the keys {unknown} but may have {list(allowed)} alone")


def _matches(pattern: str, names: Iterable[str], what: str, kind: str) -> list[str]:
    parts = pattern.split(".")

    def fits(name: str) -> bool:
        components = name.split(".")
        return len(components) == len(parts) and all(map(fnmatchcase, components, parts))

    found = [name for name in names if fits(name)]
    if not found:
        raise InvalidArgumentError(f"{what}: {pattern!r} matches no {kind}; there are {sorted(names)}")
    return found
