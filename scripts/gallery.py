"""Write docs/gallery.md: every reference figure with its picture, its verdict, its data and its command.

    python scripts/gallery.py

Everything on the page is read from the comparison.md of the figures below outputs/reference, so run this
after a figure was published or drawn again.
"""

from __future__ import annotations

import re
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
REFERENCE = ROOT / "outputs" / "reference"
PAGE = ROOT / "docs" / "gallery.md"
_HEAD = """\
# Gallery

All reference figures, {figures} of them. Below each picture: what became of the claims that its work states,
the data, and the command that makes it. An ordering holds if the means over seeds are in it; the comparison
says where they are closer than the seeds lie apart.

[Figures](guide/figures.md) says how a published figure is made, and how
yours is.
"""
_WORKS = {
    "adap_dpfl": ("Adap DP-FL", "reproductions/adap_dpfl.md"),
    "ldp_clipping": ("LDP-FedSGD and the clipping size", "reproductions/ldp_clipping.md"),
    "mechanisms": ("Mechanisms", "reproductions/mechanisms.md"),
    "naseri": ("Naseri et al.", "reproductions/naseri.md"),
    "pfl": ("pfl-research's benchmark", "reproductions/pfl.md"),
    "privacy": ("Privacy of the four works", "privacy_summary.md"),
    "recipes": ("Recipes", "guide/recipes.md"),
    "robust": ("Robust aggregation", "reproductions/robust.md"),
    "wei": ("Wei et al.", "reproductions/wei.md"),
}
"""Title and page of each work, in the order of the gallery."""


def gallery() -> str:
    """Return the text of the page."""
    comparisons = sorted(REFERENCE.glob("*/*/comparison.md"), key=_place_in_the_gallery)
    parts = [_HEAD.format(figures=len(comparisons))]
    for work, group in groupby(comparisons, key=lambda path: path.parts[-3]):
        title, page = _WORKS[work]
        cards = "\n".join(card(path) for path in group)
        parts.append(f"## {title}\n\n[The page of this work]({page}).\n")
        parts.append(f'<div class="grid cards" markdown>\n\n{cards}\n</div>\n')
    return "\n".join(parts)


def card(comparison: Path) -> str:
    """Return the list item of one figure: picture, title, verdict, links and command.

    Args:
        comparison: The comparison.md of the figure, beside its picture and its data.
    """
    text = comparison.read_text(encoding="utf-8")
    title = text.partition("\n")[0].removeprefix("# ")
    folder = f"../{comparison.parent.relative_to(ROOT).as_posix()}"
    found = re.search(r"^- command: (`[^`]+`)$", text, flags=re.MULTILINE)
    if found is None:
        raise SystemExit(f"{comparison} names no command; publish the figure again")
    files = {
        "Data": "figure.csv",
        "PDF": "figure.pdf",
        "Large picture and comparison": "comparison.md",
    }
    links = " · ".join(f"[{words}]({folder}/{file})" for words, file in files.items())
    scale = re.search(r" (Scale: (?!paper).*)$", text, flags=re.MULTILINE)
    judged = f"{verdict(text)} {scale[1]}" if scale else verdict(text)
    lines = (f"![{title}]({folder}/figure.png)", f"**{title}**", judged, links, found[1])
    return "-   " + "\n\n    ".join(lines) + "\n"


def verdict(text: str) -> str:
    """Return one line on what became of the claims of a figure.

    Args:
        text: The comparison.md of the figure.
    """
    orderings = re.findall(r"\*\*(Holds|Does not hold)", _section(text, "Orderings"))
    if orderings:
        held = orderings.count("Holds")
        return f"Stated orderings that hold: {held} of {len(orderings)}."
    findings = [line[2:] for line in _section(text, "Findings").splitlines() if line[:2] == "- "]
    refuted = sum("is refuted" in finding for finding in findings)
    if refuted:
        return f"Claims refuted by an audit: {refuted} of {len(findings)}."
    if findings:
        first = findings[0].partition(";")[0].rstrip(".")
        more = f" ({len(findings) - 1} more in the comparison)" if len(findings) > 1 else ""
        return f"{first}{more}."
    stated = _rows(_section(text, "Stated and ours"))
    if stated:
        curve, quantity, theirs, ours = (stated[0][name] for name in _STATED)
        return f"{curve}, {quantity}: stated {theirs}, ours {ours.partition(' (')[0]}."
    ends = [
        row for row in _rows(_section(text, "Ends of the curves")) if _accuracy(row) is not None
    ]
    if not ends:
        return "States no claim that could be checked."
    best = max(ends, key=lambda row: _accuracy(row) or 0.0)
    names = list(best)
    x_axis = names[names.index("curve") + 1 : names.index("test accuracy (%)")]
    curve = ", ".join([best["curve"], *(f"{name} = {best[name]}" for name in x_axis)])
    return f"No ordering is stated. Highest test accuracy: {best['test accuracy (%)']} % ({curve})."


_STATED = ("curve", "quantity at the end", "stated", "ours")


def _place_in_the_gallery(comparison: Path) -> tuple[int, bool, str, int, str]:
    """Return the sorting key: figures that the work itself has come first, by their numbers."""
    work, figure = comparison.parts[-3:-1]
    name, number = re.fullmatch(r"(\D*)(\d*).*", figure).groups()
    return list(_WORKS).index(work), name not in ("fig", "table"), name, int(number or 0), figure


def _section(text: str, heading: str) -> str:
    return text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def _rows(section: str) -> list[dict[str, str]]:
    """Return the rows of a Markdown table by the names of their columns."""
    lines = [line.strip("| ").split(" | ") for line in section.splitlines() if line[:1] == "|"]
    if len(lines) < 3:
        return []
    names = lines[0]  # the first column, of the panels, has no name, so it is lost by strip
    return [dict(zip(names, row[-len(names) :], strict=True)) for row in lines[2:]]


def _accuracy(row: dict[str, str]) -> float | None:
    found = re.match(r"[\d.]+", row.get("test accuracy (%)", ""))
    return float(found[0]) if found else None


if __name__ == "__main__":
    PAGE.write_text(gallery(), encoding="utf-8")
    print(f"{PAGE.relative_to(ROOT)}: {len(list(REFERENCE.glob('*/*/comparison.md')))} figures")
