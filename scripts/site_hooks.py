"""Hooks of mkdocs.yml: the figures of outputs/reference are part of the site, other files are named.

The pages are readable on GitHub too, where these links lead to the files themselves.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
REFERENCE = ROOT / "outputs" / "reference"
FIGURES = "reference-figures"
FILES = ("figure.png", "figure.pdf", "figure.csv", "comparison.md")
"""Files of a figure that the site has, below :data:`FIGURES`."""
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(((?:\.\./)+)([^)#]+)(#[^)]*)?\)")


def on_files(files: Files, config: Any) -> Files:
    """Add the pictures that the pages show, with their data and the pages of their comparisons."""
    for path in sorted(path for name in FILES for path in REFERENCE.glob(f"*/*/{name}")):
        place = path.relative_to(REFERENCE).as_posix()
        files.append(File.generated(config, f"{FIGURES}/{place}", abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: Any, files: Files) -> str:
    """Make links that leave docs/ lead to a figure's file on the site, or name the file."""
    here = posixpath.join("docs", posixpath.dirname(page.file.src_uri))

    def inside(match: re.Match[str]) -> str:
        mark, words, up, rest = match[1], match[2], match[3], match[4]
        target = posixpath.normpath(posixpath.join(here, up, rest))
        if target.startswith("docs/"):
            return match[0]
        if not (ROOT / target).exists():
            raise FileNotFoundError(f"{page.file.src_uri}: {target}")
        if posixpath.basename(target) in FILES and (place := _place(target)):
            link = posixpath.relpath(f"docs/{FIGURES}/{place}", here)
            return f"{mark}[{words}]({link})"
        return f"{words} (`{target}`)" if words != target else f"`{target}`"

    return _LINK.sub(inside, markdown)


def _place(target: str) -> str:
    """Return work/figure/file of a file of a reference figure, and nothing of another file."""
    place = target.removeprefix("outputs/reference/")
    return place if place != target and place.count("/") == 2 else ""
