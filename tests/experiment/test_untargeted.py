"""Attacks without a trigger in whole runs: what attackers see and send, its effect on ε, refusals."""

from __future__ import annotations

import json
import math

import numpy as np
import pandas as pd
import pytest
import torch

from fedpriv.algorithms.server_steps import ServerStep
from fedpriv.attacks.forgers import Forgers
from fedpriv.common.errors import ConfigError
from fedpriv.privacy.mechanisms import GRADIENT, OpenRound

TEN = ("partition=iid", "partition.clients=10", "model=logistic", "rounds=3", "runtime.threads=1")
THREE = ("attack.attackers=3", "attack.participation=fixed")
LDP = ("algorithm=ldp_fedsgd", "noise_schedule=constant", "noise_schedule.noise_multiplier=2",
       "epsilon=null")  # fmt: skip
CDP = ("algorithm=cdp_fedavg", "epsilon=null", "algorithm.client_rate=0.8")
ALGORITHMS = {
    "fedavg": ("algorithm=fedavg",),
    "fedsgd": ("algorithm=fedsgd",),
    "dp_fl": ("algorithm=dp_fl", "epsilon=null"),
    "ldp_fedsgd": LDP,
    "cdp_fedavg": CDP,
    "buckets": (*CDP, "aggregation=bucketed_median"),
}
ATTACKS = ("alie", "alie_optimal", "gaussian", "ipm", "ipm_optimal", "label_reversal", "mimic", "min_max",
           "min_sum", "sign_flip")  # fmt: skip


class Noted:
    """Per round: what was released, what the attackers saw, and what the server averaged."""

    def __init__(self, monkeypatch):
        self.released: list[torch.Tensor] = []
        self.views = []
        self.averaged: list[tuple[np.ndarray, torch.Tensor]] = []
        release, sent, average = OpenRound.release, Forgers._sent, ServerStep.average

        def noted_release(opened, answers):
            visible = release(opened, answers)
            self.released.append(visible[GRADIENT].values.clone())
            return visible

        def noted_sent(forgers, aggregation, clients, trained, others):
            self.views.append((clients, trained, others))
            return sent(forgers, aggregation, clients, trained, others)

        def noted_average(step, cohort, uploads):
            self.averaged.append((cohort, uploads.values.clone()))
            return average(step, cohort, uploads)

        monkeypatch.setattr(OpenRound, "release", noted_release)
        monkeypatch.setattr(Forgers, "_sent", noted_sent)
        monkeypatch.setattr(ServerStep, "average", noted_average)


@pytest.fixture
def noted(monkeypatch):
    return Noted(monkeypatch)


@pytest.mark.few(3)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("attack", ATTACKS)
def test_every_attack_runs_and_measures_what_it_sends(train, attack, algorithm):
    result = train(*ALGORITHMS[algorithm], *TEN, f"attack={attack}", *THREE)
    rows = pd.read_csv(result.folder / "metrics.csv")
    assert rows["update_norm_malicious"].notna().all()
    assert np.isfinite(rows["update_norm_malicious"]).all()
    assert "backdoor_accuracy" not in rows
    assert "backdoor_accuracy" not in result.summary
    assert result.summary["attacked_rounds"] == 3


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["ldp_fedsgd", "dp_fl", "fedsgd"])
def test_attackers_see_what_the_server_sees_of_the_others_and_send_afterwards(train, noted, name):
    train(*ALGORITHMS[name], *TEN, "attack=ipm", *THREE)
    assert len(noted.views) == len(noted.averaged) == 3
    for (attackers, _, others), (cohort, averaged) in zip(noted.views, noted.averaged, strict=True):
        honest = torch.from_numpy(~np.isin(cohort, attackers))
        assert torch.equal(others, averaged[honest])
        expected = (-2.0 * others.mean(0)).expand(3, -1)
        torch.testing.assert_close(averaged[~honest], expected)


