"""The operations of DTensors as functions: MindSpore's own raise on a DTensor.

Elementwise, as the methods and operators are. A function with '_' behind changes its first operand and returns it.
Operands behind the first may be numbers, plain tensors of one element, or DTensors that lie as the first; beside a
ragged one also Replicate ones of the same shape, of which each rank takes its part.

The functions raise:

* ``InvalidArgumentError``: operands that do not meet, or a pending reduction that the operation does not commute with;
* ``ArgumentTypeError``: an operand or dtype that the operation does not take;
* ``UnimplementedError``: operands of other shapes or layouts;
* ``FailedPreconditionError``: a write into a leaf of the graph that is being recorded.

Example:
    >>> from hyper_parallel.mindspore import functional
    >>> mesh = init_device_mesh("cpu", (1,), mesh_dim_names=("fsdp",))
    >>> x = distribute_tensor(mindspore.Tensor([-1.0, 2.0]), mesh, [RaggedShard((0,), (1,))])
    >>> functional.relu(x).full_tensor().asnumpy().tolist()
    [0.0, 2.0]
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from hyper_parallel.mindspore._call import call
from hyper_parallel.mindspore._operations import OPERATIONS, Operation

__all__ = [name for name in sorted(OPERATIONS) if not name.startswith("_")]


def _function(operation: Operation) -> Callable[..., Any]:
    function = functools.partial(call, operation.name)
    functools.update_wrapper(function, call, assigned=("__module__",), updated=())
    function.__doc__ = f"{operation.name}({', '.join((*operation.operands, *operation.options))}) on DTensors."
    return function


globals().update({name: _function(OPERATIONS[name]) for name in __all__})
