"""The page that follows one record: its numbers are those of the run, and the tests that pages name exist."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest

from fedpriv.common.words import round_up

EXACT = True  # with the accountants as they are
ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "one_run.md").read_text("utf-8")


@pytest.fixture(scope="module")
def one_run(ran):
    assert "fedpriv train algorithm=dp_fl rounds=20\n" in PAGE
    return ran("algorithm=dp_fl", "rounds=20")


@pytest.mark.parametrize("key", ["epsilon", "epsilon_published", "epsilon_sound"])
def test_the_epsilons_of_the_page_are_those_of_the_run(key, one_run):
    assert f"| `{key}` | {round_up(one_run.privacy[key])} |" in PAGE


def test_the_ledger_of_the_page_is_that_of_the_run(one_run):
    (row,) = pd.read_csv(one_run.folder / "ledger.csv").to_dict("records")
    for column in ("event_sound", "neighbours_sound", "queries", "draws_per_client", "clients"):
        assert re.search(rf"\| `{column}` \| `?{re.escape(str(row[column]))}`? \|", PAGE), column
    assert (row["noise_std"], row["sensitivity"]) == ("gradient_sum=12..12", "gradient_sum=1..1")
    assert "| `noise_std`, `sensitivity` | `gradient_sum=12..12`, `gradient_sum=1..1`" in PAGE


@pytest.mark.parametrize("page", ["one_run.md", "sharp_edges.md"])
def test_a_test_that_a_page_names_exists(page):
    named = re.findall(
        r"`(?:tests/)?([\w/]*test_\w+\.py)(?:::(\w+))?`", (ROOT / "docs" / page).read_text("utf-8")
    )
    assert named
    for path, function in named:
        source = (ROOT / "tests" / path).read_text("utf-8")
        assert f"def {function}(" in source if function else source, (path, function)
