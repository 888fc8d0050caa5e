"""Computed figures of Wei et al.: the moment bound (39), and the bound of theorem 2 as a function of T."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedpriv.privacy.wei_bounds import (
    Learning,
    best_rounds,
    convergence_bound,
    first_failure,
    log_moment,
    log_moment_bound,
    sensitivity,
)
from fedpriv.store.colours import COLOURS
from fedpriv.store.plots import Line, Panel
from fedpriv.study.figures.computed import Drawing

_COLOURS = ("blue", "orange", "green", "purple", "sky", "brown", "red", "grey", "yellow")
_MARKERS = "os^Dv*Xph"
_LETTERS = {
    "smoothness": "L", "curvature": "μ", "learning_rate": "η", "initial_gap": "Ξ",
    "dimension": "d (corrected only)", "clients": "K", "records": "n", "clip_norm": "C", "delta": "δ",
}  # fmt: skip


def moment_bound(
    panels: Sequence[Mapping[str, Any]],
    clip_norms: Sequence[float],
    noise_std: float,
    orders: Sequence[int],
) -> Drawing:
    """Draw figure 3: the exact moment (38) over its bound (39), in logarithms, and where the bound fails.

    Args:
        panels: ``title``, ``sample_rate`` and ``records`` of each panel.
        clip_norms: Clip norms C, a line each.
        noise_std: Standard deviation σ of the noise.
        orders: Orders λ of the moment.

    Returns:
        The panels in pairs, and the order at which each bound fails first.
    """
    drawn, findings = [], []
    for panel in panels:
        title, q = panel["title"], panel["sample_rate"]
        lines, failing = [], []
        for clip_norm, look in _looks("C", clip_norms):
            ratio = sensitivity(clip_norm, panel["records"]) / noise_std
            y = [log_moment(o, q, ratio) / log_moment_bound(o, q, ratio) for o in orders]
            lines.append(Line(x=orders, y=y, **look))
            failing += [(o, value) for o, value in zip(orders, y, strict=True) if value > 1]
            first = first_failure(q, ratio, max(orders))
            result = f"fails from λ = {first}" if first else f"holds up to λ = {max(orders)}"
            findings.append(f"{title}, {look['label']}: the bound {result}")
        log = max(max(line.y) for line in lines) > 2
        x, y = [o for o, _ in failing], [value for _, value in failing]
        level, black = [min(orders), max(orders)], COLOURS["black"]
        lines += [
            Line("the bound fails", COLOURS["red"], x, y, marker="x", joined=False),
            Line("exact = bound", black, level, [1, 1], dashed=True, thin=True),
        ]
        drawn.append(Panel(title, "order λ", "ln exact / ln bound", tuple(lines), y_log=log))
    caption = (
        "Logarithm of the exact moment, eq. (38), over that of its bound, eq. (39): above 1, marked ×, it "
        f"is no bound. σ = {noise_std:g}, Δ = 2C/n; the paper does not state C."
    )
    rows = [drawn[i : i + 2] for i in range(0, len(drawn), 2)]
    return Drawing(rows, caption, findings)


def theorem2(
    learning: Mapping[str, Any],
    epsilons: Mapping[str, Sequence[float]],
    largest_rounds: int,
    cohorts: Sequence[int],
) -> Drawing:
    """Draw the bound of theorem 2 against the number of rounds T for several ε, with the best T marked.

    Args:
        learning: Arguments of :class:`Learning` without the cohort.
        epsilons: Form of the bound → values of ε.
        largest_rounds: Largest T.
        cohorts: Numbers m of clients per round, a column of panels each.

    Returns:
        A row of panels for each form, and the best T of each ε.
    """
    rounds = np.arange(1, largest_rounds + 1)
    rows: list[list[Panel]] = []
    findings, before = [], 0
    for form, values in epsilons.items():
        rows.append([])
        for cohort in cohorts:
            problem = Learning(**learning, cohort=cohort)
            lines, best, least = [], [], []
            for epsilon, look in _looks("ε", values, before):
                bound = convergence_bound(rounds, epsilon, problem, form)
                lines.append(Line(x=rounds, y=bound, sparse=True, **look))
                best.append(best_rounds(epsilon, problem, form, len(rounds)))
                least.append(bound[best[-1] - 1])
            title = f"{form}, m = {cohort} of K = {problem.clients}"
            at = ", ".join(f"{t} at {line.label}" for t, line in zip(best, lines, strict=True))
            findings.append(f"{title}: best T {at}")
            lines.append(Line("best T", COLOURS["black"], best, least, marker="v", joined=False))
            x_label, y_label = "communication rounds T", "bound of F(wᵀ) − F(w*)"
            rows[-1].append(Panel(title, x_label, y_label, tuple(lines), y_log=True))
        before += len(values)  # no colour stands for two different ε
    given = ", ".join(f"{_LETTERS.get(k, k)} = {v:g}" for k, v in learning.items())
    return Drawing(rows, f"Bound of theorem 2, Δ = 2C/n. {given}.", findings)


def _looks(
    letter: str, values: Sequence[float], before: int = 0
) -> list[tuple[float, dict[str, Any]]]:
    """Return each value, and label, colour and marker of its line, which follow ``before`` other lines."""
    looks = []
    for index, value in enumerate(values, before):
        cycle, i = divmod(index, len(_COLOURS))
        colour, marker = COLOURS[_COLOURS[i]], _MARKERS[(i + cycle) % len(_MARKERS)]
        look = {"label": f"{letter} = {value:g}", "colour": colour, "marker": marker}
        looks.append((value, look))
    return looks
