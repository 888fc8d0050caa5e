"""Computed figure of certified backdoors: predictions that k malicious clients cannot change.

The privacy of a client-level mechanism bounds how much k clients can change the majority of an ensemble
(:mod:`fedpriv.tools.audit.certified`). The figure shows the certified accuracy beside the accuracy under
attack.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from fedpriv.common.config import compose
from fedpriv.common.errors import ConfigError
from fedpriv.experiment.assemble import make_context
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
    """Independent trainings of one mechanism, which vote on test records with the trigger.

    Attributes:
        mechanism: σ, the probability q that a client takes part in a round, and the number T of rounds.
        delta: δ of one training.
        votes: Number of clean models that vote for each class [n, classes].
        right: Records whose true label has most of these votes [n] (bool).
        attacked: Number k of attackers → accuracy (%) of the majority of models that they took part in.
    """

    mechanism: tuple[float, float, int]
    delta: float
    votes: np.ndarray
    right: np.ndarray
    attacked: Mapping[int, float]


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
        ConfigError: The algorithm or the trigger is none that certificates are for.
    """
    added: list[Line] = []
    replaced: list[Line] = []
    findings = []
    for index, epsilon in enumerate(epsilons):
        clean = [*overrides, f"epsilon={epsilon}"]
        poisoned = {k: [*clean, *attack, f"attack.attackers={k}"] for k in attacked}
        ensemble = _train(clean, trainings, poisoned, attacked_trainings)
        by_added, by_replaced, finding = _certify(ensemble, epsilon, index, clients, 1 - confidence)
        added += by_added
        replaced += by_replaced
        findings.append(finding)
        console().print(finding)
    caption = (
        f"Majority of {trainings} independent trainings; certificates hold with confidence {confidence:g}, "
        f"all records together. Circles: so many really attack (majority of {attacked_trainings}). "
        f"Publishing the ensemble costs the privacy of {trainings} trainings."
    )
    x_label, y_label = "malicious clients k", "certified accuracy (%)"
    panels = [
        Panel(f"k clients {change}", x_label, y_label, tuple(lines), y_limits=(0, 100))
        for change, lines in (("added", added), ("replaced", replaced))
    ]
    return Drawing([panels], caption, findings)


def _train(
    clean: list[str], trainings: int, poisoned: Mapping[int, list[str]], attacked_trainings: int
) -> Ensemble:
    """Train the clean models, and the poisoned models of each number of attackers.

    Args:
        clean: Overrides of a clean training.
        trainings: Number of clean trainings.
        poisoned: Number of attackers → overrides of their trainings.
        attacked_trainings: Number of trainings of each number of attackers.
    """
    config = compose(clean)
    parts = build_parts(config)
    algorithm, rounds = parts.algorithm, parts.settings.rounds
    if algorithm.unit != "client" or algorithm.trust.sees_each_upload or not algorithm.private:
        raise ConfigError(
            f"algorithm={algorithm.name}: certificates are for client-level algorithms whose server clips"
        )
    if rounds is None or parts.clipper.asks(0):
        raise ConfigError(
            "certificates need a number of rounds, and a clipper that needs no private statistic"
        )
    of_trigger = build_parts(compose(next(iter(poisoned.values()), clean)))
    context = make_context(of_trigger, torch.device("cpu"))
    test, planted = context.data.test, context.attack
    inputs, truth = test.inputs, test.targets.numpy()
    if planted is not None and planted.test is not None:
        inputs = planted.test.inputs
        truth = truth[truth != int(planted.test.targets[0])]
        if len(truth) != len(planted.test):
            raise ConfigError("attack", "this trigger", "one of all test records of other labels")
    votes = votes_of_trainings(config, trainings, inputs)
    attacked = {}
    for attackers, overrides in poisoned.items():
        majority = votes_of_trainings(compose(overrides), attacked_trainings, inputs).argmax(axis=1)
        attacked[attackers] = 100 * float((majority == truth).mean())
    sigma, q = parts.noise_schedule.noise_multiplier(0), parts.costs().sampling.poisson_rate
    right = votes.argmax(axis=1) == truth
    return Ensemble((sigma, q, rounds), parts.settings.delta, votes, right, attacked)


def _certify(
    ensemble: Ensemble, epsilon: float, index: int, clients: Sequence[int], significance: float
) -> tuple[list[Line], list[Line], str]:
    """Return the lines of one ε against k added and against k replaced clients, and the finding.

    The trade-off curve of k clients follows from the mechanism, which is tighter than group privacy of
    (ε, δ). Against added clients both are drawn. Real attacks are drawn beside replaced clients.
    """
    name, (colour, _, dashed) = f"ε = {epsilon:g}", distinct(index)

    def line(label: str, curves: Sequence[TradeOff], units: int, dotted: bool = False) -> Line:
        shares = []
        for curve in curves:
            stands = certified(ensemble.votes, partial(curve.tpr, units=units), significance)
            shares.append(100 * float((stands & ensemble.right).mean()))
        return Line(label, colour, clients, shares, dotted=dotted, dashed=dashed)

    curves = [group_trade_off(*ensemble.mechanism, k) for k in clients]
    by_pair = [group_of(epsilon, ensemble.delta, k) for k in clients]
    added, replaced = line(name, curves, ADDED), line(name, curves, REPLACED)
    finding = f"{name} (σ = {ensemble.mechanism[0]:.3f}): accuracy with the trigger "
    finding += f"{100 * ensemble.right.mean():.1f} %"
    for against, change in ((added, "added"), (replaced, "replaced")):
        most = max((k for k, y in zip(clients, against.y, strict=True) if k and y > 50), default=0)
        finding += f"; more than half of the records stand against {most} clients {change}"
    for attackers, accuracy in ensemble.attacked.items():
        finding += f"; {accuracy:.1f} % with {attackers} attackers"
    k, y = list(ensemble.attacked), list(ensemble.attacked.values())
    attacks = [Line(f"{name}, attacked", colour, k, y, marker="o", joined=False)] if k else []
    dotted = line(f"{name}, by (ε, δ) alone", by_pair, ADDED, dotted=True)
    return [added, dotted], [replaced, *attacks], finding + "."
