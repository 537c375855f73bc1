"""Watches what torch's DTensor does during a fallback, and stops what would give ranks unlike values without a word."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
import torch.distributed.tensor as torch_tensor
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
from torch.distributed.tensor.experimental import implicit_replication
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

from hyper_parallel.errors import FailedPreconditionError, HyperParallelError, UnimplementedError

_aten = torch.ops.aten


class Guard(TorchDispatchMode):
    """The mode under which a function of torch runs on torch's DTensors.

    * Random numbers are refused: torch's generator on the CPU is the rank's own, so that replicas could differ and
      equal seeds give equal shares.
    * Writes into the arguments are refused: they would reach a converted copy, or the share behind the back of its
      DTensor. In-place forms are given copies.
    * Values that leave to Python (``item``, ``equal``) are those of the whole tensor, which torch reads from the share.

    Args:
        name: The operation's name, for messages.
        inputs: The converted arguments that must not be written.
    """

    def __init__(self, name: str, inputs: Iterable[torch_tensor.DTensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._name = name
        self._protected = {storage_of(tensor) for tensor in inputs}

    def __torch_dispatch__(
        self,
        func: torch._ops.OpOverload,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401
        kwargs = kwargs or {}
        self._check(func, dict(zip(_names_of(func), args, strict=False)) | kwargs)
        if func is _aten._local_scalar_dense.default and isinstance(args[0], torch_tensor.DTensor):
            return self._whole(args[0]).item()
        if func in {_aten.equal.default, _aten.allclose.default}:
            return func(*(self._whole(value) for value in args), **kwargs)
        return func(*args, **kwargs)

    def _whole(self, tensor: Any) -> Any:  # noqa: ANN401
        if not isinstance(tensor, torch_tensor.DTensor):
            return tensor
        if tensor.device_mesh.get_coordinate() is None:
            raise FailedPreconditionError(
                f"operation '{self._name}' gives a value, which a rank outside the mesh has no part of"
            )
        return tensor.redistribute(placements=[torch_tensor.Replicate()] * tensor.device_mesh.ndim)._local_tensor

    def _check(self, func: torch._ops.OpOverload, given: dict[str, Any]) -> None:
        # Attention is random by its dropout alone.
        if torch.Tag.nondeterministic_seeded in func.tags and not _drops_nothing(func, given):
            raise UnimplementedError(
                f"operation '{self._name}' draws random numbers, and equal seeds would give equal shares on all ranks; "
                "draw on a plain tensor and distribute that"
            )
        for argument in func._schema.arguments:
            is_written = argument.alias_info is not None and argument.alias_info.is_write
            if not is_written and not (argument.name.startswith("running_") and _updates_statistics(given)):
                continue
            value = given.get(argument.name)
            for tensor in value if isinstance(value, list | tuple) else [value]:
                if isinstance(tensor, torch_tensor.DTensor) and storage_of(tensor) in self._protected:
                    raise UnimplementedError(
                        f"operation '{self._name}' writes to one of its arguments, which without a rule only in-place "
                        "forms of one tensor may; take the form that gives a new tensor"
                    )


def _names_of(func: torch._ops.OpOverload) -> list[str]:
    return [argument.name for argument in func._schema.arguments]


def _drops_nothing(func: torch._ops.OpOverload, given: dict[str, Any]) -> bool:
    defaults = {argument.name: argument.default_value for argument in func._schema.arguments}
    return bool((defaults | given).get("dropout_p") == 0.0)


def _updates_statistics(given: dict[str, Any]) -> bool:
    """Of a batch normalisation: a write that its schema does not tell of."""
    return any(given.get(name) for name in ("training", "train", "use_input_stats"))


def storage_of(tensor: torch.Tensor) -> int:
    """What tells one storage from another, empty ones included; of torch's DTensor that of its share."""
    local = tensor._local_tensor if isinstance(tensor, torch_tensor.DTensor) else tensor
    return int(local.untyped_storage()._cdata)


def _known_attention(args: tuple[Any, ...]) -> contextlib.AbstractContextManager[None]:
    """Attention by its formula where torch's DTensor does not know the kernel and would search for minutes."""
    if all(isinstance(value, torch.Tensor) and value.device.type == "cpu" for value in args[:1]):
        return sdpa_kernel([SDPBackend.MATH])
    return contextlib.nullcontext()


def call_guarded(
    name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], inputs: list[torch.Tensor]
) -> Any:  # noqa: ANN401
    """Calls the function under the guard.

    Raises:
        UnimplementedError: Torch's DTensor does not know the operation either; and as ``Guard``.
    """
    protected = [tensor for tensor in inputs if isinstance(tensor, torch_tensor.DTensor)]
    try:
        # Plain tensors that torch makes on the way (a causal mask) are the same on all ranks.
        with Guard(name, protected), _known_attention(args), implicit_replication():
            return function(*args, **kwargs)
    except (NotImplementedError, RuntimeError) as error:
        if not _is_refusal(error):
            raise
        reason = " ".join(str(error).split("\n\n")[0].split())
        raise UnimplementedError(
            f"operation '{name}' has no rule, and torch's DTensor does not know it either ({reason}); "
            "use custom_shard, or redistribute to Replicate and leave by full_tensor()"
        ) from error


def _is_refusal(error: Exception) -> bool:
    """Whether torch's DTensor says that it cannot do it, not that the arguments are wrong."""
    if isinstance(error, HyperParallelError):
        return False
    known = isinstance(error.__cause__, DynamicOutputShapeException | DataDependentOutputException)
    texts = ("without redistribution", "got mixed torch.Tensor and DTensor")
    return known or isinstance(error, NotImplementedError) or any(text in str(error) for text in texts)
