"""The noise that is really added: its size, its independence, and the clip norm it is scaled by."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from fedpriv.privacy.clippers import AdapClipper, AutomaticClipper, ConstantClipper
from fedpriv.privacy.core.sampling import PoissonSampling
from fedpriv.privacy.mechanisms import CLIP_STATISTIC, GRADIENT

CLIPPERS = {
    "constant": lambda: ConstantClipper(0.7),
    "automatic": AutomaticClipper,
    "sound": lambda: AdapClipper("sound"),
    "scalar": lambda: AdapClipper("scalar"),
    "vector": lambda: AdapClipper("vector"),
    "unclipped": lambda: AdapClipper("unclipped"),
}
ROUNDS, SIGMA = 15, 3.0
EMPTY = 1e-12  # a sampling rate at which every lot is empty


class Heard(AdapClipper):
    """Adaptive clipping that keeps the noised answers it is given."""

    def observe(self, holders, statistic, gradients, denominators):
        self.heard = None if statistic is None else statistic.values.clone()
        super().observe(holders, statistic, gradients, denominators)


def noises(computation, rounds: int = ROUNDS, **played) -> torch.Tensor:
    """Noise of the gradient sum in repetitions of one round under other noise seeds [rounds, m, d]."""
    exact, _ = computation.released(sigma=0.0, **played)
    samples = []
    for noise_seed in range(rounds):
        computation.noise_anew(noise_seed)
        samples.append(computation.released(sigma=SIGMA, **played)[0] - exact)
    return torch.stack(samples)


@pytest.mark.parametrize("name", CLIPPERS)
def test_the_noise_has_the_standard_deviation_that_the_ledger_enters(name, computation):
    training = computation(clipper=CLIPPERS[name]())
    for round_index in (0, 1):  # so that adaptive clip norms differ between clients
        training.play(round_index, sigma=SIGMA)
    noise = noises(training, round_index=2)
    _, outcome = training.released(round_index=2, sigma=SIGMA)
    norms = training.sensitivity(GRADIENT)
    assert (len(set(norms.tolist())) == 10) == (name in ("sound", "scalar", "vector", "unclipped"))
    assert np.array_equal(outcome.clip_norms, norms)
    entered = training.noise_std(GRADIENT)
    np.testing.assert_allclose(entered, SIGMA * norms.astype(float), rtol=1e-12)
    measured = noise.double().square().mean(dim=(0, 2)).sqrt()
    tolerance = 5 / math.sqrt(2 * ROUNDS * noise.shape[2])  # of a standard deviation, 5 sigma
    np.testing.assert_allclose(measured, entered, rtol=tolerance)


def test_the_noise_has_mean_zero(computation):
    noise = noises(computation(clipper=AdapClipper("scalar")))
    spread = noise.double().std()
    assert abs(noise.double().mean()) < 5 * spread / math.sqrt(noise.numel())


def test_the_noise_is_gaussian(computation):
    noise = noises(computation()).double().flatten() / SIGMA
    shares = [(noise.abs() < width).double().mean().item() for width in (1, 2, 3)]
    expected = [math.erf(width / math.sqrt(2)) for width in (1, 2, 3)]
    np.testing.assert_allclose(shares, expected, atol=5 / math.sqrt(len(noise)))


@pytest.mark.parametrize("name", ["sound", "scalar", "vector", "unclipped"])
def test_the_noise_of_a_round_is_scaled_by_the_clip_norm_that_clipped_in_it(name, computation):
    fast = {"alpha": 3.0, "quantile_learning_rate": 1.0, "bit_noise": 1.0}
    training = computation(clipper=AdapClipper(name, initial_clip_norm=0.5, **fast))
    noise = noises(training)
    training.play(sigma=SIGMA)
    next_norm = training.trainer.state_dict()["clipper"]["bounds"]
    measured = noise.double().square().mean(dim=(0, 2)).sqrt() / SIGMA
    assert ((next_norm / 0.5).log().abs() > 0.2).all()
    np.testing.assert_allclose(measured, 0.5, rtol=5 / math.sqrt(2 * ROUNDS * noise.shape[2]))


@pytest.mark.thorough
@pytest.mark.parametrize("reading", ["sound", "scalar"])
def test_the_clipping_statistic_gets_the_noise_that_the_ledger_charges(
    reading, computation, joint_of
):
    clipper = Heard(reading, initial_clip_norm=0.8, bit_noise=4.0)
    training = computation(clipper=clipper)
    joint = joint_of(training.algorithm, PoissonSampling(0.5), SIGMA, clipper)
    charged = {query.name: query.noise_multiplier for query in joint.queries}[CLIP_STATISTIC]
    answers = []
    repetitions = 100
    for noise_seed in range(repetitions):
        training.noise_anew(noise_seed)
        training.released(sigma=SIGMA)
        answers.append(clipper.heard)
    assert {release.joint for release in training.releases} == {joint}
    entered = training.noise_std(CLIP_STATISTIC)
    sensitivity = training.sensitivity(CLIP_STATISTIC).astype(float)
    np.testing.assert_allclose(entered, charged * sensitivity, rtol=1e-12)
    measured = torch.stack(answers).double().std(dim=0).numpy()
    np.testing.assert_allclose(measured, entered, rtol=5 / math.sqrt(2 * repetitions))
    pooled = np.sqrt(np.mean((measured / entered) ** 2))  # all clients together: far sharper
    assert abs(pooled - 1) < 5 / math.sqrt(2 * repetitions * len(entered))


def test_the_statistic_and_the_gradient_have_noise_of_their_own(computation):
    clipper = Heard("scalar", initial_clip_norm=1.0)
    training = computation(clipper=clipper, sample_rate=EMPTY)
    gradients, answers = [], []
    for noise_seed in range(100):
        training.noise_anew(noise_seed)
        gradients.append(training.released(sigma=SIGMA)[0][:, 0])
        answers.append(clipper.heard)
    pairs = torch.stack([torch.stack(gradients).flatten(), torch.stack(answers).flatten()])
    assert abs(torch.corrcoef(pairs)[0, 1]) < 5 / math.sqrt(pairs.shape[1])


def test_an_empty_lot_gets_noise(computation):
    released, outcome = computation(sample_rate=EMPTY).released(sigma=SIGMA)
    assert len(outcome.norms) == 0
    assert (released != 0).all()


def test_an_empty_lot_without_noise_is_zero(computation):
    released, _ = computation(sample_rate=EMPTY).released(sigma=0.0)
    assert (released == 0).all()


def test_a_round_of_empty_lots_is_healthy(computation):
    _, outcome = computation(sample_rate=EMPTY).released(sigma=SIGMA)
    assert outcome.healthy


def test_the_noise_of_a_client_does_not_depend_on_who_else_takes_part(computation):
    training = computation(sample_rate=EMPTY)
    together, _ = training.released(sigma=SIGMA)
    alone, _ = training.released(cohort=[3], sigma=SIGMA)
    few, _ = training.released(cohort=[0, 3, 9], sigma=SIGMA)
    assert torch.equal(together[3], alone[0])
    assert torch.equal(together[3], few[1])


def test_no_two_rounds_or_clients_share_noise(computation):
    training = computation(sample_rate=EMPTY)
    rows = torch.cat([training.released(round_index=r, sigma=SIGMA)[0] for r in range(30)])
    likeness = torch.corrcoef(rows) - torch.eye(len(rows))
    assert likeness.abs().max() < 7 / math.sqrt(rows.shape[1])


def test_no_two_local_steps_share_noise(computation):
    one, _ = computation(sample_rate=EMPTY).released(sigma=SIGMA)
    two, _ = computation(sample_rate=EMPTY, local_steps=2).released(sigma=SIGMA)
    first, second = one.flatten(), (two - one).flatten()
    likeness = torch.corrcoef(torch.stack([first, second]))[0, 1]
    assert abs(likeness) < 5 / math.sqrt(len(first))


def test_the_noise_seed_changes_the_noise(computation):
    a, _ = computation(noise_seed=0).released(sigma=SIGMA)
    b, _ = computation(noise_seed=1).released(sigma=SIGMA)
    assert (a != b).all()


def test_the_noise_seed_changes_nothing_but_the_noise(computation):
    a, _ = computation(noise_seed=0).released(sigma=0.0)
    b, _ = computation(noise_seed=1).released(sigma=0.0)
    assert torch.equal(a, b)


def test_the_seed_does_not_change_the_noise_of_a_given_noise_seed(computation):
    a, _ = computation(seed=0, sample_rate=EMPTY).released(sigma=SIGMA)
    b, _ = computation(seed=1, sample_rate=EMPTY).released(sigma=SIGMA)
    assert torch.equal(a, b)


def test_the_noise_does_not_depend_on_the_data(computation):
    """Subtracting two runs that differ in their lots leaves the difference of the exact sums."""
    loud, silent = [], []
    for seed in (0, 1):
        training = computation(seed=seed)
        loud.append(training.released(sigma=SIGMA)[0])
        silent.append(training.released(sigma=0.0)[0])
    on_grid = 2 * SIGMA * 2.0**-14  # each is rounded to a grid of std 2^-14
    np.testing.assert_allclose(loud[0] - loud[1], silent[0] - silent[1], atol=on_grid)


def test_the_noise_of_one_client_is_the_stream_named_by_its_coordinates(computation):
    training = computation(sample_rate=EMPTY, noise_seed=5)
    released, _ = training.released(round_index=4, cohort=[2], sigma=1.0)
    stream = training.context.streams.noise(GRADIENT, 4, 0, 2)
    expected = stream.standard_normal(released.shape[1])
    np.testing.assert_allclose(released[0], expected, atol=2.0**-14)  # the grid's width
