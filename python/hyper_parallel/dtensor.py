"""DTensor: a torch.Tensor of logical shape whose elements lie on the ranks of a mesh."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn, cast

import torch

from hyper_parallel import _dispatch, _functions, _torch
from hyper_parallel.errors import UnimplementedError
from hyper_parallel.placement import Partial, Placement, Replicate

if TYPE_CHECKING:
    from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex
    from torch.distributed.checkpoint.planner import WriteItem

    from hyper_parallel.device_mesh import DeviceMesh
    from hyper_parallel.layout import Layout

__all__ = ["DTensor", "distribute_tensor", "from_torch_dtensor", "to_torch_dtensor"]

_Shape = Sequence[int]
_Placements = Sequence[Placement]
_Operand = torch.Tensor | bool | int | float | complex


class DTensor(torch.Tensor):
    """A tensor of logical shape ``shape`` spread over the ranks of a mesh, a placement for each mesh dim.

    Each rank holds its part as an ordinary tensor: with ``RaggedShard`` a flat run of the row-major tensor, else the
    block of its coordinate; a rank outside the mesh holds no elements and enters no collective. Every operation of
    torch on a DTensor runs on these parts or raises: nothing falls back to another placement.

    The autograd graph lives on the local parts. Inside, a program on DTensors has the gradients of the same program on
    whole tensors; leaving by :meth:`to_local` or :meth:`full_tensor`, the losses of the ranks are summed.

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

    Example:
        >>> mesh = DeviceMesh((1,), ("fsdp",))
        >>> x = DTensor(torch.arange(6.0), mesh, [RaggedShard((0,), (1,))], shape=(3, 2))
        >>> (x * 2).full_tensor()
        tensor([[ 0.,  2.],
                [ 4.,  6.],
                [ 8., 10.]])
    """

    # A C function: no Python frame of ours runs between an operation and its result.
    __torch_function__ = _torch.torch_function  # type: ignore[assignment]

    # A tensor is equal to itself alone as a key; Tensor.__hash__ would take the way of an operation.
    __hash__ = object.__hash__

    @staticmethod
    def __new__(
        cls: type[DTensor],
        local_tensor: torch.Tensor,
        device_mesh: DeviceMesh,
        placements: _Placements,
        shape: _Shape | None = None,
    ) -> DTensor:
        return _torch.from_local(local_tensor, device_mesh, placements, shape)

    def __init__(
        self,
        local_tensor: torch.Tensor,
        device_mesh: DeviceMesh,
        placements: _Placements,
        shape: _Shape | None = None,
    ) -> None:
        """Has nothing left to do: `__new__` has made the tensor."""

    if TYPE_CHECKING:
        # What torch's stub declares to be a Tensor and is a DTensor here.
        def __abs__(self) -> DTensor: ...
        def __add__(self, other: _Operand) -> DTensor: ...
        def __eq__(self, other: object) -> DTensor: ...  # type: ignore[override]
        def __ge__(self, other: _Operand) -> DTensor: ...
        def __getitem__(self, index: int) -> DTensor: ...  # type: ignore[override]
        def __gt__(self, other: _Operand) -> DTensor: ...
        def __iadd__(self, other: _Operand) -> DTensor: ...
        def __imul__(self, other: _Operand) -> DTensor: ...
        def __isub__(self, other: _Operand) -> DTensor: ...
        def __itruediv__(self, other: _Operand) -> DTensor: ...
        def __le__(self, other: _Operand) -> DTensor: ...
        def __lt__(self, other: _Operand) -> DTensor: ...
        def __mul__(self, other: _Operand) -> DTensor: ...
        def __ne__(self, other: object) -> DTensor: ...  # type: ignore[override]
        def __neg__(self) -> DTensor: ...
        def __pow__(self, other: _Operand) -> DTensor: ...
        def __radd__(self, other: _Operand) -> DTensor: ...
        def __rmul__(self, other: _Operand) -> DTensor: ...
        def __rpow__(self, other: _Operand) -> DTensor: ...
        def __rsub__(self, other: _Operand) -> DTensor: ...
        def __rtruediv__(self, other: _Operand) -> DTensor: ...
        def __sub__(self, other: _Operand) -> DTensor: ...
        def __truediv__(self, other: _Operand) -> DTensor: ...
        def clone(self, *args: object, **kwargs: object) -> DTensor: ...
        def detach(self) -> DTensor: ...
        def relu(self) -> DTensor: ...
        def requires_grad_(self, mode: bool = True) -> DTensor: ...
        def to(self, *args: object, **kwargs: object) -> DTensor: ...

    def __init_subclass__(cls) -> None:
        raise UnimplementedError(
            f"class {cls.__name__} cannot be made from DTensor: results of operations would not be of that class"
        )

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]  # torch's stub declares it without the class and the function
        cls, func: object, types: object, args: tuple[object, ...] = (), kwargs: dict[str, object] | None = None
    ) -> object:
        return _dispatch.run(func, args, kwargs or {})

    @staticmethod
    def from_local(
        local_tensor: torch.Tensor,
        device_mesh: DeviceMesh,
        placements: _Placements,
        shape: _Shape | None = None,
    ) -> DTensor:
        """Makes a DTensor of this rank's part; the same as ``DTensor(...)``.

        Example:
            >>> mesh = DeviceMesh((1,), ("fsdp",))
            >>> DTensor.from_local(torch.ones(2, 3), mesh, [Shard(0)], shape=(2, 3)).shape
            torch.Size([2, 3])
        """
        return _torch.from_local(local_tensor, device_mesh, placements, shape)

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

    def to_local(self, grad_placements: _Placements | None = None) -> torch.Tensor:
        """This rank's part for use outside, differentiable, without communication.

        Args:
            grad_placements: How the gradients that come back lie. By default they are summed over the ranks on
                Replicate dims, as outside the ranks may compute different losses; ``Replicate()`` says that all ranks
                compute the same loss.

        Returns:
            A flat tensor of ``local_numel`` elements with ``RaggedShard``, else this rank's block. It shares storage;
            where its gradients must be summed autograd refuses to write it in place.

        Raises:
            InvalidArgumentError: grad_placements that are not as many as mesh dims or do not fit the placements.

        Example:
            >>> mesh = DeviceMesh((1,), ("fsdp",))
            >>> distribute_tensor(torch.ones(4), mesh, [Shard(0)]).to_local()
            tensor([1., 1., 1., 1.])
        """
        return _torch.to_local(self, grad_placements)

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

        Example:
            >>> mesh = DeviceMesh((1,), ("fsdp",))
            >>> x = distribute_tensor(torch.ones(6, 4), mesh, [RaggedShard((0,), (1,))])
            >>> x.redistribute(mesh, [Shard(0)]).placements
            (Shard(dim=0),)
        """
        if placements is None and isinstance(device_mesh, list | tuple):
            return _torch.redistribute(self, None, device_mesh)
        mesh = cast("DeviceMesh | None", device_mesh)  # of anything else C++ says what is wrong with it
        return _torch.redistribute(self, mesh, self.placements if placements is None else placements)

    def full_tensor(self, grad_placements: _Placements | None = None) -> torch.Tensor:
        """The whole tensor on every rank of the mesh, differentiable; outside the mesh no elements.

        Args:
            grad_placements: As for :meth:`to_local`; by default the losses of the ranks are summed.

        Raises:
            InvalidArgumentError: grad_placements that do not fit.

        Example:
            >>> mesh = DeviceMesh((1,), ("fsdp",))
            >>> distribute_tensor(torch.arange(4), mesh, [RaggedShard((0,), (1,))]).full_tensor()
            tensor([0, 1, 2, 3])
        """
        return _torch.full_tensor(self, grad_placements)

    def reduce_partial(self) -> DTensor:
        """The tensor with every pending reduction done: Partial dims become Replicate.

        Example:
            >>> mesh = DeviceMesh((1,), ("dp",))
            >>> DTensor(torch.ones(2), mesh, [Partial()]).reduce_partial().placements
            (Replicate(),)
        """
        reduced = [Replicate() if isinstance(placement, Partial) else placement for placement in self.placements]
        return _torch.redistribute(self, None, reduced)

    def __create_write_items__(self, fqn: str, object: DTensor) -> list[WriteItem]:
        """What ``torch.distributed.checkpoint`` has to save of this tensor on this rank; its planner asks."""
        from hyper_parallel import _stock_checkpoint  # noqa: PLC0415  (for torch's planner alone; long to import)

        return _stock_checkpoint.create_write_items(object, fqn)

    def __create_chunk_list__(self) -> list[ChunkStorageMetadata]:
        """The boxes that ``torch.distributed.checkpoint`` has to load on this rank; its planner asks."""
        from hyper_parallel import _stock_checkpoint  # noqa: PLC0415  (for torch's planner alone; long to import)

        return _stock_checkpoint.create_chunk_list(self)

    def __get_tensor_shard__(self, index: MetadataIndex) -> torch.Tensor:
        """A view of the elements of one box, for ``torch.distributed.checkpoint`` to read or to write."""
        from hyper_parallel import _stock_checkpoint  # noqa: PLC0415  (for torch's planner alone; long to import)

        return _stock_checkpoint.get_tensor_shard(self, index)

    @property
    def placements(self) -> tuple[Placement, ...]:
        """A placement for each mesh dim."""
        return _torch.placements(self)

    @property
    def device_mesh(self) -> DeviceMesh:
        """The mesh that the tensor lies on."""
        return _torch.mesh(self)

    @property
    def layout(self) -> Layout:  # type: ignore[override]
        """Mesh and placements as one value."""
        return _torch.layout(self)

    @property
    def local_numel(self) -> int:
        """The number of elements that this rank holds."""
        return _torch.local(self).numel()

    @property
    def _local_tensor(self) -> torch.Tensor:
        """This rank's storage, inside the graph."""
        return _torch.local(self)

    @property
    def _global_shape(self) -> tuple[int, ...]:
        """The logical shape as a plain tuple."""
        return _torch.shape(self)


