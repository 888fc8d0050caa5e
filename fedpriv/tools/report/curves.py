"""Which charts a report has: of one run its columns together, of several a column with a curve for each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from fedpriv.store.columns import COLUMNS
from fedpriv.store.numbers import Columns, between_known
from fedpriv.tools.report.charts import Chart, ChartLine, curve, points_each
from fedpriv.tools.report.gather import ReportedRun
from fedpriv.tools.report.sections import epsilon_names

ROUND = "round"
MOST_RUNS = 100
"""Curves of more runs than this nobody can tell apart."""
_OF_ONE = (
    ("Accuracy over rounds", "accuracy (%)", False, (
        ("test_accuracy", "test accuracy"), ("backdoor_accuracy", "backdoor accuracy"))),
    ("Loss over rounds", "loss", True, (
        ("test_loss", "test"), ("validation_loss", "public validation"),
        ("train_loss", "private lots (exact)"), ("reported_loss", "reported by the clients"))),
    ("Noise multiplier over rounds", "σ (noise multiplier)", True, (("noise_multiplier", "σ"),)),
    ("Clip norm over rounds", "C (clip norm)", True, (("clip_norm", "C, mean over clients"),)),
    ("Norms over rounds", "L2 norm", True, (
        ("gradient_norm", "gradient before clipping (mean)"),
        ("update_norm_honest", "honest update (mean)"),
        ("update_norm_malicious", "malicious update (mean)"))),
    ("Planned rounds", "T, planned rounds", True, (("planned_rounds", "T"),)),
)  # fmt: skip
_OF_SEVERAL = (
    "test_accuracy", "backdoor_accuracy", "test_loss", "validation_loss", "train_loss", "epsilon_sound",
    "epsilon_published", "epsilon", "noise_multiplier", "clip_norm", "gradient_norm", "planned_rounds",
)  # fmt: skip


def epsilon_chart(run: ReportedRun) -> Chart | None:
    """The three ε over rounds."""
    names = epsilon_names(run)[::-1]
    drawn = _columns(run.metrics, ROUND, names, points_each(10))
    if not drawn:
        return None
    return Chart(
        "ε of the worst client over rounds", "round", "ε", drawn, note=" ".join(_about(run))
    )


def _about(run: ReportedRun) -> Iterator[str]:
    """Why the sound ε is not drawn, or is a flat line."""
    if "epsilon_sound" not in run.metrics:
        return
    sound = run.metrics.known("epsilon_sound")["epsilon_sound"]
    if np.isinf(sound).any():
        yield "The sound ε is infinite and not drawn."
    elif len(sound) > 1 and (sound == sound[0]).all():
        reason = run.reason("epsilon_sound")
        yield f"The sound ε is {sound[0]:.4g} from the first round on{': ' if reason else ''}{reason}."


def run_charts(run: ReportedRun) -> list[Chart]:
    """Everything else of one run."""
    each = points_each(16)
    found = []
    for title, label, from_zero, columns in _OF_ONE:
        if drawn := _columns(run.metrics, ROUND, columns, each):
            found.append(Chart(title, "round", label, drawn, y_from_zero=from_zero))
    columns = _OF_ONE[0][3]
    if drawn := _columns(run.metrics, "epsilon", columns, each):
        label = "ε enforced (worst client)"
        chart = Chart("Accuracy against ε", label, "accuracy (%)", drawn, False, False)
        found.insert(1, chart)
    return found


def _columns(
    metrics: Columns, x: str, columns: Iterable[tuple[str, str]], most: int
) -> tuple[ChartLine, ...]:
    if x not in metrics:
        return ()
    drawn = []
    for style, (column, name) in enumerate(columns):
        nothing = column == "noise_multiplier" and not np.nansum(metrics.get(column, 0.0))
        if column in metrics and not nothing:
            across, up = _shown(metrics, x), _shown(metrics, column)
            drawn.append(curve(name, name, across, up, style, most, _band(metrics, column)))
    return tuple(one for one in drawn if one is not None)


def _shown(metrics: Columns, column: str) -> np.ndarray:
    """In the unit shown; ε, which some accountants tell at few rounds, on lines between those."""
    values = metrics[column] * COLUMNS[column].scale
    return between_known(values) if column == "epsilon" else values


def _band(metrics: Columns, column: str) -> tuple[np.ndarray, np.ndarray] | None:
    if column != "clip_norm" or not {"clip_norm_min", "clip_norm_max"} <= set(metrics):
        return None
    return metrics["clip_norm_min"], metrics["clip_norm_max"]


def sweep_charts(runs: Sequence[ReportedRun], labels: Sequence[str]) -> list[Chart]:
    """A chart for every column that a run has, with a curve for each run; same label, same look."""
    styles = {label: place for place, label in enumerate(dict.fromkeys(labels))}
    each = points_each(len(runs) * (len(_OF_SEVERAL) + 2))
    found = []
    for column in _OF_SEVERAL:
        drawn = list(_of_each(runs, labels, styles, ROUND, column, each))
        if drawn:
            shown = COLUMNS[column]
            first = shown.label[0].upper() if shown.label[0].isascii() else shown.label[0]
            title = f"{first}{shown.label[1:]} over rounds"
            found.append(Chart(title, "round", shown.label, tuple(drawn), True, shown.from_zero))
    accuracy = COLUMNS["test_accuracy"].label
    if drawn := list(_of_each(runs, labels, styles, "epsilon", "test_accuracy", each)):
        title = "Test accuracy against ε enforced"
        found.insert(
            1, Chart(title, COLUMNS["epsilon"].label, accuracy, tuple(drawn), False, False)
        )
    if drawn := list(_ends(runs, labels, styles)):
        title, label = "Final accuracy against sound ε", COLUMNS["epsilon_sound"].label
        found.insert(1, Chart(title, label, accuracy, tuple(drawn), False, False))
    return found


def _of_each(
    runs: Sequence[ReportedRun],
    labels: Sequence[str],
    styles: dict[str, int],
    x: str,
    column: str,
    most: int,
) -> Iterator[ChartLine]:
    for run, label in zip(runs, labels, strict=True):
        metrics = run.metrics
        if {x, column} <= set(metrics):
            one = curve(
                label, _with_seed(run, label), _shown(metrics, x), _shown(metrics, column),
                styles[label], most, _band(metrics, column),
            )  # fmt: skip
            if one is not None:
                yield one


def _ends(
    runs: Sequence[ReportedRun], labels: Sequence[str], styles: dict[str, int]
) -> Iterator[ChartLine]:
    """A point for every run."""
    for run, label in zip(runs, labels, strict=True):
        epsilon, accuracy = run.end("epsilon_sound"), run.end("test_accuracy")
        if epsilon is not None and accuracy is not None:
            x, y = np.array([epsilon]), np.array([100 * accuracy])
            one = curve(label, _with_seed(run, label), x, y, styles[label], 1)
            if one is not None:
                yield one


def _with_seed(run: ReportedRun, label: str) -> str:
    return label if run.seed is None else f"{label}, seed {run.seed}"
