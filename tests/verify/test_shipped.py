"""Every shipped algorithm does what its ledger says."""

from __future__ import annotations

import pytest
from planted import CLIENTS, RECORDS

from fedpriv.groups import options

FEW = ("partition.clients=4",)
SHIPPED = {
    "adap_dpfl": FEW,
    "cdp_fedavg": CLIENTS[1:],
    "dp_fl": RECORDS[1:],
    "fedavg": FEW,
    "fedsgd": FEW,
    "ldp_fedsgd": (*FEW, "noise_schedule=constant"),
    "naseri_cdp": CLIENTS[1:],
    "naseri_ldp": (*FEW, "algorithm.sample_rate=0.5"),
    "norm_bounding": CLIENTS[1:],
    "weak_dp": CLIENTS[1:],
    "wei_cdp": FEW,
    "wei_cdp_optimal": FEW,
    "wei_crd": FEW,
}


def test_none_is_left_out():
    assert set(SHIPPED) == {name for name, _ in options("algorithm")}


@pytest.mark.parametrize("algorithm", SHIPPED)
def test_every_algorithm_passes(caught, algorithm):
    assert caught(f"algorithm={algorithm}", *SHIPPED[algorithm], rounds=3) == []
