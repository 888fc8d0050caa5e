"""Privacy cost of all runs of a figure together: for comparison.md, and as the paragraph of a paper."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from fedpriv.store.joint_privacy import choice_warning, joint_privacy
from fedpriv.study.figures.definition import Figure
from fedpriv.study.figures.figure_keys import keys_of
from fedpriv.study.figures.series import FigureRun
from fedpriv.tools.report.privacy_paragraph import privacy_paragraph


def paragraph(figure: Figure, runs: Sequence[FigureRun]) -> str:
    """Return the LaTeX paragraph about the privacy of a figure's runs.

    Raises:
        ConfigError: A stored run cannot be read.
    """
    return privacy_paragraph([run.stored for run in runs], _warning(figure, runs))


def joint_words(figure: Figure, runs: Sequence[FigureRun]) -> list[str]:
    """Return sentences on the joint ε of all runs.

    A figure of the user's own also gets a warning where the best of its values is chosen on test records.

    Raises:
        ConfigError: A stored run cannot be read.
    """
    words = [s for joint in joint_privacy(run.stored for run in runs) for s in joint.sentences()]
    warning = "" if figure.file is None else _warning(figure, runs)
    return [*words, warning] if warning else words


def _warning(figure: Figure, runs: Sequence[FigureRun]) -> str:
    return choice_warning(varied_keys(runs), [axes.y for axes in figure.axes])


def varied_keys(runs: Sequence[FigureRun]) -> list[str]:
    """Return the keys in which the overrides of a figure's private runs differ."""
    given: dict[str, set[str]] = {}
    private = [run.job.overrides for run in runs if run.summary.get("epsilon_sound") is not None]
    for overrides in private:
        for override in overrides:
            key, _, value = override.lstrip("+~").partition("=")
            given.setdefault(key, set()).add(value)
    counts = Counter(key for overrides in private for key in keys_of(overrides))
    return [key for key, values in given.items() if len(values) > 1 or counts[key] < len(private)]
