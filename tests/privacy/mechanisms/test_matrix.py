"""The matrix mechanism: noise by its strategy, one charge, and nobody out of turn."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from checkpoints import saved
from dp_accounting import dp_event

from fedpriv.algorithms import DpFtrl
from fedpriv.common.errors import ConfigError, ReleaseError
from fedpriv.common.secret_streams import SecretStreams
from fedpriv.privacy.clippers import ConstantClipper
from fedpriv.privacy.core.names import ZERO_OUT
from fedpriv.privacy.matrix.participation import MinSeparation
from fedpriv.privacy.mechanisms import GRADIENT
from fedpriv.privacy.mechanisms.attendance import Attendance
from fedpriv.privacy.mechanisms.bounded import clipped_sum
from fedpriv.privacy.mechanisms.matrix import MatrixMechanism
from fedpriv.privacy.noise_schedules import ConstantNoise, ExponentialNoise, ValidationDecay

ROUNDS, REST, CLIENTS, SIGMA, CLIP = 12, 4, 8, 2.5, 0.5
STREAMS = SecretStreams.simulated(0, 0)
STRATEGIES = ("identity", "tree", "banded_toeplitz", "banded", "blt")


def algorithm(**keys) -> DpFtrl:
    return DpFtrl("dp_ftrl", **{"rounds": ROUNDS, "min_separation": REST, **keys})


def mechanism(chosen: DpFtrl | None = None, schedule=None, clipper=None) -> MatrixMechanism:
    chosen = chosen or algorithm()
    schedule = schedule or ConstantNoise(SIGMA)
    made = chosen.mechanism(clipper or ConstantClipper(CLIP), schedule)
    made.join(np.full(CLIENTS, 10))
    return made


def release(made: MatrixMechanism, t: int, size: int = 3, clip: float = CLIP, cohort=()):
    """Round t of sums that are 0 → (what is released [d], the charged releases)."""
    opened = made.open(made.announce(t), np.array(cohort, dtype=int), STREAMS)
    zeros = torch.zeros(1, size, dtype=torch.float64)
    answer = clipped_sum(zeros, torch.tensor([clip], dtype=torch.float64))
    values = opened.release({GRADIENT: answer})[GRADIENT].values[0].clone()
    return values, opened.close()


@pytest.fixture(params=STRATEGIES)
def strategy(request) -> str:
    return request.param


def test_the_strategy_makes_what_is_released_white(strategy):
    """C applied to the noise of all rounds is independent, of the standard deviation that is charged."""
    made = mechanism(algorithm(strategy=strategy))
    noise = torch.stack([release(made, t, size=40_000)[0] for t in range(ROUNDS)]).numpy()
    noising = made.correlation.strategy.noising()
    half = np.linalg.cholesky(noising @ noising.T)  # C^-1 itself where C is square
    white = np.linalg.solve(half, noise) / (SIGMA * CLIP)
    covariance = white @ white.T / white.shape[1]
    assert np.abs(covariance - np.eye(ROUNDS)).max() < 5 * np.sqrt(2 / white.shape[1])


def test_the_noise_of_the_identity_is_independent_noise():
    made = mechanism(algorithm(strategy="identity"))
    for t in range(3):
        drawn = STREAMS.noise("gradient_sum_of_all", t).standard_normal(5) * SIGMA * CLIP
        assert release(made, t, size=5)[0].numpy() == pytest.approx(drawn, abs=1e-3)


def test_the_whole_run_is_charged_in_its_first_round(strategy):
    made = mechanism(algorithm(strategy=strategy))
    charges = [release(made, t)[1] for t in range(ROUNDS)]
    assert [len(charge) for charge in charges] == [1] + [0] * (ROUNDS - 1)
    (first,) = charges[0]
    sensitivity = made.correlation.strategy.sensitivity(made.correlation.participation)
    assert first.joint.event() == dp_event.GaussianDpEvent(SIGMA / sensitivity)
    assert first.joint.sampling.neighbours == ZERO_OUT
    assert first.clients.tolist() == list(range(CLIENTS))
    assert first.noise_std[GRADIENT] == pytest.approx(SIGMA * CLIP)
    assert [made.announce(t).groups[0].event()[1] for t in (0, 1, ROUNDS - 1)] == [1, 0, 0]


def test_the_plan_is_what_is_charged():
    made = mechanism()
    sampling = made.algorithm.sampling_of(10)
    (planned,) = made.plan(sampling, SIGMA, ROUNDS).items()
    (charge,) = release(made, 0)[1]
    assert planned == (charge.joint, charge.count)


def test_poisson_turns_are_charged_as_sampled_gaussians():
    """ceil(n/b) Poisson-sampled Gaussians of multiplier σ / largest column norm."""
    made = mechanism(
        algorithm(participation="cyclic_poisson", client_rate=0.25, rounds=10, min_separation=4)
    )
    (charge,) = release(made, 0)[1]
    norm = np.linalg.norm(made.correlation.strategy.matrix(), axis=0).max()
    gaussian = dp_event.GaussianDpEvent(SIGMA / norm)
    assert charge.joint.event() == dp_event.PoissonSampledDpEvent(0.25, gaussian)
    assert charge.count == 3


def test_a_mechanism_restored_goes_on_bit_for_bit(strategy):
    whole, half = (mechanism(algorithm(strategy=strategy)) for _ in range(2))
    expected = [release(whole, t, cohort=[t % REST])[0] for t in range(ROUNDS)]
    for t in range(5):
        release(half, t, cohort=[t % REST])
    again = mechanism(algorithm(strategy=strategy))
    again.load_state_dict(half.state_dict())
    for t in range(5, ROUNDS):
        assert torch.equal(release(again, t, cohort=[t % REST])[0], expected[t])
    assert (again.attendance.count == whole.attendance.count).all()


def test_another_strategy_does_not_go_on_with_the_noise_of_one():
    made = mechanism(algorithm(strategy="blt"))
    with pytest.raises(ConfigError, match="came out with other numbers"):
        mechanism(algorithm(strategy="tree")).load_state_dict(made.state_dict())


def test_a_client_out_of_turn_stops_the_run_before_its_release():
    made = mechanism()
    release(made, 0, cohort=[2, 3])
    release(made, 1, cohort=[4])
    with pytest.raises(ReleaseError, match="round 3: client 3 was in round 1 and in 1 so far"):
        made.open(made.announce(2), np.array([3, 5]), STREAMS)
    assert made.attendance.count.tolist() == [0, 0, 1, 1, 1, 0, 0, 0]
    assert made._stream.round == 2


def test_a_client_that_was_in_too_many_rounds_stops_the_run():
    attendance = Attendance(MinSeparation(1, most=2), 3)
    attendance.enter(0, np.array([0]))
    attendance.enter(1, np.array([0, 1]))
    with pytest.raises(ReleaseError, match="client 0 was in round 2 and in 2 so far"):
        attendance.enter(2, np.array([0]))


def test_a_round_that_is_left_out_stops_the_run():
    made = mechanism()
    release(made, 0)
    with pytest.raises(ReleaseError, match="the noise stream is at round 2"):
        release(made, 2)


def test_another_clip_norm_stops_the_run():
    made = mechanism()
    release(made, 0)
    with pytest.raises(ReleaseError, match=r"the clip norm is 0\.6 and was 0\.5"):
        release(made, 1, clip=0.6)


def test_a_strategy_that_was_not_charged_stops_the_run():
    made = mechanism()
    announcement = made.announce(0)
    other = mechanism(algorithm(strategy="blt"))
    opened = other.open(announcement, np.array([0]), STREAMS)
    answer = clipped_sum(torch.zeros(1, 3, dtype=torch.float64), torch.tensor([CLIP]).double())
    with pytest.raises(ReleaseError, match="not the one that was charged for"):
        opened.release({GRADIENT: answer})


def test_a_round_beyond_the_strategy_stops_the_run():
    made = mechanism()
    with pytest.raises(ReleaseError, match="round 13: the strategy is for 12 rounds"):
        made.open(made.announce(ROUNDS), np.array([0]), STREAMS)


@pytest.mark.parametrize(
    ("schedule", "words"),
    [
        (ValidationDecay(4.0, 0.9), "fixed in advance"),
        (ExponentialNoise(4.0, 0.9), "the same noise multiplier in every round"),
    ],
)
def test_what_moves_with_the_data_or_the_round_is_refused(schedule, words):
    made = algorithm().mechanism(ConstantClipper(CLIP), schedule)
    with pytest.raises(ConfigError, match=words):
        made.plan(made.algorithm.sampling_of(10), SIGMA, ROUNDS)


def test_who_was_when_goes_on_as_it_was():
    attendance = Attendance(MinSeparation(2), 100_000)
    attendance.enter(0, np.arange(0, 100_000, 3))
    attendance.enter(200, np.arange(0, 100_000, 2))
    state = attendance.state_dict()
    again = Attendance(MinSeparation(2), 100_000)
    again.load_state_dict(saved(state))
    for name in ("last", "count"):
        assert getattr(again, name).dtype == np.int64
        np.testing.assert_array_equal(getattr(again, name), getattr(attendance, name))
