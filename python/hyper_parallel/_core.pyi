"""
The C++ core of hyper_parallel: placements, meshes, layouts, geometry, checkpoints and errors.
"""
from __future__ import annotations
import collections.abc
import os
import typing
__all__: list[str] = ['ArgumentTypeError', 'AsyncSaveHandle', 'CheckpointError', 'CheckpointMetadata', 'CheckpointParts', 'Checkpointer', 'ChunkStorageMetadata', 'DeviceMesh', 'Exchange', 'ExtremeGradient', 'FailedPreconditionError', 'FileSystemReader', 'FileSystemWriter', 'GlobalSavePlan', 'HeldBytes', 'HyperParallelError', 'InternalError', 'InvalidArgumentError', 'Layout', 'LoadPlan', 'LoadPlanner', 'MeshTraffic', 'MessageExchange', 'MetadataIndex', 'OutOfRangeError', 'Partial', 'Placement', 'PlannedTensor', 'Progress', 'RaggedShard', 'RangeReader', 'RankPlan', 'RankStep', 'ReadItem', 'Redistribution', 'Replicate', 'SavePlan', 'SavePlanner', 'Shard', 'SingleExchange', 'StorageInfo', 'StorageReader', 'StorageWriter', 'TensorStorageMetadata', 'UnimplementedError', 'WriteItem', 'block_checksums', 'check_local', 'gradient_layout', 'infer_global_shape', 'known_global_shape', 'leaving_layout', 'local_shape', 'outside_gradient_layout', 'owned_boxes', 'owned_interval', 'parse_placements', 'plan_redistribution', 'plan_text', 'plan_traffic', 'terminal_progress', 'use_of_gradient']
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
class RankStep:
    """
    One step of a plan, as a rank runs it.

    Buffers are contiguous memory, such as a numpy array: ``source`` and ``target`` the rank's whole flat local tensors,
    messages as many elements as ``sends`` and ``receives`` say. Their sizes are checked, and the GIL is released.

    A move: ``copy_own``, ``pack`` for each send and ``unpack`` for each receive. A reduction: ``pack`` for each send and one
    ``combine``.
    """
    def __repr__(self) -> str:
        ...
    def combine(self, source: typing.Any, messages: collections.abc.Sequence[typing.Any], target: typing.Any, dtype: str) -> None:
        """
        Combines this rank's own share and the received messages in mesh order, divides, and places the result.

        Sums are rounded to the dtype after each term, as torch's are; NaN wins in max and min; integers wrap.

        Args:
            source: The source buffer.
            messages: The received messages, in the order of ``receives``.
            target: The target buffer, to be written; apart from all others.
            dtype: The element type as safetensors names it: "F32", "BF16", "I64".

        Raises:
            ArgumentTypeError: A reduction that the dtype does not have, or a buffer that is not contiguous memory.
            InvalidArgumentError: A buffer has another size, the messages are not as many as ``receives``, or the step is a move.
        """
    def copy_own(self, source: typing.Any, target: typing.Any, item_bytes: int) -> None:
        """
        Copies what stays on this rank in a move.

        Args:
            source: The source buffer.
            target: The target buffer, to be written; apart from the source.
            item_bytes: The bytes of one element.

        Raises:
            InvalidArgumentError: A buffer has another size, or the step is a reduction.
            ArgumentTypeError: A buffer is not contiguous memory.
        """
    def pack(self, send: int, source: typing.Any, message: typing.Any, item_bytes: int) -> None:
        """
        Fills a message to send.

        Args:
            send: An index into ``sends``.
            source: The source buffer.
            message: A buffer of the message's size, to be written.
            item_bytes: The bytes of one element.

        Raises:
            OutOfRangeError: There is no such message.
            InvalidArgumentError: A buffer has another size.
            ArgumentTypeError: A buffer is not contiguous memory.
        """
    def unpack(self, receive: int, message: typing.Any, target: typing.Any, item_bytes: int) -> None:
        """
        Puts a received message of a move in its place.

        Args:
            receive: An index into ``receives``.
            message: The message.
            target: The target buffer, to be written.
            item_bytes: The bytes of one element.

        Raises:
            As ``pack``, and InvalidArgumentError where the step is a reduction.
        """
    @property
    def is_reduction(self) -> bool:
        """
        Whether the messages are combined, not put side by side.
        """
    @property
    def receives(self) -> list[tuple[int, int]]:
        """
        ``(peer, elements)`` of each message to receive.
        """
    @property
    def sends(self) -> list[tuple[int, int]]:
        """
        ``(peer, elements)`` of each message to send; the peer is a global rank. None is empty.
        """
    @property
    def source_numel(self) -> int:
        """
        Elements of the source buffer.
        """
    @property
    def target_numel(self) -> int:
        """
        Elements of the target buffer.
        """
