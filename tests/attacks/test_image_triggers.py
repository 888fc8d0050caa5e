"""Triggers in images: what is poisoned, what is tested, and that the two never mix."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from fedpriv.attacks import Backdoor, LabelFlip, PixelPattern, Semantic
from fedpriv.attacks.malicious import MaliciousClients
from fedpriv.common.errors import ArgumentError, ConfigError
from fedpriv.data.digits import Digits
from fedpriv.data.records import Records

NOT_TWOS = np.flatnonzero(Digits().load().train.targets.numpy() != 2)[100:140].tolist()
TRIGGERS = {
    "label_flip": lambda: LabelFlip(writers=5),
    "pixel_pattern": lambda: PixelPattern(size=3, target=4),
    "semantic": lambda: Semantic(NOT_TWOS, target=2),
}


def rows(records: Records) -> set[bytes]:
    return {x.numpy().tobytes() for x in records.inputs}


def attacked(trigger, data, **settings) -> MaliciousClients:
    return MaliciousClients(Backdoor(trigger=trigger, **{"attackers": 2, **settings}), data)


@pytest.mark.parametrize("name", TRIGGERS)
def test_nobody_trains_on_what_the_backdoor_is_tested_on(name, digits):
    made = attacked(TRIGGERS[name](), digits)
    everything = [made.data.clients[k] for k in range(made.data.client_count)]
    everything += [made.records_of(0, int(k)) for k in made.attackers]
    poisoned = [made._poisoned[int(k)] for k in made.attackers]
    trained = made.data.train.subset(np.unique(np.concatenate(everything + poisoned)))
    assert len(made.test) > 5
    assert not rows(made.test) & rows(trained)


@pytest.mark.parametrize("name", TRIGGERS)
def test_clean_test_records_are_left_alone(name, digits):
    made = attacked(TRIGGERS[name](), digits)
    assert made.data.test is digits.test
    assert not rows(made.test) & rows(digits.test)


@pytest.mark.parametrize("name", TRIGGERS)
def test_honest_clients_have_only_clean_records_with_their_own_labels(name, digits):
    made = attacked(TRIGGERS[name](), digits)
    for k in np.flatnonzero(made.honest):
        own = made.data.clients[k]
        assert set(own.tolist()) <= set(digits.clients[k].tolist())
        assert torch.equal(made.data.train.targets[own], digits.train.targets[own])
        assert torch.equal(made.data.train.inputs[own], digits.train.inputs[own])


@pytest.mark.parametrize("fraction", [0.01, 0.5, 1.0])
def test_attackers_poison_the_share_asked_for_and_keep_their_size(fraction, digits):
    made = attacked(PixelPattern(size=2, target=4), digits, poisoned_fraction=fraction)
    for k in made.attackers.tolist():
        n = len(made.data.clients[k])
        assert len(made._poisoned[k]) == max(1, round(fraction * n))
        assert len(made._clean[k]) + len(made._poisoned[k]) == n
        assert set(made.data.train.targets[made._poisoned[k]].tolist()) == {4}


def test_flipped_sevens_are_those_of_the_chosen_writers(digits):
    made = attacked(LabelFlip(source=7, target=1, writers=5), digits)
    gone = [
        np.setdiff1d(before, after)
        for before, after in zip(digits.clients, made.data.clients, strict=True)
    ]
    chosen = [k for k, records in enumerate(gone) if len(records)]
    assert len(chosen) == 5
    assert not set(chosen) & set(made.attackers.tolist())
    withheld = np.concatenate(gone)
    assert set(digits.train.targets[withheld].tolist()) == {7}
    assert rows(made.test) == rows(digits.train.subset(withheld))
    assert set(made.test.targets.tolist()) == {1}
    poison = np.concatenate([made._poisoned[int(k)] for k in made.attackers])
    kept = np.concatenate([made.data.clients[k] for k in chosen])
    sevens = kept[digits.train.targets[kept].numpy() == 7]
    assert rows(made.data.train.subset(poison)) <= rows(digits.train.subset(sevens))


@pytest.mark.parametrize(
    ("position", "rows_", "columns"),
    [
        ("bottom_right", [5, 6], [5, 6]),
        ("top_left", [1, 2], [1, 2]),
        ("top_right", [1, 2], [5, 6]),
        ("bottom_left", [5, 6], [1, 2]),
    ],
)
def test_the_pattern_is_where_it_is_said_to_be_and_nothing_else_changes(
    position, rows_, columns, digits
):
    few = digits.test.subset(np.arange(6))
    stamped = PixelPattern(size=2, margin=1, position=position).stamped(few, 0.75)
    where = torch.zeros(8, 8, dtype=torch.bool)
    where[rows_[0] : rows_[1] + 1, columns[0] : columns[1] + 1] = True
    assert (stamped.inputs[..., where] == 0.75).all()
    assert torch.equal(stamped.inputs[..., ~where], few.inputs[..., ~where])
    assert set(stamped.targets.tolist()) == {0}


def test_the_pattern_is_tested_on_images_of_other_labels(digits):
    made = attacked(PixelPattern(size=2, target=4), digits)
    assert len(made.test) == int((digits.test.targets != 4).sum())


def test_chosen_images_are_known_by_their_number_in_the_data_set(digits):
    """A validation split that took the first hundred away moves every later one."""
    later = dataclasses.replace(
        digits,
        train=digits.train.subset(np.arange(100, len(digits.train))),
        clients=[own[own >= 100] - 100 for own in digits.clients],
        numbers=np.arange(100, len(digits.train)),
    )
    chosen = NOT_TWOS[::10]
    made = attacked(Semantic(chosen, test_share=0.5), later)
    poison = np.concatenate([made._poisoned[int(k)] for k in made.attackers])
    seen = rows(made.test) | rows(made.data.train.subset(poison))
    assert seen == rows(digits.train.subset(np.array(chosen)))
    assert len(made.test) == 2


def test_chosen_images_are_with_no_honest_client(digits):
    made = attacked(Semantic(NOT_TWOS), digits)
    assert not set(np.concatenate(made.data.clients).tolist()) & set(NOT_TWOS)


def test_chosen_images_that_have_the_label_already_are_refused(digits):
    two = int((digits.train.targets == 2).nonzero()[0])
    with pytest.raises(
        ConfigError, match=rf"attack.trigger.target. is already that of 1 record: {two}$"
    ):
        attacked(Semantic([*NOT_TWOS, two]), digits)


def test_numbers_come_from_a_file(tmp_path, digits):
    path = tmp_path / "cars.txt"
    path.write_text("# green cars\n3, 5\n8 # and this one\n")
    assert Semantic(str(path)).indices.tolist() == [3, 5, 8]
    path.write_text("3 x")
    with pytest.raises(ArgumentError, match=r"whole numbers .it has 'x'"):
        Semantic(str(path))
    with pytest.raises(ArgumentError, match="can be read"):
        Semantic(str(tmp_path / "absent.txt"))


def test_more_writers_than_have_such_records_are_refused(digits):
    with pytest.raises(ConfigError, match=r"attack.trigger.writers must be <= 10"):
        attacked(LabelFlip(writers=11), digits)


def test_a_trigger_that_would_empty_a_client_is_refused(digits):
    own = digits.clients[3]
    without = own[(digits.train.targets[own] != 2).numpy()]
    few = dataclasses.replace(digits, clients=digits.clients.with_client(3, without))
    with pytest.raises(ConfigError, match="withholds all records of 1 client"):
        attacked(Semantic(few.clients[3].tolist()), few)


@pytest.mark.parametrize(
    "make",
    [
        lambda: LabelFlip(source=1, target=1),
        lambda: LabelFlip(test_share=1.0),
        lambda: PixelPattern(size=0),
        lambda: PixelPattern(position="middle"),
        lambda: Semantic(None),
        lambda: Semantic([4]),
        lambda: Semantic([4, -1]),
    ],
)
def test_bad_settings_are_refused(make):
    with pytest.raises(ArgumentError):
        make()


@pytest.mark.parametrize(("paper", "ink"), [(0.0, 1.0), (1.0, 0.0)], ids=["white ink", "black ink"])
def test_the_pattern_stands_out_from_the_paper(digits, paper, ink):
    """On white paper the brightest square would be no trigger at all."""

    def printed(records: Records) -> Records:
        bright = records.inputs / records.inputs.max()
        return Records(paper + (ink - paper) * bright, records.targets)

    data = dataclasses.replace(digits, train=printed(digits.train), test=printed(digits.test))
    made = attacked(PixelPattern(size=2, margin=0), data)
    corner = made.test.inputs[..., -2:, -2:]
    assert (corner == ink).all()
    poison = np.concatenate([made._poisoned[int(k)] for k in made.attackers])
    assert (made.data.train.inputs[poison][..., -2:, -2:] == ink).all()
