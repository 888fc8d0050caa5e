"""The object of each group from its YAML, and what is wrong with one in a sentence."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import hydra.utils
from hydra.errors import InstantiationException
from omegaconf import DictConfig, OmegaConf

from fedpriv.common.base_classes import completed
from fedpriv.common.config import unknown_key
from fedpriv.common.errors import ArgumentError, ConfigError, FedprivError
from fedpriv.experiment.contracts import MAY_EXTEND, refuse_incomplete
from fedpriv.experiment.signatures import refuse_wrong_signatures
from fedpriv.experiment.uncalled import refuse_uncalled

_Made = TypeVar("_Made")


def instantiate(config: DictConfig, group: str) -> Any:
    """The object of a group, or of one option of a group of several (``tracker.csv``). Raises ConfigError."""
    node = OmegaConf.select(config, group)
    top = group.partition(".")[0]
    if not isinstance(node, DictConfig) or not isinstance(node.get("_target_"), str):
        raise ConfigError(
            group,
            OmegaConf.to_container(node) if isinstance(node, DictConfig) else node,
            "a group option, that is a YAML with _target_",
            f"see fedpriv list {top}",
        )
    keys = [str(key) for key in node if key != "_target_"]
    made = within_group(group, lambda: hydra.utils.instantiate(node, _convert_="all"), keys)
    refuse_incomplete(top, made)
    refuse_wrong_signatures(group, made)
    refuse_uncalled(group, made)
    if top == "attack":
        refuse_wrong_signatures("attack.trigger", made.trigger)
        refuse_uncalled("attack.trigger", made.trigger)
        completed(made.trigger, MAY_EXTEND["attack.trigger"])
    return completed(made, MAY_EXTEND[top]) if top in MAY_EXTEND else made


def within_group(group: str, make: Callable[[], _Made], keys: Sequence[str] = ()) -> _Made:
    """Call ``make``; errors about an argument come out as errors about the key group.argument.

    ``keys``: those of the group, which ``make`` may refuse as unknown.
    """
    try:
        return make()
    except ArgumentError as error:
        raise error.within(group) from None
    except InstantiationException as error:
        cause = error.__cause__
        if isinstance(cause, ArgumentError):
            place = _PLACE.search(str(error))  # of a part of a part, such as attack.trigger
            inside = place[1] if place and place[1].startswith(f"{group}.") else group
            named = f"{group}.{cause.argument}".startswith(f"{inside}.")
            raise cause.within(group if named else inside) from None
        if isinstance(cause, FedprivError):
            raise cause from None
        refused = _UNEXPECTED.search(str(cause))
        if refused and refused[1] in keys:
            raise unknown_key(group, refused[1], [k for k in keys if k != refused[1]]) from None
        if absent := _NOT_FOUND.search(str(cause or error)):
            raise _nowhere(group, *absent.groups()) from None
        raise ConfigError(f"{group}: {_explain(cause or error)}") from None


_PLACE = re.compile(r"^full_key: (\S+)$", re.MULTILINE)
_NOT_FOUND = re.compile(
    r"Error loading '([^']+)':\s+ModuleNotFoundError\(.No module named '([^']+)'"
)
_BLOCKED = re.compile(r"Target '([^']+)'.* is blocklisted")
_UNEXPECTED = re.compile(r"unexpected keyword argument '([^']+)'")


def _nowhere(group: str, target: str, missing: str) -> ConfigError:
    """A ``_target_`` that is not there, by the name that Python did not find."""
    if not f"{target}.".startswith(f"{missing}."):  # a module that the user's own imports
        return ConfigError(f"{group}: {target} cannot be imported: No module named '{missing}'")
    module = target.rpartition(".")[0]
    allowed = (
        f"a class of the module {module}"
        if missing == target
        else "a class of a module that can be imported, such as a file in the folder you work in"
    )
    return ConfigError(f"{group}: _target_", target, allowed)


def _explain(error: BaseException) -> str:
    """A wrong call or target in the words of Python, on one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if len(lines) > 1 and lines[0].endswith(":"):  # the reason is on the next one
        return f"{lines[0]} {lines[1]}"
    if refused := _BLOCKED.search(str(error)):
        return f"Hydra does not let a configuration call {refused[1]}"
    return first_line(error)


def first_line(error: BaseException) -> str:
    """What an error says, cut to a line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
