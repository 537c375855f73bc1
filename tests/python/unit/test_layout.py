"""Layout as a Python value, and the notations in which one is asked for."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

import hyper_parallel
from hyper_parallel import (
    ArgumentTypeError,
    DeviceMesh,
    InvalidArgumentError,
    Layout,
    OutOfRangeError,
    Partial,
    RaggedShard,
    RaggedShardInfo,
    Replicate,
    Shard,
    UnimplementedError,
)

RAGGED = RaggedShard((0, 1), (1, 2))


def dp_tp() -> Layout:
    return Layout((2, 2), ("dp", "tp"))


def test_layout_is_replicate_everywhere_at_first() -> None:
    mesh = DeviceMesh((2, 2), ("dp", "tp"))
    layout = dp_tp()
    assert layout.placements == (Replicate(), Replicate())
    assert layout == Layout.from_device_mesh(mesh)
    assert layout.mesh == layout.device_mesh == mesh
    assert Layout((2,)).mesh.mesh_dim_names == ("dim_0",)
    assert Layout((2,), ("dp",), [3, 1]).mesh.rank_list == (3, 1)


def test_layout_hands_out_the_very_mesh_that_it_was_made_of() -> None:
    mesh = DeviceMesh((2, 2), ("dp", "tp"))
    layout = Layout.from_device_mesh(mesh)
    assert layout.mesh is mesh
    assert layout([Shard(0), Shard(1)]).folded(2).mesh is mesh


def test_example_of_the_specification() -> None:
    layout = dp_tp()([Shard(0), Shard(1)])
    assert layout == dp_tp()((1, 0, -1)) == dp_tp()((Shard(0), Shard(1)))
    assert layout.placement_to_tensor_map(dim=3) == (1, 0, -1)
    assert layout.tensor_map_to_placement() == (Shard(0), Shard(1))


def test_calling_a_layout_leaves_it_as_it_was() -> None:
    layout = dp_tp()
    assert layout([Shard(0), Partial()]) != layout
    assert layout.placements == (Replicate(), Replicate())


@pytest.mark.parametrize(
    ("entries", "placements"),
    [
        (((),), (Replicate(), Replicate())),
        (((-1, -1),), (Replicate(), Replicate())),
        (((0, 1),), (Shard(1), Shard(0))),
        ((((1, 0), -1),), (Shard(0), Shard(0))),
        (((-1, (0,)),), (Replicate(), Shard(1))),
        (("dp", "tp", "None"), (Shard(0), Shard(1))),
        (("None", "dp"), (Shard(1), Replicate())),
        ((("dp", "tp"), "None"), (Shard(0), Shard(0))),
        ((("dp", "tp"),), (Shard(0), Shard(0))),
        (("tp",), (Replicate(), Shard(0))),
        (([Partial("max"), Shard(-1)],), (Partial("max"), Shard(-1))),
        (((RAGGED, Replicate()),), (RAGGED, Replicate())),
    ],
)
def test_notations(entries: tuple[Any, ...], placements: tuple[Any, ...]) -> None:
    assert dp_tp()(*entries).placements == placements


@pytest.mark.parametrize(
    ("entries", "error", "text"),
    [
        ((), ArgumentTypeError, "a layout is called with placements, a tensor map or alias names, not with nothing"),
        (
            (Shard(0), Shard(1)),
            ArgumentTypeError,
            "a layout is called with one list of placements or one tensor map, not with 2 arguments",
        ),
        (
            (1, 0, -1),
            ArgumentTypeError,
            "a layout is called with one list of placements or one tensor map, not with 3 arguments",
        ),
        (
            (Shard(0),),
            ArgumentTypeError,
            "placements is Shard(dim=0) but must be a tuple or list with a placement for each mesh dim",
        ),
        (((1, 0.0),), ArgumentTypeError, "tensor_map[1] is 0.0 but must be an int"),
        (((1, (0, None)),), ArgumentTypeError, "tensor_map[1][1] is None but must be an int"),
        (((True,),), ArgumentTypeError, "tensor_map[0] is True but must be an int"),
        (("dp", 1), ArgumentTypeError, "layout aliases[1] is 1 but must be a str"),
        (("dp", ("tp", 1)), ArgumentTypeError, "layout aliases[1][1] is 1 but must be a str"),
        (
            ([Shard(0)],),
            InvalidArgumentError,
            "placements [Shard(0)] are 1 but the mesh has 2 dims (dp, tp)",
        ),
        (((2,),), InvalidArgumentError, "tensor_map (2,) names axis 2 but the mesh has 2 dims"),
        (((1, 1),), InvalidArgumentError, "tensor_map (1, 1) uses axis 1 which already is Shard(0)"),
        (("dp", "dp"), InvalidArgumentError, "layout aliases ('dp', 'dp') name mesh dim 'dp' twice"),
        (
            ("ep",),
            InvalidArgumentError,
            "layout aliases ('ep',) name 'ep', which is not a dim of the mesh; its dims are (dp, tp)",
        ),
        (
            ([RaggedShard((0,), (1, 1)), RaggedShard((0,), (1, 1))],),
            InvalidArgumentError,
            "placements [RaggedShard((0,), (1, 1)), RaggedShard((0,), (1, 1))] hold several RaggedShard but a layout "
            "has at most one",
        ),
        (
            ([Replicate(), RaggedShard((0,), (1, 1, 1))],),
            InvalidArgumentError,
            "RaggedShard local_units has 3 entries but mesh dim 'tp' has size 2",
        ),
        (
            ([Partial(), RAGGED],),
            InvalidArgumentError,
            "placements [Partial(sum), RaggedShard((0, 1), (1, 2))] have Partial(sum) on mesh dim 'dp' but beside "
            "RaggedShard every other mesh dim must be Replicate()",
        ),
        (
            (((0, 1),),),
            UnimplementedError,
            "tensor_map ((0, 1),) splits a tensor dim by an inner mesh axis first, which placements cannot say",
        ),
        (
            (("tp", "dp"),),
            UnimplementedError,
            "layout aliases (('tp', 'dp'),) split tensor dim 0 by the inner mesh dim 'tp' first, which placements "
            "cannot say",
        ),
    ],
)
def test_notation_that_says_no_layout_raises(entries: tuple[Any, ...], error: type[Exception], text: str) -> None:
    with pytest.raises(error) as raised:
        dp_tp()(*entries)
    assert str(raised.value) == text


def test_ragged_layout_has_three_views() -> None:
    layout = dp_tp()([Replicate(), RAGGED])
    assert layout.placements == layout.alias_placements == layout.tensor_map_to_placement() == (Replicate(), RAGGED)
    assert layout.normal_placements == (Replicate(), Replicate())
    assert layout.ragged_shard == RaggedShardInfo(mesh_dim=1, placement=RAGGED)
    assert layout.placement_to_tensor_map(3) == (-1, -1, -1)


def test_normal_layout_is_its_own_normal_view() -> None:
    layout = dp_tp()([Shard(1), Partial("avg")])
    assert layout.placements == layout.alias_placements == layout.normal_placements
    assert layout.ragged_shard is None
    assert layout.partial == (None, "avg")
    assert layout.placement_to_tensor_map(2) == (-1, 1)


def test_tensor_map_needs_a_fitting_number_of_dims() -> None:
    layout = dp_tp()([Shard(-1), Replicate()])
    assert layout.placement_to_tensor_map(1) == (1,)
    assert layout.placement_to_tensor_map(3) == (-1, -1, 1)
    with pytest.raises(OutOfRangeError, match=r"^Shard\(-1\) is out of range for a tensor of 0 dims$"):
        layout.placement_to_tensor_map(0)
    with pytest.raises(InvalidArgumentError, match=r"^the tensor's ndim is -1 but must not be negative$"):
        layout.placement_to_tensor_map(-1)
    with pytest.raises(InvalidArgumentError, match=r"^RaggedShard dims \(0, 1\) are more than the tensor's 1 dims$"):
        dp_tp()([RAGGED, Replicate()]).placement_to_tensor_map(1)


def test_folded_counts_negative_dims_from_the_end() -> None:
    layout = dp_tp()([Shard(-1), Shard(0)])
    assert layout.folded(3).placements == (Shard(2), Shard(0))
    assert isinstance(layout.folded(3), Layout)


def test_check_shape() -> None:
    dp_tp()([RAGGED, Replicate()]).check_shape((6, 4, 8))
    with pytest.raises(InvalidArgumentError, match=r"^global shape \(6, -1\) has the negative size -1$"):
        dp_tp().check_shape((6, -1))
    with pytest.raises(OutOfRangeError, match=r"^Shard\(1\) is out of range for a tensor of 1 dims$"):
        dp_tp()([Shard(1), Replicate()]).check_shape((4,))


def test_equality_and_hash_cover_mesh_and_placements() -> None:
    unlike = [
        dp_tp(),
        Layout((2, 2), ("dp", "ep")),
        Layout((2, 2), ("dp", "tp"), [0, 1, 3, 2]),
        Layout((2, 1), ("dp", "tp")),
        dp_tp()([Shard(0), Replicate()]),
        dp_tp()([RAGGED, Replicate()]),
        dp_tp()([RaggedShard((0, 1), (2, 4)), Replicate()]),
        dp_tp()([RaggedShard((0,), (1, 2)), Replicate()]),
    ]
    assert len(set(unlike)) == len(unlike)
    for i, a in enumerate(unlike):
        assert [a == b for b in unlike] == [i == j for j in range(len(unlike))]
        assert a != a.placements


@pytest.mark.parametrize(
    "layout",
    [
        dp_tp(),
        dp_tp()([Shard(-1), Partial("max")]),
        Layout((2, 2), ("dp", "tp"), [3, 2, 1, 0])([RAGGED, Replicate()]),
    ],
    ids=repr,
)
def test_repr_copy_and_pickle_give_an_equal_layout(layout: Layout) -> None:
    assert copy.copy(layout) is layout
    assert copy.deepcopy(layout) is layout
    for made in (eval(repr(layout)), pickle.loads(pickle.dumps(layout))):
        assert type(made) is Layout
        assert made == layout
        assert hash(made) == hash(layout)
        assert type(made.mesh) is DeviceMesh


def test_repr_is_the_call_that_makes_it() -> None:
    assert repr(dp_tp()([Shard(0), Replicate()])) == "Layout((2, 2), ('dp', 'tp'))([Shard(dim=0), Replicate()])"


@pytest.mark.parametrize("name", ["placements", "mesh", "partial", "_mesh", "new"])
def test_attributes_cannot_be_set(name: str) -> None:
    layout = dp_tp()
    with pytest.raises(
        AttributeError, match=f"^a Layout is immutable: call it to get another, '{name}' cannot be set$"
    ):
        setattr(layout, name, ())
    with pytest.raises(AttributeError, match=f"^a Layout is immutable: '{name}' cannot be deleted$"):
        delattr(layout, name)


def test_layout_of_something_else_than_a_mesh_raises() -> None:
    with pytest.raises(ArgumentTypeError, match=r"^device_mesh is \(2, 2\) but must be a hyper_parallel.DeviceMesh$"):
        Layout.from_device_mesh((2, 2))  # type: ignore[arg-type]


def test_all_paths_of_the_specification_give_the_same_classes() -> None:
    from hyper_parallel.core import layout as first  # noqa: PLC0415
    from hyper_parallel.core.dtensor import layout as second  # noqa: PLC0415

    assert first.Layout is second.Layout is hyper_parallel.Layout
    assert first.RaggedShardInfo is second.RaggedShardInfo is hyper_parallel.RaggedShardInfo
