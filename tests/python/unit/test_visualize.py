"""visualize: who owns what, as text and as a picture."""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from hyper_parallel import Layout, Partial, RaggedShard, Replicate, Shard, visualize
from hyper_parallel.errors import ArgumentTypeError, InvalidArgumentError, OutOfRangeError
from hyper_parallel.visualize import OwnershipView
from hyper_parallel.visualize._labels import ranks_label
from hyper_parallel.visualize._palette import ink_on, share_color

Placement = Shard | Replicate | Partial | RaggedShard
Cell = tuple[int, ...]

UNEVEN_64 = tuple((0, 1, 5, 2, 0, 13, 3, 8)[3 * rank % 8] if rank % 5 else 0 for rank in range(64))
EMPTY_OF_64 = tuple(rank for rank, units in enumerate(UNEVEN_64) if not units)


@dataclass(frozen=True)
class Placed:
    """What visualize reads of a DTensor."""

    layout: Layout
    shape: tuple[int, ...]


def layout_of(placements: Sequence[Placement], mesh_shape: Sequence[int]) -> Layout:
    names = {1: ("dp",), 2: ("dp", "tp"), 3: ("dp", "sp", "tp")}[len(mesh_shape)]
    return Layout(tuple(mesh_shape), names)(list(placements))


def view_of(placements: Sequence[Placement], shape: Sequence[int], mesh_shape: Sequence[int]) -> OwnershipView:
    return visualize(layout_of(placements, mesh_shape), tuple(shape))


def view_of_64_ranks() -> OwnershipView:
    return view_of([RaggedShard((0,), UNEVEN_64)], (2 * sum(UNEVEN_64), 16), (64,))


def owners_by_definition(
    placements: Sequence[Placement], shape: Sequence[int], mesh_shape: Sequence[int]
) -> dict[Cell, tuple[int, ...]]:
    """The ranks of each cell, cell by cell from what the placements mean."""
    owners: dict[Cell, tuple[int, ...]] = {cell: () for cell in itertools.product(*map(range, shape))}
    for rank, coordinate in enumerate(itertools.product(*map(range, mesh_shape))):
        held = list(owners)
        for placement, index, size in zip(placements, coordinate, mesh_shape, strict=True):
            if isinstance(placement, Shard):
                rows = sorted({cell[placement.dim] for cell in held})
                chunk = math.ceil(len(rows) / size)
                kept = set(rows[index * chunk : (index + 1) * chunk])
                held = [cell for cell in held if cell[placement.dim] in kept]
            elif isinstance(placement, RaggedShard):
                per_unit = len(owners) // sum(placement.local_units)
                begin = sum(placement.local_units[:index]) * per_unit
                held = list(owners)[begin : begin + placement.local_units[index] * per_unit]
        for cell in held:
            owners[cell] += (rank,)
    return owners


def owners_in_picture(shown: OwnershipView) -> dict[Cell, tuple[int, ...]]:
    """The ranks of each cell as the tiles say it; a cell in two tiles fails."""
    picture, shape = shown.picture, shown.ownership.shape
    owners: dict[Cell, tuple[int, ...]] = {}
    for panel in picture.panels:
        for tile in panel.tiles:
            parts = [
                _index_tuples(shape, picture.rows.dims)[slice(*tile.rows)],
                _index_tuples(shape, picture.columns.dims)[slice(*tile.columns)],
                *(_index_tuples(shape, (dim,))[slice(*span)] for dim, span in panel.place),
                _index_tuples(shape, picture.hidden),
            ]
            for chosen in itertools.product(*parts):
                cell = tuple(index for _, index in sorted(itertools.chain(*chosen)))
                assert cell not in owners
                owners[cell] = shown.ownership.shares[tile.share].ranks
    return owners


def _index_tuples(shape: Sequence[int], dims: Sequence[int]) -> list[tuple[tuple[int, int], ...]]:
    """All index tuples of some dims in row-major order, each index beside its dim."""
    return [tuple(zip(dims, indices, strict=True)) for indices in itertools.product(*(range(shape[d]) for d in dims))]