class RankPlan:
    """
    A redistribution as one rank runs it, step by step.
    """
    @property
    def steps(self) -> list[RankStep]:
        """
        The steps; none if the target is the source's local tensor itself.
        """
    @property
    def target_shape(self) -> tuple[int, ...]:
        """
        The shape of the rank's local tensor at the end.
        """
class ExtremeGradient:
    """
    How a rank learns what its share of a max or min counts for.

    ``extreme`` is the share, taken from the source layout to ``reduced``; ``holds`` is 1 where the share equals it and
    ``holders`` is ``holds``, taken from ``counted`` to ``everywhere``. The gradient is multiplied by ``holds / holders``.
    """
    @property
    def counted(self) -> Layout:
        """
        Where each rank says whether it holds the extreme.
        """
    @property
    def everywhere(self) -> Layout:
        """
        Where the number of holders is everywhere.
        """
    @property
    def reduced(self) -> Layout:
        """
        Where the extreme is everywhere.
        """
class Redistribution:
    """
    Where a tensor goes from and to, and the way back of its gradient.

    Args:
        source: How the tensor lies.
        target: How it shall lie.
        incoming: How the gradient of the result lies: ``gradient_layout(target)`` inside, ``leaving_layout(target)`` where
            the tensor leaves.
        shape: The logical shape.

    Raises:
        OutOfRangeError: A Shard dim lies beyond the shape.
        InvalidArgumentError: RaggedShard dims lie beyond it.
    """
    def __init__(self, source: Layout, target: Layout, incoming: Layout, shape: collections.abc.Sequence[int]) -> None:
        ...
    @property
    def backward(self) -> Redistribution:
        """
        What takes the gradient of the result back to the source's share.
        """
    @property
    def divisor(self) -> int:
        """
        What the gradient is divided by: the ranks averaged over.
        """
    @property
    def extreme(self) -> ExtremeGradient | None:
        """
        What the gradient of a max or min needs, or None.
        """
    @property
    def incoming(self) -> Layout:
        """
        How the gradient of the result lies.
        """
    @property
    def is_identity(self) -> bool:
        """
        Whether nothing moves in either direction.
        """
    @property
    def parts(self) -> list[Redistribution]:
        """
        The redistributions that do this one after the other, each with one rule for its gradient.

        Itself, unless it resolves reductions whose gradients differ. The four below are those of one part.
        """
    @property
    def shape(self) -> tuple[int, ...]:
        """
        The logical shape.
        """
    @property
    def source(self) -> Layout:
        """
        How the tensor lies; no Shard dim is negative.
        """
    @property
    def target(self) -> Layout:
        """
        How it shall lie.
        """
class ChunkStorageMetadata:
    """
    A box of a tensor's cells, ``offsets[d] <= x[d] < offsets[d] + sizes[d]``.
    """
    def __eq__(self, other: object) -> bool:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, offsets: collections.abc.Sequence[int], sizes: collections.abc.Sequence[int]) -> None:
        """
        Args:
            offsets: Its first cell.
            sizes: Cells in each dim.

        Raises:
            InvalidArgumentError: Unlike many entries, or a negative one.
        """
    def __repr__(self) -> str:
        ...
    @property
    def offsets(self) -> tuple:
        """
        Its first cell.
        """
    @property
    def sizes(self) -> tuple:
        """
        Cells in each dim.
        """