def distribute_tensor(
    tensor: torch.Tensor,
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
        A leaf with the input's requires_grad and storage of its own; not connected to the input's graph.

    Raises:
        InvalidArgumentError: Placements that do not fit or hold Partial.
        OutOfRangeError: src_data_rank outside the group.

    Example:
        >>> mesh = DeviceMesh((1,), ("fsdp",))
        >>> x = distribute_tensor(torch.ones(6, 4), mesh, [RaggedShard((0, 1), (1,))], src_data_rank=0)
        >>> x.shape, x.local_numel
        (torch.Size([6, 4]), 24)
    """
    return _torch.distribute_tensor(tensor, device_mesh, placements, src_data_rank)


def to_torch_dtensor(tensor: DTensor) -> torch.distributed.tensor.DTensor:
    """The same tensor as torch's own DTensor, sharing storage and graph; no communication but what torch does.

    Raises:
        UnimplementedError: A ragged tensor, which torch has no placement for.

    Example:
        >>> mesh = DeviceMesh((1,), ("dp",))
        >>> to_torch_dtensor(distribute_tensor(torch.ones(4), mesh, [Shard(0)])).placements
        (Shard(dim=0),)
    """
    from hyper_parallel import _interchange  # noqa: PLC0415  (torch.distributed.tensor takes long to import)

    return _interchange.to_torch(tensor)


def from_torch_dtensor(tensor: torch.distributed.tensor.DTensor) -> DTensor:
    """A torch DTensor as one of ours, sharing storage and graph.

    Raises:
        UnimplementedError: A placement of torch's that there is none for here.

    Example:
        >>> mesh = DeviceMesh((1,), ("dp",))
        >>> from_torch_dtensor(to_torch_dtensor(distribute_tensor(torch.ones(4), mesh, [Shard(0)]))).placements
        (Shard(dim=0),)
    """
    from hyper_parallel import _interchange  # noqa: PLC0415  (torch.distributed.tensor takes long to import)

    return _interchange.from_torch(tensor)


_torch.set_wrapper_class(DTensor)
_functions.register()
_functions.install(DTensor)
