"""Optimisers over stacked clients against torch's own, one instance per client."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

from fedpriv.algorithms import DpFl
from fedpriv.algorithms.optimizers import Adam, Decayed, Sgd
from fedpriv.common.errors import ArgumentError, ConfigError

CLIENTS, SIZE, RATE = 4, 6, 0.05
COHORTS = [[0, 1, 2, 3], [1], [0, 2], [0, 1, 2, 3], [3], [1, 2, 3]]


def gradients_of(round_index: int, members: int) -> torch.Tensor:
    stream = torch.Generator().manual_seed(round_index)
    return torch.randn(members, SIZE, generator=stream) * 10.0 ** (round_index - 3)


def own_adam(reset: bool = False) -> Adam:
    return Adam(RATE, CLIENTS, SIZE, torch.device("cpu"), reset)


def reference():
    weights = [torch.zeros(SIZE, requires_grad=True) for _ in range(CLIENTS)]
    return weights, [torch.optim.Adam([w], lr=RATE) for w in weights]


def changes_by_torch(round_index, cohort, weights, optimizers) -> torch.Tensor:
    changes = []
    for client, gradient in zip(cohort, gradients_of(round_index, len(cohort)), strict=True):
        before = weights[client].detach().clone()
        weights[client].grad = gradient
        optimizers[client].step()
        changes.append(weights[client].detach() - before)
    return torch.stack(changes)


def test_adam_equals_an_adam_of_torch_for_each_client():
    adam, (weights, optimizers) = own_adam(), reference()
    for round_index, cohort in enumerate(COHORTS):
        members = torch.tensor(cohort)
        adam.begin_round(members)
        change = adam.step(members, gradients_of(round_index, len(cohort)))
        expected = changes_by_torch(round_index, cohort, weights, optimizers)
        np.testing.assert_allclose(change, expected, rtol=1e-3, atol=1e-6)


def test_adam_that_is_reset_starts_every_round_anew():
    adam = own_adam(reset=True)
    for round_index, cohort in enumerate(COHORTS):
        members = torch.tensor(cohort)
        adam.begin_round(members)
        change = adam.step(members, gradients_of(round_index, len(cohort)))
        expected = changes_by_torch(round_index, cohort, *reference())
        np.testing.assert_allclose(change, expected, rtol=1e-3, atol=1e-6)


def test_adam_that_is_reset_keeps_its_state_within_a_round():
    adam, (weights, optimizers) = own_adam(reset=True), reference()
    everyone = torch.arange(CLIENTS)
    adam.begin_round(everyone)
    for step in range(3):
        change = adam.step(everyone, gradients_of(step, CLIENTS))
        expected = changes_by_torch(step, range(CLIENTS), weights, optimizers)
        np.testing.assert_allclose(change, expected, rtol=1e-3, atol=1e-6)


def test_adam_leaves_the_state_of_absent_clients_alone():
    adam = own_adam()
    adam.step(torch.arange(CLIENTS), gradients_of(0, CLIENTS))
    before = adam.state_dict()
    adam.begin_round(torch.tensor([1, 3]))
    adam.step(torch.tensor([1, 3]), gradients_of(1, 2))
    after = adam.state_dict()
    for name in ("first", "second", "steps"):
        assert torch.equal(before[name][[0, 2]], after[name][[0, 2]])
        assert not torch.equal(before[name][[1, 3]], after[name][[1, 3]])


def test_an_adam_restored_from_its_state_goes_on_as_before():
    one, other = own_adam(), own_adam()
    one.step(torch.arange(CLIENTS), gradients_of(0, CLIENTS))
    other.load_state_dict(one.state_dict())
    again = [a.step(torch.tensor([2]), gradients_of(1, 1)) for a in (one, other)]
    assert torch.equal(*again)


def test_a_saved_state_of_adam_does_not_move_with_it():
    adam = own_adam()
    state = adam.state_dict()
    adam.step(torch.arange(CLIENTS), gradients_of(0, CLIENTS))
    assert not state["first"].any()


def test_sgd_goes_against_the_gradient():
    gradients = gradients_of(0, 2)
    expected = -RATE * gradients
    assert torch.equal(Sgd(RATE).step(torch.tensor([0, 1]), gradients), expected)


def test_adam_refuses_a_state_that_cannot_fit_and_says_its_size():
    with pytest.raises(ConfigError, match=r"algorithm\.optimizer .* GiB free; use sgd"):
        Adam(RATE, 10**9, 10**6, torch.device("cpu"), reset=False)


@pytest.mark.parametrize("optimizer_state", ["kept", "reset"])
def test_a_client_that_sits_out_a_round_keeps_its_adam_state(optimizer_state, computation):
    training = computation(optimizer="adam", optimizer_state=optimizer_state, learning_rate=0.01)
    training.play(round_index=0, sigma=1.0)
    before = training.trainer.state_dict()["optimizer"]
    training.play(round_index=1, cohort=[1, 4], sigma=1.0)
    after = training.trainer.state_dict()["optimizer"]
    absent = [0, 2, 3, 5, 6, 7, 8, 9]
    assert torch.equal(before["first"][absent], after["first"][absent])
    assert torch.equal(before["second"][absent], after["second"][absent])
    assert not torch.equal(before["first"][[1, 4]], after["first"][[1, 4]])


def test_adam_in_a_round_reads_only_the_noised_gradient(computation):
    """The step of Adam equals torch's on what a round of SGD would have released."""
    released, _ = computation().released(sigma=2.0)
    training = computation(optimizer="adam", learning_rate=0.01)
    uploads, _ = training.play(sigma=2.0)
    gradients = released / training.lot_sizes[:, None]
    for upload, gradient in zip(uploads, gradients, strict=True):
        weight = torch.zeros_like(gradient, requires_grad=True)
        weight.grad = gradient
        torch.optim.Adam([weight], lr=0.01).step()
        np.testing.assert_allclose(upload, weight.detach(), rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("make", [lambda: Sgd(RATE), own_adam], ids=["sgd", "adam"])
def test_a_learning_rate_that_decays_is_that_of_the_round(make):
    """η_t = η γ^(t-1): one rate in all steps of a round, also for clients that sat out."""
    decayed, plain = Decayed(make(), 0.5), make()
    for t, cohort in enumerate(COHORTS):
        clients = torch.tensor(cohort)
        decayed.begin_round(clients)
        plain.begin_round(clients)
        for step in range(2):
            gradients = gradients_of(7 * t + step, len(cohort))
            expected = plain.step(clients, gradients.clone()) * 0.5**t
            torch.testing.assert_close(decayed.step(clients, gradients), expected, rtol=0, atol=0)


def test_a_decayed_rate_goes_on_where_it_was():
    whole, first, second = (Decayed(own_adam(), 0.9) for _ in range(3))
    everyone = torch.arange(CLIENTS)
    for t in range(6):
        if t == 3:
            second.load_state_dict(first.state_dict())
        part = first if t < 3 else second
        found = []
        for optimizer in (whole, part):
            optimizer.begin_round(everyone)
            found.append(optimizer.step(everyone, gradients_of(t, CLIENTS)))
        assert torch.equal(*found)


@pytest.mark.thorough
def test_the_rate_falls_from_round_to_round_of_a_run(train):
    """With a factor near zero nothing moves after the first round."""
    keys = ("algorithm=fedavg", "evaluation_interval=1", "rounds=3", "algorithm.optimizer=sgd")
    constant, still = (
        pd.read_csv(train(*keys, *more, name=name).folder / "metrics.csv").test_loss
        for name, more in (("constant", ()), ("still", ("algorithm.learning_rate_decay=1e-30",)))
    )
    assert still.nunique() == 1
    assert constant.nunique() == 3


@pytest.mark.parametrize("factor", [0, -0.1, 1.01, "fast"])
def test_a_decay_that_is_no_factor_up_to_one_is_refused(factor):
    with pytest.raises(ArgumentError, match="learning_rate_decay"):
        DpFl("dp_fl", 0.1, learning_rate_decay=factor)


def test_the_plan_tells_the_decay():
    told = dict(DpFl("dp_fl", 0.1, learning_rate_decay=0.99).describe(None, None))
    assert told["optimizer"] == "adam, learning rate 0.01, times 0.99 after each round"
