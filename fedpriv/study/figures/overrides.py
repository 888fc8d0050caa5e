"""Flags of ``fedpriv figure`` as overrides of ``fedpriv train``, and back."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from types import SimpleNamespace

from fedpriv.common.errors import ConfigError
from fedpriv.common.groups import options


def overrides_of(flags: SimpleNamespace) -> list[str]:
    """Return the overrides that the flags of ``fedpriv figure`` stand for.

    Raises:
        ConfigError: ``--seeds`` is not a list of whole numbers.
    """
    settings = []
    if flags.quick:
        settings.append("figure.scale=quick")
    if flags.seeds is not None:
        seeds = flags.seeds.split(",")
        if not all(seed.strip().isascii() and seed.strip().isdigit() for seed in seeds):
            raise ConfigError("--seeds", flags.seeds or "nothing", "whole numbers, such as 0,1,2")
        settings.append(f"figure.seeds=[{','.join(str(int(seed)) for seed in seeds)}]")
    if flags.reuse:
        quoted = ",".join("'" + folder.replace("'", "\\'") + "'" for folder in flags.reuse)
        settings.append(f"figure.reuse=[{quoted}]")
    if flags.draw:
        settings.append("figure.draw_only=true")
    if flags.dry_run:
        settings.append("dry_run=true")
    return settings


def names_file(name: str | None) -> bool:
    """Return whether the name of a figure is that of a user's file."""
    return name is not None and name.endswith((".yaml", ".yml"))


def refuse_file_without_ending(name: str | None, config_dir: str | None = None) -> None:
    """Raise ConfigError for a name that is no figure's, where a YAML of that name lies in the folder."""
    file = None if not name or names_file(name) else Path(f"{name}.yaml")
    if file is None or not file.is_file():
        return
    folders = (None, Path(config_dir)) if config_dir else (None,)
    if not any(name == known for folder in folders for known, _ in options("figure", folder)):
        raise ConfigError(f"there is no figure {name}; for the file here: fedpriv figure {file}")


def choice_of(name: str) -> str:
    """Return the override that chooses a figure, by its name or by its file."""
    if not names_file(name):
        return f"+figure={name}"
    quoted = name.replace("\\", "\\\\").replace("'", "\\'")
    return f"+figure.file='{quoted}'"


def for_choice(name: str, settings: list[str]) -> list[str]:
    """Return the overrides of a figure as they are written beside its choice.

    The section of a figure that a file describes has no keys yet, so they are added.
    """
    if not names_file(name):
        return settings
    return [f"++{s}" if s.startswith("figure.") else s for s in settings]


_QUOTED = re.compile(r"'((?:[^'\\]|\\.)*)'")


def as_flag(override: str) -> str:
    """Return the flag that stands for an override of :func:`overrides_of`, else the override, quoted."""
    flags = {"figure.scale=quick": "--quick", "figure.draw_only=true": "--draw"}
    if override.startswith("++figure."):
        override = override.removeprefix("++")
    if override.startswith("figure.reuse=['"):
        folders = (folder.replace("\\'", "'") for folder in _QUOTED.findall(override))
        return " ".join(f"--reuse {shlex.quote(folder)}" for folder in folders)
    if override.startswith("figure.seeds=["):
        return "--seeds " + override.partition("[")[2].rstrip("]").replace(" ", "")
    return flags.get(override, shlex.quote(override))
