"""What an aggregation rule does not go with, and what it returns that cannot be used."""

from __future__ import annotations

import pytest
import torch
from rules import PRIVATE, RUN


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("overrides", "wanted"),
    [
        (
            ("algorithm=cdp_fedavg",),
            "aggregation must be mean or bucketed_median with algorithm=cdp_fedavg (central trust)",
        ),
        (
            ("algorithm=naseri_cdp",),
            "aggregation must be mean or bucketed_median with algorithm=naseri_cdp",
        ),
        (
            ("algorithm=dp_ftrl",),
            "aggregation must be mean or bucketed_median with algorithm=dp_ftrl (central trust)",
        ),
        (
            ("algorithm=ddp_fedavg",),
            "aggregation must be mean or bucketed_median with algorithm=ddp_fedavg (distributed trust)",
        ),
        (("algorithm=ddp_fedavg", "algorithm.trust=central"), "(central trust)"),
        (("algorithm=dp_fl_server",), "algorithm=dp_fl_server (distributed trust)"),
        (
            ("algorithm=ldp_fedsgd", "algorithm.optimizer=dp_adam_bc"),
            "algorithm.optimizer must be another with aggregation=Median, got dp_adam_bc",
        ),
        (
            ("algorithm=fedavg", "attack=pixel_pattern", "attack.boost=replacement"),
            "attack.boost must be a number with aggregation=Median, got replacement",
        ),
    ],
)
@pytest.mark.parametrize("dry", [True, False])
def test_what_a_rule_does_not_go_with_is_refused_with_the_reason(
    overrides, wanted, dry, command, plugins
):
    said = command(
        "train",
        "--config-dir",
        "yamls",
        "aggregation=my_median",
        *RUN,
        *overrides,
        f"dry_run={dry}".lower(),
    )
    assert said.status == 2
    assert wanted in said.err
    if "trust)" in wanted:
        assert "no bounded sensitivity" in said.err


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
SOMETIMES = "return self.average(cohort, uploads) if len(cohort) > 100 else None"
START = """
from fedpriv.algorithms import LdpFedSgd
from fedpriv.algorithms.upload_computation import UploadComputation
from fedpriv.algorithms.server_steps import AddChange
from fedpriv.algorithms.trainer import Trainer


class Mine(LdpFedSgd):
    def start(self, problem):
        work = UploadComputation(problem, self.uploads(problem), self.denominator, noise_on_the_mean=False,
                          upload_weight=None)
        return Trainer(problem, work, self.server.make(problem.model), AddChange(problem.model))
"""


@pytest.mark.parametrize(
    ("code", "base", "status", "wanted"),
    [
        (SERVER.format(body=ASKS), "dp_fl", 0, ""),
        (SERVER.format(body="super().apply(cohort, uploads)"), "dp_fl", 0, ""),
        (SERVER.format(body=BYPASSES), "dp_fl", 2, "Step.apply does not call self.average"),
        (SERVER.format(body=SOMETIMES), "dp_fl", 1, "round 1: Step.apply did not call average"),
        (START, "ldp_fedsgd", 2, "Mine.start adds uploads up before a rule sees each"),
    ],
)
def test_an_algorithm_that_passes_a_rule_by_is_refused(
    code, base, status, wanted, plug_in, command, plugins, tmp_path
):
    noise = PRIVATE[base][1:] if base == "ldp_fedsgd" else ()
    said = plug_in("algorithm", "Mine", code, "aggregation=my_median", *RUN, *noise, base=base)
    assert said.status == status, said.err
    if wanted:
        assert wanted in said.sentence
    else:
        assert (tmp_path / "run" / "summary.json").exists()


