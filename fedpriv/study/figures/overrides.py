"""Flags of ``fedpriv figure`` as overrides of ``fedpriv train``, and back."""

from __future__ import annotations

import re
import shlex
from types import SimpleNamespace

from fedpriv.common.errors import ConfigError


def overrides_of(options: SimpleNamespace) -> list[str]:
    """The overrides that flags of ``fedpriv figure`` stand for. Raises ConfigError."""
    settings = []
    if options.quick:
        settings.append("figure.scale=quick")
    if options.seeds is not None:
        settings.append(f"figure.seeds=[{','.join(str(s) for s in _seeds(options.seeds))}]")
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
    """The flag that stands for an override of :func:`overrides_of`, else the override, quoted."""
    flags = {"figure.scale=quick": "--quick", "figure.draw_only=true": "--draw"}
    if override.startswith("figure.reuse=['"):
        folders = (folder.replace("\\'", "'") for folder in _QUOTED.findall(override))
        return " ".join(f"--reuse {shlex.quote(folder)}" for folder in folders)
    if override.startswith("figure.seeds=["):
        return "--seeds " + override.partition("[")[2].rstrip("]").replace(" ", "")
    return flags.get(override, shlex.quote(override))


def _seeds(text: str) -> list[int]:
    parts = text.split(",")
    if not all(part.strip().isascii() and part.strip().isdigit() for part in parts):
        raise ConfigError("--seeds", text or "nothing", "whole numbers, such as 0,1,2")
    return [int(part) for part in parts]
