"""Composition of the configuration by Hydra, the identity of a run, and messages for mistyped arguments."""

from __future__ import annotations

import hashlib
import importlib
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import cast

import yaml
from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException, OverrideParseException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from fedpriv.common.errors import (
    ConfigError,
    did_you_mean,
    nearest,
    nearest_key,
    show,
    unreadable_override,
)
from fedpriv.common.groups import (
    ADDED,
    GROUPS,
    LISTED,
    OF_NOTHING,
    conf_dir,
    options,
    table_options,
    table_rows,
)
from fedpriv.common.own_targets import (
    config_dir_of,
    key_of_own_target,
    own_yaml_hint,
    unknown_entry,
)


def compose(overrides: Sequence[str] = (), config_dir: str | Path | None = None) -> DictConfig:
    """Return the configuration that ``fedpriv train <overrides>`` would run; for notebooks and tests.

    Args:
        overrides: Arguments as on the command line, such as ``algorithm=dp_fl``.
        config_dir: Folder with the user's own YAML files, as for ``--config-dir``.

    Raises:
        ConfigError: The arguments cannot be composed; the message names the nearest option or key.

    Example:
        >>> compose(["algorithm=dp_fl", "dataset=mnist"]).algorithm.sample_rate
        0.013
    """
    if isinstance(overrides, str):
        allowed = f"a list of texts, such as [{overrides!r}]"
        raise ConfigError("overrides", overrides, allowed)
    if config_dir is not None:
        if not Path(config_dir).is_dir():
            raise ConfigError("config_dir", str(config_dir), "an existing folder")
        path = str(Path(config_dir).resolve()).replace("'", "\\'")
        overrides = [*overrides, f"hydra.searchpath=['file://{path}']"]
    refuse_unknown_protocol(overrides)
    try:
        initialized = GlobalHydra.instance().is_initialized()
        folder = str(conf_dir())
        with nullcontext() if initialized else initialize_config_dir(folder, version_base="1.3"):
            return with_protocol(hydra_compose(config_name="config", overrides=list(overrides)))
    except (HydraException, OmegaConfBaseException, yaml.YAMLError) as error:
        raise explain(error, overrides) from None


def _records_at_most(most: int, *, _root_: DictConfig, _parent_: DictConfig) -> int:
    """Resolve ``${records_at_most:most}``: the smaller of ``most`` and the records of a client.

    The number of records is known here only for data sets of fedpriv with a fixed size. For any other data
    set the result is ``most``.
    """
    target = (_root_.get("dataset") or {}).get("_target_")
    module, _, name = str(target).rpartition(".")
    clients = _parent_.clients
    if not module.startswith("fedpriv.data.") or type(clients) is not int or clients < 1:
        return most
    try:
        records = getattr(importlib.import_module(module), name).train_records
        share = (records - _root_.dataset.validation_records) // clients
    except (ImportError, AttributeError, TypeError, OmegaConfBaseException):
        return most  # the number of records is known only once the files are read
    return max(1, min(most, share))


OmegaConf.register_new_resolver("records_at_most", _records_at_most, replace=True)


def refuse_unknown_protocol(overrides: Sequence[str]) -> None:
    """Raise ConfigError for ``protocol=NAME`` with an unknown name, which Hydra would ignore."""
    _refuse_odd_preset(overrides)
    known = [name for name, _ in options("protocol")]
    extra = config_dir_of(overrides)
    known += [name for name, _ in options("protocol", extra)] if extra else []
    for override in overrides:
        key, _, name = override.partition("=")
        if key == "protocol" and name not in (*known, "null"):
            raise _unknown("protocol", name, known)


def _refuse_odd_preset(overrides: Sequence[str]) -> None:
    """Raise ConfigError for several presets, of which Hydra would silently use the last, or an empty one."""
    given = [o.partition("=") for o in overrides if o.startswith(("+recipe=", "+experiment="))]
    for key, _, value in given:
        if value in ("", "null") or value.startswith("["):
            allowed = f"one option; see fedpriv list {key[1:]}"
            raise ConfigError(key, value, allowed)
    if len(given) > 1:
        both = " and ".join(f"{key}={value}" for key, _, value in given[:2])
        raise ConfigError(f"{both} are two ready-made configurations; give one")


