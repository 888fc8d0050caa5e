"""``model.weights`` and ``model.freeze``: what a run begins with, and what the statement says of it."""

from __future__ import annotations

import hashlib
import shutil

import pytest
import torch

import fedpriv
from fedpriv.common import config as configuration
from fedpriv.experiment.build import build_parts
from fedpriv.models import Mlp
from fedpriv.store.joint_privacy import joint_privacy
from fedpriv.store.stored_run import StoredRun

RUN = (
    "dataset=digits",
    "partition=iid",
    "partition.clients=3",
    "model=mlp",
    "model.hidden=3",
    "rounds=1",
)
DP = (*RUN, "algorithm=dp_fl", "epsilon=null", "noise_schedule.noise_multiplier=4")


@pytest.fixture
def file(tmp_path, monkeypatch):
    """A file of weights for the model of these tests."""
    monkeypatch.chdir(tmp_path)
    torch.save(Mlp(seed=9, hidden=3).build((1, 8, 8), 10).state_dict(), "first.pt")
    return tmp_path / "first.pt"


@pytest.fixture(scope="module")
def earlier(ran):
    """The folder of a private run."""
    return ran(*DP, "algorithm.sample_rate=0.9").folder


def model_of(result) -> dict:
    return torch.load(result.folder / "model.pt", weights_only=True)


def caveat(result) -> str:
    return next(
        text for text in result.privacy["caveats"] if text.startswith("The initial weights are")
    )


def refused(command, *overrides: str) -> str:
    """The refusal of a dry run, which reads no data."""
    said = command("train", *DP, "dry_run=true", *overrides)
    assert said.status == 2
    return said.err


def test_frozen_parameters_are_those_of_the_file_and_the_others_move(train, file):
    result = train(*DP, f"model.weights={file}", "model.freeze=['1.*']")
    first, last = torch.load(file, weights_only=True), model_of(result)
    assert {name for name in first if not torch.equal(first[name], last[name])} == {
        "3.weight",
        "3.bias",
    }
    assert result.summary["parameters"] == 3 * 10 + 10
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    assert digest in caveat(result)
    assert "nothing is declared" in caveat(result)


def test_a_declaration_is_in_the_statement(train, file):
    result = train(*DP, f"model.weights={file}", "model.weights_are_public=true")
    assert "declared public" in caveat(result)


@pytest.mark.few(4)
@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["model.weights=none.pt"], "model.weights must be a file that can be read, got none.pt"),
        (
            ["model.weights=first.pt", "model.hidden=4"],
            "1.weight has shape [3, 64] and the model's [4, 64]",
        ),
        (
            ["model.weights=other.pt"],
            "unexpected: other; missing: 1.weight, 1.bias, 3.weight, 3.bias",
        ),
        (["model.weights=head.pt", "model.freeze=['1.*']"], "it lacks 1.weight, 1.bias"),
        (
            ["model.weights=first.pt", "model.freeze=[conv]"],
            "(1.weight, 1.bias, 3.weight, 3.bias), got conv",
        ),
        (["model.freeze=['*']"], "model.freeze must be patterns that leave a parameter to train"),
        (["model.weights_are_public=true"], "must be null without model.weights"),
        (["model.weights=first.pt", "model.weights_sha256=ab"], "model.weights_sha256 must be"),
        (["model.weights=first.pt", "publish=true"], "model.weights that are not declared public"),
    ],
)
def test_a_mistake_is_told_before_a_round(command, file, overrides, words):
    state = torch.load(file, weights_only=True)
    torch.save({name: state[name] for name in ("3.weight", "3.bias")}, "head.pt")
    torch.save({"other": torch.zeros(1)}, "other.pt")
    assert words in refused(command, *overrides)


def test_a_file_may_lack_the_head_which_then_begins_anew(command, file):
    state = torch.load(file, weights_only=True)
    torch.save({name: state[name] for name in ("1.weight", "1.bias")}, "encoder.pt")
    said = command("train", *DP, "dry_run=true", "model.weights=encoder.pt", "model.freeze=['1.*']")
    assert said.status == 0
    assert "lacks 3.weight, 3.bias" in said.err


def test_the_digest_names_the_run_and_not_the_path(file):
    def identity(path):
        config = fedpriv.compose([*DP, f"model.weights={path}"])
        return configuration.fingerprint(configuration.identity(config))

    before = identity(file)
    shutil.copy(file, "second.pt")
    assert identity("second.pt") == before
    torch.save({"changed": torch.zeros(1)}, file)
    assert identity(file) != before


def test_a_run_does_not_go_on_from_an_edited_file(file):
    def stop(row):
        raise ZeroDivisionError

    begun = [*DP, "rounds=2", f"model.weights={file}", "runtime.progress=none"]
    with pytest.raises(ZeroDivisionError):
        fedpriv.run(fedpriv.compose([*begun, "runtime.run_dir=run"]), on_round=stop)
    torch.save(Mlp(seed=8, hidden=3).build((1, 8, 8), 10).state_dict(), file)
    with pytest.raises(fedpriv.ConfigError, match=r"different run: model.weights_sha256 is"):
        fedpriv.run(fedpriv.compose([*begun, "resume=run"]))


def test_an_epsilon_counts_the_run_whose_weights_a_run_begins_with(train, earlier):
    result = train(*DP, "seed=1", f"model.weights={earlier}")
    own = train(*DP, "seed=1", name="own").folder
    (joint,) = joint_privacy(map(StoredRun, (earlier, own)))  # by RDP, as this run's accountant
    assert result.privacy["epsilon"] == pytest.approx(joint.epsilon, rel=1e-6)
    assert result.plan.epsilon == pytest.approx(result.privacy["epsilon"])
    assert result.privacy["epsilon_published"] is None
    assert "every epsilon is that of both runs" in caveat(result)


def test_a_budget_leaves_what_the_earlier_run_left(earlier):
    budget = [*DP, "epsilon=2", "rounds=null"]
    alone = build_parts(fedpriv.compose(budget)).costs()
    after = build_parts(fedpriv.compose([*budget, f"model.weights={earlier}"])).costs()
    assert 0 < after.rounds_allowed(4.0, 2.0) < alone.rounds_allowed(4.0, 2.0)


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (
            ["model.weights_are_public=true"],
            "model.weights_are_public must be null with weights of a run",
        ),
        (
            ["dataset.population=others"],
            "it is about digits and this run about the population others",
        ),
        (["algorithm=cdp_fedavg"], "it is not private, or protects another unit"),
        (
            ["noise_schedule=validation_decay", "epsilon=1"],
            "the noise follows from releases",
        ),
        (["publish=true"], "model.weights that are not declared public"),
    ],
)
def test_weights_of_a_run_are_never_public(command, earlier, overrides, words):
    assert words in refused(command, f"model.weights={earlier / 'model.pt'}", *overrides)


def test_weights_of_a_run_without_privacy_are_refused(command, ran):
    plain = ran(*RUN, "algorithm=fedavg").folder
    assert "it is not private" in refused(command, f"model.weights={plain}")


def test_a_pickle_in_the_place_of_weights_is_not_run(command, tmp_path):
    class Evil:
        def __reduce__(self):
            return (tmp_path / "ran").mkdir, ()

    torch.save({"1.weight": Evil()}, tmp_path / "evil.pt")
    assert "holds more than tensors" in refused(command, "model.weights=evil.pt")
    assert not (tmp_path / "ran").exists()
