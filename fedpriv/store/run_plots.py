"""The plots of one run, drawn from its CSV files into ``plots/``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedpriv.store.colours import COLOURS
from fedpriv.store.folder import RunFolder
from fedpriv.store.plots import CYCLE, Line, Panel, StackedBars, draw_plot, from_zero
from fedpriv.store.saved import saved_table
from fedpriv.store.statement import composition_word

BLUE, ORANGE, GREEN, SKY = (COLOURS[name] for name in ("blue", "orange", "green", "sky"))
ROUND = "round"
FILTERED = "sound (budget of the filter, whenever the run ends)"
TITLES = {
    "accuracy_by_round": "Test accuracy over rounds",
    "accuracy_by_epsilon": "Test accuracy against ε",
    "loss_by_round": "Loss over rounds",
    "loss_by_epsilon": "Loss against ε",
    "epsilon": "Privacy loss ε over rounds",
    "noise_and_clip_norm": "Noise multiplier and clip norm",
    "gradient_norm": "Gradient norm before clipping",
    "labels_per_client": "Labels of each client",
}
_CLIENTS_WITH_A_BAR = 40
_MOST_BARS = 1000
_MARKED_ROUNDS = 40  # of a curve; more are a line alone
_WIDTH = 1.5  # points, of a line


def plot_run(
    folder: RunFolder, privacy: Mapping[str, object], labels_per_client: np.ndarray | None
) -> list[Path]:
    """Draw every plot that the run has data for.

    Args:
        folder: The run folder.
        privacy: The facts of the run's privacy statement.
        labels_per_client: Number of training records [clients, labels]; None: the plot is left out.

    Returns:
        The pictures that were written.

    Raises:
        WriteError: A picture cannot be written.
    """
    metrics = saved_table(folder.metrics)
    # Some accountants compute ε only in a few rounds. Between these rounds ε is drawn as a line.
    metrics["epsilon"] = metrics["epsilon"].interpolate(limit_area="inside")
    plots: dict[str, tuple[Panel | StackedBars, ...]] = {
        "accuracy_by_round": (_accuracy(metrics, "round", ROUND),),
        "loss_by_round": (_losses(metrics, "round", ROUND),),
    }
    if metrics["epsilon"].notna().any():
        word = composition_word(privacy)
        epsilon = _epsilon_label(metrics, word)
        plots |= {
            "accuracy_by_epsilon": (_accuracy(metrics, "epsilon", epsilon),),
            "loss_by_epsilon": (_losses(metrics, "epsilon", epsilon),),
            "epsilon": (_epsilons(metrics, word, privacy),),
            "noise_and_clip_norm": _noise_and_clip(metrics),
        }
    if folder.clients.exists():
        # At the end every client has a row, also those without a gradient.
        clients = saved_table(folder.clients).dropna(subset="gradient_norm")
        plots["gradient_norm"] = (_gradient_norms(clients, metrics),)
    if labels_per_client is not None:
        plots["labels_per_client"] = (_labels(labels_per_client),)
    drawn = []
    for name, panels in plots.items():
        drawn.append(folder.plots / f"{name}.png")
        draw_plot(drawn[-1], panels, TITLES[name], folder.path.resolve().name)
    return drawn


def _epsilon_label(metrics: pd.DataFrame, word: str) -> str:
    """Return the label of an ε axis, which says what the running value of ε guarantees."""
    sounds, running = (metrics[c].dropna().unique() for c in ("epsilon_sound", "epsilon"))
    sound = sounds.max(initial=0.0)
    if np.isinf(sound):
        return "ε as published (not private: sound ε is infinite)"
    if len(sounds) == 1 and len(running) > 1:
        return f"running value of the filter (guaranteed throughout: ε = {sound:g})"
    return f"ε {word} (worst client)"


def _sound_label(metrics: pd.DataFrame, privacy: Mapping[str, Any]) -> str:
    """Return the label of the sound ε, with the reason if it is the same in every round."""
    values = metrics["epsilon_sound"].dropna().to_numpy()
    if len(values) < 2 or len(np.unique(values)) > 1 or np.isinf(values).any():
        return "sound"
    if privacy.get("noise_adapts") and values[0] == privacy.get("budget"):
        return FILTERED
    return "sound (all that the schedule may spend)"


def _limits(x: str, values: pd.Series) -> tuple[float, float] | None:
    """Return limits of the x axis: rounds begin at zero, ε begins at its smallest value."""
    if x == "round":
        return from_zero(values)
    known = values[np.isfinite(values)]
    if not len(known) or known.min() == known.max():
        return None
    margin = 0.02 * (known.max() - known.min())
    return known.min() - margin, known.max() + margin


def _accuracy(metrics: pd.DataFrame, x: str, x_label: str) -> Panel:
    rows = metrics.dropna(subset="test_accuracy")
    marker = "o" if len(rows) <= _MARKED_ROUNDS else None
    accuracy = 100 * rows["test_accuracy"]
    lines = [Line("main task", BLUE, rows[x], accuracy, marker=marker, width=_WIDTH)]
    attacked = "backdoor_accuracy" in rows
    if attacked:
        label, backdoor = "backdoor (attack success rate)", 100 * rows["backdoor_accuracy"]
        lines.append(Line(label, ORANGE, rows[x], backdoor, style="--", width=_WIDTH))
    return Panel(
        "",
        x_label,
        "accuracy (%)" if attacked else "test accuracy (%)",
        tuple(lines),
        x_limits=_limits(x, rows[x]),
        y_limits=(0, 100),
        x_from_zero=False,
        legend="inside" if attacked else "",
    )


def _losses(metrics: pd.DataFrame, x: str, x_label: str) -> Panel:
    curves = (
        ("train_loss", "private lots (exact)", SKY, 0.8),
        ("validation_loss", "public validation", ORANGE, 1.2),
        ("test_loss", "test", BLUE, 1.8),
    )
    lines = []
    for column, label, colour, width in curves:
        if column in metrics and len(rows := metrics.dropna(subset=column)):
            lines.append(Line(label, colour, rows[x], rows[column], width=width))
    limits = _limits(x, metrics[x])
    return Panel(
        "", x_label, "loss", tuple(lines), x_limits=limits, x_from_zero=False, legend="inside"
    )


def _epsilons(metrics: pd.DataFrame, word: str, privacy: Mapping[str, Any]) -> Panel:
    sound = _sound_label(metrics, privacy)
    running = "running value of the filter" if sound == FILTERED else word
    curves = (
        ("epsilon_sound", sound, BLUE, "-"),
        ("epsilon_published", "published", ORANGE, "--"),
        ("epsilon", running, COLOURS["black"], ":"),
    )
    lines = []
    for column, label, colour, style in curves:
        rows = metrics[np.isfinite(metrics[column])]
        if len(rows):
            lines.append(
                Line(label, colour, rows["round"], rows[column], style=style, width=_WIDTH)
            )
    if np.isinf(metrics["epsilon_sound"]).any():
        lines.append(Line("sound: infinite", BLUE, (), (), joined=False))
    return Panel(
        "",
        ROUND,
        "ε of the worst client",
        tuple(lines),
        x_limits=from_zero(metrics["round"]),
        y_limits=(0, None),
        legend="inside",
    )


def _noise_and_clip(metrics: pd.DataFrame) -> tuple[Panel, Panel]:
    rounds, sigma = metrics["round"], metrics["noise_multiplier"]
    low, high = metrics["clip_norm_min"], metrics["clip_norm_max"]
    limits = from_zero(rounds)
    clip = Line(
        "mean over clients", GREEN, rounds, metrics["clip_norm"], low, high,
        width=_WIDTH, band_label="smallest to largest",
    )  # fmt: skip
    return (
        Panel(
            "",
            "",
            "σ (noise multiplier)",
            (Line("σ", BLUE, rounds, sigma, width=_WIDTH),),
            x_limits=limits,
            y_limits=(0, 1.08 * sigma.max() or 1),
        ),
        Panel(
            "",
            ROUND,
            "C (clip norm)",
            (clip,),
            x_limits=limits,
            y_limits=(0, None),
            legend="inside" if (high > low).any() else "",
        ),
    )


def _gradient_norms(clients: pd.DataFrame, metrics: pd.DataFrame) -> Panel:
    lines = []
    for colour, client in zip(CYCLE, np.unique(clients["client"]), strict=False):
        rows = clients[clients["client"] == client]
        norms = rows["gradient_norm"]
        lines.append(Line(f"{client:.0f}", colour, rows["round"], norms, marker=".", width=1))
    return Panel(
        "",
        ROUND,
        "L2 norm before clipping",
        tuple(lines),
        x_limits=from_zero(metrics["round"]),  # all rounds, also those without a client drawn here
        y_limits=(0, None),
        legend="beside",
        legend_title="client",
    )


def _labels(counts: np.ndarray) -> StackedBars:
    """Return one bar for each client.

    Hundreds of clients become bands without gaps, sorted by the most frequent label of a client, so that
    groups of similar clients can be seen. Of thousands of clients a band is the mean of a group.
    """
    few, records = len(counts) <= _CLIENTS_WITH_A_BAR, "training records"
    label = "client" if few else "clients, sorted by most frequent label"
    if not few:
        counts = counts[np.lexsort((-counts.max(axis=1), counts.argmax(axis=1)))]
    if len(counts) > _MOST_BARS:
        ends = np.linspace(0, len(counts), _MOST_BARS + 1).astype(np.int64)
        label = f"groups of {len(counts) // _MOST_BARS:,} {label}"
        counts = np.add.reduceat(counts, ends[:-1]) / np.diff(ends)[:, None]
        records = "training records of a client, mean of its group"
    return StackedBars(records, label, counts, apart=few, legend_title="label")
