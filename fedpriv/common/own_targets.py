"""Arguments of a ``_target_`` outside fedpriv, for messages about keys that it is given."""

from __future__ import annotations

import importlib
import inspect
import itertools
import re
from collections.abc import Sequence
from pathlib import Path

from fedpriv.common.attributes import PACKAGE
from fedpriv.common.errors import ConfigError, did_you_mean, nearest, show


def key_of_own_target(key: str, overrides: Sequence[str]) -> ConfigError | None:
    """Return the error for a key that the user's own class may take, but that its group does not list.

    Args:
        key: The dotted key, such as ``model.width``.
        overrides: The arguments of the command, which name the class: ``model._target_=my.Net``.

    Returns:
        None if the overrides name no class of the user's own, or if its arguments cannot be read.
    """
    group, _, name = key.rpartition(".")
    targets = [o.partition("=")[2] for o in overrides if o.startswith(f"{group}._target_=")]
    if not group or not targets or targets[-1].startswith(PACKAGE):
        return None
    module, _, attribute = targets[-1].rpartition(".")
    try:
        parameters = inspect.signature(
            getattr(importlib.import_module(module), attribute)
        ).parameters
    except Exception:  # making the object says what is wrong with it
        return None
    value = next((o.partition("=")[2] for o in overrides if o.startswith(f"{key}=")), "VALUE")
    kinds = {parameter.kind for parameter in parameters.values()}
    if name in parameters or inspect.Parameter.VAR_KEYWORD in kinds:
        return ConfigError(
            f"unknown key {key}: a key that the YAML does not have is added with a plus, and {targets[-1]} "
            f"takes it: +{show(key)}={show(value)}"
        )
    near = nearest(name, parameters, cutoff=0.6)
    hint = f"; did you mean +{group}.{near}={show(value)}?" if near else ""
    taken = ", ".join(parameters) or "no argument"
    return ConfigError(f"unknown key {show(key)}{hint} ({targets[-1]} takes: {taken})")


def unknown_entry(name: str, known: Sequence[str], overrides: Sequence[str]) -> ConfigError:
    """Return the error for a mapping, such as ``dataset.ranges={agee: [0, 1]}``, with an unknown entry."""
    values = [o.partition("=")[2] for o in overrides if o.lstrip("+").startswith(f"{name}=")]
    given = [entry for value in values for entry in re.findall(r"[{,] *([^\s:{},\[\]]+) *:", value)]
    unknown = [entry for entry in given if entry not in known]
    if not unknown:
        return ConfigError(f"{name} has the keys {', '.join(known)}, which are given one by one")
    hint = did_you_mean(unknown[0], known, "; ")
    return ConfigError(
        f"{name} has no key {show(unknown[0])}{hint} (it has: {', '.join(known)}; "
        f"another one is added with a plus: +{name}.{unknown[0]}=…)"
    )


def own_yaml_hint(group: str, option: str, near: str | None) -> str:
    """Return a hint at ``--config-dir``, with the folder here that has the option, if one does."""
    folders = sorted(path for path in Path().iterdir() if path.is_dir())
    file = Path(group, f"{option}.yaml")
    if not file.is_absolute() and (found := [f for f in folders if (f / file).is_file()]):
        return f"; {found[0] / file} is an option with --config-dir {found[0]}"
    return "" if near else "; an option in YAMLs of your own needs --config-dir FOLDER"


def config_dir_of(arguments: Sequence[str]) -> Path | None:
    """Return the folder given with Hydra's ``--config-dir`` (``-cd``), or to :func:`compose`; else None."""
    for flag, value in itertools.pairwise([*arguments, ""]):
        if flag in ("--config-dir", "-cd"):
            return Path(value)
        if match := re.fullmatch(r"--config-dir=(.*)|hydra\.searchpath=\['file://(.*)'\]", flag):
            return Path(match[1] if match[2] is None else match[2].replace("\\'", "'"))
    return None
