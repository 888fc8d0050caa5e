"""Sums of uploads: who is clipped, how much noise shares add up to, what is refused."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch

from fedpriv.algorithms import DdpFedAvg, DpFlServer
from fedpriv.algorithms.run_context import RunContext
from fedpriv.common.errors import ArgumentError, ConfigError
from fedpriv.common.secret_streams import SecretStreams
from fedpriv.data.digits import Digits
from fedpriv.data.federated import federate
from fedpriv.data.partitions import Iid
from fedpriv.engine import FlatModel, make_engine
from fedpriv.models import Logistic
from fedpriv.privacy.clippers import (
    AdapClipper,
    ConstantClipper,
    MedianHistogramClipper,
    QuantileClipper,
)
from fedpriv.privacy.mechanisms import CLIP_STATISTIC, GRADIENT
from fedpriv.privacy.mechanisms.shares import SharedGaussian
from fedpriv.privacy.noise_schedules import ConstantNoise

CLIENTS, C, Z = 10, 0.5, 3.0


@pytest.fixture(scope="module")
def data():
    return federate(Digits(), Iid(CLIENTS), validation=False, seed=0)


class Training:
    """An algorithm on the digits, a round at a time."""

    def __init__(self, data, algorithm, clipper=None, sigma: float = Z, noise_seed: int = 0):
        clipper = clipper or ConstantClipper(C)
        model = FlatModel(Logistic(seed=0).build(data.input_shape, data.classes))
        algorithm.check_clients(data.client_count)
        algorithm.learn_size(lambda: model.size)
        self.algorithm, self.model, self.clipper = algorithm, model, clipper
        self.mechanism = algorithm.mechanism(clipper, ConstantNoise(sigma))
        self.context = RunContext(
            data=data,
            model=model,
            engine=make_engine(model),
            clipper=clipper,
            seed=0,
            streams=SecretStreams.simulated(0, noise_seed),
            mechanism=self.mechanism,
        )
        self.mechanism.join(data.records_per_client)
        self.trainer = algorithm.start(self.context)

    def round(self, cohort=None, round_index: int = 0):
        """(what was released, the records of it, the outcome)."""
        cohort = np.arange(CLIENTS) if cohort is None else np.array(cohort)
        opened = self.mechanism.open(
            self.mechanism.announce(round_index), cohort, self.context.streams
        )
        seen = {}
        release = opened.release

        def released(answers):
            seen["exact"] = {name: answer.values.clone() for name, answer in answers.items()}
            found = release(answers)
            seen.update({name: value.values.clone() for name, value in found.items()})
            return found

        opened.release = released
        outcome = self.trainer.round(opened)
        return seen, opened.close(), outcome


def server(**settings) -> DpFlServer:
    return DpFlServer("dp_fl_server", **settings)


def fedavg(**settings) -> DdpFedAvg:
    return DdpFedAvg("ddp_fedavg", **{"local_learning_rate": 0.5, **settings})


MAKE = {"record": server, "client": fedavg}


# ---- what is clipped


def test_the_sum_is_of_records_clipped_one_by_one_over_all_clients(data):
    """Against autograd, record by record."""
    training = Training(data, server(), sigma=1e-9)
    model = copy.deepcopy(training.model.module)
    expected = torch.zeros(training.model.size, dtype=torch.float64)
    for k in np.concatenate(data.clients)[:]:
        model.zero_grad()
        outputs = model(data.train.inputs[k : k + 1])
        torch.nn.functional.cross_entropy(outputs, data.train.targets[k : k + 1]).backward()
        gradient = torch.cat([p.grad.reshape(-1) for p in model.parameters()]).double()
        expected += gradient * min(1.0, C / float(gradient.norm()))
    seen, _, _ = training.round()
    torch.testing.assert_close(seen["exact"][GRADIENT][0], expected, rtol=2e-5, atol=1e-4)


def test_the_server_divides_by_the_public_size_of_all_lots_and_steps(data):
    training = Training(data, server(sample_rate=0.5, learning_rate=0.7), sigma=1.0)
    before = training.model.flat.clone()
    seen, _, _ = training.round()
    records = data.records_per_client.sum()
    moved = before - training.model.flat
    torch.testing.assert_close(moved, (0.7 * seen[GRADIENT][0] / (0.5 * records)).float())


@pytest.mark.parametrize("trust", ["local", "distributed"])
def test_one_clip_norm_holds_for_all_and_follows_a_released_sum(data, trust):
    """Adap DP-FL's quantile, of the lots of all clients together."""
    clipper = AdapClipper(initial_clip_norm=0.5, bit_noise=20.0)
    training = Training(data, server(trust=trust), clipper)
    first = float(clipper.clip_norm(0, torch.zeros(1, dtype=torch.int64)))
    seen, (release,), outcome = training.round()
    assert outcome.clip_norms.shape == (1,)
    share = seen[CLIP_STATISTIC] / data.records_per_client.sum() + 0.5
    second = float(clipper.clip_norm(1, torch.zeros(1, dtype=torch.int64)))
    assert second == pytest.approx(first * math.exp(-0.1 * (float(share) - 0.5)), rel=1e-5)
    assert set(release.noise_std) == {GRADIENT, CLIP_STATISTIC}


