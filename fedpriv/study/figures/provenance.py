"""How a figure was made, for comparison.md: the command, commits, versions and runs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from fedpriv.common.words import counted
from fedpriv.store.folder import commit_words, own_commit_words
from fedpriv.study.figures.definition import Figure
from fedpriv.study.figures.series import FigureRun


def drawn_by(command: str, runs_by: str | None = None) -> Iterator[str]:
    """What made a figure and, where it has runs, what made those; and when."""
    here = own_commit_words()
    too = ", which made the runs too" if runs_by == here else ""
    yield f"- command: `{command}`"
    yield f"- drawn {datetime.now(UTC):%Y-%m-%d} by {here}{too}"
    if runs_by is not None and not too:
        yield f"- runs made by {runs_by}"


def provenance(figure: Figure, runs: Sequence[FigureRun], command: str) -> Iterator[str]:
    """Yield the lines of how a figure was made: its command, commits, machine and runs."""
    if not runs:
        yield from drawn_by(command)
        return
    made = [run.stored.environment for run in runs]
    installed = [run.stored.versions for run in runs]
    yield from drawn_by(
        command,
        _distinct(
            commit_words(facts.get("commit"), versions.get("fedpriv"))
            for facts, versions in zip(made, installed, strict=True)
        ),
    )
    hours = math.fsum(run.summary["seconds"] or 0.0 for run in runs) / 3600
    time = f"{hours:.2f} hours" if hours >= 1 else f"{60 * hours:.1f} minutes"
    yield f"- {counted(len(runs), 'run')}, {time} in rounds, one process each"
    for name in ("device", "threads", "python"):
        yield f"- {name}: {_distinct(facts.get(name) for facts in made)}"
    yield from _stream_versions(runs)
    packages = sorted({name for versions in installed for name in versions})
    found = {n: [versions.get(n) for versions in installed] for n in packages}
    versions = (f"{n} {_distinct(v)}" for n, v in found.items() if any(v))
    yield f"- versions: {', '.join(versions)}"
    if figure.points is not None:
        yield "- runs: a row each in ends.csv"
        return
    yield "- runs:"
    for run in runs:
        yield f"  - {run.job.label}: `{run.job.folder.path.name}`"


def _stream_versions(runs: Sequence[FigureRun]) -> Iterator[str]:
    """Under which version of the random streams the runs were made."""
    counts = Counter(run.stream_version for run in runs)
    if len(counts) == 1:
        yield f"- random streams: version {next(iter(counts))}"
        return
    mixed = ", ".join(f"{counted(counts[v], 'run')} of version {v}" for v in sorted(counts))
    yield (
        f"- **random streams of several versions**: {mixed}; the same seed gives other lots and noise under "
        "each"
    )


def _distinct(values: object) -> str:
    return " or ".join(dict.fromkeys(str(v) for v in values))  # type: ignore[attr-defined]
