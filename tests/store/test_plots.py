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
def draw(monkeypatch, tmp_path):
    """Return what ``draw_panels`` draws into its file."""
    drawn: list[Figure] = []
    monkeypatch.setattr(plots, "save_picture", lambda figure, *_: drawn.append(figure))

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


def legend_box(figure: Figure) -> Bbox:
    return legends(figure)[0].get_window_extent()


def area(box: Bbox) -> float:
    return box.width * box.height


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


@pytest.mark.few(2)
@pytest.mark.parametrize("name", PICTURES)
def test_no_text_covers_another_or_leaves_the_picture(name, draw):
    stamp = "QUICK (dataset=digits evaluation_interval=2)\nINCOMPLETE, missing runs: 3"
    figure = draw(PICTURES[name], "Work 2022 · " + "A long title of a figure " * 4, stamp=stamp,
                  note="Dotted: no sound guarantee.")  # fmt: skip
    boxes = texts_of(figure)
    assert overlapping(boxes) == []
    for box in boxes:
        assert box.x0 >= 0
        assert box.y0 >= 0
        assert box.x1 <= figure.bbox.width
        assert box.y1 <= figure.bbox.height


def test_the_stamp_crosses_no_panel(draw):
    figure = draw(PICTURES["few curves"], stamp="QUICK")
    stamp = next(text for text in around(figure) if text.get_text() == "QUICK")
    assert all(not stamp.get_window_extent().overlaps(axis.bbox) for axis in figure.axes)


@pytest.mark.thorough
def test_a_long_stamp_stays_inside_the_picture(draw):
    figure = draw(
        [[panel(curves("ab"))] * 3], stamp="QUICK (" + "partition.clients=300 " * 12 + ")"
    )
    stamp = next(text for text in around(figure) if text.get_text().startswith("QUICK"))
    box = stamp.get_bbox_patch().get_window_extent()
    assert box.x0 >= 0
    assert box.x1 <= figure.bbox.width


def test_curves_are_named_at_their_ends_where_there_is_room(draw):
    figure = draw(PICTURES["few curves"])
    assert legends(figure) == []
    heights = {text.get_text(): text.get_position()[1] for text in figure.axes[0].texts}
    assert sorted(heights, key=heights.__getitem__) == ["a", "b", "c", "d"]


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["long labels", "many labels"])
def test_a_legend_takes_less_room_than_the_data(name, draw):
    figure = draw(PICTURES[name])
    assert area(legend_box(figure)) < area(figure.axes[0].get_window_extent())


def test_a_legend_is_read_row_by_row(draw):
    figure = draw([[panel(curves([f"curve {i}" for i in range(5)], joined=False))]])
    read = sorted(
        legends(figure)[0].get_texts(),
        key=lambda t: (-round(t.get_window_extent().y0), t.get_window_extent().x0),
    )
    assert [t.get_text() for t in read] == [f"curve {i}" for i in range(5)]


@pytest.mark.parametrize("log", [False, True])
def test_ticks_stand_at_the_measured_values(log, draw):
    figure = draw([[panel(curves("ab"), x_log=log)]])
    assert figure.axes[0].get_xticks().tolist() == [1, 2, 4]


def test_ticks_whose_numbers_would_touch_are_left_out(draw):
    line = Line("a", CYCLE[0], [1, 1.01, 1.02, 5], [0, 1, 2, 3], marker="o")
    figure = draw([[panel((line,))]])
    assert figure.axes[0].get_xticks().tolist() == [1, 5]


def test_a_long_line_has_few_markers(draw):
    line = Line("a", CYCLE[0], list(range(200)), list(range(200)), marker="o", sparse=True)
    drawn = draw([[panel((line,))]]).axes[0].lines[0]
    begin, step = drawn.get_markevery()
    assert begin < step
    assert 200 / step < 10


def test_symbols_at_the_bottom_leave_the_axis_its_range(draw):
    failed = Line("_failed", CYCLE[0], [3], [1e6], marker="x", joined=False, at_bottom=True)
    figure = draw([[panel((*curves("ab"), failed))]])
    assert figure.axes[0].get_ylim()[1] < 2


