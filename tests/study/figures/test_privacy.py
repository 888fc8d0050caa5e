"""The figure of three ε: what is claimed, what holds, what an audit shows."""

from __future__ import annotations

import pytest

from fedpriv.common.errors import ArgumentError
from fedpriv.privacy.accountants.gaussian import gaussian_delta
from fedpriv.study.figures.privacy import AuditPlan, three_epsilons

BASE = ("dataset=digits", "model=logistic", "epsilon=null", "noise_schedule=constant")
WEI = (
    "algorithm=wei_cdp", "noise_schedule=uniform_budget", "epsilon=1", "budget_view=published",
    "accountant=published", "rounds=1", "partition.clients=10", "partition.records=128",
)  # fmt: skip
UPLOADS = ("algorithm=ldp_fedsgd", "rounds=1", "noise_schedule.noise_multiplier=1")
UNCLIPPED = (
    "algorithm=adap_dpfl", "clipper.reading=unclipped", "noise_schedule=constant", "rounds=2",
    "algorithm.sample_rate=1", "noise_schedule.noise_multiplier=12",
)  # fmt: skip


def row(overrides, how: str, runs: int, **more) -> dict:
    return {"label": "it", "overrides": list(overrides), "how": how, "runs": runs, **more}


def findings(*rows) -> list[str]:
    return list(three_epsilons(rows, BASE, 0.95, 0).findings)


@pytest.mark.thorough
def test_claims_that_do_not_hold_are_refuted():
    """Weights are clipped to C and charged as if one record of n moved them by 2C/n; a mean of unclipped
    norms is released as if it were bounded."""
    weights, unclipped = findings(
        row((*WEI, "algorithm.sensitivity=weights"), "neighbours", 80),
        row(UNCLIPPED, "apart", 60, observer="sizes"),
    )
    assert "claimed 1.000" in weights
    assert "one record, replace-one adjacency, δ = 0.01" in weights
    assert "sound infinite" in unclipped
    assert all("refuted with confidence 0.95" in finding for finding in (weights, unclipped))


def test_claims_that_hold_are_not_refuted_and_not_called_true():
    drawing = three_epsilons([row(WEI, "neighbours", 60)], BASE, 0.95, 0)
    assert "Not refuted, which does not make it true" in drawing.findings[0]
    assert "hold together with confidence 0.95" in drawing.caption


@pytest.mark.thorough
def test_a_sensitivity_of_c_is_charged_for_half_of_what_a_replaced_upload_moves():
    """Claimed: a Gaussian with μ = 1; sound: with μ = 2."""
    ((panel,),) = three_epsilons([row(UPLOADS, "apart", 100)], BASE, 0.95, 0).rows
    lines = {line.label: line for line in panel.lines}
    assert gaussian_delta(lines["claimed"].x[0], 1.0) == pytest.approx(1e-5, rel=0.02)
    assert gaussian_delta(lines["sound (ledger)"].x[0], 2.0) == pytest.approx(1e-5, rel=0.02)
    assert panel.y_ticks == ("it",)


@pytest.mark.thorough
def test_rows_are_tested_at_their_share_of_the_significance():
    def audited(finding: str) -> float:
        return float(finding.partition("audited at least ")[2].split()[0])

    weights = row((*WEI, "algorithm.sensitivity=weights"), "neighbours", 60)
    assert audited(findings(weights, weights)[0]) < audited(findings(weights)[0])


def test_a_share_of_the_runs_is_of_what_each_row_counts():
    apart, planted = (
        AuditPlan(**row(UPLOADS, how, 1000, canaries=500)) for how in ("apart", "canaries")
    )
    assert (apart.fewer(0.02).runs, apart.fewer(1.0)) == (20, apart)
    assert (planted.fewer(0.02).runs, planted.fewer(0.02).canaries) == (1000, 10)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (row(UPLOADS, "guessing", 5), "rows.how must be one of canaries, apart, neighbours"),
        (row(UPLOADS, "apart", 5, observer="everybody"), "rows.observer must be one of"),
    ],
)
def test_what_is_no_row_is_refused(values, words):
    with pytest.raises(ArgumentError, match=words):
        three_epsilons([values], BASE, 0.95, 0)
