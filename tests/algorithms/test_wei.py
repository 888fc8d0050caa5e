"""CDP of Wei et al.: what is clipped, what is averaged, how it is noised."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch.nn import functional

from fedpriv.algorithms import wei_cdp
from fedpriv.common.errors import ArgumentError
from fedpriv.common.secret_streams import SecretStreams
from fedpriv.data.digits import Digits
from fedpriv.data.federated import federate
from fedpriv.data.partitions import FixedSize
from fedpriv.models import Mlp
from fedpriv.privacy.clippers import ConstantClipper, NoClipper
from fedpriv.privacy.core.trust import LOCAL_TRUST
from fedpriv.privacy.mechanisms import GRADIENT

RATE, RECORDS, CLIENTS = 0.3, 100, 12


@pytest.fixture(scope="module")
def even():
    """Twelve clients with a hundred digits each."""
    return federate(Digits(), FixedSize(CLIENTS, RECORDS, seed=0), validation=False, seed=0)


def algorithm(sensitivity: str, **more):  # type: ignore[no-untyped-def]
    keys = {"learning_rate": RATE, "clients": CLIENTS, "records": RECORDS, **more}
    return wei_cdp("wei_cdp", sensitivity, **keys)


def descended(computation, client: int, steps: int) -> torch.Tensor:
    """w_k by torch's own gradients."""
    data, model = computation.context.data, computation.context.model
    before = computation.weights.clone()
    own = data.train.subset(data.clients[client])
    for _ in range(steps):
        loss = functional.cross_entropy(model.module(own.inputs), own.targets)
        gradients = torch.autograd.grad(loss, model.parameters())
        with torch.no_grad():
            model.flat.sub_(torch.cat([g.reshape(-1) for g in gradients]), alpha=RATE)
    after = computation.weights.clone()
    model.set(before)
    return after


def clipped(vectors: list[torch.Tensor], clip_norm: float) -> torch.Tensor:
    return torch.stack([v * min(1.0, clip_norm / float(v.norm())) for v in vectors])


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("clip_norm", [0.5, 100.0])
@pytest.mark.parametrize("model", [None, Mlp(seed=0)])
def test_the_mean_of_the_clipped_weights_takes_the_place_of_the_global_ones(
    serve, even, steps, clip_norm, model
):
    computation = serve(
        algorithm("weights", local_steps=steps), data=even, clipper=ConstantClipper(clip_norm),
        model=model,
    )  # fmt: skip
    expected = clipped([descended(computation, k, steps) for k in range(CLIENTS)], clip_norm).mean(
        0
    )
    computation.play()
    assert torch.allclose(computation.weights, expected, atol=1e-5)
    assert computation.sensitivity(GRADIENT).tolist() == [clip_norm]


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("clip_norm", [0.05, 100.0])
def test_the_mean_of_the_clipped_changes_is_added(serve, even, steps, clip_norm):
    computation = serve(
        algorithm("update", local_steps=steps), data=even, clipper=ConstantClipper(clip_norm)
    )
    before = computation.weights.clone()
    changes = [descended(computation, k, steps) - before for k in range(CLIENTS)]
    computation.play()
    assert torch.allclose(
        computation.weights, before + clipped(changes, clip_norm).mean(0), atol=1e-5
    )


def test_without_clipping_one_step_is_the_same_by_all_three(serve, computation, even):
    weights = serve(algorithm("weights"), data=even, clipper=NoClipper())
    update = serve(algorithm("update"), data=even, clipper=NoClipper())
    weights.play()
    update.play()
    assert torch.allclose(weights.weights, update.weights, atol=1e-6)


