"""Functions of torch whose arguments are not those of the operation that answers them.

The operations themselves, and how their operands and results lie, are C++ (`operations/`); here arguments are put in
the operation's order.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

import torch
import torch.nn.functional

from hyper_parallel import _fallback, _handlers, _torch
from hyper_parallel._handlers import Handler, _Args, _Function, _handles_attribute, _Kwargs
from hyper_parallel.errors import InvalidArgumentError, UnimplementedError

if TYPE_CHECKING:
    from hyper_parallel.dtensor import DTensor

_F = torch.nn.functional

# torch.nn.functional's names of reductions, as its operations number them.
_REDUCTIONS = {"none": 0, "mean": 1, "sum": 2}


def _handles(*handled: _Function) -> Callable[[Handler], Handler]:
    """As the registry has it; what the handler cannot do, as it says before it does anything, the fallback may."""

    def keep(handler: Handler) -> Handler:
        @functools.wraps(handler)
        def run(function: _Function, args: _Args, kwargs: _Kwargs) -> Any:  # noqa: ANN401
            try:
                return handler(function, args, kwargs)
            except UnimplementedError as refused:
                try:
                    answered = _fallback.run_on_normal(function.__name__, function, args, kwargs)
                except UnimplementedError:
                    raise refused from None  # nearer to what the caller wrote
                if answered is NotImplemented:
                    raise
                return answered

        _handlers._handles(*handled)(run)
        return handler

    return keep


def _reduction(name: str, reduction: str) -> int:
    if reduction not in _REDUCTIONS:
        raise InvalidArgumentError(f"{name}: reduction is {reduction!r} but must be one of {list(_REDUCTIONS)}")
    return _REDUCTIONS[reduction]


def _call(name: str, *args: Any, **kwargs: Any) -> DTensor:  # noqa: ANN401
    return cast("DTensor", _torch.call(name, *args, **kwargs))


# --- activations -----------------------------------------------------------------------------------------------------

# Each with its parameters behind the input, in the operation's order, and their defaults.
_ACTIVATIONS: dict[str, dict[str, Any]] = {
    "elu": {"alpha": 1.0},
    "celu": {"alpha": 1.0},
    "selu": {},
    "leaky_relu": {"negative_slope": 0.01},
    "hardtanh": {"min_val": -1.0, "max_val": 1.0},
    "hardsigmoid": {},
    "hardswish": {},
    "mish": {},
    "threshold": {"threshold": None, "value": None},
}


@_handles(*(getattr(_F, name) for name in _ACTIVATIONS), _F.relu6)
def _activation(function: _Function, args: _Args, kwargs: _Kwargs) -> DTensor:
    given = dict(kwargs)
    name = "hardtanh" if function is _F.relu6 else function.__name__.removeprefix("_")
    defaults = {"min_val": 0.0, "max_val": 6.0} if function is _F.relu6 else _ACTIVATIONS[name]
    names = ["input", *([] if function is _F.relu6 else defaults), "inplace"]
    given.update(zip(names, args, strict=False))
    if given.pop("inplace", False):
        raise UnimplementedError(f"{function.__name__}: inplace=True is not supported on a DTensor")
    tensor = given.pop("input")
    return _call(name, tensor, *(given.get(name, default) for name, default in defaults.items()))


# --- along a dim -----------------------------------------------------------------------------------------------------


@_handles(_F.softmax, _F.log_softmax)
def _softmax(function: _Function, args: _Args, kwargs: _Kwargs) -> DTensor:
    def run(input: DTensor, dim: int | None = None, _stacklevel: int = 3, dtype: torch.dtype | None = None) -> DTensor:
        if dim is None:
            raise UnimplementedError(f"{function.__name__}: dim must be given on a DTensor")
        return _call(function.__name__, input, dim, dtype)

    return run(*args, **kwargs)


@_handles(_F.softmin)
def _softmin(function: _Function, args: _Args, kwargs: _Kwargs) -> DTensor:
    return cast("DTensor", _softmax(_F.softmax, (_call("neg", args[0]), *args[1:]), kwargs))


@_handles(torch.norm, torch.Tensor.norm)
def _norm(function: _Function, args: _Args, kwargs: _Kwargs) -> DTensor:
    def run(  # noqa: PLR0913, PLR0917  (torch's signature)
        input: DTensor,
        p: float | str | None = "fro",
        dim: int | Sequence[int] | None = None,
        keepdim: bool = False,
        out: torch.Tensor | None = None,
        dtype: torch.dtype | None = None,
    ) -> DTensor:
        if out is not None:
            raise UnimplementedError("norm: argument 'out' is not supported on a DTensor; use the result")
        if p not in {"fro", None} and isinstance(p, str):
            raise UnimplementedError(f"norm: p={p!r} is not supported on a DTensor")
        order = 2.0 if p is None or isinstance(p, str) else p
        return _call("linalg_vector_norm", input, order, dim, keepdim, dtype=dtype)

    return run(*args, **kwargs)


@_handles(_F.layer_norm)
def _layer_norm(function: _Function, args: _Args, kwargs: _Kwargs) -> DTensor:
    def run(
        input: torch.Tensor,
        normalized_shape: Sequence[int],
        weight: torch.Tensor | None = None,
        bias: torch.Tensor | None = None,
        eps: float = 1e-5,
    ) -> DTensor:
        return _call("layer_norm", input, tuple(normalized_shape), weight, bias, eps)

    return run(*args, **kwargs)


@_handles(_F.rms_norm)
def _rms_norm(function: _Function, args: _Args, kwargs: _Kwargs) -> DTensor:
    def run(
        input: torch.Tensor,
        normalized_shape: Sequence[int],
        weight: torch.Tensor | None = None,
        eps: float | None = None,
    ) -> DTensor:
        return _call("rms_norm", input, tuple(normalized_shape), weight, eps)

    return run(*args, **kwargs)


@_handles(_F.embedding)
def _embedding(function: _Function, args: _Args, kwargs: _Kwargs) -> DTensor:
    def run(  # noqa: PLR0913, PLR0917  (torch's signature)
        input: torch.Tensor,
        weight: torch.Tensor,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
    ) -> DTensor:
        if max_norm is not None or scale_grad_by_freq or sparse:
            raise UnimplementedError(
                "embedding: max_norm, scale_grad_by_freq and sparse are not supported on a DTensor"
            )
        rows = weight.shape[0]
        padding = -1 if padding_idx is None else padding_idx + rows * (padding_idx < 0)
        if padding_idx is not None and not 0 <= padding < rows:
            raise InvalidArgumentError(f"embedding: padding_idx is {padding_idx} but the weight has {rows} rows")
        return _call("embedding", weight, input, padding)

    return run(*args, **kwargs)


# --- losses ----------------------------------------------------------------------------------------------------------

# The arguments of each behind input and target, as torch.nn.functional has them, None for one that is deprecated.
_LOSSES: dict[str, tuple[tuple[str, Any], ...]] = {
    "mse_loss": (("size_average", None), ("reduce", None), ("reduction", "mean"), ("weight", None)),
    "l1_loss": (("size_average", None), ("reduce", None), ("reduction", "mean"), ("weight", None)),
    "smooth_l1_loss": (("size_average", None), ("reduce", None), ("reduction", "mean"), ("beta", 1.0)),
    "huber_loss": (("reduction", "mean"), ("delta", 1.0), ("weight", None)),
    "binary_cross_entropy": (("weight", None), ("size_average", None), ("reduce", None), ("reduction", "mean")),
    "binary_cross_entropy_with_logits": (
        ("weight", None), ("size_average", None), ("reduce", None), ("reduction", "mean"), ("pos_weight", None),
    ),
    "kl_div": (("size_average", None), ("reduce", None), ("reduction", "mean"), ("log_target", False)),
    "cross_entropy": (
        ("weight", None), ("size_average", None), ("ignore_index", -100), ("reduce", None), ("reduction", "mean"),
        ("label_smoothing", 0.0),
    ),
    "nll_loss": (
        ("weight", None), ("size_average", None), ("ignore_index", -100), ("reduce", None), ("reduction", "mean"),
    ),
}  # fmt: skip


@_handles(*(getattr(_F, name) for name in _LOSSES))
def _loss(function: _Function, args: _Args, kwargs: _Kwargs) -> DTensor:
    name = function.__name__
    parameters = _LOSSES[name]
    given = dict(parameters) | dict(zip(["input", "target", *(key for key, _ in parameters)], args, strict=False))
    given |= kwargs
    if given.get("size_average") is not None or given.get("reduce") is not None:
        raise UnimplementedError(f"{name}: size_average and reduce are not supported on a DTensor; use reduction")
    if name.startswith("binary_cross_entropy") and given["target"].shape != given["input"].shape:
        raise InvalidArgumentError(
            f"{name}: target has shape {tuple(given['target'].shape)} but input {tuple(given['input'].shape)}; they "
            "must be equal"
        )
    batch_mean = name == "kl_div" and given["reduction"] == "batchmean"
    reduction = _reduction(name, "sum" if batch_mean else given["reduction"])
    value = _run_loss(name, given, reduction)
    return _call("div", value, given["input"].shape[0]) if batch_mean and given["input"].ndim > 0 else value


def _run_loss(name: str, given: dict[str, Any], reduction: int) -> DTensor:
    operands = (given["input"], given["target"])
    weight = given.get("weight")
    match name:
        case "cross_entropy":
            more = (weight, reduction, given["ignore_index"], given["label_smoothing"])
            return _call("cross_entropy_loss", *operands, *more)
        case "nll_loss":
            return _call("nll_loss_nd", *operands, weight, reduction, given["ignore_index"])
        case "binary_cross_entropy":
            return _call(name, *operands, weight, reduction)
        case "binary_cross_entropy_with_logits":
            return _call(name, *operands, weight, given["pos_weight"], reduction)
        case "kl_div":
            return _call(name, *operands, reduction, log_target=given["log_target"])
    if weight is not None:
        raise UnimplementedError(f"{name}: weight is not supported on a DTensor")
    extra = [given[key] for key in ("beta", "delta") if key in given]
    return _call(name, *operands, reduction, *extra)


# --- several tensors -------------------------------------------------------------------------------------------------


@_handles(torch.einsum)
def _einsum(function: _Function, args: _Args, kwargs: _Kwargs) -> DTensor:
    equation, *operands = args
    if not isinstance(equation, str):
        raise UnimplementedError("einsum on a DTensor takes an equation as text, not lists of dims")
    tensors = operands[0] if len(operands) == 1 and isinstance(operands[0], (list, tuple)) else operands
    return _call("einsum", equation, list(tensors))


@_handles(torch.split, torch.Tensor.split)
def _split(function: _Function, args: _Args, kwargs: _Kwargs) -> tuple[DTensor, ...]:
    def run(
        tensor: DTensor,
        split_size_or_sections: int | Sequence[int] = 0,
        dim: int = 0,
        split_size: Any = None,  # noqa: ANN401
    ) -> tuple[DTensor, ...]:
        size = split_size_or_sections if split_size is None else split_size
        return cast("tuple[DTensor, ...]", _torch.call("split", tensor, size, dim))

    return run(*args, **kwargs)


@_handles(torch.Tensor.unflatten, torch.unflatten)
def _unflatten(function: _Function, args: _Args, kwargs: _Kwargs) -> DTensor:
    def run(input: DTensor, dim: int, sizes: Sequence[int]) -> DTensor:
        return _call("unflatten", input, dim, tuple(sizes))

    return run(*args, **kwargs)


@_handles(torch.Tensor.__iter__)
def _iter(function: _Function, args: _Args, kwargs: _Kwargs) -> Any:  # noqa: ANN401
    return iter(_torch.call("unbind", args[0], 0))


@_handles_attribute("T", "get")
def _get_t(function: _Function, args: _Args, kwargs: _Kwargs) -> DTensor:
    return _call("permute", args[0], tuple(reversed(range(args[0].dim()))))


@_handles_attribute("mT", "get")
def _get_mt(function: _Function, args: _Args, kwargs: _Kwargs) -> DTensor:
    return _call("transpose", args[0], -2, -1)
