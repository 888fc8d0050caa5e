"""HTML in which every text is escaped unless it was made here.

What a page shows comes from run folders, which may be somebody else's. So text becomes markup in one place.
"""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Sequence

from fedpriv.common.words import printable

REPORT = "report.html"
REPORT_MARK = "\N{MIDDLE DOT} fedpriv</title>".encode()
"""In every report, so that none is written over another page."""
_TALL, _WIDE = 15, 5  # rows and columns
_VOID = frozenset({"meta", "img", "br"})
_IN_SCRIPTS = {c: f"\\u{c:04x}" for c in (*map(ord, "<>&\u2028\u2029"), *range(127, 160))}


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def tag(name: str, *content: object, **attributes: object) -> Markup:
    """``tag("td", "a < b", class_="number")`` → ``<td class="number">a &lt; b</td>``.

    Content that is not Markup is escaped; ``None`` and ``False`` leave an attribute out.
    """
    words = [name]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        key = key.rstrip("_").replace("_", "-")
        words.append(key if value is True else f'{key}="{_escaped(value)}"')
    opened = f"<{' '.join(words)}>"
    return Markup(opened if name in _VOID else f"{opened}{joined(content)}</{name}>")


def joined(parts: Iterable[object]) -> Markup:
    """The parts one after the other, escaped where they are not Markup."""
    return Markup("".join(p if isinstance(p, Markup) else _escaped(p) for p in parts))


def _escaped(value: object) -> str:
    """The value as text of a page: escaped, and control characters, which a terminal would obey, replaced."""
    return html.escape(printable(str(value)))


def json_block(value: object, name: str) -> Markup:
    """Values for the page's script; nothing in them can end the element."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return Markup(
        f'<script type="application/json" id="{name}">{text.translate(_IN_SCRIPTS)}</script>'
    )


def table(
    caption: str, head: Sequence[object], rows: Iterable[Sequence[object]], names: bool = True
) -> Markup:
    """A table in a box of its own, in which it scrolls; ``names``: the first cell of a row is its heading."""
    top = tag("tr", *(tag("th", cell, scope="col") for cell in head))
    body = [
        tag("tr", *(_cell(cell, names and place == 0) for place, cell in enumerate(row)))
        for row in rows
    ]
    words = tag("caption", caption) if caption else ""
    inner = tag("table", words, tag("thead", top) if any(head) else "", tag("tbody", *body))
    size = " tall" * (len(body) > _TALL) + " wide" * (len(head) > _WIDE)
    return tag(
        "div", inner, class_=f"box{size}", tabindex="0", role="region", aria_label=caption or "table"
    )  # fmt: skip


def _cell(value: object, is_name: bool) -> Markup:
    return tag("th", value, scope="row") if is_name else tag("td", value)


def folded(title: object, *content: object, place: str | None = None) -> Markup:
    """What is shown when one asks for it, and in print; ``place``: its id, to which links lead."""
    return tag("details", tag("summary", title), *content, id=place)


def listed(items: Iterable[object]) -> Markup:
    return tag("ul", *(tag("li", item) for item in items))
