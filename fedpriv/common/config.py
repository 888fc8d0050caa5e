"""Composition of the configuration by Hydra, the identity of a run, and messages for mistyped arguments."""

from __future__ import annotations

import hashlib
import importlib
import itertools
import json
import re
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import cast

import yaml
from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.core.singleton import Singleton
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from hydra.version import VersionBase
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException

from fedpriv.common.errors import ConfigError, did_you_mean, nearest, show
from fedpriv.common.groups import (
    ADDED,
    GROUPS,
    LISTED,
    OPTION,
    TARGET,
    conf_dir,
    options,
    stated_option,
    table_options,
    table_rows,
)
from fedpriv.common.words import in_short


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
    # A Hydra application that calls this has a configuration of its own, which it gets back.
    around = {kind: Singleton._instances.pop(kind, None) for kind in (GlobalHydra, VersionBase)}
    try:
        with initialize_config_dir(str(conf_dir()), version_base="1.3"):
            return with_protocol(hydra_compose(config_name="config", overrides=list(overrides)))
    except (HydraException, OmegaConfBaseException, yaml.YAMLError) as error:
        raise explain(error, overrides) from None
    finally:
        Singleton._instances |= {kind: one for kind, one in around.items() if one is not None}


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


def _enough_bit_noise(usual: float, *, _root_: DictConfig, _parent_: DictConfig) -> object:
    """Resolve ``${enough_bit_noise:usual}``: the usual σ_b, or the noise multiplier z where split needs more.

    Noise σ_b = z on the bits leaves 2/√3 of z for the gradient.
    """
    sigma = OmegaConf.select(_root_, "noise_schedule.noise_multiplier")
    splits = _parent_.split is True and _parent_.get("bit_mechanism", "gaussian") == "gaussian"
    return sigma if splits and isinstance(sigma, int | float) and sigma >= 2 * usual else usual


def weights_file(path: str) -> Path:
    """Return the file of weights that a key names: a file, or the model of a run folder."""
    file = Path(path).expanduser()
    return file / "model.pt" if file.is_dir() else file


def file_digest(path: str | Path | None) -> str | None:
    """Resolve ``${sha256_of:path}``: the SHA-256 of a file of weights, or None if it cannot be read."""
    with suppress(OSError, ValueError):
        file = weights_file(str(path or ""))
        return _digest(file, file.stat().st_mtime_ns)
    return None


