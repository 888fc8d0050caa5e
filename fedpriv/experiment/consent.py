"""Consent to the code that a configuration runs.

A configuration says with ``_target_`` which code runs. A configuration that somebody else wrote, such as
that of a run folder, may name the parts of fedpriv that a group has. It may name code outside fedpriv only
with the consent of the user who resumes the run.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf, open_dict

from fedpriv.common.config import as_tree, compose, flatten
from fedpriv.common.errors import ConfigError, show
from fedpriv.common.groups import GROUPS, TARGET, conf_dir
from fedpriv.common.words import quoted
from fedpriv.store.stored_run import StoredRun

FLAG = "--allow"


def refuse_strangers(
    config: DictConfig,
    allowed: Collection[str],
    where: object,
    own: Collection[tuple[str, object]] = (),
) -> None:
    """Raise ConfigError for code outside fedpriv to which the user has not consented.

    Args:
        config: The configuration.
        allowed: Modules or packages to which the user has consented.
        where: Name of the configuration, for the message.
        own: Key and ``_target_`` of all that YAMLs of the user's own name.
    """
    for key, target in targets(OmegaConf.to_container(config, resolve=True)):
        if is_shipped(key, target) or (key, target) in own:
            continue
        if not any(f"{target}.".startswith(f"{module}.") for module in allowed):
            module = str(target).rpartition(".")[0] or target
            raise ConfigError(
                f"{where} names code outside fedpriv: {key} is {show(target)}; where you know and trust it, "
                f"add {FLAG} {show(module)}"
            )


def refuse_odd_paths(config: DictConfig, where: object) -> None:
    """Raise ConfigError for a value that is the path of something else than a file or folder.

    A pipe would be waited for, and a device read without end.
    """
    for key, value in flatten(as_tree(config)).items():
        if isinstance(value, str) and 0 < len(value) < 4096 and "\0" not in value:
            path = Path(value)
            with suppress(OSError):
                if path.exists() and not (path.is_file() or path.is_dir()):
                    raise ConfigError(
                        f"{where}: {key}={show(value)} is neither a file nor a folder"
                    )


def stored_configuration(
    run: StoredRun, allowed: Collection[str], seeds: bool = True
) -> DictConfig:
    """Return the configuration of a stored run, to be built here.

    Keys that it was written without get their defaults. The keys that say where it ran are left out, and
    nothing is downloaded. If ``allowed`` names any module, the current folder is added to ``sys.path``.

    Args:
        run: The stored run.
        allowed: Modules outside fedpriv that the configuration may name.
        seeds: True if the seeds are needed, which some folders do not tell; False: those stand at 0.

    Raises:
        ConfigError: The folder holds no run, or its configuration cannot be used.
    """
    path = run.files.config
    if not path.exists():
        inside = sorted(p.parent.name for p in run.path.glob("*/config.yaml"))
        hint = f"there is one in {run.path / inside[-1]}" if inside else ""
        raise ConfigError(f"{run.path} is no run folder (one with config.yaml)", hint=hint)
    config = run.configuration.copy()
    refuse_strangers(config, allowed, path)
    refuse_odd_paths(config, path)
    known = compose()
    with open_dict(config):
        for key in known:
            if key not in config:
                config[key] = known[key]
        config.runtime, config.resume = known.runtime, None
        # A folder may come from anybody: it must not decide what is downloaded, and to where.
        if "download" in config.dataset:
            config.dataset.download = False
        for node in (config, config.model, config.partition):
            if not seeds and node.get("seed", 0) is None:
                node.seed = 0
    if config.seed is None:
        raise ConfigError(
            f"{run.path} was written with runtime.diagnostics=false: without its seeds its data cannot "
            "be rebuilt"
        )
    if allowed and str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))  # a _target_ may name a module of the user's own
    return config


_OF_ONE_RUN = ("publish", "dry_run", "resume", "runtime", "hydra", "tracker")
"""Root keys and groups whose overrides are of one run, and not repeated in another command."""


def resume_command(folder: Path, config: DictConfig) -> str:
    """Return the command that continues the run in ``folder``.

    It names the folder of the user's YAMLs, the trackers, and the consent to the user's own code.
    """
    modules = {
        str(target).rpartition(".")[0]
        for key, target in targets(OmegaConf.to_container(config, resolve=False))
        if not is_shipped(key, target)
    }
    consent = (f"{FLAG} {module}" for module in sorted(modules))
    resume = shlex.quote(f"resume={quoted(folder)}")
    return " ".join(("fedpriv train", resume, *_own_yamls(), *_tracking(config), *consent))


def command_again(verb: str, overrides: Sequence[str], *more: str) -> str:
    """Return another command with the overrides of this one.

    Args:
        verb: The command, such as ``verify``.
        overrides: The overrides of this command.
        more: Further overrides, which replace those of the same keys.
    """
    replaced = {_key_of(override) for override in more}
    given = [
        override
        for override in overrides
        if re.split("[./@]", _key_of(override))[0] not in _OF_ONE_RUN
        and _key_of(override) not in replaced
    ]
    return " ".join(("fedpriv", verb, *_own_yamls(), *map(shlex.quote, (*given, *more))))


def _key_of(override: str) -> str:
    """Return the key of an override, without Hydra's ``+`` and ``~`` and without its value."""
    return override.lstrip("+~").partition("=")[0]


