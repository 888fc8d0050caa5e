"""Synthetic data: what is drawn follows from the seed and the number of the user, and can be learnt."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedpriv.common.errors import ArgumentError
from fedpriv.data.catalogue import download
from fedpriv.data.federated import federate
from fedpriv.data.partitions import Natural
from fedpriv.data.records import CLASSIFICATION
from fedpriv.data.synthetic import BLOCK, Synthetic, SyntheticText

BOTH = pytest.mark.parametrize("kind", [Synthetic, SyntheticText])


@BOTH
def test_records_are_as_many_as_announced_and_lie_user_by_user(kind):
    dataset = kind(users=BLOCK + 30, records_per_user=2, most_records_per_user=5, test_records=40)
    loaded = dataset.load()
    assert (len(loaded.train), len(loaded.test)) == (dataset.train_records, 40)
    assert loaded.train.inputs.shape[1:] == dataset.input_shape
    np.testing.assert_array_equal(
        np.bincount(loaded.client_ids, minlength=BLOCK + 30), dataset.records_of_users
    )
    assert set(dataset.records_of_users) == {2, 3, 4, 5}
    assert (np.diff(loaded.client_ids) >= 0).all()


@BOTH
def test_a_larger_federation_contains_a_smaller_one(kind):
    for more_records in ({}, {"most_records_per_user": 7}):
        small = kind(users=20, records_per_user=3, **more_records).load()
        large = kind(users=BLOCK + 1, records_per_user=3, **more_records).load()
        count = len(small.train)
        assert torch.equal(large.train.inputs[:count], small.train.inputs)
        assert torch.equal(large.train.targets[:count], small.train.targets)
        assert torch.equal(large.test.inputs, small.test.inputs)


@BOTH
def test_seeds_blocks_training_and_test_records_differ(kind):
    loaded = kind(users=2 * BLOCK, records_per_user=1, test_records=BLOCK).load()
    other = kind(users=2 * BLOCK, records_per_user=1, test_records=BLOCK, seed=1).load()
    parts = [
        loaded.train.inputs[:BLOCK], loaded.train.inputs[BLOCK:], loaded.test.inputs,
        other.train.inputs[:BLOCK], other.test.inputs,
    ]  # fmt: skip
    for i, part in enumerate(parts):
        for later in parts[i + 1 :]:
            assert (part.double() != later.double()).any(dim=1).float().mean() > 0.9


@BOTH
def test_other_settings_are_other_data_for_the_streams(kind):
    def digest(**settings):
        return federate(kind(**settings), Natural(), validation=False, seed=0).digest

    settings = (
        {"users": 5},
        {"users": 6},
        {"users": 5, "seed": 1},
        {"users": 5, "records_per_user": 3},
    )
    assert len({digest(**chosen) for chosen in settings}) == len(settings)
    assert digest(users=5) == digest(users=5, validation_records=7)  # which is not in any record


@BOTH
def test_nothing_is_private_about_them_and_the_statement_says_so(kind):
    dataset = kind(users=7)
    assert "synthetic, of no person: 7 users of 10 records" in dataset.notes[0]
    assert "belong to no person" in dataset.caveats[0]
    status = download(dataset.name)
    assert status.usable
    assert status.checksums == "synthetic"


def test_a_linear_model_of_all_users_learns_the_teacher():
    loaded = Synthetic(users=2000).load()
    weights = torch.zeros(16, 10, requires_grad=True)
    optimizer = torch.optim.LBFGS([weights], max_iter=30)

    def closure():
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(
            loaded.train.inputs @ weights, loaded.train.targets
        )
        loss.backward()
        return loss

    optimizer.step(closure)
    predicted = (loaded.test.inputs @ weights).argmax(dim=1)
    assert (predicted == loaded.test.targets).float().mean() > 0.75
    assert loaded.test.targets.bincount(minlength=10).max() < 0.3 * len(loaded.test)


def test_skews_make_users_differ():
    def spread(quantity, **skews):
        loaded = Synthetic(users=300, records_per_user=20, **skews).load()
        values = quantity(loaded).double().reshape(300, 20, -1)
        return float(values.mean(dim=1).var(dim=0).mean())

    assert spread(lambda d: d.train.inputs, feature_skew=1.0) > 3 * spread(
        lambda d: d.train.inputs, feature_skew=0.0
    )
    labels = lambda d: torch.nn.functional.one_hot(d.train.targets, 10)  # noqa: E731
    assert spread(labels, label_skew=20.0, feature_skew=0.0) > 3 * spread(
        labels, label_skew=0.0, feature_skew=0.0
    )


def test_text_is_one_chain_for_each_dialect():
    dataset = SyntheticText(users=4000, records_per_user=4, dialects=1, vocabulary_size=12)
    loaded = dataset.load()
    inputs, targets = loaded.train.inputs.long(), loaded.train.targets.long()
    assert torch.equal(inputs[:, 1:], targets[:, :-1])
    assert inputs.min() == 2  # no padding, no unknown token
    assert inputs.max() == 11
    pairs = torch.zeros(12, 12)
    pairs.index_put_((inputs.flatten(), targets.flatten()), torch.ones(1), accumulate=True)
    shares = (pairs[2:] / pairs[2:].sum(dim=1, keepdim=True)).sort(dim=1, descending=True).values
    assert shares[:, 0].sub(0.37).abs().max() < 0.03
    assert (shares[:, SyntheticText.SUCCESSORS :] == 0).all()
    assert loaded.vocabulary.decode([2, 3, 0]) == "word0 word1"


def test_lots_of_text_kept_in_bytes_are_whole_numbers_of_64_bits():
    loaded = SyntheticText(users=3).load()
    assert loaded.train.inputs.dtype == torch.uint8
    lot = loaded.train.subset(np.array([4, 1]))
    inputs, targets = loaded.train.rows(np.array([4, 1]))
    assert lot.inputs.dtype == lot.targets.dtype == loaded.test.inputs.dtype == torch.int64
    assert torch.equal(inputs[0:2], lot.inputs)
    assert torch.equal(targets[0:2], lot.targets)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"users": 0}, "users must be a whole number >= 1"),
        ({"most_records_per_user": 9}, "most_records_per_user must be null or >= 10"),
        ({"users": 1, "validation_records": 10}, "validation_records must be a whole number >= 1 and <= 9"),
        ({"label_skew": -1}, "label_skew must be >= 0"),
    ],
)  # fmt: skip
def test_a_wrong_setting_is_named(settings, message):
    with pytest.raises(ArgumentError, match=message):
        Synthetic(**settings)


def test_the_sizes_of_users_are_known_without_their_records(monkeypatch):
    dataset = Synthetic(users=50, records_per_user=1, most_records_per_user=9)
    monkeypatch.setattr(Synthetic, "load", lambda _: pytest.fail("drawn"))
    assert dataset.task == CLASSIFICATION
    assert dataset.records_of_users.sum() == dataset.train_records
