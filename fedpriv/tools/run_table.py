"""The table of ``fedpriv runs``: on the console, as CSV or as JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rich.measure import Measurement

from fedpriv.common.console import console
from fedpriv.common.errors import ConfigError, show
from fedpriv.common.files import refuse_foreign, write_text
from fedpriv.common.words import counted, round_up
from fedpriv.store.columns import WORST
from fedpriv.store.run_folders import DAMAGED, UNFINISHED, ListedRun, run_folders, search_folders
from fedpriv.store.searches import read_search
from fedpriv.store.table import Column, Table, short_names
from fedpriv.tools.run_choice import SHOWN, Values, as_number, filtered, ordered, refuse_unknown

if TYPE_CHECKING:
    import pandas as pd

_MOST_KEYS = 6  # differing keys that the console shows
_HEADINGS = {
    "dataset": "data set", "test_accuracy": "accuracy (%)", "config.epsilon": "ε asked",
    "epsilon": "ε enforced", "epsilon_published": "ε published", "epsilon_sound": "ε sound",
}  # fmt: skip
_EPSILONS = ("epsilon", "epsilon_published", "epsilon_sound")
_SHARES = ("test_accuracy", "best_test_accuracy", "backdoor_accuracy", *WORST)


def show_runs(
    folders: Sequence[str],
    filters: Sequence[str],
    sort: str | None,
    reverse: bool,
    columns: str | None,
    to_csv: Path | None,
    to_json: bool,
) -> None:
    """Print the runs below ``folders``, or write them into a file.

    Args:
        folders: Run folders, or folders that have run folders below them.
        filters: Filters that every shown run passes; see :func:`~fedpriv.tools.run_choice.filtered`.
        sort: Keys to sort by; None keeps the order of the folders.
        reverse: Print the last row first.
        columns: Keys of the columns, separated by commas; None chooses them.
        to_csv: The CSV file to write; ``-`` prints the CSV, None prints a table.
        to_json: Print JSON instead of a table.

    Raises:
        ConfigError: No run has one of the keys, a folder has no runs, or ``to_csv`` is a file of another
            kind.
    """
    runs = read_runs(folders)
    values = {run.name: run.values() for run in runs}
    known = dict.fromkeys(key for row in values.values() for key in row)
    known.update(dict.fromkeys(SHOWN))
    chosen = [] if columns is None else [key.strip() for key in columns.split(",")]
    for key in chosen:
        refuse_unknown("--columns", key, known)
    rows = filtered(list(values.values()), filters, known)
    rows = ordered(rows, sort, known) if sort is not None else rows
    rows = rows[::-1] if reverse else rows
    shown_runs = {row["run"] for row in rows}
    keys = [] if chosen else differing([run for run in runs if run.name in shown_runs])
    shown = [*(chosen or SHOWN), *keys]
    if to_json or to_csv is not None:
        shown += [] if chosen else ["problem"]
        objects = [{key: row.get(key) for key in shown} for row in rows]
        table = run_table(rows, shown).csv()
        text = json.dumps(objects, indent=2, default=str) + "\n" if to_json else table
        if to_csv is None or str(to_csv) == "-":
            print(text, end="")
            return
        # The file may be replaced where it is a table of runs: its header has these columns, or it begins
        # with the columns of every table.
        headers = (run_table([], header).csv().rstrip("\n") for header in (shown, SHOWN))
        mark = rb"\A(%s\n|%s[,\n])" % tuple(re.escape(header.encode()) for header in headers)
        refuse_foreign("--csv", to_csv, mark)
        write_text(to_csv, table)
        print(text if to_json else f"{counted(len(rows), 'run')}: {to_csv}", end="\n")
        return
    hidden = keys[_MOST_KEYS:]
    _print(rows, [key for key in shown if key not in hidden], hidden, len(runs))
    for path in dict.fromkeys(path for folder in folders for path in search_folders(folder)):
        try:
            line = read_search(path).line()
        except ConfigError as error:
            line = f"search {path}: {error}"
        console().print(line, soft_wrap=True)


def frame_of_runs(folders: Sequence[str]) -> pd.DataFrame:
    """Return a data frame with one row for each run and one column for each key; see :func:`fedpriv.runs`.

    The columns of ``fedpriv runs`` come first, then all other results and keys.
    """
    import pandas as pd  # imported late: the table on the console does without it

    runs = read_runs(folders)
    rows = [
        {**run.settings_by_name(), "run": run.name, "folder": str(run.path), "state": run.state,
         "problem": run.problem}
        for run in runs
    ]  # fmt: skip
    first = [*SHOWN, *differing(runs)]
    others = dict.fromkeys(key for row in rows for key in row)
    columns = [*dict.fromkeys((*first, *others))]
    # Whole numbers stay whole: the type of a column is found from its own cells.
    return pd.DataFrame(rows, columns=columns, dtype=object).infer_objects()


def read_runs(folders: Sequence[str]) -> list[ListedRun]:
    """Return the runs below the folders, each once and with a name of its own.

    Names are relative to the folder. Where several folders are given, a name is the whole path.

    Raises:
        ConfigError: There is no such folder, or it holds neither a run nor a search.
    """
    run_of_path: dict[Path, tuple[str, Path]] = {}
    for folder in folders:
        for name, path in run_folders(folder):
            unique_name = str(path) if len(folders) > 1 else name
            run_of_path.setdefault(path.resolve(), (unique_name, path))
    return [ListedRun(name, path) for name, path in run_of_path.values()]


def differing(runs: Sequence[ListedRun]) -> list[str]:
    """Return the keys and groups that differ between runs, in the order of the configuration.

    A key that some runs lack belongs to an option of a group that these runs do not use. The group differs,
    so such a key is left out.
    """
    settings = [run.settings() for run in runs if run.config]
    if not settings:
        return []
    common = [key for key in settings[0] if all(key in other for other in settings)]
    return [key for key in common if len({show(other[key]) for other in settings}) > 1]


def run_table(rows: Sequence[Values], keys: Sequence[str]) -> Table:
    """Return a row for each run, with a column for each key."""
    headings = short_names(keys) | _HEADINGS
    columns = [
        Column(
            key,
            headings[key],
            right=any(as_number(row.get(key)) is not None for row in rows),
            shown=partial(_cell, key),
        )
        for key in keys
    ]
    table = Table("Runs", columns)
    for row in rows:
        style = "red" if row["state"] == DAMAGED else ""
        table.add(*(row.get(key) for key in keys), style=style)
    return table


def _print(
    rows: Sequence[Values], columns: Sequence[str], hidden: Collection[str], total: int
) -> None:
    table, out = run_table(rows, columns), console()
    if not out.is_terminal:  # programs that read the output expect one line for each run
        out = console(Measurement.get(out, out.options.update(max_width=10**5), table).maximum)
    out.print(table)
    fewer = "" if len(rows) == total else f" of {total}"
    out.print(f"{len(rows)}{fewer} {'run' if (total if fewer else len(rows)) == 1 else 'runs'}")
    if hidden:
        out.print(
            f"{counted(len(hidden), 'further key')} differ{'s' if len(hidden) == 1 else ''} "
            f"(--columns, --csv): {', '.join(hidden)}"
        )
    if any(row["state"] == UNFINISHED for row in rows):
        out.print(
            "unfinished: as far as metrics.csv tells; rounds run since its last row are not in it"
        )
    for row in rows:
        if row["state"] == DAMAGED:
            out.print(f"damaged: {row['problem']}", style="red")


def _cell(key: str, value: object) -> str:
    number = None if isinstance(value, str | bool) else as_number(value)
    if number is None:
        return show(value)
    if key in _SHARES:
        return f"{100 * number:.2f}"
    if key in _EPSILONS:
        return round_up(number)
    return str(value) if isinstance(value, int) else f"{number:.4g}"
