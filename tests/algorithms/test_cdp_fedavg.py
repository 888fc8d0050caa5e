"""Central DP-FedAvg: local training, the clipped average over qK, what must not matter."""

from __future__ import annotations

import copy
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from law_examples import examples
from torch.nn import functional

from fedpriv.algorithms import CdpFedAvg
from fedpriv.algorithms import upload_computation as module
from fedpriv.common.errors import ConfigError
from fedpriv.models import Cnn, Mlp
from fedpriv.privacy.clippers import (
    AutomaticClipper,
    ConstantClipper,
    MedianHistogramClipper,
    PolynomialClipper,
    QuantileClipper,
)
from fedpriv.privacy.core.sampling import PoissonSampling
from fedpriv.privacy.mechanisms import GRADIENT

MODELS = {"logistic": None, "mlp": Mlp(seed=0), "cnn": Cnn(seed=0)}
NO_CLIPPING = 1e6
ROUNDING = 1 + 1e-5


def cdp(**settings) -> CdpFedAvg:
    keys = {"client_rate": 0.5, "learning_rate": 0.7, "local_learning_rate": 0.2, **settings}
    return CdpFedAvg("cdp_fedavg", **keys)


def trained(training, client: int, round_index: int = 0) -> torch.Tensor:
    """The change of one client's weights [d] by SGD over its epochs and batches, naively."""
    algorithm, data = training.algorithm, training.context.data
    own = copy.deepcopy(training.context.model.module)
    records = data.clients[client]
    size = algorithm.batch_size or len(records)
    optimizer = torch.optim.SGD(own.parameters(), lr=algorithm.local_learning_rate)
    start = torch.nn.utils.parameters_to_vector(own.parameters()).detach().clone()
    for epoch in range(algorithm.local_epochs):
        stream = training.context.streams.sampling("batches", round_index, epoch, client)
        order = records[stream.permutation(len(records))]
        for batch in (order[i : i + size] for i in range(0, len(order), size)):
            optimizer.zero_grad()
            outputs = own(data.train.inputs[batch])
            functional.cross_entropy(outputs, data.train.targets[batch]).backward()
            optimizer.step()
    return torch.nn.utils.parameters_to_vector(own.parameters()).detach() - start


# ---- local training


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(("epochs", "batch"), [(3, None), (2, 5), (1, 1000)])
def test_an_upload_is_what_local_sgd_makes_of_the_weights(epochs, batch, model, serve, ragged):
    algorithm = cdp(local_epochs=epochs, batch_size=batch)
    training = serve(algorithm, data=ragged, model=MODELS[model], seed=3)
    training.released(2)
    expected = torch.stack([trained(training, k, round_index=2) for k in range(6)])
    torch.testing.assert_close(training.uploads[-1], expected, rtol=1e-3, atol=1e-5)


def test_batches_are_sampled_anew_every_epoch_and_round(serve, ragged):
    """Two epochs of batches differ from one epoch twice, and round 1 from round 0."""
    training = serve(cdp(batch_size=5), data=ragged)
    for round_index in (0, 1):
        training.released(round_index, cohort=[4])
    assert not torch.allclose(*training.uploads[-2:], atol=1e-5)


def test_a_batch_as_large_as_the_data_is_the_whole_data(serve, ragged):
    whole, large = (serve(cdp(batch_size=b, local_epochs=2), data=ragged) for b in (None, 90))
    torch.testing.assert_close(whole.released()[0], large.released()[0], rtol=1e-4, atol=1e-6)


def test_the_train_loss_is_the_mean_over_what_was_trained_on(serve, ragged):
    training = serve(cdp(), data=ragged)
    everything = ragged.train.subset(np.concatenate(ragged.clients))
    expected, _ = training.context.model.evaluate(everything.inputs, everything.targets)
    assert training.play().train_loss == pytest.approx(expected, rel=1e-5)


# ---- the average


@pytest.mark.parametrize("cohort", [[0, 1, 2, 3, 4, 5], [2], [1, 4]])
def test_the_step_is_the_sum_of_the_changes_over_the_expected_cohort(cohort, serve, ragged):
    """By qK = 3, whoever came."""
    training = serve(cdp(), data=ragged, clipper=ConstantClipper(NO_CLIPPING))
    changes = torch.stack([trained(training, k) for k in cohort])
    expected = training.weights + 0.7 / (0.5 * 6) * changes.sum(dim=0)
    training.play(cohort=cohort)
    torch.testing.assert_close(training.weights, expected, rtol=1e-4, atol=1e-5)


def test_every_change_is_clipped_before_it_is_added_up(serve, ragged):
    changes = torch.stack([trained(serve(cdp(), data=ragged), k) for k in range(6)])
    norms = changes.norm(dim=1)
    clip_norm = float(norms.median())
    training = serve(cdp(), data=ragged, clipper=ConstantClipper(clip_norm))
    expected = (changes * (clip_norm / norms).clamp(max=1)[:, None]).sum(dim=0)
    torch.testing.assert_close(training.released()[0], expected, rtol=1e-4, atol=1e-5)


def test_adam_at_the_server_takes_the_mean_change_for_minus_a_gradient(serve, ragged):
    algorithm = cdp(optimizer="adam", learning_rate=0.05)
    training = serve(algorithm, data=ragged, clipper=ConstantClipper(NO_CLIPPING))
    weights = training.weights.clone().requires_grad_()
    torchs = torch.optim.Adam([weights], lr=0.05)
    for round_index in range(4):
        changes = torch.stack([trained(training, k, round_index) for k in range(6)])
        weights.grad = -changes.sum(dim=0) / 3.0
        torchs.step()
        training.play(round_index)
        torch.testing.assert_close(training.weights, weights.detach(), rtol=1e-3, atol=1e-4)


