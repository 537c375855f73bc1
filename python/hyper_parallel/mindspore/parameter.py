"""Parameters of a cell that lie on a mesh.

MindSpore's optimizers and ``value_and_grad`` want Parameters with memory of their own, and a DTensor has none that they
could mistake for the whole. So the parameter is two objects: the attribute of the cell is the DTensor, which
``construct`` computes with; the Parameter that the cell lists is this rank's share, which the optimizer steps. They
share memory. Gradients and optimizer state are of the share's size.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import mindspore
from mindspore import nn, ops

from hyper_parallel.errors import ArgumentTypeError, InvalidArgumentError
from hyper_parallel.mindspore import _frames
from hyper_parallel.mindspore._shares import EmptyParameterShare, TensorShare
from hyper_parallel.mindspore.dtensor import DTensor, distribute_tensor

if TYPE_CHECKING:
    from hyper_parallel.device_mesh import DeviceMesh
    from hyper_parallel.placement import Placement

__all__ = ["LocalParameter", "distribute_parameter", "set_parameter"]

# Parameter(...) makes objects of a class of its own, which is not Parameter.
_parameter_class = type(mindspore.Parameter(mindspore.Tensor(0.0), name="any"))


class LocalParameter(_parameter_class):  # type: ignore[misc,valid-type]  # MindSpore has no types
    """This rank's share of a distributed parameter, as the cell lists it: what optimizers step.

    Where the share is empty it is a single zero that nobody reads, since MindSpore's optimizers take no Parameter
    without elements.
    """

    @property
    def dtensor(self) -> DTensor:
        """The parameter that it is a share of."""
        return cast("DTensor", self._dtensor)


def distribute_parameter(
    cell: nn.Cell,
    name: str,
    device_mesh: DeviceMesh,
    placements: Sequence[Placement],
    src_data_rank: int | None = None,
) -> DTensor:
    """Spreads a parameter of a cell over a mesh, in place.

    Afterwards ``cell.<name>`` is a DTensor, and the Parameter that ``cell.trainable_params()`` lists under its old name
    is this rank's share. Make optimizers afterwards: they hold the old parameter. A parameter that other cells hold too
    stays undistributed there; ``shard`` keeps tied ones tied.

    Args:
        cell: The cell that has the parameter itself, not one inside it.
        name: The attribute.
        device_mesh: The mesh.
        placements: A placement for each mesh dim; no Partial.
        src_data_rank: Whose values count, as for ``distribute_tensor``.

    Returns:
        The DTensor.

    Raises:
        ArgumentTypeError: ``cell`` is no cell.
        InvalidArgumentError: It has no such parameter, or one that is distributed already; placements that do not fit.
        OutOfRangeError: As ``distribute_tensor``.

    Example:
        >>> mesh = init_device_mesh("cpu", (1,), mesh_dim_names=("fsdp",))
        >>> net = mindspore.nn.Dense(4, 2)
        >>> distribute_parameter(net, "weight", mesh, [RaggedShard((0,), (1,))]).shape
        (2, 4)
        >>> [(p.name, p.shape) for p in net.trainable_params()]
        [('weight', (8,)), ('bias', (2,))]
    """
    if not isinstance(cell, nn.Cell):
        raise ArgumentTypeError(f"distribute_parameter: cell is {cell!r} but must be a mindspore.nn.Cell")
    old = cell._params.get(name)
    if old is None:
        raise InvalidArgumentError(
            f"distribute_parameter: {type(cell).__name__} has no parameter {name!r}; it has {list(cell._params)}"
        )
    if isinstance(old, LocalParameter):
        raise InvalidArgumentError(f"distribute_parameter: parameter {name!r} is distributed already")
    whole = mindspore.Tensor.from_numpy(old.asnumpy().copy())
    return set_parameter([(cell, name)], distribute_tensor(whole, device_mesh, placements, src_data_rank))


def set_parameter(places: Sequence[tuple[nn.Cell, str]], value: DTensor) -> DTensor:
    """Puts a DTensor in the place of a parameter, which gives its full name and whether it is trained.

    Args:
        places: The cells that hold the parameter, several where it is tied, and its attribute in each.
        value: The DTensor; its local tensor is taken over.

    Returns:
        The DTensor that the attributes are from now on.
    """
    first, attribute = places[0]
    old = first._params[attribute]
    local = value._local_tensor
    empty = local.size == 0
    share = mindspore.Parameter(
        ops.zeros((1,), local.dtype) if empty else local, name=old.name, requires_grad=old.requires_grad
    )
    share.__class__ = LocalParameter
    held: Any = EmptyParameterShare(share, tuple(local.shape)) if empty else TensorShare(share)
    made: DTensor = _frames.make(held, value.layout, value.shape)
    share._dtensor = made
    for cell, name in places:
        cell.insert_param_to_cell(name, share)
        # Found before the cell's parameters are asked.
        cell.__dict__[name] = made
    return made