# ---- noise


def total_std(release, name: str = GRADIENT) -> float:
    return float(release.noise_std[name][0]) * math.sqrt(release.shares[name])


@pytest.mark.parametrize("unit", MAKE)
@pytest.mark.parametrize(("s", "t"), [(0, 0), (2, 0), (0, 3), (2, 3)])
def test_the_shares_that_certainly_protect_have_the_stated_noise(data, unit, s, t):
    """n - t - s of them, whatever n - s … n clients are left."""
    algorithm = MAKE[unit](tolerated_dropouts=s, tolerated_collusion=t)
    training = Training(data, algorithm)
    for cohort in (np.arange(CLIENTS), np.arange(CLIENTS - s)):
        _, (release,), _ = training.round(cohort)
        share = float(release.noise_std[GRADIENT][0])
        assert release.shares[GRADIENT] == len(cohort)
        assert share * math.sqrt(CLIENTS - s - t) == pytest.approx(Z * C)
        assert total_std(release) == pytest.approx(
            Z * C * math.sqrt(len(cohort) / (CLIENTS - s - t))
        )


@pytest.mark.parametrize("unit", MAKE)
def test_the_noise_that_is_added_is_that_of_all_shares(data, unit):
    algorithm = MAKE[unit](tolerated_dropouts=2, tolerated_collusion=3)
    seen, (release,), _ = Training(data, algorithm).round(np.arange(9))
    noise = seen[GRADIENT] - seen["exact"][GRADIENT]
    wanted = total_std(release) / (9 if unit == "client" else 1)
    assert float(noise.std()) == pytest.approx(wanted, rel=0.1)


def test_the_statistic_gets_shares_too(data):
    clipper = QuantileClipper(initial_clip_norm=0.5, bit_noise=5.0)
    algorithm = fedavg(tolerated_collusion=4)
    _, (release,), _ = Training(data, algorithm, clipper).round()
    assert release.noise_std[CLIP_STATISTIC][0] * math.sqrt(6) == pytest.approx(5.0)
    assert all(query.by == "client" for query in release.joint.queries)


def test_with_local_trust_every_client_adds_all_of_it(data):
    _, (release,), _ = Training(data, server(trust="local")).round()
    assert float(release.noise_std[GRADIENT][0]) == pytest.approx(Z * C)
    assert total_std(release) == pytest.approx(Z * C * math.sqrt(CLIENTS))


def test_distributed_is_central_bit_for_bit_where_the_streams_are_the_same(data):
    """The idealisation: the same sum, the same Gaussian, the same step."""
    found = {}
    for trust in ("central", "distributed"):
        training = Training(data, fedavg(trust=trust))
        for t in range(3):
            training.round(round_index=t)
        found[trust] = training.model.flat.clone()
    assert torch.equal(found["central"], found["distributed"])


@pytest.mark.parametrize("unit", MAKE)
@pytest.mark.parametrize("shares", ["discrete_gaussian", "skellam"])
def test_whole_numbers_release_about_what_the_idealisation_does(data, unit, shares):
    """The same exact sum, with noise of the same standard deviation."""
    exact = Training(data, MAKE[unit](), sigma=1e-9).round()[0]["exact"][GRADIENT]
    training = Training(data, MAKE[unit](shares=shares, bits=20, tolerated_dropouts=1))
    seen, (release,), outcome = training.round()
    error = seen[GRADIENT] - exact
    wanted = total_std(release) / (CLIENTS if unit == "client" else 1)
    assert float(error.std()) == pytest.approx(wanted, rel=0.12)
    assert abs(float(error.mean())) < 5 * wanted / math.sqrt(error.numel())
    assert outcome.facts == {
        "dropped": 0, "aborted": 0, "bits_per_coordinate": 20, "bytes_per_client": 2560,
    }  # fmt: skip


# ---- dropouts


@pytest.mark.parametrize("unit", MAKE)
@pytest.mark.parametrize("shares", ["continuous", "skellam"])
def test_a_round_with_more_dropouts_than_tolerated_releases_nothing(data, unit, shares):
    training = Training(data, MAKE[unit](tolerated_dropouts=2, shares=shares))
    before = training.model.flat.clone()
    seen, releases, outcome = training.round(np.arange(7))
    assert (seen, releases) == ({}, ())
    assert torch.equal(training.model.flat, before)
    assert outcome.healthy
    assert (outcome.facts["dropped"], outcome.facts["aborted"]) == (3, 1)
    seen, releases, outcome = training.round(np.arange(8))
    assert len(releases) == 1
    assert not torch.equal(training.model.flat, before)
    assert releases[0].clients.tolist() == list(range(8))


