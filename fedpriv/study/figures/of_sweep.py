"""The figure of a sweep: ``fedpriv train -m`` leaves its ``figure.yaml`` in the folder of the sweep."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from hydra.core.override_parser.types import Override

from fedpriv.common.checks import is_number
from fedpriv.common.files import write_text
from fedpriv.store.saved import YamlLoader
from fedpriv.study.figures.figure_keys import typed

FILE = "figure.yaml"
_NOT_OF_A_FIGURE = ("publish", "resume", "dry_run", "noise_seed")
_PLAIN = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.+-/")


def write_sweep_figure(
    folder: Path, overrides: Sequence[Override], flags: Sequence[str] = ()
) -> None:
    """Write the definition of the figure that a sweep makes, if a figure's file can say it.

    Args:
        folder: The folder of the sweep. A file that is there already is kept: the user may have changed it.
        overrides: The overrides of the sweep.
        flags: ``--config-dir FOLDER`` if the sweep was given it.
    """
    path = folder / FILE
    definition = figure_of_sweep(overrides, folder.name)
    if definition is None or path.exists():
        return
    text = yaml.safe_dump(definition, sort_keys=False, default_flow_style=None, width=1000)
    command = shlex.join(["fedpriv", "figure", str(path), *flags])
    head = f"# The figure of this sweep. Draw it, or run what you add here: {command}\n"
    write_text(path, head + text)


def figure_of_sweep(overrides: Sequence[Override], name: str) -> dict[str, Any] | None:
    """Return the definition of the figure of a sweep; None where a figure's file cannot say it.

    The key of the x axis is epsilon if it is swept, else the first key that is swept over numbers. Without
    such a key the curves are drawn over rounds.
    """
    base: list[str] = []
    swept: dict[str, list[object]] = {}
    seeds: list[object] = [0]
    for override in overrides:
        key, text = override.key_or_group, override.input_line or ""
        if key.startswith(("runtime.", "hydra")):
            continue
        values = _values(override)
        if values is None or key in _NOT_OF_A_FIGURE or "@" in text:
            return None
        if key == "seed":
            seeds = values
        elif len(values) == 1 and not override.is_sweep_override():
            base.append(text)
        elif len(values) == 1:
            base.append(f"{text.partition('=')[0]}={typed(values[0])}")
        elif text[:1] in ("", "+", "~"):
            return None
        else:
            swept[key] = values
    numeric = [key for key, values in swept.items() if all(map(is_number, values))]
    x = "epsilon" if "epsilon" in numeric else next(iter(numeric), None)
    definition: dict[str, Any] = {
        "name": name,
        "base": shlex.join(base),
        "x": "round" if x is None else {x: swept.pop(x)},
        "curves": swept,
        "seeds": seeds,
        "metric": "accuracy",
        "reuse": ".",
    }
    return {key: value for key, value in definition.items() if value}


def _values(override: Override) -> list[object] | None:
    """Return the values that an override takes; None where a figure's file cannot say them."""
    if override.is_delete() or override.package is not None:
        return None
    words = [str(override.input_line).partition("=")[2]]
    if override.is_sweep_override():
        if not override.is_discrete_sweep():
            return None
        words = list(override.sweep_string_iterator())
        if not all(set(word) <= _PLAIN for word in words):
            return None
    try:
        return [yaml.load(word, YamlLoader) for word in words]
    except yaml.YAMLError:
        return None
