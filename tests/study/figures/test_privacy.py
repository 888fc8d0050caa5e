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
    assert "refuted with confidence 0.95" in weights
    assert "sound infinite" in unclipped
    assert "refuted with confidence 0.95" in unclipped


def test_claims_that_hold_are_not_refuted_and_not_called_true():
    (found,) = findings(row(WEI, "neighbours", 60))
    assert "Not refuted, which does not make it true" in found


def test_a_sensitivity_of_c_is_charged_for_half_of_what_a_replaced_upload_moves():
    """Claimed: a Gaussian with μ = 1; sound: with μ = 2."""
    drawing = three_epsilons([row(UPLOADS, "apart", 100)], BASE, 0.95, 0)
    lines = {line.label: line for line in drawing.rows[0][0].lines}
    assert gaussian_delta(lines["claimed"].x[0], 1.0) == pytest.approx(1e-5, rel=0.02)
    assert gaussian_delta(lines["sound (ledger)"].x[0], 2.0) == pytest.approx(1e-5, rel=0.02)
    assert drawing.rows[0][0].y_ticks == ("it",)


def test_rows_are_tested_at_their_share_of_the_significance():
    one = three_epsilons([row(WEI, "neighbours", 40)], BASE, 0.95, 0)
    assert "hold together with confidence 0.95" in one.caption
    weights = row((*WEI, "algorithm.sensitivity=weights"), "neighbours", 60)
    alone, shared = findings(weights)[0], findings(weights, weights)[0]
    assert audited(shared) < audited(alone)


def audited(finding: str) -> float:
    return float(finding.partition("audited at least ")[2].split()[0])


def test_a_share_of_the_runs_is_of_what_each_row_counts():
    apart, planted = (
        AuditPlan.of(row(UPLOADS, how, 1000, canaries=500)) for how in ("apart", "canaries")
    )
    assert (apart.fewer(0.02).runs, apart.fewer(1.0)) == (20, apart)
    assert (planted.fewer(0.02).runs, planted.fewer(0.02).canaries) == (1000, 10)


@pytest.mark.parametrize(
    ("change", "argument"),
    [
        ({"how": "guessing"}, "rows.how"),
        ({"runs": 0}, "rows.runs"),
        ({"observer": "everybody"}, "rows.observer"),
        ({"colour": "red"}, "rows"),
    ],
)
def test_what_is_no_row_is_refused(change, argument):
    with pytest.raises(ArgumentError) as refused:
        AuditPlan.of({**row(UPLOADS, "apart", 5), **change})
    assert refused.value.argument == argument


def test_a_row_needs_its_keys():
    with pytest.raises(ArgumentError, match="label, overrides, how and runs"):
        AuditPlan.of({"label": "it"})
