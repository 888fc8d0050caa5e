"""The plotting module: what is drawn is on the picture."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.image import imread

from fedpriv.store.plots import CYCLE, Line, Panel, draw_panels


def picture(path, labels: list[str]) -> np.ndarray:  # type: ignore[no-untyped-def]
    lines = tuple(Line(label, CYCLE[i], x=[0, 1], y=[i, i + 1]) for i, label in enumerate(labels))
    draw_panels([path], [[Panel("", "x", "y", lines)]], "", "A caption.")
    return imread(path)[..., :3]


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
