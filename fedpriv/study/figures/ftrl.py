"""The computed figure of correlated noise: how far off the iterates are, against the number of rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fedpriv.algorithms.dp_ftrl import OBJECTIVES, STRATEGIES
from fedpriv.common import checks
from fedpriv.common.errors import ArgumentError
from fedpriv.privacy.matrix.make import make_strategy
from fedpriv.privacy.matrix.participation import MinSeparation
from fedpriv.privacy.matrix.strategy import error
from fedpriv.privacy.matrix.workload import Workload
from fedpriv.store.colours import COLOURS
from fedpriv.store.plots import Line, Panel
from fedpriv.study.figures.computed import Drawing

_COLOURS = ("grey", "orange", "blue", "purple", "green")


def error_against_rounds(
    rounds: Sequence[int],
    strategies: Mapping[str, int],
    min_separation: int | None = None,
    epochs: int | None = None,
    momentum: float = 0.0,
) -> Drawing:
    """Root of the mean and of the largest squared error of the iterates, in units of η σ C.

    Args:
        rounds: n, rising.
        strategies: Each with the largest n that it is optimised for.
        min_separation: b, for clients that take part as often as it allows.
        epochs: So many times each client takes part, n / epochs rounds apart; one of the two is given.
    """
    rounds = [checks.whole("rounds", n, at_least=2) for n in rounds]
    if (min_separation is None) == (epochs is None):
        raise ArgumentError("epochs", epochs, "given where min_separation is null, and only there")
    for name in strategies:
        checks.one_of("strategies", name, STRATEGIES)
    found: dict[tuple[str, str], dict[int, float]] = {}
    for n in rounds:
        apart = min(n, min_separation or max(1, n // (epochs or 1)))
        workload, participation = Workload(n, momentum), MinSeparation(apart, epochs)
        for name, most in strategies.items():
            if n > most:
                continue
            for objective in OBJECTIVES:
                strategy = make_strategy(name, workload, participation, objective=objective)
                errors = found.setdefault((name, objective), {})
                errors[n] = error(strategy, participation, workload, objective)
    panels = tuple(_panel(objective, list(strategies), found) for objective in OBJECTIVES)
    how = (
        f"b = {min_separation}"
        if epochs is None
        else f"{epochs} rounds of a client, n/{epochs} apart"
    )
    caption = (
        f"Sensitivity times root of the mean, or largest, variance of the iterates' noise; {how}"
        + (f"; momentum {momentum:g}." if momentum else ".")
    )
    return Drawing((panels,), caption, [_words(n, strategies, found) for n in rounds[-1:]])


def _panel(
    objective: str, names: Sequence[str], found: Mapping[tuple[str, str], Mapping[int, float]]
) -> Panel:
    lines = tuple(
        Line(name, COLOURS[colour], list(own), list(own.values()), marker="o")
        for name, colour in zip(names, _COLOURS, strict=False)
        if (own := found.get((name, objective)))
    )
    title = {"mean": "Root mean squared error", "max": "Largest error"}[objective]
    return Panel(
        title, "rounds n", "error ÷ (η σ C)", lines, x_log=True, y_log=True, x_from_zero=False
    )


def _words(
    rounds: int,
    names: Mapping[str, int],
    found: Mapping[tuple[str, str], Mapping[int, float]],
) -> str:
    there = {name: found.get((name, "mean"), {}).get(rounds) for name in names}
    shown = ", ".join(f"{name} {value:.4g}" for name, value in there.items() if value is not None)
    return f"Root mean squared error at n = {rounds}: {shown}"
