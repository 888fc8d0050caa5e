"""Computed figure of certified backdoors: predictions that k malicious clients cannot change.

The privacy of a client-level mechanism bounds how much k clients can change the majority of an ensemble
(:mod:`fedpriv.tools.audit.certified`). The figure shows the certified accuracy beside the accuracy under
attack.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from fedpriv.common import checks
from fedpriv.common import config as configuration
from fedpriv.common.errors import ArgumentError, ConfigError
from fedpriv.experiment.build import build_parts
from fedpriv.privacy.core.trade_off import TradeOff
from fedpriv.privacy.groups import group_of, group_trade_off
from fedpriv.store.display import console
from fedpriv.store.plots import Line, Panel, distinct
from fedpriv.study.figures.computed import Drawing
from fedpriv.tools.audit.certified import certified, votes_of_trainings

# Units by which two data sets differ, for each malicious client: an added client is one unit, and a client
# whose data are replaced is two, a removal and an addition.
ADDED, REPLACED = 1, 2


@dataclass(frozen=True)
class Ensemble:
    """Votes of independently trained models on test records with the trigger.

    Attributes:
        epsilon: ε of one training.
        delta: δ of one training.
        noise_multiplier: σ of the mechanism.
        sample_rate: q, the probability that a client takes part in a round.
        rounds: T, the number of rounds.
        votes: Number of clean models that vote for each class [n, classes].
        attacked: Number k of attackers → votes [n, classes] of models that these attackers took part in.
        truth: True labels [n].
    """

    epsilon: float
    delta: float
    noise_multiplier: float
    sample_rate: float
    rounds: int
    votes: np.ndarray
    attacked: Mapping[int, np.ndarray]
    truth: np.ndarray

    def accuracy(self, votes: np.ndarray) -> float:
        """Return the accuracy of the majority of ``votes`` [n, classes]."""
        return float((votes.argmax(axis=1) == self.truth).mean())

    def certified_accuracy(self, curve: TradeOff, units: int, significance: float) -> float:
        """Return the share of records whose majority is right and certified.

        Args:
            curve: Trade-off curve of k clients.
            units: ``ADDED`` or ``REPLACED``.
            significance: Probability that a certificate may be wrong, for all records together.
        """
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
    """Draw the certified accuracy on records with a trigger against the number k of malicious clients.

    Args:
        overrides: Overrides of the clean trainings.
        epsilons: Budgets ε, a colour each.
        clients: Numbers k for which the accuracy is certified.
        attacked: Numbers k of attackers in real attacks, for comparison.
        attack: Overrides of the attack.
        trainings: Number of clean trainings, whose majority is certified.
        attacked_trainings: Number of trainings of each real attack.
        confidence: Confidence of the certificates, for all records together.

    Returns:
        A panel for added and a panel for replaced clients, and a finding for each ε.

    Raises:
        ArgumentError: An argument is not allowed.
        ConfigError: The algorithm or the trigger is none that certificates are for.
    """
    checks.whole("trainings", trainings, at_least=2)
    checks.whole("attacked_trainings", attacked_trainings, at_least=1)
    confidence = checks.number("confidence", confidence, above=0.5, below=1)
    clients = [checks.whole("clients", k, at_least=0) for k in clients]
    if not epsilons:
        raise ArgumentError("epsilons", epsilons, "at least one ε")
    added: list[Line] = []
    replaced: list[Line] = []
    findings = []
    for index, epsilon in enumerate(epsilons):
        checks.number("epsilons", epsilon, above=0)
        ensemble = _ensemble(
            [*overrides, f"epsilon={epsilon}"], attack, attacked, trainings, attacked_trainings
        )
        by_mechanism, by_group, against_replaced, under_attack = _lines(
            ensemble, clients, index, 1.0 - confidence
        )
        added += [by_mechanism, by_group]
        replaced += [against_replaced, *under_attack]
        findings.append(_finding(ensemble, by_mechanism, against_replaced))
        console().print(findings[-1])
    caption = (
        f"Majority of {trainings} independent trainings; certificates hold with confidence {confidence:g}, "
        f"all records together. Circles: so many really attack (majority of {attacked_trainings}). "
        f"Publishing the ensemble costs the privacy of {trainings} trainings."
    )
    panels = tuple(
        Panel(
            title=title,
            x_label="malicious clients k",
            y_label="certified accuracy (%)",
            lines=tuple(lines),
            y_limits=(0, 100),
        )
        for title, lines in (("k clients added", added), ("k clients replaced", replaced))
    )
    return Drawing((panels,), caption, findings)


def _ensemble(
    overrides: Sequence[str],
    attack: Sequence[str],
    attacked: Sequence[int],
    trainings: int,
    attacked_trainings: int,
) -> Ensemble:
    """Train the clean and the attacked models, and collect their votes."""
    poisoned = {k: [*overrides, *attack, f"attack.attackers={k}"] for k in attacked}
    parts = build_parts(configuration.compose(list(overrides)))
    algorithm, epsilon, rounds = parts.algorithm, parts.settings.epsilon, parts.settings.rounds
    if algorithm.unit != "client" or algorithm.trust.sees_each_upload or not algorithm.private:
        raise ConfigError(
            f"algorithm={algorithm.name}: certificates are for client-level algorithms whose server clips"
        )
    if rounds is None or parts.clipper.asks(0):
        raise ConfigError(
            "certificates need a number of rounds, and a clipper that needs no private statistic"
        )
    assert epsilon is not None  # certified_backdoors sets the key
    sampling = parts.costs().sampling
    from fedpriv.experiment.assemble import make_context

    of_trigger = list(poisoned[attacked[0]] if poisoned else overrides)
    context = make_context(build_parts(configuration.compose(of_trigger)), torch.device("cpu"))
    test, planted = context.data.test, context.attack
    triggered, truth = test.inputs, test.targets.numpy()
    if planted is not None and planted.test is not None:
        triggered = planted.test.inputs
        truth = truth[truth != int(planted.test.targets[0])]
        if len(truth) != len(planted.test):
            raise ConfigError("attack", "this trigger", "one of all test records of other labels")
    votes = votes_of_trainings(configuration.compose(list(overrides)), trainings, triggered)
    return Ensemble(
        epsilon,
        parts.settings.delta,
        parts.noise_schedule.noise_multiplier(0),
        sampling.poisson_rate,
        rounds,
        votes,
        {
            k: votes_of_trainings(configuration.compose(texts), attacked_trainings, triggered)
            for k, texts in poisoned.items()
        },
        truth,
    )


def _lines(
    ensemble: Ensemble, clients: Sequence[int], index: int, significance: float
) -> tuple[Line, Line, Line, list[Line]]:
    """Certify the votes of the ensemble with this index against k added and k replaced clients.

    The trade-off curve of k clients follows from the mechanism, which is tighter than group privacy of
    (ε, δ). Both are drawn.

    Returns:
        Lines (in %) against k: added by the mechanism, added by (ε, δ), replaced, and under real attacks if
        there are any.
    """
    mechanism = (ensemble.noise_multiplier, ensemble.sample_rate, ensemble.rounds)
    curves = [group_trade_off(*mechanism, k) for k in clients]
    of_group = [group_of(ensemble.epsilon, ensemble.delta, k) for k in clients]
    name, (colour, _, again) = f"ε = {ensemble.epsilon:g}", distinct(index)

    def line(label: str, curves: Sequence[TradeOff], units: int, dotted: bool = False) -> Line:
        shares = [100 * ensemble.certified_accuracy(c, units, significance) for c in curves]
        return Line(label, colour, clients, shares, dotted=dotted, dashed=again)

    under_attack = [100 * ensemble.accuracy(votes) for votes in ensemble.attacked.values()]
    marks = Line(
        f"{name}, attacked", colour, list(ensemble.attacked), under_attack, marker="o", joined=False
    )
    return (
        line(name, curves, ADDED),
        line(f"{name}, by (ε, δ) alone", of_group, ADDED, dotted=True),
        line(name, curves, REPLACED),
        [marks] if under_attack else [],
    )


def _finding(ensemble: Ensemble, added: Line, replaced: Line) -> str:
    """Return the sentence of comparison.md about one ε."""
    sentence = (
        f"ε = {ensemble.epsilon:g} (σ = {ensemble.noise_multiplier:.3f}): accuracy with the trigger "
        f"{100 * ensemble.accuracy(ensemble.votes):.1f} %"
    )
    for line, change in ((added, "added"), (replaced, "replaced")):
        most = max((k for k, y in zip(line.x, line.y, strict=True) if k and y > 50), default=0)
        sentence += f"; more than half of the records stand against {most} clients {change}"
    for k, votes in ensemble.attacked.items():
        sentence += f"; {100 * ensemble.accuracy(votes):.1f} % with {k} attackers"
    return sentence + "."
