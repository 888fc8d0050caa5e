"""The key ``audit``: the audit of a run right after its end, in its summary."""

from __future__ import annotations

import json

import pytest

import fedpriv
from fedpriv.common.config import fingerprint, identity
from fedpriv.experiment.settings import read_settings
from fedpriv.tools.audit.request import MembershipOptions, PropertyOptions, missing, wanted

RUN = (
    "train", "algorithm=fedavg", "dataset=digits", "rounds=2", "runtime.progress=none",
    "runtime.plots=false", "runtime.run_dir=run",
)  # fmt: skip


def summary(tmp_path) -> dict:
    return json.loads((tmp_path / "run" / "summary.json").read_text())


@pytest.mark.thorough
def test_a_run_is_audited_at_its_end(command, tmp_path):
    outcome = command(*RUN, "audit=membership")
    assert outcome.status == 0, outcome.err
    found = summary(tmp_path)
    written = json.loads((tmp_path / "run" / "audit" / "membership.json").read_text())
    assert found["membership_auc"] == max(a["auc"] for a in written["attacks"].values())
    assert found["membership_attack"] in written["attacks"]
    assert 0 <= found["membership_tpr_at_1_percent"] <= 1
    assert "property_auc" not in found


@pytest.mark.thorough
def test_a_finished_run_is_audited_again_only_if_the_result_is_absent(
    command, tmp_path, monkeypatch
):
    command(*RUN, "audit=membership")
    marked = summary(tmp_path) | {"membership_auc": 0.123}
    (tmp_path / "run" / "summary.json").write_text(json.dumps(marked))
    assert command(*RUN, "audit=membership", "runtime.reuse=true").status == 0
    assert summary(tmp_path)["membership_auc"] == 0.123
    del marked["membership_auc"]
    (tmp_path / "run" / "summary.json").write_text(json.dumps(marked))
    assert command(*RUN, "audit=membership", "runtime.reuse=true").status == 0
    assert summary(tmp_path)["membership_auc"] != 0.123
    assert summary(tmp_path)["seconds"] == marked["seconds"]  # it was not run again


def test_a_dry_run_is_not_audited(command, tmp_path):
    assert command(*RUN, "audit=membership", "dry_run=true").status == 0
    assert not (tmp_path / "run").exists()


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            ("audit=everything",),
            "property:CHOICE, epsilon, epsilon:M or epsilon:M:mislabelled, got everything",
        ),
        (("audit=property",), "CHOICE: one of intensity"),
        (("audit=property:colour",), "one of intensity"),
        (("audit=[membership,membership]",), "two audits of the kind membership"),
        (("audit=3",), "audit must be null, membership"),
        (("audit=[]",), "audit must be null, membership"),
        (("audit=property:intensity",), "runtime.snapshot_interval must be a whole number"),
        (("audit=membership", "runtime.diagnostics=false"), "runtime.diagnostics must be true"),
        (("runtime.snapshot_interval=0",), "runtime.snapshot_interval must be a whole number >= 1"),
    ],
)
def test_what_could_not_be_audited_is_refused_before_the_run(command, tmp_path, settings, words):
    outcome = command(*RUN, *settings)
    assert outcome.status == 2
    assert words in outcome.sentence
    assert not (tmp_path / "run").exists()


def test_runs_without_audit_keep_their_fingerprint():
    config = fedpriv.compose([])
    known = identity(config)
    assert "audit" not in known
    assert fingerprint(identity(fedpriv.compose(["audit=membership"]))) != fingerprint(known)


def test_what_the_key_asks_for():
    settings = read_settings(
        fedpriv.compose(["audit=[membership,property:label:3]", "runtime.snapshot_interval=5"])
    )
    assert wanted(settings) == {
        "membership": MembershipOptions(),
        "property": PropertyOptions("label:3"),
    }
    assert missing(settings.audit, {"membership_auc": 0.5}) == ["property"]
    assert missing(None, {}) == []
    assert missing("membership", {}) == ["membership"]
