"""The table of a sweep: one row for each setting, with means over seeds."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedpriv.common.config import fingerprint, identity_of_values
from fedpriv.common.errors import ConfigError, show
from fedpriv.common.files import write_csv, write_text
from fedpriv.common.groups import GROUPS, option_name
from fedpriv.common.notices import notice
from fedpriv.common.words import round_up, span
from fedpriv.store.caveats import DIVERGING, SEES_HIDDEN
from fedpriv.store.columns import WORST
from fedpriv.store.display import console
from fedpriv.store.figure_rows import LABELS, add_baselines, with_labels
from fedpriv.store.joint_privacy import choice_warning, joint_privacy
from fedpriv.store.pairs import (
    FEWEST,
    INTERVALS,
    PAIRED,
    TOGETHER,
    paired_differences,
    share_noise,
    spread_words,
    student_half_width,
    table_of,
    write_differences,
)
from fedpriv.store.run_folders import DAMAGED, figure_folder, run_folders, runs_below
from fedpriv.store.saved import unreadable
from fedpriv.store.searches import RECORD
from fedpriv.store.stored_run import StoredRun
from fedpriv.store.table import Column, Table, short_names

_AS_ASKED = "asked "
ASKED_EPSILON = f"{_AS_ASKED}epsilon"
VALUES = ("rounds", "stop_reason", "epsilon", "epsilon_sound", "test_accuracy")
BACKDOOR = "backdoor_accuracy"  # of runs with a backdoor
DIVERGING_RUN = "diverging"  # of runs whose loss ran away
OMNISCIENT = "omniscient"  # of runs whose attackers see what the trust model hides
PUBLISHED = "epsilon_published"  # of algorithms with a published theorem
_SETTING = "setting"  # fingerprint of the configuration without seeds
_SEEDS = ("seed", "noise_seed")
_RUNTIME = "runtime."


def read_runs(folder: Path) -> pd.DataFrame:
    """Return a table with one row for each finished run directly below a folder; see :func:`table_of_runs`.

    Args:
        folder: The folder of the sweep.
    """
    paths = sorted(folder.iterdir(), key=_natural_order) if folder.is_dir() else []
    return table_of_runs(path for path in paths if (path / "summary.json").exists())


def table_of_runs(paths: Iterable[Path]) -> pd.DataFrame:
    """Return a table with one row for each finished run.

    A setting is a key that any of the runs was given on its command line. A run that was not given the key,
    because the sweep was extended later, has the value in its configuration. Equal runs count once. A run
    whose summary, configuration or environment cannot be read has the stop reason ``damaged`` and no results.

    Args:
        paths: Run folders, each with a ``summary.json``.

    Returns:
        The name, the settings, the seed and the results of each run; all cells are Python objects.
    """
    runs = [_SweptRun(path) for path in paths]
    for run in runs:
        if run.problem:
            notice(f"warning: {run.problem}")
    keys = _setting_keys([run for run in runs if not run.problem])
    rows, seen = [], set()
    for run in runs:
        settings = {_column(key): run.setting(key) for key in keys}
        if run.problem:
            rows.append({"run": run.name, **settings, "seed": None, "stop_reason": DAMAGED})
            continue
        # Equal runs count once: one that is there twice would make the spread over seeds too small.
        identity = (run.identity, *(run.setting(key) for key in keys if key.startswith(_RUNTIME)))
        if run.values.get("seed") is not None and identity in seen:
            continue
        seen.add(identity)
        rows.append(
            {
                "run": run.name,
                _SETTING: run.seedless,
                **settings,
                **({PAIRED: run.summary[PAIRED]} if PAIRED in run.summary else {}),
                "seed": run.summary["seed"],
                **{value: run.summary[value] for value in VALUES},
                **{
                    key: run.summary[key]
                    for key in (PUBLISHED, BACKDOOR, OMNISCIENT, DIVERGING_RUN, *WORST)
                    if key in run.summary
                },
            }
        )
    # With dtype object a missing cell does not turn the whole numbers of its column into floats.
    return _in_order(pd.DataFrame(rows, dtype=object), [*map(_column, keys), "seed"])


class _SweptRun:
    """One run folder, as far as the table of a sweep needs it.

    Attributes:
        name: Name of the run folder.
        summary: Results of the run.
        overrides: Values that the command line gave, by key.
        values: Resolved configuration by dotted key.
        identity: Fingerprint of the configuration.
        seedless: Fingerprint of the configuration without its seeds.
        problem: Reason why the results do not count: a file cannot be read. Else empty.
    """

    def __init__(self, path: Path):
        run = StoredRun(path)
        self.name, self.problem, self.overrides = path.name, "", dict[str, str]()
        self.values, self.summary = dict[str, object](), dict[str, Any]()
        try:
            self.values, self.summary = run.values, run.summary
            self.overrides = dict(o.lstrip("+").partition("=")[::2] for o in run.overrides or [])
            if absent := [key for key in ("seed", *VALUES) if key not in run.summary]:
                raise unreadable(run.files.summary, f"it has no {absent[0]}")
        except ConfigError as error:
            self.problem = str(error)
        identity = identity_of_values(self.values)
        self.identity = fingerprint(identity)
        self.seedless = fingerprint(
            {key: v for key, v in identity.items() if key.rpartition(".")[2] not in _SEEDS}
        )

    def setting(self, key: str) -> str | None:
        """Return the value of a key; None where the configuration has no such key."""
        if key in self.overrides:
            return self.overrides[key]
        if key in GROUPS:
            return option_name(self.values, key)
        return show(self.values[key]) if key in self.values else None


def _setting_keys(runs: Sequence[_SweptRun]) -> list[str]:
    """Return the keys that any run was given, without the seed and the name of its pair.

    Keys of ``runtime`` change no result. They are columns only where all runs were given the same value, or
    where one configuration was run with several values. A sweep that was extended on another machine may
    differ in such keys, and its runs still belong to one setting.
    """
    keys = dict.fromkeys(
        key for run in runs for key in run.overrides if key not in ("seed", PAIRED)
    )
    runtime_keys = set()
    for key in (key for key in keys if key.startswith(_RUNTIME)):
        pairs = {(run.identity, run.setting(key)) for run in runs}
        swept = len(pairs) > len({identity for identity, _ in pairs})
        if swept or len({run.overrides.get(key) for run in runs}) == 1:
            runtime_keys.add(key)
    return [key for key in keys if not key.startswith(_RUNTIME) or key in runtime_keys]


def _natural_order(path: Path) -> list[tuple[bool, int, str]]:
    """Return a sort key by which run 10 comes after run 9."""
    parts = re.findall(r"\d+|\D+", path.name)
    return [(not p.isdigit(), int(p) if p.isdigit() else 0, p) for p in parts]


def _column(key: str) -> str:
    """Return the column of a setting; ``epsilon`` and the like are both a setting and a result."""
    return f"{_AS_ASKED}{key}" if key in VALUES else key


def _in_order(runs: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """Sort the rows by the values of ``columns``: numbers by size, others as they first appear."""
    if runs.empty:
        return runs
    positions = {
        column: {value: position for position, value in enumerate(dict.fromkeys(runs[column]))}
        for column in columns
    }

    def rank(column: str, value: object) -> tuple[int, float]:
        number = _number(value)
        if column == "seed" and (value is None or value != value):  # a damaged run comes last
            return (2, 0)
        return (1, positions[column][value]) if number is None else (0, number)

    ranks = [[rank(column, value) for column, value in zip(columns, row, strict=True)]
             for row in runs[list(columns)].itertuples(index=False)]  # fmt: skip
    order = sorted(range(len(runs)), key=ranks.__getitem__)
    return runs.iloc[order].reset_index(drop=True)


def _number(value: object) -> float | None:
    """Return a value as a number; None for everything else, nan included."""
    try:
        number = float(str(value))
    except ValueError:
        return None
    return None if math.isnan(number) else number


def show_sweep(folder: Path) -> None:
    """Print the table of a sweep, and write its files in the folder of the sweep.

    ``sweep.csv`` has a row for each run, ``sweep.md`` and ``sweep.tex`` are the printed table. Interrupted
    and damaged runs are named, but count in no mean. Paired runs have a second table with their differences,
    which is also written to ``paired_differences.csv``.
    """
    runs = read_runs(folder)
    if runs.empty:
        return
    # With all runs, also those that the table leaves out.
    write_csv(folder / "sweep.csv", runs.drop(columns=_SETTING, errors="ignore"))
    runs = _counting(runs)
    if runs.empty:
        return
    table, varied = sweep_table(runs)
    for ending, form in ((".md", "markdown"), (".tex", "latex")):
        write_text(folder / f"sweep{ending}", table.formatted(form) + "\n")
    _show(runs, table, varied, folder)
    state_joint_privacy(folder, varied)
    console().print(f"sweep folder: {folder}")


def show_means(folder: Path, best: str | None = None, columns: str | None = None) -> None:
    """Print the table of means over seeds of the runs at or below a folder, or of a figure.

    The rows of a figure are its curves, by their labels, at each x; those of a figure of the user's own
    end with its numbers from elsewhere.

    Args:
        folder: Any folder with run folders, a run folder, the folder of a figure, or the name of a figure.
        best: Name of the result whose best cell is bold, one for each ε asked for; None for no bold cell.
        columns: Names of the results to show, separated by commas; None: all.

    Raises:
        ConfigError: There is no finished run, or no run has the result.
    """
    paths = [path for _, path in run_folders(str(folder)) if (path / "summary.json").exists()]
    runs = table_of_runs(sorted(paths, key=_natural_order))
    runs = runs if runs.empty else _counting(runs)
    if runs.empty:
        raise ConfigError("--means", folder, "a folder with finished runs, or of a figure")
    if best is not None and (best not in runs or runs[best].isna().all()):
        raise ConfigError("--best", best, "a result that the runs have")
    figure = figure_folder(str(folder))
    labels = None
    if figure is not None:
        runs = with_labels(runs, figure)
        labels = [name for name in LABELS if name in runs]
    table, varied = sweep_table(runs, best, labels)
    if figure is not None:
        add_baselines(table, figure)
    if columns is not None:
        table.only("--columns", [name.strip() for name in columns.split(",")], varied)
    _show(runs, table, varied, folder=None)


def _counting(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the runs that count in means, and print the names of the others."""
    for state in ("interrupted", DAMAGED):
        left_out = runs["stop_reason"] == state
        if left_out.any():
            console().print(f"not in the table, {state}: {', '.join(runs.loc[left_out, 'run'])}")
            runs = runs[~left_out]
    return runs


