"""Models of the user's own in runs: probed, named in the statement, published once they were verified."""

from __future__ import annotations

import pytest
import torch

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
def test_it_is_published_once_it_was_verified_and_the_statement_says_probed(
    run, command, monkeypatch, tmp_path
):
    from fedpriv.tools.verify import command as verify
    from fedpriv.tools.verify.table import Check

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(verify, "all_checks", lambda subject: [Check("charge", "a", "1", "1")])
    given = ("Net", "algorithm=dp_fl", "epsilon=1")
    refused = run(*given, "publish=true")
    assert refused.status == 2
    assert "that has not passed fedpriv verify as it stands now" in refused.sentence
    assert "run fedpriv verify " in refused.sentence
    assert refused.sentence.endswith("epsilon=1 publish=true")
    assert run(*given, verb="verify").status == 0
    assert run(*given, "publish=true").status == 0
    assert "is computed as if it were alone was probed, not proven" in statement(tmp_path)
    file = next(tmp_path.glob("own_*.py"))
    file.write_text(file.read_text() + "\n# edited\n")
    assert run(*given, "publish=true", "runtime.run_dir=other").status == 2


def test_a_buffer_that_stores_a_record_is_not_in_the_saved_model(run, monkeypatch, tmp_path):
    """The probe refuses such a model; one that it does not find reveals nothing by its file."""
    monkeypatch.setattr("fedpriv.experiment.assemble._probe_model", lambda *_: None)
    assert run("CountsClasses", "algorithm=dp_fl").status == 0
    model = torch.load(tmp_path / "run" / "model.pt", weights_only=True)
    assert list(model) == ["seen", "linear.weight", "linear.bias"]
    assert model["seen"].sum() == 4  # the random records that the engine is tried on
    released = torch.load(tmp_path / "run" / "checkpoint.pt", weights_only=False)["training"][
        "weights"
    ]
    assert torch.equal(model["linear.weight"].flatten(), released[: model["linear.weight"].numel()])
