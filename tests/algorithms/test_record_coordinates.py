"""AdaCLiP of records: against every gradient transformed and clipped by itself."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch
from torch.nn import functional

from fedpriv.models import Cnn, Mlp
from fedpriv.privacy.clippers import AdaClipper

RATE = 1.0


def row(module, data, record: int, weights: torch.Tensor) -> torch.Tensor:
    """The gradient of one record at ``weights`` [d], by autograd."""
    own = copy.deepcopy(module)
    torch.nn.utils.vector_to_parameters(weights.clone(), own.parameters())
    picked = [record]
    functional.cross_entropy(own(data.train.inputs[picked]), data.train.targets[picked]).backward()
    return torch.cat([p.grad.reshape(-1) for p in own.parameters()])


def naive_mean(training, client: int, weights, shift, scale) -> torch.Tensor:
    """b (1/n) Σ_i clip((g_i - a)/b) + a."""
    data = training.context.data
    module = training.context.model.module
    total = torch.zeros_like(weights)
    for record in data.clients[client]:
        inside = (row(module, data, int(record), weights) - shift) / scale
        total += inside * (1.0 / inside.norm()).clamp_max(1.0)
    return scale * total / len(data.clients[client]) + shift


@pytest.mark.parametrize("model", [None, Cnn(seed=0)], ids=["logistic", "cnn"])
def test_every_record_is_clipped_in_its_clients_space(model, computation, ragged):
    """In a second round, when coordinates and clients differ."""
    clipper = AdaClipper(0.5, shift_decay=0.5, spread_decay=0.5)
    training = computation(
        data=ragged, clipper=clipper, sample_rate=1.0, learning_rate=RATE, model=model
    )
    training.play(0)
    clients = [0, 2, 3]
    start = training.weights.clone()
    shifts, scales = clipper.transform(1, torch.tensor(clients))
    uploads, _ = training.play(1, cohort=clients)
    for k, client in enumerate(clients):
        mean = naive_mean(training, client, start, shifts[k], scales[k])
        torch.testing.assert_close(uploads[k], -RATE * mean, rtol=2e-3, atol=1e-5)


@pytest.mark.parametrize("model", [None, Mlp(seed=0, hidden=7)], ids=["logistic", "mlp"])
def test_later_steps_are_those_of_clients_one_by_one(model, computation, ragged):
    """Opacus is the reference: with it every record goes through the engine alone."""
    found = []
    for engine in ("auto", "opacus"):
        clipper = AdaClipper(0.5, shift_decay=0.5, spread_decay=0.5)
        training = computation(
            data=ragged, clipper=clipper, local_steps=3, engine=engine, model=model
        )
        found.append(training.play(sigma=0.1)[0])
    assert (found[0] - found[1]).norm() < 1e-4 * found[1].norm()


def test_a_record_that_is_not_finite_counts_as_none(computation, ragged):
    inputs = ragged.train.inputs.clone()
    inputs[ragged.clients[4][0]] = float("nan")
    broken = replace(ragged, train=replace(ragged.train, inputs=inputs))
    training = computation(data=broken, clipper=AdaClipper(0.5), sample_rate=1.0)
    uploads, outcome = training.play(0)
    assert outcome.not_finite == 1
    assert uploads.isfinite().all()


def test_the_noise_that_is_taken_off_the_spread_is_that_of_the_mean(computation, ragged):
    """(b σ/L)²: of a client's own lot, in its own coordinates."""
    seen = []

    class Notes(AdaClipper):
        def observe_restored(self, holders, gradients, noise_std):
            seen.append(noise_std.clone())
            super().observe_restored(holders, gradients, noise_std)

    training = computation(data=ragged, clipper=Notes(0.5))
    training.play(0, sigma=2.0)
    expected = 2.0 * 0.5 / training.lot_sizes
    torch.testing.assert_close(seen[0][:, 0], expected)
    assert training.sensitivity("gradient_sum").tolist() == [1.0] * 6
