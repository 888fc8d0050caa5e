"""Two runs share initial weights and partition at most: never lots, cohorts or noise.

What is released twice with the same noise gives the noise away: of two runs that differ in σ alone a
combination of their models is the model without noise.
"""

from __future__ import annotations

import copy

import numpy as np
import pandas as pd
import pytest
import torch
from omegaconf import open_dict

import fedpriv
from fedpriv.common.config import fingerprint, identity
from fedpriv.common.secret_streams import SecretStreams
from fedpriv.experiment import secrets
from fedpriv.experiment.assemble import make_context
from fedpriv.experiment.build import build_parts

ROUND = ("algorithm=dp_fl", "epsilon=null", "rounds=1", "algorithm.optimizer=sgd", "clipper=constant",
         "algorithm.sample_rate=1", "algorithm.learning_rate=0.01")  # fmt: skip
SIGMA = "noise_schedule.noise_multiplier"


def weights(result) -> torch.Tensor:
    state = torch.load(result.folder / "model.pt", weights_only=True)
    return torch.cat([values.double().flatten() for values in state.values()])


def test_runs_with_other_noise_multipliers_do_not_give_each_other_s_noise_away(train):
    """m_σ = m_0 + σ N with one N: 3 m_8 - 2 m_12 would be m_0, the model without noise."""
    low, high = (weights(train(*ROUND, f"{SIGMA}={z}", name=str(z))) for z in (8, 12))
    bare = ("noise_schedule=none", "clipper=constant")
    exact = weights(train(*ROUND, *bare, name="exact"))
    found = 3 * low - 2 * high
    noise = float((low - exact).std())
    # independent: std of 3 N(8²) - 2 N(12²) is √(24² + 24²)/8 = 4.24 times that of one run
    assert float((found - exact).std()) == pytest.approx(4.24 * noise, rel=0.15)


def test_runs_of_a_search_for_t_do_not_give_each_other_s_noise_away(train, monkeypatch):
    """Wei et al.: s grows as √T, so with one noise 2 w(T = 1) - w(T = 4) is w without noise."""
    common = ("algorithm=wei_cdp", "partition=fixed_size", "partition.clients=10",
              "partition.records=50", "runtime.snapshot_interval=1")  # fmt: skip

    def first_weights(rounds: int, name: str) -> torch.Tensor:
        folder = train(*common, f"rounds={rounds}", name=f"{name}{rounds}").folder
        return torch.load(folder / "snapshots" / "round000001.pt", weights_only=True)["weights"]

    noisy = torch.stack([first_weights(rounds, "own") for rounds in (1, 4)]).double()
    monkeypatch.setattr("fedpriv.experiment.assemble.run_digest", lambda *_: "one for both")
    shared = torch.stack([first_weights(rounds, "shared") for rounds in (1, 4)]).double()
    exact = 2 * shared[0] - shared[1]
    likeness = [float(torch.corrcoef(pair - exact)[0, 1]) for pair in (shared, noisy)]
    assert likeness[0] > 0.99
    assert abs(likeness[1]) < 5 / len(exact) ** 0.5


@pytest.mark.few(1)
@pytest.mark.parametrize("other", ["delta=1e-6", "rounds=2", "noise_seed=1", "clipper.clip_norm=2"])
def test_any_change_of_a_run_gives_other_lots(train, other):
    """Seen in what is averaged over the first lot: the loss before the first noise."""
    sampled = (*ROUND[:3], "clipper=constant", "algorithm.sample_rate=0.1")
    losses = [
        pd.read_csv(train(*sampled, *more, name=name).folder / "metrics.csv")["train_loss"][0]
        for name, more in (("one", ()), ("other", (other,)))
    ]
    assert losses[0] != losses[1]


def test_initial_weights_and_partition_stay(train):
    """What is compared in a figure starts from the same place."""
    runs = [
        train(*ROUND, f"{SIGMA}={z}", "runtime.snapshot_interval=1", name=str(z)) for z in (8, 12)
    ]
    starts = [
        torch.load(r.folder / "snapshots" / "round000000.pt", weights_only=True) for r in runs
    ]
    assert torch.equal(starts[0]["weights"], starts[1]["weights"])
    losses = [pd.read_csv(r.folder / "metrics.csv")["train_loss"][0] for r in runs]
    assert losses[0] == losses[1]  # all records, before the first noise


def digest(*overrides: str) -> str:
    config = fedpriv.compose(list(overrides))
    parts = build_parts(config)
    context = make_context(parts, torch.device("cpu"))
    return secrets.run_digest(config, parts.settings.rounds, context)


SAME = [
    "runtime.threads=1", "runtime.engine=opacus", "runtime.diagnostics=false", "evaluation_interval=3",
    "runtime.output_dir=elsewhere", "audit=membership",
]  # fmt: skip
OTHER = ["seed=1", "noise_seed=1", "rounds=7", "epsilon=1", "model=mlp", "budget_view=published"]


