"""Hooks of mkdocs.yml: pictures of outputs/reference are part of the site, other files are named.

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
PICTURES = "reference-figures"
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(((?:\.\./)+)([^)#]+)(#[^)]*)?\)")


def on_files(files: Files, config: Any) -> Files:
    """Add the pictures that the pages show."""
    for picture in sorted((ROOT / "outputs" / "reference").rglob("figure.png")):
        place = picture.relative_to(ROOT / "outputs" / "reference").as_posix()
        files.append(File.generated(config, f"{PICTURES}/{place}", abs_src_path=str(picture)))
    return files


def on_page_markdown(markdown: str, page: Page, config: Any, files: Files) -> str:
    """Links that leave docs/: to a picture of the site, else the name of the file."""
    here = posixpath.join("docs", posixpath.dirname(page.file.src_uri))

    def inside(match: re.Match[str]) -> str:
        mark, words, up, rest = match[1], match[2], match[3], match[4]
        target = posixpath.normpath(posixpath.join(here, up, rest))
        if target.startswith("docs/"):
            return match[0]
        if not (ROOT / target).exists():
            raise FileNotFoundError(f"{page.file.src_uri}: {target}")
        if target.endswith("figure.png"):
            place = target.removeprefix("outputs/reference/")
            link = posixpath.relpath(f"docs/{PICTURES}/{place}", here)
            return f"{mark}[{words}]({link})"
        return f"{words} (`{target}`)" if words != target else f"`{target}`"

    return _LINK.sub(inside, markdown)