CASES = {
    "ragged rows": ([RaggedShard((0,), (1, 2, 0, 5))], (16, 3), (4,)),
    "ragged cells": ([RaggedShard((0, 1), (3, 1, 0, 6))], (5, 4), (4,)),
    "ragged within one row": ([RaggedShard((0, 1), (1, 4, 1))], (1, 6), (3,)),
    "ragged end of a row and start of the next": ([RaggedShard((0, 1), (2, 2, 2))], (2, 3), (3,)),
    "ragged prefix of three dims": ([RaggedShard((0, 1), (5, 1, 6))], (3, 4, 2), (3,)),
    "ragged all of three dims": ([RaggedShard((0, 1, 2), (5, 0, 7))], (2, 3, 4), (3,)),
    "ragged vector": ([RaggedShard((0,), (1, 0, 3))], (8,), (3,)),
    "ragged with replicas": ([Replicate(), RaggedShard((0, 1), (1, 3))], (4, 4), (2, 2)),
    "one rank": ([RaggedShard((0,), (1,))], (3, 2), (1,)),
    "vector": ([Shard(0)], (5,), (4,)),
    "columns": ([Shard(1)], (3, 10), (4,)),
    "middle dim": ([Shard(1)], (2, 5, 3), (2,)),
    "last of four dims": ([Shard(3)], (2, 2, 2, 5), (3,)),
    "negative dim": ([Shard(-2)], (2, 5, 3), (2,)),
    "nested": ([Shard(0), Shard(0)], (10, 2), (2, 3)),
    "grid": ([Shard(0), Shard(1)], (3, 4, 5), (2, 2)),
    "grid with the dims swapped": ([Shard(1), Shard(0)], (3, 4), (2, 2)),
    "faceted": ([Shard(0), Shard(1), Shard(2)], (3, 3, 4), (2, 2, 2)),
    "faceted and nested": ([Shard(0), Shard(0), Shard(1)], (7, 3), (2, 2, 2)),
    "replicas": ([Shard(0), Replicate()], (4, 4), (2, 2)),
    "all replicas": ([Replicate(), Replicate()], (2, 2, 2), (2, 2)),
    "pending": ([Shard(1), Partial("sum")], (4, 6), (2, 2)),
    "scalar": ([Replicate()], (), (2,)),
    "no elements": ([RaggedShard((0,), (1, 0, 1))], (0, 4), (3,)),
    "no elements, faceted": ([Shard(0), Shard(1), Shard(2)], (4, 0, 4), (2, 2, 2)),
    "64 ranks": ([RaggedShard((0, 1), UNEVEN_64)], (sum(UNEVEN_64), 4), (64,)),
}
each_case = pytest.mark.parametrize(("placements", "shape", "mesh_shape"), CASES.values(), ids=CASES.keys())


@each_case
def test_every_cell_is_drawn_once_with_its_owners(
    placements: Sequence[Placement], shape: Sequence[int], mesh_shape: Sequence[int]
) -> None:
    assert owners_in_picture(view_of(placements, shape, mesh_shape)) == owners_by_definition(
        placements, shape, mesh_shape
    )


@each_case
def test_shares_name_every_rank_once_and_count_its_cells(
    placements: Sequence[Placement], shape: Sequence[int], mesh_shape: Sequence[int]
) -> None:
    shares = view_of(placements, shape, mesh_shape).ownership.shares
    owners = owners_by_definition(placements, shape, mesh_shape)
    held = {rank: share.numel for share in shares for rank in share.ranks}
    assert sum(len(share.ranks) for share in shares) == math.prod(mesh_shape)
    assert held == {rank: sum(rank in ranks for ranks in owners.values()) for rank in range(math.prod(mesh_shape))}


@each_case
@pytest.mark.parametrize("width", [40, 80, 120])
def test_no_line_is_wider_than_asked(
    placements: Sequence[Placement], shape: Sequence[int], mesh_shape: Sequence[int], width: int
) -> None:
    text = view_of(placements, shape, mesh_shape).text(width)
    assert max(map(len, text.splitlines())) <= width