@lru_cache(maxsize=8)  # a configuration is resolved several times in a run
def _digest(file: Path, state: int) -> str:
    with open(file, "rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


OmegaConf.register_new_resolver("records_at_most", _records_at_most, replace=True)
OmegaConf.register_new_resolver("enough_bit_noise", _enough_bit_noise, replace=True)
OmegaConf.register_new_resolver("sha256_of", file_digest, replace=True)


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
    hold. A YAML of the user's own that takes over ``csv`` has the numbers of ``csv``.

    Raises:
        ConfigError: The named algorithm has no protocols.
    """
    algorithm = config.get("protocol")
    if not isinstance(algorithm, str):
        name = f"{OmegaConf.select(config, 'algorithm._option_')}_csv"
        row = table_options(conf_dir(), "protocol").get(name)
        if row is not None and OmegaConf.select(config, "dataset._option_") == "csv":
            config = config.copy()
            OmegaConf.set_struct(config, False)
            config.protocol = OmegaConf.merge(row.content, algorithm)  # what is given comes first
            OmegaConf.set_struct(config, True)
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
        error: The exception.
        overrides: The arguments that could not be composed.
    """
    if isinstance(error, OverrideParseException):
        return _unreadable(error.override)
    if isinstance(error, MissingConfigException):
        return _unknown_option(error.missing_cfg_file or "", overrides)
    for override in filter(None, map(_parsed, overrides)):
        if (wrong := _wrong(override, overrides)) is not None:
            return wrong
    if isinstance(error.__cause__, ConfigAttributeError | ConfigKeyError):
        return _unknown_key(str(error.__cause__.full_key), overrides)
    text = str(error) or str(error.__cause__)
    return ConfigError(" ".join(text.split("\n\n")[0].split()) or type(error).__name__)


def _parsed(word: str) -> Override | None:
    """Return an override as Hydra parses it; None for a flag and for other words of a command line."""
    try:
        return OverridesParser.create().parse_override(word)
    except HydraException:
        return None


def _wrong(override: Override, overrides: Sequence[str]) -> ConfigError | None:
    """Return what is wrong with one override by itself; None if nothing is."""
    key, value, text = override.key_or_group, override.value(), show(override.input_line)
    if not key:
        return _unreadable(text)
    if override.is_sweep_override():
        several = (
            f"{text} gives several values; add -m to sweep over them, or write a list as key=[a,b]"
        )
        return None if MULTIRUN & set(overrides) else ConfigError(several)
    if key in (*GROUPS, *ADDED) and not isinstance(value, str | list):
        return _unknown(f"{key} option", text.partition("=")[2], list(dict(options(key))))
    return None


MULTIRUN = {"-m", "--multirun", "hydra.mode=MULTIRUN"}
"""Words that make a command a sweep."""


def _unreadable(override: str) -> ConfigError:
    key, _, value = override.partition("=")
    # Texts are quoted, but in a mapping Hydra takes names with backslashes only.
    text = re.compile(r"""(?<=[\[{,:])\s*(?:"([^"]*)"|'([^']*)'|([^\[\]{},:'"]+))\s*(?=[\]},:])""")

    def mended(found: re.Match[str]) -> str:
        word = next(filter(None, found.groups()), "").strip()
        if found.string[found.end()] == ":":
            return " " + re.sub(r"([\\()=,\[\]{}:])", r"\\\1", word)
        is_plain = found[3] is not None and re.fullmatch(r"[-+\w./ ]+", word)
        return f" {word}" if is_plain else f' "{word}"'

    inside = value.startswith(("[", "{"))
    fixed = f"{key}=" + (
        text.sub(mended, value).replace("[ ", "[").replace("{ ", "{") if inside else f'"{value}"'
    )
    if "=" in override and _parsed(fixed) is not None:
        return ConfigError(f"cannot read the override {show(override)}; write {shlex.quote(fixed)}")
    return ConfigError(
        f"cannot read the override {show(override)}; write key=value, and quote values with special "
        "characters: 'key=\"a, b\"'; a list or mapping may be written in a YAML (--config-dir)"
    )


def _unknown_option(path: str, overrides: Sequence[str]) -> ConfigError:
    """Return the error for an unknown option; ``path``: of the file that Hydra did not find."""
    group, _, name = path.partition("/")
    if name in _LAUNCHERS:
        return ConfigError(
            f"{group}/{name.replace('/', '=')} is not installed: in the clone of fedpriv, "
            f"pip install '.[{_LAUNCHERS[name]}]'"
        )
    folder = config_dir_of(overrides)
    known = list(dict([*options(group), *options(group, folder)]))
    if not known:
        return _unknown("group", group, GROUPS)
    hint = (
        ""
        if folder or nearest(name, known, cutoff=0.8)
        else "; YAMLs of your own need --config-dir FOLDER"
    )
    return _unknown(f"{group} option", name, known, hint)


_MOST_NAMES = 20  # of known names in a message


def _unknown(kind: str, name: str, known: Sequence[str], hint: str = "") -> ConfigError:
    meant, group = did_you_mean(name, known, "; "), kind.removesuffix(" option")
    listed = f"known: {', '.join(known)}"
    if len(known) > _MOST_NAMES and group in LISTED:
        listed = f"{len(known)} are known: fedpriv list {group}"
    return ConfigError(f"unknown {kind} {show(name) or 'nothing'}{meant} ({listed}){hint}")


def _unknown_key(name: str, overrides: Sequence[str]) -> ConfigError:
    """Return the error for an unknown key, with the nearest key of its group, else the nearest of all."""
    group, _, leaf = name.rpartition(".")
    if any(o.startswith(f"{group}._target_=") for o in overrides):
        return ConfigError(
            f"unknown key {show(name)}: a key that the YAML does not have is added with a plus: "
            f"+{show(name)}=VALUE"
        )
    keys = _known_keys(overrides)
    # Whoever types learning_rate means that of the algorithm, not that of the warm start.
    if not name.startswith("warm_start"):
        keys = [key for key in keys if not key.startswith("warm_start.")]
    if inside := [k.removeprefix(f"{group}.") for k in keys if group and k.startswith(f"{group}.")]:
        return unknown_key(group, leaf, inside, keys)
    if group.partition(".")[0] in GROUPS:
        top = group.partition(".")[0]
        return ConfigError(
            f"unknown key {name}: this {top} has no keys; {top}=OPTION takes another"
        )
    near = _by_synonym(leaf, keys) or nearest(name, keys)
    return ConfigError(f"unknown key {show(name)}" + (f"; did you mean {near}?" if near else ""))


_LAUNCHERS = {
    "launcher/submitit_slurm": "slurm", "launcher/submitit_local": "slurm", "launcher/ray": "ray",
    "launcher/ray_aws": "ray",
}  # fmt: skip
"""Options of Hydra's plug-ins → the extra of fedpriv that installs the plug-in."""
_SYNONYMS = {
    "lr": "learning_rate", "sigma": "noise_multiplier", "z": "noise_multiplier", "c": "clip_norm",
    "clip": "clip_norm", "maxgradnorm": "clip_norm", "clipnorm": "initial_clip_norm", "q": "sample_rate",
    "batchsize": "sample_rate", "eps": "epsilon", "t": "rounds", "steps": "rounds", "epochs": "rounds",
    "numclients": "clients", "gpu": "device",
}  # fmt: skip
"""Symbols of papers and names of other libraries, without underscores → the key of fedpriv."""


def _by_synonym(name: str, known: Sequence[str]) -> str | None:
    """Return the first known key whose last part is this name or a synonym of it; None without any."""
    candidate: str | None = name
    while candidate is not None:
        if matches := [key for key in known if key.rpartition(".")[2] == candidate]:
            return matches[0]
        candidate = _SYNONYMS.get(candidate.lower().replace("_", ""))
    return None


def unknown_key(
    group: str, name: str, inside: Sequence[str], keys: Sequence[str] = ()
) -> ConfigError:
    """Return the error for a key ``group.name`` that does not exist, with the nearest key.

    Args:
        group: The group.
        name: The unknown name.
        inside: Names of the keys of the group.
        keys: Keys of all groups, one of which may have the name.
    """
    near = _by_synonym(name, inside) or nearest(name, inside)
    meant = [f"{group}.{near}"] if near else [key for key in keys if key.endswith(f".{name}")]
    hint = f"; did you mean {meant[0]}?" if meant else ""
    if not meant:
        from fedpriv.common.option_keys import keys_of_option

        wanted = f"{group}.{name}"
        having = [
            f"{group}={option}"
            for option, _ in options(group.partition(".")[0])
            if any(key.name == wanted for key in keys_of_option(group, option))
        ]
        hint = f"; it is a key of {in_short(having)}" if having else ""
    return ConfigError(f"unknown key {group}.{name}{hint} ({group} has: {', '.join(inside)})")


def _known_keys(overrides: Sequence[str]) -> list[str]:
    """Return all keys of the configuration with the options that ``overrides`` choose."""
    choices = [
        override
        for override in overrides
        if override.partition("=")[0].lstrip("+") in (*GROUPS, *ADDED) and "," not in override
    ]
    try:
        config = compose(choices, config_dir_of(overrides))
    except ConfigError:
        config = compose()
    flat = flatten(as_tree(config, resolve=False))
    keys = (
        key
        for key in flat
        if not key.endswith((TARGET, OPTION)) and not key.startswith("protocol.")
    )
    return [*GROUPS, *keys]


def config_dir_of(arguments: Sequence[str]) -> Path | None:
    """Return the folder given with Hydra's ``--config-dir`` (``-cd``), or to :func:`compose`; else None."""
    for flag, value in itertools.pairwise([*arguments, ""]):
        if flag in ("--config-dir", "-cd"):
            return Path(value)
        if match := re.fullmatch(r"--config-dir=(.*)|hydra\.searchpath=\['file://(.*)'\]", flag):
            return Path(match[1] if match[2] is None else match[2].replace("\\'", "'"))
    return None


NOT_IDENTITY = (
    "runtime", "tracker", "dry_run", "resume", "protocol", "dataset.path", "dataset.download",
    "dataset.population", "publish_validation_metrics", "model.weights",
)  # fmt: skip
"""Keys that cannot change a result. ``protocol`` changes results only through the keys that read it.

``dataset.path`` belongs here only for data sets that can be downloaded, because checksums then fix the
content of the files. For other data sets the path is the data set. Of ``model.weights`` the digest counts.
"""


def identity(config: DictConfig) -> dict[str, object]:
    """Return the identity of a run: the resolved values of all keys that can change a result."""
    return identity_of_values(flatten(as_tree(config)))


GONE: dict[str, object] = {"algorithm.secure_aggregation": "none"}
"""Keys that were removed, with their last value: there an earlier run is one without the key."""


def identity_of_values(values: Mapping[str, object]) -> dict[str, object]:
    """Return the identity of a run: the values of all keys that can change a result.

    A part of fedpriv counts by the name of its option, whatever module its class is in; a part of the user's
    own by its ``_target_``. Null is the same as absent, so a later key with default null changes no identity.
    Numbers count by their value: 2 and 2.0 are equal.

    Args:
        values: The resolved configuration, by dotted key.
    """
    left_out = [
        excluded
        for excluded in NOT_IDENTITY
        if excluded != "dataset.path" or "dataset.download" in values
    ]
    counted: dict[str, object] = {}
    for key, value in values.items():
        part, _, name = key.rpartition(".")
        if name == TARGET and (option := stated_option(values, part)) is not None:
            key, value = part, option
        if name == OPTION or value is None or (key in GONE and value == GONE[key]):
            continue
        if not any(key == excluded or key.startswith(excluded + ".") for excluded in left_out):
            counted[key] = _plain_number(value)
    return counted


def run_name(config: DictConfig, identity: Mapping[str, object]) -> str:
    """Return the name of a run's folder in a store: algorithm, data set, seed and fingerprint."""
    dataset = identity.get("dataset") or str(config.dataset._target_).rpartition(".")[2].lower()
    return f"{config.algorithm.name}-{dataset}-seed{identity['seed']}-{fingerprint(identity)}"


def fingerprint(identity: Mapping[str, object]) -> str:
    """Return the twelve hexadecimal digits that stand for an identity, or for other values by dotted key."""
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
