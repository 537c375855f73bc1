"""No redistribution between normal layouts receives more than by the sequences that torch's DTensor plans for it.

`pytest -s` shows the table of benchmarks/python/bench_plans.py, whose parts these are.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from torch.distributed import tensor as torch_tensor

from hyper_parallel import Partial, Placement, Replicate, Shard

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks" / "python"))

import bench_plans
from plan_bench.pairs import MESHES, WORLDS, Pair, World, as_torch, pairs_on, received, received_by_torch, some_pairs_on
from plan_bench.report import print_header, rows, short_text
from plan_bench.torch_sequences import TorchPlanner, Transform, fake_world, received_elements


@pytest.fixture(params=MESHES, ids=str)
def mesh_shape(request: pytest.FixtureRequest) -> Iterator[tuple[int, ...]]:
    """A mesh, in a world of its ranks that sends nothing."""
    shape: tuple[int, ...] = request.param
    with fake_world(math.prod(shape)):
        yield shape


@pytest.mark.timeout(300)
def test_no_plan_receives_more_than_the_cheaper_of_torchs_sequences(mesh_shape: tuple[int, ...]) -> None:
    print_header()
    for world in WORLDS:
        if world.mesh_shape != mesh_shape:
            continue
        without, reducing = rows(world, received(world, some_pairs_on(len(mesh_shape))))
        for row in (without, reducing):
            row.print()
            assert [(short_text(each.pair), each.ours, each.torch) for each in row.losses] == []
        assert all(each.ours == each.bound for each in without.pairs)
        # Every pair without Partial, and most of the others: torch's own planners have been asked.
        assert all(each.torch for each in without.pairs if not any(p.is_partial() for p in each.pair.source))
        assert sum(bool(each.torch) for each in reducing.pairs) > len(reducing.pairs) / 2


def test_torch_treats_all_reductions_alike(mesh_shape: tuple[int, ...]) -> None:
    """So that one may stand for the others in the table."""
    for shape in ((5, 7, 3), (24, 24, 24)):
        planner = TorchPlanner(mesh_shape, shape)
        for pair in some_pairs_on(len(mesh_shape), 3 if len(mesh_shape) == 2 else 997):
            if not planner.takes(as_torch(pair.source)):
                continue
            sums = Pair(_summed(pair.source), _summed(pair.target))
            assert received_by_torch(planner, pair) == received_by_torch(planner, sums), pair


def _summed(placements: tuple[Placement, ...]) -> tuple[Placement, ...]:
    return tuple(Partial("sum") if placement.is_partial() else placement for placement in placements)


def test_torch_refuses_unlike_reductions_but_sum_beside_avg() -> None:
    assert TorchPlanner.takes(as_torch((Partial("sum"), Shard(0), Partial("avg"))))
    assert TorchPlanner.takes(as_torch((Partial("max"), Partial("max"))))
    assert not TorchPlanner.takes(as_torch((Partial("sum"), Partial("max"))))
    assert not TorchPlanner.takes(as_torch((Partial("min"), Partial("max"))))


def test_known_sequences_of_torch(mesh_shape: tuple[int, ...]) -> None:
    if len(mesh_shape) != 2:
        return
    planner = TorchPlanner(mesh_shape, (24, 24, 24))
    swapped = as_torch((Shard(0), Shard(1))), as_torch((Shard(1), Shard(0)))
    kinds = [
        [(step.mesh_dims, type(step.source).__name__, type(step.target).__name__) for step in sequence]
        for sequence in planner.sequences("greedy", *swapped)
    ]
    assert kinds[0] == [((1,), "Shard", "Replicate"), ((0,), "Shard", "Shard"), ((1,), "Replicate", "Shard")]
    assert kinds[1] == kinds[0]
    plain, merged = planner.sequences("graph", as_torch((Partial(), Partial())), as_torch((Replicate(), Replicate())))
    assert len(plain) == 2
    assert [step.mesh_dims for step in merged] == [(0, 1)]


R, S, P = torch_tensor.Replicate(), torch_tensor.Shard, torch_tensor.Partial()


@pytest.mark.parametrize(
    ("sequence", "source", "elements"),
    [
        # Of (5, 3) over 4 ranks, by hand: chunks of 2 rows, of which the third is half and the fourth all padding.
        ([((0,), S(0), R)], [S(0)], 4 * 3 * 2 * 3),
        ([((0,), R, S(0))], [R], 0),
        ([((0,), R, P)], [R], 0),
        ([((0,), S(0), S(1))], [S(0)], 4 * 3 * 2 * 1),
        ([((0,), P, S(0))], [P], 4 * 3 * 2 * 3),
        ([((0,), P, R)], [P], 2 * 3 * 15),
        ([((0,), P, R), ((0,), R, S(1))], [P], 2 * 3 * 15),
    ],
    ids=["all-gather", "slice", "to partial", "all-to-all", "reduce-scatter", "all-reduce", "all-reduce and slice"],
)
def test_elements_of_each_collective(
    sequence: list[tuple[tuple[int, ...], torch_tensor.Placement, torch_tensor.Placement]],
    source: list[torch_tensor.Placement],
    elements: int,
) -> None:
    assert received_elements((4,), (5, 3), source, [Transform(*step) for step in sequence]) == elements


def test_elements_of_nested_shards_are_those_of_the_outer_chunk() -> None:
    """5 rows over 2 by 2: 3 and 2 rows, then 2, 1, 1, 1; the inner gather is padded to 2 in the first group only."""
    inner = Transform((1,), S(0), R)
    outer = Transform((0,), S(0), R)
    assert received_elements((2, 2), (5, 3), [S(0), S(0)], [inner]) == (2 + 2 + 1 + 1) * 3
    assert received_elements((2, 2), (5, 3), [S(0), S(0)], [inner, outer]) == (2 + 2 + 1 + 1) * 3 + 4 * 3 * 3
    # Merged: 3 chunks of 2 rows for each of 4 ranks.
    assert received_elements((2, 2), (5, 3), [S(0), S(0)], [Transform((0, 1), S(0), R)]) == 4 * 3 * 2 * 3
    with pytest.raises(AssertionError, match="others stand on"):
        received_elements((2, 2), (5, 3), [S(0), S(0)], [outer])


def test_every_pair_is_asked_for_once() -> None:
    for ndim, count in ((1, 36), (2, 36**2)):
        pairs = list(pairs_on(ndim))
        assert len(pairs) == len(set(pairs)) == count
    assert World((2, 3), (5, 7, 3)) in WORLDS
    assert short_text(Pair((Partial("max"), Replicate()), (Shard(2), Replicate()))) == "P(max), R -> S(2), R"


def test_program_prints_a_row_for_each_shape_with_and_without_reductions(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["bench_plans.py", "--meshes", "4", "--one-in", "2"])
    bench_plans.main()
    printed = [line for line in capsys.readouterr().out.splitlines() if line.startswith("(4,), ")]
    shapes = [line.removeprefix("(4,), ").split()[0] for line in printed]
    assert shapes == ["768x768x768", "768x768x768", "5x7x3", "5x7x3"]
    assert all(" yes" in line for line in printed)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--meshes", "2,2,2,2"], "argument --meshes: '2,2,2,2' is not the shape of a mesh of up to 3 dims"),
        (["--meshes", "0"], "argument --meshes: '0' is not the shape"),
        (["--one-in", "0"], "argument --one-in: '0' is not a number of at least 1"),
    ],
)
def test_wrong_arguments_of_the_program_end_it(
    arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        bench_plans.parse_options(arguments)
    assert text in capsys.readouterr().err