class MetadataIndex:
    """
    Names an entry, or the box of a tensor that begins at ``offset``.
    """
    def __eq__(self, other: object) -> bool:
        ...
    def __hash__(self) -> int:
        ...
    def __init__(self, fqn: str, offset: typing.Any = None) -> None:
        """
        Args:
            fqn: The entry's logical name.
            offset: The box's first cell, None for the whole entry.
        """
    def __repr__(self) -> str:
        ...
    @property
    def fqn(self) -> str:
        """
        The entry's logical name.
        """
    @property
    def offset(self) -> typing.Any:
        """
        The box's first cell, None for the whole entry.
        """
class StorageInfo:
    """
    Where a chunk's bytes lie.
    """
    __hash__: typing.ClassVar[None] = None  # type: ignore[assignment]
    def __eq__(self, other: object) -> bool:
        ...
    @property
    def checksums(self) -> list[int]:
        """
        CRC32C of each 1 MiB block of the chunk.
        """
    @property
    def length(self) -> int:
        """
        How many bytes.
        """
    @property
    def offset(self) -> int:
        """
        The first byte in the file.
        """
    @property
    def relative_path(self) -> str:
        """
        The data file, inside the checkpoint's directory.
        """
    @property
    def tensor_key(self) -> str | None:
        """
        The chunk's name in the file, None where that is the logical name.
        """
class TensorStorageMetadata:
    """
    A stored tensor.
    """
    __hash__: typing.ClassVar[None] = None  # type: ignore[assignment]
    def __eq__(self, other: object) -> bool:
        ...
    @property
    def chunks(self) -> list[ChunkStorageMetadata]:
        """
        Its chunks: disjoint, and filling the shape.
        """
    @property
    def dtype(self) -> str:
        """
        Its dtype as the safetensors format names it, 'BF16'.
        """
    @property
    def size(self) -> tuple:
        """
        Its logical shape.
        """
class CheckpointMetadata:
    """
    What a checkpoint holds and where.
    """
    @staticmethod
    def parse(text: bytes, source: str = '.metadata') -> CheckpointMetadata:
        """
        Args:
            text: The content of the file ``.metadata``.
            source: Starts the messages of errors.

        Raises:
            CheckpointError: The text is not exactly of the format.
        """
    def to_bytes(self) -> bytes:
        """
        The content of the file ``.metadata``.
        """
    @property
    def files(self) -> dict:
        """
        The data files and their sizes in bytes.
        """
    @property
    def save_id(self) -> str:
        """
        16 hex digits that name the save.
        """
    @property
    def state_dict_metadata(self) -> dict:
        """
        The tensors by logical name.
        """
    @property
    def storage_data(self) -> dict:
        """
        Where each chunk lies, by ``MetadataIndex``.
        """
    @property
    def structure(self) -> typing.Any:
        """
        How the names nest: dicts, lists and tuples whose leaves are names; None for a flat dict.
        """
    @property
    def values(self) -> dict:
        """
        The values by name.
        """
class WriteItem:
    """
    One box to write.
    """
    def __repr__(self) -> str:
        ...
    @property
    def chunk(self) -> ChunkStorageMetadata:
        """
        The box.
        """
    @property
    def dtype(self) -> str:
        """
        The dtype as the safetensors format names it.
        """
    @property
    def index(self) -> MetadataIndex:
        """
        The tensor's name and the box's first cell.
        """
    @property
    def length(self) -> int:
        """
        Bytes of the box.
        """
    @property
    def size(self) -> tuple:
        """
        The tensor's logical shape.
        """
class PlannedTensor:
    """
    A tensor and the boxes of it that a rank holds or writes.
    """
    def __init__(self, name: str, dtype: str, size: collections.abc.Sequence[int], chunks: collections.abc.Sequence[ChunkStorageMetadata]) -> None:
        """
        Args:
            name: Its logical name.
            dtype: As the safetensors format names it, 'F32'.
            size: Its logical shape.
            chunks: Boxes, in the order of the rank's storage.
        """
    @property
    def chunks(self) -> list[ChunkStorageMetadata]:
        """
        The boxes.
        """
    @property
    def dtype(self) -> str:
        """
        The dtype as the safetensors format names it.
        """
    @property
    def name(self) -> str:
        """
        Its logical name.
        """
    @property
    def size(self) -> tuple:
        """
        Its logical shape.
        """
