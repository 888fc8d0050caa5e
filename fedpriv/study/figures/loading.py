"""Loader of a figure's YAML without Hydra, since composing forty figures for a list is far too slow.

The loader understands only the form that the YAMLs of figures have: ``/work: …`` before ``_self_``. Hydra
composes anything else. A test compares both for every figure.
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
    """Return the section ``figure`` of a configuration with ``+figure=<name>``.

    Args:
        name: Name of the figure, ``<work>/<figure>``.
        extra: Folder with the user's own YAMLs.

    Raises:
        ConfigError: The YAML cannot be read or composed.
    """
    folders = (conf_dir(), *(() if extra is None else (extra,)))
    section = _plain(name, folders)
    if section is None:
        section = plain_section(compose_safely([f"+figure={name}"], extra).get("figure"))
    return section


def compose_safely(overrides: Sequence[str], extra: Path | None = None) -> DictConfig:
    """Compose a configuration by Hydra.

    Raises:
        ConfigError: A YAML or an override has a mistake.
    """
    from fedpriv.common.config import compose, explain  # imported late: this imports Hydra

    try:
        return compose(overrides, extra)
    except (ValueError, TypeError, AttributeError, AssertionError) as error:
        raise explain(error, overrides) from None


def _plain(name: str, folders: tuple[Path, ...]) -> Section | None:
    """Return the section ``figure`` of a YAML of the known form, else None."""
    content, text = _load(folders, f"figure/{name}")
    if not text.startswith("# @package _global_") or "${" in text:
        return None
    defaults, section = content.pop("defaults", None), content.pop("figure", None)
    if content or not isinstance(section, dict) or not isinstance(defaults, list):
        return None
    *works, sweeper, last = [None, None, *defaults]
    if (sweeper, last) != ({"override /hydra/sweeper": "curves"}, "_self_"):
        return None
    values: Section = {}
    for work in works[2:]:
        shared = _work(work.get("/work"), folders) if isinstance(work, dict) else None
        if shared is None or len(work) > 1:
            return None
        values = _merged(values, shared)
    return _merged(values, section)


def _work(name: object, folders: tuple[Path, ...]) -> Section | None:
    """Return ``conf/work/<name>.yaml`` with its defaults where the YAML has the known form, else None."""
    content, text = _load(folders, f"work/{name}") if isinstance(name, str) else ({}, "")
    if not text.startswith("# @package figure\n") or "${" in text:
        return None
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
def _read(path: Path, changed: int) -> tuple[Section, str]:
    """Return a YAML as Hydra reads it, and its text, both empty for a damaged YAML.

    ``changed`` is the time of the last change, a part of the cache's key.
    """
    try:
        text = path.read_text(encoding="utf-8")
        content: Any = OmegaConf.to_container(OmegaConf.create(text), resolve=False)
    except (OSError, ValueError, yaml.YAMLError, OmegaConfBaseException, AssertionError):
        return {}, ""  # Hydra will tell the user what is wrong
    return (content, text) if isinstance(content, dict) else ({}, "")


def _load(folders: tuple[Path, ...], name: str) -> tuple[Section, str]:
    """Return a copy of the first YAML of that name, as on Hydra's search path, and its text.

    Both are empty where there is no such YAML. The copy is shallow: nested values must not be changed.
    """
    path = next((f / f"{name}.yaml" for f in folders if (f / f"{name}.yaml").exists()), None)
    content, text = ({}, "") if path is None else _read(path, path.stat().st_mtime_ns)
    return dict(content), text


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> Section:
    """Merge two sections; nested groups of keys are merged, all other values of ``above`` win."""
    values = dict(below)
    for key, value in above.items():
        old = values.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            value = _merged(old, value)
        values[key] = value
    return values
