"""What is composed in tests, kept: the same overrides of the same YAMLs give the same configuration."""

from __future__ import annotations

import copy
import functools
import importlib
import pickle
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import hydra.utils
import pytest
from hydra._internal import config_loader_impl, defaults_list
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import CachingConfigRepository, ConfigRepository
from hydra._internal.hydra import Hydra
from hydra.core.config_loader import ConfigLoader
from hydra.core.default_element import ResultDefault
from hydra.core.global_hydra import GlobalHydra
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, OverrideType
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf, base
from omegaconf.errors import OmegaConfBaseException
from torch import nn

from fedpriv.common import config
from fedpriv.common.groups import conf_dir
from fedpriv.engine import probe

FEW = 50
"""Folders of tests hold no more YAMLs than these."""
_STAY = ("pkg://hydra.conf", str(conf_dir()), f"fedpriv://{conf_dir()}")
_READ_ONCE = ("", "hydra.conf", str(conf_dir()))  # the structured ones, as sources call them


def compose_once(patch: pytest.MonkeyPatch) -> None:
    """Compose each choice of options once, and set plain values in a copy, as Hydra sets them last."""
    bases: dict[tuple, bytes] = {}
    groups: dict[tuple, bool] = {}
    compose = config.hydra_compose

    def composed(config_name: str, overrides: list[str]) -> DictConfig:
        loader = GlobalHydra.instance().config_loader()
        paths = [place.path for place in loader.get_search_path().get_path()]
        chosen = []
        for override in overrides:
            search_path = re.fullmatch(r"hydra\.searchpath=\['(file://[^']+)'\]", override)
            (paths if search_path else chosen).append(search_path[1] if search_path else override)
        contents = [_content(path) for path in paths]
        if None in contents or any("hydra" in override for override in chosen):
            return compose(config_name=config_name, overrides=overrides)
        place = tuple(contents)
        for text in chosen:
            if (place, text) not in groups:
                groups[place, text] = _is_group(loader, text)
        plain = [None if groups[place, text] else _plain_value(text) for text in chosen]
        options = [text for text, pair in zip(chosen, plain, strict=True) if pair is None]
        others = [override for override in overrides if override not in chosen]
        key = (*contents, config_name, *options)
        try:
            if key not in bases:
                base = compose(config_name=config_name, overrides=[*options, *others])
                bases[key] = pickle.dumps(base)
            result = pickle.loads(bases[key])
            for name, value in filter(None, plain):
                OmegaConf.update(result, name, copy.deepcopy(value), merge=True)
        except (HydraException, OmegaConfBaseException):
            return compose(config_name=config_name, overrides=overrides)  # which says what is wrong
        return result

    patch.setattr(config, "hydra_compose", composed)


def _is_group(loader: ConfigLoader, override: str) -> bool:
    """Return whether an override chooses an option of a group."""
    name = override.partition("=")[0]
    return bool(loader.get_group_options(name)) if re.fullmatch(r"[\w/]+", name) else False


@functools.cache
def _plain_value(override: str) -> tuple[str, object] | None:
    """Return key and value of an override that sets a plain value; None for any other."""
    (parsed,) = OverridesParser.create().parse_overrides([override])
    if parsed.type != OverrideType.CHANGE or parsed.package is not None:
        return None
    value = parsed.value()
    return (parsed.key_or_group, value) if isinstance(value, str | int | float | None) else None


def compose_commands_once(patch: pytest.MonkeyPatch) -> None:
    """Hydra composes what follows ``fedpriv train`` twice: the first time to read hydra.mode."""
    look = Hydra.get_mode

    def mode(self: Hydra, config_name: str | None, overrides: list[str]) -> object:
        set_there = any("hydra" in override for override in overrides)
        return look(self, config_name, overrides) if set_there else None

    patch.setattr(Hydra, "get_mode", mode)


def read_yamls_once(patch: pytest.MonkeyPatch) -> None:
    """A third of composing is to read some twenty YAMLs of ``conf/`` and of Hydra, which stay as they are."""
    kept: dict[tuple[str, str], bytes] = {}
    load = ConfigRepository.load_config

    def loaded(self: ConfigRepository, config_path: str) -> object:
        source = self._find_object_source(config_path, ObjectType.CONFIG)
        if source is None or source.path not in _READ_ONCE:
            return load(self, config_path)
        key = (source.path, config_path)
        if key not in kept:
            kept[key] = pickle.dumps(load(self, config_path))
        return pickle.loads(kept[key])  # its own: Hydra writes into what it has read

    patch.setattr(ConfigRepository, "load_config", loaded)


def merge_yamls_once(patch: pytest.MonkeyPatch) -> None:
    """Merge the YAMLs of each choice of options once, whoever composes: a command, a sweep or a figure."""
    merged: dict[tuple, bytes] = {}
    merge = ConfigLoaderImpl._compose_config_from_defaults_list

    def once(
        self: ConfigLoaderImpl, defaults: list[ResultDefault], repo: CachingConfigRepository
    ) -> DictConfig:
        contents = _contents(repo)
        if None in contents:
            return merge(self, defaults, repo)
        chosen = [(d.config_path, d.parent, d.package, d.is_self, d.primary) for d in defaults]
        key = (*contents, *chosen)
        if key not in merged:
            merged[key] = pickle.dumps(merge(self, defaults, repo))
        return pickle.loads(merged[key])

    patch.setattr(ConfigLoaderImpl, "_compose_config_from_defaults_list", once)


