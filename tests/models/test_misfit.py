"""What a model cannot read is refused by the plan, before torch is imported and data are read."""

from __future__ import annotations

import itertools

import pytest

from fedpriv.common.errors import ConfigError
from fedpriv.models import Cnn, CnnEmnist, CnnScattering, Logistic, Mlp, ResNet18Gn, Svm

MODELS = {
    "cnn": Cnn(0), "cnn without padding": Cnn(0, padding=0), "cnn_emnist": CnnEmnist(0), "svm": Svm(0),
    "resnet18_gn": ResNet18Gn(0), "mlp": Mlp(0), "logistic": Logistic(0),
    "cnn_scattering": CnnScattering(0),
}  # fmt: skip
SHAPES = [(105,), (1, 1, 1), (1, 3, 28), (1, 5, 5), (1, 7, 7), (3, 8, 8), (1, 11, 30), (1, 28, 28)]


@pytest.mark.few(3)
@pytest.mark.parametrize("name", MODELS)
def test_it_is_refused_exactly_where_it_cannot_be_built(name):
    for shape, classes in itertools.product(SHAPES, (2, 10)):
        found = []
        for attempt in (MODELS[name].refuse_misfit, MODELS[name].build):
            try:
                attempt(shape, classes)
                found.append(None)
            except ConfigError as error:
                found.append(str(error))
        assert found[0] == found[1], (shape, classes)


@pytest.mark.parametrize(
    "overrides",
    [("model=svm",), ("model=cnn", "dataset=adult"), ("model=resnet18_gn", "dataset=adult")],
)
def test_a_dry_run_refuses_it(overrides, command):
    said = command("train", *overrides, "dry_run=true")
    assert said.status == 2
    assert said.sentence.startswith("fedpriv: model must be one that fits the data, got ")
