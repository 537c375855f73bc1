"""The gradient of a leaf after every transition of the design's table, against one process.

Layouts, shapes, units (zeros included) and dtypes are drawn. Every rank has a loss of its own, so that a gradient which
is summed too often, or not at all, shows. Values are tested on both platforms, in `test_shared_transitions.py`.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import strategies as st

from hyper_parallel import DTensor, Replicate, distribute_tensor
from support.checks import assert_consistent, gradient_of, make_mesh
from support.drawing import drawn
from support.layout_strategies import PAIRS
from support.pool import RankPools
from support.strategies import Transition, transitions
from support.truth import Shares, Spread
from support.values import FLOATS, random_values, small_integers
from support.worker import Rank

EXAMPLES = 7

on_every_mesh = pytest.mark.parametrize("mesh_shape", [(2,), (4,), (2, 2)], ids=["mesh2", "mesh4", "mesh2x2"])
every_pair = pytest.mark.parametrize(("source", "target"), PAIRS, ids=[f"{a}-{b}" for a, b in PAIRS])


def shares_of(spread: Spread, dtype: torch.dtype) -> Shares:
    """Shares with ties, whose reductions are exact."""
    pending = [
        size for size, placement in zip(spread.mesh_shape, spread.placements, strict=True) if placement.is_partial()
    ]
    return Shares(spread, small_integers((*pending, *spread.shape), dtype, seed=1))


def make_source(rank: Rank, transition: Transition) -> DTensor:
    """A leaf, or a tensor made of one, in its first layout."""
    spread, dtype = transition.source, transition.dtype
    mesh = make_mesh(*spread.mesh_shape)
    if not any(placement.is_partial() for placement in spread.placements):
        return distribute_tensor(random_values(spread.shape, dtype).requires_grad_(), mesh, spread.placements)
    shares = shares_of(spread, dtype)
    local = spread.part(shares.of(rank.index), rank.index).requires_grad_()
    return DTensor.from_local(local, mesh, spread.placements, shape=spread.shape)


def weights_of(shape: tuple[int, ...], dtype: torch.dtype) -> Callable[[int], torch.Tensor]:
    """Unlike weights of the ranks' losses."""
    return lambda rank: small_integers(shape, dtype, seed=100 + rank)


def expected_gradient(rank: Rank, transition: Transition, gradient: torch.Tensor) -> torch.Tensor:
    """This rank's part of the gradient of the source, from the gradient of the whole."""
    spread = transition.source
    if not any(placement.is_partial() for placement in spread.placements):
        return spread.part(gradient, rank.index)
    shares = shares_of(spread, transition.dtype)
    of_shares = Shares(spread, shares.gradients(gradient))
    return spread.part(of_shares.of(rank.index), rank.index)


def check_backward(rank: Rank, transition: Transition, exit_by: str) -> None:
    source = make_source(rank, transition)
    target = source.redistribute(source.device_mesh, transition.target.placements)
    assert_consistent(target)
    assert target.requires_grad
    weights = weights_of(transition.source.shape, transition.dtype)
    if exit_by == "full_tensor":
        left_as = Spread(
            transition.target.shape, transition.target.mesh_shape, (Replicate(),) * source.device_mesh.ndim
        )
        left = target.full_tensor()
    else:
        left_as = transition.target
        left = target.to_local()
    (left * left_as.part(weights(rank.index), rank.index)).sum().backward()
    expected = expected_gradient(rank, transition, left_as.gradient_of_losses(weights))
    # Ties of max and min share a gradient in thirds; all else is exact.
    torch.testing.assert_close(gradient_of(source)._local_tensor, expected)


@every_pair
@on_every_mesh
@pytest.mark.parametrize("exit_by", ["full_tensor", "to_local"])
@drawn(examples=EXAMPLES, data=st.data())
def test_gradients_are_those_of_one_process(
    rank_pools: RankPools,
    mesh_shape: tuple[int, ...],
    source: str,
    target: str,
    exit_by: str,
    data: st.DataObject,
) -> None:
    transition = data.draw(transitions(source, target, mesh_shape, dtypes=FLOATS))
    rank_pools[transition.source.size].run(check_backward, transition, exit_by)
