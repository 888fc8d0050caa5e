"""What attackers send, and that honest clients are as they would be without them."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from fedpriv.algorithms import DpFl, FedAvg, NaseriCdp, NaseriLdp
from fedpriv.attacks.attackers import mixed
from fedpriv.privacy.clippers import ConstantClipper, NoClipper

EVERYONE = 12


def fedavg() -> FedAvg:
    return FedAvg("fedavg", sample_rate=0.5, optimizer="sgd", learning_rate=0.5, local_steps=2)


def norm_bounding(rate: float = 1.0) -> NaseriCdp:
    return NaseriCdp("norm_bounding", client_rate=rate, batch_size=20)


PRIVATE = {
    "naseri_ldp": lambda: NaseriLdp("naseri_ldp", sample_rate=0.5, local_epochs=1),
    "naseri_cdp": lambda: NaseriCdp("naseri_cdp", client_rate=0.5, batch_size=20),
    "dp_fl": lambda: DpFl("dp_fl", sample_rate=0.3, local_steps=2),
}


@pytest.mark.parametrize("how", ["skip", "follow"])
@pytest.mark.parametrize("name", PRIVATE)
def test_honest_clients_send_what_they_would_without_attackers(federation, name, how):
    alone = federation(PRIVATE[name]()).play(3, sigma=1.0)
    attacked = federation(PRIVATE[name](), {"dp_steps": how, "boost": 5.0})
    together = attacked.play(3, sigma=1.0)
    attackers = set(attacked.malicious.attackers.tolist())
    assert len(attackers) == 2
    for client, upload in alone.items():
        assert torch.equal(upload, together[client]) == (client not in attackers)


def test_the_noise_of_the_server_does_not_depend_on_who_attacks(federation):
    def noise(attack):
        release = {}
        for sigma in (0.0, 2.0):
            made = federation(PRIVATE["naseri_cdp"](), attack)
            before = made.weights.clone()
            made.play(1, cohort=[0, 3, 7], sigma=sigma)
            release[sigma] = made.weights - before
        return release[2.0] - release[0.0]

    torch.testing.assert_close(noise(None), noise({"boost": 50.0}), rtol=1e-4, atol=1e-4)


def test_outside_the_attacked_rounds_attackers_are_honest(federation):
    honest, other = federation(fedavg()), federation(fedavg(), {"first_round": 3, "every": 2})
    for round_index in range(6):
        alone, together = honest.play(round_index), other.play(round_index)
        attacked = round_index in (2, 4)
        differ = [k for k in alone if not torch.equal(alone[k], together[k])]
        assert differ == (other.malicious.attackers.tolist() if attacked else [])
        other.weights.copy_(honest.weights)


def test_a_single_shot_is_one_round(federation):
    malicious = federation(fedavg(), {"first_round": 4, "every": None}).malicious
    assert [t for t in range(50) if malicious.settings.attacks_in(t)] == [3]


def test_fixed_attackers_join_the_attacked_rounds_beside_those_sampled(federation):
    made = federation(fedavg(), {"participation": "fixed", "every": 2})
    attackers = set(made.malicious.attackers.tolist())
    sampled = [k for k in range(EVERYONE) if k not in attackers][:3]
    assert set(made.play(0, sampled)) == attackers | set(sampled)
    assert set(made.play(1, sampled)) == set(sampled)


@pytest.mark.parametrize("server_rate", [1.0, 0.5])
@pytest.mark.parametrize("attackers", [1, 3])
def test_replacement_moves_the_model_onto_the_attackers_own_where_nobody_else_moves(
    federation, attackers, server_rate
):
    """K/n_adv, the learning rate of the server taken into account; honest clients stand still."""
    algorithm = NaseriCdp(
        "norm_bounding", client_rate=1.0, batch_size=20, learning_rate=server_rate,
        local_learning_rate=1e-30,
    )  # fmt: skip
    attack = {"boost": "replacement", "attackers": attackers, "local_epochs": 1}
    made = federation(algorithm, attack, clipper=NoClipper())
    before = made.weights.clone()
    sent = made.play()
    own = made.malicious.attackers.tolist()
    scale = EVERYONE / (attackers * server_rate)
    models = torch.stack([before + sent[k] / scale for k in own])
    assert float((models.mean(0) - before).norm()) > 0.1
    torch.testing.assert_close(made.weights, models.mean(0), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("cohort", [[0, 1, 2], [0, 1, 2, 5, 6, 7, 8, 9, 10]])
def test_replacement_knows_the_expected_size_of_a_cohort_sampled_with_probability_q(
    federation, cohort
):
    """The sum is divided by q K, however many came: γ = q K / n_adv."""
    algorithm = NaseriCdp(
        "norm_bounding", client_rate=0.5, batch_size=20, local_learning_rate=1e-30
    )
    attack = {"boost": "replacement", "attackers": 2, "local_epochs": 1}
    made = federation(algorithm, attack, clipper=NoClipper())
    before, own = made.weights.clone(), made.malicious.attackers.tolist()
    sent = made.play(cohort=sorted({*cohort, *own}))
    scale = 0.5 * EVERYONE / 2
    models = torch.stack([before + sent[k] / scale for k in own])
    torch.testing.assert_close(made.weights, models.mean(0), rtol=1e-4, atol=1e-5)


def test_replacement_knows_the_weights_of_an_average_by_records(federation, digits):
    """a = n_k / n of the participating clients."""
    algorithm = FedAvg(
        "fedavg", sample_rate=1.0, optimizer="sgd", learning_rate=1e-30, local_steps=1
    )
    made = federation(algorithm, {"boost": "replacement", "attackers": 1})
    before, own = made.weights.clone(), int(made.malicious.attackers[0])
    cohort = sorted({own, 0, 5})
    sent = made.play(cohort=cohort)
    n = digits.records_per_client
    scale = n[cohort].sum() / n[own]
    torch.testing.assert_close(made.weights, before + sent[own] / scale, rtol=1e-4, atol=1e-5)


def test_a_boosted_update_exceeds_the_clip_norm_and_is_capped_by_norm_bounding(federation, norm):
    made = federation(
        norm_bounding(), {"boost": 100.0, "attackers": 1}, clipper=ConstantClipper(0.5)
    )
    before, own = made.weights.clone(), int(made.malicious.attackers[0])
    sent = made.play()
    assert norm(sent[own]) > 10 * 0.5
    assert max(norm(u) for k, u in sent.items() if k != own) <= 0.5 * (1 + 1e-5)
    moved = (made.weights - before) * EVERYONE
    honest = sum(u for k, u in sent.items() if k != own)
    assert norm(moved - honest) == pytest.approx(0.5, rel=1e-3)


@pytest.mark.parametrize("boosted", ["update", "malicious_part"])
def test_a_norm_bounded_attack_stays_in_its_ball(federation, norm, boosted):
    attack = {"boost": 3.0, "boosted": boosted, "norm_bound": 0.33, "learning_rate": 1.0}
    made = federation(fedavg(), attack)
    sent = made.play()
    for k in made.malicious.attackers.tolist():
        assert 0.3 < norm(sent[k]) <= 0.33 * (1 + 1e-5)


def test_attackers_that_follow_add_the_noise_and_others_do_not(federation):
    def change(how, noise_seed):
        made = federation(
            PRIVATE["naseri_ldp"](), {"dp_steps": how, "attackers": 1}, noise_seed=noise_seed
        )
        return made.play(sigma=2.0)[int(made.malicious.attackers[0])]

    assert not torch.equal(change("follow", 0), change("follow", 1))
    assert torch.equal(change("skip", 0), change("skip", 1))


def test_following_attackers_with_clean_records_only_would_be_honest_ones(federation):
    """What sets them apart is the poisoned share, which leaves n_k alone."""
    made = federation(PRIVATE["naseri_ldp"](), {"dp_steps": "follow", "poisoned_fraction": 0.25})
    data, malicious = made.context.data, made.malicious
    for k in malicious.attackers.tolist():
        own = malicious.records_of(0, k)
        assert len(own) == len(data.clients[k])
        poisoned = np.setdiff1d(own, data.clients[k])
        assert len(poisoned) == round(0.25 * len(own))
        assert set((data.train.targets[poisoned]).tolist()) == {0}


@pytest.mark.parametrize(("clean", "poisoned", "batch"), [(30, 10, 8), (10, 30, 8), (0, 9, 4)])
def test_every_batch_has_its_share_of_poisoned_records(clean, poisoned, batch):
    order = mixed(np.arange(clean), 100 + np.arange(poisoned), np.random.default_rng(0))
    assert sorted(order.tolist()) == [*range(clean), *range(100, 100 + poisoned)]
    share = poisoned / (clean + poisoned)
    for first in range(0, len(order) - batch + 1, batch):
        found = int((order[first : first + batch] >= 100).sum())
        assert math.floor(share * batch) - 1 <= found <= math.ceil(share * batch) + 1


def test_norms_are_those_of_what_is_sent(federation, norm):
    made = federation(norm_bounding(), {"boost": 7.0})
    sent = made.play()
    bad = set(made.malicious.attackers.tolist())
    wanted = {
        who: np.mean([norm(u) for k, u in sent.items() if (k in bad) == (who == "malicious")])
        for who in ("honest", "malicious")
    }
    assert made.malicious.take_norms() == {
        f"update_norm_{who}": pytest.approx(mean, rel=1e-5) for who, mean in wanted.items()
    }
    assert set(made.malicious.take_norms().values()) == {None}
