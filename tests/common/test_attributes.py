"""Whether what an object of the user's own keeps has changed."""

from __future__ import annotations

import itertools
import random
from collections import deque

import numpy as np
import pytest
import torch

from fedpriv.common.attributes import attribute_digests, changed_attributes, is_own
from fedpriv.privacy.clippers import ConstantClipper


class Box:
    def __init__(self, value):
        self.value, self.other = value, 1


class Inner:
    def __init__(self):
        self.count = 0


def count(box):
    box.value.count += 1


CHANGES = {
    "a number": (3, lambda box: setattr(box, "value", 4)),
    "the last bit": (1.0, lambda box: setattr(box, "value", np.nextafter(1.0, 2.0))),
    "a tensor in place": (torch.zeros(3), lambda box: box.value.add_(1)),
    "an array in place": (np.zeros(3), lambda box: box.value.__setitem__(0, 1)),
    "a list": ([1], lambda box: box.value.append(2)),
    "a dict in a list": ([{}], lambda box: box.value[0].update(a=1)),
    "a set": ({1}, lambda box: box.value.add(2)),
    "a deque": (deque([1]), lambda box: box.value.append(2)),
    "a bytearray": (bytearray(b"a"), lambda box: box.value.extend(b"b")),
    "a counter": (itertools.count(), lambda box: next(box.value)),
    "a generator of torch": (torch.Generator(), lambda box: torch.rand(1, generator=box.value)),
    "a generator of numpy": (np.random.default_rng(0), lambda box: box.value.random()),
    "a generator of Python": (random.Random(0), lambda box: box.value.random()),
    "an object": (Inner(), count),
    "another attribute": (1, lambda box: setattr(box, "more", 1)),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_changes_is_named(name):
    value, change = CHANGES[name]
    box = Box(value)
    before = attribute_digests(box)
    assert changed_attributes(before, attribute_digests(box)) == []
    change(box)
    wanted = "more" if name == "another attribute" else "value"
    assert changed_attributes(before, attribute_digests(box)) == [wanted]


def test_a_container_of_the_class_counts():
    class Shared:
        seen: list = []  # noqa: RUF012

    shared = Shared()
    before = attribute_digests(shared)
    shared.seen.append(1)
    assert changed_attributes(before, attribute_digests(shared)) == ["seen"]


def test_a_circle_ends():
    box = Box(None)
    box.value = box
    assert attribute_digests(box)


def test_memory_that_is_somebody_elses_is_left_out():
    weights = torch.zeros(3)
    box = Box(weights[1:])
    own = (weights.untyped_storage().data_ptr(),)
    before = attribute_digests(box, own)
    weights.add_(1)
    assert changed_attributes(before, attribute_digests(box, own)) == []


def test_own_is_what_stands_outside_fedpriv():
    assert is_own(Box(1))
    assert not is_own(ConstantClipper(1.0))
