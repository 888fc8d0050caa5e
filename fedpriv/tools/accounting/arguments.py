"""Checks of the values of the flags of ``account`` and ``calibrate``."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from fedpriv.common import checks
from fedpriv.common.errors import ArgumentError, ConfigError, did_you_mean
from fedpriv.privacy.accountants import (
    Accountant,
    GdpAccountant,
    PldAccountant,
    PrvAccountant,
    RdpAccountant,
    ZcdpAccountant,
)
from fedpriv.privacy.calibration import MOST_NOISE, RepeatedRelease
from fedpriv.privacy.core.names import ACCOUNTANTS

MECHANISM = ("noise_multiplier", "sample_rate", "steps")
RELEASE = ("sampling", "neighbours", "records", "max_lot_size")
_LEAST = 1e-100  # the smallest ε and δ; anything smaller is lost in floating point

_MADE: dict[str, Callable[[], Accountant]] = {
    "pld": PldAccountant,
    "prv": PrvAccountant,
    "rdp": RdpAccountant,
    "gdp": GdpAccountant,
    "zcdp": ZcdpAccountant,
}


def flag(name: str) -> str:
    """Return the command-line flag of a Python argument."""
    return "--" + name.replace("_", "-")


def checked(call: Callable[[], Any]) -> Any:
    """Return the result of a call; an error about an argument becomes an error about its flag.

    Args:
        call: The call. The names of its arguments are those of the flags, with underscores.

    Raises:
        ConfigError: The call raised ArgumentError.
    """
    try:
        return call()
    except ArgumentError as error:
        name, hint = flag(error.argument), error.hint
        if error.value is None:
            raise ConfigError(f"{name} must be {error.allowed}") from None
        if error.allowed.startswith("one of "):
            known = error.allowed.removeprefix("one of ").split(", ")
            hint = hint or did_you_mean(error.value, known)
        raise ConfigError(name, error.value, error.allowed, hint) from None


def number(name: str, text: str, **bounds: float) -> float:
    """Return the number that a flag was given, within its bounds.

    Accountants square the number, so it may be neither tiny nor huge.

    Args:
        name: Name of the argument.
        text: Value of the flag.
        **bounds: Bounds as of :func:`fedpriv.common.checks.number`.

    Raises:
        ConfigError: The text is no number within the bounds.
    """
    value = checked(lambda: checks.number(name, checks.parsed(text), **bounds))
    if not 1e-300 <= value <= 1e100:
        raise ConfigError(flag(name), text, "between 1e-300 and 1e100")
    return value


def whole(name: str, text: str) -> int:
    """Return the whole number from 1 to 10⁹ that a flag was given. Raise ConfigError for another value."""
    return checked(lambda: checks.whole(name, checks.parsed(text), at_least=1, at_most=10**9))


def noise_multiplier(text: str) -> float:
    """Return the value of ``--noise-multiplier``."""
    return number("noise_multiplier", text, above=0, at_most=MOST_NOISE)


def epsilon(text: str) -> float:
    """Return the value of ``--epsilon``."""
    return number("epsilon", text, at_least=_LEAST)


def sample_rate(text: str) -> float:
    """Return the value of ``--sample-rate``."""
    return number("sample_rate", text, above=0, at_most=1)


def delta(text: str) -> float:
    """Return one value of ``--delta``, which may name several. Raise ConfigError outside (0, 1)."""
    return number("delta", text, at_least=_LEAST, below=1)


def release(options: SimpleNamespace) -> RepeatedRelease:
    """Return the kind of release that the flags of ``RELEASE`` describe, by default Poisson sampling.

    Raises:
        ConfigError: A flag is out of range, or does not go with the sampling.
    """
    return checked(
        lambda: RepeatedRelease(
            sampling="poisson" if options.sampling is None else options.sampling,
            neighbours=options.neighbours,
            records=None if options.records is None else whole("records", options.records),
            max_lot_size=(
                None
                if options.max_lot_size is None
                else whole("max_lot_size", options.max_lot_size)
            ),
        )
    )


def plain(value: float | None) -> float | str | None:
    """Return a value for JSON, which has no infinity: the text ``inf`` stands for it."""
    return "inf" if value is not None and math.isinf(value) else value


def require(options: SimpleNamespace, names: tuple[str, ...], why: str) -> None:
    """Raise ConfigError if one of the flags is absent.

    Args:
        options: The values of the flags, None for a flag that is absent.
        names: The required arguments.
        why: The end of the sentence "... must be given".
    """
    missing = [flag(name) for name in names if getattr(options, name) is None]
    if missing:
        raise ConfigError(f"{' and '.join(missing)} must be given {why}")


def refuse(options: SimpleNamespace, names: tuple[str, ...], why: str) -> None:
    """Raise ConfigError if one of the flags is given.

    Args:
        options: The values of the flags, None for a flag that is absent.
        names: The forbidden arguments.
        why: The end of the sentence "... cannot be given".
    """
    given = [flag(name) for name in names if getattr(options, name) is not None]
    if given:
        raise ConfigError(f"{' and '.join(given)} cannot be given {why}")


def accountant(name: str, options: SimpleNamespace) -> Accountant:
    """Return the accountant of a name.

    Args:
        name: One of ``ACCOUNTANTS``.
        options: The values of the flags; ``--orders`` and ``--conversion`` belong to rdp.

    Raises:
        ConfigError: The name is unknown, or the orders cannot be used.
    """
    if name == "published":
        raise ConfigError(
            "--accountant published needs --run FOLDER --view published: the theorem of a run's work"
        )
    if name not in _MADE:
        hint = did_you_mean(name, ACCOUNTANTS)
        raise ConfigError(
            "--accountant", name or "nothing", "one of " + ", ".join(ACCOUNTANTS), hint
        )
    if name != "rdp":
        return _MADE[name]()
    text = "wide" if options.orders is None else options.orders
    conversion = "improved" if options.conversion is None else options.conversion
    listed = [checks.parsed(part) for part in text.split(",")]
    orders: Any = text if isinstance(listed[0], str) else listed
    return checked(lambda: RdpAccountant(orders=orders, conversion=conversion))
