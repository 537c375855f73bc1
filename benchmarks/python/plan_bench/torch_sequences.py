"""The sequences of collectives that torch's DTensor plans for a redistribution, and what each of them receives.

A sequence is a list of `Transform`: along some mesh dims one placement becomes another. What all ranks together receive
in one, counted in elements from every rank's local sizes before it, for groups of n ranks:

    R -> S, R -> P    nothing
    S(d) -> R         (n - 1) * chunk                         all-gather of chunks padded to the first one's size
    S(d) -> S(e)      (n - 1) * chunk / n                     all-to-all, padded in d and in e
    P -> S(d)         (n - 1) * chunk                         reduce-scatter, padded in d
    P -> R            2 * (n - 1) / n * local size            all-reduce: a reduce-scatter and an all-gather

each times the ranks. A chunk has ceil(size / n) rows of the dim that is split, where size is that of the dim in front
of this split: torch pads to it wherever n does not divide the size. (On Gloo torch makes its all-to-all of an
all-gather, which receives more; that is not held against it.)
"""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import Partial, Placement, Replicate, Shard, _redistribute
from torch.distributed.tensor._dtensor_spec import DTensorSpec, ShardOrder, TensorMeta
from torch.distributed.tensor._redistribute import (
    DTensorRedistributePlanner,
    _FlattenedTransformInfo,
    _optimize_transform_infos,
    _TransformInfo,
)
from torch.distributed.tensor._utils import assert_no_mixed_partial_types
from torch.testing._internal.distributed.fake_pg import FakeStore

PLANNERS = ("greedy", "graph")


@contextmanager
def fake_world(ranks: int) -> Iterator[None]:
    """A default process group of `ranks` in this one process, which sends nothing: enough to plan with."""
    # Once for each mesh it advises to flatten what cannot be.
    logging.getLogger(_redistribute.__name__).setLevel(logging.ERROR)
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=ranks)
    try:
        yield
    finally:
        dist.destroy_process_group()


@dataclass(frozen=True)
class Transform:
    """One placement becomes another along `mesh_dims`, by one collective over all of them or locally."""

    mesh_dims: tuple[int, ...]
    source: Placement
    target: Placement


class TorchPlanner:
    """Both planners of torch's DTensor for float32 tensors of one shape on one mesh.

    Every group of mesh dims has its flattened mesh, so that torch merges what it can. Made inside `fake_world`.

    Args:
        mesh_shape: How many ranks lie along each mesh dim.
        shape: The tensor's.
    """

    def __init__(self, mesh_shape: tuple[int, ...], shape: tuple[int, ...]) -> None:
        self.mesh_shape = mesh_shape
        self.shape = shape
        self._mesh = _mesh_with_flattened_ones(mesh_shape)
        strides = tuple(math.prod(shape[dim + 1 :]) for dim in range(len(shape)))
        self._meta = TensorMeta(torch.Size(shape), strides, torch.float32)
        self._planner = DTensorRedistributePlanner(self._mesh, self._meta)
        _remember_steps(self._planner)

    @staticmethod
    def takes(placements: Sequence[Placement]) -> bool:
        """Whether torch allows these Partials beside each other."""
        try:
            assert_no_mixed_partial_types(placements)
        except ValueError:
            return False
        return True

    def least_received(self, planner: str, source: Sequence[Placement], target: Sequence[Placement]) -> int:
        """What all ranks receive by one of PLANNERS: by its sequence or by that with collectives merged.

        Args:
            planner: "greedy" or "graph".
            source: The placements before.
            target: Those after.

        Returns:
            Elements; the fewer of the two.
        """
        return min(
            received_elements(self.mesh_shape, self.shape, source, sequence)
            for sequence in self.sequences(planner, source, target)
        )

    def sequences(
        self, planner: str, source: Sequence[Placement], target: Sequence[Placement]
    ) -> tuple[list[Transform], list[Transform]]:
        """The planner's sequence, and the same with neighbouring collectives merged where torch does so."""
        before, after = (DTensorSpec(self._mesh, tuple(given), self._meta) for given in (source, target))
        if planner == "greedy":
            found = self._planner.generate_greedy_transform_infos(before, after)
        else:
            # It collects them over its calls, and each lengthens the search.
            self._planner.partial_reduce_ops_in_target.clear()
            found = self._planner.generate_graph_based_transform_infos(before, after, self._meta.shape)
        merged = _optimize_transform_infos(found, self._mesh, before.placements, after.placements)
        return [_transform(info) for info in found], [_transform(info) for info in merged]


