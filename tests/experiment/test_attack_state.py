"""Attacks that remember: the plug-in is Neurotoxin, as a user would write it, in a folder of its own."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
import torch

from fedpriv.algorithms.run_context import RunContext
from fedpriv.algorithms.trainer import Trainer
from fedpriv.attacks.malicious import MaliciousClients

ATTACK = (
    "attack=top_coordinates", "attack.trigger.size=2", "attack.attackers=2", "attack.participation=fixed",
    "partition=iid", "partition.clients=8", "rounds=6", "runtime.progress=none", "runtime.plots=false",
    "evaluation_interval=1", "runtime.checkpoint_interval=1",
)  # fmt: skip
ALGORITHMS = {
    "fedavg": ("algorithm=fedavg",),
    "dp_fl": ("algorithm=dp_fl", "epsilon=null"),
    "follow": ("algorithm=dp_fl", "epsilon=null", "attack.dp_steps=follow"),
    "naseri_cdp": (
        *("algorithm=naseri_cdp", "epsilon=null", "noise_schedule.noise_multiplier=3"),
        "algorithm.client_rate=0.5",
    ),
}


@pytest.fixture
def attacked(command, plugins):
    """(folder, overrides) → how a run with the plug-in ended."""

    def run(folder: str, *overrides: str):
        return command(
            "train", "--config-dir", "yamls", *ATTACK, f"runtime.run_dir={folder}", *overrides
        )

    return run


@pytest.fixture
def interrupted(attacked, monkeypatch):
    """(folder, overrides): a run that is interrupted at the end of its third round."""
    take = MaliciousClients.take_norms
    calls = []

    def until_the_third(self):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return take(self)

    def run(folder: str, *overrides: str) -> None:
        monkeypatch.setattr(MaliciousClients, "take_norms", until_the_third)
        assert attacked(folder, *overrides).status == 130
        monkeypatch.setattr(MaliciousClients, "take_norms", take)

    return run


@pytest.fixture
def resume(command):
    return lambda folder: command(
        *("train", "--config-dir", "yamls", f"resume={folder}", "--allow", "my_neurotoxin"),
        *("runtime.progress=lines", "runtime.plots=false"),
    )


@pytest.mark.thorough
@pytest.mark.parametrize("name", ALGORITHMS)
def test_an_attack_that_remembers_goes_on_bit_for_bit(
    name, attacked, interrupted, resume, plugins, assert_same_run
):
    interrupted("broken", *ALGORITHMS[name])
    saved = torch.load(plugins / "broken" / "checkpoint.pt", weights_only=True)
    assert saved["round"] < 6
    assert saved["attack"]["free"].min() == 0
    said = resume("broken")
    assert said.status == 0, said.err
    assert attacked("whole", *ALGORITHMS[name]).status == 0
    assert_same_run(plugins / "broken", plugins / "whole")


def test_attackers_see_the_global_model_of_each_round(attacked, monkeypatch, plugins):
    seen, sent_out = [], []
    observe, round_of = MaliciousClients.observe, Trainer.round

    def noted_round(trainer, opened):
        sent_out.append((opened.round_index, trainer.context.model.flat.clone()))
        return round_of(trainer, opened)

    def noted(self, round_index, weights):
        seen.append((round_index, weights))
        observe(self, round_index, weights)

    monkeypatch.setattr(MaliciousClients, "observe", noted)
    monkeypatch.setattr(Trainer, "round", noted_round)
    said = attacked(
        "run", "algorithm=fedavg", "attack=pixel_pattern", "attack.participation=sampled"
    )
    assert said.status == 0, said.err
    assert [t for t, _ in seen] == list(range(6))
    for (_, one), (_, other) in zip(seen, sent_out, strict=True):
        assert torch.equal(one, other)


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["fedavg", "follow"])
def test_neurotoxin_leaves_alone_what_the_last_global_update_moved_most(
    name, attacked, monkeypatch
):
    sent = []
    foreign = RunContext.foreign

    def noted(context, aggregation, clients, uploads):
        rows, found = foreign(context, aggregation, clients, uploads)
        sent.append((context.attack.free, found.values[rows]))
        return rows, found

    monkeypatch.setattr(RunContext, "foreign", noted)
    said = attacked("run", *ALGORITHMS[name])
    assert said.status == 0, said.err
    assert sent[0][0] is None
    assert (sent[0][1] != 0).float().mean() > 0.8
    for free, rows in sent[1:]:
        assert (free == 0).sum() == int(0.05 * len(free))
        assert len(rows) == 2
        assert bool((rows[:, free == 0] == 0).all())
        assert bool(rows.any(dim=1).all())


@pytest.mark.thorough
def test_neurotoxin_teaches_its_backdoor(attacked, plugins):
    overrides = (*ALGORITHMS["fedavg"], "rounds=15", "evaluation_interval=5")
    assert attacked("taught", *overrides, "attack.boost=replacement").status == 0
    found = json.loads((plugins / "taught" / "summary.json").read_text())
    assert found["backdoor_accuracy"] > 0.8


FORGES = """
import torch

from fedpriv.attacks import Backdoor
from fedpriv.attacks.malicious import MaliciousClients


class Mine(Backdoor):
    def start(self, data):
        return Seeing(self, data)


class Seeing(MaliciousClients):
    {sees}

    def forge(self, round_index, clients, uploads, others):
        assert (others is None) != self.sees_uploads
        return uploads if others is None else -others.mean(0).expand_as(uploads)
