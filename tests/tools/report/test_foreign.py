"""A report of somebody else's folder shows what stands in it, as text."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import yaml

from fedpriv.tools.report.write import sweep_of

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(1)>"


def spoil_json(path: Path) -> None:
    values = json.loads(path.read_text())
    numbers = {key for key, value in values.items() if not isinstance(value, str)}
    path.write_text(
        json.dumps({k: v if k in numbers else EVIL for k, v in values.items()} | {EVIL: EVIL})
    )


@pytest.fixture
def evil(folder) -> Path:
    """A run in which every text is markup."""
    for name in ("summary.json", "privacy.json", "environment.json"):
        spoil_json(folder / name)
    facts = json.loads((folder / "environment.json").read_text())
    facts |= {"overrides": [f"seed={EVIL}", EVIL], "versions": {EVIL: EVIL}}
    (folder / "environment.json").write_text(json.dumps(facts))
    privacy = json.loads((folder / "privacy.json").read_text())
    privacy["reasons"] = dict.fromkeys(privacy["reasons"], EVIL)
    (folder / "privacy.json").write_text(json.dumps(privacy))
    (folder / "privacy.txt").write_text(f"{EVIL}\n\n- {EVIL}\n")
    config = yaml.safe_load((folder / "config.yaml").read_text())
    config |= {EVIL: EVIL, "seed": EVIL}
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    ledger = (folder / "ledger.csv").read_text().replace("gradient_sum", EVIL)
    (folder / "ledger.csv").write_text(ledger)
    (folder / "audit").mkdir()
    found = {"attacks": {EVIL: {"auc": 0.5}}, "blind": EVIL, "warnings": [EVIL], "members": EVIL}
    (folder / "audit" / "<b>.json").write_text(json.dumps(found))
    (folder / "audit" / "<b>.png").write_text(EVIL)
    return folder


def check(page) -> None:
    assert len(page.all("script")) == 2
    assert page.all("img") == []
    assert EVIL in page.text


def test_markup_in_a_run_is_text(evil, command, read):
    assert command("report", str(evil)).status == 0
    page = read(evil / "report.html")
    check(page)
    assert EVIL in page.table("Configuration")
    assert EVIL in page.table("Environment")
    assert EVIL in page.table("The three ε")


def test_markup_in_several_runs_is_text(evil, folder, ran, command, read, tmp_path):
    (tmp_path / "runs").mkdir()
    shutil.move(evil, tmp_path / "runs" / "<b>evil")
    shutil.copytree(tmp_path / "runs" / "<b>evil", tmp_path / "runs" / "two")
    path = tmp_path / "runs" / "two" / "environment.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"overrides": ["model=cnn"]}))
    assert command("report", "runs").status == 0
    page = read(tmp_path / "runs" / "report.html")
    check(page)
    assert any(
        "alert" in key for c in page.numbers.values() for key in (k["key"] for k in c["curves"])
    )


def test_markup_in_a_figure_is_text(command, read, tmp_path):
    folder = tmp_path / "figure"
    folder.mkdir()
    (folder / "comparison.md").write_text(
        f"# {EVIL}\n\n{EVIL}\n\n- runs:\n  - {EVIL}: `{EVIL[:9]}`\n"
    )
    (folder / "figure.csv").write_text(f"group,axes,curve,x,mean\n{EVIL},{EVIL},{EVIL},1,2\n")
    (folder / "figure.png").write_text(EVIL)
    assert command("report", "figure").status == 0
    check(read(folder / "report.html"))


def test_commands_to_copy_are_quoted(evil, command, read):
    command("report", str(evil))
    line = read(evil / "report.html").all("code")[0].text
    assert f"'seed={EVIL}'" in line


def test_a_stored_command_is_not_offered(folder, command, read):
    path = folder / "environment.json"
    facts = json.loads(path.read_text()) | {"command": "fedpriv train; rm -rf ~", "overrides": None}
    path.write_text(json.dumps(facts))
    command("report", str(folder))
    assert "rm -rf" not in (folder / "report.html").read_text()


def test_the_page_forbids_itself_the_network_and_other_scripts(folder, command, read):
    command("report", str(folder))
    page = read(folder / "report.html")
    rules = page.all("meta", **{"http-equiv": "Content-Security-Policy"})[0].attributes["content"]
    assert "default-src 'none'" in rules
    assert "script-src 'sha256-" in rules
    assert "unsafe-inline" not in rules.partition("script-src")[2]


def test_a_report_that_is_a_link_is_replaced_not_followed(folder, command, tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("keep")
    (folder / "report.html").symlink_to(victim)
    assert command("report", str(folder)).status == 2
    assert command("report", str(folder), "--out", "page.html").status == 2
    assert victim.read_text() == "keep"


@pytest.mark.thorough
def test_brackets_in_brackets_are_not_read_for_minutes(tmp_path):
    """PyYAML takes minutes for fifty thousand of them."""
    (tmp_path / "multirun.yaml").write_text("[" * 500_000)
    assert sweep_of([str(tmp_path)]) is None
