"""Models of the user's own in runs: probed, computed record by record, and held to what was released."""

from __future__ import annotations

import json

import pytest
import torch

from fedpriv.common.config import compose, fingerprint, identity

MODEL = """
import torch
from torch import nn
from torch.nn import functional

from fedpriv.models.base import ModelFactory


class Net(nn.Module):
    def __init__(self, size, classes):
        super().__init__()
        self.linear = nn.Linear(size, classes)
        self.register_buffer("seen", torch.zeros(classes))

    def forward(self, x):
        return self.linear(x.flatten(1))


class CountsClasses(Net):
    def record_loss(self, outputs, targets):
        self.seen += torch.bincount(targets, minlength=len(self.seen))
        return functional.cross_entropy(outputs, targets, reduction="none")


class ClassBalanced(Net):
    def record_loss(self, outputs, targets):
        losses = functional.cross_entropy(outputs, targets, reduction="none")
        return losses / torch.bincount(targets)[targets]


class WritesWhenEvaluated(Net):
    def forward(self, x):
        if not self.training:
            self.linear.weight.data.add_(1)
        return super().forward(x)


class SavesWhenEvaluated(Net):
    last = 0.0

    def forward(self, x):
        if not self.training:
            self.last = float(x.abs().sum())
        return super().forward(x)

    def get_extra_state(self):
        return self.last

    def set_extra_state(self, state):
        self.last = state


class Mine(ModelFactory):
    name = "mine"

    def __init__(self, seed, kind):
        super().__init__(seed)
        self.kind = kind

    def build(self, input_shape, classes):
        size = input_shape[0] * input_shape[1] * input_shape[2]
        return self._seeded(lambda: globals()[self.kind](size, classes))
"""
QUICK = (
    "rounds=2", "evaluation_interval=1", "runtime.progress=none", "runtime.plots=false",
    "runtime.run_dir=run",
)  # fmt: skip


@pytest.fixture
def run(command, tmp_path):
    """(kind of model, overrides) → the outcome of a run with a model of the user's own."""
    module = "own_" + "".join(c for c in tmp_path.name if c.isalnum())
    (tmp_path / f"{module}.py").write_text(MODEL)
    (tmp_path / "yamls" / "model").mkdir(parents=True)
    yaml = f"# mine\n_target_: {module}.Mine\nseed: ${{seed}}\nkind: Net\n"
    (tmp_path / "yamls" / "model" / "mine.yaml").write_text(yaml)

    def go(kind, *overrides, verb="train"):
        own = ("--config-dir", "yamls", "model=mine", f"model.kind={kind}")
        return command(verb, *own, *QUICK, *overrides)

    return go


def statement(tmp_path):
    return " ".join((tmp_path / "run" / "privacy.txt").read_text().split())


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", ["CountsClasses", "ClassBalanced"])
@pytest.mark.parametrize("algorithm", ["dp_fl", "ldp_fedsgd"])
def test_a_loss_that_mixes_or_remembers_records_is_refused_before_the_run(
    kind, algorithm, run, tmp_path
):
    said = run(kind, f"algorithm={algorithm}")
    assert said.status == 2
    assert "model cannot be trained with differential privacy" in said.sentence
    assert not (tmp_path / "run").exists()


@pytest.mark.thorough
def test_the_statement_says_probed_and_names_the_lots(run, tmp_path):
    assert run("Net", "algorithm=dp_fl").status == 0
    assert "was probed, not proven, with lots of 2, 9, " in statement(tmp_path)


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", ["CountsClasses", "ClassBalanced"])
def test_computed_alone_it_is_trained_and_nothing_of_a_record_is_saved(kind, run, tmp_path):
    assert run(kind, "algorithm=dp_fl", "isolate_records=true").status == 0
    assert "Each record was computed by its own copy of the model" in statement(tmp_path)
    model = torch.load(tmp_path / "run" / "model.pt", weights_only=True)
    assert not model["seen"].any()
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["engine"] == "isolated"


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("kind", "what"),
    [("WritesWhenEvaluated", "the global weights"), ("SavesWhenEvaluated", "_extra_state")],
)
def test_what_changes_the_model_between_release_and_step_ends_the_run(kind, what, run, tmp_path):
    """Neither moves a version counter."""
    said = run(kind, "algorithm=dp_fl")
    assert said.status == 1, said
    assert what in said.sentence
    assert "changed outside the server step" in said.sentence
    assert not (tmp_path / "run" / "model.pt").exists()


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["WritesWhenEvaluated", "SavesWhenEvaluated"])
def test_a_copy_that_is_evaluated_changes_nothing(kind, run):
    assert run(kind, "algorithm=dp_fl", "isolate_records=true").status == 0


