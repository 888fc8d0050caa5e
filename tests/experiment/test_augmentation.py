"""Runs with copies of images: what they cost and say, what they refuse, and that they go on as they were."""

from __future__ import annotations

import copy
import json

import pandas as pd
import pytest
import torch
from omegaconf import open_dict

import fedpriv
from fedpriv.common.config import fingerprint, identity
from fedpriv.common.errors import ConfigError
from fedpriv.experiment import secrets
from fedpriv.experiment.assemble import make_context
from fedpriv.experiment.build import build_parts
from fedpriv.experiment.plan import make_plan

COPIES = ("algorithm.augmentation_multiplicity=3", "algorithm.random_crop=1")
FEW = ("partition=iid", "partition.clients=4", "epsilon=null", "rounds=3")
ALGORITHMS = ("dp_fl", "adap_dpfl", "dp_fl_server")
KEYS = ("augmentation_multiplicity", "random_flip", "random_crop", "crop_fill")


@pytest.mark.few(1)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_copies_cost_nothing_and_the_statement_says_what_is_clipped(ran, algorithm):
    schedule = ("noise_schedule=constant", "noise_schedule.noise_multiplier=2")
    overrides = (f"algorithm={algorithm}", *FEW, *schedule)
    plain, copied = ran(*overrides).folder, ran(*overrides, *COPIES).folder
    events = [pd.read_csv(folder / "ledger.csv")["event_sound"] for folder in (plain, copied)]
    assert events[0].tolist() == events[1].tolist()
    found = [json.loads((folder / "privacy.json").read_text()) for folder in (plain, copied)]
    assert found[0]["epsilon_sound"] == found[1]["epsilon_sound"]
    words = [" ".join((folder / "privacy.txt").read_text().split()) for folder in (plain, copied)]
    said = "the mean over 3 randomly changed copies of its image"
    assert [said in text for text in words] == [False, True]
    weights = [torch.load(folder / "model.pt", weights_only=True) for folder in (plain, copied)]
    assert not all(torch.equal(a, weights[1][k]) for k, a in weights[0].items())


def test_the_plan_says_that_the_mean_is_clipped():
    parts = build_parts(fedpriv.compose(["algorithm=dp_fl", *COPIES]))
    assert "the mean of their gradients is clipped" in dict(make_plan(parts).lines)["each round"]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_runs_made_before_there_were_copies_are_what_they_were(algorithm):
    config = fedpriv.compose([f"algorithm={algorithm}"])
    parts = build_parts(config)
    context = make_context(parts, torch.device("cpu"))
    older = copy.deepcopy(config)
    with open_dict(older):
        assert [older.algorithm.pop(key) for key in KEYS] == [None] * 4
    found = [secrets.run_digest(c, parts.settings.rounds, context) for c in (config, older)]
    assert found[0] == found[1]
    assert fingerprint(identity(config)) == fingerprint(identity(older))
    copied = fedpriv.compose([f"algorithm={algorithm}", *COPIES])
    assert secrets.run_digest(copied, parts.settings.rounds, context) != found[0]


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (("algorithm.random_crop=null",), "must be null without random_flip=true or random_crop, got 3"),
        (("algorithm.augmentation_multiplicity=null",), "algorithm.random_crop must be null unless"),
        (("audit=epsilon",), "KIND must be mislabelled with algorithm.augmentation_multiplicity"),
    ],
)  # fmt: skip
def test_what_does_not_go_with_copies_is_one_sentence_before_the_run(overrides, sentence):
    with pytest.raises(ConfigError) as refused:
        build_parts(fedpriv.compose(["algorithm=dp_fl", *COPIES, *overrides]))
    assert sentence in str(refused.value)


def test_canaries_with_wrong_labels_are_trained_on_copies(ran, command):
    run = ran("algorithm=dp_fl", *FEW, *COPIES, "audit=epsilon:40:mislabelled").folder
    assert (run / "audit" / "canaries.json").exists()
    said = command("audit", "epsilon", str(run), "--canary", "direction")
    assert said.status == 2
    assert "--canary must be mislabelled with algorithm.augmentation_multiplicity" in said.sentence
