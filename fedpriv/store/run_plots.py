"""The plots of one run, from its CSV files: PNG, colour-blind safe, axes labelled."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from fedpriv.store.colours import COLOURS
from fedpriv.store.folder import RunFolder
from fedpriv.store.numbers import Columns, between_known, read_columns
from fedpriv.store.plots import CYCLE, from_zero, legend_outside, plain, save_picture
from fedpriv.store.statement import composition_word

BLUE, ORANGE, GREEN, SKY = (COLOURS[name] for name in ("blue", "orange", "green", "sky"))
ROUND = "round"
_CLIENTS_WITH_A_BAR = 40
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


def plot_run(folder: RunFolder, labels_per_client: np.ndarray | None) -> list[Path]:
    """Draw every plot the run has data for into ``plots/``; returns the files."""
    metrics = read_columns(folder.metrics)
    # some accountants answer few rounds; between them ε is drawn as a line
    metrics["epsilon"] = between_known(metrics["epsilon"])
    drawn = [
        _draw(folder, "accuracy_by_round", lambda a: _accuracy(a, metrics, "round", ROUND)),
        _draw(folder, "loss_by_round", lambda a: _losses(a, metrics, "round", ROUND)),
    ]
    if metrics.has("epsilon"):
        privacy = folder.read_json(folder.privacy_json)
        word = composition_word(privacy)
        epsilon = _epsilon_label(metrics, word)
        drawn += [
            _draw(
                folder, "accuracy_by_epsilon", lambda a: _accuracy(a, metrics, "epsilon", epsilon)
            ),
            _draw(folder, "loss_by_epsilon", lambda a: _losses(a, metrics, "epsilon", epsilon)),
            _draw(folder, "epsilon", lambda a: _epsilons(a, metrics, word, privacy)),
            _draw(folder, "noise_and_clip_norm", lambda a: _noise_and_clip(a, metrics), rows=2),
        ]
    if folder.clients.exists():
        columns = ("round", "client", "gradient_norm")
        clients = read_columns(folder.clients, columns, lowest=("client", len(CYCLE)))
        drawn.append(_draw(folder, "gradient_norm", lambda a: _gradient_norms(a, clients, metrics)))
    if labels_per_client is not None:
        drawn.append(_draw(folder, "labels_per_client", lambda a: _labels(a, labels_per_client)))
    return drawn


def _epsilon_label(metrics: Columns, word: str) -> str:
    """What the running value of ε is worth, on the axis itself."""
    sounds, running = (np.unique(metrics.known(c)[c]) for c in ("epsilon_sound", "epsilon"))
    sound = sounds.max(initial=0.0)
    if np.isinf(sound):
        return "ε as published (not private: sound ε is infinite)"
    if len(sounds) == 1 and len(running) > 1:
        return f"running value of the filter (guaranteed throughout: ε = {sound:g})"
    return f"ε {word} (worst client)"


def _draw(folder: RunFolder, name: str, fill: Callable[[Any], None], rows: int = 1) -> Path:
    high = 3.8 if rows == 1 else 5.0
    figure = Figure(figsize=(5.2, high))
    # margins that are measured cost a third of the drawing
    figure.subplots_adjust(left=0.14, right=0.97, bottom=0.5 / high, top=1 - 0.5 / high, hspace=0.1)
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, 1, sharex=rows > 1)
    fill(axes)
    for axis in np.atleast_1d(axes):
        plain(axis)
    figure.suptitle(TITLES[name], x=0.14, y=1 - 0.06 / high, ha="left", va="top", fontsize=10)
    figure.text(
        0.14, 1 - 0.28 / high, _in_a_line(folder.path.resolve().name),
        ha="left", va="top", fontsize=7, color="0.35",
    )  # fmt: skip
    path = folder.plots / f"{name}.png"
    save_picture(figure, path, 150)
    return path


def _accuracy(axis: Axes, metrics: Columns, x: str, label: str) -> None:
    rows = metrics.known("test_accuracy")
    axis.plot(rows[x], 100 * rows["test_accuracy"], color=BLUE, marker=_marker(rows), markersize=3)
    axis.set(xlabel=label, ylabel="test accuracy (%)", ylim=(0, 100))
    if "backdoor_accuracy" in rows:
        axis.lines[-1].set_label("main task")
        backdoor = 100 * rows["backdoor_accuracy"]
        axis.plot(rows[x], backdoor, "--", color=ORANGE, label="backdoor (attack success rate)")
        axis.set(ylabel="accuracy (%)")
        axis.legend(frameon=False)
    _limits(axis, x, rows[x])


def _sound_label(metrics: Columns, privacy: Mapping[str, Any]) -> str:
    """``sound``, and why where it is the same in every round."""
    values = metrics.known("epsilon_sound")["epsilon_sound"]
    if len(values) < 2 or len(np.unique(values)) > 1 or np.isinf(values).any():
        return "sound"
    if privacy.get("noise_adapts") and values[0] == privacy.get("budget"):
        return FILTERED
    return "sound (all that the schedule may spend)"


def _in_a_line(name: str) -> str:
    return name if len(name) <= 80 else f"{name[:77]}..."


def _limits(axis: Axes, x: str, values: np.ndarray) -> None:
    """Rounds begin at zero, ε where there is a value."""
    if x == "round":
        from_zero(axis, values)
        return
    known = values[np.isfinite(values)]
    if len(known) and known.min() < known.max():
        margin = 0.02 * (known.max() - known.min())
        axis.set_xlim(known.min() - margin, known.max() + margin)


def _losses(axis: Axes, metrics: Columns, x: str, label: str) -> None:
    curves = (
        ("train_loss", "private lots (exact)", SKY, 0.8),
        ("validation_loss", "public validation", ORANGE, 1.2),
        ("test_loss", "test", BLUE, 1.8),
    )
    for column, name, colour, width in curves:
        if metrics.has(column):
            rows = metrics.known(column)
            axis.plot(rows[x], rows[column], label=name, color=colour, linewidth=width)
    axis.set(xlabel=label, ylabel="loss")
    _limits(axis, x, metrics[x])
    axis.legend(frameon=False)


def _epsilons(axis: Axes, metrics: Columns, word: str, privacy: Mapping[str, Any]) -> None:
    sound = _sound_label(metrics, privacy)
    curves = (
        ("epsilon_sound", sound, BLUE, "-"),
        ("epsilon_published", "published", ORANGE, "--"),
        ("epsilon", "running value of the filter" if sound == FILTERED else word, "#000000", ":"),
    )
    for column, name, colour, style in curves:
        rows = metrics.where(np.isfinite(metrics[column]))
        if rows.rows:
            axis.plot(rows["round"], rows[column], style, label=name, color=colour)
    if np.isinf(metrics["epsilon_sound"]).any():
        axis.plot([], [], " ", label="sound: infinite")
    axis.set(xlabel=ROUND, ylabel="ε of the worst client")
    axis.set_ylim(bottom=0)
    from_zero(axis, metrics["round"])
    axis.legend(frameon=False)


def _noise_and_clip(axes: np.ndarray, metrics: Columns) -> None:
    noise, clip = axes
    noise.plot(metrics["round"], metrics["noise_multiplier"], color=BLUE)
    noise.set(ylabel="σ (noise multiplier)")
    noise.set_ylim(bottom=0, top=1.08 * metrics["noise_multiplier"].max() or 1)
    clip.plot(metrics["round"], metrics["clip_norm"], color=GREEN, label="mean over clients")
    clip.fill_between(
        metrics["round"], metrics["clip_norm_min"], metrics["clip_norm_max"], color=GREEN,
        alpha=0.25, linewidth=0, label="smallest to largest",
    )  # fmt: skip
    clip.set(xlabel=ROUND, ylabel="C (clip norm)")
    clip.set_ylim(bottom=0)
    if (metrics["clip_norm_max"] > metrics["clip_norm_min"]).any():
        clip.legend(frameon=False)
    from_zero(clip, metrics["round"])


def _gradient_norms(axis: Axes, clients: Columns, metrics: Columns) -> None:
    shown = np.unique(clients["client"])[: len(CYCLE)]
    for colour, client in zip(CYCLE, shown, strict=False):
        rows = clients.where(clients["client"] == client)
        axis.plot(
            rows["round"], rows["gradient_norm"], color=colour, linewidth=1, label=f"{client:.0f}",
            marker=".", markersize=3,
        )  # fmt: skip
    axis.set(xlabel=ROUND, ylabel="L2 norm before clipping")
    axis.set_ylim(bottom=0)
    from_zero(axis, metrics["round"])  # clients that are not drawn may be the last
    _room_for_legend(axis, "client")


def _labels(axis: Axes, counts: np.ndarray) -> None:
    """A bar per client, in its order; hundreds of clients as bands without gaps, sorted by their
    most frequent label, so that what they are like can be seen."""
    few = len(counts) <= _CLIENTS_WITH_A_BAR
    if not few:
        most = counts.argmax(axis=1)
        counts = counts[np.lexsort((-counts.max(axis=1), most))]
    clients = np.arange(len(counts))
    left = np.zeros(len(counts))
    for label in range(counts.shape[1]):
        axis.barh(
            clients, counts[:, label], left=left, color=CYCLE[label % len(CYCLE)], label=str(label),
            height=0.8 if few else 1.0, linewidth=0.4 if few else 0, edgecolor="white",
        )  # fmt: skip
        left += counts[:, label]
    axis.set(
        xlabel="training records",
        ylabel="client" if few else "clients, sorted by most frequent label",
        ylim=(len(counts) - 0.5, -0.5),
    )
    if few:
        axis.set_yticks(clients)
    _room_for_legend(axis, "label")


def _room_for_legend(axis: Axes, title: str) -> None:
    axis.figure.subplots_adjust(right=0.86)
    legend_outside(axis, title)


def _marker(rows: Columns) -> str | None:
    return "o" if rows.rows <= 40 else None
