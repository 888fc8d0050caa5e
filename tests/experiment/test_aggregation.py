"""Aggregation rules in whole runs: the plug-in is the coordinate-wise median, as a user would write it."""

from __future__ import annotations

import json

import pandas as pd
import pytest
import torch
from rules import EVERY, NOT_PRIVATE, PRIVATE, RUN

from fedpriv.aggregation.run_rule import RunRule
from fedpriv.common.config import compose, fingerprint, identity
from fedpriv.experiment.loop import Loop
from fedpriv.experiment.secrets import run_digest
from fedpriv.privacy.mechanisms import Foreign

# ---- privacy


@pytest.mark.thorough
@pytest.mark.parametrize("name", PRIVATE)
def test_epsilon_is_what_it_is_with_the_mean(name, combined, plugins):
    for aggregation in ("my_median", "mean"):
        said = combined(*PRIVATE[name], folder=aggregation, aggregation=aggregation)
        assert said.status == 0, said.err
    facts = [
        json.loads((plugins / folder / "privacy.json").read_text())
        for folder in ("my_median", "mean")
    ]
    assert facts[0]["epsilon_sound"] == facts[1]["epsilon_sound"]
    ledgers = [pd.read_csv(plugins / folder / "ledger.csv") for folder in ("my_median", "mean")]
    if "five" not in name:  # whose cohorts and clip norms are others
        pd.testing.assert_frame_equal(*ledgers)
    words = " ".join((plugins / "my_median" / "privacy.txt").read_text().split())
    assert "the rule is post-processing" in words
    assert "aggregation (my_median.Median)" in words  # code outside fedpriv
    assert "post-processing" not in (plugins / "mean" / "privacy.txt").read_text()


def test_the_plan_names_the_rule(combined):
    said = combined(*PRIVATE["dp_fl"], "dry_run=true")
    assert said.status == 0, said.err
    (line,) = [line for line in said.out.splitlines() if line.startswith("│ aggregation")]
    assert "Median" in line


LINEAR = """
from fedpriv.aggregation import Aggregation

class Mine(Aggregation):
    linear = True

    def start(self, model):
        return Sum()

class Sum:
    def combine(self, t, clients, uploads, weights):
        return weights @ uploads
"""


@pytest.mark.thorough
@pytest.mark.parametrize("name", EVERY)
def test_a_rule_that_returns_the_weighted_sum_is_the_mean_but_for_rounding(
    name, plug_in, command, tmp_path
):
    quiet = () if name in NOT_PRIVATE else ("noise_schedule=none",)
    given = [o for o in EVERY[name] if not o.startswith("noise_schedule")]
    base = given[0].partition("=")[2]
    overrides = (*RUN, "paired=both", *given[1:], *quiet)
    said = plug_in("aggregation", "Mine", LINEAR, *overrides, base=base)
    assert said.status == 0, said.err
    whole = command(
        *("train", *given, *overrides, "rounds=6", "epsilon=null", "runtime.run_dir=mean")
    )
    assert whole.status == 0, whole.err
    models = [torch.load(tmp_path / name / "model.pt") for name in ("run", "mean")]
    for key, value in models[0].items():
        torch.testing.assert_close(value, models[1][key], rtol=1e-4, atol=1e-5)


# ---- state


MOMENTUM = """
import os, signal
import torch
from fedpriv.aggregation import Aggregation


class Mine(Aggregation):
    def start(self, model):
        return Rule(model.size)


class Rule:
    def __init__(self, size):
        self.kept = torch.zeros(size)

    def combine(self, t, clients, uploads, weights):
        if t == 3 and os.environ.get("STOP_WITH"):
            os.kill(os.getpid(), signal.SIGINT)
        self.kept = 0.5 * self.kept + uploads.median(dim=0).values
        return self.kept
"""
STATE = """
    def state_dict(self):
        return {"kept": self.kept}

    def load_state_dict(self, state):
        self.kept = state["kept"]
"""


