"""
The C++ core of hyper_parallel: placements, meshes, layouts, geometry and errors.
"""
from __future__ import annotations
import collections.abc
import typing
__all__: list[str] = ['ArgumentTypeError', 'CheckpointError', 'DeviceMesh', 'FailedPreconditionError', 'HyperParallelError', 'InternalError', 'InvalidArgumentError', 'Layout', 'MeshTraffic', 'OutOfRangeError', 'Partial', 'Placement', 'RaggedShard', 'Replicate', 'Shard', 'UnimplementedError', 'local_shape', 'owned_boxes', 'owned_interval', 'parse_placements', 'plan_text', 'plan_traffic']
class HyperParallelError(Exception):
    """
    The base of every error that the library raises.
    """
class InvalidArgumentError(HyperParallelError, ValueError):
    """
    An argument has a value that breaks a rule.
    """
class ArgumentTypeError(HyperParallelError, TypeError):
    """
    An argument has the wrong type.
    """
class OutOfRangeError(HyperParallelError, IndexError):
    """
    A dim or an index lies outside what it counts.
    """
class UnimplementedError(HyperParallelError, NotImplementedError):
    """
    What was asked for has a meaning but is not offered.
    """
class FailedPreconditionError(HyperParallelError, RuntimeError):
    """
    The call needs a state that the process is not in.
    """
class CheckpointError(HyperParallelError, OSError):
    """
    A checkpoint is damaged, incomplete or cannot be written.
    """
class InternalError(HyperParallelError, RuntimeError):
    """
    A fault of the library itself; please report it.
    """
class Placement:
    """
    How a tensor lies along one mesh dim.

    The base of Replicate, Shard, Partial and RaggedShard; it has no other subclass. Placements are immutable values:
    equal if they say the same, hashable, and their repr is the constructor call that makes them.
    """
    def __copy__(self) -> typing.Any:
        ...
    def __deepcopy__(self, memo: dict) -> typing.Any:
        ...
    def __eq__(self, other: object) -> bool:
        ...
    def __hash__(self) -> int:
        ...
    def __reduce__(self) -> tuple[type, tuple]:
        ...
    def __repr__(self) -> str:
        ...
    def is_partial(self, reduce_op: str | None = None) -> bool:
        """
        Whether every rank holds a share that is still to be reduced, by ``reduce_op`` if one is given.

        Raises:
            InvalidArgumentError: ``reduce_op`` is none of "sum", "avg", "max", "min".

        Example:
            >>> Partial().is_partial(), Partial().is_partial("max")
            (True, False)
        """
    def is_ragged_shard(self) -> bool:
        """
        Whether every rank holds an uneven, contiguous run of the row-major tensor.
        """
    def is_replicate(self) -> bool:
        """
        Whether every rank holds the whole tensor.
        """
    def is_shard(self, dim: int | None = None) -> bool:
        """
        Whether the tensor is cut in even chunks, of dim ``dim`` if one is given.

        Args:
            dim: A tensor dim, compared as it was written: ``Shard(-1)`` is no shard of dim 1.

        Example:
            >>> Shard(0).is_shard(), Shard(0).is_shard(1), RaggedShard((0,), (1, 2)).is_shard()
            (True, False, False)
        """
class Replicate(Placement):
    """
    Every rank of the mesh dim holds the whole tensor.

    Example:
        >>> Replicate()
        Replicate()
    """
    __match_args__: typing.ClassVar[tuple] = tuple()
    def __init__(self) -> None:
        ...
class Shard(Placement):
    """
    Tensor dim ``dim`` lies in chunks of ``ceil(n / p)`` rows.

    The first ranks hold a full chunk, the last fewer rows or none: 5 rows over 4 ranks are 2, 2, 1 and 0.

    Args:
        dim: The tensor dim; a negative one counts from the tensor's last.

    Raises:
        ArgumentTypeError: ``dim`` is not an int.

    Example:
        >>> Shard(0)
        Shard(dim=0)
    """
    __match_args__: typing.ClassVar[tuple] = ('dim',)
    def __init__(self, dim: int) -> None:
        ...
    @property
    def dim(self) -> int:
        """
        The tensor dim.
        """
