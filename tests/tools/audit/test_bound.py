"""Which guarantee bounds a membership attack, and how it is shown."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from fedpriv.privacy.core.names import ADD_OR_REMOVE, REPLACE_ONE
from fedpriv.tools.audit import membership, report
from fedpriv.tools.audit.bound import bound_of
from fedpriv.tools.audit.membership import Outcome, audit_membership, beyond
from fedpriv.tools.audit.request import MembershipOptions
from fedpriv.tools.audit.statistics import Estimate
from fedpriv.tools.audit.subject import open_run

PROFILE = {"epsilon": [0.0, 1.0], "delta": [0.3, 0.01]}


def facts(unit: str, neighbours: str, trust: str = "local") -> dict:
    view = {"unit": unit, "trust": trust, "neighbours": neighbours}
    return {"privacy_profile": PROFILE, "views": {"sound": view, "published": None}}


@pytest.mark.parametrize(
    ("unit", "neighbours", "units", "words"),
    [
        ("record", ADD_OR_REMOVE, 1, "with and without the record"),
        ("record", REPLACE_ONE, 1, "the record or another in its place"),
        ("client", REPLACE_ONE, 1, "its client's data change"),
        ("client", ADD_OR_REMOVE, 2, "two units of add/remove"),
    ],
)
def test_a_record_is_so_many_units_of_the_ledger(unit, neighbours, units, words):
    bound = bound_of(facts(unit, neighbours))
    assert bound.units == units
    assert words in bound.words
    assert bound.words.startswith(f"{unit} level")


def test_secret_cohorts_protect_those_never_sampled_too():
    central = facts("client", ADD_OR_REMOVE, "central")
    assert "of all clients" in bound_of(central, everyone=False).words
    assert "of all clients" not in bound_of(central, everyone=True).words
    assert "of all clients" not in bound_of(facts("client", REPLACE_ONE), everyone=False).words


@pytest.mark.parametrize(
    "broken",
    [{}, {"privacy_profile": PROFILE}, {"privacy_profile": {"epsilon": 3}, "views": {}}, {"views": []},
     {"privacy_profile": PROFILE, "views": {"sound": {"unit": "record", "neighbours": "odd"}}}],
)  # fmt: skip
def test_a_statement_without_a_curve_bounds_nothing(broken):
    assert bound_of(broken) is None


@pytest.mark.thorough
def test_the_bound_lies_above_every_measured_curve(drowned):
    audit = audit_membership(open_run(drowned), MembershipOptions(nonmembers="held_out"))
    for outcome in audit.outcomes:
        for rate, estimate in outcome.rates.items():
            if estimate is not None:
                assert audit.bound.tpr({"tpr_at_1_percent": 0.01}[rate]) >= estimate.low
    line = report.roc_panel(audit).lines[-1]
    assert line.label == "upper bound of any attack: record level, with and without the record"
    assert (np.asarray(line.y) >= np.asarray(line.x)).all()
    without = replace(audit, bound=None)
    assert without.as_json()["bound"] is None
    assert not any("upper bound" in line.label for line in report.roc_panel(without).lines)
    stated = json.loads((drowned / "privacy.json").read_text())["largest_tpr"]
    assert audit.as_json()["bound"]["tpr_at_1_percent_fpr"] == stated["at_1_percent_fpr"]


@pytest.mark.thorough
def test_more_than_the_ledger_allows_is_said(drowned):
    """0.3 + 0.01 is the curve's TPR at 1 % FPR."""
    bound = bound_of(facts("record", ADD_OR_REMOVE))
    assert float(bound.tpr(0.01)) < 0.4

    def outcome(low: float) -> Outcome:
        rates = {"tpr_at_1_percent": Estimate(0.5, low, 0.6), "tpr_at_0.1_percent": None}
        return Outcome("lira", Estimate(0.7, 0.6, 0.8), rates, (np.zeros(1), np.zeros(1)))

    assert beyond([outcome(0.02)], bound) == []
    (said,) = beyond([outcome(0.4)], bound)
    assert said.startswith("lira has a TPR of at least 40.0% at 1.0% FPR, where the ledger allows")
    audit = audit_membership(open_run(drowned), MembershipOptions(nonmembers="held_out"))
    assert not any("allows any attack" in words for words in audit.warnings)


@pytest.mark.thorough
def test_an_audit_warns_of_it(by_heart, monkeypatch):
    nothing = SimpleNamespace(tpr=lambda fpr: -1.0)
    monkeypatch.setattr(membership, "bound_of", lambda facts, everyone: nothing)
    audit = audit_membership(open_run(by_heart), MembershipOptions(nonmembers="held_out"))
    assert sum("where the ledger allows any attack" in words for words in audit.warnings) == 3


@pytest.mark.thorough
def test_a_run_without_privacy_has_no_such_curve(by_heart):
    assert bound_of(open_run(by_heart).run.statement) is None
