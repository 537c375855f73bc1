"""Layout: a mesh and one placement per mesh dim. Says how a tensor lies on the ranks, for any shape that fits.

Three views of one value:

* ``placements``: the original placements, ragged ones with their dims and units;
* ``ragged_shard``: the ragged placement and its mesh dim, if there is one;
* ``normal_placements``: the ragged placement replaced by ``Replicate()``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, overload

from hyper_parallel import _core
from hyper_parallel.device_mesh import DeviceMesh
from hyper_parallel.errors import ArgumentTypeError
from hyper_parallel.placement import Placement, RaggedShard, Replicate

__all__ = ["Layout", "RaggedShardInfo"]


class RaggedShardInfo(NamedTuple):
    """The ragged placement of a layout and the mesh dim on which it lies.

    Example:
        >>> mesh_dim, placement = Layout((2, 2))([Replicate(), RaggedShard((0,), (1, 3))]).ragged_shard
        >>> mesh_dim, placement.local_units
        (1, (1, 3))
    """

    mesh_dim: int
    placement: RaggedShard


class Layout(_core.Layout):
    """A mesh and one placement per mesh dim, all ``Replicate()`` at first; call it for another.

    A value: immutable, hashable, equal to another layout of an equal mesh and equal placements. Where the
    specification sets the placements of a layout, a new one is returned.

    Args:
        mesh_shape: How many ranks lie along each mesh dim.
        mesh_dim_names: Their names; "dim_0", "dim_1", .. if None.
        rank_list: The ranks, row-major; ``0 .. prod(mesh_shape) - 1`` if None.

    Raises:
        ArgumentTypeError: An argument of another type.
        InvalidArgumentError: As ``DeviceMesh``.

    Example:
        >>> layout = Layout((2, 2), ("dp", "tp"))
        >>> layout([Shard(0), Shard(1)]) == layout((1, 0, -1)) == layout("dp", "tp", "None")
        True
        >>> layout(("dp", "tp"), "None").placements
        (Shard(dim=0), Shard(dim=0))
        >>> layout.placements
        (Replicate(), Replicate())
    """

    __slots__ = ("_mesh",)

    _mesh: DeviceMesh

    def __init__(
        self,
        mesh_shape: Sequence[int],
        mesh_dim_names: Sequence[str] | None = None,
        rank_list: Sequence[int] | None = None,
    ) -> None:
        mesh = DeviceMesh(mesh_shape, mesh_dim_names, rank_list)
        super().__init__(mesh, [Replicate()] * mesh.ndim)
        object.__setattr__(self, "_mesh", mesh)

    @classmethod
    def from_device_mesh(cls, device_mesh: DeviceMesh) -> Layout:
        """The layout of ``Replicate()`` on every dim of a mesh.

        Args:
            device_mesh: The mesh, which the layout hands out again as it is.

        Raises:
            ArgumentTypeError: ``device_mesh`` is something else.

        Example:
            >>> Layout.from_device_mesh(DeviceMesh((2,), ("dp",)))
            Layout((2,), ('dp',))([Replicate()])
        """
        if not isinstance(device_mesh, DeviceMesh):
            raise ArgumentTypeError(f"device_mesh is {device_mesh!r} but must be a hyper_parallel.DeviceMesh")
        return _layout(device_mesh, [Replicate()] * device_mesh.ndim)

    @classmethod
    def _from_core(cls, layout: _core.Layout, mesh: DeviceMesh | None = None) -> Layout:
        """The Python object of a value; ``mesh`` is the object that it shall hand out, equal to its own."""
        made = cls.__new__(cls)
        _core.Layout.__init__(made, layout)
        object.__setattr__(made, "_mesh", DeviceMesh._from_core(layout.core_mesh) if mesh is None else mesh)
        return made

    @overload
    def __call__(self, placements: Sequence[Placement], /) -> Layout: ...
    @overload
    def __call__(self, tensor_map: tuple[int | tuple[int, ...], ...], /) -> Layout: ...
    @overload
    def __call__(self, *aliases: str | tuple[str, ...]) -> Layout: ...
    def __call__(self, *entries: Any) -> Layout:  # each kind's own check says what is wrong with an entry
        """The layout on the same mesh that the entries say.

        Args:
            entries: One of

                * a list or tuple of placements, one for each mesh dim: ``layout([Shard(0), Replicate()])``;
                * a tensor map, an entry for each tensor dim: a mesh axis counted from the innermost mesh dim, -1 for
                  none, a tuple of axes outermost first: ``layout((1, 0, -1))``;
                * alias names, an argument for each tensor dim: a mesh dim's name, "None" for none, a tuple of names
                  outermost first: ``layout("dp", "tp", "None")``.

        Raises:
            ArgumentTypeError: Anything else.
            InvalidArgumentError: Placements that are not as many as the mesh dims, several RaggedShard, one whose units
                are not as many as the ranks of its mesh dim or that stands beside another than Replicate; an axis or
                name that the mesh has not or that stands twice.
            UnimplementedError: Axes or names of one tensor dim that are not outermost first.
        """
        if not entries:
            raise ArgumentTypeError("a layout is called with placements, a tensor map or alias names, not with nothing")
        first = entries[0]
        if isinstance(first, str) or (isinstance(first, tuple) and first and isinstance(first[0], str)):
            return self._from_core(_core.Layout.from_aliases(self._mesh, entries), self._mesh)
        if len(entries) > 1:
            raise ArgumentTypeError(
                f"a layout is called with one list of placements or one tensor map, not with {len(entries)} arguments"
            )
        if isinstance(first, tuple) and not any(isinstance(entry, Placement) for entry in first):
            return self._from_core(_core.Layout.from_tensor_map(self._mesh, first), self._mesh)
        return self._from_core(_core.Layout(self._mesh, first), self._mesh)

    @property
    def mesh(self) -> DeviceMesh:
        """The mesh."""
        return self._mesh

    @property
    def device_mesh(self) -> DeviceMesh:
        """The mesh; the same as ``mesh``."""
        return self._mesh

    @property
    def alias_placements(self) -> tuple[Placement, ...]:
        """The original placements, ragged ones with their dims and units; the same as ``placements``."""
        return self.placements

    @property
    def ragged_shard(self) -> RaggedShardInfo | None:
        """The ragged placement and its mesh dim, None without one.

        Example:
            >>> Layout((2,), ("dp",))([RaggedShard((0,), (1, 3))]).ragged_shard
            RaggedShardInfo(mesh_dim=0, placement=RaggedShard(dims=(0,), local_units=(1, 3)))
        """
        ragged = self.ragged
        return None if ragged is None else RaggedShardInfo(*ragged)

    def tensor_map_to_placement(self) -> tuple[Placement, ...]:
        """The placements that this layout's tensor map means, with what a map cannot say: Partial and RaggedShard.

        Example:
            >>> Layout((2, 2), ("dp", "tp"))((1, 0, -1)).tensor_map_to_placement()
            (Shard(dim=0), Shard(dim=1))
        """
        return self.placements

    def folded(self, ndim: int) -> Layout:
        """The layout for a tensor of ``ndim`` dims: no Shard dim is negative.

        Raises:
            OutOfRangeError: A Shard dim lies outside ``[-ndim, ndim)``.
            InvalidArgumentError: ``ndim`` is negative or smaller than the number of ragged dims.

        Example:
            >>> Layout((2,), ("dp",))([Shard(-1)]).folded(3).placements
            (Shard(dim=2),)
        """
        return self._from_core(super().folded(ndim), self._mesh)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a Layout is immutable: call it to get another, {name!r} cannot be set")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a Layout is immutable: {name!r} cannot be deleted")

    def __repr__(self) -> str:
        return f"{repr(self._mesh).replace('DeviceMesh', 'Layout', 1)}({list(self.placements)!r})"

    def __copy__(self) -> Layout:
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> Layout:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _layout, (self._mesh, self.placements)


def _layout(mesh: DeviceMesh, placements: Sequence[Placement]) -> Layout:
    """A layout on this mesh object; what a pickle calls."""
    return Layout._from_core(_core.Layout(mesh, placements), mesh)
