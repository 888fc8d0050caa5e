"""How the configuration is composed, and what of it identifies a run."""

from __future__ import annotations

import hashlib
import importlib
import itertools
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

import yaml
from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException, OverrideParseException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from fedpriv.common.errors import ConfigError, did_you_mean, nearest, show
from fedpriv.common.groups import (
    ADDED,
    GROUPS,
    OF_NOTHING,
    conf_dir,
    options,
    table_options,
    table_rows,
)


def compose(overrides: Sequence[str] = (), config_dir: Path | None = None) -> DictConfig:
    """The configuration that ``fedpriv train <overrides>`` would run; for notebooks and tests.

    ``config_dir``: a folder with YAMLs of one's own, as with ``--config-dir``. Raises ConfigError,
    naming the nearest option or key, for what cannot be composed.

    >>> compose(["algorithm=dp_fl", "dataset=mnist"]).algorithm.sample_rate
    0.013
    """
    if config_dir is not None:
        path = str(config_dir.resolve()).replace("'", "\\'")
        overrides = [*overrides, f"hydra.searchpath=['file://{path}']"]
    refuse_unknown_protocol(overrides)
    try:
        if GlobalHydra.instance().is_initialized():
            return with_protocol(hydra_compose(config_name="config", overrides=list(overrides)))
        with initialize_config_dir(version_base="1.3", config_dir=str(conf_dir())):
            return with_protocol(hydra_compose(config_name="config", overrides=list(overrides)))
    except (HydraException, OmegaConfBaseException, yaml.YAMLError) as error:
        raise explain(error, overrides) from None


def _records_at_most(wanted: int, *, _root_: DictConfig, _parent_: DictConfig) -> int:
    """Return ``wanted``, or as many records for each client as a data set of a known size has."""
    target = (_root_.get("dataset") or {}).get("_target_")
    module, _, name = str(target).rpartition(".")
    clients = _parent_.clients
    if not module.startswith("fedpriv.data.") or type(clients) is not int or clients < 1:
        return wanted
    try:
        records = getattr(importlib.import_module(module), name).train_records
        share = (records - _root_.dataset.validation_records) // clients
    except (ImportError, AttributeError, TypeError, OmegaConfBaseException):
        return wanted  # the files tell how many there are
    return max(1, min(wanted, share))


OmegaConf.register_new_resolver("records_at_most", _records_at_most, replace=True)


def refuse_unknown_protocol(overrides: Sequence[str]) -> None:
    """Raise ConfigError for ``protocol=NAME`` without such an option, which Hydra would pass over."""
    _refuse_odd_preset(overrides)
    known = [name for name, _ in options("protocol")]
    extra = config_dir_of(overrides)
    known += [name for name, _ in options("protocol", extra)] if extra else []
    for override in overrides:
        key, _, name = override.partition("=")
        if key == "protocol" and name not in (*known, "null"):
            raise _unknown("protocol", name, known)


def _refuse_odd_preset(overrides: Sequence[str]) -> None:
    """Raise ConfigError for two presets, of which Hydra would let the last one win, and for none."""
    given = [o.partition("=") for o in overrides if o.startswith(("+recipe=", "+experiment="))]
    for key, _, value in given:
        if value in ("", "null") or value.startswith("["):
            allowed = f"one option; see fedpriv list {key[1:]}"
            raise ConfigError(key, value, allowed)
    if len(given) > 1:
        both = " and ".join(f"{key}={value}" for key, _, value in given[:2])
        raise ConfigError(f"{both} are two ready-made configurations; give one")


def with_protocol(config: DictConfig) -> DictConfig:
    """Return the configuration with the numbers of the protocol that it names (``protocol: dp_fl``), if any.

    An algorithm of the user's own has no row in ``conf/protocols.yaml``; its YAML may name the algorithm
    whose numbers it takes. Where that one has none for the data set, the defaults hold. Raises ConfigError
    for a name without any protocol.
    """
    inherited = config.get("protocol")
    if not isinstance(inherited, str):
        return config
    protocols = table_rows(conf_dir(), "protocol")
    if inherited not in protocols:
        hint = did_you_mean(inherited, list(protocols))
        raise ConfigError("protocol", inherited, f"one of {', '.join(sorted(protocols))}", hint)
    chosen = config.copy()
    OmegaConf.set_struct(chosen, False)
    chosen.protocol = {}
    for data in protocols[inherited]:
        target = yaml.safe_load((conf_dir() / "dataset" / f"{data}.yaml").read_text("utf-8"))
        if target["dataset"]["_target_"] == config.dataset.get("_target_"):
            option = table_options(conf_dir(), "protocol")[f"{inherited}_{data}"]
            chosen.protocol = option.content
    OmegaConf.set_struct(chosen, True)
    return chosen