def with_protocol(config: DictConfig) -> DictConfig:
    """Return the configuration with the numbers of the protocol that it names, if it names one.

    A user's own algorithm has no row in ``conf/protocols.yaml``. Its YAML may name the algorithm whose
    numbers it takes (``protocol: dp_fl``). If that algorithm has no numbers for the data set, the defaults
    hold.

    Raises:
        ConfigError: The named algorithm has no protocols.
    """
    algorithm = config.get("protocol")
    if not isinstance(algorithm, str):
        return config
    protocols = table_rows(conf_dir(), "protocol")
    if algorithm not in protocols:
        hint = did_you_mean(algorithm, list(protocols))
        raise ConfigError("protocol", algorithm, f"one of {', '.join(sorted(protocols))}", hint)
    merged = config.copy()
    OmegaConf.set_struct(merged, False)
    merged.protocol = {}
    for dataset in protocols[algorithm]:
        target = yaml.safe_load((conf_dir() / "dataset" / f"{dataset}.yaml").read_text("utf-8"))
        if target["dataset"]["_target_"] == config.dataset.get("_target_"):
            option = table_options(conf_dir(), "protocol")[f"{algorithm}_{dataset}"]
            merged.protocol = option.content
    OmegaConf.set_struct(merged, True)
    return merged


def explain(error: Exception, overrides: Sequence[str]) -> ConfigError:
    """Return a failure of Hydra or OmegaConf to compose as one sentence, with the nearest known name.

    Args:
        error: The exception. Its text alone says what is wrong, so the text is matched.
        overrides: The arguments that could not be composed.
    """
    text = str(error)
    if "hydra/sweeper@" in text:
        return ConfigError("a figure's YAML begins with the line  # @package _global_")
    if match := re.search(r"Could not (?:find|load) '([^']+)/([^'/]+)'", text):
        return _unknown_option(match[1], match[2], overrides)
    if match := re.search(r"Could not (?:override|append to config.+key) '([^']+)'", text):
        unknown = key_of_own_target(match[1], overrides) or _unknown_key(match[1], overrides)
        return _blaming(unknown, match[1], overrides)
    if match := re.search(
        r"Multiple values for (\w+)|config groups is not supported: '\+\+(\w+)=", text
    ):
        group = match[1] or match[2]
        several = ConfigError(f"{group} has an option already; write {group}=OPTION without +")
        return _blaming(several, group, overrides)
    if match := re.search(r"Ambiguous value for argument '(.+)'", text):
        several = ConfigError(
            f"{match.group(1)} gives several values; add -m to sweep over them, or write a list as "
            "key=[a,b]"
        )
        return _blaming(several, match.group(1).partition("=")[0], overrides)
    if isinstance(error, OverrideParseException):
        return unreadable_override(error.override)
    if deleted := _wrongly_deleted(text, overrides):
        return deleted
    # Hydra does not say which group got a number or a list.
    if "Config group override must be" in text:
        chosen = [override.lstrip("+").partition("=") for override in overrides]
        for group, _, value in (choice for choice in chosen if choice[0] in GROUPS):
            known = [name for name, _ in options(group)]
            if value not in known and not config_dir_of(overrides):
                return _blaming(_unknown(f"{group} option", value, known), group, overrides)
    if nameless := [override for override in overrides if override.lstrip("+~").startswith("=")]:
        return unreadable_override(nameless[0])
    return ConfigError(" ".join(text.split("\n\n")[0].split()) or type(error).__name__)


def _blaming(
    error: ConfigError, key: str, overrides: Sequence[str], meant: str | None = None
) -> ConfigError:
    """Return the error, which blames the overrides of a key.

    Args:
        error: The error.
        key: The key or group.
        overrides: The arguments.
        meant: The override that was probably meant.
    """
    wrong = [o for o in overrides if re.split("[=@]", o.lstrip("+~"), maxsplit=1)[0] == key]
    error.blamed = dict.fromkeys(wrong, meant)
    return error


