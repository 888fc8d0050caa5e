"""Text is escaped wherever it comes from."""

from __future__ import annotations

import json

import pytest

from fedpriv.tools.report.figure import rendered
from fedpriv.tools.report.markup import Markup, joined, json_block, table, tag

EVIL = "<script>alert('x')</script>&\"</b>"


def test_content_and_attributes_are_escaped():
    made = tag("p", EVIL, title=EVIL)
    assert made.count("<") == 2
    assert "&lt;script&gt;" in made
    assert '"</b>' not in made


def test_control_characters_are_not_copied():
    """A terminal that shows the file would obey an escape sequence."""
    made = tag("p", "a\x1b[31mb\x9bc\n", title="\x07d") + json_block({"key": "\x1b\x9be"}, "n")
    assert not set(made) & {"\x1b", "\x9b", "\x07"}
    assert "a\N{REPLACEMENT CHARACTER}[31mb\N{REPLACEMENT CHARACTER}c\n" in made


def test_markup_stands_as_it_is():
    assert tag("p", tag("b", "x"), " < y") == "<p><b>x</b> &lt; y</p>"
    assert isinstance(joined([tag("b"), "<"]), Markup)


def test_attributes_that_are_none_are_left_out():
    assert tag("a", data_x=True, href=None, id=False, class_="c") == '<a data-x class="c"></a>'


def test_a_table_has_headings_and_escapes_its_cells():
    made = table("<c>", ["<h>"], [["<n>", "<v>"]])
    for part in (
        '<th scope="col">&lt;h&gt;',
        '<th scope="row">&lt;n&gt;',
        "<td>&lt;v&gt;",
        ">&lt;c&gt;",
    ):
        assert part in made


@pytest.mark.parametrize("text", [EVIL, "</script>", "<!--", "\u2028", "ε < 2 & δ"])
def test_values_for_the_script_cannot_end_its_element(text):
    made = json_block({text: [text]}, "numbers")
    inner = made.partition(">")[2].rpartition("<")[0]
    assert not {"<", ">", "&", "\u2028"} & set(inner)
    assert json.loads(inner) == {text: [text]}


@pytest.mark.parametrize(
    "text",
    [
        EVIL,
        "![x](http://example.org/x.png)",
        "[x](javascript:alert(1))",
        "<http://example.org>",
        "[x]: http://example.org\n\n[x]",
        "<img src=x onerror=alert(1)>",
    ],
)
def test_a_comparison_brings_no_elements_and_leads_nowhere(text):
    made = rendered(f"# Title\n\n{text}\n")
    for part in ("<script", "<img", "<a ", "href"):
        assert part not in made


def test_a_comparison_keeps_its_tables_lists_and_headings():
    made = rendered("# Title\n\n## Part\n\n| | a |\n|---|---|\n| b | **1** |\n\n- x\n  - `y`\n")
    assert "Title" not in made
    for part in ("<h3>Part</h3>", "<strong>1</strong>", "<code>y</code>", 'class="box"'):
        assert part in made
