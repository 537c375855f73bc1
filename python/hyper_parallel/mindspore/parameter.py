"""Parameters of a cell that lie on a mesh.

MindSpore's optimizers and ``value_and_grad`` want Parameters with memory of their own, and a DTensor has none that they
could mistake for the whole. So the parameter is two objects: the attribute of the cell is the DTensor, which
``construct`` computes with; the Parameter that the cell lists is this rank's share, which the optimizer steps. They
share memory. Gradients and optimizer state are of the share's size; moments, which optimizers clone from their
parameters, are shares of DTensors too.
"""

from __future__ import annotations

import gc
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

import mindspore
from mindspore import nn, ops
from mindspore.experimental import optim

from hyper_parallel.errors import ArgumentTypeError, FailedPreconditionError, InvalidArgumentError
from hyper_parallel.mindspore import _frames
from hyper_parallel.mindspore._shares import EmptyParameterShare, TensorShare
from hyper_parallel.mindspore.dtensor import DTensor, distribute_tensor

if TYPE_CHECKING:
    from hyper_parallel.device_mesh import DeviceMesh
    from hyper_parallel.placement import Placement

__all__ = ["LocalParameter", "distribute_parameter", "set_parameter"]

# Parameter(...) makes objects of a class of its own, which is not Parameter.
_parameter_class = type(mindspore.Parameter(mindspore.Tensor(0.0), name="any"))

# What MindSpore notes about a parameter beside its name.
_NOTES = (
    "requires_grad",
    "layerwise_parallel",
    "parallel_optimizer",
    "parallel_optimizer_comm_recompute",
    "comm_fusion",
    "requires_aggr",
)

_OPTIMIZERS = (nn.Optimizer, optim.Optimizer)


class LocalParameter(_parameter_class):  # type: ignore[misc,valid-type]  # MindSpore has no types
    """This rank's share of a distributed parameter, as the cell lists it: what optimizers step.

    Where the share is empty it is a single zero that nobody reads, since MindSpore's optimizers take no Parameter
    without elements.
    """

    @property
    def dtensor(self) -> DTensor:
        """The parameter that it is a share of."""
        return cast("DTensor", self._dtensor)

    def clone(self, init: object = "same") -> LocalParameter:
        """As ``mindspore.Parameter.clone``: a share of another DTensor of the same layout and shape.

        Optimizers make their moments so, and a checkpoint stores what is a share as the DTensor that it belongs to.

        Args:
            init: The clone's values: "same" or another initializer's name, a number, or a tensor of the share's shape.
        """
        return _share_of(super().clone(init), self.dtensor, tuple(self.dtensor._local_tensor.shape))


def distribute_parameter(
    cell: nn.Cell,
    name: str,
    device_mesh: DeviceMesh,
    placements: Sequence[Placement],
    src_data_rank: int | None = None,
) -> DTensor:
    """Spreads a parameter of a cell over a mesh, in place.

    Afterwards ``cell.<name>`` is a DTensor, and the Parameter that ``cell.trainable_params()`` lists under its old name
    is this rank's share. Other cells that hold the same parameter get the same DTensor. They are looked for among what
    Python's garbage collector knows, which is all but what was put away by ``gc.freeze``. Make optimizers afterwards:
    one that holds the parameter already would go on with the old one.

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
        FailedPreconditionError: An optimizer holds the parameter.
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
    places = _places_without_optimizers(old, name)
    whole = mindspore.Tensor.from_numpy(old.asnumpy().copy())
    return set_parameter([(cell, name), *places], distribute_tensor(whole, device_mesh, placements, src_data_rank))


def set_parameter(places: Sequence[tuple[nn.Cell, str]], value: DTensor) -> DTensor:
    """Puts a DTensor in the place of a parameter, which gives its full name and what MindSpore notes about it.

    Args:
        places: The cells that hold the parameter, several where it is tied, and its attribute in each.
        value: The DTensor; its local tensor is taken over.

    Returns:
        The DTensor that the attributes are from now on.
    """
    first, attribute = places[0]
    old = first._params[attribute]
    local = value._local_tensor
    listed = mindspore.Parameter(ops.zeros((1,), local.dtype) if local.size == 0 else local, name=old.name)
    for note in _NOTES:
        setattr(listed, note, getattr(old, note))
    share = _share_of(listed, value, tuple(local.shape))
    for cell, name in places:
        cell.insert_param_to_cell(name, share)
        # Found before the cell's parameters are asked.
        cell.__dict__[name] = share.dtensor
    return share.dtensor


def _share_of(share: mindspore.Parameter, like: DTensor, local_shape: tuple[int, ...]) -> LocalParameter:
    """Makes a Parameter this rank's share of a new DTensor, of the layout and the shape of ``like``.

    Args:
        share: The local tensor, or where that has no elements a single zero.
        like: Says which part of what it is.
        local_shape: Of its local tensor.
    """
    share.__class__ = LocalParameter
    held: Any = EmptyParameterShare(share, local_shape) if 0 in local_shape else TensorShare(share)
    share._dtensor = _frames.make(held, like.layout, like.shape)
    return cast("LocalParameter", share)


def _places_without_optimizers(parameter: mindspore.Parameter, name: str) -> list[tuple[nn.Cell, str]]:
    """As ``_places_of``.

    Raises:
        FailedPreconditionError: An optimizer is among them.
    """
    places = list(_places_of(parameter))
    if any(isinstance(holder, _OPTIMIZERS) for holder, _ in places):
        # It may be one that nobody can reach any more.
        places.clear()
        gc.collect()
        places = list(_places_of(parameter))
    for holder, _ in places:
        if isinstance(holder, _OPTIMIZERS):
            raise FailedPreconditionError(
                f"distribute_parameter: parameter {name!r} is held by the optimizer {type(holder).__name__} already, "
                "which would go on with the undistributed one; make the optimizer afterwards"
            )
    return places


def _places_of(parameter: mindspore.Parameter) -> Iterator[tuple[nn.Cell, str]]:
    """The cells that hold a parameter, with its attribute in each; also cells that nobody can reach any more."""
    for table in gc.get_referrers(parameter):
        if not isinstance(table, OrderedDict):
            continue
        for cell in _cells_with(table):
            yield from ((cell, name) for name, held in table.items() if held is parameter)


def _cells_with(table: OrderedDict[str, Any]) -> Iterator[nn.Cell]:
    """The cells whose parameters are this table; what refers to it is a cell's dict of attributes, or the cell."""
    for owner in gc.get_referrers(table):
        found = [owner] if isinstance(owner, nn.Cell) else []
        if isinstance(owner, dict) and owner.get("_params") is table:
            found = [cell for cell in gc.get_referrers(owner) if isinstance(cell, nn.Cell)]
        yield from (cell for cell in found if cell.__dict__.get("_params") is table)