def _wrongly_deleted(text: str, overrides: Sequence[str]) -> ConfigError | None:
    """Return the error for a deletion (``~key``) of what does not exist or must not be deleted."""
    match = re.search(r"Could not delete from config\. '([^']+)' does not exist", text)
    if match:
        key = match[1]
        near = did_you_mean(key, [k for k in _known_keys(overrides) if k != key], "; ")
        return _blaming(
            ConfigError(f"~{key} deletes a key that does not exist{near}"), key, overrides
        )
    gone = [o[1:] for o in overrides if o.startswith("~") and o[1:].partition("=")[0] in GROUPS]
    if not gone:
        return None
    group = gone[0].partition("=")[0]
    return _blaming(needed_group(group), group, overrides)


def needed_group(group: str) -> ConfigError:
    """Return the error for a group that was deleted or set to null."""
    names = list(dict(options(group)))
    remedy = f"; {group}=none switches it off" if "none" in names else ""
    return ConfigError(
        f"{group} was deleted (~) or set to null, and every run needs one of {', '.join(names)}: "
        f"{group}=OPTION{remedy}"
    )


def _unknown_option(group: str, option: str, overrides: Sequence[str]) -> ConfigError:
    """Return the error for an unknown option of a group."""
    base_group = group.partition("/")[0]
    name = f"{group}/{option}".removeprefix(base_group + "/")
    if name in _LAUNCHERS:
        return ConfigError(
            f"{group}={option} is not installed: pip install 'fedpriv[{_LAUNCHERS[name]}]'"
        )
    known = list(dict([*options(base_group), *options(base_group, config_dir_of(overrides))]))
    if not known:
        return _blaming(_unknown("group", base_group, GROUPS), base_group, overrides)
    near = nearest(name, known)
    meant = f"{'+' * (base_group in ADDED)}{base_group}={near}" if near else None
    hint = "" if config_dir_of(overrides) else own_yaml_hint(base_group, name, near)
    error = _unknown(f"{base_group} option", name, known, hint)
    return _blaming(error, base_group, overrides, meant)


_MOST_NAMES = 20  # of known names in a message


def _unknown(kind: str, name: str, known: Sequence[str], hint: str = "") -> ConfigError:
    meant, group = did_you_mean(name, known, "; "), kind.removesuffix(" option")
    if group == "model" and "." in name:
        meant = f"; a torch module of your own is model._target_={name}"
    listed = f"known: {', '.join(known)}"
    if len(known) > _MOST_NAMES and group in LISTED:
        listed = f"{len(known)} are known: fedpriv list {group}"
    return ConfigError(f"unknown {kind} {show(name)}{meant} ({listed}){hint}")


def _unknown_key(name: str, overrides: Sequence[str]) -> ConfigError:
    """Return the error for an unknown key, with a hint.

    The hint is the nearest key of the same group if the group is known, else the nearest of all keys.
    """
    if name in GROUPS:
        return ConfigError(
            f"{name} is a group: {name}=OPTION chooses one of {', '.join(dict(options(name)))}"
        )
    if name in ADDED:
        return ConfigError(f"{name} is added with a plus: +{name}=…")
    group, _, leaf = name.rpartition(".")
    if leaf in _UNIT_NAMES and group in ("", "algorithm"):
        return ConfigError(f"unknown key {show(name)}: {WHO_PROTECTS}")
    if name.startswith("hydra."):
        return ConfigError(f"unknown key {show(name)}{did_you_mean(name, _HYDRA_KEYS, '; ')}")
    keys = _known_keys(overrides)
    # Whoever types learning_rate means that of the algorithm, not that of the warm start.
    if not name.startswith("warm_start"):
        keys = [key for key in keys if not key.startswith("warm_start.")]
    if entries := [k.removeprefix(f"{name}.") for k in keys if k.startswith(f"{name}.")]:
        return unknown_entry(name, entries, overrides)
    inside = [k.removeprefix(f"{group}.") for k in keys if group and k.startswith(f"{group}.")]
    if inside:
        owner = [group, *(o for o in overrides if o.startswith(f"{group}="))][-1]
        return unknown_key(group, leaf, inside, [k for k in keys if k.endswith(f".{leaf}")], owner)
    top, _, subkey = name.partition(".")
    if subkey and top in _MAY_BE_NONE:
        return ConfigError(
            f"{top}={OF_NOTHING[top]} has no key {subkey}; choose {_MAY_BE_NONE[top]} as well: {top}=…"
        )
    if subkey and top in _ONLY_PRIVATE:
        return ConfigError(
            f"unknown key {show(name)}: the {top} of this configuration has no keys; leave it out, or choose "
            f"one that has it: {top}=…"
        )
    if near := _by_synonym(leaf, keys) or nearest_key(name, keys):
        return ConfigError(f"unknown key {show(name)}; did you mean {near}?")
    return ConfigError(f"unknown key {show(name)}")