def test_text_of_uneven_rows_with_an_empty_rank() -> None:
    assert view_of([RaggedShard((0, 1), (3, 1, 0, 6))], (5, 4), (4,)).text(80) == (
        "shape (5, 4)  mesh (dp=4)  [RaggedShard(dims=(0, 1), local_units=(3, 1, 0, 6))]\n"
        "20 elements over 4 ranks: largest share 12 (2.4x the mean), smallest 0\n"
        "EMPTY: rank 2 (1 of 4)\n"
        "\n"
        "rows dim 0 (5), columns dim 1 (4); a cell names the ranks that hold it:\n"
        "      0  1  2  3\n"
        "  0 │ 0  0  0  0\n"
        "  1 │ 0  0  1  1\n"
        "  2 │ 3  3  3  3\n"
        "  3 │ 3  3  3  3\n"
        "  4 │ 3  3  3  3\n"
        "\n"
        "  rank  elements  share                        holds\n"
        "     0         6    30%  ██████████            x.flatten()[0:6]\n"
        "     1         2    10%  ███▍                  x[1:2, 2:4]\n"
        "     2         0     0%                        empty\n"
        "     3        12    60%  ████████████████████  x[2:5]"
    )


def test_text_of_replicas_with_a_pending_reduction() -> None:
    assert view_of([Shard(1), Partial("max")], (2, 3), (2, 2)).text(80) == (
        "shape (2, 3)  mesh (dp=2, tp=2)  [Shard(dim=1), Partial(reduce_op='max')]\n"
        "6 elements over 4 ranks, each share on 2 of them: largest share 4 (1.3x the\n"
        "  mean), smallest 2\n"
        "pending max over tp: the ranks of a share hold operands of it, not copies\n"
        "\n"
        "rows dim 0 (2), columns dim 1 (3); a cell names the ranks that hold it:\n"
        "        0    1    2\n"
        "  0 │ 0,1  0,1  2,3\n"
        "  1 │ 0,1  0,1  2,3\n"
        "\n"
        "  ranks  elements  share                        holds\n"
        "    0,1         4    67%  ████████████████████  x[:, 0:2]\n"
        "    2,3         2    33%  ██████████            x[:, 2:3]"
    )


def test_text_of_slices_says_which_dims_are_not_shown() -> None:
    text = view_of([Shard(0), Shard(1), Shard(3)], (2, 2, 9, 2), (2, 2, 2)).text(80)
    assert (
        "not split, so not shown: dim 2 (9)\n"
        "rows dim 1 (2), columns dim 3 (2); a cell names the ranks that hold it:\n"
        "dim 0 in 0:1:\n"
        "      0  1\n"
        "  0 │ 0  1\n"
        "  1 │ 2  3\n"
        "\n"
        "dim 0 in 1:2:\n"
        "      0  1\n"
        "  0 │ 4  5\n"
        "  1 │ 6  7\n"
    ) in text


def test_text_of_a_vector_is_one_line_of_owners() -> None:
    text = view_of([Shard(0)], (5,), (4,)).text(80)
    assert "columns dim 0 (5); a cell names the ranks that hold it:\n     0  1  2  3  4\n     0  0  1  1  2\n" in text
    assert "EMPTY: rank 3 (1 of 4)" in text


def test_text_of_a_scalar() -> None:
    text = view_of([Replicate()], (), (2,)).text(80)
    assert "1 element over 2 ranks: every rank holds all" in text
    assert "the ranks that hold the element:" in text


def test_text_without_elements_names_all_ranks_as_empty_and_draws_nothing() -> None:
    assert view_of([RaggedShard((0,), (1, 0, 1))], (0, 4), (3,)).text(80) == (
        "shape (0, 4)  mesh (dp=3)  [RaggedShard(dims=(0,), local_units=(1, 0, 1))]\n"
        "0 elements over 3 ranks: 0 each\n"
        "EMPTY: ranks 0-2 (3 of 3)"
    )


