"""The overrides that an entry may have.

Entries come from other people, and ``fedpriv leaderboard check`` executes them. So an override may only
choose an option of fedpriv or set a key of the experiment to plain values. It cannot name code, a file or a
folder.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from fedpriv.common.errors import ConfigError, show
from fedpriv.common.groups import GROUPS

PRESETS = ("experiment", "recipe")
"""Groups that are added with a plus, as in ``+recipe=NAME``."""
_CHOICES = tuple(group for group in GROUPS if group not in ("attack", "tracker"))
_ROOT = (
    "epsilon", "delta", "rounds", "budget_view", "evaluation_interval", "averaging", "averaging_decay",
    "averaging_start", "isolate_records",
)  # fmt: skip
_LEFT_OUT = (
    "seed", "noise_seed", "runtime", "tracker", "attack", "audit", "dry_run", "resume", "hydra",
)  # fmt: skip
"""Keys that differ by run or machine, and keys that a run of an entry has at their default."""
_FILE_KEYS = ("path", "download")
_MOST_OVERRIDES = 60
_PLAIN = r"[A-Za-z0-9_.+-]{1,60}"
_VALUE = re.compile(rf"{_PLAIN}|\[(?:{_PLAIN}(?:,{_PLAIN}){{0,60}})?\]")
_OPTION = re.compile(r"[a-z0-9_]{1,60}(/[a-z0-9_]{1,60}){0,3}")
_KEY = re.compile(r"[a-z][a-z0-9_]{0,60}(\.[a-z][a-z0-9_]{0,60}){0,5}")


def entered(overrides: Iterable[str], where: object) -> list[str]:
    """Return the overrides of a run that belong into its entry.

    Raises:
        ConfigError: An override may not be in an entry.
    """
    entry_overrides = []
    for override in overrides:
        parts = re.split("[./=]", override.lstrip("+~"))
        if parts[0] not in _LEFT_OUT and (parts[0] != "dataset" or parts[1] not in _FILE_KEYS):
            entry_overrides.append(override)
    return refuse_unsafe(entry_overrides, where)


def refuse_unsafe(overrides: object, where: object) -> list[str]:
    """Return the overrides unchanged if an entry may have all of them.

    Raises:
        ConfigError: ``overrides`` is no list of texts, or one of them may not be in an entry.
    """
    if not isinstance(overrides, list) or len(overrides) > _MOST_OVERRIDES:
        raise ConfigError(f"{where}: overrides must be a list of at most {_MOST_OVERRIDES} texts")
    for override in overrides:
        if not isinstance(override, str) or not _is_safe(override):
            raise ConfigError(
                f"{where}: the override {show(override)} cannot be in an entry; allowed are options of "
                "fedpriv's groups, +recipe, +experiment, and keys of the experiment with plain values"
            )
    return overrides


def _is_safe(override: str) -> bool:
    written, _, value = override.partition("=")
    plus, key = written.startswith("+"), written.removeprefix("+")
    if plus or key in _CHOICES:
        return key in (PRESETS if plus else _CHOICES) and _OPTION.fullmatch(value) is not None
    if _KEY.fullmatch(key) is None or _VALUE.fullmatch(value) is None or ".." in value:
        return False
    group, _, subkey = key.partition(".")
    return group in _CHOICES and subkey.split(".")[-1] not in _FILE_KEYS if subkey else key in _ROOT
