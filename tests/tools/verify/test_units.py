"""A mistake that is about one client is found, whichever client it is."""

from __future__ import annotations

import numpy as np
import pytest
from planted import CLIENTS, RECORDS

from fedpriv.common.config import compose
from fedpriv.tools.verify import units
from fedpriv.tools.verify.subject import Subject

pytestmark = pytest.mark.usefixtures("unpublished")
SLOW = pytest.mark.slow
ADAPTIVE = ("algorithm=adap_dpfl", "partition=iid", "partition.clients=4")


def sensitivity_of(found: list[str], client: int) -> bool:
    return any(one.startswith(f"sensitivity: gradient_sum: client {client}:") for one in found)


@pytest.mark.thorough
@pytest.mark.parametrize("overrides", [RECORDS, pytest.param(CLIENTS, marks=SLOW), ADAPTIVE])
def test_every_unit_of_unequal_clients_passes(caught, overrides):
    assert caught(*overrides, units=True) == []


@pytest.mark.parametrize(
    ("computation", "overrides"),
    [pytest.param("LastUnclipped", RECORDS, marks=SLOW), ("NeighboursNorm", ADAPTIVE)],
)
def test_planted_records_of_one_client_that_are_not_clipped_to_its_norm(
    caught_by, computation, overrides
):
    own = ("algorithm._target_=planted.OwnWork", f"+algorithm.computation={computation}")
    found = caught_by("units", *overrides, *own, units=True)
    assert sensitivity_of(found, 3) or sensitivity_of(found, 2)


@pytest.mark.parametrize(
    "computation",
    [
        pytest.param("LastUploadUnclipped", marks=SLOW),
        pytest.param("LastWeighsTwo", marks=SLOW),
        "WeighedByData",
    ],
)
def test_planted_weights_of_clients(caught_by, computation, monkeypatch):
    monkeypatch.setattr(units, "_MOST", 5)
    own = ("algorithm._target_=planted.OwnClientWork", f"+algorithm.computation={computation}")
    found = caught_by("units", *CLIENTS, *own, units=True)
    subject = Subject(compose(CLIENTS), unequal=True)
    largest = int(np.argmax([len(records) for records in subject.context.data.clients]))
    assert sensitivity_of(found, largest if computation == "WeighedByData" else 23)


def test_units_are_the_first_the_last_the_largest_the_smallest_and_others():
    subject = Subject(compose(CLIENTS), unequal=True)
    sizes = [len(records) for records in subject.context.data.clients]
    assert max(sizes) > 3 * min(sizes)
    chosen = subject.clients_to_try(5)
    assert len(chosen) == 5
    assert {0, 23, int(np.argmax(sizes)), int(np.argmin(sizes))} <= set(chosen)