def test_large_tensor_of_few_ranks_is_drawn_by_exact_ranges() -> None:
    text = view_of([RaggedShard((0,), (1, 2, 0, 5))], (4096, 1024), (4,)).text(80)
    assert "            0:1024\n      0:512 │      0\n   512:1536 │      1\n  1536:4096 │      3\n" in text


def test_ranks_are_those_of_the_rank_list() -> None:
    layout = Layout((2, 2), ("dp", "tp"), (7, 3, 5, 1))([Shard(0), Replicate()])
    shares = visualize(layout, (4, 4)).ownership.shares
    assert [share.ranks for share in shares] == [(3, 7), (1, 5)]


def test_sixty_four_ranks_have_a_mark_each_and_empty_ones_an_x() -> None:
    lines = view_of_64_ranks().text(80).splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("elements held, a mark per rank"))
    marks = "".join(lines[start + 1].split()[1:])
    assert len(marks) == len(UNEVEN_64)
    assert tuple(rank for rank, mark in enumerate(marks) if mark == "x") == EMPTY_OF_64
    assert marks[UNEVEN_64.index(max(UNEVEN_64))] == "█"


def test_sixty_four_ranks_fit_on_a_screen() -> None:
    assert len(view_of_64_ranks().text(80).splitlines()) <= 35


def test_equal_shares_of_many_ranks_are_one_line() -> None:
    text = view_of([Shard(0)], (128, 4), (64,)).text(80)
    assert text.splitlines()[-1].split() == ["0-63", "8", "2%", "█" * 20, "x[0:2]", "…", "x[126:128]"]
    assert "a mark per" not in text


def test_many_unlike_shares_show_the_largest_and_count_the_rest() -> None:
    lines = view_of_64_ranks().text(80).splitlines()
    shown = [line.split()[1] for line in lines[-6:-1]]
    assert shown == [str(16 * 2 * units) for units in sorted(UNEVEN_64, reverse=True)[:5]]
    assert lines[-1] == f"  … {64 - len(EMPTY_OF_64) - 5} more ranks hold 32 to 416 elements each"


def test_thousands_of_ranks_stay_readable() -> None:
    units = tuple(rank % 7 for rank in range(4096))
    text = view_of([RaggedShard((0,), units)], (sum(units), 16), (4096,)).text(80)
    assert "a mark per 8 ranks, the largest of them" in text
    assert len(text.splitlines()) <= 45


def test_text_follows_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = view_of_64_ranks()
    monkeypatch.setenv("COLUMNS", "60")
    assert str(shown) == repr(shown) == shown.text(60)
    monkeypatch.setenv("COLUMNS", "20")
    assert str(shown) == shown.text(40)


def test_a_dtensor_brings_its_shape() -> None:
    layout = layout_of([RaggedShard((0,), (1, 3))], (2,))
    assert visualize(Placed(layout, (8, 2))).text(80) == visualize(layout, (8, 2)).text(80)
    assert visualize(Placed(layout, (8, 2)), (8, 2)).ownership.shape == (8, 2)


@pytest.mark.parametrize(
    ("ranks", "max_runs", "label"),
    [
        ((3,), 4, "3"),
        ((3, 4), 4, "3,4"),
        ((0, 1, 2, 3, 7), 4, "0-3,7"),
        ((0, 2, 4, 6, 8, 10), 4, "0,2,4,…,10"),
        ((0, 2, 4), 2, "0…4"),
        ((0, 4), 2, "0,4"),
    ],
)
def test_ranks_are_named_by_runs(ranks: tuple[int, ...], max_runs: int, label: str) -> None:
    assert ranks_label(ranks, max_runs) == label


def test_layout_without_shape_raises() -> None:
    with pytest.raises(InvalidArgumentError, match=r"visualize needs the shape of the tensor beside a Layout"):
        visualize(layout_of([Shard(0)], (2,)))


def test_dtensor_with_another_shape_raises() -> None:
    placed = Placed(layout_of([Shard(0)], (2,)), (4, 2))
    with pytest.raises(InvalidArgumentError, match=r"shape is \(2, 4\) but the DTensor has shape \(4, 2\)"):
        visualize(placed, (2, 4))


