"""The warm start: what it trains on, what it costs, what it leaves alone, and what it does not go with."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf

import fedpriv
from fedpriv.common import config as configuration
from fedpriv.common.errors import ConfigError
from fedpriv.experiment.assemble import make_context
from fedpriv.experiment.build import build_parts
from fedpriv.experiment.plan import make_plan
from fedpriv.experiment.secrets import run_digest
from fedpriv.experiment.sound_forecast import forecast_sound
from fedpriv.experiment.warm_start import begin_warm
from fedpriv.tools.audit.subject import open_run

DP_FL = ("algorithm=dp_fl", "partition.clients=4", "rounds=3")
CDP = (
    "algorithm=cdp_fedavg", "partition.clients=20", "algorithm.client_rate=0.5", "rounds=3",
    "noise_schedule.noise_multiplier=1",
)  # fmt: skip
LDP = ("algorithm=ldp_fedsgd", "partition.clients=20", "rounds=3")
FTRL = (
    "algorithm=dp_ftrl", "partition.clients=20", "rounds=3", "algorithm.min_separation=2",
    "noise_schedule=constant", "noise_schedule.noise_multiplier=4",
)  # fmt: skip
ADAPTIVE = ("algorithm=adap_dpfl", "partition.clients=4", "rounds=3")
PUBLIC = ("warm_start.records=public", "warm_start.epochs=1")
ON_CLIENTS = ("epsilon=null", "warm_start.records=clients", "warm_start.epochs=1")


def made(*overrides: str):
    """The parts, and the context of a run."""
    parts = build_parts(fedpriv.compose([*overrides, "runtime.progress=none"]))
    return parts, make_context(parts, torch.device("cpu"))


def initial(*overrides: str) -> torch.Tensor:
    """The weights with which round 1 begins [d]."""
    parts, context = made(*overrides)
    begin_warm(parts.settings.warm_start, context)
    return context.model.flat.clone()


def test_it_is_plain_sgd_on_the_public_split_and_follows_from_the_seed():
    parts, context = made(*DP_FL, *PUBLIC, "warm_start.learning_rate=0.2")
    public, model = context.data.validation, context.model
    before = model.evaluate(public.inputs, public.targets)[0]
    begin_warm(parts.settings.warm_start, context)
    assert model.evaluate(public.inputs, public.targets)[0] < before
    again = initial(*DP_FL, *PUBLIC, "warm_start.learning_rate=0.2")
    assert torch.equal(model.flat, again)
    assert not torch.equal(model.flat, initial(*DP_FL, *PUBLIC, "seed=1"))


def test_one_full_batch_is_one_step_of_gradient_descent():
    step = ("warm_start.batch_size=5000", "warm_start.learning_rate=0.5")
    _, context = made(*DP_FL, *PUBLIC)
    public, model = context.data.validation, context.model
    loss = model.loss(model(public.inputs), public.targets).mean()
    gradients = torch.autograd.grad(loss, list(model.module.parameters()))
    expected = model.flat - 0.5 * torch.cat([g.reshape(-1) for g in gradients])
    found = initial(*DP_FL, *PUBLIC, *step)
    torch.testing.assert_close(found, expected)


def test_clients_records_are_those_before_an_attack():
    poison = ("attack=pixel_pattern", "attack.attackers=2", "attack.trigger.size=2")
    fedavg = ("algorithm=fedavg", "partition.clients=4", "rounds=2", *ON_CLIENTS)
    assert torch.equal(initial(*fedavg), initial(*fedavg, *poison))


def test_records_that_no_client_holds_are_left_out():
    _, context = made("algorithm=fedavg", "partition.clients=4", "rounds=2", *ON_CLIENTS)
    data = context.original
    assert data.of_clients is data.train
    data = replace(data, clients=[data.clients[2], data.clients[0]])
    held = torch.from_numpy(np.sort(np.concatenate(data.clients)))
    assert torch.equal(data.of_clients.inputs, data.train.inputs[held])


@pytest.mark.few(1)
@pytest.mark.parametrize("algorithm", [DP_FL, FTRL, CDP, LDP], ids=lambda keys: keys[0])
def test_on_public_records_every_epsilon_is_that_of_the_same_run_without(algorithm, train):
    warm, plain = train(*algorithm, *PUBLIC, name="warm"), train(*algorithm, name="plain")
    statements = [json.loads((run.folder / "privacy.json").read_text()) for run in (plain, warm)]
    for key in ("epsilon", "epsilon_sound", "epsilon_published"):
        assert statements[0][key] == statements[1][key]
    assert math.isfinite(statements[1]["epsilon_sound"])
    text = (warm.folder / "privacy.txt").read_text()
    assert "the initial weights were trained on" in " ".join(text.split())


@pytest.mark.few(1)
@pytest.mark.parametrize("algorithm", [DP_FL, CDP, ADAPTIVE, LDP, FTRL], ids=lambda keys: keys[0])
def test_on_clients_records_no_epsilon_is_finite(algorithm, train, ledger):
    parts = build_parts(fedpriv.compose([*algorithm, *ON_CLIENTS]))
    plan = make_plan(parts)
    assert plan.epsilon == math.inf
    assert "the sound epsilon is infinite" in str(plan.lines)
    assert "without clipping and noise" in dict(plan.lines)["each round"]
    assert forecast_sound(parts, plan).epsilon == math.inf
    result = train(*algorithm, *ON_CLIENTS)
    facts = json.loads((result.folder / "privacy.json").read_text())
    assert facts["epsilon"] == facts["epsilon_sound"] == math.inf
    assert facts["epsilon_published"] is None
    assert facts["reasons"]["epsilon_sound"] == "released without noise: warm_start"
    assert all(value == 1.0 for value in facts["largest_tpr"].values())
    rows = [row for row in ledger(result.folder) if "warm_start" in row["queries"]]
    assert len(rows) == 1
    statement = " ".join((result.folder / "privacy.txt").read_text().split())
    assert "This run is NOT differentially private" in statement
    assert "warm_start.records=clients" in statement


@pytest.mark.thorough
@pytest.mark.parametrize(
    "keys",
    [(*DP_FL, *PUBLIC), (*CDP, *ON_CLIENTS), (*FTRL, *PUBLIC), (*DP_FL, *ON_CLIENTS)],
    ids=["record-public", "client-clients", "ftrl-public", "record-clients"],
)
def test_a_resumed_run_does_not_begin_warm_again_and_is_the_uninterrupted_one(
    keys, train, tmp_path, assert_same_run, monkeypatch
):
    whole = train(*keys, name="whole").folder
    stop, folder = tmp_path / "stop", tmp_path / "short"
    stop.touch()
    quiet = ("runtime.progress=none", "runtime.plots=false", "runtime.checkpoint_interval=1")
    runtime = (*quiet, f"runtime.stop_file={stop}")
    fedpriv.run(fedpriv.compose([*keys, *runtime, f"runtime.run_dir={folder}"]))
    monkeypatch.setattr("fedpriv.algorithms.warm_start.trained", None)
    for _ in range(3):
        fedpriv.run(fedpriv.compose([*keys, *runtime, f"resume={folder}"]))
    assert_same_run(whole, folder)


def test_other_public_records_are_another_run():
    """Also where the clients have the same records."""
    config = fedpriv.compose([*DP_FL, *PUBLIC])
    _, context = made(*DP_FL, *PUBLIC)
    before = run_digest(config, 3, context)
    context.data.validation.inputs[0] += 1
    context.data.__dict__.pop("digest")
    assert run_digest(config, 3, context) != before
    other = fedpriv.compose([*DP_FL, *PUBLIC, "warm_start.learning_rate=0.2"])
    assert run_digest(other, 3, context) != run_digest(config, 3, context)


def test_without_it_a_run_is_the_one_it_was_before_there_was_the_key():
    config = fedpriv.compose(DP_FL)
    older = config.copy()
    OmegaConf.set_struct(older, False)
    older.pop("warm_start")
    fingerprints = [configuration.fingerprint(configuration.identity(c)) for c in (config, older)]
    assert fingerprints[0] == fingerprints[1]
    _, context = made(*DP_FL)
    assert run_digest(config, 3, context) == run_digest(older, 3, context)
    assert context.original is None


def test_an_attack_changes_no_public_record():
    poison = ("attack=pixel_pattern", "attack.attackers=2", "attack.trigger.size=2")
    assert torch.equal(initial(*CDP, *PUBLIC), initial(*CDP, *PUBLIC, *poison))


def test_weights_that_overflow_are_refused():
    with pytest.raises(ConfigError, match=r"warm_start\.learning_rate must be smaller.*1e\+38"):
        initial(*DP_FL, *PUBLIC, "warm_start.learning_rate=1e38", "warm_start.epochs=20")


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (("warm_start.records=test",), r"warm_start.records must be one of public, clients, got test"),
        ((*PUBLIC, "warm_start.epochs=0"), r"warm_start.epochs must be a whole number >= 1, got 0"),
        ((*PUBLIC, "warm_start.batch_size=0"), r"warm_start.batch_size must be a whole number >= 1"),
        ((*PUBLIC, "warm_start.learning_rate=0"), r"warm_start.learning_rate must be > 0, got 0"),
        (("warm_start.epochs=3",), r"warm_start.epochs must be null unless warm_start.records is"),
        (("warm_start=5",), "warm_start must be null, or a section with the key records, got 5"),
        ((*PUBLIC, "+warm_start.epoch=1"), "unknown key warm_start.epoch; did you mean epochs"),
    ],
)  # fmt: skip
def test_a_wrong_key_is_refused(keys, message):
    with pytest.raises(ConfigError, match=message):
        build_parts(fedpriv.compose([*DP_FL, *keys]))


def test_verify_and_audits_of_epsilon_refuse_a_run_without_a_guarantee(command, train):
    verified = command("verify", *DP_FL, *ON_CLIENTS)
    assert "warm_start.records must be public or null with fedpriv verify" in verified.sentence
    folder = train(*DP_FL, *ON_CLIENTS).folder
    audited = command("audit", "epsilon", str(folder), "--canaries", "10")
    assert "warm_start.records must be public or null for an audit of epsilon" in audited.sentence


def test_audits_start_from_the_weights_of_round_1(train):
    result = train(*CDP, *PUBLIC, "runtime.snapshot_interval=1")
    snapshot = min((result.folder / "snapshots").glob("round*.pt"))
    first = torch.load(snapshot, weights_only=True)["weights"]
    assert torch.equal(open_run(result.folder, "cpu").initial, first)


@pytest.mark.thorough
@pytest.mark.parametrize("keys", [PUBLIC, ON_CLIENTS], ids=["public", "clients"])
def test_workers_need_no_warm_start_of_their_own(
    keys, train, assert_same_run, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)  # the other process must not find the sources of a checkout
    chunks = ("chunk=2", "runtime.threads=1")
    alone = train(*DP_FL, *keys, *chunks, name="alone").folder
    spread = train(*DP_FL, *keys, *chunks, "runtime.workers=2", name="spread").folder
    assert_same_run(alone, spread)