def list_defaults_once(patch: pytest.MonkeyPatch) -> None:
    """Which YAMLs there are to merge follows from the choices of options, not from the values beside them."""
    kept: dict[tuple, bytes] = {}
    create = config_loader_impl.create_defaults_list

    def once(
        repo: CachingConfigRepository,
        config_name: str | None,
        overrides_list: list[Override],
        prepend_hydra: bool,
        skip_missing: bool,
    ) -> defaults_list.DefaultsList:
        contents = _contents(repo)
        sets = [o for o in overrides_list if not repo.group_exists(o.key_or_group)]
        choices = [o for o in overrides_list if o not in sets]
        others = (prepend_hydra, skip_missing)
        if None in contents or any(
            o.is_sweep_override() or isinstance(o.value(), dict) for o in overrides_list
        ):
            return create(repo, config_name, overrides_list, *others)
        key = (*contents, config_name, *others, *(o.input_line for o in choices))
        if key not in kept:
            kept[key] = pickle.dumps(create(repo, config_name, choices, *others))
        found = pickle.loads(kept[key])
        found.config_overrides = sets
        return found

    patch.setattr(config_loader_impl, "create_defaults_list", once)


def copy_repositories_shallowly(patch: pytest.MonkeyPatch) -> None:
    """Hydra copies all sources of YAMLs for every composition, though it only replaces their list."""

    def without_copy(self: CachingConfigRepository, delegate: ConfigRepository) -> None:
        self.delegate = copy.copy(delegate)
        self.cache = {}

    patch.setattr(CachingConfigRepository, "__init__", without_copy)


def map_choices_where_asked(patch: pytest.MonkeyPatch) -> None:
    """Hydra lays out all choices for every YAML; only a few have ``${…}`` in their defaults."""
    lay_out = defaults_list._create_interpolation_map

    def choices(overrides: object, defaults: list, self_added: bool) -> DictConfig | None:
        asked = any(default.is_interpolation() for default in defaults)
        return lay_out(overrides, defaults, self_added) if asked else None

    patch.setattr(defaults_list, "_create_interpolation_map", choices)


def parse_interpolations_once(patch: pytest.MonkeyPatch) -> None:
    """The tree of ``${seed}`` is the same whoever asks for it, and is only read."""
    patch.setattr(base, "parse", functools.cache(base.parse))


def copy_configurations_in_one_piece(patch: pytest.MonkeyPatch) -> None:
    """Pickling a configuration and reading it back is faster than to copy it node by node."""
    walk = DictConfig.__deepcopy__

    def copied(self: DictConfig, memo: dict[int, object]) -> DictConfig:
        if memo:  # part of something larger
            return walk(self, memo)
        parent, self.__dict__["_parent"] = self.__dict__["_parent"], None
        try:
            result = pickle.loads(pickle.dumps(self))
        except Exception:
            result = walk(self, memo)
        finally:
            self.__dict__["_parent"] = parent
        result.__dict__["_parent"] = parent
        return result

    patch.setattr(DictConfig, "__deepcopy__", copied)


def call_plainly(patch: pytest.MonkeyPatch) -> None:
    """Hydra copies a configuration three times before it calls what ``_target_`` names."""
    instantiate = hydra.utils.instantiate

    def made(value: object) -> object:
        if isinstance(value, list):
            return [made(part) for part in value]
        if not isinstance(value, dict):
            return value
        parts = {key: made(part) for key, part in value.items()}
        if "_target_" not in parts:
            return parts
        module, _, name = str(parts.pop("_target_")).rpartition(".")
        if not module.startswith("fedpriv.") or any(str(key).startswith("_") for key in parts):
            raise LookupError(name)
        return getattr(importlib.import_module(module), name)(**parts)

    def plainly(node: object, *args: object, **more: object) -> object:
        if isinstance(node, DictConfig) and not args and more == {"_convert_": "all"}:
            try:
                return made(OmegaConf.to_container(node, resolve=True, throw_on_missing=True))
            except Exception:
                pass  # Hydra says what is wrong
        return instantiate(node, *args, **more)

    patch.setattr(hydra.utils, "instantiate", plainly)


def probe_models_once(patch: pytest.MonkeyPatch) -> None:
    """A model of torch's and fedpriv's own layers that mixes no records does so in the next run, too."""
    passed: set[tuple] = set()
    refuse = probe.refuse_record_mixing

    def once(module: nn.Module, draw: Callable, sizes: Sequence[int], *, per_record: bool) -> None:
        layers = list(module.modules())
        own = all(type(m).__module__.startswith(("torch.", "fedpriv.")) for m in layers)
        hooked = any(m._forward_hooks or m._forward_pre_hooks for m in layers)
        shapes = [(values.shape, values.dtype) for values in draw(2)]
        key = (str(module), module.training, *shapes, *sizes, per_record)
        if not own or hooked or key not in passed:
            refuse(module, draw, sizes, per_record=per_record)
        passed.add(key)

    patch.setattr(probe, "refuse_record_mixing", once)


def _contents(repo: CachingConfigRepository) -> list[object]:
    """What tells the sources of YAMLs apart."""
    places = [
        source.path if source.path in _READ_ONCE else f"{source.scheme()}://{source.path}"
        for source in repo.get_sources()
    ]
    return [place if place in _READ_ONCE else _content(place) for place in places]


def _content(place: str | None) -> object:
    """What tells YAMLs apart: the place of those that stay, the text of a test's own; None: unknown."""
    if place in (*_STAY, "structured://"):
        return place
    folder = Path((place or "").removeprefix("file://"))
    files = sorted(folder.rglob("*.yaml")) if place and "tmp" in folder.parts else []
    if not 0 < len(files) <= FEW:
        return None
    return tuple((str(path.relative_to(folder)), path.read_bytes()) for path in files)
