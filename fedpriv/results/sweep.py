"""The table of a sweep: one row per run, and means over seeds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd
from rich.table import Table

from fedpriv.common.words import round_up, span
from fedpriv.results.display import console
from fedpriv.results.folder import RunFolder
from fedpriv.results.pairs import PAIRED, paired_differences, table_of

_GIVEN = "asked "
VALUES = ("rounds", "stop_reason", "epsilon", "epsilon_sound", "test_accuracy")
BACKDOOR = "backdoor_accuracy"  # of runs with an attack


def read_runs(folder: Path) -> pd.DataFrame:
    """A row per finished run below ``folder``: its overrides, seed and results."""
    rows = []
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        run = RunFolder(path)
        if not run.summary.exists():
            continue
        overrides = run.read_overrides() or []
        chosen = dict(o.partition("=")[::2] for o in overrides)
        summary = run.read_json(run.summary)
        chosen.pop("seed", None)
        chosen.pop(PAIRED, None)
        rows.append(
            {
                "run": path.name,
                **{_column(key): value for key, value in chosen.items()},
                **({PAIRED: summary[PAIRED]} if PAIRED in summary else {}),
                "seed": summary["seed"],
                **{v: summary[v] for v in VALUES},
                **({BACKDOOR: summary[BACKDOOR]} if BACKDOOR in summary else {}),
            }
        )
    return pd.DataFrame(rows)


def _column(key: str) -> str:
    """A key's column: its name, unless a result has that (epsilon as asked for, and as spent)."""
    return f"{_GIVEN}{key}" if key in VALUES else key


def show_sweep(folder: Path) -> None:
    """Print the table of the runs below ``folder`` and write it to ``sweep.csv`` there."""
    runs = read_runs(folder)
    if runs.empty:
        return
    settings = [c for c in runs.columns if c not in ("run", "seed", *VALUES, BACKDOOR)]
    varied = [c for c in settings if runs[c].nunique(dropna=False) > 1]
    runs.to_csv(folder / "sweep.csv", index=False)
    out = console()
    unfinished = runs["stop_reason"] == "interrupted"
    if unfinished.any():
        out.print(f"not in the table, interrupted: {', '.join(runs.loc[unfinished, 'run'])}")
        runs = runs[~unfinished]
    if runs.empty:
        return
    table = Table(title="Sweep", title_justify="left", title_style="bold")
    shares = [column for column in ("test_accuracy", BACKDOOR) if column in runs]
    for name in (
        *(v.removeprefix(_GIVEN) for v in varied),
        "seeds",
        "rounds",
        "epsilon",
        "sound",
        *(column.replace("_", " ") for column in shares),
    ):
        table.add_column(name, overflow="fold")
    groups = runs.groupby(varied, dropna=False, sort=False) if varied else [((), runs)]
    for key, rows in groups:
        table.add_row(
            *(str(k) for k in (key if isinstance(key, tuple) else (key,))),
            " ".join(str(s) for s in sorted(rows["seed"], key=str)),
            _range(rows["rounds"], "{:.0f}".format),
            _range(rows["epsilon"], round_up),
            _range(rows["epsilon_sound"], round_up),
            *(_percent(rows[column]) for column in shares),
        )
    out.print(table)
    if PAIRED in runs:
        differences = paired_differences(runs, varied, shares)
        if len(differences):
            differences.to_csv(folder / "paired_differences.csv", index=False)
            out.print(table_of(differences))
    out.print(f"sweep folder: {folder}")


def _percent(values: pd.Series) -> str:
    shares = 100 * values.astype(float)
    spread = f" ± {shares.std():.2f}" if len(shares) > 1 else ""
    return f"{shares.mean():.2f}{spread} %"


def _range(values: pd.Series, shown: Callable[[float], str]) -> str:
    numbers = pd.to_numeric(values, errors="coerce").dropna()
    if numbers.empty:
        return "-"
    return span(shown(numbers.min()), shown(numbers.max()))
