"""Differences between runs: the settings in which they differ, and a short label for each run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import pandas as pd

from fedpriv.common.errors import show
from fedpriv.store.stored_run import StoredRun
from fedpriv.tools.report.gather import SEEDS, ReportedRun

_NOT_IN_LABELS = ("resume", "dry_run", "audit")
_MOST_LETTERS = 75
ALL = "all runs"


def differences(runs: Sequence[ReportedRun | StoredRun]) -> dict[str, list[str]]:
    """Return key → value in each run, for the keys in which the runs differ.

    The value is empty for a run without the key, which counts as null.
    """
    keys = dict.fromkeys(key for run in runs for key in run.identity)
    values = {key: [_value(run.identity, key) for run in runs] for key in keys}
    return {k: v for k, v in values.items() if len({"" if x == "null" else x for x in v}) > 1}


def common(runs: Sequence[ReportedRun]) -> dict[str, str]:
    """Return key → value of the settings that all runs share. Runs without a configuration do not count."""
    known = [run.identity for run in runs if run.identity]
    if not known:
        return {}
    values = {key: _value(known[0], key) for key in known[0]}
    return {k: v for k, v in values.items() if all(_value(other, k) == v for other in known[1:])}


def _value(settings: Mapping[str, object], key: str) -> str:
    return full(settings[key]) if key in settings else ""


def full(value: object) -> str:
    """Return a value as a user would type it."""
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(full(item) for item in value)}]"
    return show(value) if value is None or isinstance(value, bool) else str(value)


def settings_of(runs: Sequence[ReportedRun | StoredRun]) -> list[dict[str, str]]:
    """Return the settings that tell runs apart, key → value of each run.

    These are the overrides, if the overrides of all runs are known, since one override can stand for many
    settings. Else they are the settings that differ.
    """
    overrides = [_overrides(run) for run in runs]
    settings = [known for known in overrides if known is not None]
    # Labels of both kinds beside each other would look as if the runs differed more than they do.
    if len(settings) < len(runs):
        differing = differences(runs).items()
        settings = [{key: v[i] for key, v in differing if v[i] != ""} for i in range(len(runs))]
    return settings


def labels(runs: Sequence[ReportedRun | StoredRun], without: str = "") -> list[str]:
    """Return a label for each run, without the key ``without``.

    Runs that differ only in their seeds have the same label. Where overrides are not known, keys that follow
    from ``without`` are left out, too.
    """
    settings, follow = settings_of(runs), {without}
    if without and any(_overrides(run) is None for run in runs):
        frame = pd.DataFrame(settings).fillna("")
        if without in frame:
            free = frame.groupby(without).nunique().gt(1).any()
            follow |= {key for key in frame if not free.get(key)}
    settings = [{k: v for k, v in run.items() if k not in follow} for run in settings]
    names = settings_labels(settings)
    if not any(names):
        return [ALL] * len(runs)
    return _cut([name or "defaults" for name in names])


def settings_labels(settings: Sequence[Mapping[str, str]]) -> list[str]:
    """Label each run by the settings in which it differs from the others, seeds aside.

    Args:
        settings: Key → value of each run.

    Returns:
        ``key=value, …`` for each run, empty for a run without a difference. A key is shortened to its last
        part where no other key has the same last part.
    """
    # Runs that differ in nothing else are repetitions, which share a label and a mean.
    settings = [{k: v for k, v in run.items() if k not in SEEDS} for run in settings]
    shared = {i for i in settings[0].items() if all(i in other.items() for other in settings)}
    # clipper.clip_norm is shown as clip_norm, unless another key ends like this.
    last = {key: key.lstrip("+").rpartition(".")[2] for run in settings for key in run}
    counts = Counter(last.values())
    short = {key: name if counts[name] == 1 else key.lstrip("+") for key, name in last.items()}
    return [
        ", ".join(f"{short[k]}={v}" for k, v in run.items() if (k, v) not in shared)
        for run in settings
    ]


def short_names(runs: Sequence[ReportedRun]) -> list[str]:
    """Return a name for each run: the numbers of the jobs of one sweep, else the names of the folders."""
    paths = [run.path for run in runs]
    jobs = all(path.name.isdigit() for path in paths) and len({path.parent for path in paths}) == 1
    return [f"run {path.name}" for path in paths] if jobs else [run.name for run in runs]


def _overrides(run: ReportedRun | StoredRun) -> dict[str, str] | None:
    if run.overrides is None:
        return None
    pairs = (override.lstrip("+").partition("=")[::2] for override in run.overrides)
    return {
        key: value
        for key, value in pairs
        if value != "" and key not in _NOT_IN_LABELS and not key.startswith("runtime.")
    }


def _cut(labels: Sequence[str]) -> list[str]:
    """Shorten long labels, and number the labels that would then be the same."""
    short: dict[str, str] = {}
    for label in dict.fromkeys(labels):
        cut = label if len(label) <= _MOST_LETTERS else label[: _MOST_LETTERS - 3] + "..."
        # Two labels may differ only in what was cut off, and would then share a curve's look and its button.
        times = sum(other.startswith(cut) for other in short.values())
        short[label] = f"{cut} ({times + 1})" if cut in short.values() else cut
    return [short[label] for label in labels]