def _own_yamls() -> Iterator[str]:
    """Yield the flag that names the folder of the user's YAMLs, if the command was given one."""
    if not HydraConfig.initialized():  # the run was started from Python
        return
    for source in HydraConfig.get().runtime.config_sources:
        if source.provider == "command-line":
            yield f"--config-dir {shlex.quote(os.path.relpath(source.path))}"


def _tracking(config: DictConfig) -> Iterator[str]:
    """Yield the overrides that ask again for the trackers of a run, as its folder may not ask for them."""
    chosen: dict[str, Any] = as_tree(config.get("tracker") or OmegaConf.create())
    if chosen:
        names = ",".join(chosen)
        yield f"tracker={names}" if len(chosen) == 1 else shlex.quote(f"tracker=[{names}]")
    for name, values in chosen.items():
        path = conf_dir() / "tracker" / f"{name}.yaml"
        defaults = yaml.safe_load(path.read_text("utf-8"))[name] if path.exists() else values
        for key, value in values.items():
            if value != defaults.get(key):
                text = quoted(value) if isinstance(value, str) else show(value)
                text = f"[{','.join(map(quoted, value))}]" if isinstance(value, list) else text
                yield shlex.quote(f"tracker.{name}.{key}={text}")


def targets(tree: object, prefix: str = "") -> Iterator[tuple[str, object]]:
    """Yield the dotted key and the value of each ``_target_`` in a tree of dicts and lists."""
    items = enumerate(tree) if isinstance(tree, list) else ()
    for key, value in tree.items() if isinstance(tree, dict) else items:
        if key == TARGET:
            yield f"{prefix}{key}", value
        else:
            yield from targets(value, f"{prefix}{key}.")


def targets_of_yamls(folder: Path) -> set[tuple[str, object]]:
    """Return the key and the ``_target_`` of all that the YAML files of the groups in a folder name."""
    named: set[tuple[str, object]] = set()
    for group in GROUPS:
        for path in (folder / group).rglob("*.yaml"):
            try:
                tree = yaml.safe_load(path.read_text(encoding="utf-8"))
            except (OSError, ValueError, yaml.YAMLError):
                continue
            # A YAML of a group has the keys of the group, or the group as its one key (package _global_).
            has_group = isinstance(tree, dict) and isinstance(tree.get(group), dict)
            named.update(targets(tree, "" if has_group else f"{group}."))
    return named


def is_shipped(key: str, target: object) -> bool:
    """Return whether an option of fedpriv has this target under this key."""
    return (key, str(target)) in _shipped()


@lru_cache
def _shipped() -> frozenset[tuple[str, str]]:
    """Return the key and the ``_target_`` of all options of fedpriv."""
    named = targets_of_yamls(conf_dir())
    return frozenset((key, str(target)) for key, target in named)
