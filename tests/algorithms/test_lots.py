"""Who is in a lot: the sampling rate, fresh lots for every round, client and step, denominators."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from fedpriv.privacy.clippers import ConstantClipper

HUGE = 1e9  # a clip norm that clips nothing


def test_the_share_of_records_in_the_lots_is_the_sample_rate(computation):
    training = computation(sample_rate=0.1)
    total = len(training.context.data.train)
    rounds = 60
    sampled = sum(len(training.released(r)[1].norms) for r in range(rounds))
    deviation = math.sqrt(0.1 * 0.9 / (rounds * total))
    assert abs(sampled / (rounds * total) - 0.1) < 5 * deviation


@pytest.mark.thorough
def test_every_record_joins_about_equally_often(computation, numbered, lots_of):
    training = computation(data=numbered(40, 60), sample_rate=0.3)
    counts = np.zeros(100)
    rounds = 120
    for r in range(rounds):
        training.released(r)
        for lot in lots_of(training):
            counts[list(lot)] += 1
    deviation = math.sqrt(rounds * 0.3 * 0.7)
    assert np.abs(counts - 0.3 * rounds).max() < 5 * deviation


def test_the_size_of_a_lot_varies_as_independent_coins_do(computation):
    training = computation(sample_rate=0.5)
    sizes = [len(training.released(r)[1].norms) for r in range(150)]
    expected = len(training.context.data.train) * 0.25
    assert 0.6 * expected < np.var(sizes) < 1.6 * expected


def test_two_records_join_independently_of_each_other(computation, numbered, lots_of):
    training = computation(data=numbered(2, 2), sample_rate=0.5)
    both = 0
    for r in range(300):
        training.released(r)
        both += lots_of(training)[0] == {0, 1}
    assert abs(both / 300 - 0.25) < 5 * math.sqrt(0.25 * 0.75 / 300)


def test_lots_hold_only_records_of_their_client(computation, numbered, lots_of):
    training = computation(data=numbered(30, 50, 20), sample_rate=0.5)
    training.play()
    own = [set(range(30)), set(range(30, 80)), set(range(80, 100))]
    assert all(lot <= records for lot, records in zip(lots_of(training), own, strict=True))


def test_lots_differ_between_rounds(computation, numbered, lots_of):
    training = computation(data=numbered(100), sample_rate=0.5)
    seen = []
    for r in range(20):
        training.released(r)
        seen.append(frozenset(lots_of(training)[0]))
    assert len(set(seen)) == 20


def test_lots_differ_between_clients(computation, numbered, lots_of):
    training = computation(data=numbered(100, 100), sample_rate=0.5)
    training.play()
    first, second = lots_of(training)
    assert first != {number - 100 for number in second}


def test_lots_differ_between_local_steps(computation, numbered, lots_sampled):
    computation(data=numbered(100), sample_rate=0.5, local_steps=2).play()
    first, second = lots_sampled
    assert first != second


def test_the_lot_of_a_client_does_not_depend_on_who_else_takes_part(computation, numbered, lots_of):
    training = computation(data=numbered(50, 50, 50), sample_rate=0.5)
    training.released()
    together = lots_of(training)[2]
    training.released(cohort=[2])
    assert lots_of(training)[0] == together


def test_seed_zero_and_seed_one_sample_other_lots(computation, numbered, lots_of):
    lots = []
    for seed in (0, 1):
        training = computation(data=numbered(100), sample_rate=0.5, seed=seed)
        training.play()
        lots.append(lots_of(training))
    assert lots[0] != lots[1]


def test_the_noise_seed_does_not_change_the_lots(computation, numbered, lots_of):
    lots = []
    for noise_seed in (0, 1):
        training = computation(data=numbered(100), sample_rate=0.5, noise_seed=noise_seed)
        training.play(sigma=1.0)
        lots.append(lots_of(training))
    assert lots[0] == lots[1]


def test_lots_of_fixed_size_all_have_that_size(computation, numbered, lots_of):
    training = computation(data=numbered(40, 60), sample_rate=0.25, sampling="fixed_size")
    for r in range(5):
        training.released(r)
        assert [len(lot) for lot in lots_of(training)] == [10, 15]


def test_capped_lots_never_exceed_the_cap_and_keep_their_denominator(
    computation, numbered, lots_of
):
    training = computation(data=numbered(40, 60), sample_rate=0.5, max_lot_size=18)
    sizes = []
    for r in range(30):
        training.released(r)
        sizes += [len(lot) for lot in lots_of(training)]
    assert max(sizes) == 18
    assert min(sizes) < 18


def naive_sums(training, lots: list[set[int]]) -> torch.Tensor:
    """Gradient of the summed loss of each lot [K, d], by autograd."""
    model, records = training.context.model, training.context.data.train
    sums = []
    for lot in lots:
        index = torch.tensor(sorted(lot))
        outputs = model.module(records.inputs[index])
        loss = torch.nn.functional.cross_entropy(outputs, records.targets[index], reduction="sum")
        gradients = torch.autograd.grad(loss, model.parameters())
        sums.append(torch.cat([g.reshape(-1) for g in gradients]))
    return torch.stack(sums)


def test_the_denominator_is_q_times_the_records_not_the_size_of_the_lot(
    computation, numbered, lots_of
):
    training = computation(
        data=numbered(30, 50, 20), sample_rate=0.4, clipper=ConstantClipper(HUGE)
    )
    start = training.weights.clone()
    uploads, _ = training.play()
    training.context.model.set(start)
    lots = lots_of(training)
    assert [len(lot) for lot in lots] != [12, 20, 8]
    expected = -naive_sums(training, lots) / torch.tensor([[12.0], [20.0], [8.0]])
    np.testing.assert_allclose(uploads, expected, rtol=1e-4, atol=1e-6)


def test_the_denominator_of_lots_of_fixed_size_is_that_size(computation, numbered, lots_of):
    training = computation(
        data=numbered(41), sample_rate=0.25, sampling="fixed_size", clipper=ConstantClipper(HUGE)
    )
    start = training.weights.clone()
    uploads, _ = training.play()
    training.context.model.set(start)
    expected = -naive_sums(training, lots_of(training)) / 10.0
    np.testing.assert_allclose(uploads, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("cohort", [[0, 1, 2], [0, 2], [1]])
def test_uploads_are_averaged_by_the_records_of_those_who_take_part(cohort, computation, numbered):
    sizes = np.array([30, 50, 20])
    training = computation(data=numbered(*sizes))
    start = training.weights.clone()
    uploads, _ = training.play(cohort=cohort)
    share = torch.tensor(sizes[cohort] / sizes[cohort].sum(), dtype=torch.float32)
    np.testing.assert_allclose(training.weights - start, share @ uploads, rtol=1e-4, atol=1e-7)


def test_a_round_is_federated_sgd_when_nothing_is_clipped_and_noise_is_tiny(computation, digits):
    """w <- w - η Σ_k p_k ∇F_k(w) with the whole data in every lot."""
    training = computation(clipper=ConstantClipper(HUGE), sample_rate=1.0, learning_rate=0.3)
    model, start = training.context.model, training.weights.clone()
    lots = [set(own.tolist()) for own in digits.clients]
    sizes = torch.tensor(digits.records_per_client, dtype=torch.float32)
    gradients = naive_sums(training, lots) / sizes[:, None]
    expected = start - 0.3 * (sizes / sizes.sum()) @ gradients
    training.play(sigma=1e-15)
    np.testing.assert_allclose(model.flat, expected, rtol=1e-4, atol=1e-6)