@pytest.mark.parametrize("override", SAME)
def test_where_and_how_often_it_is_looked_at_leaves_a_run_what_it_is(override):
    assert digest(override) == digest()


@pytest.mark.parametrize("override", OTHER)
def test_what_can_change_a_release_makes_another_run(override):
    assert digest(override) != digest()


def test_keys_that_came_later_leave_a_run_what_it_is_while_they_are_null():
    config = fedpriv.compose(["model=cnn", "algorithm=dp_fl"])
    parts = build_parts(config)
    context = make_context(parts, torch.device("cpu"))
    older = copy.deepcopy(config)
    with open_dict(older):
        for key in ("activation", "tempering", "weight_standardization"):
            assert older.model.pop(key) is None
        assert older.algorithm.pop("learning_rate_decay") is None
    found = [secrets.run_digest(c, parts.settings.rounds, context) for c in (config, older)]
    assert found[0] == found[1]
    assert fingerprint(identity(config)) == fingerprint(identity(older))
    for key in ("model.activation=tanh", "algorithm.learning_rate_decay=0.99"):
        other = fedpriv.compose(["model=cnn", "algorithm=dp_fl", key])
        assert secrets.run_digest(other, parts.settings.rounds, context) != found[0]


def test_a_search_s_last_run_is_none_of_those_it_made():
    config = fedpriv.compose(["algorithm=wei_cdp_optimal", "epsilon=50", "delta=0.01"])
    parts = build_parts(config)
    context = make_context(parts, torch.device("cpu"))
    assert len({secrets.run_digest(config, t, context) for t in (1, 2, None)}) == 3


def test_records_edited_behind_the_same_path_get_other_noise(tmp_path):
    rng = np.random.default_rng(0)
    rows = np.column_stack([rng.normal(size=(400, 3)), np.arange(400) % 2])
    found = []
    for _ in range(2):
        np.savetxt(tmp_path / "own.txt", rows, fmt="%.3f %.3f %.3f %d")
        found.append(
            digest(
                "dataset=ipums",
                f"dataset.path={tmp_path / 'own.txt'}",
                "partition=iid",
                "dataset.validation_records=5",
            )
        )
        rows[7, 1] += 0.5
    assert found[0] != found[1]


def test_own_code_edited_behind_the_same_name_gets_other_noise(tmp_path, monkeypatch):
    file = tmp_path / "my_models_of_digest.py"
    text = "from fedpriv.models import Logistic\n\n\nclass Mine(Logistic):\n    pass\n"
    monkeypatch.syspath_prepend(str(tmp_path))
    found = []
    for more in ("", "# another thought\n"):
        file.write_text(text + more)
        found.append(digest("model._target_=my_models_of_digest.Mine"))
    assert found[0] != found[1]


def test_code_that_own_code_imports_counts_too(tmp_path, monkeypatch):
    (tmp_path / "own_package_of_digest").mkdir()
    (tmp_path / "own_package_of_digest" / "__init__.py").write_text("")
    (tmp_path / "own_package_of_digest" / "models.py").write_text(
        "import torch\nfrom fedpriv.models import Logistic\nfrom . import helper\n\n\n"
        "class Mine(Logistic):\n    factor = helper.FACTOR\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    found = []
    for factor in (1.0, 0.5):
        (tmp_path / "own_package_of_digest" / "helper.py").write_text(f"FACTOR = {factor}\n")
        found.append(digest("model._target_=own_package_of_digest.models.Mine"))
    assert found[0] != found[1]


def test_initial_weights_from_a_file_of_one_s_own_count(monkeypatch):
    """The difference of two noised steps from other weights would have no noise."""
    from fedpriv.models import Logistic

    build = Logistic.build

    def started(self, shape, classes):
        module = build(self, shape, classes)
        with torch.no_grad():
            next(module.parameters()).add_(0.1)
        return module

    before = digest()
    monkeypatch.setattr(Logistic, "build", started)
    assert digest() != before


def test_a_key_of_which_null_is_not_the_default_cannot_be_left_out(command):
    """In the keys of streams null is the same as absent."""
    said = command("train", "algorithm=fedavg", "rounds=2", "attack=pixel_pattern", "~attack.every")
    assert said.status == 2
    assert "attack.every is absent; give it a value or null" in said.sentence


def test_a_root_key_that_is_null_leaves_the_streams_alone():
    config = fedpriv.compose(["+audit=null"] if "audit" not in fedpriv.compose([]) else [])
    assert config.publish is None
    assert digest() == digest("publish=null", "publish_test_metrics=null")


def test_the_streams_of_a_run_are_those_of_its_digest(train, monkeypatch):
    seen = []
    original = SecretStreams.of_run

    def noted(root, run):
        seen.append(run)
        return original(root, run)

    monkeypatch.setattr(SecretStreams, "of_run", noted)
    result = train(*ROUND)
    state = torch.load(result.folder / "checkpoint.pt", weights_only=False)
    assert seen[-1] == state["run"] == digest(*ROUND)
    assert len(state["run"]) == 64
