"""The figure that a user's file describes, as one like those of published works.

Values of ``curves`` and ``panels`` are overrides, so every curve of every panel has overrides of its own.
Curves without privacy are run without the keys of budget, noise and clipping that the others have.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle
from pathlib import Path
from typing import Any

from fedpriv.common import checks
from fedpriv.common.errors import ArgumentError, ConfigError
from fedpriv.experiment.sweeps import is_private
from fedpriv.store.colours import COLOURS
from fedpriv.study.figures.definition import (
    POINT,
    SCALES,
    Axes,
    Curve,
    CurveGroup,
    Figure,
    Mark,
    Points,
)
from fedpriv.study.figures.figure_file import (
    LINE,
    POINTS,
    Baseline,
    FigureFile,
    read_figure_file,
)
from fedpriv.study.figures.figure_keys import Choice, Values, key_label, keys_of
from fedpriv.study.figures.jobs import Compose

_OF_PRIVATE = ("epsilon", "noise_schedule", "clipper")
"""Keys, and beginnings of keys, that runs without privacy do not take."""
_ALL = Choice("", ())


def figure_of_file(settings: Mapping[str, Any], compose: Compose) -> Figure:
    """Return the figure that the file ``figure.file`` describes.

    Args:
        settings: The section ``figure`` of the configuration: ``file``, and the flags of the command.
        compose: Returns the configuration for a list of overrides.

    Raises:
        ConfigError: The file cannot be read, or a key of the file or of the section is wrong.
    """
    given = dict(settings)
    file = read_figure_file(Path(str(given.pop("file"))))
    try:
        scale = checks.one_of("scale", given.pop("scale", None) or "paper", SCALES)
        seeds, draw_only = given.pop("seeds", None), given.pop("draw_only", None) or False
        reuse = [str(folder) for folder in given.pop("reuse", None) or ()]
        if given:
            raise ArgumentError(next(iter(given)), "", "given in the file")
        chosen = None if seeds is None else tuple(checks.seed("seeds", seed) for seed in seeds)
        if chosen is not None and (not chosen or len(set(chosen)) < len(chosen)):
            raise ArgumentError("seeds", list(chosen), "one seed or several different ones")
        draw_only = checks.boolean("draw_only", draw_only)
    except ArgumentError as error:
        raise error.within("figure") from None
    chosen = chosen or (file.seeds if scale == "paper" else file.seeds[:1])
    beside = (str(file.path.parent / folder) for folder in file.reuse)
    return Figure(
        name=file.folder,
        work="",
        title=file.title_words,
        groups=tuple(_groups(file, chosen, compose)),
        axes=tuple(_axes(file)),
        stated=(),
        orderings=(),
        deviations={},
        scale=scale,
        quick=file.quick,
        notes=file.notes or "",
        reuse=(*beside, *reuse),
        draw_only=draw_only,
        points=_points(file),
        marks=tuple(_marks(file)),
        file=file.path,
    )


def _points(file: FigureFile) -> Points | None:
    x = file.x
    return (
        Points(x.key, x.values, file.x_label or key_label(x.key)) if isinstance(x, Values) else None
    )


def _axes(file: FigureFile) -> list[Axes]:
    """Return the axes, one for each metric."""
    x = POINT if isinstance(file.x, Values) else file.x
    return [
        Axes(
            column, x, column, x_label=file.x_label, x_scale=file.x_scale, y_scale=file.y_scale,
            band=file.band,
        )
        for column in file.metric
    ]  # fmt: skip


def _groups(file: FigureFile, seeds: tuple[int, ...], compose: Compose) -> list[CurveGroup]:
    """Return a group of curves for each panel."""
    private: dict[tuple[str, ...], bool] = {}
    groups = []
    for panel in file.panels or (_ALL,):
        palette = cycle(COLOURS)
        curves = [
            _curve(file, panel, choice, next(palette), None, compose, private)
            for choice in file.curves or (_ALL,)
        ]
        for baseline in file.baselines:
            if baseline.overrides is not None and baseline.panel in (None, panel.label):
                choice = Choice(baseline.label, baseline.overrides)
                colour = next(palette)
                curves.append(_curve(file, panel, choice, colour, baseline, compose, private))
        groups.append(CurveGroup(panel.label or "all", panel.label, (), seeds, tuple(curves)))
    return groups


def _curve(
    file: FigureFile,
    panel: Choice,
    choice: Choice,
    colour: str,
    baseline: Baseline | None,
    compose: Compose,
    private: dict[tuple[str, ...], bool],
) -> Curve:
    """Return a curve, or the runs of a baseline, in one panel."""
    own = choice.overrides
    shared = tuple(o for o in file.base if not keys_of([o]) & keys_of((*panel.overrides, *own)))
    shared += tuple(o for o in panel.overrides if not keys_of([o]) & keys_of(own))
    overrides: tuple[str, ...] = (*shared, *own)
    algorithm = tuple(o for o in overrides if keys_of([o]) == {"algorithm"})
    if algorithm not in private:
        private[algorithm] = is_private(compose(algorithm))
    points: bool = True
    if not private[algorithm]:
        rest = (o for o in shared if not _needs_privacy(*keys_of([o])))
        overrides = (*rest, *own)
        if "epsilon" not in keys_of(own):
            overrides = (*overrides, "epsilon=null")
        points = not (isinstance(file.x, Values) and _needs_privacy(file.x.key))
    if baseline is not None and baseline.shape is not None:
        if baseline.shape == POINTS and not points:
            number = file.baselines.index(baseline)
            assert isinstance(file.x, Values)
            allowed = f"line: runs without privacy take no {file.x.key}"
            raise ConfigError(f"{file.path}: baselines.{number}.as", POINTS, allowed)
        points = baseline.shape == POINTS
    label = choice.label or "runs"
    return Curve(label, label, colour, overrides, points=points)


def _needs_privacy(key: str) -> bool:
    return key.partition(".")[0] in _OF_PRIVATE


def _marks(file: FigureFile) -> list[Mark]:
    """Return the numbers from elsewhere as marks, in the panels that show them."""
    marks = []
    for baseline in file.baselines:
        for panel in file.panels or (_ALL,):
            if baseline.panel not in (None, panel.label):
                continue
            for number in baseline.numbers:
                marks.append(
                    Mark(
                        group=panel.label or "all",
                        column=baseline.metric or file.metric[0],
                        point=number.x,
                        value=number.y,
                        label=baseline.label,
                        low=number.low,
                        high=number.high,
                        joined=_joined(baseline, number.x),
                        source=baseline.source,
                    )
                )
    return marks


def _joined(baseline: Baseline, x: float | None) -> bool:
    """Return whether a line joins the numbers of a baseline, as it does those that hold everywhere."""
    return baseline.shape == LINE if baseline.shape else x is None


def is_file(section: Mapping[str, Any]) -> bool:
    """Return whether a section ``figure`` names a file instead of defining the figure."""
    return "file" in section
