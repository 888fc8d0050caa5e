"""Instantiation of the object of a group from its YAML, with every failure as one sentence."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import attrs
import hydra.utils
from hydra.errors import InstantiationException
from omegaconf import DictConfig, OmegaConf, open_dict

from fedpriv.common.attributes import PACKAGE, is_own
from fedpriv.common.base_classes import completed
from fedpriv.common.config import unknown_key
from fedpriv.common.errors import ArgumentError, ConfigError, FedprivError
from fedpriv.common.groups import OPTION, TARGET, options, options_of_target
from fedpriv.experiment.contracts import MAY_EXTEND, refuse_incomplete, refuse_near_misses
from fedpriv.experiment.starting_point import KEYS
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
        names = ", ".join(dict(options(top)))
        raise ConfigError(
            f"{top} was deleted (~) or set to null, and every run needs one of {names}"
        )
    if not isinstance(node, DictConfig) or not isinstance(node.get(TARGET), str):
        hint = f"see fedpriv list {top}"
        if top == "dataset" and isinstance(node, DictConfig) and "path" in node:
            hint = "the YAML of a table of your own begins with the line defaults: [csv, _self_]"
        raise ConfigError(
            group,
            OmegaConf.to_container(node) if isinstance(node, DictConfig) else node,
            "a group option, that is a YAML with _target_",
            hint,
        )
    node = node.copy()
    with open_dict(node):
        if top == "dataset":
            node.pop("population", None)  # a fact of the run, not of its data
        for key in KEYS if top == "model" else ():
            node.pop(key, None)
        for part in (node, node.get("trigger")):
            if isinstance(part, DictConfig):
                _refuse_other_class(top, part.get(TARGET), part.pop(OPTION, None))
    keys = [str(key) for key in node if key != TARGET]
    made: Any = _own_module(node) if group == "model" else None
    if made is None:
        made = within_group(group, lambda: hydra.utils.instantiate(node, _convert_="all"), keys)
    declared = attrs.has(type(made)) and not is_own(made)
    for argument in attrs.fields(type(made)) if declared else ():
        # In the keys of streams null is the same as absent.
        nullable = getattr(argument.metadata.get("check"), "null", False)
        if nullable and argument.default is not None and argument.alias not in node:
            raise ConfigError(f"{group}.{argument.alias} is absent; give it a value or null")
    refuse_incomplete(top, made)
    refuse_near_misses(group, made)
    if top == "attack" and made.trigger is not None:
        refuse_near_misses("attack.trigger", made.trigger)
        completed(made.trigger, MAY_EXTEND["attack.trigger"])
    return completed(made, MAY_EXTEND[top]) if top in MAY_EXTEND else made


def _refuse_other_class(group: str, target: object, option: object) -> None:
    """Raise ConfigError if a part of fedpriv has the name of an option with another class."""
    known = options_of_target(group, target)
    if option is not None and str(target).startswith(PACKAGE) and option not in known:
        raise ConfigError(
            f"{group}.{OPTION}",
            option,
            f"{' or '.join(known) or 'absent'}, as {target} runs",
            "the name of a part stands in the keys of its random streams",
        )


def _own_module(node: DictConfig) -> ModelFactory | None:
    """Return the factory of a torch module of the user's own; None for any other ``_target_``.

    Raises:
        ConfigError: The keys do not fit the constructor of the module.
    """
    if node._target_.startswith(PACKAGE):
        return None
    settings = {key: value for key, value in node.items() if key != TARGET}
    made = hydra.utils.instantiate(OmegaConf.create(settings), _convert_="all")
    return factory_of(_named(node._target_), made)


def _named(target: str) -> object:
    """Return what a ``_target_`` names; None if it cannot be imported, of which Hydra says why."""
    module, _, name = target.rpartition(".")
    try:
        found = importlib.import_module(module or target)
        return getattr(found, name) if module else found
    except Exception:
        return None


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
        if isinstance(cause, ImportError):
            raise ConfigError(
                f"{group}._target_ cannot be imported: {first_line(cause.__cause__ or cause)}"
            ) from None
        words = first_line(cause) if cause else " ".join(str(error).split())
        raise ConfigError(f"{group}: {words}") from None


_PLACE = re.compile(r"^full_key: (\S+)$", re.MULTILINE)
_UNEXPECTED = re.compile(r"unexpected keyword argument '([^']+)'")


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or the name of its class if it has no message."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
