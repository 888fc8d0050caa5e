"""Declared fields: the constructor arguments of a configurable part, each stated once.

    @declared
    class QuantileClipper(Clipper):
        initial_clip_norm: float = field(number(above=0), help="clip norm of the first round")
        min_clip_norm: float = field(
            number(above=0, at_most="initial_clip_norm"), default=1e-6, help="the smallest clip norm"
        )

The module is a thin layer over attrs. :func:`declared` writes the constructor, whose arguments are the fields
in the order of their declaration. The constructor first stores all arguments and then checks them in the same
order, so that a bound may name another argument. Each check converts an argument to its proper type, or
raises an ArgumentError with the allowed values. Rules between several arguments belong into
``__attrs_post_init__``.

A subclass may be declared as well, or have its own ``__init__`` that calls ``super().__init__``. A declared
subclass that states a field again moves the argument to the new place, with the new default and range. An
argument with the name of a method of the class is stored under another name and declared with ``alias``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar, dataclass_transform

import attrs

from fedpriv.common import checks
from fedpriv.common.errors import ArgumentError

Validator = Callable[[str, Any, Any], Any]
"""Function of (argument name, value, part) that returns the value in its proper type or raises
ArgumentError."""

_Value = TypeVar("_Value")
_Class = TypeVar("_Class", bound=type)


# ---- checks of an argument


@dataclass(frozen=True)
class Allowed:
    """A check of an argument, with a description of the values that pass.

    Attributes:
        validate: The check itself.
        allowed: The values that pass, for the help of keys; empty if the help of the field says so.
        null: True if null passes.
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
    """Return the check of a finite float inside bounds.

    Args:
        above: Exclusive lower bound.
        at_least: Inclusive lower bound.
        below: Exclusive upper bound.
        at_most: Inclusive upper bound, or the name of the argument that is the bound. A name can be combined
            with ``above`` only.
    """

    def check(name: str, value: Any, part: Any) -> float:
        if not isinstance(at_most, str):
            return checks.number(
                name, value, above=above, at_least=at_least, below=below, at_most=at_most
            )
        result = checks.number(name, value, above=above, at_least=at_least, below=below)
        limit: Any = argument_of(part, at_most)
        if limit is not None and result > limit:
            raise ArgumentError(name, value, f"<= {limit:g}, which is {at_most}")
        return result

    bounds = checks.bounds(above=above, at_least=at_least, below=below, at_most=at_most)
    return Allowed(check, f"number {bounds}".strip())


def whole(*, at_least: int = 0, at_most: int | str | Callable[[Any], int] | None = None) -> Allowed:
    """Return the check of a whole number inside inclusive bounds.

    Args:
        at_least: Lower bound.
        at_most: Upper bound, the name of the argument that is the bound, or a function of the part that
            returns the bound.
    """

    def check(name: str, value: Any, part: Any) -> int:
        most: Any = argument_of(part, at_most) if isinstance(at_most, str) else at_most
        most = most(part) if callable(most) else most
        if isinstance(at_most, str) and most is not None:
            result = checks.whole(name, value, at_least=at_least)
            if result > most:
                allowed = f"a whole number >= {at_least} and <= {most}, which is {at_most}"
                raise ArgumentError(name, value, allowed)
            return result
        return checks.whole(name, value, at_least=at_least, at_most=most)

    most = "" if at_most is None or callable(at_most) else f" and <= {at_most}"
    return Allowed(check, f"whole number >= {at_least}{most}")


def one_of(options: Collection[str]) -> Allowed:
    """Return the check of a choice among a few names."""
    check = own_check(lambda name, value: checks.one_of(name, value, options))
    return replace(check, allowed=", ".join(options))


def own_check(check: Callable[[str, _Value], object], allowed: str = "") -> Allowed:
    """Return a check made of a function of (argument name, value), such as those in ``common/checks``.

    Args:
        check: Returns the value in its proper type, or raises ArgumentError.
        allowed: The values that pass, for the help of keys.
    """
    return Allowed(lambda name, value, part: check(name, value), allowed)