class SavePlan:
    """
    What a rank offers to save, or is told to save.
    """
    def __init__(self, tensors: collections.abc.Sequence[PlannedTensor], values: typing.Any = None, structure: typing.Any = None) -> None:
        """
        Args:
            tensors: Tensors with this rank's boxes; one without boxes says that it exists.
            values: What is not a tensor, by name.
            structure: How the names nest, None for a flat dict.
        """
    @property
    def items(self) -> list[WriteItem]:
        """
        Every box as a ``WriteItem``.
        """
    @property
    def structure(self) -> typing.Any:
        """
        How the names nest.
        """
    @property
    def tensors(self) -> list[PlannedTensor]:
        """
        Tensors with this rank's boxes.
        """
    @property
    def values(self) -> dict:
        """
        What is not a tensor, by name.
        """
class GlobalSavePlan:
    """
    Every rank's share of a save.
    """
    @property
    def assigned(self) -> list[SavePlan]:
        """
        A ``SavePlan`` for each rank.
        """
    @assigned.setter
    def assigned(self, arg0: collections.abc.Sequence[SavePlan]) -> None:
        ...
    @property
    def structure(self) -> typing.Any:
        """
        How the names nest.
        """
    @property
    def values(self) -> dict:
        """
        The values of the whole checkpoint.
        """
class ReadItem:
    """
    One overlap of a stored chunk and a box that a rank wants.
    """
    @property
    def dest_index(self) -> MetadataIndex:
        """
        The wanted box.
        """
    @property
    def dest_offsets(self) -> tuple:
        """
        Where the overlap begins in the wanted box.
        """
    @property
    def dtype(self) -> str:
        """
        The stored dtype as the safetensors format names it.
        """
    @property
    def lengths(self) -> tuple:
        """
        Cells of the overlap in each dim.
        """
    @property
    def storage_index(self) -> MetadataIndex:
        """
        The stored chunk.
        """
    @property
    def storage_offsets(self) -> tuple:
        """
        Where the overlap begins in the chunk.
        """
class LoadPlan:
    """
    Which cells of which chunks go where, for one rank.
    """
    @property
    def items(self) -> list[ReadItem]:
        """
        Every overlap, in the order in which bytes lie in the files.
        """
class HeldBytes:
    """
    The bytes of one box; read them through ``memoryview``.
    """
    def __len__(self) -> int:
        ...
class SavePlanner:
    """
    What a save asks of whoever owns the data: derive from it and define the methods.
    """
    def __init__(self) -> None:
        ...
    def build_global_plan(self, plans: collections.abc.Sequence[SavePlan]) -> GlobalSavePlan:
        """
        Gives each box to one of the ranks that hold it; called on the coordinator.

        Args:
            plans: Each rank's local plan.

        Returns:
            A ``GlobalSavePlan``.

        Raises:
            InvalidArgumentError: Ranks disagree about a tensor, or their boxes do not fill it.
        """
    def build_local_plan(self) -> SavePlan:
        """
        What this rank holds, as a ``SavePlan``.
        """
    def get_data(self, item: WriteItem) -> typing.Any:
        """
        The row-major bytes of one box: contiguous memory, of ``item.length`` bytes.
        """
    def may_cache_plan(self) -> bool:
        """
        Whether the plan may be used again for the next save of an equal local plan.
        """
