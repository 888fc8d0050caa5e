"""DP-SCAFFOLD against the algorithm as it is printed, and that its control variates cost nothing."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch.nn import functional

import fedpriv
from fedpriv.algorithms import DpFl, DpScaffold
from fedpriv.common.errors import ArgumentError, ConfigError
from fedpriv.experiment.build import build_parts
from fedpriv.privacy.clippers import ConstantClipper

STEPS, ETA, GLOBAL = 3, 0.2, 0.7
NO_CLIPPING = ConstantClipper(1e6)


def scaffold(**settings) -> DpScaffold:
    keys = {"sample_rate": 1.0, "local_steps": STEPS, "local_learning_rate": ETA, **settings}
    return DpScaffold("dp_scaffold", **{"learning_rate": GLOBAL, **keys})


def gradient(training, client: int, weights: torch.Tensor) -> torch.Tensor:
    """Of the mean loss of a client's whole data at ``weights`` [d], by autograd."""
    module = copy.deepcopy(training.context.model.module)
    torch.nn.utils.vector_to_parameters(weights.clone(), module.parameters())
    data = training.context.data
    own = data.clients[client]
    functional.cross_entropy(module(data.train.inputs[own]), data.train.targets[own]).backward()
    return torch.cat([p.grad.reshape(-1) for p in module.parameters()])


class Printed:
    """The algorithm of Noble et al. without noise, client by client."""

    def __init__(self, training, warm_start: int):
        self.training, self.warm_start = training, warm_start
        self.weights = training.weights.clone()
        self.own = torch.zeros(training.context.data.client_count, len(self.weights))
        self.common = torch.zeros_like(self.weights)

    def play(self, round_index: int, cohort: list[int]) -> None:
        changes, new = [], {}
        for client in cohort:
            y = self.weights.clone()
            seen = []
            for _ in range(STEPS):
                seen.append(gradient(self.training, client, y))
                if round_index >= self.warm_start:
                    y -= ETA * (seen[-1] - self.own[client] + self.common)
            changes.append(y - self.weights)
            new[client] = torch.stack(seen).mean(0)
        before = self.own.clone()
        for client, value in new.items():
            self.own[client] = value
        self.common = self.common + (self.own - before).sum(0) / len(self.own)
        self.weights = self.weights + GLOBAL * torch.stack(changes).mean(0)


@pytest.mark.parametrize("warm_start", [0, 1])
def test_rounds_are_those_of_the_printed_algorithm(warm_start, computation, ragged):
    training = computation(
        algorithm=scaffold(warm_start=warm_start), data=ragged, clipper=NO_CLIPPING
    )
    printed = Printed(training, warm_start)
    for round_index, cohort in enumerate([[0, 1, 2, 3, 4, 5], [1, 4], [0, 2, 4], [3]]):
        printed.play(round_index, cohort)
        training.play(round_index, cohort)
        torch.testing.assert_close(training.weights, printed.weights, rtol=1e-3, atol=1e-5)


def test_a_warm_round_moves_nothing_and_is_released_like_any_other(computation, ragged):
    training = computation(algorithm=scaffold(warm_start=1), data=ragged)
    before = training.weights.clone()
    training.play(0, sigma=1.0)
    assert torch.equal(training.weights, before)
    warm = sum(release.count for release in training.releases)
    training.play(1, sigma=1.0)
    assert not torch.equal(training.weights, before)
    assert warm == sum(release.count for release in training.releases) == STEPS


def test_control_variates_are_the_mean_of_what_the_client_released(computation, ragged):
    """The only thing that they are made of: noised gradients; so they cost nothing."""
    training = computation(algorithm=scaffold(warm_start=0), data=ragged)
    training.play(0, sigma=1.0)  # c_k = c = 0: the upload is -η times the sum of noised gradients
    state = training.trainer.state_dict()["optimizer"]
    torch.testing.assert_close(
        state["own"], training.uploads[-1] / (-ETA * STEPS), rtol=1e-3, atol=1e-5
    )


def test_the_ledger_is_that_of_averaging(computation, ragged):
    plain = DpFl("dp_fl", 0.5, optimizer="sgd", learning_rate=ETA, local_steps=STEPS)
    entered = []
    for algorithm in (scaffold(sample_rate=0.5), plain):
        training = computation(algorithm=algorithm, data=ragged, clipper=ConstantClipper(0.3))
        training.play(0, sigma=1.5)
        entered.append(
            [
                (
                    r.joint,
                    r.clients.tolist(),
                    r.count,
                    *(v.tolist() for v in r.sensitivity.values()),
                )
                for r in training.releases
            ]
        )
    assert entered[0] == entered[1]


def test_a_restored_run_goes_on_bit_for_bit(computation, ragged):
    def fresh():
        return computation(algorithm=scaffold(optimizer="momentum"), data=ragged)

    whole, first, second = fresh(), fresh(), fresh()
    for round_index in range(4):
        whole.play(round_index, sigma=1.0)
    for round_index in range(2):
        first.play(round_index, sigma=1.0)
    second.trainer.load_state_dict(first.trainer.state_dict())
    for round_index in range(2, 4):
        second.play(round_index, sigma=1.0)
    assert torch.equal(second.weights, whole.weights)


@pytest.mark.parametrize(
    ("argument", "value"),
    [("local_learning_rate", 0), ("warm_start", -1), ("warm_start", 1.5), ("optimizer", "lion"),
     ("momentum", 0.9), ("local_steps", 0)],
)  # fmt: skip
def test_a_setting_that_is_not_allowed_is_named(argument, value):
    with pytest.raises(ArgumentError) as error:
        scaffold(**{argument: value})
    assert error.value.argument == argument


@pytest.mark.thorough
def test_control_variates_help_where_clients_differ(computation, digits):
    """Noise-free, two digits a client, many local steps: the loss falls further than by averaging."""
    order = np.argsort(digits.train.targets.numpy(), kind="stable")
    clients = [np.sort(own) for own in np.array_split(order, 10)]
    from dataclasses import replace

    data = replace(digits, clients=clients)
    losses = []
    settings = {"sample_rate": 1.0, "local_steps": 20}
    for algorithm in (
        DpScaffold("s", local_learning_rate=0.5, warm_start=0, **settings),
        DpFl("f", optimizer="sgd", learning_rate=0.5, **settings),
    ):
        training = computation(algorithm=algorithm, data=data, clipper=ConstantClipper(1e6))
        for round_index in range(10):
            training.play(round_index)
        model = training.context.model
        losses.append(model.evaluate(data.train.inputs, data.train.targets)[0])
    assert losses[0] < 0.8 * losses[1]


@pytest.mark.parametrize(("warm", "rounds"), [(1, 1), (5, 3)])
def test_a_run_of_warm_rounds_alone_is_refused(warm, rounds):
    overrides = ("algorithm=dp_scaffold", f"algorithm.warm_start={warm}", f"rounds={rounds}")
    with pytest.raises(ConfigError, match=f"algorithm.warm_start must be < {rounds}"):
        build_parts(fedpriv.compose(overrides))