def explain(error: Exception, overrides: Sequence[str]) -> ConfigError:
    """A failure of Hydra or OmegaConf to compose, as one sentence with the nearest name."""
    text = str(error)
    if "hydra/sweeper@" in text:
        return ConfigError("a figure's YAML begins with the line  # @package _global_")
    if match := re.search(r"Could not (?:find|load) '([^']+)/([^'/]+)'", text):
        return _unknown_option(match[1], match[2], config_dir_of(overrides))
    if match := re.search(r"Could not override '([^']+)'", text):
        return _unknown_key(match.group(1), overrides)
    if match := re.search(
        r"Multiple values for (\w+)|config groups is not supported: '\+\+(\w+)=", text
    ):
        group = match[1] or match[2]
        return ConfigError(f"{group} has an option already; write {group}=OPTION without +")
    if match := re.search(r"Ambiguous value for argument '(.+)'", text):
        return ConfigError(
            f"{match.group(1)} gives several values; add -m to sweep over them, or write a list as "
            "key=[a,b]"
        )
    if isinstance(error, OverrideParseException):
        return _unreadable(error.override)
    if "Config group override must be" in text:  # a number or a list: says not which
        chosen = [o.lstrip("+").partition("=") for o in overrides]
        for group, _, value in (c for c in chosen if c[0] in GROUPS):
            known = [name for name, _ in options(group)]
            if value not in known and not config_dir_of(overrides):
                return _unknown(f"{group} option", value, known)
    if nameless := [o for o in overrides if o.lstrip("+~").startswith("=")]:
        return _unreadable(nameless[0])
    return ConfigError(" ".join(text.split("\n\n")[0].split()) or type(error).__name__)


def _unknown_option(group: str, option: str, extra: Path | None) -> ConfigError:
    """Say that a group has no such option; ``extra``: a folder that may add options."""
    top = group.partition("/")[0]
    wanted = f"{group}/{option}".removeprefix(top + "/")
    if wanted in _LAUNCHERS:
        package = f"fedpriv[{_LAUNCHERS[wanted]}]"
        return ConfigError(f"{group}={option} is not installed: pip install '{package}'")
    known = [name for name, _ in options(top)]
    known += [name for name, _ in options(top, extra)] if extra else []
    if not known:
        return _unknown("group", top, GROUPS)
    return _unknown(f"{top} option", wanted, known)


def config_dir_of(arguments: Sequence[str]) -> Path | None:
    """The folder given with Hydra's ``--config-dir`` (``-cd``), if any."""
    for flag, value in itertools.pairwise([*arguments, ""]):
        if flag in ("--config-dir", "-cd"):
            return Path(value)
        if flag.startswith("--config-dir="):
            return Path(flag.partition("=")[2])
    return None


def _unreadable(override: str) -> ConfigError:
    return ConfigError(
        f"cannot read the override {show(override)}; write key=value, and quote values with special "
        "characters: 'key=\"a, b\"'"
    )


def _unknown(kind: str, name: str, known: Sequence[str]) -> ConfigError:
    meant = did_you_mean(name, known, "; ")
    return ConfigError(f"unknown {kind} {show(name)}{meant} (known: {', '.join(known)})")


