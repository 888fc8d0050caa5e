"""Draw the pictures of the reference folder again from their committed figure.csv, without any run.

    python scripts/redraw_figures.py [NAME]...

NAME is a figure or a work, such as wei/fig6 or wei; without a name all figures are drawn. Figures that a
function computes are computed again, unless their numbers would change; their panels are not in figure.csv.
Those of privacy take hours, and are drawn only if they are named.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
from publish_figures import with_few_colours

from fedpriv.store.caveats import SEES_HIDDEN
from fedpriv.study.figures.computed import draw_computed, drawn_table, read_computed
from fedpriv.study.figures.reading import compose_safely, plain_section, read_figure
from fedpriv.study.figures.write import draw_table

REFERENCE = Path(__file__).parents[1] / "outputs" / "reference"
_TAKES_HOURS = "privacy/"


def redraw(name: str) -> None:
    """Draw the picture of one figure again.

    Raises:
        SystemExit: A computed figure has other numbers than figure.csv.
    """
    folder = REFERENCE / name
    section = plain_section(compose_safely([f"+figure={name}"]).figure)
    table = pd.read_csv(folder / "figure.csv")
    if section.get("compute") is not None:
        figure = read_computed(section, name)
        drawing = figure.draw()
        now = drawn_table(drawing)
        if len(now) != len(table) or not np.allclose(
            now[["x", "y"]], table[["x", "y"]], rtol=1e-4, equal_nan=True
        ):
            raise SystemExit(f"{name}: its function gives other numbers than figure.csv")
        draw_computed(figure, drawing, folder)
    else:
        omniscient = SEES_HIDDEN in (folder / "comparison.md").read_text()
        unsound = unsound_in(folder)
        draw_table(read_figure(section, name), table, unsound, folder, omniscient=omniscient)
    with_few_colours(folder / "figure.png")


def unsound_in(folder: Path) -> set[tuple[str, str]]:
    """Return (group, curve) of the curves of finite published and infinite sound ε, by ends.csv."""
    path = folder / "ends.csv"
    ends = pd.read_csv(path) if path.exists() else pd.DataFrame()
    if "epsilon_sound" in ends:  # a figure with points: a row for each run
        claimed = np.isfinite(ends.get("epsilon_published", np.inf))
        infinite = ends[np.isinf(ends["epsilon_sound"]) & claimed]
    elif "quantity" in ends:
        means = ends.pivot(index=["group", "curve"], columns="quantity", values="mean")
        means = means.reindex(columns=["epsilon_sound", "epsilon_published"])
        unsound = np.isinf(means["epsilon_sound"]) & np.isfinite(means["epsilon_published"])
        infinite = means[unsound].reset_index()
    else:
        return set()
    return set(zip(infinite["group"], infinite["curve"], strict=True))


def main() -> None:
    """Redraw the figures named on the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="figures or works")
    names = parser.parse_args().names
    for path in sorted(REFERENCE.glob("*/*/figure.csv")):
        name = str(path.parent.relative_to(REFERENCE))
        wanted = not names and not name.startswith(_TAKES_HOURS)
        if wanted or name in names or name.partition("/")[0] in names:
            redraw(name)
            print(name, flush=True)


if __name__ == "__main__":
    main()
