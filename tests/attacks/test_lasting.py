"""Backdoors whose attackers remember, and triggers of parts and of rare images."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedpriv.algorithms import FedAvg
from fedpriv.attacks import A3fl, Backdoor, DistributedPattern, EdgeCases, Neurotoxin, PixelPattern
from fedpriv.attacks.malicious import MaliciousClients
from fedpriv.common.errors import ArgumentError, ConfigError

SQUARE = PixelPattern(size=2, target=3)


def fedavg(rate: float = 0.5) -> FedAvg:
    return FedAvg("fedavg", sample_rate=0.5, optimizer="sgd", learning_rate=rate, local_steps=2)


@pytest.mark.parametrize("ratio", [0.99, 0.5])
def test_neurotoxin_leaves_alone_what_the_last_global_update_moved_most(federation, ratio):
    made = federation(fedavg(), Neurotoxin(trigger=SQUARE, attackers=2, mask_ratio=ratio))
    before = made.weights.clone()
    first = made.play(0)
    attackers = made.malicious.attackers.tolist()
    moved = (made.weights - before).abs()
    second = made.play(1)
    kept = int(ratio * len(moved))
    limit = moved.sort().values[kept - 1]
    for k in attackers:
        assert int((first[k] != 0).sum()) > kept - 100  # no last update yet: all coordinates
        assert bool((second[k][moved > limit] == 0).all())
        assert bool((second[k][moved <= limit] != 0).any())


def test_neurotoxin_goes_on_from_its_state(federation):
    whole, other = (federation(fedavg(), Neurotoxin(trigger=SQUARE, attackers=2)) for _ in range(2))
    whole.play(0)
    other.weights.copy_(whole.weights)
    other.malicious.load_state_dict(whole.malicious.state_dict())
    one, two = whole.play(1), other.play(1)
    assert all(torch.equal(one[k], two[k]) for k in one)


def test_the_optimised_trigger_fools_the_global_model_more_than_the_plain_one(federation):
    """One model that nobody attacked: the plain pattern against the optimised one."""
    made = federation(fedavg(), A3fl(trigger=SQUARE, attackers=2, first_round=6))
    for t in range(5):
        made.play(t)
    attackers, model = made.malicious, made.context.model
    low, high = attackers._bounds

    def rate() -> float:
        return model.evaluate(attackers.test.inputs, attackers.test.targets)[1]

    plain, before = rate(), attackers.pattern.clone()
    attackers.observe(4, model.flat.clone())  # not an attacked round
    assert torch.equal(attackers.pattern, before)
    attackers.observe(5, model.flat.clone())
    assert rate() > plain
    assert low <= float(attackers.pattern.min()) <= float(attackers.pattern.max()) <= high


def test_the_pixels_of_an_optimised_trigger_are_in_all_poisoned_and_test_records(federation):
    made = federation(fedavg(), A3fl(trigger=SQUARE, attackers=2, trigger_epochs=3))
    made.play(0)
    attackers, square = made.malicious, SQUARE.square
    poisoned = np.concatenate(list(attackers._poisoned.values()))
    for inputs in (attackers.data.train.inputs[poisoned], attackers.test.inputs):
        assert torch.equal(square(inputs), attackers.pattern.expand_as(square(inputs)))
    own = attackers.data.clients[int(attackers.attackers[0])]
    assert not torch.equal(
        square(attackers.data.train.inputs[own])[0], attackers.pattern
    )  # clean records stay


def test_an_optimised_trigger_goes_on_from_its_state(federation):
    settings = {"trigger": SQUARE, "attackers": 2, "trigger_epochs": 5}
    whole, other = (federation(fedavg(), A3fl(**settings)) for _ in range(2))
    whole.play(0)
    other.weights.copy_(whole.weights)
    other.malicious.load_state_dict(whole.malicious.state_dict())
    assert torch.equal(whole.malicious.test.inputs, other.malicious.test.inputs)
    one, two = whole.play(1), other.play(1)
    assert all(torch.equal(one[k], two[k]) for k in one)


def test_an_optimised_trigger_follows_the_formula(federation):
    """Two steps by hand, with a model of one layer whose gradients are those of a linear map."""
    made = federation(fedavg(), A3fl(trigger=SQUARE, attackers=2, trigger_epochs=2, balance=0.5))
    attackers, model = made.malicious, made.context.model
    records = attackers.data.train.subset(np.sort(attackers._own))
    inputs, pattern = records.inputs.clone(), attackers.pattern.clone()
    layer = torch.nn.Linear(64, 10)
    with torch.no_grad():
        for parameter, own in zip(layer.parameters(), model.parameters(), strict=True):
            parameter.copy_(own)
    unlearning = torch.nn.Linear(64, 10)
    unlearning.load_state_dict(layer.state_dict())
    cross_entropy, wanted = torch.nn.functional.cross_entropy, torch.full((len(inputs),), 3)
    for _ in range(2):
        delta = pattern.clone().requires_grad_()
        SQUARE.square(inputs).copy_(pattern.expand_as(SQUARE.square(inputs)))
        loss = cross_entropy(unlearning(inputs.flatten(1)), records.targets)
        gradients = torch.autograd.grad(loss, list(unlearning.parameters()))
        with torch.no_grad():
            for parameter, gradient in zip(unlearning.parameters(), gradients, strict=True):
                parameter -= 0.1 * gradient
        stamped = inputs.clone()
        SQUARE.square(stamped)[:] = delta
        loss = cross_entropy(layer(stamped.flatten(1)), wanted)
        loss = loss + 0.5 * cross_entropy(unlearning(stamped.flatten(1)), wanted)
        (slope,) = torch.autograd.grad(loss, [delta])
        pattern = (pattern - 0.01 * slope.sign()).clamp(*attackers._bounds)
    attackers.observe(0, model.flat.clone())
    torch.testing.assert_close(attackers.pattern, pattern)


def test_each_attacker_of_a_distributed_backdoor_has_a_stripe_and_the_test_the_whole(digits):
    trigger = DistributedPattern(size=4, parts=2, value=7.0, margin=0)
    attackers = MaliciousClients(Backdoor(trigger=trigger, attackers=3), digits)
    assert bool((trigger.square(attackers.test.inputs) == 7.0).all())
    stripes = [slice(0, 2), slice(2, 4), slice(0, 2)]
    for k, stripe in zip(attackers.attackers.tolist(), stripes, strict=True):
        square = trigger.square(attackers.data.train.inputs[attackers._poisoned[k]])
        stamped = (square == 7.0).all(dim=0)[0]
        assert bool(stamped[stripe].all())
        assert int(stamped.sum()) == 8


def test_edge_cases_are_the_farthest_of_their_label_and_nobody_else_has_them(digits):
    trigger = EdgeCases(source=7, target=1, share=0.1)
    attackers = MaliciousClients(Backdoor(trigger=trigger, attackers=2), digits)
    sevens = np.flatnonzero((digits.train.targets == 7).numpy())
    images = digits.train.inputs[sevens].flatten(1).double()
    mean = images.mean(0)
    squares = [float(((image - mean) ** 2).sum()) for image in images]
    count = round(0.1 * len(sevens))
    expected = set(sevens[np.argsort(squares)[-count:]].tolist())
    held = np.concatenate(attackers.data.clients)
    assert set(np.setdiff1d(np.concatenate(digits.clients), held).tolist()) == expected
    assert set(attackers.test.targets.tolist()) == {1}
    tested = {tuple(image.flatten().tolist()) for image in attackers.test.inputs}
    edges = {tuple(digits.train.inputs[i].flatten().tolist()) for i in expected}
    poisoned = {
        tuple(image.flatten().tolist())
        for rows in attackers._poisoned.values()
        for image in attackers.data.train.inputs[rows]
    }
    assert tested | poisoned == edges
    assert not tested & poisoned


@pytest.mark.parametrize(
    ("make", "key"),
    [
        (lambda: DistributedPattern(size=2, parts=3), "parts"),
        (lambda: EdgeCases(source=1, target=1), "target"),
        (lambda: EdgeCases(share=0), "share"),
        (lambda: Neurotoxin(trigger=SQUARE, mask_ratio=0), "mask_ratio"),
        (lambda: A3fl(trigger=EdgeCases()), "trigger"),
        (lambda: A3fl(trigger=DistributedPattern(parts=2)), "trigger"),
        (lambda: A3fl(trigger=SQUARE, dp_steps="follow"), "dp_steps"),
        (lambda: A3fl(trigger=SQUARE, trigger_rate=0), "trigger_rate"),
    ],
)
def test_an_error_names_the_key(make, key):
    with pytest.raises(ArgumentError, match=key):
        make()


def test_a_label_with_too_few_images_is_refused(digits):
    labels = digits.train.targets
    few = [k[(labels[k] != 7).numpy()] for k in digits.clients]
    few[0] = np.append(few[0], np.flatnonzero((labels == 7).numpy())[:1])
    data = replace(digits, clients=few)
    with pytest.raises(ConfigError, match=r"attack.trigger.source"):
        MaliciousClients(Backdoor(trigger=EdgeCases(), attackers=2), data)
