"""The tables of ``fedpriv list`` and ``fedpriv data``: groups, options, keys and data sets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console

from fedpriv.common.console import console
from fedpriv.common.errors import ConfigError
from fedpriv.common.flags import unknown
from fedpriv.common.groups import ADDED, GROUPS, LISTED, conf_dir, in_short, options, table_options
from fedpriv.common.option_keys import keys_of_option
from fedpriv.store.table import Column, Table

_USE = {
    "experiment": "   (fedpriv train +experiment=...)",
    "recipe": "   (fedpriv train +recipe=...)",
    "figure": "   (fedpriv figure ...)",
}


_PADDING = (0, 2, 0, 2)
_WIDEST_DEFAULT = 26  # characters; longer ones are broken into lines


def show_groups(
    group: str | None, option: str | None, extra: Path | None, whole: bool = False
) -> None:
    """Print the names of the options of all groups, or the keys of the options of one group.

    Of a ready-made experiment or recipe, which has no keys of its own, what it sets is printed.

    Args:
        group: The only group to print; None for all groups.
        option: The only option of the group to print; None for all options.
        extra: A folder with YAMLs of the user's own, whose options are printed too.
        whole: Without a group: print a line for each option.

    Raises:
        ConfigError: The group or the option is unknown, or the group has no options with keys.
    """
    # A dict keeps the order, and a folder of the user's with the name of a group is listed once.
    known = dict.fromkeys(LISTED)
    if extra is not None:
        known.update(dict.fromkeys(sorted(p.name for p in extra.iterdir() if p.is_dir())))
    if group is not None and group not in known:
        raise _unknown_group(group, list(known))
    out = console()
    # Options of the added groups have no keys: they set keys of other groups.
    if group is not None and group not in (*ADDED, "protocol"):
        _show_keys(out, group, option, extra)
    elif option is not None and group in ("recipe", "experiment"):
        _show_settings(out, group, option, extra)
    elif option is not None:
        raise ConfigError("the option", option, f"left out: options of {group} add no keys")
    elif group is None and not whole:
        _show_names(out, list(known), extra)
    else:
        for name in [group] if group else known:
            columns = (Column("option", style="cyan", wrap=False), "what it is")
            table = Table(name + _USE.get(name, ""), columns, header=False, padding=_PADDING)
            for folder in (None, extra) if extra else (None,):
                for row in options(name, folder):
                    table.add(*row)
            out.print(table)
            out.print()
    if group is None:
        out.print(
            "what an option is, and its keys: fedpriv list GROUP [OPTION]; all: --all", style="dim"
        )
    out.print(f"YAMLs: {conf_dir()}", style="dim")


def _show_names(out: Console, groups: list[str], extra: Path | None) -> None:
    """Print the names of the options of all groups, so that they fit on a screen."""
    table = Table("", (Column("group", style="cyan", wrap=False), "options"), False, (0, 2, 0, 0))
    for group in groups:
        folders = (None, extra) if extra else (None,)
        names = [name for folder in folders for name, _ in options(group, folder)]
        plus = "+" if group in ("experiment", "recipe") else ""
        table.add(f"{plus}{group}", in_short(group, names))
    out.print(table)


def _unknown_group(name: str, known: list[str]) -> ConfigError:
    """Return the error for a name that is no group; it may be an option of one."""
    error = unknown("the group", name, known)
    for group in GROUPS:
        if name in dict(options(group)):
            hint = f"{name} is an option: fedpriv list {group} {name}"
            return ConfigError(error.key, name, error.allowed, hint)
    return error


def _show_keys(out: Console, group: str, option: str | None, extra: Path | None) -> None:
    """Print all keys of the options of a group: default, meaning, unit and range."""
    places = {
        name: (folder, about)
        for folder in ((None, extra) if extra else (None,))
        for name, about in options(group, folder)
    }
    if option is not None and option not in places:
        raise unknown(f"the option of {group}", option, list(places))
    by_protocol = False
    for name in [option] if option else places:
        folder, about = places[name]
        out.print(f"{name}  {about}", style="cyan")
        rows = [
            (key.name, f"{key.default}{' *' * key.by_protocol}", key.comment)
            for key in keys_of_option(group, name, folder)
        ]
        # The star is explained once, below all options.
        by_protocol |= any(default.endswith(" *") for _, default, _ in rows)
        width = min(_WIDEST_DEFAULT, max((len(default) for _, default, _ in rows), default=0))
        columns = (Column("key", wrap=False), Column("default", width=width), "what it is")
        table = Table("", columns, header=False, padding=_PADDING)
        for row in rows:
            table.add(*row)
        out.print(table)
        out.print()
    if by_protocol:
        out.print("* another value where a protocol has one: fedpriv list protocol", style="dim")


def _show_settings(out: Console, group: str, option: str, extra: Path | None) -> None:
    """Print the groups and keys that a ready-made configuration sets, as on the command line."""
    known = dict(options(group)) | (dict(options(group, extra)) if extra else {})
    if option not in known:
        raise unknown(f"the {group}", option, list(known))
    folder = extra if extra and option in dict(options(group, extra)) else conf_dir()
    # Some ready-made configurations are rows of one table, and others are YAMLs.
    row = table_options(conf_dir(), group).get(option) if folder == conf_dir() else None
    if row is None:
        import yaml

        content = yaml.safe_load((folder / group / f"{option}.yaml").read_text("utf-8"))
    else:
        content = row.content
    out.print(f"{option}  {known[option]}", style="cyan")
    table = Table("", (Column("key", wrap=False), "value"), header=False, padding=_PADDING)
    for key, value in _settings_of(content or {}):
        table.add(key, value)
    out.print(table)
    out.print()


def _settings_of(content: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield (key, value) of what a configuration sets: options of groups first, then plain values."""
    # Entries without a group are ``_self_`` and the like.
    for chosen in content.get("defaults", []):
        if isinstance(chosen, dict):
            for group, name in chosen.items():
                yield group.removeprefix("override ").removeprefix("/"), str(name)
    for key, value in content.items():
        if isinstance(value, dict):
            yield from _settings_of(value, f"{prefix}{key}.")
        elif key != "defaults":
            yield f"{prefix}{key}", "null" if value is None else str(value)


def show_data(path: str | None) -> None:
    """Print a table of the data sets: their size, whether they are present, their checksums and folders.

    Every file is read and its checksum compared, which takes seconds where there are many.

    Args:
        path: The data folder; None for FEDPRIV_DATA or else the cache.
    """
    from fedpriv.data.catalogue import dataset_status

    table = Table("Data sets", ("name", "records", "present", "checksums", "where"))
    for row in dataset_status(path):
        table.add(
            row.name,
            "?" if row.train_records is None else f"{row.train_records:,} + {row.test_records:,}",
            "yes" if row.present else "no",
            row.checksums,
            "\n".join(text for text in (row.where, row.note) if text),
        )
    console().print(table)
