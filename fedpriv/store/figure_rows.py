"""Curves of a figure's folder as rows of the table of means, from its ``runs.csv`` and ``figure.csv``."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from fedpriv.store.saved import saved_records
from fedpriv.store.table import Table

LABELS = ("group", "curve", "x")
_OWN = "figure.yaml"  # the definition of a figure of the user's own
_ACCURACY = "test_accuracy"


def with_labels(runs: pd.DataFrame, folder: Path) -> pd.DataFrame:
    """Return the runs of a figure with a row for each curve that a run belongs to.

    Args:
        runs: A row for each run, with its folder's name in the column ``run``.
        folder: The folder of the figure.

    Returns:
        The rows with the columns ``curve``, and, where the figure has several of them, ``group`` and ``x``.
    """
    places = [
        {"run": Path(row["run"]).name, "group": row["group"], "curve": row["curve"], "x": row["point"]}
        for row in saved_records(folder / "runs.csv")
        if row.get("run")
    ]  # fmt: skip
    labelled = pd.DataFrame(places, columns=["run", *LABELS], dtype=object)
    labelled = labelled.drop_duplicates().merge(runs, on="run", sort=False)
    for name, constant in (("group", 1), ("x", 1)):
        if labelled[name].nunique() <= constant:
            labelled = labelled.drop(columns=name)
    return labelled


def add_baselines(table: Table, folder: Path) -> None:
    """Add the accuracies from elsewhere of a figure of the user's own as rows.

    Args:
        table: The table of means.
        folder: The folder of the figure.
    """
    if not (folder / _OWN).is_file():
        return
    stated: dict[tuple[str, str], list[dict[str, str]]] = {}
    for row in saved_records(folder / "figure.csv"):
        if row.get("axes") == _ACCURACY and row.get("n") == "0" and row.get("mean"):
            stated.setdefault((row["group"], row["curve"]), []).append(row)
    for (group, curve), rows in stated.items():
        if len({row["mean"] for row in rows}) == 1:  # a level line, which is drawn by its ends
            rows = [{**rows[0], "x": "-"}]
        for row in rows:
            interval = f" ({float(row['low']):.2f} to {float(row['high']):.2f})"
            interval = interval if row["low"] != row["high"] else ""
            cells = {"group": group, "curve": curve, "x": row["x"], "seeds": "-"}
            cells[_ACCURACY] = f"{float(row['mean']):.2f}{interval} %"
            table.add(*(cells.get(column.name, "-") for column in table.columns))