class LoadPlanner:
    """
    What a load asks of whoever owns the targets: derive from it and define the methods.
    """
    @staticmethod
    def plan(metadata: CheckpointMetadata, targets: collections.abc.Sequence[PlannedTensor], allow_missing: collections.abc.Sequence[str] = (), allow_cast: collections.abc.Sequence[str] = ()) -> LoadPlan:
        """
        Finds the chunks that fill the targets.

        Args:
            metadata: What is stored.
            targets: ``PlannedTensor`` for each tensor wanted, with the boxes that this rank holds.
            allow_missing: Names or patterns of targets that need not be stored.
            allow_cast: Names or patterns of targets whose dtype may differ from the stored one.

        Returns:
            A ``LoadPlan``.

        Raises:
            InvalidArgumentError: A target is not stored, or has another shape or dtype.
        """
    def __init__(self) -> None:
        ...
    def build_local_plan(self, metadata: CheckpointMetadata) -> LoadPlan:
        """
        The ``LoadPlan`` of this rank's targets; must not touch them.
        """
    def finish(self) -> None:
        """
        Called when everything is read and verified.
        """
class CheckpointParts:
    """
    What one rank has written: files, and where each box lies.
    """
    def __init__(self) -> None:
        ...
    def add_chunk(self, item: WriteItem, file: str, offset: int, checksums: collections.abc.Sequence[int], tensor_key: str | None = None) -> None:
        """
        Says where a box lies.

        Args:
            item: The box.
            file: A file that was added.
            offset: Its first byte in the file.
            checksums: ``block_checksums`` of its bytes.
            tensor_key: Its name in the file, None for the logical name.

        Raises:
            InvalidArgumentError: An unknown file, or checksums that are not as many as the box has blocks.
        """
    def add_file(self, name: str, bytes: int) -> None:
        """
        Args:
            name: A name of one path component.
            bytes: The size of the whole file.
        """
    @property
    def files(self) -> dict:
        """
        The files and their sizes in bytes.
        """
class Progress:
    """
    Told how many bytes are done: derive from it and define the methods.
    """
    def __init__(self) -> None:
        ...
    def advance(self, bytes: int) -> None:
        """
        So many more are done.
        """
    def finish(self) -> None:
        """
        All is done.
        """
    def start(self, total_bytes: int) -> None:
        """
        Before the first byte: how many there will be.
        """
class StorageWriter:
    """
    Where a save's bytes go: derive from it and define the methods.
    """
    def __init__(self) -> None:
        ...
    def abandon(self) -> None:
        """
        On the coordinator, after a fault before ``publish``: removes what this save wrote.
        """
    def begin(self) -> str:
        """
        On the coordinator, before any rank writes: takes the place for itself, returns the save's id, 16 hex digits.
        """
    def publish(self, metadata: CheckpointMetadata) -> None:
        """
        On the coordinator, after all ranks have written: makes the checkpoint the one that readers see. If it fails it must itself remove what the save wrote, unless readers may see it: ``abandon`` is not called then.
        """
    def write(self, save_id: str, rank: int, plan: SavePlan, planner: SavePlanner, progress: Progress) -> CheckpointParts:
        """
        On every rank: writes the plan's boxes durably.

        Args:
            save_id: The save's id.
            rank: This rank.
            plan: The boxes, a ``SavePlan``.
            planner: Its ``get_data(item)`` has the bytes.
            progress: To be told.

        Returns:
            ``CheckpointParts``.
        """
class FileSystemWriter(StorageWriter):
    """
    A checkpoint in a directory.
    """
    def __init__(self, directory: os.PathLike | str | bytes) -> None:
        """
        Args:
            directory: Its path; created where it is missing, its parent is not.
        """
class StorageReader:
    """
    Where a load's bytes come from: derive from it and define the methods.
    """
    def __init__(self) -> None:
        ...
    def open(self, metadata: CheckpointMetadata, plan: LoadPlan) -> bool:
        """
        Gets hold of the files that the plan reads; False if one is gone because a newer save replaced it.
        """
    def read(self, metadata: CheckpointMetadata, plan: LoadPlan, planner: LoadPlanner, progress: Progress) -> None:
        """
        Reads, verifies and delivers every item.
        """
    def read_metadata(self) -> bytes:
        """
        On the coordinator: the content of ``.metadata``.
        """
