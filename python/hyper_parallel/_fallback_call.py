"""One call of torch without a rule here: the arguments become torch's DTensors, the results ours again.

What torch is given is what it is surely right about:

* A pending reduction is done first, by this library. Torch reduces most operands itself, but reads the shares for some.
* A tensor dim that is sharded unevenly is gathered first, for torch knows of uneven shards in some operations only.
  Views keep it, and may not regroup it.
* Losses get whole tensors: the gradients of some divide by the size of the share.

Views are views of the tensor's own share, for autograd too; torch only says of which part. Where it lays the tensor out
anew a write through the result would not reach the tensor, so the call raises.

Gradients are those of the unsharded program, as everywhere inside: the gradient of an argument lies as the argument.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, cast

import torch
import torch.distributed.tensor as torch_tensor
from torch.utils import _pytree as pytree

from hyper_parallel import _interchange, _torch
from hyper_parallel._fallback import note
from hyper_parallel._fallback_guard import call_guarded, storage_of
from hyper_parallel._fallback_layout import even_placements, is_loss, plainly_placed, whole_placements
from hyper_parallel._fallback_write import Write, write_back, write_of
from hyper_parallel.dtensor import DTensor
from hyper_parallel.errors import ArgumentTypeError, InvalidArgumentError, UnimplementedError

_Function = Callable[..., Any]
_Args = tuple[Any, ...]
_Kwargs = dict[str, Any]

# Functions whose result shares memory with their argument in plain torch, always.
_VIEWS = frozenset({
    "H", "T", "adjoint", "chunk", "diagonal", "dsplit", "expand", "expand_as", "hsplit", "imag", "mH", "mT", "moveaxis",
    "movedim", "narrow", "permute", "real", "select", "slice", "split", "split_with_sizes", "squeeze", "swapaxes",
    "swapdims", "t", "tensor_split", "transpose", "unbind", "unflatten", "unfold", "unsqueeze", "view", "view_as",
    "view_as_complex", "view_as_real", "vsplit",
})  # fmt: skip

# Those of them that make other dims of the same elements.
_REGROUPING = frozenset({"unflatten", "unfold", "view", "view_as"})

# Results that mean the same on all ranks.
_VALUES = (
    bool, int, float, complex, str, type(None),
    torch.Size, torch.dtype, torch.device, torch.layout, torch.memory_format,
)  # fmt: skip


def run(name: str, function: _Function, args: _Args, kwargs: _Kwargs) -> Any:  # noqa: ANN401
    """See ``_fallback.run``.

    Raises:
        UnimplementedError: ``out=``, tracing, random numbers, a view that torch would copy, a result that is no value;
            torch's DTensor does not know the operation.
        ArgumentTypeError: A plain tensor of another number of elements than one.
        InvalidArgumentError: Operands on unlike meshes; a view of or a write to a pending tensor.
    """
    _check_call(name, kwargs)
    leaves = pytree.tree_leaves((args, kwargs))
    _check_operands(name, leaves)
    write = write_of(name, function, args, kwargs)
    is_view = _is_view(name, args)
    operands = [leaf for leaf in leaves if isinstance(leaf, DTensor)]
    for operand in operands:
        _check_layout(name, operand, is_view=is_view, is_written=_holds(write.tensors, operand))
    note(name, operands[0].device_mesh)
    if is_view and all(placement.is_replicate() for operand in operands for placement in operand.placements):
        return _views_of_replicas(function, args, kwargs)
    call = _Conversion(name, operands, write, is_view=is_view)
    converted_args, converted_kwargs = call.arguments(args, write.kwargs)
    answered = call_guarded(name, write.function, converted_args, converted_kwargs, call.unwritten())
    return call.results(answered)


def _check_call(name: str, kwargs: _Kwargs) -> None:
    if torch._C._get_tracing_state() is not None:
        raise UnimplementedError(f"operation '{name}' on a DTensor cannot be traced by torch.jit")
    if kwargs.get("out") is not None:
        raise UnimplementedError(
            f"operation '{name}': argument 'out' is not supported on a DTensor; use the result or the in-place form"
        )


def _check_operands(name: str, leaves: list[Any]) -> None:
    first = next(leaf for leaf in leaves if isinstance(leaf, DTensor))
    for leaf in leaves:
        if isinstance(leaf, DTensor) and leaf.device_mesh != first.device_mesh:
            raise InvalidArgumentError(
                f"operation '{name}': an operand lies on {leaf.device_mesh!r} but the first on {first.device_mesh!r}; "
                "redistribute one to the other's mesh"
            )
        if isinstance(leaf, torch.Tensor) and not isinstance(leaf, DTensor) and leaf.numel() != 1:
            raise ArgumentTypeError(
                f"operation '{name}': an argument is a plain tensor of shape {tuple(leaf.shape)} but must be a DTensor "
                "or have one element; distribute_tensor(..., [Replicate()]) makes one of what all ranks hold"
            )


def _check_layout(name: str, operand: DTensor, *, is_view: bool, is_written: bool) -> None:
    is_pending = any(placement.is_partial() for placement in operand.placements)
    if is_pending and (is_view or is_written):
        raise InvalidArgumentError(
            f"operation '{name}' has no rule that works on the pending reduction of {operand.placements}; "
            "reduce_partial() first"
        )
    if name in _REGROUPING and tuple(even_placements(operand)) != operand.placements:
        raise InvalidArgumentError(
            f"operation '{name}' regroups the dims of shape {tuple(operand.shape)}, which {operand.placements} shards "
            "unevenly; redistribute() first"
        )


def _is_view(name: str, args: _Args) -> bool:
    if name != "__getitem__":
        return name in _VIEWS
    index = args[1] if isinstance(args[1], tuple) else (args[1],)
    return all(entry is None or entry is ... or type(entry) in (int, slice) for entry in index)


def _holds(tensors: Iterable[DTensor], wanted: torch.Tensor) -> bool:
    return any(tensor is wanted for tensor in tensors)


def _views_of_replicas(function: _Function, args: _Args, kwargs: _Kwargs) -> Any:  # noqa: ANN401
    """Views of tensors that every rank holds: those of their local tensors. Torch would copy some.

    A rank outside the mesh, which holds none, learns their shapes from tensors without storage.
    """
    base = next(value for value in pytree.tree_leaves((args, kwargs)) if isinstance(value, DTensor))
    is_member = _torch.is_member(base)

    def share_of(value: Any) -> Any:  # noqa: ANN401
        if not isinstance(value, DTensor):
            return value
        return _torch.local(value) if is_member else torch.empty(value.shape, dtype=value.dtype, device="meta")

    shares = pytree.tree_map(share_of, (args, kwargs))

    def wrapped(value: Any) -> Any:  # noqa: ANN401
        if not isinstance(value, torch.Tensor):
            return value
        local = value if is_member else _torch.local(base).flatten()[:0]
        made = DTensor(local, base.device_mesh, base.placements, shape=tuple(value.shape))
        _torch.set_base(made, base)
        return made

    return pytree.tree_map(wrapped, function(*shares[0], **shares[1]))


class _Conversion:
    """The arguments of one call as torch's DTensors, and the way back."""

    def __init__(self, name: str, operands: list[DTensor], write: Write, *, is_view: bool) -> None:
        self._name = name
        self._mesh = operands[0].device_mesh
        self._torch_mesh = _interchange.torch_mesh_of(operands[0])
        self._write = write
        self._base = operands[0] if is_view else None
        # By what they came from; each with it, so that no other object comes to have its address.
        self._made: dict[int, tuple[torch.Tensor, torch_tensor.DTensor]] = {}
        wanted = whole_placements if is_loss(name) else even_placements
        for operand in operands:
            if id(operand) in self._made:
                continue
            if is_view:
                made = _interchange.to_torch(operand.detach())
            else:
                made = _interchange.to_torch(operand.redistribute(wanted(operand)))
            if write.is_on_copy and _holds(write.tensors, operand):
                made = cast("torch_tensor.DTensor", made.clone())
            self._made[id(operand)] = operand, made

    def arguments(self, args: _Args, kwargs: _Kwargs) -> tuple[_Args, _Kwargs]:
        """The arguments with torch's DTensors in the place of all tensors."""
        converted: tuple[_Args, _Kwargs] = pytree.tree_map(self._argument, (args, kwargs))
        return converted

    def _argument(self, value: Any) -> Any:  # noqa: ANN401
        if not isinstance(value, torch.Tensor):
            return value
        if id(value) not in self._made:  # a plain one of one element
            replicas = [torch_tensor.Replicate()] * self._torch_mesh.ndim
            made = torch_tensor.DTensor.from_local(value, self._torch_mesh, replicas, run_check=False)
            self._made[id(value)] = value, made
        return self._made[id(value)][1]

    def unwritten(self) -> list[torch.Tensor]:
        """The converted arguments that the call must not write."""
        copies = self._write.tensors if self._write.is_on_copy else []
        return [made for given, made in self._made.values() if not _holds(copies, given)]

    def results(self, answered: Any) -> Any:  # noqa: ANN401
        """The results as ours, after what the call writes has been written."""
        written = self._write.tensors
        if not written:
            return pytree.tree_map(self._result, answered)
        if not self._write.is_on_copy:
            write_back(self._name, written[0], self._result(answered))
            return written[0]
        for tensor in written:
            write_back(self._name, tensor, self._ours(self._made[id(tensor)][1]))
        return pytree.tree_map(self._result, answered)

    def _result(self, value: Any) -> Any:  # noqa: ANN401
        # What torch handed back as it was given is the caller's own object again.
        for given, made in self._made.values():
            if made is value:
                return given
        if isinstance(value, torch_tensor.DTensor):
            return self._ours(value) if self._base is None else self._view(value, self._base)
        if isinstance(value, _VALUES):
            return value
        raise UnimplementedError(
            f"operation '{self._name}' has no rule, and torch's DTensor gives a {type(value).__name__}, of which it is "
            "unknown whether it means the same on all ranks; use custom_shard, or leave by full_tensor()"
        )

    def _ours(self, value: torch_tensor.DTensor) -> DTensor:
        if not self._mesh.contains(self._mesh.get_rank()):
            return self._outside(value)
        try:
            return _interchange.from_torch(plainly_placed(value), self._mesh)
        except InvalidArgumentError as error:
            raise UnimplementedError(
                f"operation '{self._name}' has no rule, and torch's DTensor gives a result that does not lie as it "
                f"says ({error}); use custom_shard, or redistribute to Replicate first"
            ) from error

    def _outside(self, value: torch_tensor.DTensor) -> DTensor:
        """What a rank outside the mesh has of it: no elements, and the arguments' graph, for torch's fails there."""
        placements = [_interchange.placement_from_torch(placement) for placement in plainly_placed(value).placements]
        local = torch.empty(0, dtype=value.dtype, device=value.device)
        if value.requires_grad:
            given = [_torch.local(one) if isinstance(one, DTensor) else one for one, _ in self._made.values()]
            local = torch.cat([one.flatten()[:0].to(value.dtype) for one in given if one.requires_grad])
        return DTensor(local, self._mesh, placements, shape=tuple(value.shape))

    def _view(self, value: torch_tensor.DTensor, base: DTensor) -> DTensor:
        """The part of the base's share that torch's result is, as a view of autograd's, version and all."""
        placements = [_interchange.placement_from_torch(placement) for placement in value.placements]
        share, part = _torch.local(base), value._local_tensor
        if not _torch.is_member(base):
            view = share.flatten()[:0]
        elif storage_of(part) == storage_of(share) and part.dtype == share.dtype:
            view = share.as_strided(part.size(), part.stride(), part.storage_offset())
        else:  # torch decides by layouts alone: alike on all ranks
            raise UnimplementedError(
                f"operation '{self._name}' has no rule, and torch's DTensor makes a copy where torch's tensors give a "
                "view, so that a write through it would be lost; redistribute() so that the dims it takes apart are "
                "not sharded"
            )
        made = DTensor(view, self._mesh, placements, shape=tuple(value.shape))
        _torch.set_base(made, base)
        return made