@pytest.mark.few(1)
@pytest.mark.parametrize(("width", "inches"), [("one", 3.4), ("two", 7.0)])
def test_a_picture_has_the_width_of_the_columns(width, inches, draw):
    for name in ("few curves", "long labels", "many labels"):
        figure = draw(PICTURES[name], width=plots.WIDTHS[width])
        assert figure.get_figwidth() == pytest.approx(inches)


def test_letters_have_the_wished_size(draw):
    figure = draw(PICTURES["few curves"], font_size=12)
    assert figure.axes[0].xaxis.label.get_size() == 12


def test_a_label_with_dollars_is_drawn_as_it_is(draw):
    figure = draw([[panel(curves(["$x", "$\\frac$"]))]], "$\\bad$")
    assert "$\\frac$" in [text.get_text() for text in figure.axes[0].texts]


def test_labels_at_the_ends_are_dark_enough_to_read(draw):
    lines = tuple(Line(c, c, [1, 2], [i, i]) for i, c in enumerate(CYCLE[:7]))
    for text in draw([[panel(lines)]]).axes[0].texts:
        red, green, blue = to_rgb(text.get_color())
        assert 0.299 * red + 0.587 * green + 0.114 * blue <= 0.51


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


@pytest.mark.few(1)
@pytest.mark.parametrize("ending", ["pdf", "svg", "png"])
def test_the_same_panel_gives_the_same_bytes(ending, tmp_path):
    files = [tmp_path / f"{n}.{ending}" for n in range(2)]
    for path in files:
        plots.draw_panels([path], PICTURES["few curves"])
    assert files[0].read_bytes() == files[1].read_bytes()


def test_a_long_subtitle_is_cut_to_a_line(monkeypatch, tmp_path):
    drawn = []
    monkeypatch.setattr(plots, "save_picture", lambda figure, path, dpi: drawn.append(figure))
    one = Panel(
        "", "x", "y", (Line("a", CYCLE[0], [0, 1], [0, 1], [0, 0], [1, 2], band_label="b"),)
    )
    plots.draw_plot(tmp_path / "p.png", [replace(one, legend="inside")], "Title", "n" * 100)
    assert drawn[0].texts[-1].get_text() == "n" * 77 + "..."
    assert [t.get_text() for t in drawn[0].axes[0].get_legend().get_texts()] == ["a", "b"]


def test_an_open_end_of_an_axis_follows_the_data(monkeypatch, tmp_path):
    drawn = []
    monkeypatch.setattr(plots, "save_picture", lambda figure, *_: drawn.append(figure))
    one = Panel("", "x", "y", (Line("a", CYCLE[0], [1, 2], [3, 4]),), y_limits=(0, None))
    plots.draw_panels([tmp_path / "p.png"], [[one]])
    low, high = drawn[0].axes[0].get_ylim()
    assert low == 0
    assert high >= 4


@pytest.mark.few(1)
@pytest.mark.parametrize("log", [True, False])
def test_a_wide_band_leaves_the_curve_visible(log, draw):
    line = Line("a", CYCLE[0], [1, 2], [10, 20], low=[-1e6, 5], high=[1e6, 40])
    low, high = draw([[panel((line,), y_log=log)]]).axes[0].get_ylim()
    assert high < 300
    assert low > (0 if log else -100)


def test_a_band_of_accuracies_ends_at_100_percent(draw):
    line = Line("a", CYCLE[0], [1, 2], [70, 95], low=[40, 80], high=[100, 130])
    figure = draw([[replace(panel((line,)), y_label="accuracy (%)")]])
    assert 100 <= figure.axes[0].get_ylim()[1] < 105


def test_a_panel_without_a_line_has_no_legend(monkeypatch, tmp_path):
    """A run may be stopped before its first evaluation; a warning would fail this test."""
    drawn = []
    monkeypatch.setattr(plots, "save_picture", lambda figure, *_: drawn.append(figure))
    plots.draw_panels([tmp_path / "p.png"], [[Panel("", "x", "y", (), legend="inside")]])
    assert drawn[0].axes[0].get_legend() is None


def test_an_axis_over_forty_decades_has_ticks_at_its_values(draw):
    line = Line("a", CYCLE[0], [0.1, 0.2, 1e38], [1, 2, 3], marker="o")
    assert draw([[panel((line,), x_log=True)]]).axes[0].get_xticks().tolist() == [0.1, 1e38]