class FileSystemReader(StorageReader):
    """
    Reads a checkpoint from a directory.
    """
    def __init__(self, directory: os.PathLike | str | bytes, *, threads: int = 4) -> None:
        """
        Args:
            directory: Its path.
            threads: How many of this rank's threads read, 1 to 256.

        Raises:
            InvalidArgumentError: Another number of threads.
        """
class RangeReader(StorageReader):
    """
    A ``StorageReader`` that needs to know only how bytes are read: derive from it and define ``read_metadata()``, ``file_size(name)`` (None for a file that is gone) and ``read_range(name, begin, size)``, which returns exactly ``size`` bytes. Blocks are verified, and each is asked for once.
    """
    def __init__(self) -> None:
        ...
class Exchange:
    """
    How the ranks of a save or load talk.
    """
    @property
    def rank(self) -> int:
        """
        This rank among them; rank 0 is the coordinator.
        """
    @property
    def size(self) -> int:
        """
        How many ranks there are.
        """
class SingleExchange(Exchange):
    """
    A job of one rank.
    """
    def __init__(self) -> None:
        ...
class MessageExchange(Exchange):
    """
    An exchange over functions of Python that send messages.
    """
    def __init__(self, rank: int, size: int, gather: collections.abc.Callable[[bytes], list[bytes]], scatter: collections.abc.Callable[[list[bytes]], bytes]) -> None:
        """
        The functions are called in the thread that saves or loads, by all ranks in the same order.

        Args:
            rank: This rank among those that talk.
            size: How many they are.
            gather: Takes this rank's message; returns those of all, by rank, on rank 0. What it returns elsewhere does not
                count.
            scatter: Takes on rank 0 a message for each rank, elsewhere an empty list; returns this rank's.

        Raises:
            InvalidArgumentError: ``rank`` is none of them.
        """
class AsyncSaveHandle:
    """
    A save in the background.
    """
    def done(self) -> bool:
        """
        Whether it has ended, well or not.
        """
    def wait(self, timeout: typing.SupportsFloat | typing.SupportsIndex | None = None) -> bool:
        """
        Waits for its end, ``timeout`` seconds at most; whether it has ended. Raises the error it ended with.
        """
class Checkpointer:
    """
    The saves and loads of one job, one after the other.
    """
    def __init__(self, exchange: Exchange) -> None:
        """
        Args:
            exchange: How its ranks talk.
        """
    def async_save(self, planner: SavePlanner, writer: typing.Any, progress: typing.Any, compare_replicas: bool = False) -> AsyncSaveHandle:
        """
        Saves in the background; returns when the bytes are copied.
        """
    def load(self, planner: LoadPlanner, reader: StorageReader, values: collections.abc.Sequence[str], allow_missing: collections.abc.Sequence[str], allow_extra: collections.abc.Sequence[str], progress: Progress) -> CheckpointMetadata:
        """
        Loads; every rank calls. Returns the metadata. Raises on all ranks if one fails.
        """
    def save(self, planner: SavePlanner, writer: StorageWriter, progress: Progress, compare_replicas: bool = False) -> None:
        """
        Saves; every rank calls. Raises on all ranks if one fails.
        """
    @property
    def exchange(self) -> Exchange:
        """
        How its ranks talk.
        """
    @property
    def plan_cache_hits(self) -> int:
        """
        How many saves used the plan of the save before.
        """
def block_checksums(data: typing.Any) -> list[int]:
    """
    CRC32C of each 1 MiB block of contiguous memory.

    Example:
        >>> block_checksums(b"123456789")
        [3808858755]
    """
def check_local(layout: Layout, shape: collections.abc.Sequence[int], rank: int, local_shape: collections.abc.Sequence[int], local_strides: collections.abc.Sequence[int]) -> None:
    """
    Raises unless a local tensor of these sizes and strides is the rank's part of a tensor.

    Args:
        layout: How the tensor lies.
        shape: Its logical shape, which has passed ``layout.check_shape``.
        rank: The global rank.
        local_shape: The local tensor's sizes.
        local_strides: Its strides, in elements.

    Raises:
        InvalidArgumentError: The sizes are others; with RaggedShard it is not 1-D and contiguous; outside the mesh it has
            elements.
    """