@pytest.mark.parametrize("other", [None, (4, 2), "layout"])
def test_anything_else_raises(other: object) -> None:
    with pytest.raises(ArgumentTypeError, match=f"takes a DTensor or a Layout but got a {type(other).__name__}"):
        visualize(other, (4, 2))  # type: ignore[arg-type]


def test_shape_that_the_units_do_not_divide_raises() -> None:
    with pytest.raises(InvalidArgumentError, match=r"units sum to 3 but dims \(0,\) of shape \(4, 2\)"):
        visualize(layout_of([RaggedShard((0,), (1, 2))], (2,)), (4, 2))


def test_shard_dim_beyond_the_shape_raises() -> None:
    with pytest.raises(OutOfRangeError, match=r"dim"):
        visualize(layout_of([Shard(2)], (2,)), (4, 2))


@pytest.mark.parametrize(
    ("shape", "error"), [(4, ArgumentTypeError), ((4, 0.5), ArgumentTypeError), ((4, -1), InvalidArgumentError)]
)
def test_what_is_no_shape_raises(shape: object, error: type[Exception]) -> None:
    with pytest.raises(error, match="shape"):
        visualize(layout_of([Shard(0)], (2,)), shape)  # type: ignore[arg-type]


def test_narrow_text_raises() -> None:
    with pytest.raises(InvalidArgumentError, match=r"width is 39 but must be at least 40"):
        view_of([Shard(0)], (4,), (2,)).text(39)


def test_unknown_suffix_raises_and_writes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "who.bmp"
    with pytest.raises(InvalidArgumentError, match=r"suffix must be one of \.svg, \.png, \.pdf, \.txt"):
        visualize(layout_of([Shard(0)], (2,)), (4,), file=path)
    assert not path.exists()


def test_text_is_saved_80_wide_in_utf8(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "50")
    shown = visualize(layout_of([Shard(0)], (2,)), (4,), file=tmp_path / "who.txt")
    assert (tmp_path / "who.txt").read_text(encoding="utf-8") == shown.text(80) + "\n"


def test_without_matplotlib_pictures_raise_and_text_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    shown = view_of([Shard(0)], (4,), (2,))
    assert "4 elements over 2 ranks" in shown.text(80)
    assert shown._repr_svg_() is None
    with pytest.raises(ImportError, match=r"needs matplotlib: pip install hyper_parallel\[plot\]"):
        shown.save(tmp_path / "who.svg")
    with pytest.raises(ImportError, match=r"needs matplotlib: pip install hyper_parallel\[plot\]"):
        shown.figure()
    assert not (tmp_path / "who.svg").exists()


def test_shares_beside_each_other_differ_in_colour() -> None:
    for count in (8, 64, 128):
        assert all(share_color(i, count) != share_color(i + 1, count) for i in range(count - 1))


def test_many_shares_get_lighter_from_first_to_last() -> None:
    lightness = [sum(int(share_color(i, 200)[c : c + 2], 16) for c in (1, 3, 5)) for i in range(200)]
    assert lightness == sorted(lightness)
    assert lightness[0] < lightness[-1]


@pytest.mark.parametrize("number", range(8))
def test_labels_can_be_read_on_their_colour(number: int) -> None:
    color = share_color(number, 8)
    darker, lighter = sorted((_luminance(color), _luminance(ink_on(color))))
    assert (lighter + 0.05) / (darker + 0.05) >= 3  # what large or bold text needs by WCAG 2


def _luminance(color: str) -> float:
    channels = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