def test_attackers_under_local_trust_send_without_clip_or_noise(train, noted):
    train(*LDP, *TEN, "attack=sign_flip", *THREE, "clipper.clip_norm=1e-3")
    for (attackers, own, others), (cohort, averaged), released in zip(
        noted.views, noted.averaged, noted.released, strict=True
    ):
        rows = torch.from_numpy(np.isin(cohort, attackers))
        assert others is None
        assert torch.equal(averaged[rows], -own)
        assert (own.norm(dim=1) > 1e-2).all()
        assert torch.equal(averaged[~rows], released[~rows])


def test_attackers_that_follow_are_clipped_and_noised_like_the_others(train, noted):
    result = train(
        *LDP, *TEN, "attack=sign_flip", *THREE, "clipper.clip_norm=1e-3", "attack.dp_steps=follow"
    )
    rows = pd.read_csv(result.folder / "metrics.csv")
    assert (rows["update_norm_malicious"] > 1e-2).all()  # before the clip
    assert noted.averaged == []  # one noised sum
    assert all(float(released.norm()) < 1 for released in noted.released)


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["dp_fl", "ldp_fedsgd", "cdp_fedavg"])
def test_epsilon_is_that_of_a_run_without_attackers(train, name):
    attacked = train(*ALGORITHMS[name], *TEN, "attack=alie", *THREE, name="attacked")
    alone = train(*ALGORITHMS[name], *TEN, name="alone")
    for key in ("epsilon", "epsilon_sound"):
        assert attacked.summary[key] == alone.summary[key]
        assert math.isfinite(attacked.summary[key])
    assert "omniscient" not in attacked.summary


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["ldp_fedsgd", "cdp_fedavg"])
def test_raw_uploads_of_a_private_run_take_omniscience_and_every_finite_epsilon(
    train, noted, name, command
):
    raw = ("attack=ipm", *THREE, "attack.knows=[raw_uploads]")
    with pytest.raises(
        ConfigError, match=r"attack.knows must be null or a list without raw_uploads"
    ):
        train(*ALGORITHMS[name], *TEN, *raw)
    result = train(*ALGORITHMS[name], *TEN, *raw, "attack.omniscient=true")
    assert result.summary["omniscient"] is True
    assert result.summary["epsilon_sound"] == math.inf
    statement = " ".join((result.folder / "privacy.txt").read_text().split())
    assert "attackers see what the trust model hides (attack.omniscient)" in statement
    assert "released without noise: raw_uploads" in statement
    for _, own, others in noted.views:
        assert len(others) > 0
        assert float(others.norm(dim=1).max()) < 10 * float(own.norm(dim=1).max())
    planned = command(
        "train", *ALGORITHMS[name], *TEN, *raw, "attack.omniscient=true", "dry_run=true"
    )
    assert "attackers see what the trust model hides" in " ".join(planned.out.split())


@pytest.mark.thorough
def test_without_sight_of_uploads_attackers_estimate_them_from_their_own(train, noted):
    for name, knows in (("cdp_fedavg", "null"), ("dp_fl", "[global_models]")):
        noted.views.clear()
        train(*ALGORITHMS[name], *TEN, "attack=ipm", *THREE, f"attack.knows={knows}", name=name)
        assert len(noted.views) == 3
        assert all(others is None for _, _, others in noted.views)


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["cdp_fedavg", "ldp_fedsgd", "dp_fl"])
def test_what_attackers_send_does_not_depend_on_the_chunks(train, noted, name):
    sent = []
    for chunk in ("null", "3"):
        noted.views.clear()
        noted.averaged.clear()
        result = train(
            *ALGORITHMS[name],
            *TEN,
            "attack=alie_optimal",
            *THREE,
            f"chunk={chunk}",
            name=f"of{chunk}",
        )
        rows = pd.read_csv(result.folder / "metrics.csv")
        sent.append(rows["update_norm_malicious"].to_numpy())
    np.testing.assert_allclose(sent[1], sent[0], rtol=1e-4)