def _unknown_key(name: str, overrides: Sequence[str]) -> ConfigError:
    """The nearest key of its group where the group is known, else the nearest of all."""
    if name in GROUPS:
        known = ", ".join(option for option, _ in options(name))
        return ConfigError(f"{name} is a group: {name}=OPTION chooses one of {known}")
    if name in ADDED:
        return ConfigError(f"{name} is added with a plus: +{name}=…")
    group, _, own = name.rpartition(".")
    if own in _UNIT and group in ("", "algorithm"):
        return ConfigError(f"unknown key {show(name)}: {WHO_PROTECTS}")
    if name.startswith("hydra."):
        near = nearest(name, _OF_HYDRA)
        meant = f"; did you mean {near}?" if near else ""
        return ConfigError(f"unknown key {show(name)}{meant}")
    keys = _known_keys(overrides)
    inside = [
        key.removeprefix(f"{group}.") for key in keys if group and key.startswith(f"{group}.")
    ]
    if inside:
        elsewhere = [key for key in keys if key.endswith(f".{own}")]
        return unknown_key(group, own, inside, elsewhere)
    top, _, rest = name.partition(".")
    if rest and top in _MAY_BE_NONE:
        return ConfigError(
            f"{top}={OF_NOTHING[top]} has no key {rest}; choose {_MAY_BE_NONE[top]} as well: {top}=…"
        )
    if rest and top in _OF_PRIVATE:
        return ConfigError(
            f"unknown key {show(name)}: the {top} of this configuration has no keys; leave it out, or choose "
            f"one that has it: {top}=…"
        )
    near = _called_otherwise(own, keys) or nearest(name, keys)
    meant = f"; did you mean {near}?" if near else ""
    return ConfigError(f"unknown key {show(name)}{meant}")


_LAUNCHERS = {
    "launcher/submitit_slurm": "slurm", "launcher/submitit_local": "slurm", "launcher/ray": "ray",
    "launcher/ray_aws": "ray",
}  # fmt: skip
"""Options of Hydra's plug-ins, and the extra that brings them."""

_OF_PRIVATE = ("noise_schedule", "clipper")
"""Groups whose option ``none`` is that of algorithms without privacy."""
_MAY_BE_NONE = {
    "attack": "an attack", "features": "some", "tracker": "a tracker", "aggregation": "a rule",
}  # fmt: skip
"""The groups that may have no keys."""
_OF_HYDRA = (
    "hydra.run.dir", "hydra.sweep.dir", "hydra.sweep.subdir", "hydra.mode", "hydra.verbose",
    "hydra.launcher.n_jobs", "hydra.sweeper.max_batch_size", "hydra.sweeper.params", "hydra.job.name",
    "hydra.sweeper.trials", "hydra.sweeper.stopping", "hydra.sweeper.sampler",
)  # fmt: skip
"""The keys of Hydra that commands of fedpriv have, for suggestions."""
_CALLED = {
    "lr": "learning_rate", "eta": "learning_rate", "sigma": "noise_multiplier", "z": "noise_multiplier",
    "C": "clip_norm", "S": "clip_norm", "clip": "clip_norm", "clip_norm": "initial_clip_norm",
    "max_grad_norm": "clip_norm", "q": "sample_rate", "eps": "epsilon", "T": "rounds", "steps": "rounds",
    "epochs": "local_epochs", "K": "clients", "m": "clients_per_round", "num_clients": "clients",
    "n_clients": "clients", "batch_size": "sample_rate",
}  # fmt: skip
"""What keys are called elsewhere: symbols of papers, names of other libraries."""


_UNIT = ("unit", "level", "privacy_unit", "privacy_level", "granularity")
CLIENT_LEVEL = ("ldp_fedsgd", "cdp_fedavg", "ddp_fedavg", "dp_ftrl", "naseri_cdp")
EITHER_LEVEL = ("wei_cdp", "wei_crd")
"""Client level with ``algorithm.sensitivity=weights`` or ``update``, else record level."""
RECORD_LEVEL = (
    "adap_dpfl",
    "dp_fl",
    "dp_fl_server",
    "dp_scaffold",
    "naseri_ldp",
    "wei_cdp_optimal",
)
WHO_PROTECTS = (
    f"the algorithm sets it; client level: algorithm={', '.join(CLIENT_LEVEL)}, or "
    f"{', '.join(EITHER_LEVEL)} with algorithm.sensitivity=update or weights; record level: "
    f"{', '.join((*RECORD_LEVEL, *EITHER_LEVEL))}"
)


