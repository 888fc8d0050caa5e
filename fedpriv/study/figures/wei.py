"""Computed figures of Wei et al.: the moment bound (39), and the bound of theorem 2 as a function of T."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedpriv.common import checks
from fedpriv.common.errors import ArgumentError
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

_NAMES = ("blue", "orange", "green", "purple", "sky", "brown", "red", "grey", "yellow")
_COLOURS = [COLOURS[name] for name in _NAMES]
_MARKERS = "os^Dv*Xph"


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

    Raises:
        ArgumentError: An argument is not allowed.
    """
    noise_std = checks.number("noise_std", noise_std, above=0)
    orders = [checks.whole("orders", order, at_least=1) for order in orders]
    drawn, findings = [], []
    for panel in panels:
        q, records = panel["sample_rate"], panel["records"]
        lines, failing = [], []
        for clip_norm, colour, marker in _styled("clip_norms", clip_norms):
            ratio = sensitivity(clip_norm, records) / noise_std
            y = [log_moment(o, q, ratio) / log_moment_bound(o, q, ratio) for o in orders]
            label = f"C = {clip_norm:g}"
            lines.append(Line(label, colour, orders, y, marker=marker))
            failing += [(o, value) for o, value in zip(orders, y, strict=True) if value > 1]
            first = first_failure(q, ratio, max(orders))
            result = f"fails from λ = {first}" if first else f"holds up to λ = {max(orders)}"
            findings.append(f"{panel['title']}, {label}: the bound {result}")
        x, y = [o for o, _ in failing], [value for _, value in failing]
        lines.append(Line("the bound fails", COLOURS["red"], x, y, marker="x", joined=False))
        level = [min(orders), max(orders)]
        lines.append(Line("exact = bound", COLOURS["black"], level, [1, 1], dashed=True, thin=True))
        drawn.append(
            Panel(
                title=panel["title"],
                x_label="order λ",
                y_label="ln exact / ln bound",
                lines=tuple(lines),
                y_log=max(max(line.y) for line in lines if line.joined) > 2,
            )
        )
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

    Raises:
        ArgumentError: An argument is not allowed.
    """
    rounds = np.arange(1, checks.whole("largest_rounds", largest_rounds, at_least=2) + 1)
    rows, findings, before = [], [], 0
    for form, values in epsilons.items():
        row = []
        for cohort in cohorts:
            try:
                problem = Learning(**learning, cohort=cohort)
            except ArgumentError as error:
                error.argument = f"learning.{error.argument}"
                raise
            except TypeError as error:
                allowed = f"what it has to be: {error}"
                raise ArgumentError("learning", sorted(learning), allowed) from None
            lines, best = [], {}
            for epsilon, colour, marker in _styled(f"epsilons.{form}", values, before):
                bound = convergence_bound(rounds, epsilon, problem, form)
                label = f"ε = {epsilon:g}"
                lines.append(Line(label, colour, rounds, bound, marker=marker, sparse=True))
                best[epsilon] = best_rounds(epsilon, problem, form, len(rounds))
            least = [
                convergence_bound([t], epsilon, problem, form)[0] for epsilon, t in best.items()
            ]
            lines.append(
                Line("best T", COLOURS["black"], [*best.values()], least, marker="v", joined=False)
            )
            title = f"{form}, m = {cohort} of K = {problem.clients}"
            row.append(
                Panel(
                    title=title,
                    x_label="communication rounds T",
                    y_label="bound of F(wᵀ) − F(w*)",
                    lines=tuple(lines),
                    y_log=True,
                )
            )
            best_of_each = ", ".join(f"{t} at ε = {epsilon:g}" for epsilon, t in best.items())
            findings.append(f"{title}: best T {best_of_each}")
        rows.append(row)
        before += len(values)  # no colour stands for two different ε
    given = ", ".join(f"{_LETTERS.get(k, k)} = {v:g}" for k, v in learning.items())
    return Drawing(rows, f"Bound of theorem 2, Δ = 2C/n. {given}.", findings)


_LETTERS = {
    "smoothness": "L", "curvature": "μ", "learning_rate": "η", "initial_gap": "Ξ",
    "divergence": "divergence", "dimension": "d (corrected only)", "clients": "K", "records": "n",
    "clip_norm": "C", "delta": "δ",
}  # fmt: skip


def _styled(name: str, values: Sequence[float], before: int = 0) -> list[tuple[float, str, str]]:
    """Return (value, colour, marker) of each value, leaving out those of ``before`` earlier values."""
    if not values:
        raise ArgumentError(name, values, "at least one number")
    many = len(_COLOURS)
    return [
        (checks.number(name, value, above=0), _COLOURS[i % many], _MARKERS[(i + i // many) % many])
        for i, value in enumerate(values, before)
    ]
