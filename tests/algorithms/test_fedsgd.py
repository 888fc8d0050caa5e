"""FedSGD and the reports of LDP-FedSGD: the step, the lots, the clipping, the seeds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from law_examples import examples

from fedpriv.algorithms import FedSgd, LdpFedSgd
from fedpriv.algorithms import upload_computation as module
from fedpriv.models import Cnn, Mlp
from fedpriv.privacy.clippers import (
    AutomaticClipper,
    ConstantClipper,
    NoClipper,
    PolynomialClipper,
    QuantileClipper,
)
from fedpriv.privacy.core.sampling import PoissonSampling
from fedpriv.privacy.mechanisms import GRADIENT

MODELS = {"logistic": None, "mlp": Mlp(seed=0), "cnn": Cnn(seed=0)}
RATE = 0.3
ROUNDING = 1 + 1e-5


def fedsgd(**settings) -> FedSgd:
    return FedSgd("fedsgd", **{"learning_rate": RATE, **settings})


def ldp(**settings) -> LdpFedSgd:
    return LdpFedSgd("ldp_fedsgd", **{"learning_rate": RATE, **settings})


# ---- the step


@pytest.mark.parametrize("model", MODELS)
def test_the_step_is_the_mean_of_the_clients_gradients(model, serve, ragged, gradient_of):
    training = serve(fedsgd(), data=ragged, clipper=NoClipper(), model=MODELS[model])
    gradients = [gradient_of(training, own) for own in ragged.clients]
    expected = training.weights - RATE * torch.stack(gradients).mean(dim=0)
    training.play()
    torch.testing.assert_close(training.weights, expected, rtol=1e-5, atol=1e-6)


def test_a_client_with_many_records_counts_as_much_as_one_with_few(serve, ragged, gradient_of):
    """The mean is over clients, not over records."""
    training = serve(fedsgd(), data=ragged, clipper=NoClipper())
    released, _ = training.released(cohort=[0, 4])
    expected = gradient_of(training, ragged.clients[0]) + gradient_of(training, ragged.clients[4])
    torch.testing.assert_close(released, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("cohort", [[3], [0, 5], [1, 2, 4]])
def test_a_step_of_some_clients_is_divided_by_how_many_they_are(cohort, serve, ragged, gradient_of):
    training = serve(fedsgd(), data=ragged, clipper=NoClipper())
    gradients = [gradient_of(training, ragged.clients[k]) for k in cohort]
    expected = training.weights - RATE / len(cohort) * torch.stack(gradients).sum(dim=0)
    training.play(cohort=cohort)
    torch.testing.assert_close(training.weights, expected, rtol=1e-5, atol=1e-6)


def test_the_second_step_begins_where_the_first_one_ended(serve, ragged, gradient_of):
    training = serve(fedsgd(), data=ragged, clipper=NoClipper())
    training.play()
    gradients = [gradient_of(training, own) for own in ragged.clients]
    expected = training.weights - RATE * torch.stack(gradients).mean(dim=0)
    training.play(1)
    torch.testing.assert_close(training.weights, expected, rtol=1e-5, atol=1e-6)


def test_the_train_loss_is_the_mean_over_the_records_that_were_read(serve, ragged):
    training = serve(fedsgd(), data=ragged, clipper=NoClipper())
    everything = ragged.train.subset(np.concatenate(ragged.clients))
    expected, _ = training.context.model.evaluate(everything.inputs, everything.targets)
    assert training.play().train_loss == pytest.approx(expected, rel=1e-5)


def test_adam_at_the_server_is_the_adam_of_torch(serve, ragged, gradient_of):
    training = serve(fedsgd(optimizer="adam"), data=ragged, clipper=NoClipper())
    weights = training.weights.clone().requires_grad_()
    torchs = torch.optim.Adam([weights], lr=RATE)
    for round_index in range(5):
        gradients = [gradient_of(training, own) for own in ragged.clients]
        weights.grad = torch.stack(gradients).mean(dim=0)
        torchs.step()
        training.play(round_index)
        torch.testing.assert_close(training.weights, weights.detach(), rtol=1e-4, atol=1e-5)


# ---- lots


def test_a_lot_is_divided_by_its_expected_size(serve, ragged, gradient_of):
    rate = 0.3
    training = serve(fedsgd(sample_rate=rate), data=ragged, clipper=NoClipper(), seed=4)
    for round_index in range(3):
        training.released(round_index)
        for k, own in enumerate(ragged.clients):
            stream = training.context.streams.sampling("lot", round_index, 0, k)
            lot = own[PoissonSampling(rate).sample(stream, len(own))]
            expected = torch.zeros_like(training.weights)
            if len(lot):
                expected = gradient_of(training, lot) * len(lot) / (rate * len(own))
            torch.testing.assert_close(
                training.uploads[-1][k], expected, rtol=1e-4, atol=1e-5, msg=f"client {k}"
            )


@pytest.mark.thorough
def test_the_gradient_of_a_lot_is_right_on_average(serve, digits):
    """Over many rounds: the mean upload is the gradient of the whole data."""
    lots = serve(fedsgd(sample_rate=0.2), data=digits, clipper=NoClipper())
    whole = serve(fedsgd(), data=digits, clipper=NoClipper())
    exact = whole.released(cohort=[0])[0]
    found = torch.stack([lots.released(t, cohort=[0])[0] for t in range(300)])
    error = (found.mean(dim=0) - exact).norm()
    expected = (found.var(dim=0).sum() / len(found)).sqrt()
    assert 0.5 * expected < error < 2 * expected


def test_an_empty_lot_is_an_upload_of_zero(serve, ragged):
    training = serve(ldp(sample_rate=1e-9), data=ragged)
    released, outcome = training.released()
    assert not released.any()
    assert outcome.healthy


def test_an_empty_lot_gets_the_noise_of_any_other(serve, ragged):
    released, _ = serve(ldp(sample_rate=1e-9), data=ragged).released(sigma=2.0)
    assert (released != 0).all()


# ---- clipping


CLIPPERS = {
    "constant": lambda: ConstantClipper(0.3),
    "automatic": AutomaticClipper,
    "poly": lambda: PolynomialClipper(0.4, horizon=10),
    "quantile": lambda: QuantileClipper(0.2),
}


@pytest.mark.parametrize("name", CLIPPERS)
@settings(max_examples=examples(10), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(size=st.floats(1e-6, 1e9), client=st.integers(0, 5), round_index=st.integers(0, 9))
def test_no_upload_counts_for_more_than_the_clip_norm(
    name, size, client, round_index, serve, ragged
):
    training = serve(
        ldp(), data=ragged, clipper=CLIPPERS[name](), attack=lambda *sent: size * sent[-1]
    )
    released, _ = training.released(round_index, cohort=[client])
    assert released.norm() <= training.sensitivity(GRADIENT)[0] * ROUNDING


def test_a_sum_of_m_uploads_is_at_most_m_clip_norms_long(serve, ragged):
    released, _ = serve(
        ldp(), data=ragged, clipper=ConstantClipper(0.2), attack=lambda *sent: 1e6 + 0 * sent[-1]
    ).released()
    assert released.norm() == pytest.approx(6 * 0.2, rel=1e-5)


def test_an_upload_shorter_than_the_clip_norm_is_left_as_it_is(serve, ragged, gradient_of):
    training = serve(ldp(), data=ragged, clipper=ConstantClipper(1e3))
    released, _ = training.released(cohort=[2])
    expected = gradient_of(training, ragged.clients[2])
    torch.testing.assert_close(released, expected, rtol=1e-5, atol=1e-6)


def test_a_clipped_upload_keeps_its_direction(serve, ragged, gradient_of):
    training = serve(ldp(), data=ragged, clipper=ConstantClipper(0.01))
    released, _ = training.released(cohort=[2])
    gradient = gradient_of(training, ragged.clients[2])
    torch.testing.assert_close(released, gradient / gradient.norm() * 0.01, rtol=1e-4, atol=1e-7)


def test_replacing_a_clients_input_moves_the_sum_by_two_clip_norms_at_most(serve, ragged):
    """And by as much where the two inputs are opposed: local DP has to charge it."""
    sums = []
    for sign in (1, -1):

        def attack(round_index, cohort, sent, sign=sign):
            sent[0] = sign * 1e3
            return sent

        training = serve(ldp(), data=ragged, clipper=ConstantClipper(0.5), attack=attack)
        sums.append(training.released()[0])
    assert (sums[0] - sums[1]).norm() == pytest.approx(2 * 0.5, rel=1e-5)


@pytest.mark.parametrize("name", CLIPPERS)
def test_one_clip_norm_holds_for_the_whole_cohort(name, serve, ragged):
    training = serve(ldp(), data=ragged, clipper=CLIPPERS[name]())
    _, outcome = training.released(3)
    assert training.sensitivity(GRADIENT).shape == (1,)
    assert np.array_equal(outcome.clip_norms, training.sensitivity(GRADIENT))


def test_the_norms_of_the_outcome_are_those_of_the_uploads(serve, ragged):
    training = serve(ldp(), data=ragged)
    _, outcome = training.released(cohort=[1, 3])
    exact = training.uploads[-1].double().norm(dim=1)
    assert (outcome.norms >= exact).all()  # so that rounding hides nothing from the clip norm
    torch.testing.assert_close(outcome.norms, exact.float(), rtol=2e-5, atol=0)
    assert outcome.units.tolist() == [0, 1]


# ---- seeds, and what must not matter


def weights_after(training, rounds: int = 3, sigma: float = 2.0) -> torch.Tensor:
    for round_index in range(rounds):
        training.play(round_index, sigma=sigma)
    return training.weights.clone()


def test_the_same_seeds_give_the_same_weights_bit_for_bit(serve, ragged):
    first, second = (
        weights_after(serve(ldp(sample_rate=0.5), data=ragged, clipper=QuantileClipper(0.2)))
        for _ in range(2)
    )
    assert torch.equal(first, second)


def test_the_noise_seed_changes_the_noise(serve, ragged):
    first, second = (serve(ldp(), data=ragged, noise_seed=n) for n in (0, 1))
    assert (first.released(sigma=2.0)[0] != second.released(sigma=2.0)[0]).all()


def test_the_noise_seed_changes_nothing_but_the_noise(serve, ragged):
    lots = ldp(sample_rate=0.5)
    first, second = (weights_after(serve(lots, data=ragged, noise_seed=n), sigma=0) for n in (0, 1))
    assert torch.equal(first, second)


def test_the_seed_changes_the_lots_and_not_the_noise(serve, ragged):
    noises, lots = [], []
    for seed in (0, 1):
        training = serve(ldp(sample_rate=0.5), data=ragged, seed=seed)
        lots.append(training.released()[0])
        noises.append(training.released(sigma=2.0)[0] - lots[-1])
    assert not torch.allclose(lots[0], lots[1], atol=1e-3)
    on_grid = 2 * 2.0 * 10**0.5 * 2.0**-14  # each is rounded to a grid of std 2^-14
    torch.testing.assert_close(noises[0], noises[1], rtol=1e-4, atol=on_grid)


@pytest.mark.parametrize("at_once", [1, 2, 5])
def test_results_do_not_depend_on_how_many_uploads_are_held_at_once(
    at_once, serve, ragged, monkeypatch
):
    def run() -> torch.Tensor:
        return weights_after(serve(ldp(sample_rate=0.5), data=ragged, clipper=QuantileClipper(0.2)))

    together = run()
    monkeypatch.setattr(module, "AT_ONCE", at_once)
    torch.testing.assert_close(run(), together, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e38])
def test_an_upload_that_is_not_finite_contributes_exactly_zero(value, serve, ragged):
    def attack(round_index, cohort, sent):
        sent[cohort == 3] = value
        return sent

    clean, _ = serve(ldp(), data=ragged).released(cohort=[0, 1, 2, 4, 5])
    released, outcome = serve(ldp(), data=ragged, attack=attack).released()
    torch.testing.assert_close(released, clean, rtol=0, atol=1e-7)
    assert (outcome.not_finite, outcome.healthy) == (1, True)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("equal", [False, True])
def test_a_client_with_a_record_that_is_not_finite_harms_no_other_client(
    equal, value, serve, digits, ragged
):
    """What one client holds must not change what another one uploads."""
    data = digits if equal else ragged
    inputs = data.train.inputs.clone()
    inputs[data.clients[1][0]] = value
    training = serve(ldp(), data=replace(data, train=replace(data.train, inputs=inputs)))
    _, outcome = training.released()
    others = [k for k in range(data.client_count) if k != 1]
    clean = serve(ldp(), data=data)
    clean.released()
    torch.testing.assert_close(training.uploads[-1][others], clean.uploads[-1][others])
    assert outcome.not_finite == 1


def test_a_record_that_is_not_finite_contributes_zero_to_its_client(serve, ragged, gradient_of):
    """The denominator n_k stays."""
    inputs = ragged.train.inputs.clone()
    inputs[ragged.clients[2][0]] = float("nan")
    broken = replace(ragged, train=replace(ragged.train, inputs=inputs))
    released, outcome = serve(ldp(), data=broken, clipper=ConstantClipper(1e3)).released(cohort=[2])
    clean = serve(ldp(), data=ragged)
    expected = gradient_of(clean, ragged.clients[2][1:]) * 6 / 7
    torch.testing.assert_close(released, expected, rtol=1e-5, atol=1e-6)
    assert outcome.not_finite == 1


def test_a_round_in_which_no_upload_is_finite_goes_on(serve, ragged):
    """Whether it happens is private: stopping would tell."""
    training = serve(ldp(), data=ragged, attack=lambda *sent: sent[-1] * float("nan"))
    outcome = training.play(sigma=1.0)
    assert outcome.healthy
    assert outcome.not_finite == len(ragged.clients)
    assert training.weights.isfinite().all()
