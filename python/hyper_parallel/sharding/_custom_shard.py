"""custom_shard: a function of local tensors as a function of DTensors."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hyper_parallel.device_mesh import DeviceMesh
from hyper_parallel.errors import (
    ArgumentTypeError,
    FailedPreconditionError,
    HyperParallelError,
    InvalidArgumentError,
)
from hyper_parallel.placement import Partial, Placement, Replicate
from hyper_parallel.sharding._entries import Entries, Entry, entries_of, layout_of, named
from hyper_parallel.sharding._framework import (
    DTensor,
    Tensor,
    needs_gradient,
    tree_flatten,
    tree_leaves,
    tree_map,
    tree_unflatten,
)

__all__ = ["custom_shard"]

_Placements = Sequence[Placement]
_Shape = Sequence[int]


def custom_shard(  # noqa: PLR0913  (the specification's signature)
    func: Callable[..., Any],
    device_mesh: DeviceMesh,
    out_placements: _Placements | Sequence[_Placements | None] | None,
    in_placements: _Placements | Sequence[_Placements | None] | None = None,
    redistribute_inputs: bool = True,
    *,
    in_grad_placements: Sequence[_Placements | None] | None = None,
    out_shapes: _Shape | Sequence[_Shape | None] | None = None,
) -> Callable[..., Any]:
    """Makes a function of DTensors of a function that each rank runs on its local tensors.

    The DTensors among the arguments, in containers too, become local tensors; everything else is handed on. The tensors
    that ``func`` returns become DTensors on ``device_mesh``.

    **Shapes.** Replicas and shares have the shape of the whole. With ``Shard`` the ranks tell each other their local
    sizes, which must follow the rule of ``Shard`` (``ceil(n / p)`` rows, the last ranks fewer), so that all agree; one
    small message to each peer, which ``out_shapes`` saves. With ``RaggedShard`` the local tensor is flat and the shape
    cannot be told from it: ``out_shapes`` is mandatory.

    **Gradients** are those of the unsharded program: the gradient of an argument lies as the argument. So where an
    argument is Replicate on a mesh dim, the local gradients of ``func`` are taken for

    * shares of a sum, where no result is Replicate on that mesh dim: each rank has seen a part of the result;
    * equal, where all arguments and results are Replicate on it: each rank has done the same;
    * anything, otherwise: ``func`` has communicated. Then say in ``in_grad_placements`` what they are: ``Partial()``
      for shares of a sum, ``Replicate()`` for equal ones. Without it the call raises if the argument requires grad.

    Args:
        func: Runs on every rank of the mesh, and must make its results mean what ``out_placements`` says.
        device_mesh: Where arguments and results lie.
        out_placements: Placements for the one result, or for each result in a tuple, list or dict (in its order), None
            for those that are no tensors.
        in_placements: Placements for each positional argument; None for one that holds no DTensor. By default arguments
            are taken as they lie, as those by keyword always are.
        redistribute_inputs: Whether arguments that lie otherwise are redistributed; else they raise.
        in_grad_placements: How the local gradients of each positional argument lie; None leaves it to the rule above.
        out_shapes: The shape of the one result, or of each result; None where there is no tensor or it is to be told.

    Returns:
        The function of DTensors. Only ranks of the mesh may call it. It raises

        * InvalidArgumentError: in_placements that are not as many as the positional arguments; an argument on another
          mesh or laid out otherwise; results that are not as many as out_placements; local sizes that break the rule of
          Shard; gradients that are neither way.
        * OutOfRangeError: a Shard dim that a result does not have.
        * ArgumentTypeError: None for a tensor, or placements for what is none.

    Raises:
        InvalidArgumentError: Placements that do not make a layout on the mesh; RaggedShard without its shape.
        ArgumentTypeError: An argument of another type.

    Example:
        >>> mesh = DeviceMesh((1,), ("tp",))
        >>> rows = distribute_tensor(torch.ones(4, 2), mesh, [Shard(0)])
        >>> total = custom_shard(lambda local: local.sum(0), mesh, out_placements=[Partial()])
        >>> total(rows).full_tensor()
        tensor([4., 4.])
    """
    if not callable(func):
        raise ArgumentTypeError(f"custom_shard: func is {func!r} but must be callable")
    if not isinstance(device_mesh, DeviceMesh):
        raise ArgumentTypeError(f"custom_shard: device_mesh is {device_mesh!r} but must be a hyper_parallel.DeviceMesh")
    outputs = entries_of(out_placements, device_mesh, "custom_shard: out_placements")
    call = _CustomShard(
        device_mesh,
        outputs,
        _optional_entries(in_placements, device_mesh, "in_placements"),
        _optional_entries(in_grad_placements, device_mesh, "in_grad_placements"),
        redistribute_inputs,
        _checked_shapes(out_shapes, outputs),
    )

    @functools.wraps(func)
    def sharded(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        local_args, local_kwargs = call.arguments(args, kwargs)
        return call.results(func(*local_args, **local_kwargs))

    return sharded


def _optional_entries(value: object, mesh: DeviceMesh, what: str) -> Entries | None:
    return None if value is None else entries_of(value, mesh, f"custom_shard: {what}")


def _checked_shapes(shapes: Any, outputs: Entries) -> list[_Shape | None]:  # noqa: ANN401
    """A shape for each output, None where the ranks have to tell each other."""
    count = len(outputs.entries)
    given = [None] * count if shapes is None else [shapes] if outputs.is_single else list(shapes)
    if len(given) != count:
        raise InvalidArgumentError(f"custom_shard: out_shapes has {len(given)} entries but out_placements {count}")
    for entry, shape in zip(outputs.entries, given, strict=True):
        if shape is None and entry is not None and any(placement.is_ragged_shard() for placement in entry):
            raise InvalidArgumentError(
                f"custom_shard: out_placements is {entry} but out_shapes says no shape: with RaggedShard it cannot be "
                "told from the flat local tensors"
            )
    return given


@dataclass(frozen=True)
class _CustomShard:
    """What one ``custom_shard`` was told, and the checks and conversions by it."""

    mesh: DeviceMesh
    outputs: Entries
    inputs: Entries | None
    gradients: Entries | None
    may_redistribute: bool
    shapes: list[_Shape | None]

    def arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        """The arguments with local tensors in the place of DTensors."""
        if not self.mesh.contains(self.mesh.get_rank()):
            raise FailedPreconditionError(
                f"custom_shard: rank {self.mesh.get_rank()} is outside {self.mesh!r}, whose ranks alone may call"
            )
        wanted = self._entries_for(self.inputs, len(args), "in_placements")
        gradients = self._entries_for(self.gradients, len(args), "in_grad_placements")
        if self.inputs is not None:
            for index, (arg, entry) in enumerate(zip(args, wanted, strict=True)):
                _check_holds(arg, entry, index)
        values: list[Any] = [*args, kwargs]
        names = [*(f"argument {index}" for index in range(len(args))), "a keyword argument"]
        targets = [
            tree_map(functools.partial(self._target, entry=entry, what=what), value)
            for value, entry, what in zip(values, [*wanted, None], names, strict=True)
        ]
        layouts = [target for target in tree_leaves(targets) if isinstance(target, _Target)]
        for gradient, target in zip([*gradients, None], targets, strict=True):
            for leaf in tree_leaves(target):
                if isinstance(leaf, _Target):
                    leaf.gradient = self._gradient(leaf, gradient, layouts)
        *local_args, local_kwargs = tree_map(lambda leaf: leaf.local() if isinstance(leaf, _Target) else leaf, targets)
        return local_args, local_kwargs

    @staticmethod
    def _entries_for(given: Entries | None, count: int, what: str) -> Sequence[Entry]:
        if given is None:
            return [None] * count
        if len(given.entries) != count:
            raise InvalidArgumentError(
                f"custom_shard: {what} has {len(given.entries)} entries but {count} positional arguments were given"
            )
        return given.entries

    def _target(self, value: Any, *, entry: Entry, what: str) -> Any:  # noqa: ANN401
        if not isinstance(value, DTensor):
            return value
        if value.device_mesh != self.mesh:
            raise InvalidArgumentError(
                f"custom_shard: {what} lies on {value.device_mesh!r} but device_mesh is {self.mesh!r}"
            )
        if entry is None:
            return _Target(value, value.placements)
        placements = layout_of(entry, self.mesh, f"custom_shard: {what}", value.ndim).placements
        if placements != value.placements and not self.may_redistribute:
            raise InvalidArgumentError(
                f"custom_shard: {what} has placements {value.placements} but in_placements says {placements} and "
                "redistribute_inputs is False"
            )
        return _Target(value, placements)

    def _gradient(self, target: _Target, given: Entry, inputs: list[_Target]) -> list[Placement]:
        """How the local gradients of an argument lie."""
        if given is not None:
            return list(given)
        outputs = [entry for entry in self.outputs.entries if entry is not None]
        gradient: list[Placement] = []
        for dim, placement in enumerate(target.placements):
            if not placement.is_replicate():
                gradient.append(Replicate() if placement.is_partial() else placement)
                continue
            replicated = [output[dim].is_replicate() for output in outputs]
            if all(replicated) and all(one.placements[dim].is_replicate() for one in inputs):
                gradient.append(Replicate())
            elif not any(replicated):
                gradient.append(Partial())
            elif needs_gradient(target.value):
                raise InvalidArgumentError(
                    f"custom_shard: on mesh dim '{self.mesh.mesh_dim_names[dim]}' an argument that requires grad is "
                    "Replicate, other arguments or results are not, and some results are: its local gradients may be "
                    "equal or shares of a sum; say in in_grad_placements which: Replicate() or Partial()"
                )
            else:
                gradient.append(Replicate())  # there are none
        return gradient

    def results(self, returned: Any) -> Any:  # noqa: ANN401
        """What ``func`` returned, with DTensors in the place of local tensors."""
        leaves, structure = ([returned], None) if self.outputs.is_single else tree_flatten(returned)
        entries = self.outputs.entries
        if len(leaves) != len(entries):
            raise InvalidArgumentError(
                f"custom_shard: func returned {len(leaves)} values but out_placements has {len(entries)} entries"
            )
        for index, (leaf, entry) in enumerate(zip(leaves, entries, strict=True)):
            self._check_result(leaf, entry, index)
        made = [
            leaf if entry is None else self._result(leaf, entry, shape, index)
            for index, (leaf, entry, shape) in enumerate(zip(leaves, entries, self.shapes, strict=True))
        ]
        return made[0] if structure is None else tree_unflatten(made, structure)

    def _check_result(self, leaf: Any, entry: Entry, index: int) -> None:  # noqa: ANN401
        if entry is None:
            if any(isinstance(value, Tensor) for value in tree_leaves(leaf)):
                raise ArgumentTypeError(
                    f"custom_shard: result {index} holds a tensor but out_placements says None for it"
                )
        elif not isinstance(leaf, Tensor) or isinstance(leaf, DTensor):
            raise ArgumentTypeError(
                f"custom_shard: result {index} is a {type(leaf).__name__} but out_placements says {entry}: func must "
                "return a plain tensor there"
            )
        elif not any(placement.is_ragged_shard() for placement in entry):
            layout_of(entry, self.mesh, f"custom_shard: result {index} of shape {tuple(leaf.shape)}", leaf.ndim)

    def _result(self, leaf: Tensor, entry: tuple[Placement, ...], shape: _Shape | None, index: int) -> DTensor:
        try:
            return DTensor(leaf, self.mesh, entry, shape=shape)
        except HyperParallelError as error:
            raise named(error, f"custom_shard: result {index}") from error


class _Target:
    """A DTensor among the arguments, how ``func`` wants it, and how its local gradients lie."""

    def __init__(self, value: DTensor, placements: tuple[Placement, ...]) -> None:
        self.value = value
        self.placements = placements
        self.gradient: list[Placement] = []

    def local(self) -> Tensor:
        """Redistributes, which may communicate, and leaves."""
        return self.value.redistribute(self.placements).to_local(self.gradient)


def _check_holds(arg: object, entry: Entry, index: int) -> None:
    holds = any(isinstance(leaf, DTensor) for leaf in tree_leaves(arg))
    if holds and entry is None:
        raise ArgumentTypeError(f"custom_shard: in_placements[{index}] is None but argument {index} is a DTensor")
    if not holds and entry is not None:
        raise ArgumentTypeError(
            f"custom_shard: in_placements[{index}] is {entry} but argument {index} is a {type(arg).__name__} without a "
            "DTensor"
        )