boolean = own_check(checks.boolean, "true or false")
text = own_check(checks.text, "text")
random_seed = own_check(checks.seed, "whole number >= 0")


def unchecked(allowed: str) -> Allowed:
    """Return a check that passes everything, for an argument that ``__attrs_post_init__`` checks."""
    return own_check(lambda name, value: value, allowed)


def when(condition: Callable[[Any, Any], bool], check: Validator) -> Allowed:
    """Return a check that applies only if ``condition(part, value)`` holds."""
    return replace(
        _described(check),
        validate=lambda name, value, part: (
            check(name, value, part) if condition(part, value) else value
        ),
    )


def or_null(check: Validator) -> Allowed:
    """Return a check that also passes null."""
    return replace(when(lambda part, value: value is not None, check), null=True)


def not_null(check: Validator, allowed: str) -> Allowed:
    """Return a check that refuses null with its own description of the allowed values."""

    def refusing(name: str, value: Any, part: Any) -> Any:
        if value is None:
            raise ArgumentError(name, None, allowed)
        return check(name, value, part)

    return replace(_described(check), validate=refusing)


def advised(check: Validator, hint: str) -> Allowed:
    """Return a check whose errors carry a hint at the remedy."""

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
        check: Check of the value.
        default: Value if none is given; without a default the argument is required.
        help: Description in one line; ``{part.name}`` is replaced by an attribute of the class.
        unit: Unit of the value, or its symbol in the formulas.
        alias: Name of the argument, if the attribute has another.
        kw_only: True for an argument that is given by name only.

    Example:
        >>> @declared
        ... class Clip:
        ...     clip_norm: float = field(number(above=0), default=1.0, help="largest norm")
        >>> Clip(clip_norm=2).clip_norm
        2.0
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
    """Declare a field with the check and the help of another class's field.

    Args:
        kind: The other class.
        name: Name of its attribute.
        default: Another default; without it the default is the same.
    """
    declared_field = attrs.fields_dict(kind)[name]
    return attrs.field(
        default=declared_field.default if default is attrs.NOTHING else default,
        validator=declared_field.validator,
        alias=declared_field.alias,
        kw_only=declared_field.kw_only,
        metadata=declared_field.metadata,
    )


def set_apart(value: _Value, *, init: Literal[False] = False) -> _Value:
    """Declare that a field of a base class is no argument of this class, and has a fixed value."""
    made: _Value = attrs.field(default=value, init=init)
    return made


# The type checker cannot see the defaults that :func:`same_as` copies. So it is told that a field stated
# again has a default, and that all arguments are given by name.
@dataclass_transform(eq_default=False, kw_only_default=True, field_specifiers=(field, set_apart))
def declared(kind: _Class) -> _Class:
    """Write the constructor of a class from its declared fields. Objects are compared by identity."""
    return attrs.define(
        kind,
        slots=False,
        eq=False,
        repr=False,
        auto_attribs=False,
        on_setattr=attrs.setters.NO_OP,
    )


def describe(part: type, argument: attrs.Attribute) -> str:
    """Return help, unit and allowed values of an argument in one line.

    Args:
        part: The class.
        argument: One of its fields.

    Example:
        >>> @declared
        ... class Clip:
        ...     clip_norm: float = field(number(above=0), help="largest norm", unit="C")
        >>> describe(Clip, attrs.fields_dict(Clip)["clip_norm"])
        'largest norm [C] (number > 0)'
    """
    text, unit, check = (argument.metadata[key] for key in ("help", "unit", "check"))
    line = text.format(part=part) + (f" [{unit}]" if unit else "")
    if not check.allowed:
        return line
    null = check.null or argument.default is None
    return f"{line} ({check.allowed}{' or null' if null else ''})"


def argument_of(part: Any, name: str) -> object:
    """Return the value of an argument of a declared object, whatever the name of its attribute."""
    return next(
        getattr(part, f.name) for f in attrs.fields(type(part)) if f.alias == name and f.init
    )