def _called_otherwise(name: str, known: Sequence[str]) -> str | None:
    """The key that has this name, or what the name stands for, as its last part."""
    wanted: str | None = name
    while wanted is not None:
        if found := [key for key in known if key.rpartition(".")[2] == wanted]:
            return found[0]
        wanted = _CALLED.get(wanted)
    return None


def unknown_key(
    group: str, name: str, inside: Sequence[str], elsewhere: Sequence[str] = ()
) -> ConfigError:
    """A key ``group.name`` that is not among those ``inside`` the group; ``elsewhere``: keys of other
    groups with that name."""
    if group == "algorithm" and name in _UNIT:
        return ConfigError(f"unknown key {group}.{name}: {WHO_PROTECTS}")
    ends = {key.rpartition(".")[2]: key for key in reversed(inside)}
    # all of them are shown: only a likely one is meant
    near = _called_otherwise(name, list(ends)) or nearest(name, ends, cutoff=0.6)
    meant = [f"{group}.{ends[near]}"] if near else elsewhere[:1]
    hint = f"; did you mean {meant[0]}?" if meant else ""
    return ConfigError(f"unknown key {group}.{name}{hint} ({group} has: {', '.join(inside)})")


def _known_keys(overrides: Sequence[str]) -> list[str]:
    """All keys of the configuration that the group choices among ``overrides`` give."""
    choices = [o for o in overrides if o.partition("=")[0].lstrip("+") in (*GROUPS, *ADDED)]
    try:
        config = compose([c for c in choices if "," not in c], config_dir_of(overrides))
    except Exception:
        config = compose()
    flat = flatten(as_tree(config, resolve=False))
    keys = (key for key in flat if not key.endswith("_target_") and not key.startswith("protocol."))
    return [*GROUPS, *keys]


NOT_IDENTITY = (
    "runtime", "tracker", "dry_run", "resume", "protocol", "dataset.path", "dataset.download",
)  # fmt: skip
"""Keys that cannot change a result (``protocol`` only through the keys that read it).

``dataset.path`` is one where files can be downloaded, so that checksums say what they hold; else
the path is the data set.
"""


def identity(config: DictConfig) -> dict[str, object]:
    """What makes a run that run: the resolved values of all keys that can change a result."""
    return identity_of_values(flatten(as_tree(config)))


def identity_of_values(values: Mapping[str, object]) -> dict[str, object]:
    """The identity of the run whose resolved configuration has these values, by their dotted keys."""
    left_out = [
        out for out in NOT_IDENTITY if out != "dataset.path" or "dataset.download" in values
    ]
    return {
        key: value
        for key, value in values.items()
        if not any(key == out or key.startswith(out + ".") for out in left_out)
    }


def run_name(config: DictConfig, identity: Mapping[str, object]) -> str:
    """The name of a run's folder in a store: algorithm, data set, seed, fingerprint."""
    dataset = str(config.dataset._target_).rpartition(".")[2].lower()
    return f"{config.algorithm.name}-{dataset}-seed{identity['seed']}-{fingerprint(identity)}"


def fingerprint(identity: Mapping[str, object]) -> str:
    """Twelve hexadecimal digits that stand for an identity.

    Keys that are null do not count, so a key added later with default null leaves the fingerprints
    of earlier runs alone; 2 and 2.0 are the same number.
    """
    counted = {key: _plain_number(value) for key, value in identity.items() if value is not None}
    text = json.dumps(counted, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _plain_number(value: object) -> object:
    if isinstance(value, (list, tuple)):
        return [_plain_number(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def as_tree(config: DictConfig, *, resolve: bool = True) -> dict[str, object]:
    """Return a configuration as plain dicts, lists and values."""
    return cast("dict[str, object]", OmegaConf.to_container(config, resolve=resolve))


def flatten(tree: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    """``{"a": {"b": 1}}`` → ``{"a.b": 1}``."""
    flat: dict[str, object] = {}
    for key, value in tree.items():
        if isinstance(value, dict):
            flat.update(flatten(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def dump(config: DictConfig) -> str:
    """The resolved configuration as YAML."""
    return yaml.safe_dump(OmegaConf.to_container(config, resolve=True), sort_keys=False)
