"""DeviceMesh: the value, and on 4 ranks the questions that depend on the process."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist

import hyper_parallel
from hyper_parallel import (
    ArgumentTypeError,
    DeviceMesh,
    FailedPreconditionError,
    InvalidArgumentError,
    OutOfRangeError,
    init_device_mesh,
)
from support.ranks import ranks
from support.worker import Rank


def dp_tp() -> DeviceMesh:
    return DeviceMesh((2, 2), ("dp", "tp"))


def test_attributes_are_what_was_given() -> None:
    mesh = DeviceMesh((2, 3), ("dp", "tp"), [5, 4, 3, 2, 1, 0])
    assert mesh.shape == mesh.mesh_shape == (2, 3)
    assert mesh.ndim == 2
    assert mesh.mesh_dim_names == ("dp", "tp")
    assert mesh.rank_list == (5, 4, 3, 2, 1, 0)
    assert (mesh.size(), mesh.size("tp"), mesh.size(0), mesh.size(-1)) == (6, 3, 2, 3)


def test_names_and_ranks_have_defaults() -> None:
    mesh = DeviceMesh((2, 2))
    assert mesh.mesh_dim_names == ("dim_0", "dim_1")
    assert mesh.rank_list == (0, 1, 2, 3)
    assert DeviceMesh([2], ["dp"], range(4, 6)).rank_list == (4, 5)
    assert DeviceMesh(torch.Size([2, 2])) == mesh


def test_groups_follow_mesh_order() -> None:
    mesh = DeviceMesh((2, 2), ("dp", "tp"), [3, 1, 0, 2])
    assert mesh.group("dp", 0) == (3, 0)
    assert mesh.group(-1, 2) == (0, 2)
    assert mesh.coordinate(1) == (0, 1)
    assert mesh.coordinate(7) is None
    assert mesh.contains(3)
    assert not mesh.contains(4)


def test_flatten_keeps_the_rank_list() -> None:
    mesh = DeviceMesh((2, 2), ("dp", "tp"), [3, 1, 0, 2])
    assert mesh.flatten() == DeviceMesh((4,), ("dp_tp",), [3, 1, 0, 2])
    assert mesh.flatten("all") == DeviceMesh((4,), ("all",), [3, 1, 0, 2])
    with pytest.raises(InvalidArgumentError, match=r"^DeviceMesh name 'a b' must be made of letters"):
        mesh.flatten("a b")
    with pytest.raises(InvalidArgumentError, match=r"^name is '' but must be made of letters, digits and underscores$"):
        mesh.flatten("")


def test_equality_and_hash_cover_shape_names_and_ranks() -> None:
    unlike = [
        dp_tp(),
        DeviceMesh((4,), ("dp",)),
        DeviceMesh((4, 1), ("dp", "tp")),
        DeviceMesh((2, 2), ("dp", "ep")),
        DeviceMesh((2, 2), ("dp", "tp"), [0, 1, 3, 2]),
        DeviceMesh((2, 2), ("dp", "tp"), [4, 5, 6, 7]),
    ]
    assert len(set(unlike)) == len(unlike)
    for i, a in enumerate(unlike):
        assert [a == b for b in unlike] == [i == j for j in range(len(unlike))]
        assert a != a.shape


@pytest.mark.parametrize("mesh", [dp_tp(), DeviceMesh((3,), None, [2, 0, 1])], ids=repr)
def test_repr_copy_and_pickle_give_an_equal_mesh(mesh: DeviceMesh) -> None:
    assert copy.copy(mesh) is mesh
    assert copy.deepcopy(mesh) is mesh
    for made in (eval(repr(mesh)), pickle.loads(pickle.dumps(mesh))):
        assert type(made) is DeviceMesh
        assert made == mesh
        assert hash(made) == hash(mesh)


def test_pickle_leaves_out_what_belongs_to_the_process() -> None:
    mesh = dp_tp()
    mesh._communicator = lambda: None  # cannot be pickled
    assert pickle.loads(pickle.dumps(mesh))._communicator is None


@pytest.mark.parametrize("name", ["shape", "mesh_shape", "ndim", "mesh_dim_names", "rank_list", "new"])
def test_attributes_cannot_be_set(name: str) -> None:
    with pytest.raises(AttributeError):
        setattr(dp_tp(), name, 1)


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: DeviceMesh(()), InvalidArgumentError, "DeviceMesh shape is () but a mesh has at least one dim"),
        (
            lambda: DeviceMesh((2, 0)),
            InvalidArgumentError,
            "DeviceMesh shape is (2, 0) but every dim must be at least 1",
        ),
        (
            lambda: DeviceMesh((2**40,)),
            InvalidArgumentError,
            "DeviceMesh shape is (1099511627776,) but a mesh has at most 16777216 ranks",
        ),
        (
            lambda: DeviceMesh((2**64,)),
            InvalidArgumentError,
            "mesh_shape[0] is 18446744073709551616, which does not fit in int64",
        ),
        (lambda: DeviceMesh(4), ArgumentTypeError, "mesh_shape is 4 but must be a tuple of ints"),
        (lambda: DeviceMesh((2, True)), ArgumentTypeError, "mesh_shape[1] is True but must be an int"),
        (lambda: DeviceMesh((2,), "dp"), ArgumentTypeError, "mesh_dim_names is 'dp' but must be a tuple of str"),
        (lambda: DeviceMesh((2,), (1,)), ArgumentTypeError, "mesh_dim_names[0] is 1 but must be a str"),
        (
            lambda: DeviceMesh((2,), ()),
            InvalidArgumentError,
            "mesh_dim_names is () but must name each mesh dim, or be None",
        ),
        (
            lambda: DeviceMesh((2, 2), ("dp",)),
            InvalidArgumentError,
            "DeviceMesh has 1 names (dp,) but 2 dims",
        ),
        (
            lambda: DeviceMesh((2, 2), ("dp", "dp")),
            InvalidArgumentError,
            "DeviceMesh name 'dp' stands twice in (dp, dp)",
        ),
        (
            lambda: DeviceMesh((2,), ("\ud800",)),
            InvalidArgumentError,
            "mesh_dim_names[0] is '\\ud800', which is no valid Unicode",
        ),
        (
            lambda: DeviceMesh((2,), None, (0,)),
            InvalidArgumentError,
            "DeviceMesh has 1 ranks but its shape has room for 2",
        ),
        (
            lambda: DeviceMesh((2,), None, (0, -1)),
            InvalidArgumentError,
            "DeviceMesh rank -1 must not be negative",
        ),
        (
            lambda: DeviceMesh((2,), None, (1, 1)),
            InvalidArgumentError,
            "DeviceMesh rank 1 stands twice in the rank list",
        ),
        (lambda: DeviceMesh((2,), None, (0, 1.0)), ArgumentTypeError, "rank_list[1] is 1.0 but must be an int"),
        (lambda: dp_tp().size(2), OutOfRangeError, "mesh dim 2 is out of range for a mesh of 2 dims"),
        (lambda: dp_tp().size(-3), OutOfRangeError, "mesh dim -3 is out of range for a mesh of 2 dims"),
        (lambda: dp_tp().size(0.0), ArgumentTypeError, "mesh dim is 0.0 but must be a name or an int"),
        (
            lambda: dp_tp().size("ep"),
            InvalidArgumentError,
            "'ep' is not a dim of the mesh; its dims are (dp, tp)",
        ),
        (
            lambda: dp_tp().group("dp", 4),
            InvalidArgumentError,
            "rank 4 is not in DeviceMesh((2, 2), ('dp', 'tp'))",
        ),
        (
            lambda: dp_tp().get_local_rank(),
            InvalidArgumentError,
            "get_local_rank needs a dim: the mesh has 2, ('dp', 'tp')",
        ),
        (
            lambda: dp_tp().get_group(),
            InvalidArgumentError,
            "get_group needs a dim: the mesh has 2, ('dp', 'tp')",
        ),
        (lambda: init_device_mesh(None, (2,)), ArgumentTypeError, "device_type is None but must be a str"),
        (
            lambda: DeviceMesh.from_torch(dp_tp()),
            ArgumentTypeError,
            "torch_mesh is DeviceMesh((2, 2), ('dp', 'tp')) but must be a torch.distributed.DeviceMesh",
        ),
    ],
)
def test_what_makes_no_mesh_raises(make: Callable[[], Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error) as raised:
        make()
    assert str(raised.value) == text


@pytest.mark.parametrize(
    "ask",
    [
        lambda mesh: mesh.get_rank(),
        lambda mesh: mesh.get_coordinate(),
        lambda mesh: mesh.get_local_rank("dp"),
        lambda mesh: mesh.get_group("dp"),
        lambda mesh: mesh["dp"],
        lambda mesh: mesh.to_torch(),
    ],
)
def test_question_that_needs_the_rank_raises_before_the_job_has_a_process_group(
    ask: Callable[[DeviceMesh], object],
) -> None:
    with pytest.raises(FailedPreconditionError) as raised:
        ask(dp_tp())
    assert str(raised.value) == (
        "this process has no rank yet: torch.distributed is not initialised; call init_device_mesh or "
        "torch.distributed.init_process_group first"
    )


def test_mesh_of_a_job_without_environment_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(FailedPreconditionError) as raised:
        init_device_mesh("cpu", (2,))
    assert str(raised.value) == (
        "torch.distributed is not initialised and the environment has no WORLD_SIZE, MASTER_ADDR, MASTER_PORT: start "
        "the program with torchrun, or call torch.distributed.init_process_group first"
    )


def test_all_paths_of_the_specification_give_the_same_class() -> None:
    from hyper_parallel.core import device_mesh as first  # noqa: PLC0415
    from hyper_parallel.core.dtensor import device_mesh as second  # noqa: PLC0415

    assert first.DeviceMesh is second.DeviceMesh is hyper_parallel.DeviceMesh
    assert first.init_device_mesh is second.init_device_mesh is hyper_parallel.init_device_mesh


def error_of(fails: Callable[[], object]) -> str:
    with pytest.raises(hyper_parallel.HyperParallelError) as raised:
        fails()
    return f"{type(raised.value).__name__}: {raised.value}"


def sum_over(group: dist.ProcessGroup, value: int) -> int:
    """A collective on the group: it would hang or be wrong if its members were others."""
    total = torch.tensor(value)
    dist.all_reduce(total, group=group)
    return int(total)


@ranks(4)
def test_group_reduces_over_its_mesh_dim_and_is_made_once(rank: Rank) -> None:
    mesh = DeviceMesh((2, 2), ("dp", "tp"))
    assert sum_over(mesh.get_group("dp"), rank.index) == (2 if rank.index % 2 == 0 else 4)
    assert sum_over(mesh.get_group("tp"), rank.index) == (1 if rank.index < 2 else 5)
    assert mesh.get_group(0) is mesh.get_group("dp")
    assert mesh["dp"].get_group() is mesh.get_group("dp")


@ranks(4)
def test_members_of_a_group_stand_in_mesh_order(rank: Rank) -> None:
    mesh = DeviceMesh((2, 2), ("dp", "tp"), [3, 1, 0, 2])
    for dim in mesh.mesh_dim_names:
        group = mesh.get_group(dim)
        assert tuple(dist.get_process_group_ranks(group)) == mesh.group(dim, rank.index)
        assert group.rank() == mesh.get_local_rank(dim)
        assert sum_over(group, rank.index) == sum(mesh.group(dim, rank.index))


@ranks(4)
def test_whole_job_in_order_is_the_default_group(rank: Rank) -> None:
    assert DeviceMesh((4,)).get_group() is dist.group.WORLD
    assert DeviceMesh((2, 2)).flatten().get_group() is dist.group.WORLD
    backwards = DeviceMesh((4,), None, [3, 2, 1, 0]).get_group()
    assert backwards is not dist.group.WORLD
    assert backwards.rank() == 3 - rank.index


@ranks(4)
def test_case08_ranks_outside_a_mesh_take_no_part(rank: Rank) -> None:
    mesh = DeviceMesh((2,), ("dp",), [2, 3])
    if rank.index < 2:
        assert mesh.get_coordinate() is None
        text = f"InvalidArgumentError: rank {rank.index} is not in DeviceMesh((2,), ('dp',), [2, 3])"
        assert error_of(mesh.get_local_rank) == error_of(mesh.get_group) == text
        assert mesh.to_torch().get_coordinate() is None
    else:
        assert mesh.get_coordinate() == (rank.index - 2,)
        assert mesh.get_group().size() == 2
        assert sum_over(mesh.get_group(), rank.index) == 5
        assert mesh.to_torch().get_group().group_name == mesh.get_group().group_name


@ranks(4)
def test_ranks_that_have_unlike_many_groups_find_each_other(rank: Rank) -> None:
    if rank.index == 0:
        dist.new_group([0], use_local_synchronization=True)
    group = DeviceMesh((2, 2), ("dp", "tp"), [2, 3, 0, 1]).get_group("dp")
    again = DeviceMesh((2, 2), ("dp", "tp"), [2, 3, 0, 1]).get_group("dp")
    assert again is not group
    assert sum_over(group, rank.index) == sum_over(again, rank.index) == (2 if rank.index % 2 == 0 else 4)


@ranks(4)
def test_group_has_the_timeout_of_the_default_group(rank: Rank) -> None:
    group = DeviceMesh((2, 2), ("dp", "tp")).get_group("dp")
    device = torch.device("cpu")
    own, default = (each._get_backend(device).options._timeout for each in (group, dist.group.WORLD))
    assert own == default


@ranks(4)
def test_mesh_goes_to_torch_over_its_own_groups(rank: Rank) -> None:
    mesh = DeviceMesh((2, 2), ("dp", "tp"), [3, 1, 0, 2])
    torch_mesh = mesh.to_torch()
    assert torch_mesh.mesh.tolist() == [[3, 1], [0, 2]]
    assert torch_mesh.mesh_dim_names == ("dp", "tp")
    assert torch_mesh.device_type == "cpu"
    assert torch_mesh.get_group("dp") is mesh.get_group("dp")
    assert torch_mesh.get_coordinate() == mesh.get_coordinate()
    assert mesh.to_torch() is torch_mesh
    assert DeviceMesh((4,), ("x",)).to_torch().get_group() is dist.group.WORLD


@ranks(4)
def test_mesh_comes_from_torch_with_its_groups(rank: Rank) -> None:
    torch_mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    mesh = DeviceMesh.from_torch(torch_mesh)
    assert mesh == DeviceMesh((2, 2), ("dp", "tp"))
    assert mesh.get_group("tp") is torch_mesh.get_group("tp")
    assert mesh.to_torch() is torch_mesh
    assert DeviceMesh.from_torch(torch_mesh["tp"]) == mesh["tp"]
    assert DeviceMesh.from_torch(dist.DeviceMesh("cpu", [[0, 1], [2, 3]])).mesh_dim_names == ("dim_0", "dim_1")


@ranks(4)
def test_group_that_torch_sorted_is_not_taken_for_one_in_mesh_order(rank: Rank) -> None:
    mesh = DeviceMesh.from_torch(dist.DeviceMesh("cpu", [3, 2, 1, 0]))
    assert mesh.rank_list == (3, 2, 1, 0)
    assert mesh.get_group().rank() == 3 - rank.index


@ranks(4)
def test_groups_are_made_anew_under_another_default_group(rank: Rank) -> None:
    mesh = DeviceMesh((2, 2), ("dp", "tp"))
    before = mesh.get_group("dp")
    torch_mesh = mesh.to_torch()
    dist.destroy_process_group()
    dist.init_process_group(
        "gloo",
        f"file://{rank.folder}/renewed",
        timeout=timedelta(seconds=10),
        rank=rank.index,
        world_size=rank.size,
    )
    after = mesh.get_group("dp")
    assert after is not before
    assert mesh.to_torch() is not torch_mesh
    assert sum_over(after, rank.index) == (2 if rank.index % 2 == 0 else 4)
