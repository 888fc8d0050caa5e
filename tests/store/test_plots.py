"""Pictures: what is drawn is inside them, covers nothing else, and can be read."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from fedpriv.store import plots
from fedpriv.store.plots import CYCLE, MARKERS, HeatMap, Line, Panel, spread_apart


@pytest.fixture
def drawn(monkeypatch) -> list[Figure]:
    """Return the pictures that are drawn, which go into no file."""
    pictures: list[Figure] = []
    monkeypatch.setattr(plots, "save_picture", lambda figure, *_: pictures.append(figure))
    return pictures


@pytest.fixture
def draw(drawn, tmp_path):
    """Return a function that returns what ``draw_panels`` draws into a file."""

    def made(rows, title="", **more) -> Figure:
        plots.draw_panels([tmp_path / "p.png"], rows, title, **more)
        drawn[-1].draw_without_rendering()
        return drawn[-1]

    return made


def curves(labels, joined=True, ends=None) -> tuple[Line, ...]:
    return tuple(
        Line(label, CYCLE[i % len(CYCLE)], [1, 2, 4], [0, i, i if ends is None else ends[i]],
             marker=MARKERS[i % len(MARKERS)], joined=joined)
        for i, label in enumerate(labels)
    )  # fmt: skip


def panel(lines, **more) -> Panel:
    return Panel("Panel", "rounds", "loss", lines, x_from_zero=False, **more)


def around(figure: Figure) -> list[Text]:
    return [*figure.texts, *(text for inner in figure.subfigs for text in inner.texts)]


def legends(figure: Figure) -> list[Legend]:
    return [legend for inner in figure.subfigs for legend in inner.legends]


def texts_of(figure: Figure) -> list[Bbox]:
    """Return the boxes of all texts that are drawn."""
    texts = [text for axis in figure.axes for text in axis.texts]
    texts += [
        text for axis in figure.axes for text in (axis.title, axis.xaxis.label, axis.yaxis.label)
    ]
    for axis in (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)):
        low, high = sorted(axis.get_view_interval())
        ticks = zip(axis.get_majorticklocs(), axis.get_majorticklabels(), strict=True)
        texts += [label for place, label in ticks if low <= place <= high]
    texts += [*around(figure), *(t for legend in legends(figure) for t in legend.get_texts())]
    return [text.get_window_extent() for text in texts if text.get_text() and text.get_visible()]


def overlapping(boxes: list[Bbox]) -> list[tuple[Bbox, Bbox]]:
    def shared(one: Bbox, other: Bbox) -> float:
        both = Bbox.intersection(one, other)
        return 0.0 if both is None else min(both.width, both.height)

    return [pair for pair in itertools.combinations(boxes, 2) if shared(*pair) > 1]


PICTURES = {
    "few curves": [[panel(curves("abcd"))]],
    "a map": [[HeatMap("Map", "x", "y", "loss", ("a", "b"), ("1", "2"), [[1, 2], [3, 4]])]],
    "a grid": [[panel(curves("abc")), panel(curves("abc"))]] * 2,
    "equal ends": [[panel(curves(["first", "second", "third"], ends=[2, 2, 2]))]],
    "long labels": [[panel(curves(["noise_multiplier=8, clip_norm=0.5, " * 3 + str(i) for i in range(4)]))]],
    "many labels": [[panel(curves([f"curve {i}" for i in range(14)], joined=False))]],
}  # fmt: skip


@pytest.mark.thorough
@pytest.mark.parametrize("name", PICTURES)
def test_no_text_covers_another_or_leaves_the_picture(name, draw):
    stamp = "QUICK (dataset=digits evaluation_interval=2)\nINCOMPLETE, missing runs: 3"
    figure = draw(PICTURES[name], "Work 2022 · " + "A long title of a figure " * 4, stamp=stamp,
                  note="Dotted: no sound guarantee.")  # fmt: skip
    boxes = texts_of(figure)
    assert overlapping(boxes) == []
    assert min(min(box.x0, box.y0) for box in boxes) >= 0
    assert max(box.x1 for box in boxes) <= figure.bbox.width
    assert max(box.y1 for box in boxes) <= figure.bbox.height


@pytest.mark.thorough
@pytest.mark.parametrize("more", ["", " (" + "partition.clients=300 " * 12 + ")"])
def test_the_stamp_is_inside_the_picture_and_crosses_no_panel(more, draw):
    figure = draw([[panel(curves("ab"))] * 3], stamp=f"QUICK{more}")
    stamp = next(text for text in around(figure) if text.get_text().startswith("QUICK"))
    box = stamp.get_bbox_patch().get_window_extent()
    assert box.x0 >= 0
    assert box.x1 <= figure.bbox.width
    assert not any(box.overlaps(axis.bbox) for axis in figure.axes)


def test_curves_are_named_at_their_ends_where_there_is_room(draw):
    figure = draw(PICTURES["few curves"])
    assert legends(figure) == []
    heights = {text.get_text(): text.get_position()[1] for text in figure.axes[0].texts}
    assert sorted(heights, key=heights.__getitem__) == ["a", "b", "c", "d"]


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["long labels", "many labels"])
def test_a_legend_takes_less_room_than_the_data(name, draw):
    figure = draw(PICTURES[name])
    boxes = (artist.get_window_extent() for artist in (legends(figure)[0], figure.axes[0]))
    legend, data = (box.width * box.height for box in boxes)
    assert legend < data


def test_a_legend_is_read_row_by_row(draw):
    figure = draw([[panel(curves([f"curve {i}" for i in range(5)], joined=False))]])
    read = sorted(
        legends(figure)[0].get_texts(),
        key=lambda t: (-round(t.get_window_extent().y0), t.get_window_extent().x0),
    )
    assert [t.get_text() for t in read] == [f"curve {i}" for i in range(5)]


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("measured", "log", "ticks"),
    [
        ([1, 2, 4, 5], False, [1, 2, 4, 5]),
        ([1, 2, 4, 5], True, [1, 2, 4, 5]),
        ([1, 1.01, 1.02, 5], False, [1, 5]),  # numbers would touch
        ([0.1, 0.2, 0.3, 1e38], True, [0.1, 1e38]),
    ],
)
def test_ticks_stand_at_the_measured_values_that_do_not_touch(measured, log, ticks, draw):
    line = Line("a", CYCLE[0], measured, [0, 1, 2, 3], marker="o")
    assert draw([[panel((line,), x_log=log)]]).axes[0].get_xticks().tolist() == ticks


def test_ticks_stand_at_points_from_elsewhere_too(draw):
    curve = Line("a", CYCLE[0], [1, 8], [0, 1], marker="o")
    points = Line("theirs", CYCLE[1], [4], [1], marker="P", joined=False)
    assert draw([[panel((curve, points))]]).axes[0].get_xticks().tolist() == [1, 4, 8]


def test_a_long_line_has_few_markers(draw):
    line = Line("a", CYCLE[0], list(range(200)), list(range(200)), marker="o", sparse=True)
    drawn = draw([[panel((line,))]]).axes[0].lines[0]
    begin, step = drawn.get_markevery()
    assert begin < step
    assert 200 / step < 10


@pytest.mark.thorough
@pytest.mark.parametrize(("width", "inches"), [("one", 3.4), ("two", 7.0)])
def test_a_picture_has_the_width_of_the_columns(width, inches, draw):
    for name in ("few curves", "long labels", "many labels"):
        figure = draw(PICTURES[name], width=plots.WIDTHS[width])
        assert figure.get_figwidth() == pytest.approx(inches)


def test_letters_have_the_wished_size_and_labels_at_the_ends_are_dark_enough_to_read(draw):
    lines = tuple(Line(c, c, [1, 2], [i, i]) for i, c in enumerate(CYCLE[:7]))
    (axis,) = draw([[panel(lines)]], font_size=12).axes
    assert axis.xaxis.label.get_size() == 12
    for text in axis.texts:
        red, green, blue = to_rgb(text.get_color())
        assert 0.299 * red + 0.587 * green + 0.114 * blue <= 0.51


def test_a_label_with_dollars_is_drawn_as_it_is(draw):
    figure = draw([[panel(curves(["$x", "$\\frac$"]))]], "$\\bad$")
    assert "$\\frac$" in [text.get_text() for text in figure.axes[0].texts]


@pytest.mark.parametrize(
    ("centres", "heights"),
    [([0.5, 0.5, 0.5], [0.1] * 3), ([0, 0.01, 1, 1], [0.2] * 4), ([0.9, 0.1], [0.3, 0.1])],
)
def test_labels_are_spread_in_order_without_overlap(centres, heights):
    places = spread_apart(centres, heights)
    boxes = sorted((p - h / 2, p + h / 2) for p, h in zip(places, heights, strict=True))
    assert all(a[1] <= b[0] + 1e-9 for a, b in itertools.pairwise(boxes))
    assert boxes[0][0] >= -1e-9
    assert boxes[-1][1] <= 1 + 1e-9
    order = sorted(range(len(centres)), key=centres.__getitem__)
    assert [places[i] for i in order] == sorted(places)


@pytest.mark.thorough
@pytest.mark.parametrize("ending", ["pdf", "svg", "png"])
def test_the_same_panel_gives_the_same_bytes(ending, tmp_path):
    files = [tmp_path / f"{n}.{ending}" for n in range(2)]
    for path in files:
        plots.draw_panels([path], PICTURES["few curves"])
    assert files[0].read_bytes() == files[1].read_bytes()


def test_a_long_subtitle_is_cut_to_a_line(drawn, tmp_path):
    line = Line("a", CYCLE[0], [0, 1], [0, 1], [0, 0], [1, 2], band_label="b")
    plots.draw_plot(tmp_path / "p.png", [panel((line,), legend="inside")], "Title", "n" * 100)
    assert drawn[0].texts[-1].get_text() == "n" * 77 + "..."
    assert [t.get_text() for t in drawn[0].axes[0].get_legend().get_texts()] == ["a", "b"]


WIDE = Line("a", CYCLE[0], [1, 2], [10, 20], low=[-1e6, 5], high=[1e6, 40])
ACCURACY = Line("a", CYCLE[0], [1, 2], [70, 95], low=[40, 80], high=[100, 130])


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("one", "lowest", "highest"),
    [
        (panel((WIDE,)), (-100, 0), (20, 300)),  # the curve stays visible
        (panel((WIDE,), y_log=True), (0, 10), (20, 300)),
        (replace(panel((ACCURACY,)), y_label="accuracy (%)"), (0, 70), (100, 105)),
        (panel(curves("ab"), y_limits=(0, None)), (0, 0), (1, 2)),  # an open end follows the data
    ],
)
def test_an_axis_ends_near_the_curves(one, lowest, highest, draw):
    low, high = draw([[one]]).axes[0].get_ylim()
    assert lowest[0] <= low <= lowest[1]
    assert highest[0] <= high <= highest[1]


def test_a_panel_without_a_line_has_no_legend(draw):
    """A run may be stopped before its first evaluation; a warning would fail this test."""
    assert draw([[panel((), legend="inside")]]).axes[0].get_legend() is None
