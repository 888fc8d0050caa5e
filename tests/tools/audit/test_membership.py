"""Membership inference: what was learnt by heart leaks, what was drowned in noise does not."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional

from fedpriv.common.errors import ConfigError
from fedpriv.data.records import Records
from fedpriv.tools.audit.attacks import observed
from fedpriv.tools.audit.membership import audit_membership
from fedpriv.tools.audit.records import choose, gradients, losses
from fedpriv.tools.audit.request import MembershipOptions
from fedpriv.tools.audit.subject import open_run

HELD_OUT = MembershipOptions(nonmembers="held_out")


@pytest.fixture(scope="module")
def leaking(by_heart):
    return audit_membership(open_run(by_heart), HELD_OUT)


@pytest.mark.thorough
def test_a_model_that_learnt_by_heart_leaks(leaking):
    for outcome in leaking.outcomes:
        assert outcome.auc.low > 0.5, outcome
    assert leaking.strongest.auc.value > 0.6


def test_the_records_alone_tell_nothing_where_they_are_of_one_distribution(leaking):
    assert leaking.blind.auc.low <= 0.5 <= leaking.blind.auc.high


def test_a_model_drowned_in_noise_does_not_leak(drowned):
    audit = audit_membership(open_run(drowned), HELD_OUT)
    for outcome in audit.outcomes:
        assert outcome.auc.low <= 0.5 <= outcome.auc.high, outcome


def test_members_and_non_members_are_equally_many_and_none_is_both(by_heart):
    subject = open_run(by_heart)
    candidates = choose(subject, "held_out", 2000, 0)
    assert candidates.each == 24 * 8
    rows = candidates.records.inputs.flatten(1).numpy()
    members, others = ({row.tobytes() for row in part} for part in candidates.split(rows))
    trained = subject.context.data.train.subset(np.concatenate(subject.context.data.clients))
    trained_on = {row.tobytes() for row in trained.inputs.flatten(1).numpy()}
    assert members <= trained_on
    assert not others & trained_on


def test_fewer_records_on_request(by_heart):
    assert choose(open_run(by_heart), "test", 30, 0).each == 30


def test_only_clients_that_took_part_have_members(train):
    some = ("participation=sampled", "clients_per_round=2")
    result = train(
        "algorithm=fedavg", "dataset=digits", "partition=iid", "partition.clients=20", "rounds=1",
        *(f"algorithm.{setting}" for setting in some),
    )  # fmt: skip
    subject = open_run(result.folder)
    assert len(subject.took_part()) == 2
    came = sum(len(subject.context.data.clients[k]) for k in subject.took_part())
    assert choose(subject, "test", 2000, 0).each == came


def test_held_out_needs_records_that_no_client_has(ran):
    result = ran("algorithm=fedavg", "dataset=digits", "rounds=1")
    with pytest.raises(ConfigError, match=r"0 non-members \(held_out\).*fixed_size"):
        choose(open_run(result.folder), "held_out", 2000, 0)


def test_too_few_non_members_are_said_and_leave_no_number(leaking):
    assert leaking.outcomes[0].rates["tpr_at_0.1_percent"] is None
    assert any("0.1%" in warning and "1000" in warning for warning in leaking.warnings)


def test_non_members_of_another_kind_are_warned_of(by_heart, monkeypatch):
    subject = open_run(by_heart)
    test = subject.context.data.test
    darker = Records(test.inputs + 1.0, test.targets)
    object.__setattr__(subject.context.data, "test", darker)
    audit = audit_membership(subject, MembershipOptions())
    assert audit.blind.auc.low > 0.9
    assert any("one distribution" in warning for warning in audit.warnings)


@pytest.mark.thorough
def test_clients_that_are_users_are_warned_of(train, mnist_folder):
    result = train(
        "algorithm=fedavg", "dataset=mnist", f"dataset.path={mnist_folder}", "partition=natural",
        "partition.clients=20", "model=logistic", "rounds=1",
    )  # fmt: skip
    audit = audit_membership(open_run(result.folder), MembershipOptions(records=60))
    assert any("records of one user" in warning for warning in audit.warnings)


@pytest.mark.thorough
def test_a_run_without_snapshots_is_attacked_by_its_first_and_last_weights(train):
    result = train("algorithm=fedavg", "dataset=digits", "rounds=2")
    audit = audit_membership(open_run(result.folder), MembershipOptions(records=40))
    assert audit.weights_seen == [0, 2]
    assert any("snapshot_interval" in warning for warning in audit.warnings)


def test_the_weights_are_those_of_the_run(by_heart):
    subject = open_run(by_heart)
    assert [rounds for rounds, _ in subject.trajectory(10)] == [0, 20, 40]
    saved = torch.load(by_heart / "snapshots" / "round000000.pt")["weights"]
    assert torch.equal(subject.initial, saved)
    last = torch.load(by_heart / "model.pt")
    assert torch.equal(subject.final, torch.cat([t.flatten() for t in last.values()]))


def test_losses_and_gradients_of_single_records_are_those_of_autograd(by_heart):
    subject = open_run(by_heart)
    context, few = subject.context, choose(subject, "held_out", 20, 0).records
    model = context.model
    seen = losses(model, subject.final, few)
    rows = torch.cat(list(gradients(model, context.engine, subject.final, few)))
    for i in range(0, 40, 7):
        loss = functional.cross_entropy(model(few.inputs[i : i + 1]), few.targets[i : i + 1])
        expected = torch.cat([g.flatten() for g in torch.autograd.grad(loss, model.parameters())])
        torch.testing.assert_close(rows[i], expected, rtol=1e-4, atol=1e-6)
        assert seen[i] == pytest.approx(loss.item(), rel=1e-4, abs=1e-6)


def test_losses_of_confident_predictions_are_told_apart(by_heart):
    """In single precision they would all be 0, and the attack by the loss would see ties."""
    subject = open_run(by_heart)
    few = choose(subject, "held_out", 20, 0).records
    seen = losses(subject.context.model, 1.5 * subject.final, few)
    single = functional.cross_entropy(
        subject.context.model(few.inputs), few.targets, reduction="none"
    )
    assert (single == 0).sum() > 2 * (seen == 0).sum() + 5


def test_held_out_records_of_an_attacked_run_are_the_data_sets_own(ran):
    result = ran(
        "dataset=digits", "partition=fixed_size", "partition.clients=24", "partition.records=40", "rounds=1",
        "algorithm=norm_bounding", "algorithm.client_rate=1", "attack=pixel_pattern",
        "attack.trigger.size=2", "attack.attackers=3",
    )  # fmt: skip
    subject = open_run(result.folder)
    data, attack = subject.context.data, subject.context.attack
    own = len(data.train) - 3 * 20  # half of each attacker's records were poisoned
    assert attack.untouched.tolist() == list(range(own))
    assert choose(subject, "held_out", 10**6, 0).each == own - 24 * 40


def test_what_is_observed_of_a_gradient_and_a_movement(by_heart):
    subject = open_run(by_heart)
    few = choose(subject, "held_out", 20, 0).records
    movement = subject.final - subject.initial
    table = observed(subject.context, subject.initial, movement, few)
    context = subject.context
    gradient = torch.cat(list(gradients(context.model, context.engine, subject.initial, few)))
    np.testing.assert_allclose(table[:, 1], gradient.norm(dim=1), rtol=1e-5)
    np.testing.assert_allclose(table[:, 2], gradient @ movement, rtol=1e-4, atol=1e-5)
    cosine = functional.cosine_similarity(gradient, movement[None])
    np.testing.assert_allclose(table[:, 3], cosine, rtol=1e-4, atol=1e-5)
