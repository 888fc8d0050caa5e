"""Evaluation of the global model on test records: the mean, each class, and who of the clients benefits."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch

from fedpriv.algorithms.run_context import RunContext
from fedpriv.data.federated import FederatedData
from fedpriv.store.columns import BY_LABELS, OWN


@dataclass(frozen=True)
class Evaluation:
    """Loss and accuracy on the test records, which are not private.

    Attributes:
        loss: Mean loss.
        accuracy: Share of correct predictions, 0 … 1.
        backdoor_accuracy: Attack success rate, 0 … 1: the share of the triggered test records for which the
            model predicts what the attackers want. None where nobody teaches a backdoor.
        class_accuracy: Accuracy on the test records of each class, None for a class without any; None for a
            language model.
        client_accuracy: Accuracy of each client as :func:`accuracy_of_clients` has it [K], or None.
        worst_decile: Mean accuracy of the tenth of the honest clients that has the lowest, or None.
    """

    loss: float
    accuracy: float
    backdoor_accuracy: float | None = None
    class_accuracy: list[float | None] | None = None
    client_accuracy: np.ndarray | None = None
    worst_decile: float | None = None


def accuracy_of_clients(data: FederatedData) -> str | None:
    """Return the name of the accuracy of each client.

    ``own_accuracy`` is that on the client's own test records. ``accuracy_by_labels`` is the accuracy on all
    test records of each class, weighted by how many training records of the client have it. None where
    neither is known.
    """
    if data.test_clients is not None:
        return OWN
    return BY_LABELS if data.train.targets.ndim == 1 else None


def evaluate(context: RunContext, diagnostics: bool) -> Evaluation:
    """Return loss and accuracy of the model with the weights that it has now.

    For the averaged weights call it within ``Loop.evaluated_model``.

    Args:
        context: Data and model.
        diagnostics: True to measure each client too, which reads private labels or the client's test records.
    """
    data, model = context.data, context.model
    answers: list[torch.Tensor] = []
    loss, accuracy = model.evaluate(data.test.inputs, data.test.targets, answers=answers)
    backdoor = per_class = worst = None
    clients: np.ndarray | None = None
    if context.attack is not None and (triggered := context.attack.test) is not None:
        backdoor = model.evaluate(triggered.inputs, triggered.targets)[1]
    counts = torch.cat(answers, dim=1).cpu().numpy() if answers else np.zeros((2, 0))
    if data.test.targets.ndim == 1:
        per_class = _shares(data.test.targets.cpu().numpy(), counts, data.classes)
    measure = accuracy_of_clients(data) if diagnostics else None
    if data.test_clients is not None and measure == OWN:
        held = data.test_clients >= 0
        clients = _shares(data.test_clients[held], counts[:, held], data.client_count)
    elif per_class is not None and data.labels_per_client is not None and measure == BY_LABELS:
        tested = np.isfinite(per_class)
        labels = data.labels_per_client[:, tested]
        with np.errstate(invalid="ignore"):  # a client may have no record of these classes
            clients = labels @ per_class[tested] / labels.sum(1)
    if clients is not None:
        honest = clients
        if context.attack is not None:
            honest = np.delete(clients, context.attack.attackers)
        honest = np.sort(honest[np.isfinite(honest)])
        worst = float(honest[: math.ceil(len(honest) / 10)].mean()) if len(honest) else None
    classes = None
    if per_class is not None:
        classes = [share if math.isfinite(share) else None for share in per_class.tolist()]
    return Evaluation(loss, accuracy, backdoor, classes, clients, worst)


def _shares(groups: np.ndarray, counts: np.ndarray, size: int) -> np.ndarray:
    """Return right answers over answers of the records in each group [size], nan where there are none."""
    right, answers = (np.bincount(groups, weights, size) for weights in counts)
    with np.errstate(invalid="ignore"):
        return right / answers


TIMES_GUESSING = 10.0  # a loss that is so many times that of guessing is told


def runaway(row: Mapping[str, object], classes: int) -> str:
    """Return words on a loss far above that of guessing in a row of the metrics; else an empty text."""
    guessing = math.log(max(2, classes))
    for name in ("test_loss", "validation_loss", "train_loss"):
        loss = row.get(name)
        if isinstance(loss, float):
            if not TIMES_GUESSING * guessing < loss < math.inf:
                return ""
            words = f"{name.replace('_', ' ')} {loss:.3g} is {loss / guessing:.3g} times that of guessing"
            return f"{words} ({guessing:.2g})"
    return ""


@dataclass
class Results:
    """The results of all evaluations so far, as the summary has them.

    Attributes:
        test_accuracy: Accuracy at the last evaluation; None before the first, as all others.
        test_loss: Loss at the last evaluation.
        best_test_accuracy: Highest accuracy of any evaluation. It is chosen on test records, so it flatters.
        backdoor_accuracy: Attack success rate at the last evaluation.
        highest_backdoor_accuracy: Highest attack success rate of any evaluation.
        attacked_rounds: Number of rounds in which attackers took part, evaluated or not.
        class_accuracy: Accuracy on each class at the last evaluation.
        worst_decile: Mean accuracy of the worst tenth of the clients at the last evaluation.
        ran_away: Whether a loss of any round was far above that of guessing.
    """

    test_accuracy: float | None = None
    test_loss: float | None = None
    best_test_accuracy: float | None = None
    backdoor_accuracy: float | None = None
    highest_backdoor_accuracy: float | None = None
    attacked_rounds: int = 0
    class_accuracy: list[float | None] | None = None
    worst_decile: float | None = None
    ran_away: bool = False

    def include(self, latest: Evaluation) -> None:
        """Take in the latest evaluation."""
        self.test_loss, self.test_accuracy = latest.loss, latest.accuracy
        self.class_accuracy, self.worst_decile = latest.class_accuracy, latest.worst_decile
        self.best_test_accuracy = max(latest.accuracy, self.best_test_accuracy or 0.0)
        if latest.backdoor_accuracy is not None:
            self.backdoor_accuracy = latest.backdoor_accuracy
            self.highest_backdoor_accuracy = max(
                latest.backdoor_accuracy, self.highest_backdoor_accuracy or 0.0
            )
