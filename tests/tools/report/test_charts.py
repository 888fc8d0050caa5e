"""Curves as SVG, and the values a reader gets at the cursor."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedpriv.tools.report.charts import Chart, curve, draw, legend_of, points_each, swatch, ticks

NUMBERS = st.floats(allow_nan=True, allow_infinity=True)


def of(x, y, most=100, band=None):
    return curve("k", "label", np.array(x, float), np.array(y, float), 0, most, band)


def test_a_long_curve_is_thinned_and_keeps_its_ends():
    found = of(range(10_000), range(10_000), most=50)
    assert len(found.x) == 50
    assert (found.x[0], found.x[-1]) == (0, 9999)


def test_what_is_not_finite_is_left_out():
    found = of([0, 1, np.nan, 3], [1, np.inf, 2, 4])
    assert found.x.tolist() == [0, 3]
    assert of([0, 1], [np.nan, np.inf]) is None


def test_a_band_without_width_is_none():
    ones = np.ones(2)
    assert of([0, 1], [1, 1], band=(ones, ones)).low is None
    assert of([0, 1], [1, 1], band=(ones, 2 * ones)).high.tolist() == [2, 2]


@given(st.lists(st.tuples(NUMBERS, NUMBERS), max_size=8))
def test_whatever_is_in_a_table_is_drawn_or_left_out(points):
    one = of([p[0] for p in points], [p[1] for p in points])
    if one is not None:
        picture, numbers = draw(Chart("t", "x", "y", (one,)), "c0", legend=True)
        assert "nan" not in picture
        assert ">inf<" not in picture
        json.dumps(numbers, allow_nan=False)


@given(st.floats(-1e9, 1e9), st.floats(1e-6, 1e3))
def test_ticks_are_few_inside_and_evenly_spaced(low, share):
    width = share * max(1.0, abs(low))
    found = ticks(low, low + width)
    assert 2 <= len(found) <= 14
    steps = np.diff(found)
    assert np.allclose(steps, steps[0], rtol=1e-3)


def test_a_picture_tells_its_title_and_values_without_eyes():
    picture, _ = draw(Chart("Loss", "round", "loss", (of([1, 2], [3, 0.5]),)), "c0", legend=True)
    assert "<title" in picture
    assert ">Loss<" in picture
    assert "label: from 3 to 0.5, lowest 0.5, highest 3" in picture


def test_curves_differ_without_colour():
    looks = set()
    for style in range(35):
        words = swatch(style)
        shape = words.rpartition('d="M')[2].partition('"')[0]
        dash = next(
            word for word in words.replace('"', " ").split() if word in {f"d{i}" for i in range(5)}
        )
        looks.add((dash, shape))
    assert len(looks) == 35


def test_a_legend_has_a_button_for_each_key_in_order():
    curves = [curve(key, key, np.arange(2.0), np.arange(2.0), i, 9) for i, key in enumerate("aba")]
    legend = legend_of(curves)
    assert legend.count("<button") == 2
    assert legend.index('data-switch="a"') < legend.index('data-switch="b"')


@pytest.mark.parametrize("curves", [1, 10, 100, 1500])
def test_a_page_with_many_curves_stays_small(curves):
    assert 20 <= points_each(curves) <= 250
    assert points_each(curves) * curves <= 36_000


def test_a_long_legend_switches_all_at_once():
    curves = [curve(str(i), str(i), np.arange(2.0), np.arange(2.0), i, 9) for i in range(5)]
    assert legend_of(curves).count("data-all") == 2
    assert "data-all" not in legend_of(curves[:4])