def test_a_cohort_is_averaged_over_those_who_came(serve, even):
    computation = serve(algorithm("weights"), data=even, clipper=NoClipper())
    expected = torch.stack([descended(computation, k, 1) for k in (1, 4, 7)]).mean(0)
    computation.play(cohort=[1, 4, 7])
    assert torch.allclose(computation.weights, expected, atol=1e-5)
    again = torch.stack([descended(computation, k, 1) for k in (0, 2)]).mean(0)
    computation.play(round_index=1, cohort=[0, 2])
    assert torch.allclose(computation.weights, again, atol=1e-5)


def test_the_average_has_the_noise_of_m_uploads(serve, even):
    """Each of m uploads gets N(0, (z C)²): their mean has z C / √m."""
    computation = serve(
        algorithm("weights"), data=even, clipper=ConstantClipper(2.0), model=Mlp(seed=0, hidden=64)
    )
    quiet, _ = computation.released(sigma=0.0)
    loud, _ = computation.released(sigma=3.0)
    noise = (loud - quiet) / CLIENTS
    expected = 3.0 * 2.0 / math.sqrt(CLIENTS)
    assert computation.noise_std(GRADIENT).tolist() == [pytest.approx(3.0 * 2.0)]
    n = len(noise)
    assert abs(float(noise.mean())) < 5 * expected / math.sqrt(n)
    assert float(noise.std()) == pytest.approx(expected, rel=5 / math.sqrt(2 * n))


def test_one_step_clips_records_and_protects_one(joint_of):
    found = algorithm("one_step")
    assert (found.unit, found.trust, found.samples_per_round) == ("record", LOCAL_TRUST, 1)
    event = joint_of(found, found.sampling_of(RECORDS), 8.0, ConstantClipper(1.0)).event()
    assert event.noise_multiplier == 4.0  # a record replaced moves the sum by 2C
    assert found.claim.sensitivity == 2.0


@pytest.mark.parametrize("sensitivity", ["weights", "update"])
def test_whole_uploads_protect_a_client_though_a_record_is_claimed(sensitivity, joint_of):
    found = algorithm(sensitivity)
    assert (found.unit, found.claim.unit) == ("client", "record")
    joint = joint_of(found, found.sampling_of(RECORDS), 8.0, ConstantClipper(1.0))
    assert joint.event().noise_multiplier == 4.0
    assert found.claim.event(joint).noise_multiplier == pytest.approx(8.0 * RECORDS / 2.0)


def test_the_claim_counts_on_the_rate_of_the_cohort(joint_of):
    found = algorithm("weights", clients_per_round=3)
    joint = joint_of(found, found.sampling_of(RECORDS), 8.0, ConstantClipper(1.0))
    assert found.claim.client_rate == 0.25
    assert found.claim.event(joint).noise_multiplier == pytest.approx(8.0 * RECORDS / 2.0 / 0.5)
    assert len(found.cohort(SecretStreams.simulated(0, 0), 0, np.ones(CLIENTS, dtype=bool))) == 3


@pytest.mark.parametrize(
    ("sensitivity", "changed", "key"),
    [
        ("model", {}, "sensitivity"),
        ("one_step", {"local_steps": 2}, "local_steps"),
        ("weights", {"local_steps": 0}, "local_steps"),
        ("weights", {"records": None}, "records"),
        ("update", {"records": 0}, "records"),
        ("weights", {"clients_per_round": 3, "clients": None}, "clients"),
        ("weights", {"clients_per_round": 0}, "clients_per_round"),
        ("weights", {"learning_rate": 0}, "learning_rate"),
        ("one_step", {"learning_rate": -1}, "learning_rate"),
        ("weights", {"search": {"rounds": []}}, "search.rounds"),
        ("weights", {"search": {"rounds": [0]}}, "search.rounds"),
        ("weights", {"search": {"rounds": [2], "seeds": []}}, "search.seeds"),
        ("weights", {"search": {"rounds": [2], "method": "all"}}, "search.method"),
    ],
)
def test_bad_settings_name_the_key(sensitivity, changed, key):
    with pytest.raises(ArgumentError) as error:
        algorithm(sensitivity, **changed)
    assert error.value.argument == key
