"""Lines of several seeds as one line with a band."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedpriv.store.pairs import BANDS, POINTS, band
from fedpriv.study.figures import write
from fedpriv.study.figures.definition import Axes
from fedpriv.study.figures.series import FigureRun, frame_of, over_seeds, read_runs
from fedpriv.study.figures.write import panels_of

values = st.floats(-1e6, 1e6, allow_nan=False)
steps = st.floats(0.01, 10)


@st.composite
def a_line(draw):
    count = draw(st.integers(1, 12))
    x = draw(st.floats(0, 5)) + np.cumsum(draw(st.lists(steps, min_size=count, max_size=count)))
    y = draw(st.lists(values, min_size=count, max_size=count))
    return pd.DataFrame({"x": x, "y": y})


def line(x, y) -> pd.DataFrame:
    return pd.DataFrame({"x": np.asarray(x, dtype=float), "y": np.asarray(y, dtype=float)})


@given(st.lists(a_line(), min_size=1, max_size=4))
def test_the_mean_lies_within_the_band_and_all_lines_are_counted(lines):
    found = band(lines)
    slack = 1e-9 * (1 + found[["low", "high"]].abs().max(axis=1))
    assert (found["n"] == len(lines)).all()
    assert (found["low"] <= found["mean"] + slack).all()
    assert (found["mean"] <= found["high"] + slack).all()


@given(st.lists(a_line(), min_size=1, max_size=4), st.randoms())
def test_the_order_of_the_lines_does_not_matter(lines, random):
    shuffled = list(lines)
    random.shuffle(shuffled)
    one, other = band(lines), band(shuffled)
    np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)


@given(a_line())
def test_one_line_stays_what_it_is(one):
    found = band([one])
    assert found["x"].tolist() == one["x"].tolist()
    for name in ("mean", "low", "high"):
        assert found[name].tolist() == one["y"].tolist()


@given(st.lists(a_line(), min_size=2, max_size=4))
def test_the_band_never_leaves_the_range_of_the_data(lines):
    found = band(lines, "range")
    everything = pd.concat(lines)["y"]
    slack = 1e-9 * (1 + everything.abs().max())
    assert found["low"].min() >= everything.min() - slack
    assert found["high"].max() <= everything.max() + slack


@given(st.lists(a_line(), min_size=2, max_size=4))
def test_x_never_falls(lines):
    assert (np.diff(band(lines)["x"]) >= 0).all()


def test_lines_with_the_same_x_are_compared_there():
    found = band([line([1, 2, 4], [1, 2, 3]), line([1, 2, 4], [3, 2, 7])])
    assert found.to_dict("list") == {
        "x": [1, 2, 4], "mean": [2, 2, 5], "low": [1, 2, 3], "high": [3, 2, 7], "n": [2, 2, 2],
    }  # fmt: skip


def test_lines_with_different_x_are_interpolated_on_their_common_range():
    found = band([line([0, 2, 4], [0, 2, 4]), line([1, 5], [3, 7])])
    assert (found["x"].iloc[0], found["x"].iloc[-1]) == (1, 4)
    np.testing.assert_allclose(found["low"], found["x"])
    np.testing.assert_allclose(found["high"], found["x"] + 2)
    np.testing.assert_allclose(found["mean"], found["x"] + 1)


@given(st.integers(POINTS + 1, 5000))
def test_a_long_line_is_thinned_and_keeps_both_ends(count):
    x = np.arange(count)
    found = band([line(x, -x)])
    assert len(found) <= POINTS
    assert (found["x"].iloc[0], found["x"].iloc[-1]) == (0, count - 1)
    assert (found["mean"] == -found["x"]).all()


@pytest.fixture
def run_of(figure, jobs_of):
    """(metrics) → a finished run with them."""
    job = jobs_of(figure)[0]
    return lambda **metrics: FigureRun(job, {}, pd.DataFrame(metrics))


def test_shares_are_drawn_in_percent(run_of):
    run = run_of(round=[1, 2], test_accuracy=[0.5, 0.75])
    drawn = over_seeds(frame_of([run]), Axes("a", "round", "test_accuracy"))
    assert drawn["mean"].tolist() == [50, 75]


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_points_that_are_not_finite_are_left_out(bad, run_of):
    run = run_of(round=[1, 2, 3], test_loss=[1.0, bad, 3.0])
    drawn = over_seeds(frame_of([run]), Axes("a", "round", "test_loss"))
    assert drawn["x"].tolist() == [1, 3]


def test_a_run_without_a_finite_point_leaves_the_others(run_of):
    bad = run_of(round=[1, 2], test_loss=[np.nan, np.inf])
    good = run_of(round=[1, 2], test_loss=[1.0, 2.0])
    drawn = over_seeds(frame_of([bad, good]), Axes("a", "round", "test_loss"))
    assert drawn["n"].tolist() == [1, 1]


def test_points_are_ordered_by_x(run_of):
    run = run_of(round=[1, 2, 3], epsilon=[3.0, 1.0, 2.0], test_loss=[30.0, 10.0, 20.0])
    drawn = over_seeds(frame_of([run]), Axes("a", "epsilon", "test_loss"))
    assert drawn["mean"].tolist() == [10, 20, 30]


def test_only_finished_runs_are_read_and_only_their_evaluated_rounds(
    made, figure, jobs_of, tmp_path
):
    jobs = jobs_of(figure, stores=(made / "runs",)) + jobs_of(figure)
    runs = read_runs(jobs)
    assert len(runs) == 4
    assert all(run.metrics["round"].tolist() == [2, 4] for run in runs)


def test_bands_are_students_intervals_from_three_seeds_on():
    one, two, three = (line([1], [y]) for y in (1, 2, 6))
    found = band([one, two, three])
    assert found["high"].tolist() == pytest.approx([3 + 4.302653 * 7**0.5 / 3**0.5])
    assert (found["mean"] - found["low"]).tolist() == pytest.approx((found["high"] - 3).tolist())
    assert band([one, three])[["low", "high"]].to_numpy().tolist() == [[1, 6]]


def test_each_of_many_clients_has_a_line_of_its_own(read, tiny):
    """There are more clients than colours."""
    tiny["metric"] = [{"column": "gradient_norm", "kind": "clients"}]
    del tiny["stated"]
    rows = [
        ("digits", "gradient_norm", "loud", client, x, 1.0, 1.0, 1.0, 1, "none")
        for client in range(13)
        for x in (1, 2)
    ]
    names = ["group", "axes", "curve", "client", "x", "mean", "low", "high", "n", "band"]
    ((panel,),) = panels_of(read(tiny), pd.DataFrame(rows, columns=names), set())
    assert [line.label for line in panel.lines] == [f"client {n}" for n in range(13)]
    assert len({(line.colour, line.dotted) for line in panel.lines}) == 13


@pytest.mark.parametrize(("kind", "n"), [("t", 4), ("range", 2), ("none", 1)])
def test_below_a_picture_stand_its_seeds_and_what_its_bands_are(
    kind, n, figure, tmp_path, monkeypatch
):
    notes = []
    monkeypatch.setattr(write, "draw_panels", lambda *_, note, **more: notes.append(note))
    group, axes, curve = figure.groups[0], figure.axes[0], figure.groups[0].curves[0]
    points = {"x": [1.0, 2.0], "mean": [0.5, 0.6], "low": [0.4, 0.5], "high": [0.6, 0.7]}
    names = {"group": group.name, "axes": axes.name, "curve": curve.name, "n": n, "band": kind}
    write.draw_table(figure, pd.DataFrame(points).assign(**names), set(), tmp_path)
    said = f"Means over up to {n} seeds; bands: {BANDS[kind]}."
    assert notes == ["" if kind == "none" else said]
