"""The noise on the sum of the clients' uploads, and on what an adaptive clipper asks of them."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from fedpriv.algorithms import CdpFedAvg, LdpFedSgd
from fedpriv.privacy.clippers import (
    AdapClipper,
    AutomaticClipper,
    ConstantClipper,
    MedianHistogramClipper,
    PolynomialClipper,
    QuantileClipper,
)
from fedpriv.privacy.mechanisms import CLIP_STATISTIC, GRADIENT
from fedpriv.privacy.mechanisms.randomized_response import flip_probability

SIGMA, ROUNDS = 3.0, 8
LDP, CDP = LdpFedSgd("ldp_fedsgd", 1.0), CdpFedAvg("cdp_fedavg", client_rate=0.4)
TRUST = {"local": LDP, "central": CDP}
CLIPPERS = {
    "constant": lambda: ConstantClipper(0.7),
    "automatic": AutomaticClipper,
    "poly": lambda: PolynomialClipper(0.9, power=2, horizon=8),
    "quantile": lambda: QuantileClipper(0.2, bit_noise=5),
    "quantile, bits on top": lambda: QuantileClipper(0.2, split=False),
    "median histogram": lambda: MedianHistogramClipper(0.2, update_interval=2, updates=4),
}


def noises(training, rounds: int = ROUNDS, **played) -> torch.Tensor:
    """Noise of the sum in repetitions of one round under other noise seeds [rounds, d]."""
    exact, _ = training.released(**{**played, "sigma": 0.0})
    samples = []
    for noise_seed in range(rounds):
        training.noise_anew(noise_seed)
        samples.append(training.released(**{"sigma": SIGMA, **played})[0] - exact)
    return torch.stack(samples).double()


def std_of(noise: torch.Tensor) -> float:
    return noise.square().mean().sqrt().item()


def entered(training, query: str = GRADIENT) -> float:
    """The standard deviation that the ledger enters for each share of the noise."""
    (release,) = training.releases
    (std,) = release.noise_std[query]
    return float(std)


def within(noise: torch.Tensor) -> float:
    """Five standard errors of a measured standard deviation, as a share of it."""
    return 5 / math.sqrt(2 * noise.numel())


@pytest.mark.parametrize("m", [1, 10])
@pytest.mark.parametrize("name", CLIPPERS)
def test_m_reports_of_ldp_fedsgd_bring_the_noise_of_m_gaussians(name, m, serve):
    """Each report has noise z C_t, so their sum has z C_t √m."""
    training = serve(LDP, clipper=CLIPPERS[name]())
    noise = noises(training, cohort=range(m))
    multiplier = training.heard.gradient_multiplier(SIGMA)
    norm = float(training.heard.clip_norm(0, torch.zeros(1, dtype=torch.int64)))
    assert entered(training) == pytest.approx(multiplier * norm)
    assert [release.shares[GRADIENT] for release in training.releases] == [m]
    expected = entered(training) * math.sqrt(m)
    assert std_of(noise) == pytest.approx(expected, rel=within(noise))


@pytest.mark.parametrize("m", [0, 10])
@pytest.mark.parametrize("name", CLIPPERS)
def test_the_sum_of_cdp_fedavg_has_one_noise_whoever_came(name, m, serve):
    training = serve(CDP, clipper=CLIPPERS[name]())
    noise = noises(training, cohort=range(m))
    norm = float(training.heard.clip_norm(0, torch.zeros(1, dtype=torch.int64)))
    assert entered(training) == pytest.approx(training.heard.gradient_multiplier(SIGMA) * norm)
    assert [release.shares[GRADIENT] for release in training.releases] == [1]
    assert std_of(noise) == pytest.approx(entered(training), rel=within(noise))


@pytest.mark.parametrize("trust", TRUST)
def test_with_split_the_gradient_gets_the_noise_of_z_delta(trust, serve):
    """z_Δ = (z^-2 - (2σ_b)^-2)^(-1/2) of Andrew et al. 2021."""
    training = serve(TRUST[trust], clipper=QuantileClipper(0.2, bit_noise=2.0))
    noise = noises(training, cohort=[5])
    z_delta = (SIGMA**-2 - (2 * 2.0) ** -2) ** -0.5
    assert z_delta > 1.5 * SIGMA
    assert entered(training) == pytest.approx(z_delta * 0.2)
    assert std_of(noise) == pytest.approx(z_delta * 0.2, rel=within(noise))


@pytest.mark.parametrize("trust", TRUST)
@pytest.mark.parametrize("round_index", [0, 3, 6])
def test_the_noise_of_a_round_is_scaled_by_the_clip_norm_of_that_round(round_index, trust, serve):
    """C_t of a polynomial falls by a tenth and more from one round to the next."""
    training = serve(TRUST[trust], clipper=PolynomialClipper(0.8, horizon=8))
    noise = noises(training, round_index=round_index, cohort=[2])
    expected = SIGMA * 0.8 * (1 - round_index / 8)
    assert entered(training) == pytest.approx(expected)
    assert std_of(noise) == pytest.approx(expected, rel=within(noise))


@pytest.mark.parametrize("trust", TRUST)
def test_the_noise_is_scaled_by_the_clip_norm_that_clipped_and_not_by_the_next_one(trust, serve):
    fast = QuantileClipper(0.5, quantile_learning_rate=2.0, split=False)
    training = serve(TRUST[trust], clipper=fast)
    noise = noises(training, cohort=[2])
    training.play(sigma=SIGMA)
    next_norm = training.trainer.state_dict()["clipper"]["bounds"]
    assert abs(math.log(next_norm / 0.5)) > 0.2
    assert entered(training) == pytest.approx(SIGMA * 0.5)
    assert std_of(noise) == pytest.approx(SIGMA * 0.5, rel=within(noise))


@pytest.mark.parametrize("trust", TRUST)
def test_the_noise_has_mean_zero(trust, serve):
    noise = noises(serve(TRUST[trust]))
    assert abs(noise.mean()) < 5 * noise.std() / math.sqrt(noise.numel())


def test_the_noise_is_gaussian(serve):
    noise = noises(serve(LDP, clipper=ConstantClipper(1.0)), cohort=[0]).flatten() / SIGMA
    shares = [(noise.abs() < width).double().mean().item() for width in (1, 2, 3)]
    expected = [math.erf(width / math.sqrt(2)) for width in (1, 2, 3)]
    np.testing.assert_allclose(shares, expected, atol=5 / math.sqrt(len(noise)))


@pytest.mark.parametrize("trust", TRUST)
def test_no_two_rounds_share_noise(trust, serve):
    training = serve(TRUST[trust])
    rows = []
    for t in range(12):
        exact, _ = training.released(t)
        rows.append(training.released(t, sigma=SIGMA)[0] - exact)
    likeness = torch.corrcoef(torch.stack(rows)) - torch.eye(len(rows))
    assert likeness.abs().max() < 6 / math.sqrt(len(rows[0]))


def test_the_noise_is_the_stream_named_by_its_round(serve):
    training = serve(CDP, noise_seed=5)
    noise = training.released(4, cohort=[], sigma=1.0)[0]
    stream = training.context.streams.noise(f"{GRADIENT}_of_all", 4)
    expected = torch.from_numpy(stream.standard_normal(len(noise))).float()
    torch.testing.assert_close(noise, expected, rtol=0, atol=2.0**-14)  # the grid's width


def test_the_noise_does_not_depend_on_the_uploads(serve):
    def silent(*sent):
        return 0 * sent[-1]

    differences = []
    for attack in (silent, lambda *sent: -3 * sent[-1]):
        training = serve(LDP, attack=attack)
        exact, _ = training.released()
        differences.append(training.released(sigma=SIGMA)[0] - exact)
    on_grid = 2 * SIGMA * 10**0.5 * 2.0**-14  # each is rounded to a grid of std 2^-14
    torch.testing.assert_close(*differences, rtol=1e-4, atol=on_grid)


# ---- what a clipper asks


def answers(training, rounds: int = 120, **played) -> torch.Tensor:
    """What the clipper heard, in repetitions under other noise seeds."""
    heard = []
    for noise_seed in range(rounds):
        training.noise_anew(noise_seed)
        training.released(sigma=SIGMA, **played)
        heard.append(training.heard.released[-1])
    return torch.stack(heard).double()


def third(serve, algorithm) -> float:
    """A clip norm that three of the ten clients stay below: their bits add up to 3 - 5 = -2."""
    _, outcome = serve(algorithm).released()
    return float(outcome.norms.sort().values[2]) * 1.0001


def assert_mean(heard: torch.Tensor, expected: float) -> None:
    tolerance = 5 * heard.std().item() / math.sqrt(len(heard))
    assert heard.mean().item() == pytest.approx(expected, abs=tolerance)


BIT = 2.0  # standard deviation of the noise on the bits
SUMMED = {
    ("local", "aggregator"): lambda m: BIT,
    ("local", "client"): lambda m: BIT * math.sqrt(m),
    ("central", "aggregator"): lambda m: BIT,
}


@pytest.mark.thorough
@pytest.mark.parametrize("m", [1, 9])
@pytest.mark.parametrize(("trust", "by"), SUMMED)
def test_the_bits_get_the_noise_of_whoever_adds_it(trust, by, m, serve):
    clipper = QuantileClipper(0.2, bit_noise=BIT, noised_by=by, split=False)
    training = serve(TRUST[trust], clipper=clipper)
    heard = answers(training, cohort=range(m))
    expected = SUMMED[trust, by](m)
    assert entered(training, CLIP_STATISTIC) == pytest.approx(BIT)
    assert heard.std().item() == pytest.approx(expected, rel=within(heard))


@pytest.mark.thorough
@pytest.mark.parametrize(("trust", "by"), SUMMED)
def test_the_noised_bits_are_right_on_average(trust, by, serve):
    start = third(serve, TRUST[trust])
    clipper = QuantileClipper(start, bit_noise=BIT, noised_by=by, split=False)
    assert_mean(answers(serve(TRUST[trust], clipper=clipper)), -2.0)


@pytest.fixture
def flipped(serve) -> torch.Tensor:
    """Estimates from bits of which three of ten are one, by randomized response of epsilon 1.5."""
    clipper = QuantileClipper(
        third(serve, LDP),
        bit_mechanism="randomized_response",
        noised_by="client",
        bit_noise=None,
        bit_epsilon=1.5,
    )
    return answers(serve(LDP, clipper=clipper))


@pytest.mark.thorough
def test_flipped_bits_are_right_on_average_with_the_variance_of_the_flips(flipped):
    assert_mean(flipped, -2.0)
    f = flip_probability(1.5)
    variance = 10 * f * (1 - f) / (1 - 2 * f) ** 2
    assert flipped.std().item() == pytest.approx(math.sqrt(variance), rel=within(flipped))


@pytest.mark.parametrize("trust", TRUST)
def test_every_count_of_the_histogram_gets_the_same_noise(trust, serve):
    clipper = MedianHistogramClipper(0.2, update_interval=1, updates=3, bins=5)
    training = serve(TRUST[trust], clipper=clipper)
    heard = answers(training, rounds=30)
    assert heard.shape == (30, 1, 5)
    noise = heard - heard.mean(dim=0)
    assert entered(training, CLIP_STATISTIC) == pytest.approx(clipper.noise_std)
    assert std_of(noise) == pytest.approx(clipper.noise_std, rel=1.2 * within(noise))


@pytest.mark.parametrize("trust", TRUST)
def test_a_histogram_is_asked_for_in_the_rounds_planned_and_in_no_other(trust, serve):
    clipper = MedianHistogramClipper(0.2, update_interval=3, updates=2)
    training = serve(TRUST[trust], clipper=clipper)
    asked = []
    for round_index in range(8):
        training.play(round_index, sigma=SIGMA)
        asked.append(training.heard.released[-1] is not None)
    assert asked == [False, False, True, False, False, True, False, False]


@pytest.mark.parametrize("trust", TRUST)
def test_the_sensitivities_of_the_release_are_what_the_noise_was_scaled_by(trust, serve):
    training = serve(TRUST[trust], clipper=QuantileClipper(0.3))
    training.released(sigma=SIGMA)
    (release,) = training.releases
    names = {name: values.tolist() for name, values in release.sensitivity.items()}
    assert names == {GRADIENT: [pytest.approx(0.3)], CLIP_STATISTIC: [0.5]}
    for query in release.joint.queries:
        expected = query.noise_multiplier * names[query.name][0]
        assert entered(training, query.name) == pytest.approx(expected)


@pytest.mark.thorough
def test_the_bits_and_the_sum_have_noise_of_their_own(serve):
    training = serve(LDP, clipper=QuantileClipper(0.2, split=False))
    heard = answers(training, cohort=[0])[:, 0]
    first = torch.stack([mean[0] for mean in training.heard.means]).double()
    likeness = torch.corrcoef(torch.stack([heard, first]))[0, 1]
    assert abs(likeness) < 5 / math.sqrt(len(heard))


@pytest.mark.thorough
@pytest.mark.parametrize("reading", ["sound", "scalar"])
def test_adaptive_clipping_of_reports_is_noised_by_the_clients(reading, serve):
    clipper = AdapClipper(reading, initial_clip_norm=0.5, bit_noise=BIT)
    training = serve(LDP, clipper=clipper)
    heard = answers(training, cohort=range(4))
    std = BIT if reading == "sound" else SIGMA * 0.5
    assert entered(training, CLIP_STATISTIC) == pytest.approx(std)
    assert heard.std().item() == pytest.approx(std * math.sqrt(4), rel=within(heard))
