"""λ/2 ‖θ‖² of a model: its gradient λθ joins each step as it is, neither clipped nor noised."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedpriv.algorithms import CdpFedAvg, FedSgd, LdpFedSgd
from fedpriv.data.federated import FederatedData
from fedpriv.data.records import Records
from fedpriv.models import Svm
from fedpriv.privacy.clippers import ConstantClipper, NoClipper

DECAY, RATE = 0.7, 0.3


@pytest.fixture
def odd(ragged) -> FederatedData:
    """Is the digit odd?"""
    train = Records(ragged.train.inputs, ragged.train.targets % 2)
    return replace(ragged, train=train, classes=2)


def svm(decay: float = DECAY) -> Svm:
    return Svm(seed=0, weight_decay=decay)


@pytest.fixture
def both(computation, serve, odd):
    """(kind, clipper) → the same training with λ and without."""

    def build(kind: str, clipper):
        shared = {"data": odd, "clipper": clipper}
        if kind == "records":
            settings = {"learning_rate": RATE, "sample_rate": 0.5}
            return [computation(model=svm(decay), **shared, **settings) for decay in (DECAY, 0.0)]
        algorithm = {"clients": LdpFedSgd, "baseline": FedSgd}[kind](kind, learning_rate=RATE)
        return [serve(algorithm, model=svm(decay), **shared) for decay in (DECAY, 0.0)]

    return build


@pytest.mark.parametrize(
    ("kind", "sigma"),
    [("records", 0.0), ("records", 2.0), ("clients", 0.0), ("clients", 2.0), ("baseline", 0.0)],
)
def test_a_step_moves_by_minus_eta_lambda_theta_besides(kind, sigma, both):
    decayed, plain = both(kind, ConstantClipper(0.01))
    start = plain.weights.clone()
    assert torch.equal(decayed.weights, start)
    decayed.play(sigma=sigma)
    plain.play(sigma=sigma)
    expected = plain.weights - RATE * DECAY * start
    torch.testing.assert_close(decayed.weights, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["records", "clients", "baseline"])
def test_norms_and_sensitivities_are_those_without_it(kind, both):
    trainings = both(kind, ConstantClipper(0.5))
    (_, decayed), (_, plain) = (t.released(sigma=1.0) for t in trainings)
    assert torch.equal(decayed.norms, plain.norms)
    assert decayed.gradient_norm == plain.gradient_norm
    for a, b in zip(*(t.releases for t in trainings), strict=True):
        assert a.joint == b.joint
        np.testing.assert_equal(a.sensitivity, b.sensitivity)
        np.testing.assert_equal(a.noise_std, b.noise_std)


@pytest.mark.parametrize("kind", ["records", "clients", "baseline"])
def test_the_training_loss_has_it(kind, both):
    decayed, plain = both(kind, NoClipper())
    penalty = DECAY / 2 * float(plain.weights.square().sum())
    (_, with_it), (_, without) = decayed.released(), plain.released()
    assert with_it.train_loss == pytest.approx(without.train_loss + penalty, rel=1e-5)


def test_later_local_steps_decay_the_weights_of_the_client(computation, odd):
    """Of gradients clipped to next to nothing, λ alone remains: θ ← (1 - ηλ) θ, each step."""
    settings = {"data": odd, "learning_rate": RATE, "local_steps": 3}
    training = computation(model=svm(), clipper=ConstantClipper(1e-9), **settings)
    start = training.weights.clone()
    training.play()
    expected = (1 - RATE * DECAY) ** 3 * start
    torch.testing.assert_close(training.weights, expected, rtol=1e-5, atol=1e-6)


def test_the_training_loss_of_later_steps_is_that_at_the_clients_weights(computation, odd):
    settings = {"data": odd, "learning_rate": RATE, "local_steps": 2, "sample_rate": 1.0}
    training = computation(model=svm(), clipper=ConstantClipper(1e-9), **settings)
    start = training.weights.clone()
    _, outcome = training.play()
    training.context.model.set((1 - RATE * DECAY) * start)
    records = odd.train.subset(torch.cat([torch.from_numpy(own) for own in odd.clients]).numpy())
    expected, _ = training.context.model.evaluate(records.inputs, records.targets)
    assert outcome.train_loss == pytest.approx(expected, rel=1e-5)


def test_clients_that_train_decay_their_own_weights_and_the_server_none(serve, odd):
    algorithm = CdpFedAvg("cdp", 1.0, local_epochs=2, local_learning_rate=0.1)
    training = serve(algorithm, data=odd, clipper=NoClipper(), model=svm())
    start = training.weights.clone()
    training.play()
    model, expected = training.context.model, []
    for own in odd.clients:
        records, weights = odd.train.subset(own), start.clone().requires_grad_()
        for _ in range(2):
            scores = records.inputs.flatten(1) @ weights[:-1] + weights[-1]
            loss = model.loss(scores[:, None], records.targets).mean()
            loss = loss + DECAY / 2 * weights.square().sum()
            (gradient,) = torch.autograd.grad(loss, weights)
            weights = (weights - 0.1 * gradient).detach().requires_grad_()
        expected.append(weights.detach())
    torch.testing.assert_close(
        training.weights, torch.stack(expected).mean(0), rtol=1e-5, atol=1e-6
    )