_LAUNCHERS = {
    "launcher/submitit_slurm": "slurm", "launcher/submitit_local": "slurm", "launcher/ray": "ray",
    "launcher/ray_aws": "ray",
}  # fmt: skip
"""Options of Hydra's plug-ins → the extra of fedpriv that installs the plug-in."""

_ONLY_PRIVATE = ("noise_schedule", "clipper")
"""Groups that algorithms without privacy set to ``none``."""
_MAY_BE_NONE = {
    "attack": "an attack", "features": "some", "tracker": "a tracker", "aggregation": "a rule",
}  # fmt: skip
"""Groups that may be ``none`` and then have no keys → the words for another choice."""
_HYDRA_KEYS = (
    "hydra.sweep.dir", "hydra.sweep.subdir", "hydra.mode", "hydra.verbose",
    "hydra.launcher.n_jobs", "hydra.sweeper.max_batch_size", "hydra.sweeper.params", "hydra.job.name",
    "hydra.sweeper.trials", "hydra.sweeper.stopping", "hydra.sweeper.sampler",
)  # fmt: skip
"""Keys of Hydra that a user of fedpriv may set, for suggestions."""
_SYNONYMS = {
    "lr": "learning_rate", "eta": "learning_rate", "sigma": "noise_multiplier", "z": "noise_multiplier",
    "C": "clip_norm", "S": "clip_norm", "clip": "clip_norm", "clip_norm": "initial_clip_norm",
    "max_grad_norm": "clip_norm", "q": "sample_rate", "eps": "epsilon", "T": "rounds", "steps": "rounds",
    "epochs": "local_epochs", "K": "clients", "m": "clients_per_round", "num_clients": "clients",
    "n_clients": "clients", "batch_size": "sample_rate", "clipnorm": "clip_norm", "local_epochs": "rounds",
    "num_epochs": "epochs", "num_rounds": "rounds", "gpu": "device", "cuda": "device", "budget": "epsilon",
    "data_dir": "path", "output": "output_dir", "out": "output_dir", "noise": "noise_multiplier",
    "noise_scale": "noise_multiplier", "l2_norm_clip": "clip_norm", "workers": "threads",
    "batch": "sample_rate",
}  # fmt: skip
"""Symbols of papers and names of other libraries → the key of fedpriv."""


_UNIT_NAMES = ("unit", "level", "privacy_unit", "privacy_level", "granularity")
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


def _by_synonym(name: str, known: Sequence[str]) -> str | None:
    """Return the first known key whose last part is this name or a synonym of it; None without any."""
    candidate: str | None = name
    while candidate is not None:
        if matches := [key for key in known if key.rpartition(".")[2] == candidate]:
            return matches[0]
        candidate = _SYNONYMS.get(candidate)
    return None


