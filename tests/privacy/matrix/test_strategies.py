"""What every strategy promises: its noise, its sensitivity and its errors, against dense matrices."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from law_examples import examples
from small_strategies import NAMES, largest_over, patterns, small

from fedpriv.privacy.matrix.participation import Cyclic, MinSeparation, OncePerEpoch
from fedpriv.privacy.matrix.strategy import bound_on_sensitivity, error
from fedpriv.privacy.matrix.workload import MAX, MEAN, Workload


def dense_workload(workload: Workload) -> np.ndarray:
    """A by its definition: what the unit vector of round i moves in the iterate of round t."""
    rounds = workload.rounds
    matrix = np.zeros((rounds, rounds))
    for i in range(rounds):
        velocity = position = 0.0
        for t in range(rounds):
            velocity = workload.momentum * velocity + (t == i)
            left = (rounds - t) / (workload.cooldown + 1)
            position += min(1.0, left) * velocity
            matrix[t, i] = position
    return matrix


def streamed(strategy, draws: np.ndarray) -> np.ndarray:
    rows, stream = iter(draws), strategy.stream()
    return np.stack([stream.next(lambda: next(rows).copy()) for _ in range(strategy.rounds)])


@settings(max_examples=examples(25))
@given(
    name=st.sampled_from(NAMES),
    rounds=st.integers(1, 24),
    size=st.integers(1, 9),
    seed=st.integers(0, 99),
)
def test_the_stream_is_the_inverse_applied_to_independent_noise(name, rounds, size, seed):
    strategy = small(name, rounds, min(size, rounds))
    matrix = strategy.matrix()
    draws = np.random.default_rng(seed).normal(size=(len(matrix), 3))
    found = streamed(strategy, draws)
    if matrix.shape[0] == matrix.shape[1]:
        assert found == pytest.approx(np.linalg.solve(matrix, draws), abs=1e-9)
    else:  # more rows than rounds: it is one of the inverses, C^+ C = 1
        assert strategy.noising() @ matrix == pytest.approx(np.eye(rounds), abs=1e-9)
        assert found == pytest.approx(strategy.noising() @ draws, abs=1e-9)


def test_the_noise_on_tensors_is_that_on_arrays(name):
    strategy = small(name, 13, 4)
    draws = np.random.default_rng(0).normal(size=(len(strategy.matrix()), 5))
    rows, stream = iter(torch.from_numpy(draws)), strategy.stream()
    found = torch.stack([stream.next(lambda: next(rows).clone()) for _ in range(13)])
    assert found.numpy() == pytest.approx(streamed(strategy, draws), rel=1e-12)


def test_a_stream_restored_goes_on_bit_for_bit(name):
    strategy = small(name, 21, 5)
    draws = np.random.default_rng(1).normal(size=(len(strategy.matrix()), 4))
    whole = streamed(strategy, draws)
    for stop in (0, 1, 7, 20):
        rows, stream = iter(draws), strategy.stream()
        for _ in range(stop):
            stream.next(lambda rows=rows: next(rows).copy())
        again = strategy.stream()
        again.load_state_dict(stream.state_dict())
        for t in range(stop, 21):
            assert (again.next(lambda rows=rows: next(rows).copy()) == whole[t]).all()


@pytest.mark.parametrize(
    ("name", "most"),
    [("identity", 0), ("banded_toeplitz", 7), ("banded", 7), ("blt", 1), ("tree", 4)],
)
def test_a_stream_holds_few_vectors(name, most):
    strategy = small(name, 64, 8)
    stream, held = strategy.stream(), 0
    for _ in range(64):
        stream.next(lambda: np.zeros(1))
        held = max(held, len(stream.held))
    assert held == most


@pytest.mark.few(38)
@pytest.mark.parametrize("most", [None, 1, 2])
@pytest.mark.parametrize("separation", [1, 2, 4])
@pytest.mark.parametrize("kind", [MinSeparation, Cyclic, OncePerEpoch])
def test_no_pattern_moves_the_sum_further_than_the_sensitivity(name, kind, separation, most):
    strategy, participation = small(name, 10, 4), kind(separation, most)
    gram = strategy.matrix().T @ strategy.matrix()
    worst = largest_over(gram, participation)
    stated = strategy.sensitivity(participation)
    assert stated >= worst * (1 - 1e-12)
    assert stated <= 1.6 * worst  # an upper bound, and no far one
    exact = strategy.bands <= participation.apart or name in ("banded_toeplitz", "blt", "identity")
    if exact and kind is not OncePerEpoch:
        assert stated == pytest.approx(worst)


@settings(max_examples=examples(20))
@given(seed=st.integers(0, 999), separation=st.integers(1, 4), most=st.integers(1, 3))
def test_the_bound_holds_for_any_matrix_and_any_directions(seed, separation, most):
    stream = np.random.default_rng(seed)
    matrix, participation = np.tril(stream.normal(size=(7, 7))), MinSeparation(separation, most)
    bound = bound_on_sensitivity(matrix.T @ matrix, participation)
    for pattern in patterns(participation, 7):
        signs = stream.choice([-1.0, 1.0], size=(20, len(pattern)))
        assert np.linalg.norm(signs @ matrix[:, pattern].T, axis=1).max() <= bound * (1 + 1e-12)


@pytest.mark.parametrize(
    "workload", [Workload(12), Workload(12, 0.8), Workload(12, 0.8, 5), Workload(12, 0.0, 12)]
)
def test_errors_are_the_norms_of_the_rows(name, workload):
    strategy = small(name, 12, 4)
    rows = dense_workload(workload) @ strategy.noising()
    assert strategy.errors(workload) == pytest.approx((rows**2).sum(axis=1))
    sensitivity = strategy.sensitivity(MinSeparation(4))
    wanted = sensitivity * np.sqrt((rows**2).sum(axis=1).max())
    assert error(strategy, MinSeparation(4), workload, MAX) == pytest.approx(wanted)


@pytest.mark.parametrize("workload", [Workload(12), Workload(12, 0.8, 5)])
def test_the_workload_is_the_servers_optimizer(workload):
    values = np.random.default_rng(3).normal(size=(12, 2))
    dense = dense_workload(workload)
    assert workload.apply(values) == pytest.approx(dense @ values)
    assert workload.apply_transposed(values) == pytest.approx(dense.T @ values)


def test_the_covariance_of_the_noise_is_that_of_the_inverse(name):
    strategy = small(name, 8, 4)
    draws = np.random.default_rng(5).normal(size=(len(strategy.matrix()), 200_000))
    found = np.cov(streamed(strategy, draws))
    wanted = strategy.noising() @ strategy.noising().T
    assert np.abs(found - wanted).max() < 0.02 * wanted.diagonal().max()


@pytest.mark.parametrize("objective", [MEAN, MAX])
def test_correlated_noise_is_better_than_independent(objective):
    rest, workload = MinSeparation(16), Workload(64)
    errors = {
        name: error(small(name, 64, 16), rest, workload, objective)
        for name in ("identity", "tree", "blt", "banded_toeplitz")
    }
    assert errors["identity"] > errors["tree"] > errors["blt"] > errors["banded_toeplitz"]


def test_another_strategy_has_another_digest():
    kinds = [small(name, 12, size) for name in NAMES for size in (3, 4) if name != "identity"]
    assert len({strategy.digest() for strategy in kinds}) == len(kinds)