def test_label_reversal_trains_attackers_on_reversed_labels_in_attacked_rounds():
    from fedpriv.attacks import LabelReversal
    from fedpriv.data.digits import Digits
    from fedpriv.data.federated import federate
    from fedpriv.data.partitions import Iid

    data = federate(Digits(), Iid(6, seed=0), validation=False, seed=0)
    attackers = LabelReversal(attackers=2, first_round=2).start(data)
    one, honest = int(attackers.attackers[0]), int(np.flatnonzero(attackers.honest)[0])
    labels = attackers.data.train.targets
    own = labels[attackers.records_of(0, one)]
    assert torch.equal(labels[attackers.records_of(1, one)], 9 - own)
    assert torch.equal(
        attackers.data.train.inputs[attackers.records_of(1, one)],
        attackers.data.train.inputs[attackers.records_of(0, one)],
    )
    assert np.array_equal(attackers.records_of(1, honest), data.clients[honest])


def test_the_plan_says_how_many_attackers_are_sampled_and_the_end_whether_any_was(train, command):
    overrides = (*CDP, *TEN, "attack=alie", "attack.attackers=2")
    planned = command("train", *overrides, "algorithm.client_rate=0.1", "dry_run=true")
    assert "about 0.2 of them in a round" in " ".join(planned.out.split())
    never = train(*overrides, "attack.first_round=9")
    assert never.summary["attacked_rounds"] == 0


@pytest.mark.few(1)
@pytest.mark.parametrize("attack", ["alie_optimal", "min_sum"])
def test_a_round_of_attackers_alone_is_forged_from_their_own(train, noted, attack):
    one = ("algorithm.participation=sampled", "algorithm.clients_per_round=1")
    overrides = ("algorithm=fedavg", *TEN, "partition.clients=3", *one)
    train(*overrides, f"attack={attack}", "attack.attackers=2", "rounds=6")
    alone = [others for _, _, others in noted.views if not len(others)]
    assert len(alone) > 0


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "overrides",
    [
        ("algorithm=dp_scaffold", "epsilon=null"),
        ("algorithm=naseri_ldp", "noise_schedule.noise_multiplier=1", "epsilon=null"),
        ("algorithm=adap_dpfl",),
        ("algorithm=dp_ftrl", "noise_schedule=constant", "algorithm.min_separation=3", "epsilon=null"),
        ("algorithm=norm_bounding", "algorithm.client_rate=0.9"),
        ("algorithm=naseri_cdp", "noise_schedule.noise_multiplier=1", "epsilon=null"),
        ("algorithm=wei_cdp", "algorithm.sensitivity=update", "algorithm.records=100",
         "noise_schedule=constant", "epsilon=null"),
        ("algorithm=ddp_fedavg", "algorithm.trust=central", "noise_schedule=constant", "epsilon=null"),
    ],
    ids=lambda overrides: overrides[0].partition("=")[2],
)  # fmt: skip
def test_every_other_algorithm_with_uploads_takes_attackers(train, overrides):
    result = train(*overrides, *TEN, "attack=alie", *THREE)
    assert result.summary["attacked_rounds"] == result.summary["rounds"] >= 1


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["fedavg", "ldp_fedsgd"])
def test_a_round_of_huge_uploads_ends_in_a_defined_way(train, name):
    result = train(*ALGORITHMS[name], *TEN, "attack=gaussian", "attack.std=1e38", *THREE)
    assert result.summary["stop_reason"] in ("rounds", "diverged")
    assert json.loads((result.folder / "summary.json").read_text())["attacked_rounds"] >= 1


@pytest.mark.few(8)
@pytest.mark.parametrize(
    ("overrides", "wanted"),
    [
        (("algorithm=fedavg", "attack.knows=[all]"), "attack.knows must be null, or a list of"),
        (("algorithm=fedavg", "attack.attackers=10"), "attack.attackers must be at most 9"),
        (("algorithm=wei_cdp", "algorithm.sensitivity=weights", "algorithm.records=100",
          "noise_schedule=constant", "epsilon=null"),
         "attack must be none, or a backdoor, with algorithm=wei_cdp"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_before_the_first_round(train, overrides, wanted):
    with pytest.raises(ConfigError, match=wanted):
        train("attack=alie", *TEN, *overrides)