# ---- adjacency and refusals


def test_choosing_the_cohort_amplifies_nothing(data):
    """A participant is charged the whole Gaussian, others nothing."""
    training = Training(data, fedavg(clients_per_round=4))
    _, (release,), _ = training.round([1, 2, 5, 7])
    assert release.clients.tolist() == [1, 2, 5, 7]
    assert release.joint.event().noise_multiplier == Z
    assert isinstance(release.joint.query(GRADIENT), SharedGaussian)


def test_lots_that_the_server_does_not_see_do(data):
    joint = Training(data, server(sample_rate=0.25)).mechanism.announce(0).groups[0].upload.joint
    assert joint.event().sampling_probability == 0.25


@pytest.mark.parametrize(
    ("make", "settings", "key"),
    [
        (server, {"trust": "central"}, "trust"),
        (fedavg, {"trust": "local"}, "trust"),
        (server, {"trust": "local", "tolerated_dropouts": 1}, "tolerated_dropouts"),
        (server, {"trust": "local", "dropout": 0.1}, "dropout"),
        (server, {"trust": "local", "shares": "skellam"}, "shares"),
        (fedavg, {"trust": "central", "tolerated_collusion": 1}, "tolerated_collusion"),
        (fedavg, {"trust": "central", "clients_per_round": 3}, "clients_per_round"),
        (server, {"shares": "skellam", "sample_rate": 0.5}, "sample_rate"),
        (server, {"scale": 100.0}, "scale"),
        (server, {"shares": "poisson"}, "shares"),
        (server, {"bits": 12}, "bits"),
        (server, {"wrap_limit": 1e-4}, "wrap_limit"),
        (server, {"bits": 1}, "bits"),
        (server, {"bits": 64}, "bits"),
        (server, {"wrap_limit": 0.0}, "wrap_limit"),
        (server, {"dropout": 1.0}, "dropout"),
        (fedavg, {"clients_per_round": 4, "tolerated_dropouts": 4}, "tolerated_dropouts"),
    ],
)
def test_settings_that_do_not_go_together_name_the_key(make, settings, key):
    with pytest.raises(ArgumentError) as error:
        make(**settings)
    assert error.value.argument == key


@pytest.mark.parametrize(
    ("settings", "sigma", "words"),
    [
        ({"bits": 4}, Z, "modulus too small"),
        ({"bits": 9, "scale": 200.0}, Z, "modulus too small"),
        ({"bits": 40, "scale": 1e6}, Z, "scale"),
        ({}, 0.0, "continuous"),
    ],
)
def test_a_modulus_or_grid_that_does_not_do_is_one_sentence(data, settings, sigma, words):
    training = Training(data, fedavg(shares="discrete_gaussian"))
    algorithm = fedavg(shares="discrete_gaussian", **settings)
    algorithm.check_clients(CLIENTS)
    algorithm.learn_size(lambda: training.model.size)
    mechanism = algorithm.mechanism(ConstantClipper(C), ConstantNoise(1.0))
    with pytest.raises(ConfigError, match=words):
        mechanism.joint(algorithm.sampling_of(1), sigma, 0)


@pytest.mark.thorough
@pytest.mark.parametrize("shares", ["discrete_gaussian", "skellam"])
def test_a_clip_norm_follows_a_count_with_shares_of_whole_numbers(data, shares):
    """The released statistic is half a whole number, with the stated noise; both are charged together."""
    clipper = QuantileClipper(initial_clip_norm=0.5, bit_noise=5.0)
    training = Training(data, fedavg(shares=shares, bits=20, tolerated_collusion=4), clipper)
    found = []
    for t in range(20):
        seen, (release,), _ = training.round(round_index=t)
        noise = float(seen[CLIP_STATISTIC] - seen["exact"][CLIP_STATISTIC])
        assert 2 * noise == round(2 * noise)
        found.append(noise)
    assert np.std(found) == pytest.approx(5.0 * math.sqrt(10 / 6), rel=0.35)
    assert len(release.joint.event().events) == 2
    assert float(release.noise_std[CLIP_STATISTIC][0]) * math.sqrt(6) == pytest.approx(5.0)
    assert clipper.clip_norm(0, torch.zeros(1, dtype=torch.int64)) != 0.5


def test_a_clipper_that_asks_for_more_than_a_count_needs_the_idealisation(data):
    clipper = MedianHistogramClipper(initial_clip_norm=0.5, updates=1, update_interval=1)
    with pytest.raises(ConfigError, match="clippers that ask nothing or a noised count"):
        Training(data, fedavg(shares="skellam"), clipper).round()
