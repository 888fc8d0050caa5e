"""Checks that methods of the user's own classes take the arguments that fedpriv passes to them.

Without these checks a ``clip_norm(self, round_index)`` would end the first round in a traceback. A method is
compared with the method of the same name in the class of fedpriv that it overrides, or in the protocol of its
group. It must accept all arguments that have no default there; for a protocol, all arguments.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator
from types import FunctionType
from typing import Any

from fedpriv.aggregation import Rule
from fedpriv.attacks.triggers import Trigger
from fedpriv.common.attributes import PACKAGE
from fedpriv.common.base_classes import fact
from fedpriv.common.errors import ConfigError
from fedpriv.data.base import Dataset, Partition

_PROTOCOLS: dict[str, type] = {
    "dataset": Dataset,
    "partition": Partition,
    "attack.trigger": Trigger,
    "rule": Rule,
}
"""Protocols of parts that need not extend a class of fedpriv."""
_PROPERTIES = (property, functools.cached_property, fact)


def refuse_wrong_signatures(group: str, part: Any, protocol: type | None = None) -> None:
    """Raise ConfigError for a method of the user's own class that fedpriv could not call.

    Args:
        group: The group of the part, or another name for the message.
        part: The part.
        protocol: Protocol of the part, if its class extends no class of fedpriv; None for that of its group.
    """
    kind = type(part)
    for name, base in _overridden(kind, protocol or _PROTOCOLS.get(group)):
        expected = vars(base)[name]
        attribute = inspect.getattr_static(kind, name)
        if isinstance(expected, _PROPERTIES):
            if isinstance(attribute, FunctionType):
                raise ConfigError(
                    f"{group}: {kind.__name__}.{name} must be a property, got a method; write @property "
                    f"above def {name}(self)"
                )
        elif isinstance(expected, FunctionType) and not isinstance(attribute, _PROPERTIES):
            every = bool(getattr(base, "_is_protocol", False))
            _refuse_unless_callable(group, part, name, expected, every)


def _overridden(kind: type, protocol: type | None) -> Iterator[tuple[str, type]]:
    """Yield each public name that own classes define, with the class or protocol of fedpriv that has it."""
    shipped = [base for base in kind.__mro__ if base.__module__.startswith(PACKAGE)]
    own_classes = [k for k in kind.__mro__ if k not in shipped and k is not object]
    shipped += [] if protocol is None else [protocol]
    names = {name for own in own_classes for name in vars(own) if not name.startswith("_")}
    for name in sorted(names):
        for base in shipped:
            if name in vars(base):
                yield name, base
                break


def _refuse_unless_callable(
    group: str, part: Any, name: str, overridden: FunctionType, every: bool
) -> None:
    method, called = getattr(part, name), f"{type(part).__name__}.{name}"
    expected = list(inspect.signature(overridden).parameters.values())
    write = f"write def {name}({', '.join(_words(expected))})"
    if not callable(method):
        raise ConfigError(f"{group}: {called} must be a method, got {method!r}; {write}")
    required = [p for p in expected[1:] if every or p.default is p.empty]
    named = {p.name: None for p in required if p.kind is p.KEYWORD_ONLY}
    given = [None for p in required if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    try:
        inspect.signature(method).bind(*given, **named)
    except (TypeError, ValueError):
        plain = inspect.getattr_static(type(part), name)
        if not isinstance(plain, FunctionType):
            return  # a built-in function has no signature
        parameters = ", ".join(_words(inspect.signature(plain).parameters.values()))
        raise ConfigError(
            f"{group}: {called}({parameters}) does not take what fedpriv passes to it; {write}"
        ) from None


def _words(parameters: Any) -> list[str]:
    """Return parameters as they are written, without types and defaults."""
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    return [
        f"{stars.get(p.kind, '')}{p.name}{'' if p.default is p.empty else '=...'}"
        for p in parameters
    ]
