"""Every shipped algorithm does what its ledger says."""

from __future__ import annotations

import pytest
from planted import CLIENTS, COPIES, RECORDS

from fedpriv.common.groups import options

FEW = ("partition.clients=4",)
ONE_STEP = ("algorithm.local_epochs=1", "algorithm.batch_size=null")
PUBLISHED = ("cdp_fedavg",)
"""Of these a run is published too, which takes as long as all else; of dp_fl in test_files.py."""
SHIPPED = {
    "adap_dpfl": FEW,
    "cdp_fedavg": CLIENTS[1:],
    "ddp_fedavg": FEW,
    "dp_fl": RECORDS[1:],
    "dp_fl_server": FEW,
    "dp_scaffold": FEW,
    "fedavg": FEW,
    "fedsgd": FEW,
    "ldp_fedsgd": (*FEW, "noise_schedule=constant"),
    "naseri_cdp": (*CLIENTS[1:], *ONE_STEP),
    "naseri_ldp": (*FEW, "algorithm.sample_rate=0.5"),
    "norm_bounding": (*CLIENTS[1:], *ONE_STEP),
    "weak_dp": (*CLIENTS[1:], *ONE_STEP),
    "wei_cdp": FEW,
    "wei_cdp_optimal": FEW,
    "wei_crd": FEW,
}


def test_none_is_left_out():
    elsewhere = {"dp_ftrl"}  # test_correlated.py
    assert set(SHIPPED) | elsewhere == {name for name, _ in options("algorithm")}


@pytest.mark.few(1)
@pytest.mark.parametrize("algorithm", SHIPPED)
def test_every_algorithm_passes(caught, request, algorithm):
    if algorithm not in PUBLISHED:
        request.getfixturevalue("unpublished")
    assert caught(f"algorithm={algorithm}", *SHIPPED[algorithm]) == []


@pytest.mark.thorough
@pytest.mark.parametrize(
    "overrides",
    [
        ("algorithm=dp_fl", *FEW, "algorithm.local_steps=2"),
        ("algorithm=dp_fl_server", *FEW, "algorithm.sample_rate=0.5"),
    ],
    ids=["dp_fl", "dp_fl_server"],
)
def test_copies_of_images_move_a_sum_as_one_record(caught, unpublished, overrides):
    assert caught(*overrides, *COPIES, rounds=2) == []


@pytest.mark.thorough
def test_a_record_can_be_left_out_of_lots_that_are_all_records(caught_by, unpublished):
    """Not: be changed into another, which moves a sum by twice its clip norm."""
    everybody = "algorithm.sample_rate=1"
    overrides = ("algorithm=dp_fl_server", *FEW, everybody)
    assert caught_by("sensitivity, outside", *overrides, rounds=2) == []


@pytest.mark.thorough
def test_who_contributes_nothing_has_no_bit_either(caught):
    """Zeros are shorter than any clip norm: their bit would be one more than none."""
    quantile = ("clipper=quantile", "clipper.initial_clip_norm=0.01")
    assert caught("algorithm=ddp_fedavg", *FEW, *quantile, rounds=2) == []
