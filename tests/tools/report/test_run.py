"""The page of one run."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path

import pytest

AUDIT = {
    "members": 30, "nonmembers": 30, "warnings": ["too few <records>"],
    "attacks": {"loss": {"auc": 0.51, "auc_low": 0.4, "auc_high": 0.6, "tpr_at_1_percent": 0.02}},
    "blind": {"auc": 0.5},
}  # fmt: skip


@pytest.fixture
def page(folder, command, read):
    """() → the page of the run as it is now."""

    def make(*more: str):
        said = command("report", str(folder), *more)
        mishaps = [line for line in said.err.splitlines() if "warning:" not in line]
        assert (said.status, mishaps) == (0, [])
        return read(folder / "report.html")

    return make


def test_it_goes_into_the_folder_and_says_so(folder, command):
    said = command("report", str(folder))
    assert said.out.startswith(f"report: {folder}/report.html (")


def test_it_goes_where_one_wants_it(folder, command, tmp_path):
    assert command("report", str(folder), "--out", "own.html").status == 0
    assert (tmp_path / "own.html").exists()
    assert not (folder / "report.html").exists()


def test_it_has_every_section(page):
    headings = [e.text for e in page().all("h2")]
    assert headings == [
        "Summary", "Privacy", "Curves", "Ledger", "Configuration", "Environment", "How to repeat it",
    ]  # fmt: skip


def test_it_tells_accuracy_and_three_epsilons_with_their_reasons(page, folder):
    summary = json.loads((folder / "summary.json").read_text())
    privacy = json.loads((folder / "privacy.json").read_text())
    found = page()
    assert found.all("h1")[0].text == "dp_fl on digits, seed 0"
    assert f"{100 * summary['test_accuracy']:.2f} %" in found.text
    rows = found.table("The three ε of the worst client")
    for key in ("epsilon", "epsilon_published", "epsilon_sound"):
        assert privacy["reasons"][key] in rows
        assert f"{summary[key]:.1f}"[:3] in rows


def test_it_holds_the_whole_statement(page, folder):
    statement = (folder / "privacy.txt").read_text().replace("\n- ", " ")
    assert "".join(statement.split()) in "".join(page().text.split())


def test_the_curves_have_the_values_of_the_run(page, folder):
    rows = (folder / "metrics.csv").read_text().splitlines()
    names = rows[0].split(",")
    last = dict(zip(names, rows[-1].split(","), strict=True))
    charts = [chart for chart in page().numbers.values() if chart["label"] == "round"]
    found = {c["label"]: c for chart in charts for c in chart["curves"]}
    for label, column in (
        ("sound", "epsilon_sound"),
        ("enforced", "epsilon"),
        ("σ", "noise_multiplier"),
    ):
        assert found[label]["y"][-1] == pytest.approx(float(last[column]), rel=1e-4)
    assert found["test accuracy"]["x"] == [2, 4]


def test_the_ledger_is_a_table(page):
    assert "Ledger: 1 kind of release" in page().text
    assert "gradient_sum" in page().table("Ledger")


def test_of_a_long_ledger_it_shows_beginning_and_end(page, folder):
    names, row = (folder / "ledger.csv").read_text().splitlines()
    lines = [row.replace("gradient_sum", f"query{i}") for i in range(500)]
    (folder / "ledger.csv").write_text("\n".join([names, *lines]) + "\n")
    rows = page().table("Ledger: 500 kinds of release")
    assert "… 470 rows more" in rows
    assert "query19=" in rows
    assert "query20=" not in rows
    assert "query499=" in rows


def test_audits_are_found(page, folder):
    (folder / "audit").mkdir()
    (folder / "audit" / "membership.json").write_text(json.dumps(AUDIT))
    property_ = {
        "auc": 0.7,
        "auc_low": 0.6,
        "auc_high": 0.8,
        "observer_sees": "uploads",
        "meaning": "dark",
    }
    (folder / "audit" / "property-intensity.json").write_text(json.dumps(property_))
    found = page()
    assert "0.510 [0.400, 0.600]" in found.table("Membership inference: 30 members")
    assert "0.700 [0.600, 0.800]" in found.table("Property inference: dark")
    assert "too few <records>" in found.text


def test_it_says_how_to_repeat_it(page, folder):
    facts = json.loads((folder / "environment.json").read_text())
    facts["overrides"] = ["algorithm=dp_fl", "dataset.path=my data", "runtime.run_dir=run"]
    (folder / "environment.json").write_text(json.dumps(facts))
    lines = [e.text for e in page().all("code")]
    assert lines[0] == "fedpriv train algorithm=dp_fl 'dataset.path=my data'"
    assert f"fedpriv account --run {folder}" in lines
    assert f"fedpriv audit membership {folder}" in lines
    assert not any("resume=" in line for line in lines)


def test_a_run_that_has_not_ended_is_told_as_far_as_it_is(page, folder):
    for name in ("summary.json", "model.pt"):
        (folder / name).unlink()
    found = page()
    assert "4 (not finished)" in found.text
    assert f"fedpriv train resume={folder}" in found.text
    assert found.all("h1")[0].text == "dp_fl on digits, seed 0"


def test_a_run_without_privacy_says_so_and_has_no_ledger(ran, command, read, tmp_path):
    folder = ran("algorithm=fedavg", "rounds=2", "evaluation_interval=1").folder
    assert command("report", str(folder), "--out", "page.html").status == 0
    found = read(tmp_path / "page.html")
    assert "This run has no privacy" in found.text
    assert "Ledger" not in [e.text for e in found.all("h2")]
    assert not any("ε" in e.text for e in found.all("figcaption"))


def test_an_infinite_sound_epsilon_is_said_and_not_drawn(page, folder):
    rows = (folder / "metrics.csv").read_text().splitlines()
    place = rows[0].split(",").index("epsilon_sound")
    cells = [row.split(",") for row in rows[1:]]
    lines = [",".join([*row[:place], "inf", *row[place + 1 :]]) for row in cells]
    (folder / "metrics.csv").write_text("\n".join([rows[0], *lines]) + "\n")
    privacy = json.loads((folder / "privacy.json").read_text())
    summary = json.loads((folder / "summary.json").read_text())
    (folder / "privacy.json").write_text(json.dumps(privacy | {"epsilon_sound": float("inf")}))
    (folder / "summary.json").write_text(json.dumps(summary | {"epsilon_sound": float("inf")}))
    found = page()
    assert "The sound ε is infinite and not drawn." in found.text
    assert "infinite" in found.table("The three ε")


def test_without_a_budget_nothing_is_enforced(page, folder):
    assert "enforced" in page().table("The three ε")
    privacy = json.loads((folder / "privacy.json").read_text())
    (folder / "privacy.json").write_text(json.dumps(privacy | {"budget": None}))
    found = page()
    assert "composed" in found.table("The three ε")
    assert "enforced" not in found.table("The three ε")


def test_it_says_that_it_shows_exact_values(page, folder):
    words = "This page shows exact values of private data"
    assert words in page().text
    privacy = json.loads((folder / "privacy.json").read_text())
    (folder / "privacy.json").write_text(json.dumps(privacy | {"diagnostics": []}))
    assert words not in page().text


def test_the_same_folder_gives_the_same_page(page, folder):
    page()
    before = (folder / "report.html").read_bytes()
    page()
    assert (folder / "report.html").read_bytes() == before


def test_style_and_script_are_shipped_with_the_package():
    here = files("fedpriv.tools.report")
    style, script = (here.joinpath(name).read_text("utf-8") for name in ("page.css", "page.js"))
    for words in ("@media print", "@media (max-width", "prefers-color-scheme"):
        assert words in style
    assert len(script.splitlines()) < 300
    ignored = (Path(__file__).parents[3] / ".gitignore").read_text().split()
    assert not {"*.css", "*.js"} & set(ignored)
