"""DTensor: a mindspore.Tensor of logical shape whose elements lie on the ranks of a mesh."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any, NoReturn, cast

import mindspore
import numpy as np
from mindspore import ops

from hyper_parallel import _core, platform
from hyper_parallel.device_mesh import DeviceMesh
from hyper_parallel.errors import (
    ArgumentTypeError,
    FailedPreconditionError,
    InvalidArgumentError,
    OutOfRangeError,
    UnimplementedError,
)
from hyper_parallel.layout import Layout
from hyper_parallel.mindspore import _frames, _methods
from hyper_parallel.mindspore._distribute import local_part
from hyper_parallel.mindspore._graph import check_mode
from hyper_parallel.mindspore._group_check import check_mesh_together
from hyper_parallel.mindspore._host import dtype_name
from hyper_parallel.mindspore._local_shape import agreed_shape
from hyper_parallel.mindspore._redistribute import redistribute_local
from hyper_parallel.mindspore._shares import RowShare, TensorShare
from hyper_parallel.mindspore._texts import describe, placements_text
from hyper_parallel.placement import Partial, Placement, RaggedShard, Replicate, Shard

__all__ = ["DTensor", "distribute_tensor"]

_Shape = Sequence[int]
_Placements = Sequence[Placement]


class DTensor(mindspore.Tensor):  # type: ignore[misc]  # MindSpore has no types
    """A tensor of logical shape ``shape`` spread over the ranks of a mesh, a placement for each mesh dim.

    Each rank holds its part as an ordinary tensor: with ``RaggedShard`` a flat run of the row-major tensor, else the
    block of its coordinate; a rank outside the mesh holds no elements and enters no collective. Methods and operators
    of a DTensor, and the functions of ``hyper_parallel.mindspore.functional``, run on these parts or raise.

    MindSpore's own functions (``mindspore.ops``, ``mindspore.mint``, ``nn`` cells without a plan of ``shard``) raise on
    a DTensor: it has no tensor of MindSpore's own inside that they could take for the whole. The text of that error is
    MindSpore's, "The pointer[stub_] is null.".

    ``mindspore.value_and_grad`` differentiates a function that makes or uses DTensors inside. Inside, a program on
    DTensors has the gradients of the same program on whole tensors; leaving by :meth:`to_local` or
    :meth:`full_tensor`, the losses of the ranks are summed.

    Args:
        local_tensor: This rank's part; shared, not copied.
        device_mesh: The mesh.
        placements: A placement for each mesh dim.
        shape: The logical shape. Mandatory with ``RaggedShard``; without it and with ``Shard`` the ranks tell each
            other their local sizes.

    Raises:
        InvalidArgumentError: The placements do not make a layout or do not fit the shape; a ragged part that is not
            1-D, contiguous and of this rank's size; sizes that break the rule of ``Shard``.
        OutOfRangeError: A ``Shard`` dim outside the tensor's dims.
        ArgumentTypeError: An argument of another type.
        UnimplementedError: In graph mode.

    Example:
        >>> mesh = init_device_mesh("cpu", (1,), mesh_dim_names=("fsdp",))
        >>> x = DTensor(mindspore.ops.arange(6.0), mesh, [RaggedShard((0,), (1,))], shape=(3, 2))
        >>> (x * 2).full_tensor().asnumpy().tolist()
        [[0.0, 2.0], [4.0, 6.0], [8.0, 10.0]]
    """

    # numpy then leaves `numpy_scalar * x` to us.
    __array_ufunc__ = None

    # A tensor is equal to itself alone as a key.
    __hash__ = object.__hash__

    def __new__(cls, *args: object, **kwargs: object) -> DTensor:
        """An object without MindSpore's half: `__init__` of Tensor, which would make it, never runs."""
        return cast("DTensor", mindspore.Tensor.__new__(cls))

    def __init__(
        self,
        local_tensor: mindspore.Tensor,
        device_mesh: DeviceMesh,
        placements: _Placements,
        shape: _Shape | None = None,
    ) -> None:
        check_mode("from_local")
        local = _plain_tensor(local_tensor, "from_local: local_tensor")
        mesh = _frames.check_mesh(device_mesh, "from_local: device_mesh")
        layout, whole = _checked_layout(local, mesh, placements, shape)
        object.__setattr__(self, "_share", TensorShare(local))
        object.__setattr__(self, "_layout", layout)
        object.__setattr__(self, "_logical_shape", whole)

    def __init_subclass__(cls) -> None:
        raise UnimplementedError(
            f"class {cls.__name__} cannot be made from DTensor: results of operations would not be of that class"
        )

    @staticmethod
    def from_local(
        local_tensor: mindspore.Tensor,
        device_mesh: DeviceMesh,
        placements: _Placements,
        shape: _Shape | None = None,
    ) -> DTensor:
        """Makes a DTensor of this rank's part; the same as ``DTensor(...)``.

        Example:
            >>> mesh = init_device_mesh("cpu", (1,), mesh_dim_names=("fsdp",))
            >>> DTensor.from_local(mindspore.ops.ones((2, 3)), mesh, [Shard(0)], shape=(2, 3)).shape
            (2, 3)
        """
        return DTensor(local_tensor, device_mesh, placements, shape)

    @staticmethod
    def _factory(*args: object, **kwargs: object) -> NoReturn:
        """DTensors have no factories.

        Raises:
            UnimplementedError: Always; a random one would give equal shares for equal seeds.
        """
        raise UnimplementedError(
            "DTensor has no factories (empty, full, ones, zeros, rand, randn): "
            "make a plain tensor and distribute it with distribute_tensor(...)"
        )

    empty = full = ones = zeros = rand = randn = _factory

    # --- leaving and laying out otherwise ---------------------------------------------------------------------------

    def to_local(self, grad_placements: _Placements | None = None) -> mindspore.Tensor:
        """This rank's part for use outside, differentiable, without communication.

        Args:
            grad_placements: How the gradients that come back lie. By default they are summed over the ranks on
                Replicate dims, as outside the ranks may compute different losses; ``Replicate()`` says that all ranks
                compute the same loss.

        Returns:
            A flat tensor of ``local_numel`` elements with ``RaggedShard``, else this rank's block. It shares storage,
            but not where its gradients must be summed.

        Raises:
            InvalidArgumentError: grad_placements that are not as many as mesh dims or do not fit the placements.

        Example:
            >>> mesh = init_device_mesh("cpu", (1,), mesh_dim_names=("fsdp",))
            >>> distribute_tensor(mindspore.ops.ones((4,)), mesh, [Shard(0)]).to_local().asnumpy().tolist()
            [1.0, 1.0, 1.0, 1.0]
        """
        return self._left(self._layout, grad_placements)

    def full_tensor(self, grad_placements: _Placements | None = None) -> mindspore.Tensor:
        """The whole tensor on every rank of the mesh, differentiable; outside the mesh no elements.

        Args:
            grad_placements: As for :meth:`to_local`; by default the losses of the ranks are summed.

        Raises:
            InvalidArgumentError: grad_placements that do not fit.
            FailedPreconditionError: Communication failed.

        Example:
            >>> mesh = init_device_mesh("cpu", (1,), mesh_dim_names=("fsdp",))
            >>> x = distribute_tensor(mindspore.ops.arange(4), mesh, [RaggedShard((0,), (1,))])
            >>> x.full_tensor().asnumpy().tolist()
            [0, 1, 2, 3]
        """
        target = _layout(self.device_mesh, [Replicate()] * self.device_mesh.ndim)
        return self._left(target, grad_placements, checked_as="full_tensor")

    def _left(
        self, target: Layout, grad_placements: _Placements | None, checked_as: str | None = None
    ) -> mindspore.Tensor:
        incoming = _core.outside_gradient_layout(target, grad_placements, self.ndim)
        local = self._local_tensor
        if not _frames.is_member(self):
            return local
        if checked_as is not None:
            check_mesh_together(
                self.device_mesh, checked_as, lambda: None, lambda: describe(self._layout, self.shape, local)
            )
        move = _core.Redistribution(self._layout, target, incoming, self.shape)
        return redistribute_local(local, move)

    def redistribute(
        self,
        device_mesh: DeviceMesh | _Placements | None = None,
        placements: _Placements | None = None,
    ) -> DTensor:
        """The same tensor laid out otherwise, differentiable.

        Every pair of layouts takes the least bytes that any algorithm could receive, but those with Partial.

        Args:
            device_mesh: The mesh to go to, over the same ranks; this tensor's own by default.
            placements: A placement for each mesh dim. May be given alone: ``x.redistribute([Replicate()])``.

        Returns:
            A DTensor of the same shape; this very object for an equal layout, without communication.

        Raises:
            InvalidArgumentError: Placements that do not fit, or that hold a Partial which this tensor is not.
            FailedPreconditionError: Communication failed.

        Example:
            >>> mesh = init_device_mesh("cpu", (1,), mesh_dim_names=("fsdp",))
            >>> x = distribute_tensor(mindspore.ops.ones((6, 4)), mesh, [RaggedShard((0,), (1,))])
            >>> x.redistribute(mesh, [Shard(0)]).placements
            (Shard(dim=0),)
        """
        if placements is None and isinstance(device_mesh, list | tuple):
            return self._redistributed(self.device_mesh, device_mesh)
        mesh = self.device_mesh if device_mesh is None else _frames.check_mesh(device_mesh, "redistribute: device_mesh")
        return self._redistributed(mesh, self.placements if placements is None else placements)

    def _redistributed(self, mesh: DeviceMesh, placements: _Placements) -> DTensor:
        target = _layout(mesh, placements).folded(self.ndim)
        if target == self._layout:
            return self
        local = self._local_tensor
        # Raises what cannot be done, on every rank and before any communication.
        _core.plan_redistribution(self._layout, target, self.shape, platform.get_rank())
        if not _frames.is_member(self):
            return cast("DTensor", _frames.make(TensorShare(local), target, self.shape))
        check_mesh_together(
            self.device_mesh,
            "redistribute",
            lambda: None,
            lambda: f"{describe(self._layout, self.shape, local)} to {placements_text(target)}",
        )
        move = _core.Redistribution(self._layout, target, _core.gradient_layout(target), self.shape)
        return cast("DTensor", _frames.make(TensorShare(redistribute_local(local, move)), target, self.shape))

    def reduce_partial(self) -> DTensor:
        """The tensor with every pending reduction done: Partial dims become Replicate.

        Example:
            >>> mesh = init_device_mesh("cpu", (1,), mesh_dim_names=("dp",))
            >>> DTensor(mindspore.ops.ones((2,)), mesh, [Partial()]).reduce_partial().placements
            (Replicate(),)
        """
        reduced = [Replicate() if isinstance(placement, Partial) else placement for placement in self.placements]
        return self.redistribute(reduced)

    # --- rows and values --------------------------------------------------------------------------------------------

    def __getitem__(self, index: int) -> DTensor:
        """Row ``index`` of dim 0 of a tensor with one ``Shard(0)``: a view of it, on its owner; elsewhere no elements.

        Raises:
            UnimplementedError: Another placement, or a tensor of one dim.
            OutOfRangeError: No such row, or no dim at all.
            ArgumentTypeError: ``index`` is no int.

        Example:
            >>> mesh = init_device_mesh("cpu", (1,), mesh_dim_names=("fsdp",))
            >>> x = distribute_tensor(mindspore.ops.ones((2, 3)), mesh, [Shard(0)])
            >>> _ = x[1].zero_()
            >>> x.full_tensor().asnumpy().tolist()
            [[1.0, 1.0, 1.0], [0.0, 0.0, 0.0]]
        """
        row = _integer(index, "x[i]: i")
        mesh_dim = _sharded_dim(self)
        if not -self.shape[0] <= row < self.shape[0]:
            raise OutOfRangeError(f"x[i]: index {row} is out of range for {self.shape[0]} rows")
        row %= self.shape[0]
        check_mesh_together(
            self.device_mesh,
            "x[i]",
            lambda: None,
            lambda: f"{row} of {describe(self._layout, self.shape, self._local_tensor)}",
        )
        ranks = self.device_mesh.shape[mesh_dim]
        owner, local_row = divmod(row, -(-self.shape[0] // ranks))
        placements: list[Placement] = [Replicate()] * self.device_mesh.ndim
        placements[mesh_dim] = RaggedShard((0,), tuple(int(rank == owner) for rank in range(ranks)))
        coordinate = self.device_mesh.get_coordinate()
        owns = coordinate is not None and coordinate[mesh_dim] == owner
        share = RowShare(self._share, local_row if owns else None)
        return cast("DTensor", _frames.make(share, _layout(self.device_mesh, placements), self.shape[1:]))

    def item(self) -> bool | int | float | complex:
        """The value of a tensor of one element, the same on every rank of the mesh, which must all call.

        Raises:
            InvalidArgumentError: The tensor has another number of elements.
            FailedPreconditionError: This rank is outside the mesh.
        """
        if self.size != 1:
            raise InvalidArgumentError(f"item takes a tensor of one element but this one has shape {self.shape}")
        if not _frames.is_member(self):
            raise FailedPreconditionError(
                f"item: rank {platform.get_rank()} is outside {self.device_mesh!r} and has no value"
            )
        value: bool | int | float | complex = ops.stop_gradient(self.full_tensor()).asnumpy().reshape(-1)[0].item()
        return value

    def __bool__(self) -> bool:
        return bool(self.item())

    def __float__(self) -> float:
        return float(cast("float", self.item()))

    def __int__(self) -> int:
        return int(cast("int", self.item()))

    def __len__(self) -> int:
        if not self.shape:
            raise ArgumentTypeError("len() of a 0-D DTensor")
        return self.shape[0]

    # --- facts ------------------------------------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        """The logical shape."""
        return cast("tuple[int, ...]", self._logical_shape)

    @property
    def dtype(self) -> mindspore.Type:
        """The dtype of every element."""
        return self._local_tensor.dtype

    @property
    def ndim(self) -> int:
        """The number of dims of the logical shape."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements of the whole tensor."""
        return math.prod(self.shape)

    def dim(self) -> int:
        """The number of dims of the logical shape."""
        return self.ndim

    def numel(self) -> int:
        """The number of elements of the whole tensor."""
        return self.size

    @property
    def placements(self) -> tuple[Placement, ...]:
        """A placement for each mesh dim."""
        return self.layout.placements

    @property
    def device_mesh(self) -> DeviceMesh:
        """The mesh that the tensor lies on."""
        return self.layout.mesh

    @property
    def layout(self) -> Layout:
        """Mesh and placements as one value."""
        return cast("Layout", self._layout)

    @property
    def local_numel(self) -> int:
        """The number of elements that this rank holds."""
        return int(self._local_tensor.size)

    @property
    def _local_tensor(self) -> mindspore.Tensor:
        """This rank's storage, inside the graph."""
        return self._share.read()

    @property
    def _global_shape(self) -> tuple[int, ...]:
        """The logical shape as a plain tuple."""
        return self.shape

    def __repr__(self) -> str:
        local = ops.stop_gradient(self._local_tensor)
        where = f"rank={platform.get_rank()}{'' if _frames.is_member(self) else ' (outside the mesh)'}"
        return (
            f"DTensor({np.array2string(local.asnumpy(), separator=', ')}, shape={self.shape}, dtype={self.dtype}, "
            f"placements={self.placements}, mesh={self.device_mesh}, local_shape={tuple(local.shape)}, {where})"
        )

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if spec else repr(self)

    def __copy__(self) -> DTensor:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> DTensor:
        """A copy in memory of its own. The DTensor of a cell's parameter raises: the copy would not be the parameter
        of the copied cell.

        Raises:
            UnimplementedError: As said.
        """
        if isinstance(self._local_tensor, mindspore.Parameter) or self._share.__class__ is not TensorShare:
            raise UnimplementedError(
                "a DTensor that is a cell's parameter, or a row, cannot be deep-copied; copy the cell before "
                "distributing its parameters, or clone() the DTensor"
            )
        made = _frames.make(TensorShare(self._local_tensor.copy()), self._layout, self.shape)
        memo[id(self)] = made
        return cast("DTensor", made)

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        """Raises: save a DTensor by ``hyper_parallel.checkpoint``.

        Raises:
            UnimplementedError: Always.
        """
        raise UnimplementedError(
            "a DTensor cannot be pickled on MindSpore; save it with hyper_parallel.checkpoint.save"
        )


def distribute_tensor(
    tensor: mindspore.Tensor,
    device_mesh: DeviceMesh,
    placements: _Placements,
    src_data_rank: int | None = None,
) -> DTensor:
    """Spreads a whole tensor over a mesh.

    Args:
        tensor: The whole tensor, of any strides; shape and dtype agree on all ranks.
        device_mesh: The mesh.
        placements: A placement for each mesh dim; no Partial.
        src_data_rank: Whose values count. None: every rank holds the same tensor and takes its part, without
            communication. An int counts inside the group of the ragged mesh dim, for each coordinate of the Replicate
            dims; without RaggedShard inside the group of every mesh dim, as if dim by dim.

    Returns:
        A DTensor with storage of its own; a constant to a graph that is being recorded. What shall be trained becomes
        the parameter of a cell: see ``distribute_parameter`` and ``shard``.

    Raises:
        InvalidArgumentError: Placements that do not fit or hold Partial.
        OutOfRangeError: src_data_rank outside the group.
        ArgumentTypeError: An argument of another type.

    Example:
        >>> mesh = init_device_mesh("cpu", (1,), mesh_dim_names=("fsdp",))
        >>> x = distribute_tensor(mindspore.ops.ones((6, 4)), mesh, [RaggedShard((0, 1), (1,))], src_data_rank=0)
        >>> x.shape, x.local_numel
        ((6, 4), 24)
    """
    check_mode("distribute_tensor")
    whole = _plain_tensor(tensor, "distribute_tensor: tensor")
    mesh = _frames.check_mesh(device_mesh, "distribute_tensor: device_mesh")
    source = None if src_data_rank is None else _integer(src_data_rank, "src_data_rank")
    layout = _layout(mesh, placements).folded(whole.ndim)
    layout.check_shape(tuple(whole.shape))
    local = local_part(whole, layout, source, platform.get_rank())
    return cast("DTensor", _frames.make(TensorShare(local), layout, tuple(whole.shape)))


def _checked_layout(
    local: mindspore.Tensor, mesh: DeviceMesh, placements: _Placements, shape: _Shape | None
) -> tuple[Layout, tuple[int, ...]]:
    """The layout and logical shape of the tensor of which ``local`` is this rank's part."""
    layout = _layout(mesh, placements)
    rank = platform.get_rank()
    if shape is None and layout.is_ragged:
        raise InvalidArgumentError(
            "from_local: shape is missing but with RaggedShard the logical shape cannot be told from the flat local "
            "tensor"
        )
    if shape is None:
        # Telling each other the local sizes is communication: what the ranks are about to do is compared before.
        facts = f"no shape, {local.ndim} dims, {local.dtype}, {placements_text(layout)}"
        check_mesh_together(mesh, "from_local", lambda: None, lambda: facts)
        whole = agreed_shape(local, layout, rank)
    else:
        whole = tuple(shape)
    folded = layout.folded(len(whole))
    folded.check_shape(whole)
    check_mesh_together(
        mesh,
        "from_local",
        lambda: _core.check_local(folded, whole, rank, tuple(local.shape), tuple(local.stride())),
        lambda: describe(folded, whole, local),
    )
    return folded, tuple(map(int, whole))


def _layout(mesh: DeviceMesh, placements: _Placements) -> Layout:
    """The layout on this mesh object."""
    return Layout._from_core(_core.Layout(mesh, placements), mesh)


def _plain_tensor(value: object, what: str) -> mindspore.Tensor:
    if isinstance(value, DTensor):
        raise ArgumentTypeError(f"{what} is a DTensor but must be a plain tensor; use redistribute()")
    if not isinstance(value, mindspore.Tensor):
        raise ArgumentTypeError(f"{what} must be a mindspore.Tensor, not {value!r}")
    dtype_name(value.dtype)  # raises for what cannot be moved
    return value


def _integer(value: object, what: str) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__") or isinstance(value, mindspore.Tensor):
        raise ArgumentTypeError(f"{what} is {value!r} but must be an int")
    return operator.index(value)


def _sharded_dim(tensor: DTensor) -> int:
    """The mesh dim of the one Shard(0) of a tensor whose rows can be taken."""
    if tensor.ndim == 1:
        raise UnimplementedError(
            "x[i] of a 1-D DTensor is not supported; redistribute it to Replicate(), or take to_local()"
        )
    if tensor.ndim == 0:
        raise OutOfRangeError("x[i] of a 0-D DTensor: there is no dim to index")
    sharded = [dim for dim, placement in enumerate(tensor.placements) if placement == Shard(0)]
    others = [placement for placement in tensor.placements if not placement.is_replicate()]
    if len(others) > 1 or len(sharded) != len(others):
        raise UnimplementedError(
            f"x[i] takes a DTensor with one Shard(0) and Replicate() beside, not {placements_text(tensor.layout)}; "
            "redistribute it first"
        )
    if not sharded:
        raise UnimplementedError(
            f"x[i] takes a DTensor with one Shard(0), not {placements_text(tensor.layout)}; take to_local()[i] of a "
            "replicated one"
        )
    return sharded[0]


_frames.set_class(DTensor)
_methods.install(DTensor)