class TestFigure:
    """The matplotlib figure: read from its artists, never from pixels."""

    @pytest.fixture(autouse=True)
    def _matplotlib(self) -> None:
        pytest.importorskip("matplotlib")

    @pytest.mark.parametrize(("suffix", "magic"), [(".svg", b"<?xml"), (".png", b"\x89PNG"), (".pdf", b"%PDF")])
    def test_file_has_the_format_of_its_suffix(self, suffix: str, magic: bytes, tmp_path: Path) -> None:
        path = tmp_path / f"who{suffix}"
        visualize(layout_of([Shard(0)], (2,)), (4, 2), file=str(path))
        assert path.read_bytes().startswith(magic)

    def test_equal_tensors_give_equal_pictures_whatever_the_style(self) -> None:
        import matplotlib as mpl  # noqa: PLC0415

        first = view_of_64_ranks()._repr_svg_()
        with mpl.rc_context({"axes.facecolor": "black", "font.size": 20, "lines.linewidth": 7}):
            assert view_of_64_ranks()._repr_svg_() == first

    def test_a_map_has_one_outline_per_share_that_is_not_empty(self) -> None:
        shown = view_of([RaggedShard((0, 1), (3, 1, 0, 6))], (5, 4), (4,))
        [tiles] = shown.figure().axes[0].collections[:1]
        corners = [{tuple(map(int, corner)) for corner in path.vertices} for path in tiles.get_paths()]
        assert len(corners) == 3
        assert corners[0] == {(4, 0), (4, 1), (2, 1), (2, 2), (0, 2), (0, 0), (0, 1)}

    def test_bars_are_as_long_as_the_shares(self) -> None:
        shown = view_of_64_ranks()
        [bars] = shown.figure().axes[-1].collections
        lengths = [max(x for x, _ in path.vertices) for path in bars.get_paths()]
        largest = shown.ownership.largest
        assert lengths == [share.numel or largest for share in shown.ownership.shares]
        colors = {tuple(color) for share, color in zip(UNEVEN_64, bars.get_facecolor(), strict=True) if not share}
        assert len(colors) == 1

    def test_empty_ranks_are_written_on_their_bars(self) -> None:
        bars = view_of_64_ranks().figure().axes[-1]
        marked = [text.get_position()[1] for text in bars.texts if text.get_text() == " empty"]
        assert tuple(marked) == EMPTY_OF_64

    def test_title_names_the_empty_ranks(self) -> None:
        titles = [text.get_text() for text in view_of([Shard(0)], (5,), (4,)).figure().texts]
        assert titles == [
            "shape (5,)  mesh (dp=4)  [Shard(dim=0)]",
            "5 elements over 4 ranks: largest share 2 (1.6x the mean), smallest 0",
            "EMPTY: rank 3 (1 of 4)",
        ]

    def test_replicas_are_named_together_on_the_map(self) -> None:
        figure = view_of([Shard(0), Replicate()], (4, 4), (2, 2)).figure()
        assert [text.get_text() for text in figure.axes[0].texts] == ["ranks 0,1", "ranks 2,3"]

    def test_labels_that_do_not_fit_are_left_out(self) -> None:
        axes = view_of([RaggedShard((0,), (1, 1998, 1))], (2000, 2), (3,)).figure().axes[0]
        assert [text.get_text() for text in axes.texts] == ["1"]

    def test_pending_reductions_are_hatched(self) -> None:
        hatches = {
            pending: view_of([placement], (4, 4), (2,)).figure().axes[0].collections[0].get_hatch()
            for pending, placement in ((True, Partial("sum")), (False, Replicate()))
        }
        assert hatches == {True: "//", False: None}

    def test_each_slice_has_a_map_and_more_than_nine_are_counted(self) -> None:
        figure = view_of([Shard(0), Shard(1), Shard(2)], (10, 2, 2), (10, 2, 2)).figure()
        assert [axes.get_title(loc="left") for axes in figure.axes[:2]] == ["dim 0 in 0:1", "dim 0 in 1:2"]
        assert len(figure.axes) == 9 + 1
        assert "9 of 10 slices are drawn" in [text.get_text() for text in figure.texts]

    @each_case
    def test_every_case_draws(
        self, placements: Sequence[Placement], shape: Sequence[int], mesh_shape: Sequence[int]
    ) -> None:
        shown = view_of(placements, shape, mesh_shape)
        figure = shown.figure()
        assert len(figure.axes) == min(len(shown.picture.panels), 9) + 1
        assert shown._repr_svg_() is not None