class Partial(Placement):
    """
    Every rank holds a share; the value is their reduction.

    Args:
        reduce_op: "sum", "avg", "max" or "min".

    Raises:
        InvalidArgumentError: Any other text.
        ArgumentTypeError: ``reduce_op`` is not a str.

    Example:
        >>> Partial()
        Partial(reduce_op='sum')
    """
    __match_args__: typing.ClassVar[tuple] = ('reduce_op',)
    def __init__(self, reduce_op: str = 'sum') -> None:
        ...
    @property
    def reduce_op(self) -> str:
        """
        The pending reduction.
        """
class RaggedShard(Placement):
    """
    Every rank holds an uneven, contiguous and possibly empty run of the row-major tensor.

    The cells of the leading tensor dims ``dims`` are dealt out in row-major order; rank r gets ``local_units[r]`` parts of
    them. Its local tensor is that run: contiguous, 1-D.

    Args:
        dims: The leading tensor dims, ``(0, 1, .., k - 1)``.
        local_units: The relative share of each rank of the mesh dim; a 0 gives a rank nothing.

    Raises:
        ArgumentTypeError: ``dims`` or ``local_units`` is not a tuple of ints (a bool is no int).
        InvalidArgumentError: ``dims`` is empty or not leading, ``local_units`` is empty, has a negative entry or only
            zeros.

    Example:
        Of a tensor of shape (6, 4, 8), rank 0 holds the first 8 of 24 rows of 8 elements, rank 1 the other 16.

        >>> RaggedShard((0, 1), (1, 2))
        RaggedShard(dims=(0, 1), local_units=(1, 2))
    """
    __match_args__: typing.ClassVar[tuple] = ('dims', 'local_units')
    def __init__(self, dims: tuple[int, ...], local_units: tuple[int, ...]) -> None:
        ...
    @property
    def dims(self) -> tuple[int, ...]:
        """
        The leading tensor dims whose cells are dealt out.
        """
    @property
    def local_units(self) -> tuple[int, ...]:
        """
        The relative share of each rank.
        """
class DeviceMesh:
    """
    Ranks laid out on a named grid: the value without this process.

    Users take ``hyper_parallel.DeviceMesh``, which adds the questions that depend on this process's rank.
    """
    def __eq__(self, other: object) -> bool:
        ...
    def __hash__(self) -> int:
        ...
    @typing.overload
    def __init__(self, mesh: DeviceMesh) -> None:
        ...
    @typing.overload
    def __init__(self, mesh_shape: collections.abc.Sequence[int], mesh_dim_names: collections.abc.Sequence[str] | None = None, rank_list: collections.abc.Sequence[int] | None = None) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def contains(self, rank: int) -> bool:
        """
        Whether the mesh holds the rank.
        """
    def coordinate(self, rank: int) -> tuple[int, ...] | None:
        """
        The rank's position along each mesh dim, None if the mesh does not hold it.
        """
    def dim_index(self, dim: int | str) -> int:
        """
        The number of the mesh dim with this name or number, in [0, ndim); raises as ``size``.
        """
    def flattened(self, name: str | None = None) -> DeviceMesh:
        """
        The mesh of one dim over the same ranks; without a name the names are joined by '_'.
        """
    def group(self, dim: int | str, rank: int) -> tuple[int, ...]:
        """
        The ranks that differ from ``rank`` along ``dim`` alone, in mesh order. Raises InvalidArgumentError if the mesh does not hold the rank, and as ``size`` for the dim.
        """
    def same_ranks(self, other: DeviceMesh) -> bool:
        """
        Whether both meshes hold the same ranks, in whatever order and shape.
        """
    def size(self, dim: int | str | None = None) -> int:
        """
        How many ranks lie along ``dim``, or in the whole mesh.

        Args:
            dim: The name or the number of a mesh dim; a negative number counts from the last.

        Raises:
            InvalidArgumentError: No mesh dim has this name.
            OutOfRangeError: The mesh has fewer dims.

        Example:
            >>> mesh = DeviceMesh((2, 3), ("dp", "tp"))
            >>> mesh.size(), mesh.size("tp"), mesh.size(0)
            (6, 3, 2)
        """
    def sub_mesh(self, names: collections.abc.Sequence[str], rank: int) -> DeviceMesh:
        """
        The mesh of the named dims, in the order given, through ``rank``.
        """
    @property
    def mesh_dim_names(self) -> tuple[str, ...]:
        """
        The name of each mesh dim.
        """
    @property
    def mesh_shape(self) -> tuple[int, ...]:
        """
        The same as ``shape``.
        """
    @property
    def ndim(self) -> int:
        """
        The number of mesh dims.
        """
    @property
    def rank_list(self) -> tuple[int, ...]:
        """
        The ranks, row-major over the mesh.
        """
    @property
    def shape(self) -> tuple[int, ...]:
        """
        The number of ranks along each mesh dim.
        """
