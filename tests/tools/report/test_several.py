"""The page of a sweep, and of folders side by side."""

from __future__ import annotations

import json
import shutil

import pytest

from fedpriv.store import stored_run
from fedpriv.tools.report import curves, gather, write
from fedpriv.tools.report import page as page_module


@pytest.fixture
def page(sweep, command, read):
    said = command("report", str(sweep))
    assert (said.status, said.err) == (0, "")
    return read(sweep / "report.html")


@pytest.mark.thorough
def test_every_run_has_a_row_and_a_part_of_its_own(page):
    assert page.all("h1")[0].text == "sweep: 3 runs"
    rows = page.table("3 runs")
    for words in ("run 0", "run 1", "run 2", "noise_multiplier=20", "4 (stopped by: rounds)"):
        assert words in rows
    assert [e.attributes["id"] for e in page.all("details") if "id" in e.attributes] == [
        "r0",
        "r1",
        "r2",
    ]


def test_tables_of_runs_can_be_sorted_and_others_are_as_written(page):
    sorted_tables = [e for e in page.all("table") if "data-sorts" in e.attributes]
    assert [table.text.split()[0] for table in sorted_tables] == ["3", "Over"]
    assert len(page.all("table")) > 2


def test_only_what_differs_is_in_the_table_and_the_rest_is_folded(page):
    differing = page.table("The 5 keys in which the runs differ")
    assert "noise_schedule.noise_multiplier" in differing
    assert "evaluation_interval" not in differing
    assert "evaluation_interval" in page.table("Common to all runs")
    folded = [e for e in page.all("details") if e.text.startswith("The ")]
    assert "Common to all runs" in folded[0].text


def test_runs_that_differ_in_their_seeds_share_a_button(page):
    buttons = [e.attributes["data-switch"] for e in page.all("button")]
    assert buttons == ["defaults", "noise_multiplier=20"]
    first = page.numbers[min(page.numbers)]["curves"]
    assert [c["label"] for c in first] == [
        "defaults, seed 0",
        "defaults, seed 1",
        "noise_multiplier=20, seed 0",
    ]
    assert first[0]["style"] == first[1]["style"] != first[2]["style"]


def test_means_over_seeds_are_those_of_the_runs(page, sweep):
    both = [json.loads((sweep / n / "summary.json").read_text())["test_accuracy"] for n in "01"]
    assert f"{50 * sum(both):.2f} (" in page.table("Over seeds")


def test_the_sweep_can_be_repeated(page):
    assert "fedpriv train -m algorithm=dp_fl noise_schedule.noise_multiplier=8,20" in page.text


def test_folders_given_one_by_one_go_into_one_page(sweep, command, read, tmp_path):
    shutil.copytree(sweep / "2", tmp_path / "alone")
    said = command("report", str(sweep / "0"), "alone")
    assert said.out.startswith("report: report.html (")
    rows = read(tmp_path / "report.html").table("2 runs")
    assert "sweep/0" in rows
    assert "alone" in rows


def test_a_link_among_the_runs_is_not_followed(sweep, command, read):
    (sweep / "3").symlink_to(sweep / "0")
    assert command("report", str(sweep)).status == 0
    assert "run 3" not in read(sweep / "report.html").text


def test_jobs_stand_in_the_order_of_their_numbers(sweep, command, read):
    (sweep / "2").rename(sweep / "10")
    command("report", str(sweep))
    rows = read(sweep / "report.html").table("3 runs")
    assert rows.index("run 1") < rows.index("run 10")


def test_of_very_many_runs_few_are_drawn_and_differences_are_lines(
    sweep, command, read, monkeypatch
):
    """What a run needs thousands of times is read without OmegaConf, ledgers and statements."""
    for module in (curves, page_module, write):
        monkeypatch.setattr(module, "MOST_RUNS", 2)
    for module in (page_module, write):
        monkeypatch.setattr(module, "MOST_DETAILS", 1)
    monkeypatch.setattr("omegaconf.OmegaConf.create", None)
    opened = []
    monkeypatch.setattr(stored_run, "saved_rows", lambda path: opened.append(path) or [])
    assert command("report", str(sweep)).status == 0
    page = read(sweep / "report.html")
    assert page.all("h1")[0].text == "sweep: 3 runs"
    assert "noise_multiplier=20" in page.table("3 runs")
    assert "20" in page.table("The 5 keys in which the runs differ")
    assert len(page.numbers[min(page.numbers)]["curves"]) == 2
    assert [path.parent.name for path in opened] == ["0"]


def test_more_than_a_thousand_runs_are_no_reason_to_refuse(tmp_path):
    for number in range(1001):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "config.yaml").touch()
    assert len(gather.find([str(tmp_path)])[0]) == 1001
