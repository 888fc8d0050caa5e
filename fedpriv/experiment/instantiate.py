"""Instantiation of the object of a group from its YAML, with every failure as one sentence."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import hydra.utils
from hydra.errors import InstantiationException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from fedpriv.common.attributes import PACKAGE
from fedpriv.common.base_classes import completed
from fedpriv.common.config import needed_group, unknown_key
from fedpriv.common.errors import ArgumentError, ConfigError, FedprivError, nearest
from fedpriv.common.option_keys import defaults_of_root
from fedpriv.experiment.contracts import MAY_EXTEND, refuse_incomplete, refuse_near_misses
from fedpriv.models.base import ModelFactory
from fedpriv.models.own_module import factory_of

_Made = TypeVar("_Made")


def instantiate(config: DictConfig, group: str) -> Any:
    """Return the object of a group, checked against the contract of the group.

    Args:
        config: The configuration.
        group: The group, or one option of a group that may have several (``tracker.mlflow``).

    Returns:
        The object. A data set, partition or model whose class extends none of fedpriv's is completed by what
        the base class of the group has.

    Raises:
        ConfigError: The YAML is wrong, the object lacks what the group needs, or a method is misspelt.
    """
    node = OmegaConf.select(config, group)
    top = group.partition(".")[0]
    if node is None:
        raise needed_group(top)
    if not isinstance(node, DictConfig) or not isinstance(node.get("_target_"), str):
        hint = f"see fedpriv list {top}"
        if top == "dataset" and isinstance(node, DictConfig) and "path" in node:
            hint = "the YAML of a table of your own begins with the line defaults: [csv, _self_]"
        raise ConfigError(
            group,
            OmegaConf.to_container(node) if isinstance(node, DictConfig) else node,
            "a group option, that is a YAML with _target_",
            hint,
        )
    keys = [str(key) for key in node if key != "_target_"]
    if not node._target_.startswith(PACKAGE):
        _refuse_uncallable(group, node._target_)
    made: Any = _own_module(node) if group == "model" else None
    if made is None:
        made = within_group(group, lambda: hydra.utils.instantiate(node, _convert_="all"), keys)
    refuse_incomplete(top, made)
    refuse_near_misses(group, made)
    if top == "attack" and made.trigger is not None:
        refuse_near_misses("attack.trigger", made.trigger)
        completed(made.trigger, MAY_EXTEND["attack.trigger"])
    return completed(made, MAY_EXTEND[top]) if top in MAY_EXTEND else made


def _own_module(node: DictConfig) -> ModelFactory | None:
    """Return the factory of a torch module of the user's own; None for any other ``_target_``.

    Raises:
        ConfigError: The keys do not fit the constructor of the module.
    """
    if node._target_.startswith(PACKAGE):
        return None
    named = _named(node._target_)
    if "torch" in sys.modules and isinstance(named, sys.modules["torch"].nn.Module):
        raise ConfigError(
            "model._target_",
            node._target_,
            "the class of a torch module, or a function that returns one",
            f"this is a {type(named).__name__} that was made already; name its class",
        )
    settings = {key: value for key, value in node.items() if key != "_target_"}
    made = hydra.utils.instantiate(OmegaConf.create(settings), _convert_="all")
    return factory_of(named, made)


def _named(target: str) -> object:
    """Return what a ``_target_`` names; None if it cannot be imported, of which Hydra says why."""
    module, _, name = target.rpartition(".")
    try:
        found = importlib.import_module(module or target)
        return getattr(found, name) if module else found
    except Exception:
        return None


def _refuse_uncallable(group: str, target: str) -> None:
    """Raise ConfigError for a ``_target_`` that names a module or a value."""
    named = _named(target)
    if named is None or callable(named):
        return
    allowed = "a class or a function, with its module"
    if isinstance(named, ModuleType):
        hint = f"name a class in it: {group}._target_={target}.NAME"
        raise ConfigError(f"{group}._target_", f"the module {target}", allowed, hint)
    raise ConfigError(f"{group}._target_", f"{target}, of type {type(named).__name__}", allowed)


def within_group(group: str, make: Callable[[], _Made], keys: Sequence[str] = ()) -> _Made:
    """Return ``make()``; errors about an argument become errors about the key ``group.argument``.

    Args:
        group: The group.
        make: Makes an object, or calls one.
        keys: Keys of the group, which ``make`` may refuse as unknown.

    Raises:
        ConfigError: ``make`` refused an argument, or its ``_target_`` cannot be imported or called.
    """
    try:
        return make()
    except ArgumentError as error:
        raise error.within(group) from None
    except InstantiationException as error:
        cause = error.__cause__
        if isinstance(cause, ArgumentError):
            nested = _PLACE.search(str(error))  # a part of a part, such as attack.trigger
            inner = nested[1] if nested and nested[1].startswith(f"{group}.") else group
            is_named = f"{group}.{cause.argument}".startswith(f"{inner}.")
            raise cause.within(group if is_named else inner) from None
        if isinstance(cause, FedprivError):
            raise cause from None
        refused = _UNEXPECTED.search(str(cause))
        if refused and refused[1] in keys:
            raise unknown_key(group, refused[1], [k for k in keys if k != refused[1]]) from None
        if lacking := _LACKING.search(str(cause)):
            names = re.findall(r"'(\w+)'", lacking[1])
            what = " and ".join(f"{group}.{name}" for name in names)
            is_absent = "is absent" if len(names) == 1 else "are absent"
            raise ConfigError(
                f"{what} {is_absent} or deleted (~), and {str(cause).partition('.')[0]} needs a value: "
                f"{group}.{names[0]}=VALUE; fedpriv list {group.partition('.')[0]} shows the defaults"
            ) from None
        if absent := _NOT_FOUND.search(str(cause or error)):
            raise _not_importable(group, *absent.groups()) from None
        raise ConfigError(f"{group}: {_explain(cause or error)}") from None


_PLACE = re.compile(r"^full_key: (\S+)$", re.MULTILINE)
_NOT_FOUND = re.compile(
    r"Error loading '([^']+)':\s+ModuleNotFoundError\(.No module named '([^']+)'"
)
_BLOCKED = re.compile(r"Target '([^']+)'.* is blocklisted")
_LACKING = re.compile(r"missing \d+ required .*arguments?: (.*)")
_UNEXPECTED = re.compile(r"unexpected keyword argument '([^']+)'")


def _not_importable(group: str, target: str, missing: str) -> ConfigError:
    """Return the error for a ``_target_`` that cannot be imported; ``missing``: what Python did not find."""
    if not f"{target}.".startswith(f"{missing}."):  # missing is imported by the user's own module
        return ConfigError(f"{group}: {target} cannot be imported: No module named '{missing}'")
    module = target.rpartition(".")[0]
    allowed = (
        f"a class of the module {module}"
        if missing == target
        else "a class of a module that can be imported, such as a file in the folder you work in"
    )
    return ConfigError(f"{group}: _target_", target, allowed, _meant(target, missing == target))


def _meant(target: str, in_module: bool) -> str:
    """Return a hint at the nearest class of the module, or at the nearest module in the working folder."""
    module, _, name = target.rpartition(".")
    if in_module:
        loaded = vars(sys.modules[module]).items() if module in sys.modules else ()
        classes = [n for n, v in loaded if isinstance(v, type) and v.__module__ == module]
        near = nearest(name, classes)
        return f"did you mean {module}.{near}?" if near else ""
    near = nearest(module, [path.stem for path in Path().glob("*.py")])
    return f"did you mean {near}.{name}?" if near else ""


def _explain(error: BaseException) -> str:
    """Return Python's words on a wrong call or target, on one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if len(lines) > 1 and lines[0].endswith(":"):  # the reason is on the next line
        return f"{lines[0]} {lines[1]}"
    if refused := _BLOCKED.search(str(error)):
        return f"Hydra does not let a configuration call {refused[1]}"
    return first_line(error)


def unresolvable(error: OmegaConfBaseException) -> ConfigError:
    """Return the error for an interpolation ``${...}`` that cannot be resolved."""
    if match := re.search(r"Interpolation key '([^']+)' not found", str(error)):
        key = match[1]
        if key in defaults_of_root():
            return ConfigError(f"{key} was deleted (~), and other keys follow it: {key}=VALUE")
        return ConfigError(f"${{{key}}} is the value of the key {key}, which does not exist")
    return ConfigError(first_line(error))


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or the name of its class if it has no message."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
