"""DeviceMesh: the job's ranks laid out on a named grid.

A *rank* is a process's number in the job. A *coordinate* is a position in the mesh, row-major over its rank list. The
*group* of a mesh dim are the ranks that differ from this process's along that dim alone, in mesh order, whatever their
numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from hyper_parallel import _core, _current_mesh, platform
from hyper_parallel.errors import ArgumentTypeError, InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch
    from torch.distributed.device_mesh import DeviceMesh as TorchDeviceMesh

__all__ = ["DeviceMesh", "init_device_mesh"]


class DeviceMesh(_core.DeviceMesh):
    """Ranks laid out on a named grid.

    A value: immutable, hashable, equal to another mesh of the same shape, names and rank list, and the same after
    pickling. Made without communication and without a process group; ``get_group`` is what makes one.

    Args:
        mesh_shape: How many ranks lie along each mesh dim.
        mesh_dim_names: Their names, of letters, digits and underscores; "dim_0", "dim_1", .. if None.
        rank_list: The ranks, row-major; ``0 .. prod(mesh_shape) - 1`` if None. Any ranks of the job, in any order.

    Raises:
        ArgumentTypeError: An argument of another type.
        InvalidArgumentError: No dim, a size below 1, names that are not as many as the dims or not unique, or ranks
            that are not ``prod(mesh_shape)`` different non-negative numbers.

    Example:
        >>> mesh = DeviceMesh((2, 2), ("dp", "tp"))
        >>> mesh
        DeviceMesh((2, 2), ('dp', 'tp'))
        >>> mesh.shape, mesh.size("tp"), mesh.rank_list
        ((2, 2), 2, (0, 1, 2, 3))
    """

    __slots__ = ("_communicator", "_groups", "_root", "_torch_mesh")

    _communicator: Any
    """What the framework's layer talks through; set by it on first use, never pickled."""
    _groups: dict[tuple[int, ...], tuple[torch.distributed.ProcessGroup, torch.distributed.ProcessGroup]]
    """Process groups by their ranks, each with the job's group it was made under. Shared with the meshes cut from this
    one, so that ``mesh["tp"].get_group()`` is ``mesh.get_group("tp")``."""
    _root: DeviceMesh
    """The mesh that this one was cut from, itself if none."""
    _torch_mesh: tuple[Any, TorchDeviceMesh] | None
    """The torch mesh that this one was made from or turned into, with the job's group it was made under."""

    def __init__(
        self,
        mesh_shape: Sequence[int],
        mesh_dim_names: Sequence[str] | None = None,
        rank_list: Sequence[int] | None = None,
    ) -> None:
        super().__init__(mesh_shape, mesh_dim_names, rank_list)
        self._set_private(self)

    def _set_private(self, root: DeviceMesh) -> None:
        self._communicator = None
        self._groups = {} if root is self else root._groups
        self._root = root
        self._torch_mesh = None

    @classmethod
    def _from_core(cls, mesh: _core.DeviceMesh, root: DeviceMesh | None = None) -> DeviceMesh:
        """The Python object of a value; ``root`` is the mesh it was cut from."""
        made = cls.__new__(cls)
        _core.DeviceMesh.__init__(made, mesh)
        made._set_private(made if root is None else root)
        return made

    def __getitem__(self, names: str | tuple[str, ...]) -> DeviceMesh:
        """The mesh of the dims ``names`` through this process, in the order given.

        Args:
            names: A mesh dim's name or a tuple of several.

        Raises:
            InvalidArgumentError: A name that is no mesh dim or stands twice, or this process is not in the mesh.
            FailedPreconditionError: This process has no rank yet.

        Example:
            >>> mesh = DeviceMesh((1, 1), ("dp", "tp"))
            >>> mesh["tp"]
            DeviceMesh((1,), ('tp',))
        """
        chosen = (names,) if isinstance(names, str) else names
        if chosen == self.mesh_dim_names:
            return self
        return self._from_core(self.sub_mesh(chosen, platform.get_rank()), self._root)

    def flatten(self, name: str | None = None) -> DeviceMesh:
        """The mesh of one dim over the same rank list.

        Args:
            name: The dim's name; the names joined by '_' if None.

        Raises:
            InvalidArgumentError: ``name`` is not made of letters, digits and underscores.

        Example:
            >>> DeviceMesh((2, 2), ("dp", "tp")).flatten()
            DeviceMesh((4,), ('dp_tp',))
        """
        return self._from_core(self.flattened(name), self._root)

    def get_rank(self) -> int:
        """This process's rank in the job.

        Raises:
            FailedPreconditionError: This process has no rank yet.

        Example:
            >>> mesh = DeviceMesh((1, 1), ("dp", "tp"))
            >>> mesh.get_rank()
            0
        """
        return platform.get_rank()

    def get_coordinate(self) -> tuple[int, ...] | None:
        """This process's position along each mesh dim, None if it is not in the mesh.

        Raises:
            FailedPreconditionError: This process has no rank yet.

        Example:
            >>> mesh = DeviceMesh((1, 1), ("dp", "tp"))
            >>> mesh.get_coordinate()
            (0, 0)
        """
        return self.coordinate(platform.get_rank())

    def get_local_rank(self, dim: int | str | None = None) -> int:
        """This process's position along one mesh dim.

        Args:
            dim: The mesh dim's name or number; may be left out where the mesh has one dim.

        Raises:
            InvalidArgumentError: This process is not in the mesh, ``dim`` is no name of it, or ``dim`` is left out
                where the mesh has several.
            OutOfRangeError: ``dim`` is a number beyond the mesh's dims.
            FailedPreconditionError: This process has no rank yet.

        Example:
            >>> mesh = DeviceMesh((1, 1), ("dp", "tp"))
            >>> mesh.get_local_rank("tp")
            0
        """
        index = self._one_dim(dim, "get_local_rank")
        rank = platform.get_rank()
        coordinate = self.coordinate(rank)
        if coordinate is None:
            raise InvalidArgumentError(f"rank {rank} is not in {self!r}")
        return coordinate[index]

    def get_group(self, dim: int | str | None = None) -> torch.distributed.ProcessGroup:
        """The process group along one mesh dim through this process.

        Its member i is the rank at position i of that dim. Made when first asked for and then kept: by the members
        alone, which must all ask, and for overlapping groups in the same order. A group that is the whole job in order
        is the default group.

        Args:
            dim: The mesh dim's name or number; may be left out where the mesh has one dim.

        Raises:
            InvalidArgumentError: This process is not in the mesh, ``dim`` is no name of it, or ``dim`` is left out
                where the mesh has several.
            OutOfRangeError: ``dim`` is a number beyond the mesh's dims.
            FailedPreconditionError: This process has no rank yet.

        Example:
            >>> mesh = DeviceMesh((1, 1), ("dp", "tp"))
            >>> mesh.get_group("tp").size()
            1
        """
        index = self._one_dim(dim, "get_group")
        ranks = self.group(index, platform.get_rank())
        world = platform.world_group()
        made_under, group = self._groups.get(ranks, (None, None))
        if group is None or made_under is not world:
            group = platform.new_group(ranks)
            self._groups[ranks] = (world, group)
        return group

    def _one_dim(self, dim: int | str | None, method: str) -> int:
        if dim is not None:
            return self.dim_index(dim)
        if self.ndim != 1:
            raise InvalidArgumentError(f"{method} needs a dim: the mesh has {self.ndim}, {self.mesh_dim_names}")
        return 0

    @classmethod
    def from_torch(cls, torch_mesh: TorchDeviceMesh) -> DeviceMesh:
        """The mesh of a torch ``DeviceMesh``, whose process groups it uses.

        Args:
            torch_mesh: Any mesh of torch, also one cut from another; dims without names become "dim_0", "dim_1", ..

        Raises:
            ArgumentTypeError: ``torch_mesh`` is something else.
            InvalidArgumentError: A name that is not made of letters, digits and underscores.

        Example:
            >>> DeviceMesh.from_torch(DeviceMesh((1, 1), ("dp", "tp")).to_torch())
            DeviceMesh((1, 1), ('dp', 'tp'))
        """
        return platform.mesh_from_torch(cls, torch_mesh)

    def to_torch(self, device_type: str = "cpu") -> TorchDeviceMesh:
        """The torch ``DeviceMesh`` of the same shape, names and ranks, over the process groups of ``get_group``.

        The mesh that this one was made from comes back as it was. Every member of the mesh must call this, as it makes
        the groups of all mesh dims.

        Args:
            device_type: What the tensors of the torch mesh live on.

        Raises:
            FailedPreconditionError: This process has no rank yet.

        Example:
            >>> mesh = DeviceMesh((1, 1), ("dp", "tp"))
            >>> mesh.to_torch().mesh_dim_names
            ('dp', 'tp')
        """
        return platform.mesh_to_torch(self, device_type)

    def __enter__(self) -> Self:
        """Makes this mesh the one that ``shard`` takes where it is given none, in this thread, until the block ends.

        Blocks may be nested; the innermost counts.

        Example:
            >>> with DeviceMesh((1,), ("tp",)) as mesh:
            ...     mesh.mesh_dim_names
            ('tp',)
        """
        _current_mesh.enter(self)
        return self

    def __exit__(self, *exception: object) -> None:
        _current_mesh.leave()

    def __copy__(self) -> DeviceMesh:
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> DeviceMesh:
        return self

    def __reduce__(self) -> tuple[type[DeviceMesh], tuple[Any, ...]]:
        ranks = self.rank_list
        return DeviceMesh, (self.shape, self.mesh_dim_names, None if ranks == tuple(range(len(ranks))) else ranks)


