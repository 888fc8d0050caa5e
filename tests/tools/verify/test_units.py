"""A mistake that is about one client is found, whichever client it is."""

from __future__ import annotations

import numpy as np
import pytest
from planted import CLIENTS, RECORDS

from fedpriv.common.config import compose
from fedpriv.tools.verify import units
from fedpriv.tools.verify.subject import Subject

pytestmark = pytest.mark.usefixtures("unpublished")
ADAPTIVE = ("algorithm=adap_dpfl", "partition=iid", "partition.clients=4")


def sensitivity_of(found: list[str], client: int) -> bool:
    return any(one.startswith(f"sensitivity: gradient_sum: client {client}:") for one in found)


@pytest.mark.thorough
@pytest.mark.parametrize("overrides", [RECORDS, ADAPTIVE])
def test_every_unit_of_unequal_clients_passes(caught, overrides):
    assert caught(*overrides, units=True) == []


@pytest.mark.thorough
def test_planted_records_of_one_client_that_are_not_clipped_to_its_norm(caught_by):
    own = ("algorithm._target_=planted.OwnWork", "+algorithm.computation=NeighboursNorm")
    found = caught_by("units", *ADAPTIVE, *own, units=True)
    assert sensitivity_of(found, 3) or sensitivity_of(found, 2)


@pytest.mark.thorough
def test_planted_weights_of_clients(caught_by, monkeypatch):
    monkeypatch.setattr(units, "_MOST", 5)
    own = ("algorithm._target_=planted.OwnClientWork", "+algorithm.computation=WeighedByData")
    found = caught_by("units", *CLIENTS, *own, units=True)
    subject = Subject(compose(CLIENTS), unequal=True)
    largest = int(np.argmax([len(records) for records in subject.context.data.clients]))
    assert sensitivity_of(found, largest)


def test_units_are_the_first_the_last_the_largest_the_smallest_and_others():
    subject = Subject(compose(CLIENTS), unequal=True)
    sizes = [len(records) for records in subject.context.data.clients]
    assert max(sizes) > 3 * min(sizes)
    chosen = subject.clients_to_try(5)
    assert len(chosen) == 5
    assert {0, 23, int(np.argmax(sizes)), int(np.argmin(sizes))} <= set(chosen)
