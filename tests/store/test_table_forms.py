"""The flag --table: the tables of commands as text, Markdown, LaTeX or CSV."""

from __future__ import annotations

import pytest

from fedpriv.common.console import console
from fedpriv.common.words import TABLE_FORMAT
from fedpriv.store.table import Column, Table


@pytest.fixture
def form():
    """Set the form of tables for one test."""
    tokens = []
    yield lambda name: tokens.append(TABLE_FORMAT.set(name))
    for token in reversed(tokens):
        TABLE_FORMAT.reset(token)


def accuracies() -> Table:
    table = Table("Accuracy", ("σ", Column("accuracy", right=True)))
    for sigma, mean in ((1, 0.9), (2, 0.8), (4, float("nan"))):
        table.add(sigma, mean)
    return table


def test_the_best_cells_of_a_column_are_bold():
    table = accuracies()
    table.embolden("accuracy", [0.9, 0.8, float("nan")], highest=True)
    assert "| 1 | **0.9** |" in table.markdown()
    assert r"1 & \textbf{0.9} \\" in table.latex()
    assert "**" not in table.csv()


def test_the_lowest_is_the_best_where_that_is_asked():
    table = accuracies()
    table.embolden("accuracy", [0.9, 0.8, float("nan")], highest=False)
    assert table.markdown().count("**") == 2
    assert "**0.8**" in table.markdown()


def test_a_column_without_a_number_has_no_best_cell():
    table = accuracies()
    table.embolden("accuracy", [float("nan")] * 3, highest=True)
    assert "**" not in table.markdown()


@pytest.mark.parametrize(
    ("name", "begin"), [("markdown", "| σ |"), ("latex", "% \\usepackage{booktabs}"), ("csv", "σ,")]
)
def test_only_tables_go_to_standard_output(name, begin, form, capsys):
    form(name)
    out = console()
    out.print("3 runs")
    out.print(accuracies())
    said = capsys.readouterr()
    assert said.out.startswith(begin)
    assert "3 runs" not in said.out
    assert "3 runs" in said.err


def test_a_long_row_stays_one_line(form, capsys):
    form("markdown")
    table = Table("", ("a",))
    table.add("word " * 100)
    console().print(table)
    assert len(capsys.readouterr().out.splitlines()) == 3


def test_a_command_prints_its_table_in_the_form(command):
    said = command("account", "--noise-multiplier", "1", "--sample-rate", "0.01", "--steps", "10",
                   "--delta", "1e-5", "--table", "markdown")  # fmt: skip
    assert said.status == 0
    assert "| accountant |" in said.out
    assert TABLE_FORMAT.get() == "text"


def test_an_unknown_form_is_refused(command):
    said = command("runs", "--table", "html")
    assert said.status == 2
    assert "--table must be one of text, markdown, latex, csv, got html" in said.sentence
