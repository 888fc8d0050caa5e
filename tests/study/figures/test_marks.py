"""Numbers published elsewhere, beside a figure's curves."""

from __future__ import annotations

import json

import pandas as pd
import pytest

from fedpriv.common.errors import ConfigError
from fedpriv.study.figures.comparison import compare
from fedpriv.study.figures.series import FigureRun, figure_table, frame_of
from fedpriv.study.figures.write import caption_of, panels_of, unsound_curves

LINEAR = "scattering, linear (Somebody 2021)"
NOISY = "label noise (Nobody 2020)"


def mark(**changed) -> dict:
    return {
        "panel": "digits", "metric": "accuracy", "x": 2.93, "value": 98.7, "label": LINEAR,
    } | changed  # fmt: skip


@pytest.fixture
def tiny(tiny) -> dict:
    """The two curves of two seeds at three ε, with three marks of two publications."""
    tiny |= {"x": {"epsilon": [1, 2, 8]}, "x_label": "ε", "x_quick": [1, 8]}
    tiny["metric"] = {
        "accuracy": {"column": "test_accuracy"},
        "rounds": "round",
        "map": {"column": "test_loss", "kind": "map"},
    }
    tiny["stated"] = []
    tiny["baselines"] = [mark(value={2.93: 98.7, 0.5: 90.25}, x=None), mark(label=NOISY, x=9)]
    return tiny


@pytest.fixture
def runs_of(jobs_of):
    """figure → a finished run of accuracy 50 % for each of its jobs."""

    def run(figure) -> list[FigureRun]:
        metrics = pd.DataFrame({"test_accuracy": [0.5], "test_loss": [1.0]})
        return [
            FigureRun(job, {"rounds": 4, "test_accuracy": 0.5}, metrics) for job in jobs_of(figure)
        ]

    return run


@pytest.fixture
def panels(read, tiny, runs_of):
    """() → the panels of ``tiny`` as it is now: accuracy, rounds, map."""

    def run():
        figure = read(tiny)
        runs = runs_of(figure)
        ((accuracy, rounds, a_map),) = panels_of(
            figure, figure_table(figure, frame_of(runs)), unsound_curves(runs)
        )
        return accuracy, rounds, a_map

    return run


def test_marks_are_symbols_after_the_curves_on_the_axes_of_their_column(panels):
    accuracy, rounds, a_map = panels()
    assert [line.label for line in accuracy.lines] == ["loud noise", "quiet noise", LINEAR, NOISY]
    linear, noisy = accuracy.lines[2:]
    assert (list(linear.x), list(linear.y)) == ([2.93, 0.5], [98.7, 90.25])
    assert not linear.joined
    assert not noisy.joined
    assert linear.marker != noisy.marker
    assert [line.label for line in rounds.lines] == ["loud noise", "quiet noise"]
    assert a_map.columns == ("1", "2", "8")


def test_a_label_looks_the_same_in_every_group(read, tiny):
    tiny["panels"]["again"] = {**tiny["panels"]["digits"], "title": "Again"}
    tiny["show"]["again"] = ["loud"]
    tiny["baselines"].append(mark(label=NOISY, panel="again"))
    figure = read(tiny)
    (first, *_), (again, *_) = panels_of(figure, figure_table(figure, frame_of([])), set())
    assert [line.label for line in again.lines] == [NOISY]
    assert again.lines[0].marker == first.lines[1].marker
    assert again.lines[0].colour == first.lines[1].colour


def test_the_csv_holds_them_as_of_no_run(read, tiny, runs_of):
    figure = read(tiny)
    table = figure_table(figure, frame_of(runs_of(figure)))
    own = table[table["n"] == 0]
    assert set(own["axes"]) == {"accuracy"}
    assert own[["curve", "x", "mean", "low", "high"]].values.tolist() == [
        [LINEAR, 2.93, 98.7, 98.7, 98.7], [LINEAR, 0.5, 90.25, 90.25, 90.25],
        [NOISY, 9, 98.7, 98.7, 98.7],
    ]  # fmt: skip
    assert len(table) - len(own) == 3 * 2 * 3


def test_the_comparison_lists_them_as_published(read, tiny, runs_of):
    figure = read({**tiny, "scale": "quick"})
    runs = runs_of(figure)
    for run in runs:
        run.job.folder.path.mkdir(parents=True, exist_ok=True)
        facts = {"commit": "a", "device": "cpu", "threads": 1, "python": "3", "versions": {}}
        run.job.folder.environment.write_text(json.dumps(facts))
        run.summary["seconds"] = 1.0
    text = compare(
        figure,
        frame_of(runs),
        {},
        caption_of(figure, frame_of(runs), {}),
        "fedpriv figure own/tiny",
    )
    own = text.partition("## Numbers from elsewhere\n")[2].partition("##")[0]
    assert "| | from | ε | quantity | value |" in own
    assert f"| Digits | {LINEAR} | 2.93 | test accuracy (%) | 98.7 |" in own
    assert f"| Digits | {LINEAR} | 0.5 | test accuracy (%) | 90.25 |" in own
    assert "Symbols without a line: numbers from elsewhere, see comparison.md." in text


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"panel": "mnist"}, "figure.baselines.0.panel must be one of digits, got mnist"),
        ({"metric": "auc"}, "figure.baselines.0.metric must be one of accuracy, test_accuracy, round"),
        ({"metric": "loss"}, "figure.baselines.0.metric must be one of accuracy, test_accuracy, round"),
        ({"x": "2,93"}, "figure.baselines.0.x must be a number, got 2,93"),
        ({"value": "98.7 %"}, "figure.baselines.0.value must be a number"),
        ({"value": float("inf")}, "figure.baselines.0.value must be finite"),
        ({"label": None}, "figure.baselines.0.label must be a text"),
        ({"label": 3}, "figure.baselines.0.label must be a text"),
        ({"label": "loud noise"}, "figure.baselines.0.label must be a label that no curve has"),
        ({"labl": "x"}, "figure.baselines.0.labl must be one of label, value"),
    ],
)  # fmt: skip
def test_a_wrong_mark_is_refused(changed, words, read, tiny):
    tiny["baselines"] = [mark(**changed)]
    with pytest.raises(ConfigError) as caught:
        read(tiny)
    assert str(caught.value).startswith(words)


@pytest.mark.parametrize(("axis", "key"), [("x_scale", "x"), ("y_scale", "value")])
def test_a_mark_that_a_logarithmic_axis_cannot_show_is_refused(axis, key, read, tiny):
    tiny["metric"]["accuracy"][axis] = "log"
    tiny["baselines"] = [mark(**{key: 0})]
    with pytest.raises(ConfigError, match=rf"figure.baselines.0\.{key} must be > 0, got 0"):
        read(tiny)


def test_a_mark_of_a_figure_over_rounds_is_about_a_round(read, tiny):
    tiny |= {"x": "round", "metric": "accuracy", "baselines": [mark(x=3)]}
    (read_mark,) = read(tiny).marks
    assert read_mark.point == 3
