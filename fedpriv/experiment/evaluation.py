"""The global model on test records."""

from __future__ import annotations

from dataclasses import dataclass

from fedpriv.algorithms.run_context import RunContext


@dataclass(frozen=True)
class Evaluation:
    """``backdoor_accuracy``: the attack success rate; None where nobody attacks."""

    loss: float
    accuracy: float
    backdoor_accuracy: float | None = None


def evaluate(context: RunContext) -> Evaluation:
    """Loss and accuracy of the weights as they are."""
    data, model = context.data, context.model
    loss, accuracy = model.evaluate(data.test.inputs, data.test.targets)
    if context.attack is None:
        return Evaluation(loss, accuracy)
    triggered = context.attack.test
    return Evaluation(loss, accuracy, model.evaluate(triggered.inputs, triggered.targets)[1])


@dataclass
class Results:
    """What the summary says of all evaluations so far."""

    test_accuracy: float | None = None
    test_loss: float | None = None
    best_test_accuracy: float | None = None
    backdoor_accuracy: float | None = None
    highest_backdoor_accuracy: float | None = None
    attacked_rounds: int = 0

    def include(self, found: Evaluation) -> None:
        self.test_loss, self.test_accuracy = found.loss, found.accuracy
        self.best_test_accuracy = max(found.accuracy, self.best_test_accuracy or 0.0)
        if found.backdoor_accuracy is not None:
            self.backdoor_accuracy = found.backdoor_accuracy
            self.highest_backdoor_accuracy = max(
                found.backdoor_accuracy, self.highest_backdoor_accuracy or 0.0
            )
