"""YAML groups of the user's own (``--config-dir``): which folder was given, and which files a figure uses."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import yaml
from omegaconf import DictConfig

from fedpriv.store.saved import YamlLoader, saved_text, yaml_mistake


def config_dir_flags(config: DictConfig) -> list[str]:
    """Return ``--config-dir FOLDER`` if the command of a composed configuration was given it.

    Args:
        config: The configuration, with Hydra's section.
    """
    sources = config.hydra.runtime.config_sources
    folders = [source.path for source in sources if source.provider == "command-line"]
    return [word for path in folders for word in ("--config-dir", os.path.relpath(path))]


def used_yamls(folder: Path, overrides: Iterable[str]) -> list[Path]:
    """Return the YAMLs of a folder that overrides choose, and those that their defaults name.

    Args:
        folder: The folder of ``--config-dir``.
        overrides: Overrides of runs, such as ``algorithm=mine``.

    Returns:
        Paths relative to the folder, in order. A YAML whose defaults depend on other values stands for all
        files of the folder.

    Raises:
        ConfigError: A YAML cannot be read.
    """
    names = [override.lstrip("+").partition("=")[::2] for override in overrides]
    waiting = [f"{group.partition('@')[0]}/{option}" for group, option in names]
    used: set[Path] = set()
    while waiting:
        path = Path(f"{waiting.pop()}.yaml")
        if path in used or ".." in path.parts or not (folder / path).is_file():
            continue
        used.add(path)
        try:
            content = yaml.load(saved_text(folder / path), YamlLoader)
        except yaml.YAMLError as error:
            raise yaml_mistake(folder / path, error) from None
        defaults = content.get("defaults") if isinstance(content, dict) else None
        named = list(_named(path.parent, defaults if isinstance(defaults, list) else []))
        if any("${" in name for name in named):
            return sorted(p.relative_to(folder) for p in folder.rglob("*.yaml") if p.is_file())
        waiting += named
    return sorted(used)


def _named(group: Path, defaults: Iterable[object]) -> Iterator[str]:
    """Yield the names, from the root of the folder, of what the defaults list of a group's YAML names."""
    for entry in defaults:
        choices = entry.items() if isinstance(entry, dict) else [("", entry)]
        for key, option in choices:
            where = str(key).removeprefix("optional ").removeprefix("override ").partition("@")[0]
            for one in option if isinstance(option, list) else [option]:
                name = (
                    f"{where}/{str(one).partition('@')[0]}" if where else str(one).partition("@")[0]
                )
                yield name[1:] if name.startswith("/") else str(group / name)
