"""Initial weights of models of the user's own: a function of the run's seed, however they are drawn."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from torch import nn

from fedpriv.common.base_classes import completed
from fedpriv.data.base import Dataset
from fedpriv.models.base import ModelFactory
from fedpriv.models.fit import build_for


class Numbers:
    name, input_shape, classes = "numbers", (4,), 3


class Text:
    name, input_shape, classes = "text", (5,), 2
    vocabulary_size, task = 7, "classification"


class FromTorch:
    def build(self, input_shape, classes):
        return nn.Linear(input_shape[0], classes)


class OfText:
    task = "classification"

    def build(self, input_shape, classes, vocabulary):
        return nn.Sequential(nn.Embedding(vocabulary, 2), nn.Linear(2, classes))


class FromNumpyAndPython:
    def build(self, input_shape, classes):
        module = nn.Linear(input_shape[0], classes, bias=False)
        drawn = np.random.normal(size=(classes, input_shape[0])) + random.random()
        module.weight.data = torch.from_numpy(drawn).float()
        return module


def build(model, dataset=Numbers, seed: int = 0) -> nn.Module:
    return build_for(completed(model, ModelFactory), completed(dataset(), Dataset), seed)


def weights(model, dataset=Numbers, seed: int = 0) -> torch.Tensor:
    return torch.cat([p.flatten() for p in build(model, dataset, seed).parameters()]).detach()


def disturb() -> None:
    torch.manual_seed(random.SystemRandom().getrandbits(32))
    np.random.seed(random.SystemRandom().getrandbits(32))
    random.seed()


@pytest.mark.parametrize(
    ("model", "dataset"),
    [(FromTorch(), Numbers), (OfText(), Text), (FromNumpyAndPython(), Numbers)],
)
def test_they_follow_from_the_seed_alone(model, dataset):
    first = weights(model, dataset)
    disturb()
    assert torch.equal(weights(model, dataset), first)
    assert not torch.equal(weights(model, dataset, 1), first)


def test_the_global_generators_are_left_as_they_were():
    def drawn() -> list[float]:
        return [float(torch.rand(1)), float(np.random.rand()), random.random()]

    def seed() -> None:
        torch.manual_seed(5)
        np.random.seed(5)
        random.seed(5)

    seed()
    expected = drawn()
    seed()
    weights(FromNumpyAndPython())
    assert drawn() == expected