def gradient_layout(layout: Layout) -> Layout:
    """
    How the gradient of a tensor lies: as the tensor, ``Replicate()`` where it is Partial.

    Args:
        layout: How the tensor lies.
    """
def infer_global_shape(layout: Layout, local_shapes: collections.abc.Sequence[collections.abc.Sequence[int]]) -> tuple[int, ...]:
    """
    The logical shape of a tensor whose local tensors have these sizes.

    Args:
        layout: How the tensor lies.
        local_shapes: The sizes on each rank, in mesh order.

    Raises:
        InvalidArgumentError: The sizes break the Shard rule, differ in their number of dims or are not one for each rank, or
            the layout is ragged.
        OutOfRangeError: A Shard dim lies beyond the tensors' dims.

    Example:
        >>> layout = Layout((2,), ("dp",))([Shard(0)])
        >>> infer_global_shape(layout, [(3, 4), (2, 4)])
        (5, 4)
    """
def known_global_shape(layout: Layout, local_shape: collections.abc.Sequence[int], rank: int) -> tuple[int, ...] | None:
    """
    The logical shape where the rank's local tensor alone tells it: nothing is sharded.

    Args:
        layout: How the tensor lies.
        local_shape: The local tensor's sizes.
        rank: The global rank.

    Returns:
        The shape, or None where the ranks must tell each other their sizes, for ``infer_global_shape``.

    Raises:
        InvalidArgumentError: The layout is ragged, the rank is outside the mesh, or the local tensor has over 64 dims.
    """
def leaving_layout(layout: Layout) -> Layout:
    """
    How a gradient that comes from outside lies: Partial(sum) where the tensor is ``Replicate()``, ``Replicate()``
    where it is Partial (each share's own), else as the tensor.

    Args:
        layout: How the tensor lies.
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
def outside_gradient_layout(layout: Layout, grad_placements: collections.abc.Sequence[Placement] | None, ndim: int) -> Layout:
    """
    How a gradient that comes from outside lies where the user may say so.

    Args:
        layout: How the tensor lies.
        grad_placements: What the user says, or None: as ``leaving_layout`` then.
        ndim: The number of the tensor's dims.

    Raises:
        InvalidArgumentError: The grad_placements are not as many as mesh dims, or neither the tensor's placement nor, where
            that is whole or Partial, ``Replicate()``, Partial(sum) or Partial(avg).
        OutOfRangeError: A Shard dim lies beyond the tensor's dims.
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
def plan_redistribution(source: Layout, target: Layout, shape: collections.abc.Sequence[int], rank: int) -> RankPlan:
    """
    What a rank does to take a tensor from one layout to another. Plans are kept, so that asking again is cheap.

    Args:
        source: How the tensor lies.
        target: How it shall lie.
        shape: Its logical shape.
        rank: The global rank. Outside the mesh it has no step, and a local tensor of shape ``(0,)``.

    Raises:
        As ``plan_text``, alike on every rank.

    Example:
        >>> layout = Layout((2,), ("dp",))
        >>> plan = plan_redistribution(layout([Shard(0)]), layout([Replicate()]), (4, 2), rank=0)
        >>> plan.target_shape, plan.steps[0].sends, plan.steps[0].receives
        ((4, 2), [(1, 4)], [(1, 4)])
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
def terminal_progress(descriptor: int = 2) -> Progress:
    """
    A bar (bytes done, rate, time left) on an open file if that is a terminal, else one that says nothing.
    """
def use_of_gradient(layout: Layout, shape: collections.abc.Sequence[int]) -> Redistribution | None:
    """
    How the gradient of shares is used that each rank has made of its own cells.

    It stays as it lies, and each rank goes on with it for these cells: what comes back to it is Partial(sum) where the
    tensor is Partial(sum) or Partial(avg). None where it is neither.

    Args:
        layout: How the tensor lies.
        shape: The logical shape.
    """
__version__: str = '0.1.0'
