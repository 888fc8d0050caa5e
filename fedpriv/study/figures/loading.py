"""A figure's YAML without Hydra: to list forty figures, composing each is far too slow.

Only what the YAMLs of figures have is understood: ``/work: …`` before ``_self_``. For anything else Hydra is
asked; a test holds the two against each other for every figure there is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from fedpriv.common.groups import conf_dir
from fedpriv.study.figures.reading import plain_section

Section = dict[str, Any]


def load_section(name: str, extra: Path | None = None) -> Section:
    """What a configuration with ``+figure=<name>`` has below ``figure``.

    ``extra``: a folder with YAMLs of the user's own. Raises ConfigError for what cannot be read.
    """
    folders = (conf_dir(), *(() if extra is None else (extra,)))
    section = _plain(name, folders)
    if section is None:
        section = plain_section(compose_safely([f"+figure={name}"], extra).get("figure"))
    return section


def compose_safely(overrides: Sequence[str], extra: Path | None = None) -> DictConfig:
    """What Hydra composes. Raises ConfigError for whatever is wrong in a YAML."""
    from fedpriv.common.config import compose, explain  # brings Hydra

    try:
        return compose(overrides, extra)
    except (ValueError, TypeError, AttributeError, AssertionError) as error:
        raise explain(error, overrides) from None


def _plain(name: str, folders: tuple[Path, ...]) -> Section | None:
    """The section where its YAML is one of those understood, else None."""
    found = _load(folders, f"figure/{name}")
    if found is None or not found[1].startswith("# @package _global_") or "${" in found[1]:
        return None
    content = found[0]
    defaults, section = content.pop("defaults", None), content.pop("figure", None)
    if content or not isinstance(section, dict) or not isinstance(defaults, list):
        return None
    *works, sweeper, last = [None, None, *defaults]
    if (sweeper, last) != ({"override /hydra/sweeper": "curves"}, "_self_"):
        return None
    values: Section = {}
    for work in works[2:]:
        own = _work(work.get("/work"), folders) if isinstance(work, dict) else None
        if own is None or len(work) > 1:
            return None
        values = _merged(values, own)
    return _merged(values, section)


def _work(name: object, folders: tuple[Path, ...]) -> Section | None:
    """``conf/work/<name>.yaml`` with its defaults, where it is one of those understood, else None."""
    found = _load(folders, f"work/{name}") if isinstance(name, str) else None
    if found is None or not found[1].startswith("# @package figure\n") or "${" in found[1]:
        return None
    content = dict(found[0])
    *before, last = content.pop("defaults", ["_self_"])
    if last != "_self_":
        return None
    values: Section = {}
    for other in before:
        part = _work(other, folders)
        if part is None:
            return None
        values = _merged(values, part)
    return _merged(values, content)


@cache
def _read(path: Path, changed: int) -> tuple[Section, str] | None:
    """A YAML as Hydra reads it, and its text; None where there is no such mapping. ``changed``: when."""
    try:
        text = path.read_text(encoding="utf-8")
        content: Any = OmegaConf.to_container(OmegaConf.create(text), resolve=False)
    except (OSError, ValueError, yaml.YAMLError, OmegaConfBaseException, AssertionError):
        return None  # Hydra says what is wrong
    return (content, text) if isinstance(content, dict) else None


def _load(folders: tuple[Path, ...], name: str) -> tuple[Section, str] | None:
    """The first that there is, as on Hydra's search path; never to be written to."""
    path = next((f / f"{name}.yaml" for f in folders if (f / f"{name}.yaml").exists()), None)
    found = None if path is None else _read(path, path.stat().st_mtime_ns)
    return None if found is None else (dict(found[0]), found[1])


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> Section:
    """Both, the second before the first; groups of keys are merged, all else is replaced."""
    values = dict(below)
    for key, value in above.items():
        old = values.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            value = _merged(old, value)
        values[key] = value
    return values
