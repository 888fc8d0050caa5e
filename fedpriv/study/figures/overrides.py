"""Flags of ``fedpriv figure`` as overrides of ``fedpriv train``, and back."""

from __future__ import annotations

import re
import shlex
from types import SimpleNamespace

from fedpriv.common.errors import ConfigError


def overrides_of(options: SimpleNamespace) -> list[str]:
    """Return the overrides that the flags of ``fedpriv figure`` stand for.

    Raises:
        ConfigError: ``--seeds`` is not a list of whole numbers.
    """
    settings = []
    if options.quick:
        settings.append("figure.scale=quick")
    if options.seeds is not None:
        seeds = options.seeds.split(",")
        if not all(seed.strip().isascii() and seed.strip().isdigit() for seed in seeds):
            raise ConfigError("--seeds", options.seeds or "nothing", "whole numbers, such as 0,1,2")
        settings.append(f"figure.seeds=[{','.join(str(int(seed)) for seed in seeds)}]")
    if options.reuse:
        quoted = ",".join("'" + folder.replace("'", "\\'") + "'" for folder in options.reuse)
        settings.append(f"figure.reuse=[{quoted}]")
    if options.draw:
        settings.append("figure.draw_only=true")
    if options.dry_run:
        settings.append("dry_run=true")
    return settings


_QUOTED = re.compile(r"'((?:[^'\\]|\\.)*)'")


def as_flag(override: str) -> str:
    """Return the flag that stands for an override of :func:`overrides_of`, else the override, quoted."""
    flags = {"figure.scale=quick": "--quick", "figure.draw_only=true": "--draw"}
    if override.startswith("figure.reuse=['"):
        folders = (folder.replace("\\'", "'") for folder in _QUOTED.findall(override))
        return " ".join(f"--reuse {shlex.quote(folder)}" for folder in folders)
    if override.startswith("figure.seeds=["):
        return "--seeds " + override.partition("[")[2].rstrip("]").replace(" ", "")
    return flags.get(override, shlex.quote(override))
