"""Local and central DP of Naseri et al.: projection after every batch, and where the noise stands."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional

from fedpriv.algorithms import CdpFedAvg, NaseriCdp, NaseriLdp
from fedpriv.common.errors import ArgumentError
from fedpriv.models import Mlp
from fedpriv.privacy.clippers import ConstantClipper, QuantileClipper
from fedpriv.privacy.core.noise import grid_of
from fedpriv.privacy.core.sampling import PoissonSampling
from fedpriv.privacy.core.trust import CENTRAL_TRUST, LOCAL_TRUST
from fedpriv.privacy.mechanisms import GRADIENT

RATE = 0.3
AS_PRINTED = ("dataset=digits", "rounds=1", "algorithm.noise=as_printed", "clipper=quantile")


def cdp(**more) -> NaseriCdp:
    keys = {"client_rate": 0.5, "local_epochs": 2, "batch_size": 40, "local_learning_rate": RATE}
    return NaseriCdp("naseri_cdp", **{**keys, **more})


def ldp(**more) -> NaseriLdp:
    return NaseriLdp("naseri_ldp", **{"sample_rate": 0.1, "learning_rate": RATE, **more})


def projected(computation, client: int, radius: float) -> tuple[torch.Tensor, list[float]]:
    """(Δ of a client by a loop of its own, the norm of its change after every batch)."""
    data, model, algorithm = (
        computation.context.data,
        computation.context.model,
        computation.algorithm,
    )
    start, norms = computation.weights.clone(), []
    own = data.clients[client]
    for epoch in range(algorithm.local_epochs):
        stream = computation.context.streams.sampling("batches", 0, epoch, client)
        order = own[stream.permutation(len(own))]
        for first in range(0, len(order), algorithm.batch_size):
            batch = data.train.subset(order[first : first + algorithm.batch_size])
            loss = functional.cross_entropy(model.module(batch.inputs), batch.targets)
            gradients = torch.autograd.grad(loss, model.parameters())
            with torch.no_grad():
                model.flat.sub_(torch.cat([g.reshape(-1) for g in gradients]), alpha=RATE)
                change = model.flat - start
                change *= min(1.0, radius / float(change.norm()))
                model.set(start + change)
                norms.append(float(change.norm()))
    found = computation.weights - start
    model.set(start)
    return found, norms


@pytest.mark.parametrize("model", [None, Mlp(seed=0)])
@pytest.mark.parametrize("radius", [0.05, 0.4, 100.0])
def test_the_change_is_pulled_back_onto_the_ball_after_every_batch(serve, model, radius):
    computation = serve(cdp(), clipper=ConstantClipper(radius), model=model)
    expected = [projected(computation, client, radius) for client in range(3)]
    assert all(norm <= radius * (1 + 1e-5) for _, norms in expected for norm in norms)
    computation.play(cohort=[0, 1, 2])
    for sent, (change, _) in zip(computation.uploads[-1], expected, strict=True):
        assert torch.allclose(sent, change, atol=1e-5)
        assert float(sent.norm()) <= radius * (1 + 1e-5)


def test_within_the_ball_nothing_is_pulled_back(serve):
    plain = CdpFedAvg(
        "plain", client_rate=0.5, local_epochs=2, batch_size=40, local_learning_rate=RATE
    )
    one, other = (serve(a, clipper=ConstantClipper(1e3)) for a in (cdp(), plain))
    one.play(cohort=[0, 3])
    other.play(cohort=[0, 3])
    assert torch.equal(one.weights, other.weights)


@pytest.mark.parametrize(("noise", "cohort"), [("fixed_denominator", 4), ("as_printed", 4),
                                               ("as_printed", 1), ("as_printed", 0)])  # fmt: skip
def test_where_the_noise_of_cdp_stands(serve, noise, cohort):
    """Fixed: z S / (q K) on the mean. Printed: z S / q, whoever came; an empty cohort is noise only."""
    computation = serve(
        cdp(noise=noise), clipper=ConstantClipper(2.0), model=Mlp(seed=0, hidden=64)
    )
    before = computation.weights.clone()
    computation.play(cohort=list(range(cohort)), sigma=0.0)
    quiet = computation.weights.clone()
    computation.context.model.set(before)
    computation.play(cohort=list(range(cohort)), sigma=3.0)
    found = computation.weights - quiet
    clients = computation.context.data.client_count
    expected = 3.0 * 2.0 / 0.5 / (clients if noise == "fixed_denominator" else 1)
    entered = float(
        computation.noise_std(GRADIENT)[0]
    )  # on the sum over q K, or on the printed mean
    divided_by = 0.5 * clients if noise == "fixed_denominator" else 1.0
    assert entered / divided_by == pytest.approx(expected)
    assert float(found.std()) == pytest.approx(expected, rel=5 / math.sqrt(2 * len(found)))


def test_the_printed_mean_is_over_those_who_came(serve):
    printed, fixed = (serve(cdp(noise=n), clipper=ConstantClipper(1e3)) for n in
                      ("as_printed", "fixed_denominator"))  # fmt: skip
    start = printed.weights.clone()
    for computation in (printed, fixed):
        computation.play(cohort=[1, 2])
    # K = 10, q = .5: divided by 2 who came, or by 5 expected
    assert torch.allclose((printed.weights - start) * 2, (fixed.weights - start) * 5, atol=1e-5)


@pytest.mark.parametrize(("noise", "multiplier"), [("fixed_denominator", 0.8), ("as_printed", 1.6)])
def test_what_cdp_charges_and_what_it_claims(noise, multiplier, joint_of):
    algorithm = cdp(noise=noise)
    joint = joint_of(algorithm, algorithm.sampling_of(50), 0.8, ConstantClipper(1.0))
    assert joint.event().event.noise_multiplier == pytest.approx(multiplier)
    assert algorithm.claim.event(joint).event.noise_multiplier == pytest.approx(0.8)
    assert (algorithm.unit, algorithm.trust) == ("client", CENTRAL_TRUST)
    assert algorithm.trust.name == "central"
    assert algorithm.trust.secret_cohort


def test_cdp_with_a_fixed_denominator_takes_a_clipper_that_asks(joint_of):
    fixed = joint_of(cdp(), PoissonSampling(0.5), 0.8, QuantileClipper(0.1))
    assert len(fixed.queries) == 2


@pytest.mark.parametrize(("epochs", "rate", "steps"), [(1, 0.1, 10), (5, 0.25, 20), (1, 1.0, 1),
                                                       (2, 0.3, 7)])  # fmt: skip
def test_ldp_takes_as_many_steps_as_its_epochs_hold_lots(epochs, rate, steps):
    found = ldp(sample_rate=rate, local_epochs=epochs)
    assert found.local_steps == found.samples_per_round == steps
    assert ldp(sample_rate=rate, local_epochs=epochs, epochs="batches").local_steps == epochs
    assert (found.unit, found.trust) == ("record", LOCAL_TRUST)


def test_ldp_as_printed_is_charged_for_what_its_noise_is_on_the_sum(joint_of):
    """σ p n / C: σ = .02, p = .1, n = 500, C = 2 → .5."""
    found = ldp(noise="as_printed")
    joint = joint_of(found, found.sampling_of(500), 0.02, ConstantClipper(2.0))
    assert joint.queries[0].noise_multiplier == pytest.approx(0.5)
    assert joint.event().event.noise_multiplier == pytest.approx(0.5)
    assert found.cost_depends_on_records
    fixed = joint_of(ldp(), ldp().sampling_of(500), 0.8, ConstantClipper(2.0))
    assert fixed.event().event.noise_multiplier == 0.8


@pytest.mark.parametrize("noise", ["fixed_denominator", "as_printed"])
def test_the_noise_that_ldp_adds_is_the_noise_it_is_charged_for(computation, noise):
    """On the gradient sum of client k: σ C, or σ p n_k."""
    algorithm = ldp(noise=noise, sample_rate=0.5, local_epochs=1)
    algorithm.local_steps = algorithm.samples_per_round = 1  # of which the change is seen
    computation = computation(algorithm=algorithm, clipper=ConstantClipper(2.0), model=Mlp(seed=0))
    before = computation.trainer.state_dict()
    quiet, _ = computation.play(sigma=0.0)
    computation.trainer.load_state_dict(before)
    loud, _ = computation.play(sigma=0.7)
    entered, sensitivity = computation.noise_std(GRADIENT), computation.sensitivity(GRADIENT)
    sizes = computation.context.data.records_per_client
    for k, n in enumerate(sizes):
        std = 0.7 * (2.0 if noise == "fixed_denominator" else 0.5 * n)
        assert (entered[k], sensitivity[k]) == (pytest.approx(std), 2.0)
        expected = RATE * entered[k] / (0.5 * n)  # of the first step's change
        found = float((loud[k] - quiet[k]).std())
        assert found == pytest.approx(expected, rel=0.1)


@pytest.mark.parametrize(
    ("make", "changed", "key"),
    [
        (cdp, {"noise": "printed"}, "noise"),
        (ldp, {"noise": "printed"}, "noise"),
        (ldp, {"local_epochs": 0}, "local_epochs"),
        (ldp, {"sample_rate": 0}, "sample_rate"),
        (ldp, {"sample_rate": 1.5}, "sample_rate"),
        (ldp, {"clients_per_round": 0}, "clients_per_round"),
        (cdp, {"client_rate": 0}, "client_rate"),
    ],
)
def test_bad_settings_name_the_key(make, changed, key):
    with pytest.raises(ArgumentError) as error:
        make(**changed)
    assert error.value.argument == key


def test_the_gradients_query_is_named(serve):
    computation = serve(cdp(), clipper=ConstantClipper(0.1))
    computation.play()
    assert [list(release.sensitivity) for release in computation.releases] == [[GRADIENT]]


def test_the_grid_of_the_printed_mean_does_not_tell_how_many_came(serve, ragged):
    """Who came is secret: noised as a sum of the realised cohort, the mean would lie on multiples of a grid
    divided by its size."""
    z, rate = 2.0, 0.25
    algorithm = NaseriCdp("naseri_cdp", client_rate=rate, noise="as_printed")
    training = serve(algorithm, data=ragged, clipper=ConstantClipper(1.0))
    grid = float(grid_of(torch.tensor([z / rate])))
    for cohort in ([], [1], [0, 1, 2], [0, 1, 2, 3, 4]):
        training.released(cohort=cohort, sigma=z)
        steps = training.heard.means[-1].double() / grid
        assert torch.equal(steps, steps.round()), cohort
