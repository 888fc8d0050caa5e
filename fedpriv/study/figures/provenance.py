"""Where a figure comes from and what its runs cost together, for comparison.md and for a paper."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime

from fedpriv.common.words import counted
from fedpriv.store.folder import commit_words, own_commit_words
from fedpriv.store.joint_privacy import choice_warning, joint_privacy
from fedpriv.study.figures.definition import Figure
from fedpriv.study.figures.figure_keys import keys_of
from fedpriv.study.figures.series import FigureRun
from fedpriv.tools.report.privacy_paragraph import privacy_paragraph


def paragraph(figure: Figure, runs: Sequence[FigureRun]) -> str:
    """Return the LaTeX paragraph about the privacy of a figure's runs.

    Raises:
        ConfigError: A stored run is damaged.
    """
    return privacy_paragraph([run.stored for run in runs], _warning(figure, runs))


def joint_words(figure: Figure, runs: Sequence[FigureRun]) -> list[str]:
    """Return sentences on the joint ε of all runs.

    A figure of the user's own also gets a warning where the best of its values is chosen on test records.

    Raises:
        ConfigError: A stored run is damaged.
    """
    words = [s for joint in joint_privacy(run.stored for run in runs) for s in joint.sentences()]
    warning = "" if figure.file is None else _warning(figure, runs)
    return [*words, warning] if warning else words


def _warning(figure: Figure, runs: Sequence[FigureRun]) -> str:
    """Return a warning where private runs differ in a key whose best value test records choose."""
    given: dict[str, set[str]] = {}
    private = [run.job.overrides for run in runs if run.summary.get("epsilon_sound") is not None]
    for overrides in private:
        for override in overrides:
            key, _, value = override.lstrip("+~").partition("=")
            given.setdefault(key, set()).add(value)
    counts = Counter(key for overrides in private for key in keys_of(overrides))
    varied = [key for key, values in given.items() if len(values) > 1 or counts[key] < len(private)]
    return choice_warning(varied, [axes.y for axes in figure.axes])


def drawn_by(command: str, runs_by: str | None = None) -> Iterator[str]:
    """Yield the lines about the command, the date, and the versions that made the figure and its runs.

    Args:
        command: Command that made the figure.
        runs_by: Words for the code that made the runs; None for a figure without runs.
    """
    version = own_commit_words()
    same = ", which made the runs too" if runs_by == version else ""
    yield f"- command: `{command}`"
    yield f"- drawn {datetime.now(UTC):%Y-%m-%d} by {version}{same}"
    if runs_by is not None and not same:
        yield f"- runs made by {runs_by}"


def provenance(figure: Figure, runs: Sequence[FigureRun], command: str) -> Iterator[str]:
    """Yield the lines about how a figure was made: its command, commits, machine and runs."""
    if not runs:
        yield from drawn_by(command)
        return
    environments = [run.stored.environment for run in runs]
    installed = [run.stored.versions for run in runs]
    runs_by = _distinct(
        commit_words(facts.get("commit"), versions.get("fedpriv"))
        for facts, versions in zip(environments, installed, strict=True)
    )
    yield from drawn_by(command, runs_by)
    hours = math.fsum(run.summary["seconds"] or 0.0 for run in runs) / 3600
    time = f"{hours:.2f} hours" if hours >= 1 else f"{60 * hours:.1f} minutes"
    yield f"- {counted(len(runs), 'run')}, {time} in rounds, one process each"
    for name in ("device", "threads", "python"):
        yield f"- {name}: {_distinct(facts.get(name) for facts in environments)}"
    counts = Counter(run.stream_version for run in runs)
    if len(counts) == 1:
        yield f"- random streams: version {next(iter(counts))}"
    else:
        mixed = ", ".join(f"{counted(counts[v], 'run')} of version {v}" for v in sorted(counts))
        yield (
            f"- **random streams of several versions**: {mixed}; the same seed gives other lots and noise "
            "under each"
        )
    packages = sorted({name for versions in installed for name in versions})
    versions_of = {n: [versions.get(n) for versions in installed] for n in packages}
    lines = (f"{n} {_distinct(versions)}" for n, versions in versions_of.items() if any(versions))
    yield f"- versions: {', '.join(lines)}"
    if figure.points is not None:
        yield "- runs: a row each in ends.csv"
        return
    yield "- runs:"
    for run in runs:
        yield f"  - {run.job.label}: `{run.job.folder.path.name}`"


def _distinct(values: Iterable[object]) -> str:
    return " or ".join(dict.fromkeys(map(str, values)))
