"""One table in every form, and text that may be hostile in none of them."""

from __future__ import annotations

import csv
import io
import shutil
import subprocess

import pytest
from rich.console import Console

from fedpriv.common.console import console
from fedpriv.store.table import Column, Table, pairs

REPLACED = "\N{REPLACEMENT CHARACTER}"
HOSTILE = (
    "\x1b[31mred\x1b]0;title\x07",
    "a|b||c",
    r"\| \\ C:\new\table $\alpha$",
    "&%$#_{}~^",
    "first\nsecond",
    "<script>alert(1)</script> &lt;b&gt;",
    '=HYPERLINK("x"),"y"',
    "**bold** _soft_ `code` [a](b) ![c](d) ~~e~~",
    "\u202eright to left\u2066",
    "[2pt] *",
    "\r\x9b2J\ud800",
    ":skull: [red]markup[/red]",
)


def printed(table: Table, width: int = 200) -> str:
    out = console()
    out = type(out)(file=io.StringIO(), width=width, highlight=False, markup=False, emoji=False)
    out.print(table)
    return out.file.getvalue()


def table_of(*cells: object, **column: object) -> Table:
    table = Table("", (Column("name", **column), "second"))
    for cell in cells:
        table.add(cell, "x")
    return table


@pytest.fixture
def numbers() -> Table:
    columns = ("run", Column("accuracy", "accuracy (%)", right=True, shown="{:.1%}".format))
    table = Table("Runs", columns)
    table.add("a", 0.9251)
    table.end_section()
    table.add("b", None)
    return table


def test_a_terminal_shows_title_headings_and_formatted_cells(numbers):
    text = printed(numbers)
    assert "Runs" in text
    assert "accuracy (%)" in text
    assert "92.5%" in text


def test_csv_has_names_and_values(numbers):
    assert numbers.csv() == "run,accuracy\na,0.9251\nb,\n"


def test_markdown_is_a_table_of_github(numbers):
    assert numbers.markdown() == ("| run | accuracy (%) |\n| --- | ---: |\n| a | 92.5% |\n| b | |")


def test_latex_is_a_tabular_of_booktabs(numbers):
    assert numbers.latex().split("\n") == [
        r"% \usepackage{booktabs}",
        r"\begin{tabular}{lr}",
        r"  \toprule",
        r"  run & accuracy (\%) \\",
        r"  \midrule",
        r"  a & 92.5\% \\",
        r"  \midrule",
        r"  b &  \\",
        r"  \bottomrule",
        r"\end{tabular}",
    ]


def test_a_row_of_another_length_is_refused(numbers):
    with pytest.raises(ValueError, match="1 cells for 2 columns"):
        numbers.add("a")


def test_csv_keeps_numbers_and_says_booleans_as_yaml_does():
    table = Table("", ("a", "b", "c", "d"))
    table.add(True, 3, 1e-7, None)
    assert table.csv().splitlines()[1] == "true,3,1e-07,"


@pytest.mark.parametrize("text", HOSTILE)
def test_no_terminal_obeys_a_cell_a_heading_or_a_title(text):
    table = Table(text, (Column("name", text), "second"))
    table.add(text, text)
    shown = printed(table)
    assert not set(shown) & set("\x1b\x07\r\x9b\u202e\u2066\ud800")
    assert len({len(line) for line in shown.splitlines() if line.startswith(("│", "┃"))}) == 1


def test_text_that_is_printed_without_a_table_is_not_obeyed_either(capsys):
    console().print("a\x1b[31mb")
    console().print("key=[red]x[/red] :skull:")
    assert capsys.readouterr().out == f"a{REPLACED}[31mb\nkey=[red]x[/red] :skull:\n"


def test_styles_still_reach_a_terminal():
    out = type(console())(file=io.StringIO(), force_terminal=True, width=80)
    out.print("x", style="red")
    assert "\x1b[31m" in out.file.getvalue()


@pytest.mark.parametrize("text", HOSTILE)
def test_csv_gives_back_one_line_without_control_characters(text):
    written = table_of(text).csv()
    assert not set(written) & set("\x1b\x07\r\x9b\u202e\u2066\ud800")
    rows = list(csv.reader(io.StringIO(written)))
    assert [len(row) for row in rows] == [2, 2]
    assert len(written.splitlines()) == 2


@pytest.mark.parametrize("code", [False, True])
@pytest.mark.parametrize("text", HOSTILE)
def test_markdown_shows_the_text_itself_in_one_cell(text, code):
    reader = pytest.importorskip("markdown_it").MarkdownIt("commonmark").enable("table")
    tokens = reader.parse(table_of(text, code=code).markdown())
    cells = [token for token in tokens if token.type == "inline"][2:]
    assert len(cells) == 2
    kinds = {child.type for child in cells[0].children}
    assert kinds <= {"code_inline"} if code else kinds <= {"text", "text_special"}
    shown = "".join(child.content for child in cells[0].children)
    assert shown == _expected(text)


def _expected(text: str) -> str:
    """What a reader sees: control characters replaced, in one line, without blanks around."""
    for char in "\x1b\x07\r\x9b\u202e\u2066\ud800":
        text = text.replace(char, REPLACED)
    return text.replace("\n", " ").strip()


@pytest.mark.parametrize("text", HOSTILE)
def test_latex_has_no_special_character_but_its_own(text):
    written = table_of(text, code=True).latex()
    row = written.splitlines()[5]
    for own in (
        r"\texttt", r"\textbackslash", r"\textasciitilde", r"\textasciicircum", r"\textless",
        r"\textgreater", r"\textasciigrave", r"\textbar", r"\_", r"\&", r"\%", r"\$", r"\#", r"\{",
        r"\}",
    ):  # fmt: skip
        row = row.replace(own, "")
    assert row.endswith(r" & x \\")
    assert not set(row.removesuffix(r" & x \\")) & set("\\&%$#_~^<>|`\n")
    assert row.count("{") == row.count("}")


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs LaTeX")
def test_latex_is_set(tmp_path):
    table = table_of(*(text for text in HOSTILE if text.isascii()), "ε ≤ 1 ± σ", code=False)
    page = (
        "\\documentclass{article}\\usepackage{booktabs}\\begin{document}\n"
        f"{table.latex()}\n\\end{{document}}\n"
    ).replace(REPLACED, "?")
    (tmp_path / "page.tex").write_text(page, encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "page.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]


def test_pairs_have_no_header():
    text = printed(pairs("Plan", [("rounds", 3), ("sigma", None)]))
    assert "rounds │ 3" in text
    assert "sigma  │ None" in text
    assert "name" not in text


def test_a_table_needs_no_console_of_fedpriv():
    out = Console(file=io.StringIO(), width=80)
    out.print(table_of("[red]a[/red]"))
    assert "[red]a[/red]" in out.file.getvalue()
