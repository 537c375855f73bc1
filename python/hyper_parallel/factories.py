"""New DTensors, constant and random, and the seed of the random ones.

Each rank makes its own part alone. An element of a random tensor depends on its place in the whole tensor and on
(seed, mesh, number of the call): replicas are equal, and the whole is the same however it is cut.

Without a seed the ranks of a mesh agree, at their first random call on it, on the initial seed of torch on the mesh's
first rank. torch's own generators are neither read afterwards nor advanced.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, cast

import torch

from hyper_parallel import _torch
from hyper_parallel._current_mesh import current_mesh
from hyper_parallel.errors import ArgumentTypeError, FailedPreconditionError, InvalidArgumentError
from hyper_parallel.placement import Placement, Replicate

if TYPE_CHECKING:
    from hyper_parallel.device_mesh import DeviceMesh
    from hyper_parallel.dtensor import DTensor

__all__ = [
    "empty",
    "full",
    "get_rng_state",
    "manual_seed",
    "ones",
    "rand",
    "randn",
    "replay_random",
    "set_rng_state",
    "zeros",
]

_Size = int | Sequence[int]
_Placements = Sequence[Placement]
_Device = torch.device | str | int


def _checked_size(size: tuple[_Size, ...]) -> Sequence[int]:
    """The sizes, given one by one or as one sequence."""
    if len(size) == 1 and isinstance(size[0], Sequence):
        return size[0]
    return cast("tuple[int, ...]", size)  # of anything else C++ says what is wrong with it


def _where(
    operation: str, device_mesh: DeviceMesh | None, placements: _Placements | None
) -> tuple[DeviceMesh, _Placements]:
    """The mesh, the current one by default, and the placements, Replicate by default."""
    mesh = current_mesh() if device_mesh is None else device_mesh
    if mesh is None:
        raise InvalidArgumentError(f"{operation}: device_mesh is missing and no mesh is current (`with mesh:`)")
    return mesh, [Replicate()] * mesh.ndim if placements is None else placements


def _device_of(device: _Device | None) -> torch.device:
    return torch.get_default_device() if device is None else torch.device(device)


def zeros(
    *size: _Size,
    device_mesh: DeviceMesh | None = None,
    placements: _Placements | None = None,
    dtype: torch.dtype | None = None,
    device: _Device | None = None,
    requires_grad: bool = False,
) -> DTensor:
    """A new DTensor of zeros; each rank makes its own part, without communication.

    Args:
        size: The logical shape, as ints or as one sequence of ints.
        device_mesh: The mesh; the current one (``with device_mesh:``) by default.
        placements: ``Shard`` and ``Replicate``, one for each mesh dim; Replicate everywhere by default.
        dtype: torch's default dtype if None.
        device: Where the parts lie; torch's default device if None.
        requires_grad: Whether autograd records what is done with it.

    Returns:
        A leaf; a rank outside the mesh holds no elements.

    Raises:
        InvalidArgumentError: No mesh, a negative size, more elements than 63 bits count, placements that are not as
            many as mesh dims, ``Partial``, or requires_grad with an integer dtype.
        OutOfRangeError: A ``Shard`` dim outside the tensor's dims.
        UnimplementedError: ``RaggedShard``.

    Example:
        >>> mesh = DeviceMesh((1,), ("dp",))
        >>> zeros(2, 3, device_mesh=mesh, placements=[Shard(0)]).full_tensor()
        tensor([[0., 0., 0.],
                [0., 0., 0.]])
    """
    mesh, to = _where("zeros", device_mesh, placements)
    return _torch.zeros(_checked_size(size), mesh, to, dtype, _device_of(device), requires_grad)


def ones(
    *size: _Size,
    device_mesh: DeviceMesh | None = None,
    placements: _Placements | None = None,
    dtype: torch.dtype | None = None,
    device: _Device | None = None,
    requires_grad: bool = False,
) -> DTensor:
    """A new DTensor of ones; arguments and errors as of :func:`zeros`.

    Example:
        >>> mesh = DeviceMesh((1,), ("dp",))
        >>> ones((2,), device_mesh=mesh, placements=[Shard(0)], dtype=torch.int64).full_tensor()
        tensor([1, 1])
    """
    mesh, to = _where("ones", device_mesh, placements)
    return _torch.ones(_checked_size(size), mesh, to, dtype, _device_of(device), requires_grad)


def empty(
    *size: _Size,
    device_mesh: DeviceMesh | None = None,
    placements: _Placements | None = None,
    dtype: torch.dtype | None = None,
    device: _Device | None = None,
    requires_grad: bool = False,
) -> DTensor:
    """A new DTensor of whatever the memory holds, to be written; arguments and errors as of :func:`zeros`.

    Example:
        >>> mesh = DeviceMesh((1,), ("dp",))
        >>> empty(2, 3, device_mesh=mesh, placements=[Shard(1)]).shape
        torch.Size([2, 3])
    """
    mesh, to = _where("empty", device_mesh, placements)
    return _torch.empty(_checked_size(size), mesh, to, dtype, _device_of(device), requires_grad)


def full(  # noqa: PLR0913  (torch's signature)
    size: _Size,
    fill_value: complex,
    *,
    device_mesh: DeviceMesh | None = None,
    placements: _Placements | None = None,
    dtype: torch.dtype | None = None,
    device: _Device | None = None,
    requires_grad: bool = False,
) -> DTensor:
    """A new DTensor of one value; without a dtype that of the value, as in torch. The rest as of :func:`zeros`.

    Args:
        size: The logical shape.
        fill_value: The value: a bool, an int, a float or a complex number.
        device_mesh: As of :func:`zeros`, and so on.
        placements: See there.
        dtype: See there.
        device: See there.
        requires_grad: See there.

    Example:
        >>> mesh = DeviceMesh((1,), ("dp",))
        >>> full((2,), 7, device_mesh=mesh, placements=[Shard(0)]).full_tensor()
        tensor([7, 7])
    """
    mesh, to = _where("full", device_mesh, placements)
    return _torch.full(_checked_size((size,)), fill_value, mesh, to, dtype, _device_of(device), requires_grad)


def rand(
    *size: _Size,
    device_mesh: DeviceMesh | None = None,
    placements: _Placements | None = None,
    dtype: torch.dtype | None = None,
    device: _Device | None = None,
    requires_grad: bool = False,
) -> DTensor:
    """A new DTensor of numbers uniform in [0, 1); the same whole tensor whatever the placements.

    Arguments and errors as of :func:`zeros`; the dtype must be float64, float32, float16 or bfloat16 (ArgumentTypeError
    otherwise). In the two short ones the float32 numbers are rounded down, so that 1 is never reached.

    Example:
        >>> mesh = DeviceMesh((1,), ("dp",))
        >>> manual_seed(0)
        >>> x = rand(8, device_mesh=mesh, placements=[Shard(0)])
        >>> manual_seed(0)
        >>> torch.equal(rand(8, device_mesh=mesh).full_tensor(), x.full_tensor())
        True
    """
    mesh, to = _where("rand", device_mesh, placements)
    return _torch.rand(_checked_size(size), mesh, to, dtype, _device_of(device), requires_grad)


def randn(
    *size: _Size,
    device_mesh: DeviceMesh | None = None,
    placements: _Placements | None = None,
    dtype: torch.dtype | None = None,
    device: _Device | None = None,
    requires_grad: bool = False,
) -> DTensor:
    """A new DTensor of standard normal numbers; the same whole tensor whatever the placements.

    Arguments and errors as of :func:`rand`; in float16 and bfloat16 the float32 numbers are rounded to nearest.

    Example:
        >>> mesh = DeviceMesh((1,), ("dp",))
        >>> randn(4, 4, device_mesh=mesh, placements=[Shard(0)], dtype=torch.bfloat16).dtype
        torch.bfloat16
    """
    mesh, to = _where("randn", device_mesh, placements)
    return _torch.randn(_checked_size(size), mesh, to, dtype, _device_of(device), requires_grad)


def manual_seed(seed: int, device_mesh: DeviceMesh | None = None) -> None:
    """Starts the random numbers of DTensors again from a seed, without communication.

    All ranks must call it alike; with ``HYPER_PARALLEL_CHECK=1`` the next random call raises where they did not.
    May be called before there is a process group.

    Args:
        seed: As torch takes it: 64 bits, signed or not.
        device_mesh: By default all meshes start again; the seed is mixed with a mesh's ranks, so that each draws
            numbers of its own. With a mesh this one alone starts again, from the seed as it is: meshes of other or more
            ranks seeded alike draw the same tensors, as a job on another number of ranks wants it.

    Raises:
        ArgumentTypeError: A seed that is no int, or a device_mesh that is no DeviceMesh.
        InvalidArgumentError: A seed of more than 64 bits.

    Example:
        >>> manual_seed(42)
    """
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise ArgumentTypeError(f"manual_seed: seed is {seed!r} but must be an int")
    if not -(2**63) <= seed < 2**64:
        raise InvalidArgumentError(f"manual_seed: seed is {seed} but must be in [-2**63, 2**64)")
    _torch.manual_seed(seed - 2**64 if seed >= 2**63 else seed, device_mesh)


def get_rng_state() -> str:
    """Where the random numbers of DTensors stand on this rank, as text: the seed, and each mesh's number of calls.

    Example:
        >>> manual_seed(42)
        >>> get_rng_state()
        'seed 42'
    """
    return _torch.rng_state()


def set_rng_state(state: str) -> None:
    """Goes back to what :func:`get_rng_state` said; all ranks must go back to the same moment.

    Raises:
        InvalidArgumentError: Any other text.

    Example:
        >>> set_rng_state("seed 42")
    """
    if not isinstance(state, str):
        raise ArgumentTypeError(f"set_rng_state: state is {state!r} but must be a str")
    _torch.set_rng_state(state)


def replay_random() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    """Lets a checkpointed forward pass draw the same numbers when it is computed again: a ``context_fn`` for torch.

    ``torch.utils.checkpoint`` saves torch's own generators alone. Without this a dropout on a DTensor that is computed
    again raises, as it would drop other elements than before.

    Returns:
        The contexts of the forward pass and of its repetition.

    Example:
        >>> from torch.utils.checkpoint import checkpoint
        >>> mesh = DeviceMesh((1,), ("dp",))
        >>> x = ones(4, device_mesh=mesh, requires_grad=True)
        >>> y = checkpoint(torch.nn.functional.dropout, x, 0.5, use_reentrant=False, context_fn=replay_random)
        >>> y.to_local().sum().backward()
        >>> torch.equal(x.grad.full_tensor(), y.full_tensor())
        True
    """
    forward = _Forward()
    return forward, _Repetition(forward)


class _Forward(AbstractContextManager[None]):
    """Remembers where the random numbers stood."""

    def __init__(self) -> None:
        self.moment: str | None = None

    def __enter__(self) -> None:
        self.moment = get_rng_state()

    def __exit__(self, *_: object) -> None:
        return None


class _Repetition(AbstractContextManager[None]):
    """Goes back there; may be entered again, as a graph that is kept is walked again."""

    def __init__(self, forward: _Forward) -> None:
        self._forward = forward
        self._before: list[str] = []

    def __enter__(self) -> None:
        if self._forward.moment is None:
            raise FailedPreconditionError("replay_random: the forward pass has not run in its context")
        self._before.append(_torch.begin_replay(self._forward.moment))

    def __exit__(self, *_: object) -> None:
        _torch.end_replay(self._before.pop())
