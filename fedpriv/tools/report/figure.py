"""Sections of a report about a figure: its picture, and comparison.md with its tables."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from fedpriv.store.saved import saved_picture, saved_text
from fedpriv.tools.report import sections
from fedpriv.tools.report.markup import Markup, tag
from fedpriv.tools.report.page import Page

_LARGEST_PICTURE = 1 << 21


@dataclass
class StoredFigure:
    """A figure, read from its folder.

    Attributes:
        folder: Folder of the figure.
        text: Content of comparison.md.
        picture: Content of figure.png, or None where it is absent or too large.
    """

    folder: Path
    text: str
    picture: bytes | None

    @property
    def title(self) -> str:
        """Heading of comparison.md, or the folder's name without a heading."""
        first = re.match(r"# +(.+)", self.text)
        return first[1].strip() if first else self.folder.name


def read_figure(folder: Path) -> StoredFigure:
    """Read a figure from its folder.

    Raises:
        ConfigError: comparison.md cannot be read.
    """
    picture = saved_picture(folder / "figure.png", _LARGEST_PICTURE)
    return StoredFigure(folder, saved_text(folder / "comparison.md"), picture)


def add_figure(page: Page, figure: StoredFigure, named: bool = False) -> None:
    """Add the sections of a figure.

    Args:
        page: Page that the sections are added to.
        figure: The figure.
        named: True where headings have the figure's title, as on a page about several figures.
    """
    before = f"{figure.title}: " if named else ""
    shown = (
        tag("p", "The picture (figure.png) is absent or too large to be embedded.", class_="note")
        if figure.picture is None
        else sections.picture(figure.picture, figure.title)
    )
    page.add(f"{before}Picture", shown)
    page.add(f"{before}Comparison", tag("div", rendered(figure.text), class_="text"))


@cache
def _markdown() -> Any:
    from markdown_it import MarkdownIt

    reader = MarkdownIt("commonmark", {"html": False}).enable("table")
    reader.disable(["link", "autolink", "reference"])  # an untrusted text must not lead anywhere
    reader.add_render_rule("image", lambda *_: "")  # the picture is embedded above the text
    return reader


def rendered(text: str) -> Markup:
    """Return Markdown as HTML without links and pictures, with tables in boxes.

    The first heading is left out, as the page has it, and the others are one level lower. HTML in the text is
    shown as text.
    """
    html = re.sub(r"\A# .*\n", "", text)
    html = _markdown().render(html)
    html = re.sub(r"<(/?)h([1-4])>", lambda m: f"<{m[1]}h{min(6, int(m[2]) + 1)}>", html)
    box = '<div class="box" tabindex="0" role="region" aria-label="table"><table>'
    return Markup(html.replace("<table>", box).replace("</table>", "</table></div>"))
