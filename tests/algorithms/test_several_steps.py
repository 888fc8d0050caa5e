"""Later local steps, in which every client has weights of its own: side by side as one by one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedpriv.data.records import Records
from fedpriv.models import Cnn, Mlp
from fedpriv.privacy.clippers import AdapClipper, ConstantClipper

MODELS = {"logistic": None, "mlp": Mlp(seed=0, hidden=7), "cnn": Cnn(seed=0)}


@pytest.mark.parametrize("rate", [0.02, 0.5, 1.0])
@pytest.mark.parametrize("model", MODELS)
def test_uploads_are_those_of_clients_one_by_one(model, rate, computation, ragged):
    """Opacus is the reference: with it every client goes through the engine alone."""
    settings = {"model": MODELS[model], "data": ragged, "sample_rate": rate, "local_steps": 3}
    (together, a), (alone, b) = (
        computation(engine=engine, **settings).play(sigma=0.1) for engine in ("auto", "opacus")
    )
    assert (together - alone).norm() < 1e-5 * alone.norm()
    assert (a.not_finite, a.healthy) == (b.not_finite, b.healthy)
    np.testing.assert_allclose([a.train_loss], [b.train_loss], rtol=1e-5)
    np.testing.assert_allclose(a.norms, b.norms, rtol=1e-4, atol=1e-6)
    assert torch.equal(a.units, b.units)


def test_the_engine_sees_the_first_step_and_the_others_go_side_by_side(computation, ragged):
    training = computation(data=ragged, local_steps=4)
    before = len(training.context.engine.calls)  # the proof on public records
    training.play()
    assert len(training.context.engine.calls) == before + 1


def test_each_client_has_its_own_clip_norm(computation, ragged):
    """A clip norm that only one client has clips that client alone, in later steps as in the first."""

    class OwnNorms(ConstantClipper):
        def clip_norm(self, round_index, holders):
            return torch.where(holders == 4, 1e-6, 1e6)

    settings = {"data": ragged, "local_steps": 2, "learning_rate": 0.1}
    own, _ = computation(clipper=OwnNorms(1.0), **settings).play()
    free, _ = computation(clipper=ConstantClipper(1e6), **settings).play()
    assert own[4].norm() < 1e-5
    torch.testing.assert_close(own[[0, 1, 2, 3, 5]], free[[0, 1, 2, 3, 5]])


def test_a_broken_record_is_counted_in_every_step_and_harms_nobody(computation, ragged):
    inputs = ragged.train.inputs.clone()
    inputs[ragged.clients[1][3]] = float("nan")
    broken = replace(ragged, train=Records(inputs, ragged.train.targets))
    settings = {"sample_rate": 1.0, "local_steps": 3}
    uploads, outcome = computation(data=broken, **settings).play()
    expected, _ = computation(data=ragged, **settings).play()
    assert outcome.not_finite == 3
    assert uploads.isfinite().all()
    others = [0, 2, 3, 4, 5]
    torch.testing.assert_close(uploads[others], expected[others])


def test_a_client_whose_lot_is_empty_gets_its_noise_all_the_same(computation, ragged):
    uploads, outcome = computation(data=ragged, sample_rate=1e-9, local_steps=2).play(sigma=1.0)
    assert len(outcome.norms) == 0
    assert uploads.any(1).all()


def test_a_clipper_that_asks_is_answered_in_the_order_of_the_cohort(computation, ragged):
    settings = {"data": ragged, "sample_rate": 0.5, "local_steps": 2}
    together, alone = (
        computation(engine=engine, clipper=AdapClipper("vector"), **settings)
        for engine in ("auto", "opacus")
    )
    for training in (together, alone):
        for round_index in range(2):
            training.play(round_index, sigma=0.1)
    everyone = torch.arange(len(ragged.clients))
    norms = [t.context.clipper.clip_norm(2, everyone) for t in (together, alone)]
    torch.testing.assert_close(*norms, rtol=1e-4, atol=0)
