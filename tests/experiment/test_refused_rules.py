"""What an aggregation rule does not go with, and what it returns that cannot be used."""

from __future__ import annotations

import pytest
import torch
from rules import RUN

SERVER = """
from fedpriv.algorithms import DpFl
from fedpriv.algorithms.server_steps import WeightedAverage
from fedpriv.privacy.mechanisms.visible import seen


class Step(WeightedAverage):
    def apply(self, cohort, uploads):
        {body}


class Mine(DpFl):
    def server_step(self, problem):
        return Step(problem.model, problem.data.records_per_client)
"""
BYPASSES = "self.model.flat.add_(seen(uploads, 'mine').mean(0))"
ASKS = "self.model.flat.add_(self.average(cohort, uploads))"


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("body", "status", "wanted"),
    [
        (ASKS, 0, ""),
        ("super().apply(cohort, uploads)", 0, ""),
        (BYPASSES, 1, "round 1: Step.apply did not call average"),
    ],
)
def test_a_server_step_that_never_calls_the_rule_is_refused(
    body, status, wanted, plug_in, plugins, tmp_path
):
    code = SERVER.format(body=body)
    said = plug_in("algorithm", "Mine", code, "aggregation=my_median", *RUN)
    assert said.status == status, said.err
    assert wanted in said.err
    assert (tmp_path / "run" / "summary.json").exists() == (status == 0)


RULE = """
from fedpriv.aggregation import Aggregation


class Mine(Aggregation):
    def start(self, model):
        return Rule()


class Rule:
    def combine(self, t, clients, uploads, weights):
        mean = weights @ uploads
        {body}
"""


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ("return uploads", "round 1: Rule.combine must return a tensor of shape (650,)"),
        ("return float(mean.sum())", "round 1: Rule.combine must return a tensor of shape (650,)"),
        ("return mean / 0", "round 1: Rule.combine returned numbers that are not finite"),
        ("return mean if t < 3 else mean[1:]", "round 4: Rule.combine must return a tensor of"),
    ],
)
def test_what_a_rule_returns_is_checked_in_every_round(body, wanted, plug_in, tmp_path):
    code = RULE.format(body=body)
    said = plug_in("aggregation", "Mine", code, *RUN, "runtime.checkpoint_interval=1")
    assert said.status == 1
    assert wanted in said.sentence
    saved = torch.load(tmp_path / "run" / "checkpoint.pt", weights_only=True)
    assert saved["round"] == int(wanted[6]) - 1


@pytest.mark.parametrize(
    "code", ["class Mine(Aggregation):\n    pass\n", "class Mine:\n    pass\n"]
)
def test_what_is_no_rule_is_one_sentence(code, plug_in):
    code = "from fedpriv.aggregation import Aggregation\n\n\n" + code
    said = plug_in("aggregation", "Mine", code, *RUN)
    assert said.status == 2
    assert "aggregation" in said.sentence


MIDDLE_HALF = """
from fedpriv.aggregation import RobustAggregation


class Mine(RobustAggregation):
    needs = (4, 1)

    def aggregate(self, vectors, of_round):
        cut = len(vectors) // 4

        def middle(columns):
            return columns.sort(dim=0).values[cut : len(columns) - cut].mean(dim=0)

        return vectors.by_coordinate(middle)
"""


def test_a_robust_rule_of_ones_own_runs_and_its_condition_holds(plug_in, tmp_path):
    said = plug_in("aggregation", "Mine", MIDDLE_HALF, *RUN, "rounds=1")
    assert said.status == 2, said.out  # f = 0.2 of 8 = 2
    assert "n > 4f + 1" in said.sentence
    said = plug_in("aggregation", "Mine", MIDDLE_HALF.replace("(4, 1)", "(3, 1)"), *RUN, "rounds=1")
    assert said.status == 0, said.err
    assert (tmp_path / "run" / "summary.json").exists()


def test_a_robust_rule_without_aggregate_is_refused(plug_in):
    said = plug_in("aggregation", "Mine", MIDDLE_HALF.replace("def aggregate", "def combine"), *RUN)
    assert said.status == 2
    assert "aggregate" in said.sentence
