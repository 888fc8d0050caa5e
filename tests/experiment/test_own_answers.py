"""Models of the user's own whose loss, accuracy or precision is another than fedpriv's."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn import functional

import fedpriv
from fedpriv.common.errors import ConfigError, DataError
from fedpriv.data.federated import _refuse_out_of_range
from fedpriv.data.records import Records
from fedpriv.experiment.assemble import make_context
from fedpriv.experiment.build import build_parts

TEXT = ("dataset=synthetic_text", "dataset.users=20", "partition=natural")
DIGITS = ("dataset=digits", "partition=iid", "partition.clients=3")


class Lm(nn.Module):
    """A language model without a loss of its own."""

    def __init__(self, vocabulary_size, width=4):
        super().__init__()
        self.e, self.o = nn.Embedding(vocabulary_size, width), nn.Linear(width, vocabulary_size)

    def forward(self, x):
        return self.o(torch.tanh(self.e(x)))


class OneNumber(Lm):
    def record_correct(self, outputs, targets):
        return (outputs.argmax(2) == targets).float().mean(1)


class MeanLoss(Lm):
    def record_loss(self, outputs, targets):
        return functional.cross_entropy(outputs.flatten(0, 1), targets.flatten())


class Broken(Lm):
    def record_loss(self, outputs, targets):
        return functional.cross_entropy(outputs, targets, reduction="none")


class Half(nn.Module):
    def __init__(self, inputs, classes):
        super().__init__()
        self.head = nn.Linear(inputs, classes).to(torch.bfloat16)

    def forward(self, x):
        return self.head(x.flatten(1).to(torch.bfloat16)).float()


class Autocast(nn.Module):
    def __init__(self, inputs, classes):
        super().__init__()
        self.head = nn.Sequential(
            nn.Flatten(), nn.Linear(inputs, 8), nn.Tanh(), nn.Linear(8, classes)
        )

    def forward(self, x):
        with torch.autocast(x.device.type, dtype=torch.bfloat16):
            return self.head(x).float()


def context_of(model, *overrides):
    target = f"model._target_={__name__}.{model}"
    parts = build_parts(fedpriv.compose(["algorithm=dp_fl", target, *overrides]))
    return make_context(parts, torch.device("cpu"))


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("OneNumber", r"record_correct of .*OneNumber must return .*test_own_answers.py, line \d+"),
        ("MeanLoss", r"record_loss of .*MeanLoss must return .*test_own_answers.py, line \d+"),
        ("Broken", r"Broken fails on three random records: .*test_own_answers.py, line \d+"),
    ],
)
def test_a_loss_or_accuracy_of_another_form_is_refused_with_its_place(model, words):
    with pytest.raises(ConfigError, match=words):
        context_of(model, *TEXT)


def test_a_language_model_of_ones_own_reads_tokens_and_needs_no_loss():
    context = context_of("Lm", *TEXT)
    inputs, targets = context.random_records(3)
    assert inputs.dtype == torch.int64
    assert torch.equal(targets[:, :-1], inputs[:, 1:])
    context.prove_engine()


def test_other_precision_is_refused_in_a_sentence():
    with pytest.raises(ConfigError, match=r"float32, and head.weight is torch.bfloat16"):
        context_of("Half", *DIGITS)
    with pytest.raises(ConfigError, match=r"leave out torch.autocast"):
        context_of("Autocast", *DIGITS).prove_engine()


@pytest.mark.parametrize("targets", [torch.rand(5), torch.ones(5, 3).long(), torch.ones(5).bool()])
def test_targets_that_are_no_classes_are_refused(targets):
    measured = SimpleNamespace(name="measured", classes=3, vocabulary_size=None)
    with pytest.raises(DataError, match="fedpriv trains classifiers and language models"):
        _refuse_out_of_range(measured, Records(torch.rand(5, 4), targets))