"""


@pytest.mark.thorough
@pytest.mark.parametrize(("sees", "changes"), [("sees_uploads = True", True), ("pass", False)])
def test_attackers_see_other_uploads_only_if_the_threat_model_says_so(
    sees, changes, plug_in, command, tmp_path
):
    few = ("partition.clients=8", "attack.trigger.writers=2", "attack.attackers=2")
    said = plug_in("attack", "Mine", FORGES.format(sees=sees), *few, base="fedavg")
    assert said.status == 0, said.err
    plain = command(
        *("train", "algorithm=fedavg", "attack=label_flip", *few, "rounds=6"),
        *("runtime.progress=none", "runtime.plots=false", "runtime.run_dir=plain"),
        "paired=both",
    )
    assert plain.status == 0, plain.err
    said = plug_in(
        "attack", "Mine", FORGES.format(sees=sees), *few, "paired=both",
        "runtime.run_dir=paired", base="fedavg",
    )  # fmt: skip
    tables = [pd.read_csv(tmp_path / name / "metrics.csv") for name in ("paired", "plain")]
    norms = [table["update_norm_malicious"].to_numpy() for table in tables]
    assert np.array_equal(*norms) is not changes


def test_uploads_that_nobody_sees_before_they_are_clipped_cannot_be_seen(plug_in):
    said = plug_in(
        "attack", "Mine", FORGES.format(sees="sees_uploads = True"), "attack.trigger.writers=2",
        "partition.clients=8", base="naseri_cdp",
    )  # fmt: skip
    assert said.status == 2
    assert "sees_uploads" in said.sentence
    assert "naseri_cdp" in said.sentence


def test_uploads_that_the_configuration_does_not_show_cannot_be_seen(plug_in):
    said = plug_in(
        "attack", "Mine", FORGES.format(sees="sees_uploads = True"), "attack.trigger.writers=2",
        "partition.clients=8", "+attack.knows=[global_models]", base="fedavg",
    )  # fmt: skip
    assert said.status == 2
    assert "attack.knows must be a list with noised_uploads" in said.sentence


WHOLE_ROUND = """
from fedpriv.attacks import Attack
from fedpriv.attacks.attackers import Attackers


class Mine(Attack):
    whole_round = True

    def start(self, data):
        return Seeing(self, data)


class Seeing(Attackers):
    whole_round = True
    sees_uploads = True
    sees_raw_uploads = {raw}

    def forge(self, round_index, clients, uploads, others):
        return -others.mean(0).expand_as(uploads)
"""


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("base", "raw", "status"),
    [
        ("cdp_fedavg", False, 2),
        ("ldp_fedsgd", True, 2),
        ("ldp_fedsgd", False, 0),
        ("fedsgd", True, 0),
    ],
)
def test_own_attackers_see_no_raw_upload_of_a_private_run(command, tmp_path, base, raw, status):
    module = f"whole_round_{base}_{raw}".lower()
    (tmp_path / f"{module}.py").write_text(WHOLE_ROUND.format(raw=raw))
    (tmp_path / "yamls" / "attack").mkdir(parents=True)
    (tmp_path / "yamls" / "attack" / "mine.yaml").write_text(
        f"# mine\n_target_: {module}.Mine\nattackers: 2\n"
    )
    overrides = ["partition.clients=8", "rounds=2", "epsilon=null", "runtime.plots=false"]
    if base == "ldp_fedsgd":
        overrides += ["noise_schedule=constant", "noise_schedule.noise_multiplier=2"]
    said = command("train", "--config-dir", "yamls", f"algorithm={base}", "attack=mine", *overrides)
    assert said.status == status, said.err
    if status:
        assert "attack.knows must be a list with raw_uploads" in said.sentence


def test_attackers_of_another_kind_are_one_sentence(plug_in):
    code = """
    from fedpriv.attacks import Backdoor

    class Mine(Backdoor):
        def start(self, data):
            return data
    """
    said = plug_in("attack", "Mine", code, "attack.trigger.writers=2", base="fedavg")
    assert said.status == 2
    assert "Mine.start must return" in said.sentence
    assert "MaliciousClients" in said.sentence


@pytest.mark.few(1)
@pytest.mark.parametrize("how", ["skip", "follow"])
@pytest.mark.parametrize("method", ["constrain", "forge"])
def test_what_attackers_send_has_the_shape_of_an_upload(method, how, plug_in):
    rest = "changes" if method == "constrain" else "uploads, others"
    code = FORGES[: FORGES.index("    def forge")].format(sees="")
    code += f"""
    def {method}(self, round_index, clients, {rest}):
        return {rest.partition(",")[0]}[0]
    """
    said = plug_in(
        "attack", "Mine", code, "attack.trigger.writers=2", f"attack.dp_steps={how}", base="fedavg"
    )
    assert said.status == 1
    assert f"Seeing.{method} must return a tensor of shape (1, " in said.sentence


def test_a_misspelt_method_of_attackers_is_refused(plug_in):
    code = FORGES.format(sees="def observed(self, round_index, weights):\n        pass")
    said = plug_in("attack", "Mine", code, "attack.trigger.writers=2", base="fedavg")
    assert said.status == 2
    assert "attackers: nothing calls Seeing.observed" in said.sentence
    assert "did you mean observe?" in said.sentence
