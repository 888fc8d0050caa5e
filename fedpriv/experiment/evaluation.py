"""Evaluation of the global model on test records."""

from __future__ import annotations

from dataclasses import dataclass

from fedpriv.algorithms.run_context import RunContext


@dataclass(frozen=True)
class Evaluation:
    """Loss and accuracy on the test records, which are not private.

    Attributes:
        loss: Mean loss.
        accuracy: Share of correct predictions, 0 … 1.
        backdoor_accuracy: Attack success rate, 0 … 1: the share of the triggered test records for which the
            model predicts what the attackers want. None where nobody teaches a backdoor.
    """

    loss: float
    accuracy: float
    backdoor_accuracy: float | None = None


def evaluate(context: RunContext) -> Evaluation:
    """Return loss and accuracy of the model with the weights that it has now.

    For the averaged weights call it within ``Loop.evaluated_model``.
    """
    data, model = context.data, context.model
    loss, accuracy = model.evaluate(data.test.inputs, data.test.targets)
    triggered = None if context.attack is None else context.attack.test
    if triggered is None:
        return Evaluation(loss, accuracy)
    return Evaluation(loss, accuracy, model.evaluate(triggered.inputs, triggered.targets)[1])


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
    """

    test_accuracy: float | None = None
    test_loss: float | None = None
    best_test_accuracy: float | None = None
    backdoor_accuracy: float | None = None
    highest_backdoor_accuracy: float | None = None
    attacked_rounds: int = 0

    def include(self, latest: Evaluation) -> None:
        """Take in the latest evaluation."""
        self.test_loss, self.test_accuracy = latest.loss, latest.accuracy
        self.best_test_accuracy = max(latest.accuracy, self.best_test_accuracy or 0.0)
        if latest.backdoor_accuracy is not None:
            self.backdoor_accuracy = latest.backdoor_accuracy
            self.highest_backdoor_accuracy = max(
                latest.backdoor_accuracy, self.highest_backdoor_accuracy or 0.0
            )