def test_a_model_of_the_users_own_is_published_only_if_records_are_isolated(run):
    said = run("Net", "algorithm=dp_fl", "epsilon=1", "publish=true", "dry_run=true")
    assert said.status == 2
    assert "isolate_records must be true with publish=true and a model of your own" in said.sentence
    assert "has not passed fedpriv verify" in said.sentence  # all that is missing at once
    assert "run fedpriv verify " in said.sentence
    assert (
        said.sentence.count("algorithm=dp_fl") == said.sentence.count("isolate_records=true") == 2
    )
    assert said.sentence.endswith("isolate_records=true publish=true")


@pytest.mark.few(1)
@pytest.mark.parametrize("isolate", [False, True])
def test_only_a_verification_that_serves_for_publishing_leaves_a_stamp(
    isolate, run, command, monkeypatch, tmp_path
):
    from fedpriv.tools.verify import command as verify
    from fedpriv.tools.verify.table import Check

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(verify, "all_checks", lambda subject: [Check("charge", "a", "1", "1")])
    more = (f"isolate_records={isolate}", "epsilon=1")
    said = run("Net", "algorithm=dp_fl", *more, verb="verify")
    assert said.status == 0, said.err
    assert ("no stamp for publish=true" in said.out) == (not isolate)
    assert len(list((tmp_path / "cache").rglob("verified/*.json"))) == isolate
    refused = run("Net", "algorithm=dp_fl", *more, "publish=true", "dry_run=true")
    assert refused.status == (0 if isolate else 2), refused.err


def test_what_was_verified_is_not_asked_for_again(run, monkeypatch, tmp_path):
    monkeypatch.setattr("fedpriv.experiment.stamps._is_stamp", lambda path: True)
    said = run("Net", "algorithm=dp_fl", "epsilon=1", "publish=true", "dry_run=true")
    assert "isolate_records must be true" in said.sentence
    assert "verify" not in said.sentence


def test_an_engine_that_computes_records_together_is_refused(command):
    said = command("train", "algorithm=dp_fl", "isolate_records=true", "runtime.engine=fast")
    assert "runtime.engine must be auto with isolate_records=true, got fast" in said.sentence


def test_the_key_counts_when_it_is_given_alone():
    without, given = (
        identity(compose(["algorithm=dp_fl", *more])) for more in ([], ["isolate_records=true"])
    )
    assert without["isolate_records"] is None
    older = {key: value for key, value in without.items() if key != "isolate_records"}
    assert fingerprint(without) == fingerprint(older) != fingerprint(given)


SMALL = ("rounds=2", "isolate_records=true")
ALGORITHMS = {
    "dp_fl": (),
    "dp_fl, layers": ("clipper=per_layer",),
    "adap_dpfl": ("epsilon=null",),
    "dp_fl_server": (),
    "dp_scaffold": ("algorithm.local_steps=2", "algorithm.sample_rate=0.02"),
    "ldp_fedsgd": (),
    "cdp_fedavg": (),
    "fedavg": ("epsilon=null",),
}


@pytest.mark.few(2)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_level_trains_with_records_alone(name, train):
    result = train(f"algorithm={name.partition(',')[0]}", *SMALL, *ALGORITHMS[name])
    assert result.summary["rounds"] == 2
    assert result.summary["records_not_finite"] == 0