def sweep_table(
    runs: pd.DataFrame, best: str | None = None, labels: Sequence[str] | None = None
) -> tuple[Table, list[str]]:
    """Return the table of means over seeds, and the settings that differ between its rows.

    Args:
        runs: Rows of :func:`read_runs` that count.
        best: Name of the result whose best cell is bold, one for each ε asked for; None for no bold cell.
            Rows without a finite sound ε do not compete with those that have one.
        labels: Columns that tell the rows of a figure apart; None: the settings do.
    """
    known = (*VALUES, PUBLISHED, BACKDOOR, OMNISCIENT, DIVERGING_RUN, *WORST)
    results_of_runs = ("run", "seed", _SETTING, *known)
    settings = labels or [c for c in runs.columns if c not in results_of_runs]
    # As numbers 2 and 2.0 are the same setting.
    plain = {c: runs[c].map(lambda v: v if _number(v) is None else _number(v)) for c in settings}
    varied = [c for c in settings if labels or plain[c].nunique(dropna=False) > 1]
    published = [c for c in (PUBLISHED,) if c in runs and runs[c].notna().any()]
    shares = [c for c in ("test_accuracy", BACKDOOR, *WORST) if c in runs]
    results = [
        Column("seeds"), Column("n", right=True), Column("rounds", right=True),
        Column("epsilon", "epsilon enforced", right=True),
        *(Column(c, "epsilon published", right=True) for c in published),
        Column("epsilon_sound", "epsilon sound", right=True),
        *(Column(c, c.replace("_", " "), right=True) for c in shares),
    ]  # fmt: skip
    by_epsilon = "x" in varied and ASKED_EPSILON in runs
    by_epsilon = by_epsilon and all(
        _number(x) == _number(asked)
        for x, asked in zip(runs["x"], runs[ASKED_EPSILON], strict=True)
        if x
    )
    headings = short_names(varied) | ({"x": ASKED_EPSILON} if by_epsilon else {})
    table = Table(
        f"Means over seeds, ± {INTERVALS}",
        [*(Column(c, headings.get(c)) for c in varied), *results],
    )
    # The fingerprint too: runs may differ in a key that no command line gave, such as one of a YAML.
    by = [*([] if labels else [runs[_SETTING]]), *(plain[c] for c in varied)]
    values, half, private, asked = list[float](), list[float](), list[bool](), list[object]()
    for _, rows in runs.groupby(by, dropna=False, sort=False):
        table.add(
            *(_cell(rows[column].iloc[0]) for column in varied),
            " ".join(str(seed) for seed in sorted(rows["seed"], key=str)),
            len(rows),
            _range(rows["rounds"], "{:.0f}".format),
            *(_range(rows[c], round_up) for c in ("epsilon", *published, "epsilon_sound")),
            *(_percent(rows[column]) for column in shares),
        )
        if best is not None:
            numbers = pd.to_numeric(rows[best], errors="coerce").dropna().to_numpy()
            values.append(float(numbers.mean()) if len(numbers) else math.nan)
            enough = len(numbers) >= FEWEST and np.isfinite(numbers).all()
            half.append(float(student_half_width(numbers)) if enough else 0.0)
            private.append(_has_guarantee(rows))
            asked.append(rows[ASKED_EPSILON].iloc[0] if ASKED_EPSILON in rows else None)
    if best is not None:
        if any(private):
            values = [
                value if able else math.nan for value, able in zip(values, private, strict=True)
            ]
        table.embolden(best, values, highest=best == "test_accuracy", among=asked, within=half)
    return table, varied