RULE = """
import torch, numpy as np
from fedpriv.aggregation import Aggregation

generator = torch.Generator().manual_seed(0)


class Mine(Aggregation):
    {settings}

    def start(self, model):
        return Rule()


class Rule:
    count = 0

    def combine(self, t, clients, uploads, weights):
        mean = weights @ uploads
        {body}
"""


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("body", "settings", "wanted"),
    [
        (
            "return uploads",
            "pass",
            "Rule.combine must return a tensor of shape (650,), got shape (8, 650)",
        ),
        ("return float(mean.sum())", "pass", "must return a tensor of shape (650,), got float"),
        ("return mean / 0", "pass", "returned numbers that are not finite"),
        (
            "return mean + torch.randn(1)",
            "pass",
            "drew from the global random numbers of torch, NumPy or",
        ),
        ("return mean + np.random.rand()", "pass", "drew from the global random numbers"),
        (
            "import random; return mean * random.random()",
            "pass",
            "drew from the global random numbers",
        ),
        (
            "torch.manual_seed(t); return mean + torch.randn(1)",
            "pass",
            "drew from the global random",
        ),
        ("return mean + torch.randn(1, generator=generator)", "pass", "returned different results"),
        ("return mean + np.random.default_rng().random()", "pass", "returned different results"),
        ("return uploads.mul_(2).mean(0)", "pass", "changed the uploads that it was handed"),
        ("return uploads.median(0).values", "linear = True", "linear must be False"),
    ],
)
def test_what_a_rule_returns_is_checked_before_the_first_round(
    body, settings, wanted, plug_in, tmp_path
):
    code = RULE.format(body=body, settings=settings)
    said = plug_in("aggregation", "Mine", code, *RUN)
    assert said.status == 2
    assert wanted in said.sentence
    assert not (tmp_path / "run").exists()


def test_what_a_rule_returns_is_checked_in_every_round(plug_in, tmp_path):
    code = RULE.format(body="return mean if t < 3 else mean[1:]", settings="pass")
    said = plug_in("aggregation", "Mine", code, *RUN, "runtime.checkpoint_interval=1")
    assert said.status == 1
    assert "round 4: Rule.combine must return a tensor of shape" in said.sentence
    assert torch.load(tmp_path / "run" / "checkpoint.pt", weights_only=True)["round"] == 3


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("code", "wanted"),
    [
        ("class Mine(Aggregation):\n    pass\n", "start"),
        ("class Mine(Aggregation):\n    def start(self, model):\n        return model\n", "combine(t, "),
        (
            "class Mine(Aggregation):\n    def start(self, model):\n        return self\n\n"
            "    def combine(self, t, clients, uploads, weights):\n        return uploads.mean(0)\n",
            "start must make a new rule",
        ),
        ("class Mine:\n    pass\n", "needs a class that extends fedpriv.aggregation.base.Aggregation"),
        (
            "class Mine(Aggregation):\n    def start(self, model):\n        return Rule()\n\n\n"
            "class Rule:\n    def combine(self, t, clients, uploads, weights):\n        return uploads[0]\n\n"
            "    def trimmed(self, uploads):\n        return uploads\n",
            "rule: nothing calls Rule.trimmed",
        ),
        (
            "class Mine(Aggregation):\n    def start(self, model):\n        return Rule()\n\n\n"
            "class Rule:\n    def combine(self, uploads):\n        return uploads[0]\n",
            "def combine(self, t, clients, uploads, weights)",
        ),
    ],
)  # fmt: skip
def test_what_is_no_rule_is_one_sentence(code, wanted, plug_in):
    said = plug_in(
        "aggregation", "Mine", "from fedpriv.aggregation import Aggregation\n\n\n" + code, *RUN
    )
    assert said.status == 2
    assert wanted in said.sentence


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


@pytest.mark.parametrize(
    ("old", "new", "wanted"),
    [
        ("def aggregate", "def combine", "aggregate"),
        (
            "def aggregate",
            "def trimmed(self):\n        pass\n\n    def aggregate",
            "nothing calls Mine.trimmed",
        ),
    ],
)
def test_a_wrong_method_of_a_robust_rule_is_refused_with_those_there_are(old, new, wanted, plug_in):
    code = MIDDLE_HALF.replace("(4, 1)", "(2, 0)").replace(old, new)
    said = plug_in("aggregation", "Mine", code, *RUN)
    assert said.status == 2
    assert wanted in said.sentence
