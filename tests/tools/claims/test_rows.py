"""The rows of ``fedpriv claims``: their fields and verdicts, their ε, their transcripts, and the page."""

from __future__ import annotations

import datetime
import math
import re
from pathlib import Path

import pytest
import yaml

from fedpriv.common.errors import ConfigError
from fedpriv.tools.claims.demonstrate import compare, measure_epsilon, result_of
from fedpriv.tools.claims.page import page
from fedpriv.tools.claims.row import KINDS, NEEDS_CONTROL, VERDICTS, folder, read_row, read_rows

ROOT = Path(__file__).parents[3]
ROWS = read_rows()
BY_NAME = {row.name: row for row in ROWS}


def every(rows, marked=()):
    """Parametrise by rows, their names as ids."""
    return pytest.mark.parametrize("row", list(rows), ids=lambda row: row.name)


def test_the_table_has_works_software_and_our_own_errors():
    assert len(ROWS) >= 16
    subjects = [row.subject for row in ROWS]
    assert subjects == sorted(subjects, key=("work", "software", "fedpriv").index)
    assert (
        sum(row.verdict in ("agrees with our computation", "no deviation found") for row in ROWS)
        >= 4
    )
    assert sum(row.subject == "fedpriv" and row.verdict == "not as stated" for row in ROWS) >= 2


@every(ROWS)
def test_every_row_has_a_verdict_a_source_and_a_date(row):
    assert row.verdict in VERDICTS
    assert row.demonstration["kind"] in KINDS
    assert row.date <= datetime.date.today() + datetime.timedelta(days=1)
    assert row.contact in ("authors not contacted", "our own")
    if row.upstream is not None:
        assert all(address.startswith("https://") for address in row.upstream.split(", "))


@every(row for row in ROWS if row.subject == "software" and row.verdict in NEEDS_CONTROL)
def test_every_negative_row_on_software_has_the_correct_setting_and_a_control(row):
    assert row.setting
    if row.script or row.adapters:
        assert row.demonstration["control"]["expect"]


@pytest.mark.few(6)
@every(sorted((row for row in ROWS if row.epsilon), key=lambda row: row.releases[0].steps))
def test_the_epsilon_of_a_row_is_ours_and_that_of_the_second_derivation(row):
    numbers = measure_epsilon(row)
    assert numbers
    assert [number for number in numbers if not number.agrees] == []


@every(row for row in ROWS if row.epsilon)
def test_our_epsilon_lies_within_the_second_derivation(row):
    low, high = row.epsilon["second"]
    assert low * (1 - 1e-3) <= row.epsilon["ours"] <= high * (1 + 1e-3)


@every(row for row in ROWS if row.packages)
def test_every_row_on_a_package_has_a_transcript_of_that_package(row):
    assert row.transcript is not None
    for package in row.packages:
        line = f"package: {package['name']} {package['version']}, wheel sha256 {package['sha256']}"
        assert line in row.transcript
    assert f"command: fedpriv claims run {row.name}\n" in row.transcript
    assert re.search(r"^date: \d{4}-\d\d-\d\d$", row.transcript, flags=re.M)


@every(row for row in ROWS if row.transcript)
def test_the_transcript_has_the_numbers_of_the_row(row):
    numbers = compare(row, result_of(row.transcript))
    assert numbers
    assert [number for number in numbers if not number.agrees] == []


def test_the_page_is_that_of_the_rows():
    written = (ROOT / "docs" / "claims.md").read_text("utf-8")
    assert written == page(ROWS), "fedpriv claims --write docs/claims.md"


def test_a_number_that_a_script_does_not_print_does_not_agree():
    row = next(row for row in ROWS if row.script)
    numbers = compare(row, {"measured": {}, "control": {}})
    assert all(math.isnan(number.value) and not number.agrees for number in numbers)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"verdict": "wrong"}, r"verdict must be one of agrees with our computation, .* got wrong"),
        ({"subject": "person"}, "subject must be one of work, software, fedpriv, got person"),
        ({"stated": " "}, "stated must be a text that is not empty"),
        ({"blame": "x"}, "has an unknown field blame"),
        ({"date": "today"}, "date must be a date"),
        ({"no_epsilon": "none"}, "either epsilon or no_epsilon"),
        ({"demonstration": {"kind": "rumour"}}, "demonstration.kind must be one of"),
        ({"demonstration": {"kind": "audit", "script": "gone.py"}}, "there is no gone.py"),
        ({"demonstration": {"kind": "adapter", "adapter": "gone.py:make"}}, "there is no gone.py"),
        ({"demonstration": {"kind": "adapter"}}, "needs demonstration.adapter"),
        ({"demonstration": "none"}, "demonstration must be a mapping"),
        ({"demonstration": {"kind": "audit", "expect": {"a": 3}}}, "expect.a must be two numbers"),
        ({"demonstration": {"kind": "audit", "packages": [3]}}, "a package has a name"),
        (
            {"demonstration": {"kind": "audit", "control": 3}},
            "control must be a mapping with a text",
        ),
        ({"demonstration": {"kind": "audit", "seconds": "x"}}, "seconds must be a number"),
        ({"upstream": 3}, "upstream must be null or a text"),
        ({"epsilon": 3}, "epsilon must have the fields"),
    ],
)
def test_a_row_with_a_mistake_is_refused(tmp_path, change, message):
    values = yaml.safe_load((folder() / "adap-noise.yaml").read_text("utf-8"))
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump({**values, **change}, allow_unicode=True), "utf-8")
    with pytest.raises(ConfigError, match=message):
        read_row(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"delta": "x"}, "epsilon.delta must be a number"),
        ({"delta": 0}, "epsilon.delta must be 0 for pure_epsilon, and above 0"),
        ({"second": [1]}, "epsilon.second must be two numbers"),
        ({"releases": []}, "epsilon.releases must be a list that is not empty"),
        ({"releases": [{"steps": 1}]}, "either noise_multiplier or pure_epsilon"),
        ({"releases": [{"bad": 1}]}, "epsilon.releases"),
    ],
)
def test_a_row_with_a_wrong_epsilon_is_refused(tmp_path, change, message):
    values = yaml.safe_load((folder() / "adap-noise.yaml").read_text("utf-8"))
    path = tmp_path / "mine.yaml"
    values["epsilon"].update(change)
    path.write_text(yaml.safe_dump(values, allow_unicode=True), "utf-8")
    with pytest.raises(ConfigError, match=message):
        read_row(path)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"a: [", "is no YAML"),
        (b"\xff", "is no YAML"),
        (b"- 1", "must be a mapping"),
        (b"3: 4", "field 3"),
    ],
)
def test_a_file_that_is_no_row_is_refused(tmp_path, data, message):
    path = tmp_path / "mine.yaml"
    path.write_bytes(data)
    with pytest.raises(ConfigError, match=message):
        read_row(path)


def test_a_row_with_a_missing_field_is_refused(tmp_path):
    values = yaml.safe_load((folder() / "adap-noise.yaml").read_text("utf-8"))
    del values["assumption"]
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(values, allow_unicode=True), "utf-8")
    with pytest.raises(ConfigError, match="has no field assumption"):
        read_row(path)