def _has_guarantee(rows: pd.DataFrame) -> bool:
    """Return whether all runs of a row have a finite sound ε."""
    sound = pd.to_numeric(rows["epsilon_sound"], errors="coerce")
    return bool(sound.map(math.isfinite).all())


def _show(runs: pd.DataFrame, table: Table, varied: list[str], folder: Path | None) -> None:
    """Print the table, and the differences of paired runs, which are also written to ``folder``."""
    out = console()
    out.print(table)
    for key, words in ((OMNISCIENT, SEES_HIDDEN), (DIVERGING_RUN, DIVERGING)):
        if key in runs and len(named := runs.loc[runs[key].eq(True), "run"]):
            out.print(f"in these runs {words}: {', '.join(map(str, named))}")
    if PAIRED not in runs:
        return
    shares = [c for c in ("test_accuracy", BACKDOOR) if c in runs]
    differences = paired_differences(runs, varied, shares)
    if len(differences):
        if folder is not None:
            write_differences(differences, folder / "paired_differences.csv")
        out.print(table_of(differences))
        if share_noise(runs):
            out.print(TOGETHER)


def state_joint_privacy(folder: Path, varied: Sequence[str]) -> None:
    """Print the joint ε of the runs below a folder, and a warning if a best one was chosen on test records.

    A search states the cost of its trials itself.

    Args:
        folder: The folder of the sweep.
        varied: Columns of the settings in which the runs differ.
    """
    if (folder / RECORD).exists():
        return
    for one in joint_privacy(StoredRun(path) for _, path in runs_below(folder)):
        if math.isnan(one.epsilon):
            notice(f"warning: {one.sentences()[0]}")
        elif len(one.runs) > 1:
            console().print("\n".join(one.sentences()), soft_wrap=True)
    keys = [column.removeprefix(_AS_ASKED) for column in varied]
    if warning := choice_warning(keys, ("test_accuracy",)):
        console().print(warning, soft_wrap=True)


def _cell(value: object) -> str:
    number = _number(value)
    if number is not None and number.is_integer():  # 2 and 2.0 are the same setting
        return f"{number:.0f}"
    return "-" if value is None or value == "" or value != value else str(value)


def _percent(values: pd.Series) -> str:
    """Return mean and interval of shares in percent; two seeds have no interval, but a range."""
    shares = 100 * values.to_numpy(dtype=float)
    return f"{shares.mean():.2f}{spread_words(shares, '{:.2f}'.format)} %"


def _range(values: pd.Series, shown: Callable[[float], str]) -> str:
    numbers = pd.to_numeric(values, errors="coerce").dropna()
    if numbers.empty:
        return "-"
    return span(shown(numbers.min()), shown(numbers.max()))