def _remember_steps(planner: DTensorRedistributePlanner) -> None:
    """Keeps what may follow each state, and at what cost: nearly every search passes through the same ones."""
    find = cache(lambda placements, order, _reductions: type(planner).get_next_state(planner, placements, order))

    def get_next_state(placements: tuple[Placement, ...], order: ShardOrder) -> dict[Any, float]:
        return find(placements, order, frozenset(planner.partial_reduce_ops_in_target))

    setattr(planner, "cost_function", cache(planner.cost_function))  # noqa: B010
    setattr(planner, "get_next_state", get_next_state)  # noqa: B010


def _mesh_with_flattened_ones(mesh_shape: tuple[int, ...]) -> DeviceMesh:
    names = tuple(f"dim_{dim}" for dim in range(len(mesh_shape)))
    mesh = init_device_mesh("cpu", mesh_shape, mesh_dim_names=names)
    for count in range(2, len(names) + 1):
        for group in itertools.combinations(names, count):
            mesh[group]._flatten()
    return mesh


def _transform(info: _TransformInfo) -> Transform:
    dims = info.original_mesh_dims if isinstance(info, _FlattenedTransformInfo) else (info.mesh_dim,)
    return Transform(dims, *info.src_dst_placements)


class _Sizes:
    """The local sizes of every rank while a tensor goes from one placement to the next."""

    def __init__(self, mesh_shape: Sequence[int], shape: Sequence[int], placements: Sequence[Placement]) -> None:
        self._mesh_shape = mesh_shape
        self._shape = shape
        # By tensor dim the mesh dims that split it, in the order in which they do.
        self._splits: dict[int, list[int]] = {dim: [] for dim in range(len(shape))}
        for mesh_dim, placement in enumerate(placements):
            if isinstance(placement, Shard):
                self._splits[placement.dim].append(mesh_dim)

    def apply(self, step: Transform) -> None:
        if isinstance(step.source, Shard):
            split = self._splits[step.source.dim]
            if sorted(split[-len(step.mesh_dims) :]) != sorted(step.mesh_dims):
                raise AssertionError(f"{step} takes away a split that others stand on: {self._splits}")
            del split[-len(step.mesh_dims) :]
        if isinstance(step.target, Shard):
            self._splits[step.target.dim].extend(step.mesh_dims)

    def of(self, coordinate: Sequence[int], without: Sequence[int] = ()) -> list[int]:
        """A rank's local sizes, as they would be if the mesh dims `without` split nothing."""
        return [
            self._size(dim, coordinate, [mesh_dim for mesh_dim in self._splits[dim] if mesh_dim not in without])
            for dim in range(len(self._shape))
        ]

    def _size(self, dim: int, coordinate: Sequence[int], splits: Sequence[int]) -> int:
        size = self._shape[dim]
        for mesh_dim in splits:
            chunk = -(-size // self._mesh_shape[mesh_dim])
            size = max(0, min(chunk, size - coordinate[mesh_dim] * chunk))
        return size


def received_elements(
    mesh_shape: Sequence[int], shape: Sequence[int], source: Sequence[Placement], sequence: Sequence[Transform]
) -> int:
    """What all ranks together receive in a sequence, by the formulas at the head of this file.

    Args:
        mesh_shape: How many ranks lie along each mesh dim.
        shape: The tensor's.
        source: How it lies before.
        sequence: What is done.

    Returns:
        Elements.

    Example:
        >>> gather = Transform((0,), Shard(0), Replicate())
        >>> received_elements((4,), (5, 3), [Shard(0)], [gather])  # chunks of 2 rows, the last two padded
        72
    """
    sizes = _Sizes(mesh_shape, shape, source)
    total = 0
    for step in sequence:
        ranks = math.prod(mesh_shape[dim] for dim in step.mesh_dims)
        of_all_shares = sum(
            _elements_of_a_share(step, ranks, sizes.of(coordinate, step.mesh_dims))
            for coordinate in itertools.product(*(range(size) for size in mesh_shape))
        )
        # In a group every rank counts alike, so that the division is exact.
        total += of_all_shares * (ranks - 1) // (ranks if _is_all_reduce(step) else 1)
        sizes.apply(step)
    return total


def _is_all_reduce(step: Transform) -> bool:
    return isinstance(step.source, Partial) and isinstance(step.target, Replicate)


def _elements_of_a_share(step: Transform, ranks: int, sizes: list[int]) -> int:
    """What a rank receives from one other; of an all-reduce twice what it holds. `sizes` are those of the group."""
    if isinstance(step.source, Replicate):
        return 0
    if _is_all_reduce(step):
        return 2 * math.prod(sizes)
    split = [placement.dim for placement in (step.source, step.target) if isinstance(placement, Shard)]
    return math.prod(-(-size // ranks) if dim in split else size for dim, size in enumerate(sizes))