def unknown_key(
    group: str, name: str, inside: Sequence[str], elsewhere: Sequence[str] = (), owner: str = ""
) -> ConfigError:
    """Return the error for a key ``group.name`` that does not exist, with the nearest key.

    Args:
        group: The group.
        name: The unknown name.
        inside: Names of the keys of the group.
        elsewhere: Keys of other groups with the name.
        owner: What has the keys, such as ``attack=alie``; by default the group.
    """
    if group == "algorithm" and name in _UNIT_NAMES:
        return ConfigError(f"unknown key {group}.{name}: {WHO_PROTECTS}")
    ends = {key.rpartition(".")[2]: key for key in reversed(inside)}
    # The message lists all keys of the group anyway, so only a very similar name is suggested.
    near = _by_synonym(name, list(ends)) or nearest(name, ends, cutoff=0.6)
    suggestions = [f"{group}.{ends[near]}"] if near else elsewhere[:1]
    hint = f"; did you mean {suggestions[0]}?" if suggestions else ""
    known = f"{owner or group} has: {', '.join(inside)}"
    return ConfigError(f"unknown key {group}.{name}{hint} ({known})")


def _known_keys(overrides: Sequence[str]) -> list[str]:
    """Return all keys of the configuration with the options that ``overrides`` choose."""
    choices = [
        override
        for override in overrides
        if override.partition("=")[0].lstrip("+") in (*GROUPS, *ADDED)
    ]
    try:
        config = compose(
            [choice for choice in choices if "," not in choice], config_dir_of(overrides)
        )
    except Exception:
        config = compose()
    flat = flatten(as_tree(config, resolve=False))
    keys = (key for key in flat if not key.endswith("_target_") and not key.startswith("protocol."))
    return [*GROUPS, *keys]


NOT_IDENTITY = (
    "runtime", "tracker", "dry_run", "resume", "protocol", "dataset.path", "dataset.download",
)  # fmt: skip
"""Keys that cannot change a result. ``protocol`` changes results only through the keys that read it.

``dataset.path`` belongs here only for data sets that can be downloaded, because checksums then fix the
content of the files. For other data sets the path is the data set.
"""


def identity(config: DictConfig) -> dict[str, object]:
    """Return the identity of a run: the resolved values of all keys that can change a result."""
    return identity_of_values(flatten(as_tree(config)))


def identity_of_values(values: Mapping[str, object]) -> dict[str, object]:
    """Return the identity of a run: the values without the keys of ``NOT_IDENTITY``, which change no result.

    Args:
        values: The resolved configuration, by dotted key.
    """
    left_out = [
        excluded
        for excluded in NOT_IDENTITY
        if excluded != "dataset.path" or "dataset.download" in values
    ]
    return {
        key: value
        for key, value in values.items()
        if not any(key == excluded or key.startswith(excluded + ".") for excluded in left_out)
    }


def run_name(config: DictConfig, identity: Mapping[str, object]) -> str:
    """Return the name of a run's folder in a store: algorithm, data set, seed and fingerprint."""
    dataset = str(config.dataset._target_).rpartition(".")[2].lower()
    return f"{config.algorithm.name}-{dataset}-seed{identity['seed']}-{fingerprint(identity)}"


def fingerprint(identity: Mapping[str, object]) -> str:
    """Return the twelve hexadecimal digits that stand for an identity.

    Null keys do not count, so a key that is added later with default null does not change the fingerprints of
    earlier runs. The numbers 2 and 2.0 count as equal.
    """
    counted = {key: _plain_number(value) for key, value in identity.items() if value is not None}
    text = json.dumps(counted, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _plain_number(value: object) -> object:
    if isinstance(value, (list, tuple)):
        return [_plain_number(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def as_tree(config: DictConfig, *, resolve: bool = True) -> dict[str, object]:
    """Return a configuration as plain dicts, lists and values; ``resolve`` replaces interpolations."""
    return cast("dict[str, object]", OmegaConf.to_container(config, resolve=resolve))


def flatten(tree: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    """Return the values of nested dicts by dotted key.

    >>> flatten({"a": {"b": 1}})
    {'a.b': 1}
    """
    flat: dict[str, object] = {}
    for key, value in tree.items():
        if isinstance(value, dict):
            flat.update(flatten(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def dump(config: DictConfig) -> str:
    """Return the resolved configuration as YAML."""
    return yaml.safe_dump(as_tree(config), sort_keys=False)
