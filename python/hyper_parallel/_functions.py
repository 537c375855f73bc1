"""Which function of torch is answered how when it meets a DTensor; what is not named here is refused by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional

from hyper_parallel import (
    _autograd_handlers,  # noqa: F401  (adds itself to the registry)
    _fallback,
    _handlers,
    _random_handlers,  # noqa: F401  (the same)
    _ruled_handlers,  # noqa: F401  (the same)
    _torch,
    _value_handlers,  # noqa: F401  (the same)
)

_Function = Callable[..., Any]

# Other names of torch for operations in the table.
_ALIASES = {
    "__and__": "bitwise_and",
    "__eq__": "eq",
    "__floordiv__": "floor_divide",
    "__invert__": "bitwise_not",
    "__matmul__": "matmul",
    "__mod__": "remainder",
    "__or__": "bitwise_or",
    "__xor__": "bitwise_xor",
    "__ne__": "ne",
    "__pow__": "pow",
    "arccos": "acos",
    "arcsin": "asin",
    "arctan": "atan",
    "arctan2": "atan2",
    "clip": "clamp",
    "concat": "cat",
    "concatenate": "cat",
    "clip_": "clamp_",
    "divide": "div",
    "divide_": "div_",
    "greater": "gt",
    "greater_equal": "ge",
    "less": "lt",
    "less_equal": "le",
    "multiply": "mul",
    "multiply_": "mul_",
    "not_equal": "ne",
    "special_expit": "sigmoid",
    "subtract": "sub",
    "subtract_": "sub_",
    "swapaxes": "transpose",
    "swapdims": "transpose",
}

# What torch.nn.functional defines itself, with the operation's own parameters.
_FUNCTIONAL = ("layer_norm", "rms_norm")

# Where torch keeps its functions. torch._C._nn holds what torch.nn.functional hands on.
_NAMESPACES = (torch.Tensor, torch, torch._C._nn, torch.special)

# The wrapper has the logical shape, the dtype and the device: torch's own functions read them there.
_METADATA_FUNCTIONS = (
    "dim", "element_size", "get_device", "is_complex", "is_conj", "is_contiguous", "is_floating_point", "is_inference",
    "is_neg", "is_signed", "ndimension", "nelement", "numel", "size", "stride", "storage_offset",
    "_has_compatible_shallow_copy_type",
)  # fmt: skip
_WRAPPER_ATTRIBUTES = (
    "device", "dtype", "is_cpu", "is_cuda", "is_ipu", "is_maia", "is_meta", "is_mkldnn", "is_mps", "is_mtia",
    "is_nested", "is_quantized", "is_sparse", "is_sparse_csr", "is_vulkan", "is_xla", "is_xpu", "itemsize", "nbytes",
    "ndim", "shape",
)  # fmt: skip

# The graph lives on the local tensors.
_LOCAL_FUNCTIONS = ("retain_grad",)
_LOCAL_ATTRIBUTES = (
    "_version", "grad_fn", "is_leaf", "output_nr", "requires_grad", "retains_grad", "_backward_hooks",
    "_post_accumulate_grad_hooks", "grad_dtype",
)  # fmt: skip


def register() -> None:
    """Tells the C++ dispatch of every function; once, when the package is imported."""
    known: set[int] = set()

    def unknown(function: object) -> bool:
        """Whether the function is there and not told of yet: namespaces share some."""
        if function is None or id(function) in known:
            return False
        known.add(id(function))
        return True

    handled = {id(function) for function, _ in _handlers.functions()}
    for function, operation in _operations():
        if id(function) not in handled and unknown(function):
            _torch.register_operation(function, operation)
    for name in _METADATA_FUNCTIONS:
        for space in (torch.Tensor, torch):
            function = getattr(space, name, None)
            if unknown(function):
                _torch.register_metadata(function)
    for name in _LOCAL_FUNCTIONS:
        _torch.register_from_local(getattr(torch.Tensor, name))
    for function, handler in _handlers.functions():
        if unknown(function):
            _torch.register_handler(function, handler)
    for (name, role), handler in _handlers.ATTRIBUTES.items():
        _torch.register_handler(getattr(torch.Tensor, name), handler, role)
    _fallback.register()


def install(wrapper_class: type[torch.Tensor]) -> None:
    """Lets C++ answer the attributes of the class that are read most, and its operators; once, at import."""
    sources = dict.fromkeys(_WRAPPER_ATTRIBUTES, "wrapper") | dict.fromkeys(_LOCAL_ATTRIBUTES, "local")
    for name, source in (sources | {"grad": "gradient"}).items():
        if hasattr(torch.Tensor, name):
            _torch.install_attribute(wrapper_class, name, source)
    _torch.install_operators(wrapper_class)


def _operations() -> list[tuple[_Function | None, str]]:
    """Each function of torch that is an operation of the table, with the operation's name."""
    handled = {"to", "where"}  # their methods take the arguments in another order than the operation
    names = {name: name for name in _torch.operation_names() if name not in handled} | _ALIASES
    found = [(getattr(space, name, None), operation) for name, operation in names.items() for space in _NAMESPACES]
    functional = [(getattr(torch.nn.functional, name), name) for name in _FUNCTIONAL]
    return [*found, *functional, (torch.linalg.vector_norm, "linalg_vector_norm"), (torch.where, "where")]
