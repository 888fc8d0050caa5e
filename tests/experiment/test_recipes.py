"""Recipes: what their names say is what they do."""

from __future__ import annotations

import re

import pytest

import fedpriv
from fedpriv.cli import fedpriv as fedpriv_command
from fedpriv.cli.completion import candidates
from fedpriv.common.groups import options
from fedpriv.experiment.build import build_parts
from fedpriv.experiment.plan import make_plan

NAMES = [name for name, _ in options("recipe")]
SMALL = ("dataset=digits", "rounds=12", "evaluation_interval=6")


def test_there_is_one_for_each_data_set_trust_and_epsilon():
    expected = {
        f"{data}_{trust}_eps{epsilon}"
        for data in ("mnist", "fashion_mnist", "cifar10")
        for trust in ("distributed", "local")
        for epsilon in (1, 2, 3, 8)
    }
    assert set(NAMES) == expected | {"mnist_writers_central_eps2"}


@pytest.mark.few(3)
@pytest.mark.parametrize("name", NAMES)
def test_its_name_says_data_trust_and_epsilon(name):
    data, trust, epsilon = re.fullmatch(r"(\w+)_([a-z]+)_eps(\d+)", name).groups()
    config = fedpriv.compose([f"+recipe={name}"])
    chosen = data.removesuffix("_writers")
    assert config.dataset == fedpriv.compose([f"dataset={chosen}"]).dataset
    assert config.epsilon == int(epsilon)
    assert config.budget_view == "sound"
    assert config.algorithm.get("trust", "central") == trust
    assert config.features.statistics != chosen
    assert config.partition._target_.endswith("Natural") is data.endswith("_writers")


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["mnist_local_eps2", "mnist_writers_central_eps2"])
def test_its_rounds_fit_its_epsilon(name):
    parts = build_parts(fedpriv.compose([f"+recipe={name}"]))
    plan = make_plan(parts)
    assert plan.rounds == parts.settings.rounds
    assert 0.99 * parts.settings.epsilon < plan.epsilon <= parts.settings.epsilon


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["mnist_distributed_eps8", "cifar10_distributed_eps8"])
def test_another_data_set_takes_its_place(name, train):
    result = train(f"+recipe={name}", *SMALL)
    summary = result.summary
    assert summary["dataset"] == "digits"
    assert summary["rounds"] == 12
    assert summary["epsilon_sound"] <= 8
    assert summary["test_accuracy"] > 0.5


def test_another_model_takes_its_place():
    config = fedpriv.compose(["+recipe=cifar10_distributed_eps2", "model=logistic"])
    assert config.model._target_.endswith("Logistic")


@pytest.mark.parametrize("features", ["none", "hog"])
def test_other_features_receive_no_key_of_the_recipes(features):
    config = fedpriv.compose(["+recipe=cifar10_distributed_eps2", f"features={features}"])
    alone = fedpriv.compose(["dataset=cifar10", f"features={features}"])
    assert config.features == alone.features
    build_parts(config)


OWN = """# @package _global_
# Two numbers of my own
defaults:
  - mnist_local_eps2
  - override /dataset: digits
  - _self_
epsilon: 5
"""


@pytest.fixture
def yamls(tmp_path):
    """A folder for --config-dir with a recipe that builds on one of fedpriv, and a protocol."""
    for name, text in {
        "recipe/mine": OWN,
        "protocol/fedsgd_cifar10": "learning_rate: 0.125\n",
    }.items():
        path = tmp_path / "yamls" / f"{name}.yaml"
        path.parent.mkdir(parents=True)
        path.write_text(text)
    return tmp_path / "yamls"


def test_a_recipe_of_ones_own_may_build_on_a_row_of_the_table(yamls):
    config = fedpriv.compose(["+recipe=mine"], yamls)
    assert config.epsilon == 5
    assert config.dataset._target_.endswith("Digits")
    assert config.algorithm.learning_rate == 3.2


def test_a_protocol_of_ones_own_adds_to_the_table(yamls):
    pair = ["algorithm=fedsgd", "dataset=cifar10"]
    assert fedpriv.compose(pair, yamls).algorithm.learning_rate == 0.125
    assert fedpriv.compose(pair).algorithm.learning_rate != 0.125
    assert (
        fedpriv.compose(["algorithm=fedsgd", "dataset=mnist"], yamls).algorithm.learning_rate == 0.5
    )


def test_rows_and_yamls_of_ones_own_are_listed_and_completed(yamls, command):
    place = ("--config-dir", str(yamls))
    said = command("list", "recipe", *place).out
    assert "Two numbers of my own" in said
    assert "mnist_writers_central_eps2" in said
    line = f"fedpriv train --config-dir {yamls} +recipe=m"
    assert {"+recipe=mine", "+recipe=mnist_local_eps1"} <= set(candidates(line, fedpriv_command))


def test_the_nearest_recipe_is_named(command):
    said = command("train", "+recipe=mnist_locl_eps2")
    assert said.status == 2
    assert "unknown recipe option mnist_locl_eps2; did you mean mnist_local_eps2?" in said.sentence
