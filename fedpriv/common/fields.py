"""Declared fields: the constructor arguments of a configurable part, each stated once.

    @declared
    class QuantileClipper(Clipper):
        initial_clip_norm: float = field(number(above=0), help="clip norm of the first round")
        min_clip_norm: float = field(
            number(above=0, at_most="initial_clip_norm"), default=1e-6, help="the smallest clip norm"
        )

A thin layer over attrs. :func:`declared` writes the constructor, whose arguments are the fields in the order
of their declaration. The constructor stores all arguments, then checks them in the same order; each check
gives an argument its proper type, or raises an ArgumentError that says what is allowed. So a bound may name
another argument. Rules between arguments, and what follows from them, stand in ``__attrs_post_init__``.

A subclass may be declared too, or have an ``__init__`` of its own that calls ``super().__init__``. A declared
subclass that states a field again moves that argument to its own place, with its own default and range. An
argument that is called as a method of the class has an attribute of another name (``alias``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar, dataclass_transform

import attrs

from fedpriv.common import checks
from fedpriv.common.errors import ArgumentError

Validator = Callable[[str, Any, Any], Any]
"""(argument, value, part) -> the value in its proper type. Raises ArgumentError."""

_Value = TypeVar("_Value")
_Class = TypeVar("_Class", bound=type)


# ---- what an argument may be


@dataclass(frozen=True)
class Allowed:
    """A check of an argument.

    Attributes:
        validate: The check itself.
        allowed: What it lets through, for the help of keys; empty where the help of the field says so.
        null: Whether null is let through.
    """

    validate: Validator
    allowed: str = ""
    null: bool = False

    def __call__(self, name: str, value: object, part: object) -> object:
        return self.validate(name, value, part)


def number(
    *,
    above: float | None = None,
    at_least: float | None = None,
    below: float | None = None,
    at_most: float | str | None = None,
) -> Allowed:
    """Return the check of a finite float; ``at_most`` may name another argument, with ``above`` alone."""

    def check(name: str, value: Any, part: Any) -> float:
        if isinstance(at_most, str):
            most: Any = argument_of(part, at_most)
            if most is not None:
                return checks.not_above(name, value, at_most, most, above=above)
        else:
            most = at_most
        return checks.number(name, value, above=above, at_least=at_least, below=below, at_most=most)

    bounds = checks.bounds(above=above, at_least=at_least, below=below, at_most=at_most)
    return Allowed(check, f"number {bounds}".strip())


def whole(*, at_least: int = 0, at_most: int | str | Callable[[Any], int] | None = None) -> Allowed:
    """Return the check of a whole number; ``at_most`` may name another argument, or be asked of the part."""

    def check(name: str, value: Any, part: Any) -> int:
        most: Any = argument_of(part, at_most) if isinstance(at_most, str) else at_most
        most = most(part) if callable(most) else most
        return checks.whole(name, value, at_least=at_least, at_most=most)

    most = "" if at_most is None or callable(at_most) else f" and <= {at_most}"
    return Allowed(check, f"whole number >= {at_least}{most}")


def one_of(options: Collection[str]) -> Allowed:
    """Return the check of a choice among a few names."""
    check = own_check(lambda name, value: checks.one_of(name, value, options))
    return replace(check, allowed=", ".join(options))


def own_check(check: Callable[[str, _Value], object], allowed: str = "") -> Allowed:
    """Return a check that needs nothing but (argument, value), such as those of ``common/checks``."""
    return Allowed(lambda name, value, part: check(name, value), allowed)


boolean = own_check(checks.boolean, "true or false")
text = own_check(checks.text, "text")
random_seed = own_check(checks.seed, "whole number >= 0")


def unchecked(allowed: str) -> Allowed:
    """Return no check, for values that ``__attrs_post_init__`` checks: what is allowed depends on others."""
    return own_check(lambda name, value: value, allowed)


def when(condition: Callable[[Any, Any], bool], check: Validator) -> Allowed:
    """Return a check that is made only where ``condition(part, value)`` holds."""
    return replace(
        _described(check),
        validate=lambda name, value, part: (
            check(name, value, part) if condition(part, value) else value
        ),
    )


def or_null(check: Validator) -> Allowed:
    """Return a check that leaves null as it is."""
    return replace(when(lambda part, value: value is not None, check), null=True)


def not_null(check: Validator, allowed: str) -> Allowed:
    """Return a check that refuses null in words of its own."""

    def refusing(name: str, value: Any, part: Any) -> Any:
        if value is None:
            raise ArgumentError(name, None, allowed)
        return check(name, value, part)

    return replace(_described(check), validate=refusing)


def advised(check: Validator, hint: str) -> Allowed:
    """Return a check whose errors tell the user what to do."""

    def advising(name: str, value: Any, part: Any) -> Any:
        try:
            return check(name, value, part)
        except ArgumentError as error:
            raise ArgumentError(error.argument, error.value, error.allowed, hint) from None

    return replace(_described(check), validate=advising)


def _described(check: Validator) -> Allowed:
    return check if isinstance(check, Allowed) else Allowed(check)


# ---- fields


def field(
    check: Validator,
    *,
    default: Any = attrs.NOTHING,
    help: str,
    unit: str = "",
    alias: str | None = None,
    kw_only: bool = False,
) -> Any:
    """Declare one constructor argument.

    Args:
        check: What it may be.
        default: The value where none is given; without one the argument is required.
        help: What it is, in a line; ``{part.name}`` is an attribute of the class.
        unit: In what it is counted, or its symbol in the formulas.
        alias: The argument's name, where the attribute has another.
        kw_only: Whether it is given by name alone.
    """

    def validate(part: Any, attribute: attrs.Attribute, value: Any) -> None:
        setattr(part, attribute.name, check(attribute.alias or attribute.name, value, part))

    return attrs.field(
        default=default,
        validator=validate,
        alias=alias,
        kw_only=kw_only,
        metadata={"help": help, "unit": unit, "check": _described(check)},
    )


def same_as(kind: type, name: str, *, default: Any = attrs.NOTHING) -> Any:
    """Declare a field as another class does, at this place and perhaps with another default."""
    own = attrs.fields_dict(kind)[name]
    return attrs.field(
        default=own.default if default is attrs.NOTHING else default,
        validator=own.validator,
        alias=own.alias,
        kw_only=own.kw_only,
        metadata=own.metadata,
    )


def set_apart(value: _Value, *, init: Literal[False] = False) -> _Value:
    """Declare that a field of a base class is no argument of this one, and what its value is."""
    made: _Value = attrs.field(default=value, init=init)
    return made


# To the checker a field stated again has a default, and all arguments are given by name: it cannot see which
# defaults :func:`same_as` takes over.
@dataclass_transform(eq_default=False, kw_only_default=True, field_specifiers=(field, set_apart))
def declared(kind: _Class) -> _Class:
    """Write the constructor of a class from its fields. Two objects are equal only if they are the same."""
    return attrs.define(
        kind,
        slots=False,
        eq=False,
        repr=False,
        auto_attribs=False,
        on_setattr=attrs.setters.NO_OP,
    )


def describe(part: type, argument: attrs.Attribute) -> str:
    """Return what an argument of a part is and may be, in a line: ``help [unit] (allowed)``.

    >>> describe(QuantileClipper, attrs.fields_dict(QuantileClipper)["target_quantile"])
    'fraction of norms that are not clipped [γ] (number > 0 and < 1)'
    """
    text, unit, check = (argument.metadata[key] for key in ("help", "unit", "check"))
    line = text.format(part=part) + (f" [{unit}]" if unit else "")
    if not check.allowed:
        return line
    null = check.null or argument.default is None
    return f"{line} ({check.allowed}{' or null' if null else ''})"


def argument_of(part: Any, name: str) -> object:
    """Return the value of a declared object's argument, whatever its attribute is called."""
    return next(
        getattr(part, f.name) for f in attrs.fields(type(part)) if f.alias == name and f.init
    )
