"""Figures without runs: a function is called, and the :class:`Drawing` that it returns is drawn.

    figure:
      work: …
      title: …
      compute: {_target_: my_module.my_function, argument: value}
      quick: [compute.argument=value]

Keys that the figures of a work share (curves, groups) may be present and are ignored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hydra.utils
import pandas as pd
from omegaconf import DictConfig, OmegaConf

from fedpriv.common.config import as_tree
from fedpriv.common.errors import ArgumentError, ConfigError, show
from fedpriv.common.files import write_csv, write_text
from fedpriv.experiment.instantiate import within_group
from fedpriv.store.display import console
from fedpriv.store.plots import Panel, draw_panels
from fedpriv.study.figures.comparison import comparison_text
from fedpriv.study.figures.reading import KEYS, plain_section, read_keys
from fedpriv.study.figures.write import written_words
from fedpriv.tools.report.write import write_figure_report

_OF_RUNS = ("show", "x", "metric", "stated", "orderings", "baselines", "seeds")
_NO_MATTER = ("runtime.", "dataset.path=", "dry_run=")


@dataclass(frozen=True)
class Drawing:
    """Result of the function of a computed figure.

    Attributes:
        rows: The panels, row by row.
        caption: Text that a reader needs to understand the picture.
        findings: Sentences for comparison.md.

    Example:
        >>> from fedpriv.store.plots import Line, Panel
        >>> line = Line("n squared", "#0072B2", [1, 2, 3], [1, 4, 9])
        >>> drawing = Drawing([[Panel("Squares", "n", "n²", (line,))]], "Squares of n.")
        >>> drawn_table(drawing)["y"].tolist()
        [1, 4, 9]
    """

    rows: Sequence[Sequence[Panel]]
    caption: str
    findings: Sequence[str] = ()


@dataclass(frozen=True)
class ComputedFigure:
    """A figure whose YAML has ``compute``.

    Attributes:
        name: Name of the figure, ``<work>/<figure>``.
        work: Citation of the published work.
        title: Title of the figure.
        notes: Text for comparison.md.
        compute: ``_target_`` of the function, and its arguments.
        changed: The user's overrides of arguments.
        quick: True if arguments have the values of the quick scale.
    """

    name: str
    work: str
    title: str
    notes: str
    compute: Mapping[str, Any]
    changed: Sequence[str]
    quick: bool

    def folder(self, config: DictConfig) -> Path:
        """Return the folder of the figure below the configured output folder."""
        endings = f"{'_quick' if self.quick else ''}{'_changed' if self.changed else ''}"
        return Path(config.runtime.output_dir) / "figures" / f"{self.name}{endings}"

    def draw(self) -> Drawing:
        """Call the function, and return its drawing.

        Raises:
            ConfigError: The function refuses an argument, which the error names, or returns no Drawing.
        """
        drawing = within_group(
            "figure.compute", lambda: hydra.utils.instantiate(self.compute, _convert_="all")
        )
        if not isinstance(drawing, Drawing):
            kind = type(drawing).__name__
            raise ConfigError("figure.compute", kind, "a function that returns a Drawing")
        return drawing


def read_computed(
    section: DictConfig | dict[str, Any], name: str, arguments: Sequence[str] = ()
) -> ComputedFigure:
    """Return the computed figure that the section ``figure`` of a configuration defines.

    Args:
        section: The section, or its plain values.
        name: Name of the figure, ``<work>/<figure>``.
        arguments: Overrides of the command line.

    Raises:
        ConfigError: A value is not allowed. The error names the key.
    """
    changed = [a for a in arguments if a.lstrip("+~").startswith("figure.compute")]
    try:
        values = read_keys("", plain_section(section), KEYS)
        for key in set(_OF_RUNS) & set(values):
            raise ArgumentError(key, values[key], "absent: a figure with compute has no runs")
        compute, quick = values["compute"], {}
        if not isinstance(compute, dict) or not isinstance(compute.get("_target_"), str):
            raise ArgumentError("compute", compute, "a function's _target_ and its arguments")
        if values.get("scale") == "quick":  # other overrides are of the work's runs
            pairs = [o.removeprefix("compute.") for o in values.get("quick", ()) if "compute." in o]
            quick = as_tree(OmegaConf.from_dotlist(pairs), resolve=False)
        by_user = {argument.partition("=")[0].rpartition(".")[2] for argument in changed}
        return ComputedFigure(
            name=name,
            work=values.get("work", ""),
            title=values.get("title", name),
            notes=values.get("notes", ""),
            compute={**compute, **{k: v for k, v in quick.items() if k not in by_user}},
            changed=changed,
            quick=bool(quick),
        )
    except ArgumentError as error:
        raise error.within("figure") from None


def make_computed(config: DictConfig, name: str, arguments: Sequence[str], command: str) -> None:
    """Draw ``config.figure`` into its folder, or in a dry run print the folder.

    The folder gets figure.csv, figure.png, figure.pdf, comparison.md and report.html.

    Args:
        config: The composed configuration.
        name: Name of the figure, ``<work>/<figure>``.
        arguments: Overrides of the command line.
        command: Command that makes the figure.

    Raises:
        ConfigError: A value is not allowed, or an override is for runs.
        WriteError: A file cannot be written.
    """
    figure = read_computed(config.figure, name, arguments)
    for argument in arguments:
        # Overrides of runs would be ignored without a word.
        if not argument.lstrip("+~").startswith(("figure.", "figure=", *_NO_MATTER)):
            raise ConfigError(
                f"{name} has no runs that {show(argument)} could change; its arguments are "
                f"figure.compute.{{{','.join(k for k in figure.compute if k != '_target_')}}}"
            )
    folder = figure.folder(config)
    if config.dry_run:
        console().print(f"{name}: computed, keeps no runs; goes to {folder}")
        return
    drawing = figure.draw()
    folder.mkdir(parents=True, exist_ok=True)
    write_csv(folder / "figure.csv", drawn_table(drawing), float_format="%.6g")
    draw_computed(figure, drawing, folder)
    sentences = [
        drawing.caption,
        "Quick scale: fewer or smaller computations than in the figure." if figure.quick else "",
        f"Changed: {' '.join(figure.changed)}." if figure.changed else "",
    ]
    text = comparison_text(
        title=figure.title,
        origin=f"{figure.work}. Computed, keeps no runs.",
        caption=" ".join(filter(None, sentences)),
        command=command,
        notes=figure.notes.strip(),
        findings=drawing.findings,
        compute=figure.compute,
    )
    write_text(folder / "comparison.md", text)
    write_figure_report(folder)
    console().print(written_words(folder))


def draw_computed(figure: ComputedFigure, drawing: Drawing, folder: Path) -> None:
    """Draw figure.png and figure.pdf into the folder of a computed figure."""
    files = [folder / "figure.png", folder / "figure.pdf"]
    stamp = "QUICK" if figure.quick else ""
    draw_panels(files, drawing.rows, f"{figure.work} · {figure.title}", stamp=stamp)


def drawn_table(drawing: Drawing) -> pd.DataFrame:
    """Return the drawn points: panel, line, x and y of each."""
    lines = [
        pd.DataFrame({"panel": panel.title, "line": line.label, "x": line.x, "y": line.y})
        for row in drawing.rows
        for panel in row
        for line in panel.lines
    ]
    return pd.concat(lines, ignore_index=True)


def computed_words(config: DictConfig, name: str, arguments: Sequence[str]) -> str:
    """Return the lines of ``fedpriv figure NAME --list`` for a computed figure.

    Raises:
        ConfigError: The figure is not well defined.
    """
    figure = read_computed(config.figure, name, arguments)
    picture = figure.folder(config) / "figure.png"
    state = f"drawn: {picture}" if picture.exists() else f"fedpriv figure {name} draws it"
    return f"{figure.work}\n{figure.title}\n{name}: computed, keeps no runs; {state}"
