"""Property inference: a planted property is found without noise; what an observer sees is the algorithm's."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedpriv.common.errors import ConfigError
from fedpriv.experiment import snapshots
from fedpriv.tools.audit.contributions import ContributionObserver, pool
from fedpriv.tools.audit.properties import read_property
from fedpriv.tools.audit.property_inference import audit_property
from fedpriv.tools.audit.request import PropertyOptions
from fedpriv.tools.audit.subject import open_run


def many_clients(*more: str) -> tuple[str, ...]:
    return (
        "dataset=digits", "dataset.normalize=false", "partition=dirichlet", "partition.alpha=1",
        "partition.clients=60", "partition.min_records=5", "rounds=2", "runtime.snapshot_interval=1", *more,
    )  # fmt: skip


@pytest.fixture
def few_trees():
    """A property of 30 clients needs all of them."""


@pytest.fixture
def plain(ran):
    return open_run(ran(*many_clients("algorithm=fedsgd")).folder)


@pytest.fixture
def planted(plain, tmp_path):
    """A property that the uploads show: a client's share of zeros."""
    shares = plain.context.data.labels_per_client[:, 0] / plain.context.data.records_per_client
    path = tmp_path / "zeros.csv"
    path.write_text("client,value\n" + "".join(f"{k},{v}\n" for k, v in enumerate(shares)))
    return f"file:{path}"


@pytest.mark.thorough
def test_a_planted_property_is_found_without_noise(plain, planted):
    audit = audit_property(plain, PropertyOptions(planted))
    assert audit.auc.low > 0.7
    assert audit.snapshots == [0, 1, 2]


@pytest.mark.thorough
def test_a_property_that_is_not_in_the_data_is_not_found(plain, tmp_path):
    path = tmp_path / "coin.csv"
    path.write_text("".join(f"{k},{k * 7919 % 61}\n" for k in range(60)))
    audit = audit_property(plain, PropertyOptions(f"file:{path}"))
    assert audit.auc.low <= 0.5 <= audit.auc.high


@pytest.mark.thorough
def test_noise_hides_the_property(ran, planted):
    noisy = ran(*many_clients("algorithm=ldp_fedsgd", "noise_schedule=constant",
        "noise_schedule.noise_multiplier=200", "epsilon=null", "accountant=gdp"))  # fmt: skip
    audit = audit_property(open_run(noisy.folder), PropertyOptions(planted))
    assert audit.auc.low <= 0.5 <= audit.auc.high
    assert audit.sees == "each client's upload, with its noise"


@pytest.mark.thorough
def test_an_aggregate_without_noise_is_not_called_noised(ran, planted):
    bounded = ran(*many_clients("algorithm=norm_bounding", "algorithm.client_rate=0.5"))
    audit = audit_property(open_run(bounded.folder), PropertyOptions(planted, snapshots=1))
    assert audit.sees == "the aggregate of a cohort that has the client in it"


@pytest.mark.thorough
def test_attackers_are_not_audited(ran):
    attacked = ran(
        *many_clients("algorithm=norm_bounding", "attack=pixel_pattern", "attack.trigger.size=2",
        "attack.attackers=7")
    )  # fmt: skip
    subject = open_run(attacked.folder)
    found = read_property(subject, "label:3")
    assert len(found.clients) == 53
    assert not np.isin(subject.context.attack.attackers, found.clients).any()


@pytest.mark.thorough
def test_targets_are_not_learnt_from(plain, planted):
    rows = audit_property(plain, PropertyOptions(planted)).clients
    assert (rows["role"] == "auxiliary").sum() == 30
    assert rows["score"].isna().equals(rows["role"] == "auxiliary")


def test_a_contribution_is_what_the_run_itself_did(ran):
    """With one client the run's round and the observed one are the same but for noise and lot."""
    result = ran(
        "algorithm=fedsgd", "dataset=digits", "partition=iid", "partition.clients=1", "rounds=1",
        "runtime.snapshot_interval=1",
    )  # fmt: skip
    subject = open_run(result.folder)
    seen = ContributionObserver(subject, 0).contribution(
        snapshots.load(subject.run.files, 0), 0, 0.0
    )
    torch.testing.assert_close(seen, subject.final - subject.initial, rtol=1e-4, atol=1e-6)


def test_every_upload_has_noise_of_its_own_and_of_the_right_size(ran):
    result = ran(
        *many_clients("algorithm=ldp_fedsgd", "noise_schedule=constant", "epsilon=null",
        "noise_schedule.noise_multiplier=50", "accountant=gdp", "clipper=constant",
        "clipper.clip_norm=0.5", "algorithm.learning_rate=1")
    )  # fmt: skip
    subject = open_run(result.folder)
    observer, at = ContributionObserver(subject, 0), snapshots.load(subject.run.files, 1)
    one, other = (observer.contribution(at, k, 50.0).clone() for k in (0, 1))
    assert float(one.std()) == pytest.approx(50 * 0.5, rel=0.1)
    assert abs(float(torch.corrcoef(torch.stack([one, other]))[0, 1])) < 0.15


