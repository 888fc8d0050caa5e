"""``fedpriv list`` and ``fedpriv data``: what there is to choose from."""

from __future__ import annotations

from pathlib import Path

from fedpriv.common.console import console
from fedpriv.common.flags import unknown
from fedpriv.common.groups import LISTED, conf_dir, options
from fedpriv.store.table import Column, Table

_USE = {
    "experiment": "   (fedpriv train +experiment=...)",
    "recipe": "   (fedpriv train +recipe=...)",
    "figure": "   (fedpriv figure ...)",
}


def show_groups(group: str | None, extra: Path | None) -> None:
    """Print the options of one group or of all, those in the folder ``extra`` too."""
    known = dict.fromkeys(LISTED)
    if extra is not None:
        known.update(dict.fromkeys(sorted(p.name for p in extra.iterdir() if p.is_dir())))
    if group is not None and group not in known:
        raise unknown("the group", group, list(known))
    out = console()
    for name in [group] if group else known:
        columns = (Column("option", style="cyan", wrap=False), "what it is")
        table = Table(name + _USE.get(name, ""), columns, header=False, padding=(0, 2, 0, 2))
        rows = dict(options(name))
        if extra is not None:
            rows.update(options(name, extra))
        for option, words in rows.items():
            table.add(option, words)
        out.print(table)
        out.print()
    out.print(
        f"YAMLs: {conf_dir()}; keys of an option: fedpriv train <group>=<option> --cfg job --resolve",
        style="dim",
    )


def show_data(path: str | None) -> None:
    """Print which data sets are present, where, and whether their checksums hold."""
    from fedpriv.data.catalogue import dataset_status

    table = Table("Data sets", ("name", "records", "present", "checksums", "where"))
    for row in dataset_status(path):
        table.add(
            row.name,
            "?" if row.train_records is None else f"{row.train_records:,} + {row.test_records:,}",
            "yes" if row.present else "no",
            row.checksums,
            "\n".join(words for words in (row.where, row.note) if words),
        )
    console().print(table)
