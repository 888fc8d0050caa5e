"""What is composed in tests, kept: the same overrides of the same YAMLs give the same configuration."""

from __future__ import annotations

import copy
import functools
import re
from pathlib import Path

import pytest
from hydra._internal.hydra import Hydra
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig, base

from fedpriv import config
from fedpriv.groups import conf_dir

FEW = 50
"""Folders of tests hold no more YAMLs than these."""


def compose_once(patch: pytest.MonkeyPatch) -> None:
    """``fedpriv.compose`` is a third of the time of runs and figures: two in five are repeated."""
    kept: dict[tuple, DictConfig] = {}
    compose = config.hydra_compose

    def composed(config_name: str, overrides: list[str]) -> DictConfig:
        places = GlobalHydra.instance().config_loader().get_search_path().get_path()
        paths = [place.path for place in places]
        chosen = []
        for override in overrides:
            found = re.fullmatch(r"hydra\.searchpath=\['(file://[^']+)'\]", override)
            (paths if found else chosen).append(found[1] if found else override)
        read = [_content(path) for path in paths]
        if None in read or any("hydra" in override for override in chosen):
            return compose(config_name=config_name, overrides=overrides)
        key = (*read, config_name, *chosen)
        if key not in kept:
            kept[key] = compose(config_name=config_name, overrides=overrides)
        return copy.deepcopy(kept[key])

    patch.setattr(config, "hydra_compose", composed)


def compose_commands_once(patch: pytest.MonkeyPatch) -> None:
    """Hydra composes what follows ``fedpriv train`` twice: the first time to read hydra.mode."""
    look = Hydra.get_mode

    def mode(self: Hydra, config_name: str | None, overrides: list[str]) -> object:
        set_there = any("hydra" in override for override in overrides)
        return look(self, config_name, overrides) if set_there else None

    patch.setattr(Hydra, "get_mode", mode)


def parse_interpolations_once(patch: pytest.MonkeyPatch) -> None:
    """The tree of ``${seed}`` is the same whoever asks for it, and is only read."""
    patch.setattr(base, "parse", functools.cache(base.parse))


def _content(place: str | None) -> object:
    """What tells YAMLs apart: the place of those that stay, the text of a test's own; None: unknown."""
    if place in ("pkg://hydra.conf", str(conf_dir()), "structured://"):
        return place
    folder = Path((place or "").removeprefix("file://"))
    files = sorted(folder.rglob("*.yaml")) if place and "tmp" in folder.parts else []
    if not 0 < len(files) <= FEW:
        return None
    return tuple((str(path.relative_to(folder)), path.read_bytes()) for path in files)
