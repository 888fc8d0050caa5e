"""Computed figure of correlated noise: the error of the iterates against the number of rounds.

With correlated noise (matrix mechanism), a workload A is factored as A = B C. The iterates get the noise
B z with z Gaussian, scaled to the sensitivity of C. The strategies differ in C.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle

from fedpriv.algorithms.dp_ftrl import OBJECTIVES
from fedpriv.common.errors import ArgumentError
from fedpriv.privacy.matrix.make import make_strategy
from fedpriv.privacy.matrix.participation import MinSeparation
from fedpriv.privacy.matrix.strategy import error
from fedpriv.privacy.matrix.workload import Workload
from fedpriv.store.colours import COLOURS
from fedpriv.store.plots import MARKERS, Line, Panel
from fedpriv.study.figures.computed import Drawing

_FIRST = ("grey", "orange", "blue", "purple", "green")  # colours of the first strategies
_TITLES = {"mean": "Root mean squared error", "max": "Largest error"}


def error_against_rounds(
    rounds: Sequence[int],
    strategies: Mapping[str, int],
    min_separation: int | None = None,
    epochs: int | None = None,
    momentum: float = 0.0,
) -> Drawing:
    """Draw the root of the mean and of the largest squared error of the iterates, in units of η σ C.

    Exactly one of ``min_separation`` and ``epochs`` is given.

    Args:
        rounds: Numbers of rounds n, increasing.
        strategies: Name of each strategy → largest n for which the strategy is computed.
        min_separation: Least distance b of two rounds of a client. Clients take part as often as b allows.
        epochs: Number of rounds that each client takes part in, n / epochs rounds apart.
        momentum: Momentum of the server's optimiser.

    Returns:
        A panel for each objective, with a line for each strategy.

    Raises:
        ArgumentError: An argument is not allowed.
    """
    if (min_separation is None) == (epochs is None):
        raise ArgumentError("epochs", epochs, "given where min_separation is null, and only there")
    errors: dict[str, dict[str, dict[int, float]]]  # objective → strategy → n → error
    errors = {objective: {name: {} for name in strategies} for objective in OBJECTIVES}
    for n in rounds:
        apart = min(n, min_separation or max(1, n // (epochs or 1)))
        workload, participation = Workload(n, momentum), MinSeparation(apart, epochs)
        for name, most in strategies.items():
            for objective in OBJECTIVES if n <= most else ():
                strategy = make_strategy(name, workload, participation, objective=objective)
                size = error(strategy, participation, workload, objective)
                errors[objective][name][n] = size
    colours = [COLOURS[name] for name in dict.fromkeys((*_FIRST, *COLOURS))]
    panels = []
    for objective, of_strategies in errors.items():
        looks = zip(of_strategies.items(), cycle(colours), cycle(MARKERS), strict=False)
        lines = tuple(
            Line(name, colour, list(line), list(line.values()), marker=marker)
            for (name, line), colour, marker in looks
            if line
        )
        title, y_label = _TITLES[objective], "error ÷ (η σ C)"
        panels.append(Panel(title, "rounds n", y_label, lines, x_log=True, y_log=True))
    pattern = (
        f"{epochs} rounds of a client, n/{epochs} apart" if epochs else f"b = {min_separation}"
    )
    caption = (
        "Sensitivity times root of the mean, or largest, variance of the iterates' noise; "
        f"{pattern}{f'; momentum {momentum:g}' if momentum else ''}."
    )
    last = {name: line.get(rounds[-1]) for name, line in errors["mean"].items()}
    shown = ", ".join(f"{name} {value:.4g}" for name, value in last.items() if value is not None)
    finding = f"Root mean squared error at n = {rounds[-1]}: {shown}"
    return Drawing([panels], caption, [finding])
