"""The report of a search: its statement first, then its trials."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

FACTS = {
    "search": {"objective": "validation_loss"},
    "epsilon": 1.23401,
    "delta": 1e-5,
    "trials": [
        {"values": {"algorithm.learning_rate": 0.5}, "state": "rounds", "score": 0.25},
        {"values": {"algorithm.learning_rate": 9.0}, "state": "diverged", "score": None},
    ],
}


def search_in(folder: Path, statement: str, facts: dict) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "privacy.txt").write_text(statement)
    (folder / "search.json").write_text(json.dumps(facts))
    return folder


@pytest.mark.thorough
def test_the_statement_of_all_trials_comes_before_the_runs(sweep, command, read):
    (sweep / "multirun.yaml").unlink()
    search_in(sweep, "Search of 2 trials, all of them charged", FACTS)
    said = command("report", str(sweep))
    assert (said.status, said.err) == (0, "")
    page = read(sweep / "report.html")
    headings = [e.text for e in page.all("h2")]
    assert headings[:2] == ["Search", "Runs"]
    assert "Search of 2 trials, all of them charged" in page.all("pre")[0].text
    rows = page.table("2 trials")
    for words in ("algorithm.learning_rate", "validation_loss", "0.2500", "diverged", "–"):
        assert words in rows
    listed = command("runs", str(sweep))
    assert "epsilon 1.235 at delta 1e-05, of all of its trials together" in listed.out


def test_of_a_search_by_random_stopping_the_best_has_its_configuration(
    folder, command, read, tmp_path
):
    secret = {
        "search": {},
        "number_of_trials": "Poisson law of mean 3",
        "epsilon": 2.0,
        "delta": 1e-5,
    }
    search = search_in(tmp_path / "search", "the best of a secret number of trials", secret)
    (search / "best").mkdir()
    shutil.copyfile(folder / "config.yaml", search / "best" / "config.yaml")
    assert command("report", str(search)).status == 0
    page = read(search / "report.html")
    assert [e.text for e in page.all("h2")] == ["Search", "Configuration of the best trial"]
    assert "noise_schedule.noise_multiplier" in page.table("Configuration")
    assert command("report", str(search / "best")).status == 0
    numbers = read(search / "best" / "report.html").all("dl", **{"class": "cards"})[0].text
    assert "that of the search: search/privacy.txt" in numbers
    said = command("runs", str(search))
    assert "epsilon 2.000 at delta 1e-05, of the best of a secret number" in said.out


@pytest.mark.parametrize(
    "facts",
    [
        {"trials": 3}, {"trials": [3, {}]}, {"trials": [{"values": "<script>", "score": True}]},
        {"epsilon": "<b>", "delta": ["\x1b[2J"], "search": 1, "trials": [{"values": {"<i>": "<u>"}}]},
    ],
)  # fmt: skip
def test_whatever_a_search_says_is_text(folder, command, read, tmp_path, facts):
    search = search_in(tmp_path / "search", "<script>alert(1)</script>", facts)
    shutil.copytree(folder, search / "0")
    assert command("report", str(search)).status == 0
    page = read(search / "report.html")
    assert page.all("u") == page.all("b") == page.all("i") == []
    said = command("runs", str(search))
    assert said.status == 0
    assert "\x1b[2J" not in said.out


def test_a_search_that_leads_elsewhere_is_refused(folder, command, tmp_path):
    search = search_in(tmp_path / "search", "", FACTS)
    (search / "privacy.txt").unlink()
    (search / "privacy.txt").symlink_to("/etc/hostname")
    said = command("report", str(search))
    assert said.status == 2
    assert "neither a file nor a folder" in said.err


def test_a_run_without_its_statement_is_not_called_without_privacy(folder, command, read):
    for name in ("privacy.json", "privacy.txt", "summary.json", "metrics.csv"):
        (folder / name).unlink()
    assert command("report", str(folder)).status == 0
    assert "not stated" in read(folder / "report.html").all("dl", **{"class": "cards"})[0].text
