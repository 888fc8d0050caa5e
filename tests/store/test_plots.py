"""The plotting module: what is drawn is on the picture."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.image import imread

from fedpriv.store import plots
from fedpriv.store.plots import CYCLE, Line, Panel, draw_panels


def picture(path, labels: list[str]) -> np.ndarray:  # type: ignore[no-untyped-def]
    lines = tuple(Line(label, CYCLE[i], x=[0, 1], y=[i, i + 1]) for i, label in enumerate(labels))
    draw_panels([path], [[Panel("", "x", "y", lines)]], "", "A caption.")
    return imread(path)[..., :3]


@pytest.mark.few(1)
@pytest.mark.parametrize("letters", [5, 40, 120, 400])
def test_every_label_of_a_legend_is_inside_the_picture_with_its_handle(letters, tmp_path):
    labels = [(f"{i} " + "noise_multiplier=8, " * 40)[:letters] for i in range(len(CYCLE))]
    pixels = picture(tmp_path / "plot.png", labels)
    edges = np.concatenate([pixels[:2], pixels[-2:]]), np.hstack([pixels[:, :2], pixels[:, -2:]])
    assert all((edge == 1.0).all() for edge in edges)
    below = pixels[int(2.6 * 200) :]  # of the panel
    for colour in CYCLE:
        assert (np.abs(below - to_rgb(colour)).max(axis=-1) < 0.02).any()


def test_few_short_labels_leave_the_picture_its_size(tmp_path):
    one, many = (picture(tmp_path / f"{n}.png", [str(i) for i in range(n)]) for n in (1, 8))
    assert one.shape == many.shape


def test_a_panel_without_its_own_style_looks_as_in_print(tmp_path):
    """(dotted, dashed) and the named style draw the same."""
    pictures = []
    for line in (
        Line("a", CYCLE[0], [0, 1], [0, 1], dashed=True),
        Line("a", CYCLE[0], [0, 1], [0, 1], style="--", width=1.4, marker_size=3),
    ):
        path = tmp_path / f"{len(pictures)}.png"
        draw_panels([path], [[Panel("", "x", "y", (line,))]], "", "")
        pictures.append(path.read_bytes())
    assert pictures[0] == pictures[1]


def test_a_long_subtitle_is_cut_to_a_line(monkeypatch, tmp_path):
    drawn = []
    monkeypatch.setattr(plots, "save_picture", lambda figure, path, dpi: drawn.append(figure))
    panel = Panel(
        "", "x", "y", (Line("a", CYCLE[0], [0, 1], [0, 1], [0, 0], [1, 2], band_label="b"),)
    )
    plots.draw_plot(tmp_path / "p.png", [replace(panel, legend="inside")], "Title", "n" * 100)
    assert drawn[0].texts[-1].get_text() == "n" * 77 + "..."
    assert [t.get_text() for t in drawn[0].axes[0].get_legend().get_texts()] == ["a", "b"]


def test_an_open_end_of_an_axis_follows_the_data(monkeypatch, tmp_path):
    drawn = []
    monkeypatch.setattr(plots, "save_picture", lambda figure, *_: drawn.append(figure))
    panel = Panel("", "x", "y", (Line("a", CYCLE[0], [1, 2], [3, 4]),), y_limits=(0, None))
    plots.draw_beside(tmp_path / "p.png", [panel], "", "test")
    low, high = drawn[0].axes[0].get_ylim()
    assert low == 0
    assert high >= 4