class Layout:
    """
    A mesh and one placement per mesh dim: the value.

    Users take ``hyper_parallel.Layout``, which adds the ways to write one.
    """
    @staticmethod
    def from_aliases(mesh: DeviceMesh, aliases: tuple[str | tuple[str, ...], ...]) -> Layout:
        """
        The layout of alias names: per tensor dim the name of a mesh dim, "None" or a tuple of names.
        """
    @staticmethod
    def from_tensor_map(mesh: DeviceMesh, tensor_map: tuple[int | tuple[int, ...], ...]) -> Layout:
        """
        The layout of a tensor map: per tensor dim a mesh axis, counted from the innermost, -1 or a tuple.
        """
    def __eq__(self, other: object) -> bool:
        ...
    def __hash__(self) -> int:
        ...
    @typing.overload
    def __init__(self, mesh: DeviceMesh, placements: collections.abc.Sequence[Placement]) -> None:
        ...
    @typing.overload
    def __init__(self, layout: Layout) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def check_shape(self, shape: collections.abc.Sequence[int]) -> None:
        """
        Raises unless a tensor of ``shape`` can lie so.

        Args:
            shape: The logical shape.

        Raises:
            InvalidArgumentError: A negative size, ragged dims beyond the tensor's, or prefix cells that the units' sum does not
                divide.
            OutOfRangeError: A Shard dim beyond the tensor's dims.
        """
    def folded(self, ndim: int) -> Layout:
        """
        The layout for a tensor of ``ndim`` dims: no Shard dim is negative.
        """
    def placement_to_tensor_map(self, dim: int) -> tuple[int | tuple[int, ...], ...]:
        """
        The tensor map of a tensor of ``dim`` dims.

        One entry per tensor dim: -1 where no mesh dim splits it, the mesh axis that does, counted from the innermost mesh dim
        (mesh dim i of n is axis ``n - 1 - i``), or a tuple of axes, outermost first. Works on ``normal_placements``.

        Args:
            dim: The number of the tensor's dims.

        Raises:
            OutOfRangeError: A Shard dim lies outside ``[-dim, dim)``.
            InvalidArgumentError: ``dim`` is negative or smaller than the number of ragged dims.

        Example:
            >>> layout = Layout((2, 2), ("dp", "tp"))
            >>> layout([Shard(0), Shard(1)]).placement_to_tensor_map(3)
            (1, 0, -1)
            >>> layout([Shard(0), Shard(0)]).placement_to_tensor_map(dim=2)
            ((1, 0), -1)
        """
    @property
    def core_mesh(self) -> DeviceMesh:
        """
        The mesh's value.
        """
    @property
    def is_ragged(self) -> bool:
        """
        Whether one of the placements is a RaggedShard.
        """
    @property
    def normal_placements(self) -> tuple[Placement, ...]:
        """
        The placements with ``Replicate()`` in place of a RaggedShard.
        """
    @property
    def partial(self) -> tuple[str | None, ...]:
        """
        Per mesh dim the pending reduction, "sum" for instance, or None.
        """
    @property
    def placements(self) -> tuple[Placement, ...]:
        """
        One placement per mesh dim, as they were given.
        """
    @property
    def ragged(self) -> tuple[int, RaggedShard] | None:
        """
        The mesh dim of the RaggedShard and the placement, or None.
        """
