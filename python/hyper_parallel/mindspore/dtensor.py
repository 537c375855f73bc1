"""DTensor: a mindspore.Tensor of logical shape whose elements lie on the ranks of a mesh."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn, cast

import mindspore

from hyper_parallel import _core, platform
from hyper_parallel.device_mesh import DeviceMesh
from hyper_parallel.errors import UnimplementedError
from hyper_parallel.layout import Layout
from hyper_parallel.mindspore import _frames, _methods
from hyper_parallel.mindspore._arguments import layout_on, plain_tensor, shape_of
from hyper_parallel.mindspore._distribute import distribute_tensor
from hyper_parallel.mindspore._facts import TensorFacts
from hyper_parallel.mindspore._graph import check_mode
from hyper_parallel.mindspore._group_check import check_mesh_together
from hyper_parallel.mindspore._local_shape import whole_of
from hyper_parallel.mindspore._redistribute import behind_share_node, redistribute_local
from hyper_parallel.mindspore._rows import row_of
from hyper_parallel.mindspore._shares import TensorShare
from hyper_parallel.mindspore._texts import describe, placements_text
from hyper_parallel.placement import Partial, Placement, Replicate

__all__ = ["DTensor", "distribute_tensor"]

_Shape = Sequence[int]
_Placements = Sequence[Placement]


class DTensor(TensorFacts):
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
        local = plain_tensor(local_tensor, "from_local: local_tensor")
        mesh = _frames.check_mesh(device_mesh, "from_local: device_mesh")
        sizes = None if shape is None else shape_of(shape, "shape")
        layout, whole = whole_of(local, mesh, placements, sizes)
        object.__setattr__(self, "_share", TensorShare(behind_share_node(local, layout, whole)))
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
        target = layout_on(self.device_mesh, [Replicate()] * self.device_mesh.ndim)
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
        target = layout_on(mesh, placements).folded(self.ndim)
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

    # --- rows and copies --------------------------------------------------------------------------------------------

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
        return row_of(self, index)

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


_frames.set_class(DTensor)
_methods.install(DTensor)
