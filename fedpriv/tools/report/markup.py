"""HTML elements in which every text is escaped.

The texts of a page come from run folders, which may be untrusted. So text becomes HTML in this module alone,
and only :class:`Markup` is taken over unescaped.
"""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Sequence

from fedpriv.common.words import printable

REPORT = "report.html"
# In the title of every report. A file without this mark is another page, and is never overwritten.
REPORT_MARK = "\N{MIDDLE DOT} fedpriv</title>".encode()
_TALL, _WIDE = 15, 5  # rows and columns above which a table scrolls in its box
_VOID = frozenset({"meta", "img", "br"})  # elements without content
_IN_SCRIPTS = {c: f"\\u{c:04x}" for c in (*map(ord, "<>&\u2028\u2029"), *range(127, 160))}


class Markup(str):
    """HTML, made by the functions of this module from escaped text."""

    __slots__ = ()


def tag(name: str, *content: object, **attributes: object) -> Markup:
    """Return an HTML element.

    Args:
        name: Name of the element.
        *content: Content; whatever is not Markup is escaped.
        **attributes: Attributes. An underscore stands for a dash, and a last underscore is dropped; ``None``
            and ``False`` leave the attribute out, ``True`` gives an attribute without a value.

    Example:
        >>> tag("td", "a < b", class_="number")
        '<td class="number">a &lt; b</td>'
    """
    words = [name]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        # ``class_`` is written so because ``class`` is a word of Python.
        key = key.rstrip("_").replace("_", "-")
        words.append(key if value is True else f'{key}="{_escaped(value)}"')
    opened = f"<{' '.join(words)}>"
    return Markup(opened if name in _VOID else f"{opened}{joined(content)}</{name}>")


def joined(parts: Iterable[object]) -> Markup:
    """Join the parts; whatever is not Markup is escaped."""
    return Markup("".join(p if isinstance(p, Markup) else _escaped(p) for p in parts))


def _escaped(value: object) -> str:
    """Return the value as text of a page: escaped, without control characters that a terminal would obey."""
    return html.escape(printable(str(value)))


def json_block(value: object, name: str) -> Markup:
    """Return an element with JSON values for the page's script; no value can end the element.

    Args:
        value: A value that JSON has: no nan and no infinity.
        name: Id of the element.

    Raises:
        ValueError: A number is not finite.
    """
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return Markup(
        f'<script type="application/json" id="{name}">{text.translate(_IN_SCRIPTS)}</script>'
    )


def table(
    caption: str,
    head: Sequence[object],
    rows: Iterable[Sequence[object]],
    names: bool = True,
    sorts: bool = False,
) -> Markup:
    """Return a table in a box of its own, in which it scrolls.

    Args:
        caption: Caption of the table, or an empty text.
        head: Headings of the columns; no heading is shown where all are empty.
        rows: Cells, row by row.
        names: True where the first cell of a row is its heading.
        sorts: True where a reader may sort and filter the rows; done by page.js, without which the table is
            as it is written.
    """
    top = tag("tr", *(tag("th", cell, scope="col") for cell in head))
    body = [
        tag(
            "tr",
            *(
                tag("th", cell, scope="row") if names and i == 0 else tag("td", cell)
                for i, cell in enumerate(row)
            ),
        )
        for row in rows
    ]
    title = tag("caption", caption) if caption else ""
    attributes = {"data_sorts": "rows"} if sorts else {}
    inner = tag(
        "table", title, tag("thead", top) if any(head) else "", tag("tbody", *body), **attributes
    )
    # Classes of page.css. Only a large table scrolls, as scrolling hides rows from a quick look.
    size = " tall" * (len(body) > _TALL) + " wide" * (len(head) > _WIDE)
    return tag(
        "div", inner, class_=f"box{size}", tabindex="0", role="region", aria_label=caption or "table"
    )  # fmt: skip


def folded(title: object, *content: object, place: str | None = None) -> Markup:
    """Return content that a click unfolds, and print shows; ``place`` is the id that links lead to."""
    return tag("details", tag("summary", title), *content, id=place)


def listed(items: Iterable[object]) -> Markup:
    """Return the items as a bullet list."""
    return tag("ul", *(tag("li", item) for item in items))
