"""The settings of the algorithms and who takes part in a round."""

from __future__ import annotations

import numpy as np
import pytest

from fedpriv.algorithms import DpFl, FedAvg
from fedpriv.common.errors import ArgumentError
from fedpriv.common.secret_streams import SecretStreams
from fedpriv.privacy.clippers import AdapClipper, ConstantClipper
from fedpriv.privacy.core.sampling import PoissonSampling
from fedpriv.privacy.mechanisms import CLIP_STATISTIC, GRADIENT

EVERYONE = np.ones(10, dtype=bool)


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("sample_rate", 0), ("sample_rate", 1.5), ("sample_rate", "half"), ("sample_rate", True),
        ("sampling", "poison"), ("optimizer", "adagrad"), ("optimizer_state", "lost"),
        ("learning_rate", 0), ("learning_rate", float("nan")), ("local_steps", 0),
        ("local_steps", 1.5), ("participation", "some"), ("clients_per_round", 3), ("max_lot_size", 0),
        ("name", ""),
    ],
)  # fmt: skip
@pytest.mark.parametrize("algorithm", [DpFl, FedAvg])
def test_a_setting_that_is_not_allowed_is_named(algorithm, argument, value):
    with pytest.raises(ArgumentError) as error:
        algorithm(**{"name": "mine", "sample_rate": 0.1, argument: value})
    assert error.value.argument == argument


def test_sampled_participation_needs_the_number_of_clients():
    with pytest.raises(ArgumentError) as error:
        DpFl("mine", 0.1, participation="sampled")
    assert error.value.argument == "clients_per_round"


def test_all_who_may_take_part_do():
    algorithm = DpFl("mine", 0.1)
    eligible = EVERYONE.copy()
    eligible[[2, 5]] = False
    assert algorithm.cohort(SecretStreams.simulated(0, 0), 0, eligible).tolist() == [
        0,
        1,
        3,
        4,
        6,
        7,
        8,
        9,
    ]


def test_a_sampled_cohort_has_its_size_and_only_those_who_may():
    algorithm = DpFl("mine", 0.1, participation="sampled", clients_per_round=3)
    eligible = EVERYONE.copy()
    eligible[[2, 5]] = False
    for round_index in range(50):
        cohort = algorithm.cohort(SecretStreams.simulated(0, 0), round_index, eligible)
        assert len(set(cohort)) == 3
        assert not {2, 5} & set(cohort.tolist())
        assert list(cohort) == sorted(cohort)


def test_every_client_is_sampled_about_equally_often():
    algorithm = DpFl("mine", 0.1, participation="sampled", clients_per_round=3)
    cohorts = [algorithm.cohort(SecretStreams.simulated(0, 0), r, EVERYONE) for r in range(1000)]
    counts = np.bincount(np.concatenate(cohorts), minlength=10)
    assert np.abs(counts - 300).max() < 5 * np.sqrt(1000 * 0.3 * 0.7)


def test_cohorts_are_a_function_of_the_seed_and_the_round():
    algorithm = DpFl("mine", 0.1, participation="sampled", clients_per_round=3)
    first = [
        algorithm.cohort(SecretStreams.simulated(0, 0), r, EVERYONE).tolist() for r in range(20)
    ]
    assert first == [
        algorithm.cohort(SecretStreams.simulated(0, 0), r, EVERYONE).tolist() for r in range(20)
    ]
    assert first != [
        algorithm.cohort(SecretStreams.simulated(1, 0), r, EVERYONE).tolist() for r in range(20)
    ]


def test_when_fewer_may_than_are_asked_for_they_all_take_part():
    algorithm = DpFl("mine", 0.1, participation="sampled", clients_per_round=3)
    eligible = np.zeros(10, dtype=bool)
    eligible[[4, 7]] = True
    assert algorithm.cohort(SecretStreams.simulated(0, 0), 0, eligible).tolist() == [4, 7]


def test_a_cohort_larger_than_the_federation_is_refused():
    with pytest.raises(ArgumentError):
        DpFl("mine", 0.1, participation="sampled", clients_per_round=11).check_clients(10)


def test_fedavg_releases_nothing_that_is_accounted(computation):
    training = computation(algorithm=FedAvg("fedavg", 0.1))
    training.play(sigma=1.0)
    assert training.context.mechanism.announce(1).groups == ()
    assert training.releases == ()


@pytest.mark.parametrize(
    ("clipper", "expected"),
    [
        (ConstantClipper(1.0), {GRADIENT: 3.0}),
        (AdapClipper("vector"), {GRADIENT: 3.0}),
        (AdapClipper("scalar"), {GRADIENT: 3.0, CLIP_STATISTIC: 3.0}),
        (AdapClipper("sound", bit_noise=20.0), {GRADIENT: 3.0, CLIP_STATISTIC: 40.0}),
        (AdapClipper("unclipped"), {GRADIENT: 3.0, CLIP_STATISTIC: 0.0}),
    ],
    ids=["constant", "vector", "scalar", "sound", "unclipped"],
)
def test_a_joint_query_lists_every_query_answered_on_the_lot(clipper, expected, joint_of):
    joint = joint_of(DpFl("mine", 0.1), PoissonSampling(0.1), 3.0, clipper)
    assert {query.name: query.noise_multiplier for query in joint.queries} == expected


def test_the_plan_says_who_takes_part():
    sampled = DpFl("mine", 0.1, participation="sampled", clients_per_round=3)
    assert dict(sampled.describe(10, 100))["each round"].startswith("3 clients, sampled")
    assert dict(DpFl("mine", 0.1).describe(10, 100))["each round"].startswith("all clients")