class MeshTraffic:
    """
    What a redistribution costs the whole mesh, in elements.
    """
    def __repr__(self) -> str:
        ...
    @property
    def lower_bound(self) -> int:
        """
        The least that all ranks together must receive.
        """
    @property
    def max_received(self) -> int:
        """
        Received by the busiest rank.
        """
    @property
    def rounds(self) -> int:
        """
        How many steps communicate.
        """
    @property
    def total_received(self) -> int:
        """
        Received by all ranks together.
        """
def local_shape(layout: Layout, shape: collections.abc.Sequence[int], position: int) -> tuple[int, ...]:
    """
    The shape of the local tensor at a position of the layout's mesh.

    Args:
        layout: How the tensor lies.
        shape: Its logical shape.
        position: An index into the mesh's rank list.

    Returns:
        The sizes of the rank's box, or ``(numel,)`` for a ragged layout.

    Raises:
        OutOfRangeError: The mesh has fewer ranks, or a Shard dim lies beyond the shape.
        InvalidArgumentError: A tensor of ``shape`` cannot lie so.

    Example:
        >>> layout = Layout((4,), ("dp",))([Shard(0)])
        >>> [local_shape(layout, (5, 3), position) for position in range(4)]
        [(2, 3), (2, 3), (1, 3), (0, 3)]
    """
def owned_boxes(layout: Layout, shape: collections.abc.Sequence[int], position: int) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """
    What is owned at a position of the layout's mesh, as disjoint N-D boxes in the order of local storage.

    Args:
        layout: How the tensor lies.
        shape: Its logical shape.
        position: An index into the mesh's rank list.

    Returns:
        ``(offsets, sizes)`` of each box: at most ``2 * ndim - 1``, none where nothing is owned.

    Raises:
        As ``local_shape``.

    Example:
        >>> layout = Layout((2,), ("dp",))([RaggedShard((0, 1), (1, 2))])
        >>> owned_boxes(layout, (3, 2), 1)
        [((1, 0), (2, 2))]
    """
def owned_interval(layout: Layout, shape: collections.abc.Sequence[int], position: int) -> tuple[int, int] | None:
    """
    The run ``[begin, end)`` of the row-major tensor that is owned at a position of the layout's mesh.

    Args:
        layout: How the tensor lies.
        shape: Its logical shape.
        position: An index into the mesh's rank list.

    Returns:
        ``(begin, end)``, or None where what is owned is not one run: a box that cuts an inner dim.

    Raises:
        As ``local_shape``.

    Example:
        >>> layout = Layout((2,), ("dp",))([RaggedShard((0, 1), (1, 2))])
        >>> [owned_interval(layout, (6, 4, 8), position) for position in range(2)]
        [(0, 64), (64, 192)]
    """
def parse_placements(text: str) -> tuple[Placement, ...]:
    """
    The placements that a text lists, in the notation of the command ``hyper-parallel plan``.

    Args:
        text: "[Shard(0), Replicate()]", "S(0), R", "[RaggedShard((0,), (1*500, 3*500))]".

    Raises:
        InvalidArgumentError: The text is not such a list; says where.

    Example:
        >>> parse_placements("[S(0), P(max), R]")
        (Shard(dim=0), Partial(reduce_op='max'), Replicate())
    """
def plan_text(source: Layout, target: Layout, shape: collections.abc.Sequence[int]) -> str:
    """
    The plan that takes a tensor from one layout to another, as text: a line for each step.

    Args:
        source: How the tensor lies.
        target: How it shall lie.
        shape: Its logical shape.

    Raises:
        InvalidArgumentError: A layout does not fit the shape, the target is Partial where the source is not, or the meshes
            hold different ranks.
        OutOfRangeError: A Shard dim lies beyond the shape.
    """
def plan_traffic(source: Layout, target: Layout, shape: collections.abc.Sequence[int]) -> MeshTraffic:
    """
    What taking a tensor from one layout to another costs, without doing it.

    Args:
        source: How the tensor lies.
        target: How it shall lie.
        shape: Its logical shape.

    Raises:
        As ``plan_text``.

    Example:
        >>> layout = Layout((2,), ("dp",))
        >>> plan_traffic(layout([Shard(0)]), layout([Shard(1)]), (4, 4)).total_received
        8
    """
__version__: str = '0.1.0'
