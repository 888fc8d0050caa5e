"""Charts of a report: several columns of one run in a chart, or one column of several runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pandas as pd

from fedpriv.store.columns import COLUMNS
from fedpriv.tools.report.charts import Chart, ChartLine, curve, points_each
from fedpriv.tools.report.gather import ReportedRun
from fedpriv.tools.report.sections import epsilon_names

ROUND = "round"
MOST_RUNS = 100  # nobody can tell the curves of more runs apart
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
    """Return a chart of the three ε over rounds, or None for a run without any ε."""
    # In the reverse order, so that the sound ε, which counts, has the first colour.
    drawn = _columns(run.metrics, ROUND, epsilon_names(run)[::-1], points_each(10))
    if not drawn:
        return None
    note = ""
    if "epsilon_sound" in run.metrics:
        sound = run.metrics["epsilon_sound"].dropna().to_numpy()
        if np.isinf(sound).any():
            note = "The sound ε is infinite and not drawn."
        elif len(sound) > 1 and (sound == sound[0]).all():
            reason = run.reason("epsilon_sound")
            note = f"The sound ε is {sound[0]:.4g} from the first round on"
            note += f": {reason}." if reason else "."
    return Chart("ε of the worst client over rounds", "round", "ε", drawn, note=note)


def run_charts(run: ReportedRun) -> list[Chart]:
    """Return the other charts of one run: accuracy, loss, σ, clip norm and norms over rounds."""
    each = points_each(16)
    charts = []
    for title, label, from_zero, columns in _OF_ONE:
        if drawn := _columns(run.metrics, ROUND, columns, each):
            charts.append(Chart(title, "round", label, drawn, y_from_zero=from_zero))
    # Accuracy once more, over ε instead of rounds: it stands beside the first chart.
    columns = _OF_ONE[0][3]
    if drawn := _columns(run.metrics, "epsilon", columns, each):
        label = "ε enforced (worst client)"
        chart = Chart("Accuracy against ε", label, "accuracy (%)", drawn, False, False)
        charts.insert(1, chart)
    return charts


def _columns(
    metrics: pd.DataFrame, x: str, columns: Iterable[tuple[str, str]], most: int
) -> tuple[ChartLine, ...]:
    """Return a curve for each of the columns (column, name) that the metrics have, against the column x."""
    if x not in metrics:
        return ()
    drawn = []
    for style, (column, name) in enumerate(columns):
        # A run without noise has σ = 0 in every row: a line along the axis tells nothing.
        without_noise = column == "noise_multiplier" and not np.nansum(metrics.get(column, 0.0))
        if column in metrics and not without_noise:
            xs, ys = _shown(metrics, x), _shown(metrics, column)
            drawn.append(curve(name, name, xs, ys, style, most, _band(metrics, column)))
    return tuple(line for line in drawn if line is not None)


def _shown(metrics: pd.DataFrame, column: str) -> np.ndarray:
    """Return a column in the unit shown.

    Some accountants compute ε at few rounds only; rounds between these are interpolated.
    """
    values = metrics[column] * COLUMNS[column].scale
    shown = values.interpolate(limit_area="inside") if column == "epsilon" else values
    return shown.to_numpy()


def _band(metrics: pd.DataFrame, column: str) -> tuple[np.ndarray, np.ndarray] | None:
    if column != "clip_norm" or not {"clip_norm_min", "clip_norm_max"} <= set(metrics):
        return None
    return metrics["clip_norm_min"].to_numpy(), metrics["clip_norm_max"].to_numpy()


def sweep_charts(runs: Sequence[ReportedRun], labels: Sequence[str]) -> list[Chart]:
    """Return a chart for every column that a run has, with a curve for each run.

    Args:
        runs: The runs.
        labels: Label of each run. Runs of one label look alike and are switched together.
    """
    styles = {label: index for index, label in enumerate(dict.fromkeys(labels))}
    each = points_each(len(runs) * (len(_OF_SEVERAL) + 2))

    def against(x: str, column: str) -> tuple[ChartLine, ...]:
        lines = []
        for run, label in zip(runs, labels, strict=True):
            if {x, column} <= set(run.metrics):
                xs, ys = _shown(run.metrics, x), _shown(run.metrics, column)
                name, band = _with_seed(run, label), _band(run.metrics, column)
                lines.append(curve(label, name, xs, ys, styles[label], each, band))
        return tuple(line for line in lines if line is not None)

    charts = []
    for column in _OF_SEVERAL:
        if drawn := against(ROUND, column):
            shown = COLUMNS[column]
            first = shown.label[0].upper() if shown.label[0].isascii() else shown.label[0]
            title = f"{first}{shown.label[1:]} over rounds"
            charts.append(Chart(title, "round", shown.label, drawn, True, shown.from_zero))
    accuracy = COLUMNS["test_accuracy"].label
    if drawn := against("epsilon", "test_accuracy"):
        title, label = "Test accuracy against ε enforced", COLUMNS["epsilon"].label
        charts.insert(1, Chart(title, label, accuracy, drawn, False, False))
    if drawn := tuple(_ends(runs, labels, styles)):
        title, label = "Final accuracy against sound ε", COLUMNS["epsilon_sound"].label
        charts.insert(1, Chart(title, label, accuracy, drawn, False, False))
    return charts


def _ends(
    runs: Sequence[ReportedRun], labels: Sequence[str], styles: dict[str, int]
) -> Iterator[ChartLine]:
    """Yield a point for every run: its final accuracy against its sound ε."""
    for run, label in zip(runs, labels, strict=True):
        epsilon, accuracy = run.end("epsilon_sound"), run.end("test_accuracy")
        if epsilon is not None and accuracy is not None:
            x, y = np.array([epsilon]), np.array([100 * accuracy])
            point = curve(label, _with_seed(run, label), x, y, styles[label], 1)
            if point is not None:
                yield point


def _with_seed(run: ReportedRun, label: str) -> str:
    return label if run.seed is None else f"{label}, seed {run.seed}"