@pytest.mark.thorough
def test_a_contribution_to_scaffold_is_that_of_its_gradients(ran):
    """Control variates are released: an observer takes them out, and warm rounds do not hide a client."""
    result = ran(
        "algorithm=dp_scaffold", "dataset=digits", "partition=iid", "partition.clients=4", "rounds=2",
        "epsilon=null", "runtime.snapshot_interval=1",
    )  # fmt: skip
    subject = open_run(result.folder)
    observer, at = ContributionObserver(subject, 0), snapshots.load(subject.run.files, 0)
    one, again = (observer.contribution(at, 2, 0.0).clone() for _ in "ab")
    assert float(one.norm()) > 0
    assert torch.equal(one, again)


@pytest.mark.thorough
def test_with_central_trust_only_cohorts_are_seen(ran):
    result = ran(*many_clients("algorithm=cdp_fedavg", "epsilon=null", "algorithm.client_rate=0.2"))
    subject = open_run(result.folder)
    observer = ContributionObserver(subject, 0)
    cohort = observer.cohort(0, 7)
    assert 7 in cohort
    assert len(cohort) > 2
    audit = audit_property(subject, PropertyOptions("intensity", snapshots=1))
    assert "aggregate" in audit.sees


def test_few_parameters_are_taken_as_they_are_and_many_are_pooled(plain, ran):
    model = plain.context.model
    change = torch.randn(model.size)
    assert torch.equal(pool(model, change), change)
    wide = open_run(ran("algorithm=fedavg", "dataset=digits", "model=mlp", "rounds=1").folder)
    pooled = pool(wide.context.model, torch.ones(wide.context.model.size))
    assert len(pooled) < wide.context.model.size / 8
    assert float(pooled[0]) == pytest.approx((64 * 32) ** 0.5)


@pytest.mark.parametrize(("choice", "values"), [("intensity", "pixels"), ("label:3", "labels")])
def test_a_property_is_a_number_of_each_client(plain, choice, values):
    found = read_property(plain, choice)
    data = plain.context.data
    for k in (0, 17):
        own = data.train.subset(data.clients[k])
        expected = own.inputs.mean() if values == "pixels" else (own.targets == 3).float().mean()
        assert found.value[k] == pytest.approx(float(expected), rel=1e-5)
    assert abs((found.has == 1).sum() - (found.has == 0).sum()) <= 20


@pytest.mark.thorough
def test_writers_are_told_apart(ran, mnist_folder):
    result = ran(
        "algorithm=fedsgd", "dataset=mnist", f"dataset.path={mnist_folder}", "partition=natural",
        "partition.clients=null", "model=logistic", "rounds=1", "runtime.snapshot_interval=1",
    )  # fmt: skip
    found = read_property(open_run(result.folder), "writer")
    assert (found.has == 1).sum() == 250
    assert (found.has == 0).sum() == 289


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        ("length", "tokens"),
        ("writer", "dataset=mnist partition=natural"),
        ("label:10", "from 0 to 9"),
        ("file:absent.csv", "readable CSV"),
        ("shape", "one of intensity"),
        ("label", "one of intensity"),
        ("label:x", "whole number"),
    ],
)
def test_a_property_that_the_data_has_not_is_refused(plain, choice, words):
    with pytest.raises(ConfigError, match=words):
        read_property(plain, choice)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ("0,1\n1,1\n2,1\n", "same for all of the 3 clients it is known of"),
        ("".join(f"{k},{int(k < 3)}\n" for k in range(60)), "3 clients have it and 57 do not"),
        ("0,1\nx,2\n", "row 2 must be client,value, both of them numbers, got x,2"),
        ("60,1\n", "from 0 to 59"),
        ("", "of no client"),
    ],
)
def test_a_degenerate_property_is_refused(plain, tmp_path, rows, words):
    path = tmp_path / "p.csv"
    path.write_text(rows)
    with pytest.raises(ConfigError, match=words):
        read_property(plain, f"file:{path}")


def test_normalised_images_have_one_intensity(ran):
    result = ran("algorithm=fedavg", "dataset=digits", "rounds=1")
    with pytest.raises(
        ConfigError, match="same for every client; its records are standardised one by one"
    ):
        read_property(open_run(result.folder), "intensity")


def test_a_run_without_snapshots_is_refused(ran):
    result = ran(*many_clients("algorithm=fedsgd"), "runtime.snapshot_interval=null")
    with pytest.raises(ConfigError, match="snapshot_interval"):
        audit_property(open_run(result.folder), PropertyOptions("intensity"))


def test_no_more_clients_than_asked_for_are_audited(plain, planted):
    audit = audit_property(plain, PropertyOptions(planted, clients=24, snapshots=1))
    assert len(audit.clients) == 24
    assert np.isfinite(audit.auc.value)
