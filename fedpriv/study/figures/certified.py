"""The computed figure of certified backdoors: what k malicious clients cannot change, beside what they do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from fedpriv.common import checks
from fedpriv.common import config as configuration
from fedpriv.common.errors import ArgumentError, ConfigError
from fedpriv.experiment.build import build_parts
from fedpriv.experiment.parts import Parts
from fedpriv.privacy.core.trade_off import TradeOff
from fedpriv.privacy.groups import group_of, group_trade_off
from fedpriv.store.colours import COLOURS
from fedpriv.store.display import console
from fedpriv.store.plots import Line, Panel
from fedpriv.study.figures.computed import Drawing
from fedpriv.tools.audit.certified import certified, votes_of_trainings

_COLOURS = ("blue", "orange", "green", "purple", "red")
ADDED, REPLACED = 1, 2
"""How often the curve of k clients counts: k more clients; k clients whose data are other data."""


@dataclass(frozen=True)
class Ensemble:
    """Votes of clean models on records with the trigger, and of models that k attackers took part in."""

    epsilon: float
    delta: float
    noise_multiplier: float
    sample_rate: float
    rounds: int
    votes: np.ndarray
    attacked: Mapping[int, np.ndarray]
    truth: np.ndarray

    def accuracy(self, votes: np.ndarray) -> float:
        """Of the majority."""
        return float((votes.argmax(axis=1) == self.truth).mean())

    def certified_accuracy(self, curve: TradeOff, units: int, significance: float) -> float:
        """The share of records whose majority is right and stands."""
        stands = certified(self.votes, lambda fpr: curve.tpr(fpr, units), significance)
        return float((stands & (self.votes.argmax(axis=1) == self.truth)).mean())


def certified_backdoors(
    overrides: Sequence[str],
    epsilons: Sequence[float],
    clients: Sequence[int],
    attacked: Sequence[int],
    attack: Sequence[str],
    trainings: int,
    attacked_trainings: int,
    confidence: float,
) -> Drawing:
    """Certified accuracy on records with a trigger against the number k of malicious ``clients``, for each ε,
    beside the accuracy where ``attacked`` many really attack (``attack``: overrides of theirs)."""
    checks.whole("trainings", trainings, at_least=2)
    checks.whole("attacked_trainings", attacked_trainings, at_least=1)
    confidence = checks.number("confidence", confidence, above=0.5, below=1)
    clients = [checks.whole("clients", k, at_least=0) for k in clients]
    if not epsilons:
        raise ArgumentError("epsilons", epsilons, "at least one ε")
    drawn, findings = [], []
    for epsilon, name in zip(epsilons, _COLOURS, strict=False):
        checks.number("epsilons", epsilon, above=0)
        found = _ensemble(
            [*overrides, f"epsilon={epsilon}"], attack, attacked, trainings, attacked_trainings
        )
        drawn.append(_curves(found, clients, COLOURS[name], 1.0 - confidence))
        findings.append(_words(found, drawn[-1]))
        console().print(findings[-1])
    added = [line for one in drawn for line in (one.added, one.by_group)]
    replaced = [line for one in drawn for line in (one.replaced, one.attacked) if line]
    caption = (
        f"Majority of {trainings} independent trainings; certificates hold with confidence {confidence:g}, "
        f"all records together. Circles: so many really attack (majority of {attacked_trainings}). "
        f"Publishing the ensemble costs the privacy of {trainings} trainings."
    )
    panels = (
        _panel("k clients added", added),
        _panel("k clients replaced", replaced),
    )
    return Drawing((panels,), caption, findings)


@dataclass(frozen=True)
class _Curves:
    """Of one ε: certified accuracy (%) against k, and the accuracy where so many attack."""

    added: Line
    replaced: Line
    by_group: Line
    attacked: Line | None


def _ensemble(
    overrides: Sequence[str],
    attack: Sequence[str],
    attacked: Sequence[int],
    trainings: int,
    attacked_trainings: int,
) -> Ensemble:
    poisoned = {k: [*overrides, *attack, f"attack.attackers={k}"] for k in attacked}
    one = poisoned[attacked[0]] if poisoned else list(overrides)
    parts = build_parts(configuration.compose(list(overrides)))
    _refuse(parts)
    sampling = parts.costs().sampling
    triggered, truth = _triggered(one)
    votes = votes_of_trainings(configuration.compose(list(overrides)), trainings, triggered)
    epsilon, rounds = parts.settings.epsilon, parts.settings.rounds
    assert epsilon is not None  # _refuse has seen to both
    assert rounds is not None
    return Ensemble(
        epsilon,
        parts.settings.delta,
        parts.noise_schedule.noise_multiplier(0),
        sampling.poisson_rate,
        rounds,
        votes,
        {
            k: votes_of_trainings(configuration.compose(own), attacked_trainings, triggered)
            for k, own in poisoned.items()
        },
        truth,
    )


def _refuse(parts: Parts) -> None:
    algorithm = parts.algorithm
    if algorithm.unit != "client" or algorithm.trust.sees_each_upload or not algorithm.private:
        raise ConfigError(
            f"algorithm={algorithm.name}: certificates are for client-level algorithms whose server clips"
        )
    if parts.settings.rounds is None or parts.clipper.asks(0):
        raise ConfigError("certificates need a number of rounds and a clipper that asks nothing")


def _triggered(overrides: Sequence[str]) -> tuple[torch.Tensor, np.ndarray]:
    """(test inputs with the trigger, their true labels)."""
    from fedpriv.experiment.assemble import make_context

    context = make_context(build_parts(configuration.compose(list(overrides))), torch.device("cpu"))
    test, attack = context.data.test, context.attack
    if attack is None:
        return test.inputs, test.targets.numpy()
    target = int(attack.test.targets[0])
    truth = test.targets[test.targets != target].numpy()
    if len(truth) != len(attack.test):
        raise ConfigError("attack", "this trigger", "one of all test records of other labels")
    return attack.test.inputs, truth


def _curves(found: Ensemble, clients: Sequence[int], colour: str, significance: float) -> _Curves:
    def accuracies(curve_of: Callable[[int], TradeOff], units: int) -> list[float]:
        return [100 * found.certified_accuracy(curve_of(k), units, significance) for k in clients]

    mechanism = (found.noise_multiplier, found.sample_rate, found.rounds)
    curves = {k: group_trade_off(*mechanism, k) for k in clients}
    name = f"ε = {found.epsilon:g}"
    by_group = accuracies(lambda k: group_of(found.epsilon, found.delta, k), ADDED)
    attacked = None
    if found.attacked:
        y = [100 * found.accuracy(votes) for votes in found.attacked.values()]
        attacked = Line(
            f"{name}, attacked", colour, list(found.attacked), y, marker="o", joined=False
        )
    return _Curves(
        Line(name, colour, clients, accuracies(curves.__getitem__, ADDED)),
        Line(name, colour, clients, accuracies(curves.__getitem__, REPLACED)),
        Line(f"{name}, by (ε, δ) alone", colour, clients, by_group, dotted=True),
        attacked,
    )


def _words(found: Ensemble, drawn: _Curves) -> str:
    words = (
        f"ε = {found.epsilon:g} (σ = {found.noise_multiplier:.3f}): accuracy with the trigger "
        f"{100 * found.accuracy(found.votes):.1f} %"
    )
    for line, what in ((drawn.added, "added"), (drawn.replaced, "replaced")):
        most = max((k for k, y in zip(line.x, line.y, strict=True) if k and y > 50), default=0)
        words += f"; more than half of the records stand against {most} clients {what}"
    for k, votes in found.attacked.items():
        words += f"; {100 * found.accuracy(votes):.1f} % with {k} attackers"
    return words + "."


def _panel(title: str, lines: Sequence[Line]) -> Panel:
    return Panel(
        title=title,
        x_label="malicious clients k",
        y_label="certified accuracy (%)",
        lines=tuple(lines),
        y_limits=(0, 100),
    )
