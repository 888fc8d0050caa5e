"""FedProx: clients are held near the global weights; the term reads no record."""

from __future__ import annotations

import copy

import pytest
import torch
from torch.nn import functional

from fedpriv.algorithms import CdpFedAvg, DpFl
from fedpriv.common.errors import ArgumentError
from fedpriv.privacy.clippers import ConstantClipper

MU, ETA = 0.8, 0.2


def naive(training, client: int, steps: list) -> torch.Tensor:
    """The change of weights [d] by gradient descent on loss + μ/2 ‖w - θ‖² over batches of records."""
    module = copy.deepcopy(training.context.model.module)
    start = [p.detach().clone() for p in module.parameters()]
    optimizer = torch.optim.SGD(module.parameters(), lr=ETA)
    train = training.context.data.train
    for batch in steps:
        optimizer.zero_grad()
        loss = functional.cross_entropy(module(train.inputs[batch]), train.targets[batch])
        pairs = zip(module.parameters(), start, strict=True)
        loss = loss + MU / 2 * sum((p - s).square().sum() for p, s in pairs)
        loss.backward()
        optimizer.step()
    moved = [p.detach() - s for p, s in zip(module.parameters(), start, strict=True)]
    return torch.cat([change.reshape(-1) for change in moved])


def test_at_client_level_it_is_in_the_clients_own_steps(serve, ragged):
    """Also for clients whose batches are over before those of others."""
    algorithm = CdpFedAvg(
        "c", 0.5, local_epochs=2, batch_size=20, local_learning_rate=ETA, proximal=MU
    )
    training = serve(algorithm, data=ragged)
    training.released()
    for client in range(6):
        own, steps = ragged.clients[client], []
        for epoch in range(2):
            order = training.context.streams.sampling("batches", 0, epoch, client)
            shuffled = own[order.permutation(len(own))]
            steps += [shuffled[i : i + 20] for i in range(0, len(own), 20)]
        torch.testing.assert_close(
            training.uploads[-1][client], naive(training, client, steps), rtol=1e-3, atol=1e-5
        )


def record_level(computation, data, **settings):
    keys = {"sample_rate": 1.0, "local_steps": 4, "learning_rate": ETA}
    return computation(data=data, clipper=ConstantClipper(1e6), **{**keys, **settings})


def test_at_record_level_it_joins_after_the_noise(computation, ragged):
    training = record_level(computation, ragged, proximal=MU)
    expected = [naive(training, k, [ragged.clients[k]] * 4) for k in range(6)]
    uploads, _ = training.play()
    torch.testing.assert_close(uploads, torch.stack(expected), rtol=1e-3, atol=1e-5)


def test_it_changes_no_release(computation, ragged):
    """The first step of a round releases the same, noise included, and every step the same kinds."""
    entered = []
    for proximal in (None, MU):
        training = record_level(computation, ragged, proximal=proximal)
        training.play(sigma=1.0)
        entered.append([(r.joint, r.clients.tolist(), r.count) for r in training.releases])
    assert entered[0] == entered[1]


def test_it_holds_clients_near_the_global_weights(computation, ragged):
    free, held = (record_level(computation, ragged, proximal=mu).play()[0] for mu in (0.0, 2.0))
    assert (held.norm(dim=1) < free.norm(dim=1)).all()


@pytest.mark.parametrize(
    "make",
    [
        lambda mu: DpFl("d", 0.5, proximal=mu, local_steps=2),
        lambda mu: CdpFedAvg("c", 0.5, local_epochs=2, proximal=mu),
    ],
)
def test_a_negative_one_is_refused(make):
    with pytest.raises(ArgumentError, match="proximal must be >= 0, got -1"):
        make(-1)


@pytest.mark.parametrize(
    "make", [lambda: DpFl("d", 0.5, proximal=1.0), lambda: CdpFedAvg("c", 0.5, proximal=1.0)]
)
def test_one_that_would_change_nothing_is_refused(make):
    with pytest.raises(ArgumentError, match="proximal must be null with"):
        make()