def init_device_mesh(
    device_type: str, mesh_shape: Sequence[int], *, mesh_dim_names: Sequence[str] | None = None
) -> DeviceMesh:
    """A mesh over the whole job, whose process group is made first if it is not there.

    Args:
        device_type: What tensors live on, "cpu" for instance; decides the backend of a new process group.
        mesh_shape: How many ranks lie along each mesh dim; their product is the number of processes.
        mesh_dim_names: Their names; "dim_0", "dim_1", .. if None.

    Raises:
        InvalidArgumentError: The product is not the number of processes, or as ``DeviceMesh``.
        FailedPreconditionError: There is neither a process group nor the environment that ``torchrun`` sets.

    Example:
        In a job of one process; ``(2, 2)`` and two names under ``torchrun --nproc-per-node 4``.

        >>> init_device_mesh("cpu", (1,), mesh_dim_names=("dp",))
        DeviceMesh((1,), ('dp',))
    """
    if not isinstance(device_type, str):
        raise ArgumentTypeError(f"device_type is {device_type!r} but must be a str")
    mesh = DeviceMesh(mesh_shape, mesh_dim_names)
    platform.initialize(device_type)
    if mesh.size() != platform.get_world_size():
        raise InvalidArgumentError(
            f"mesh_shape {mesh.shape} has {mesh.size()} ranks but the job has {platform.get_world_size()} processes"
        )
    return mesh
