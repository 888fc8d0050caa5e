"""The overrides that an entry may have.

Entries come from other people, and ``check`` runs what they say. So an override chooses an option of
fedpriv's or sets a key of the experiment to plain values: it names no code, no file and no place.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from fedpriv.common.errors import ConfigError, show
from fedpriv.common.groups import GROUPS

PRESETS = ("experiment", "recipe")
"""Added with a plus: ``+recipe=NAME``."""
_CHOICES = tuple(group for group in GROUPS if group not in ("attack", "tracker"))
_ROOT = (
    "epsilon", "delta", "rounds", "budget_view", "evaluation_interval", "averaging", "averaging_decay",
    "averaging_start", "isolate_records",
)  # fmt: skip
_NOT_OF_AN_ENTRY = (
    "seed", "noise_seed", "runtime", "tracker", "attack", "audit", "dry_run", "resume", "hydra",
)  # fmt: skip
"""What differs by run or machine, and what a run that may be entered has at its default."""
_PLACES = ("path", "download")
_MOST = 60
_PLAIN = r"[A-Za-z0-9_.+-]{1,60}"
_VALUE = re.compile(rf"{_PLAIN}|\[(?:{_PLAIN}(?:,{_PLAIN}){{0,60}})?\]")
_OPTION = re.compile(r"[a-z0-9_]{1,60}(/[a-z0-9_]{1,60}){0,3}")
_KEY = re.compile(r"[a-z][a-z0-9_]{0,60}(\.[a-z][a-z0-9_]{0,60}){0,5}")


def entered(overrides: Iterable[str], where: object) -> list[str]:
    """Those of a run's overrides that an entry keeps. Raises ConfigError for one that it may not have."""
    kept = []
    for one in overrides:
        parts = re.split("[./=]", one.lstrip("+~"))
        if parts[0] not in _NOT_OF_AN_ENTRY and (parts[0] != "dataset" or parts[1] not in _PLACES):
            kept.append(one)
    return refuse_unsafe(kept, where)


def refuse_unsafe(overrides: object, where: object) -> list[str]:
    """The overrides, all of which an entry may have. Raises ConfigError."""
    if not isinstance(overrides, list) or len(overrides) > _MOST:
        raise ConfigError(f"{where}: overrides must be a list of at most {_MOST} texts")
    for one in overrides:
        if not isinstance(one, str) or not _is_safe(one):
            raise ConfigError(
                f"{where}: the override {show(one)} cannot be in an entry, which has options of fedpriv's "
                "groups, +recipe or +experiment, and keys of the experiment with plain values"
            )
    return overrides


def _is_safe(override: str) -> bool:
    written, _, value = override.partition("=")
    plus, key = written.startswith("+"), written.removeprefix("+")
    if plus or key in _CHOICES:
        return key in (PRESETS if plus else _CHOICES) and _OPTION.fullmatch(value) is not None
    if _KEY.fullmatch(key) is None or _VALUE.fullmatch(value) is None or ".." in value:
        return False
    group, _, own = key.partition(".")
    return group in _CHOICES and own.split(".")[-1] not in _PLACES if own else key in _ROOT
