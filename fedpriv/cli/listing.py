"""``fedpriv list`` and ``fedpriv data``: what there is to choose from."""

from __future__ import annotations

from pathlib import Path

from rich.table import Table

from fedpriv.common.console import console
from fedpriv.common.flags import unknown
from fedpriv.common.groups import LISTED, conf_dir, options

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
        table = Table(
            title=name + _USE.get(name, ""),
            title_justify="left", title_style="bold", show_header=False, box=None, padding=(0, 2),
        )  # fmt: skip
        table.add_column(style="cyan", no_wrap=True)
        table.add_column()
        rows = dict(options(name))
        if extra is not None:
            rows.update(options(name, extra))
        for option, words in rows.items():
            table.add_row(option, words)
        out.print(table)
        out.print()
    out.print(
        f"YAMLs: {conf_dir()}; keys of an option: fedpriv train <group>=<option> --cfg job --resolve",
        style="dim",
    )


def show_data(path: str | None) -> None:
    """Print which data sets are present, where, and whether their checksums hold."""
    from fedpriv.data.catalogue import dataset_status

    table = Table(title="Data sets", title_justify="left", title_style="bold")
    for column in ("name", "records", "present", "checksums", "where"):
        table.add_column(column, overflow="fold")
    for row in dataset_status(path):
        table.add_row(
            row.name,
            "?" if row.train_records is None else f"{row.train_records:,} + {row.test_records:,}",
            "yes" if row.present else "no",
            row.checksums,
            "\n".join(words for words in (row.where, row.note) if words),
        )
    console().print(table)
