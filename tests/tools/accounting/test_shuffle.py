"""``fedpriv account --shuffle``: its table, and what it refuses."""

from __future__ import annotations

import pytest

DELTA = ("--delta", "1e-6")
TABLE = ("--shuffle", "500,1e4,1e6", "--report-epsilon", "0.5,1,2,4,8", *DELTA)


def test_the_table_says_where_there_is_no_gain(command):
    said = command("account", "--shuffle", "500,1e4", "--report-epsilon", "4,8", *DELTA)
    assert said.status == 0
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in said.out.splitlines()]
    found = {(row[0], row[1]): row[2:] for row in rows if len(row) == 5}
    assert len(found) == 4
    assert found["8.000", "500"][:2] == ["no gain", "no gain"]
    assert found["4.000", "10,000"] == ["0.601", "0.411", "0.282"]


@pytest.mark.thorough
def test_json_has_every_number(answer):
    found = answer("account", *TABLE)
    assert len(found["rows"]) == 15
    assert all(row["shuffled"] <= row["report_epsilon"] for row in found["rows"])


def test_gaussian_reports_are_known_by_their_noise(answer):
    (row,) = answer("account", "--shuffle", "10000", "--noise-multiplier", "5", *DELTA)["rows"]
    assert row["shuffled"] < 0.1 * row["report_epsilon"]
    assert row["shuffled_bits"] is None


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (("--shuffle", "500", *DELTA), "--shuffle needs --report-epsilon of pure reports"),
        (
            ("--shuffle", "500", "--report-epsilon", "1", "--sample-rate", "0.1", *DELTA),
            "--sample-rate cannot be given with --shuffle",
        ),
        (("--shuffle", "0", "--report-epsilon", "1", *DELTA), "--shuffle must be a whole number"),
        (("--shuffle", "5", "--report-epsilon", "-1", *DELTA), "--report-epsilon must be > 0"),
        (("--shuffle", "5", "--report-epsilon", "1"), "--delta must be given"),
        (("--report-epsilon", "1", *DELTA), "--report-epsilon cannot be given without --shuffle"),
        (
            ("--shuffle", "500", "--noise-multiplier", "0.05", *DELTA),
            "--noise-multiplier must be so large that a report has a delta far below delta/n",
        ),
    ],
)
def test_bad_flags_are_one_sentence(command, flags, sentence):
    said = command("account", *flags)
    assert said.status == 2
    assert sentence in said.sentence