@pytest.fixture
def interrupted(plug_in, command, monkeypatch, tmp_path):
    """(code, overrides): a run that is interrupted and resumed, and the whole one."""

    def run(code: str, base: str, *overrides: str) -> None:
        monkeypatch.setenv("STOP_WITH", "SIGINT")
        assert plug_in("aggregation", "Mine", code, *RUN, *overrides, base=base).status == 130
        monkeypatch.delenv("STOP_WITH")
        (module,) = (path.stem for path in tmp_path.glob("plugin_*.py"))
        given = ("train", "--config-dir", "yamls", "runtime.progress=lines", "runtime.plots=false")
        strange = command("audit", "membership", "run")
        assert strange.status == 2
        assert "aggregation._target_" in strange.sentence
        assert f"--allow {module}" in strange.sentence
        said = command(*given, "resume=run", "--allow", module)
        assert said.status == 0, said.err
        chosen = (f"algorithm={base}", "aggregation=mine", "rounds=6", "epsilon=null")
        whole = command(*given, *RUN[:1], *chosen, *overrides, "runtime.run_dir=whole")
        assert whole.status == 0, whole.err

    return run


@pytest.mark.thorough
@pytest.mark.parametrize("base", ["dp_fl", "fedsgd"])
def test_a_rule_s_state_goes_on_bit_for_bit(base, interrupted, tmp_path, assert_same_run):
    interrupted(MOMENTUM + STATE, base)
    saved = torch.load(tmp_path / "run" / "checkpoint.pt", weights_only=True)
    assert bool(saved["training"]["rule"]["kept"].any())
    assert_same_run(tmp_path / "run", tmp_path / "whole")


# ---- beside other parts


def test_rows_of_attackers_reach_the_rule_as_they_sent_them(combined, monkeypatch):
    sent, handed = [], []
    combine, made = RunRule.combine, Foreign.__init__

    def noted(rule, clients, uploads, weights):
        handed.append(uploads.clone())
        return combine(rule, clients, uploads, weights)

    def noted_foreign(self, values):
        sent.append(values.clone())
        made(self, values)

    monkeypatch.setattr(RunRule, "combine", noted)
    monkeypatch.setattr(Foreign, "__init__", noted_foreign)
    said = combined(*PRIVATE["dp_fl"], "attack=pixel_pattern", "attack.trigger.size=2", "attack.boost=9",
                    "attack.attackers=1")  # fmt: skip
    assert said.status == 0, said.err
    assert len(sent) == 3
    for all_sent, rows in zip(sent, handed[-3:], strict=True):
        equal = (all_sent == rows).all(dim=1)
        norms = rows.norm(dim=1)
        assert bool(equal[norms.argmax()])


def test_a_published_run_with_an_own_rule_needs_a_stamp(combined):
    said = combined(*PRIVATE["dp_fl"], "publish=true")
    assert said.status == 2
    assert "aggregation is my_median.Median" in said.sentence
    assert "fedpriv verify" in said.sentence


# ---- the configuration


def test_the_mean_composes_to_null_and_moves_no_stream(train):
    config = compose(["algorithm=dp_fl"])
    assert config.aggregation is None
    values = identity(config)
    without = {key: value for key, value in values.items() if key != "aggregation"}
    assert fingerprint(values) == fingerprint(without)
    seen = []
    start = Loop.__init__

    def noted(loop, parts, context, budget):
        seen.append(context)
        start(loop, parts, context, budget)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Loop, "__init__", noted)
        train("algorithm=dp_fl", "rounds=1")
    (context,) = seen
    digest = run_digest(config, 1, context)
    older = config.copy()
    older.__dict__["_content"].pop("aggregation")
    assert "aggregation" not in older
    assert run_digest(older, 1, context) == digest


def test_it_is_listed_and_a_key_of_the_mean_is_named(command, plugins):
    listed = command("list", "aggregation", "--config-dir", "yamls").out
    assert "mean" in listed
    assert "my_median" in listed
    said = command("train", "aggregation.trim=1")
    assert said.status == 2
    assert "unknown key aggregation.trim: this aggregation has no keys" in said.sentence
    said = command("train", "aggregation=my_medain", "--config-dir", "yamls")
    assert said.status == 2
    assert "did you mean my_median?" in said.sentence
