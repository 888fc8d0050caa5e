"""What sets runs apart: by which settings they differ, and in a few words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from fedpriv.common.errors import show
from fedpriv.tools.report.gather import SEEDS, ReportedRun

_NOT_TOLD = ("resume", "dry_run", "audit")
_MOST_LETTERS = 75


def differences(runs: Sequence[ReportedRun]) -> dict[str, list[str]]:
    """Key → its value in each run, of the keys in which they differ; empty where a run has no such key,
    which is the same as null."""
    keys = dict.fromkeys(key for run in runs for key in run.identity)
    told = {key: [_value(run.identity, key) for run in runs] for key in keys}
    return {k: v for k, v in told.items() if len({"" if one == "null" else one for one in v}) > 1}


def common(runs: Sequence[ReportedRun]) -> dict[str, str]:
    """Key → value of what all runs have alike."""
    known = [run.identity for run in runs if run.identity]
    if not known:
        return {}
    values = {key: _value(known[0], key) for key in known[0]}
    return {k: v for k, v in values.items() if all(_value(other, k) == v for other in known[1:])}


def _value(settings: Mapping[str, object], key: str) -> str:
    return full(settings[key]) if key in settings else ""


def full(value: object) -> str:
    """A value as a user would type it."""
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(full(item) for item in value)}]"
    return show(value) if value is None or isinstance(value, bool) else str(value)


def labels(runs: Sequence[ReportedRun]) -> list[str]:
    """A label for each run without its seed, so that runs which differ only in that have the same.

    The overrides that differ, where they are known: one word there can stand for many settings.
    """
    told = [_overrides(run) for run in runs]
    if None in told:
        differing = differences(runs)
        told = [{k: values[i] for k, values in differing.items()} for i in range(len(runs))]
    settings = [{k: v for k, v in one.items() if k not in SEEDS} for one in told if one is not None]
    shared = {item for item in settings[0].items() if all(item in o.items() for o in settings)}
    # the last part of each key, or all of it where that would be two keys' name
    last = {k: k.rpartition(".")[2] for one in settings for k in one}
    counts = Counter(last.values())
    short = {key: name if counts[name] == 1 else key for key, name in last.items()}
    words = [
        ", ".join(f"{short[k]}={v}" for k, v in one.items() if (k, v) not in shared and v != "")
        for one in settings
    ]
    if not any(words):
        return ["all runs"] * len(runs)
    return _cut([w or "defaults" for w in words])


def short_names(runs: Sequence[ReportedRun]) -> list[str]:
    """A name for each run: of the jobs of one sweep their numbers."""
    paths = [run.path for run in runs]
    jobs = all(path.name.isdigit() for path in paths) and len({path.parent for path in paths}) == 1
    return [f"run {path.name}" for path in paths] if jobs else [run.name for run in runs]


def _overrides(run: ReportedRun) -> dict[str, str] | None:
    if run.overrides is None:
        return None
    pairs = (one.lstrip("+").partition("=")[::2] for one in run.overrides)
    return {k: v for k, v in pairs if k not in _NOT_TOLD and not k.startswith("runtime.")}


def _cut(words: Sequence[str]) -> list[str]:
    """The labels, long ones cut; those that would then be alike get a number."""
    short: dict[str, str] = {}
    for label in dict.fromkeys(words):
        cut = label if len(label) <= _MOST_LETTERS else label[: _MOST_LETTERS - 3] + "..."
        times = sum(other.startswith(cut) for other in short.values())
        short[label] = f"{cut} ({times + 1})" if cut in short.values() else cut
    return [short[label] for label in words]