CLIPPERS = {
    "constant": lambda: ConstantClipper(0.3),
    "automatic": AutomaticClipper,
    "poly": lambda: PolynomialClipper(0.4, horizon=10),
    "quantile": lambda: QuantileClipper(0.2),
    "median histogram": lambda: MedianHistogramClipper(0.2, update_interval=2, updates=4),
}


@pytest.mark.parametrize("name", CLIPPERS)
@settings(max_examples=examples(4), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(size=st.floats(1e-6, 1e9), client=st.integers(0, 5), round_index=st.integers(0, 9))
def test_one_client_more_moves_the_sum_by_the_clip_norm_at_most(
    name, size, client, round_index, serve, ragged
):
    training = serve(
        cdp(), data=ragged, clipper=CLIPPERS[name](), attack=lambda *sent: size * sent[-1]
    )
    others = [k for k in range(6) if k != client]
    with_it, _ = training.released(round_index)
    sensitivity = training.sensitivity(GRADIENT)[0]
    without, _ = training.released(round_index, cohort=others)
    assert (with_it - without).norm() <= sensitivity * ROUNDING + 1e-6


# ---- an empty cohort


def test_an_empty_cohort_adds_noise_and_nothing_else(serve, ragged):
    training = serve(cdp(), data=ragged)
    before = training.weights.clone()
    outcome = training.play(cohort=[], sigma=2.0)
    assert (training.weights != before).all()
    assert outcome.healthy
    assert math.isnan(outcome.train_loss)


def test_an_empty_cohort_without_noise_leaves_the_weights_alone(serve, ragged):
    training = serve(cdp(), data=ragged)
    before = training.weights.clone()
    training.play(cohort=[])
    assert torch.equal(training.weights, before)


@pytest.mark.parametrize("name", ["quantile", "median histogram"])
def test_an_empty_cohort_answers_the_clipper_with_noise(name, serve, ragged):
    training = serve(cdp(), data=ragged, clipper=CLIPPERS[name]())
    training.play(1, cohort=[], sigma=2.0)
    assert (training.heard.released[-1] != 0).all()


# ---- what must not matter


def weights_after(training, rounds: int = 3, sigma: float = 1.0) -> torch.Tensor:
    for round_index in range(rounds):
        training.play(round_index, sigma=sigma)
    return training.weights.clone()


def test_the_same_seeds_give_the_same_weights_bit_for_bit(serve, ragged):
    algorithm = cdp(batch_size=5, optimizer="adam")
    first, second = (
        weights_after(serve(algorithm, data=ragged, clipper=QuantileClipper(0.2))) for _ in "ab"
    )
    assert torch.equal(first, second)


def test_the_noise_seed_changes_nothing_but_the_noise(serve, ragged):
    batches = cdp(batch_size=5)
    runs = [serve(batches, data=ragged, noise_seed=n) for n in (0, 1)]
    assert (runs[0].released(sigma=1.0)[0] != runs[1].released(sigma=1.0)[0]).all()
    assert torch.equal(*(weights_after(run, sigma=0.0) for run in runs))


@pytest.mark.parametrize(("at_once", "batch"), [(1, None), (5, 4)])
def test_results_do_not_depend_on_how_many_uploads_are_held_at_once(
    at_once, batch, serve, ragged, monkeypatch
):
    def run() -> torch.Tensor:
        algorithm = cdp(batch_size=batch, local_epochs=2)
        return weights_after(serve(algorithm, data=ragged, clipper=QuantileClipper(0.2)))

    together = run()
    monkeypatch.setattr(module, "AT_ONCE", at_once)
    torch.testing.assert_close(run(), together, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("record", ["its own", "the first of all"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_client_with_a_record_that_is_not_finite_counts_as_one_that_did_not_come(
    value, record, serve, ragged
):
    """Also when it holds record 0, which fills up the batches of others."""
    clients = list(ragged.clients)
    if record == "the first of all":
        clients[2] = np.append(0, clients[2])
        clients = [c if k == 2 else c[c != 0] for k, c in enumerate(clients)]
    inputs = ragged.train.inputs.clone()
    inputs[clients[2][0]] = value
    broken = replace(ragged, clients=clients, train=replace(ragged.train, inputs=inputs))
    released, outcome = serve(cdp(), data=broken).released()
    expected, _ = serve(cdp(), data=replace(ragged, clients=clients)).released(
        cohort=[0, 1, 3, 4, 5]
    )
    assert outcome.not_finite == 1
    torch.testing.assert_close(released, expected, rtol=1e-5, atol=1e-6)


def test_a_client_that_stays_at_home_has_no_influence_whatever_it_holds(serve, ragged):
    inputs = ragged.train.inputs.clone()
    clients = [np.append(0, ragged.clients[0]), *(c[c != 0] for c in ragged.clients[1:])]
    inputs[clients[0]] = float("nan")
    clean = replace(ragged, clients=clients)
    broken = replace(clean, train=replace(ragged.train, inputs=inputs))
    sums = [serve(cdp(), data=data).released(cohort=[1, 2, 3])[0] for data in (clean, broken)]
    assert torch.equal(*sums)


# ---- what a trusted server cannot have


@pytest.mark.parametrize(
    ("clipper", "key"),
    [
        (QuantileClipper(0.1, noised_by="client"), "clipper.noised_by"),
        (
            QuantileClipper(
                0.1, bit_mechanism="randomized_response", noised_by="client", bit_noise=None,
                bit_epsilon=1.0,
            ),
            "clipper.bit_mechanism",
        ),
    ],
)  # fmt: skip
def test_bits_that_clients_noise_are_refused(clipper, key, joint_of):
    with pytest.raises(ConfigError, match=key):
        joint_of(cdp(), PoissonSampling(0.5), 1.0, clipper)
