"""The flags that ``account`` and ``calibrate`` share, and their values, checked."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from fedpriv.common import checks
from fedpriv.common.errors import ArgumentError, ConfigError, nearest
from fedpriv.privacy.accountants import (
    Accountant,
    GdpAccountant,
    PldAccountant,
    PrvAccountant,
    RdpAccountant,
    ZcdpAccountant,
)
from fedpriv.privacy.calibration import RELATIONS, SAMPLINGS, Release

ACCOUNTANTS: dict[str, Callable[[], Accountant]] = {
    "pld": PldAccountant,
    "prv": PrvAccountant,
    "rdp": RdpAccountant,
    "gdp": GdpAccountant,
    "zcdp": ZcdpAccountant,
}
MECHANISM = ("noise_multiplier", "sample_rate", "steps")
RELEASE = ("sampling", "neighbours", "records", "max_lot_size")


def add_mechanism(parser: argparse.ArgumentParser) -> None:
    """Flags that say what is released."""
    group = parser.add_argument_group("what is released")
    group.add_argument(
        "--noise-multiplier", metavar="Z", help="noise std / clip norm (whatever the neighbours)"
    )
    group.add_argument("--sample-rate", metavar="Q", help="each record joins a lot with chance Q")
    group.add_argument("--steps", metavar="T", help="how many lots")
    group.add_argument(
        "--sampling", metavar="KIND", help=f"{', '.join(SAMPLINGS)}; default poisson"
    )
    group.add_argument(
        "--neighbours",
        metavar="RELATION",
        help=f"{', '.join(RELATIONS)}; default: replace_one without replacement, else add_or_remove",
    )
    group.add_argument(
        "--records", metavar="N", help="n, for lots without replacement or with a cap"
    )
    group.add_argument("--max-lot-size", metavar="L", help="Poisson lots are cut to L records")


def add_rdp_settings(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--orders", metavar="A..B", help="of rdp: wide (default), 2..64, 4,8,16")
    parser.add_argument(
        "--conversion", metavar="NAME", help="of rdp: improved (default), classical"
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


def flag(name: str) -> str:
    """``noise_multiplier`` → ``--noise-multiplier``."""
    return "--" + name.replace("_", "-")


def checked(call: Callable[[], Any]) -> Any:
    """Call; an error about an argument comes out as one about its flag."""
    try:
        return call()
    except ArgumentError as error:
        raise ConfigError(flag(error.argument), error.value, error.allowed, error.hint) from None


def number(name: str, text: str, **bounds: float) -> float:
    """The number a flag was given, within its bounds."""
    return checked(lambda: checks.number(name, _parsed(text), **bounds))


def whole(name: str, text: str) -> int:
    """The whole number ≥ 1 a flag was given."""
    return checked(lambda: checks.whole(name, _parsed(text), at_least=1, at_most=10**9))


def _parsed(text: str) -> object:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def noise_multiplier(text: str) -> float:
    return number("noise_multiplier", text, above=0)


def sample_rate(text: str) -> float:
    return number("sample_rate", text, above=0, at_most=1)


def delta(text: str) -> float:
    return number("delta", text, above=0, below=1)


def release(options: argparse.Namespace) -> Release:
    """How lots are drawn, from ``--sampling``, ``--neighbours``, ``--records``, ``--max-lot-size``."""
    return checked(
        lambda: Release(
            sampling=options.sampling or "poisson",
            neighbours=options.neighbours,
            records=None if options.records is None else whole("records", options.records),
            max_lot_size=(
                None
                if options.max_lot_size is None
                else whole("max_lot_size", options.max_lot_size)
            ),
        )
    )


def require(options: argparse.Namespace, names: tuple[str, ...], why: str) -> None:
    """Refuse when one of the flags is absent."""
    missing = [flag(name) for name in names if getattr(options, name) is None]
    if missing:
        raise ConfigError(f"{' and '.join(missing)} must be given {why}")


def refuse(options: argparse.Namespace, names: tuple[str, ...], why: str) -> None:
    """Refuse when one of the flags is there."""
    given = [flag(name) for name in names if getattr(options, name) is not None]
    if given:
        raise ConfigError(f"{' and '.join(given)} cannot be given {why}")


def accountant(name: str, options: argparse.Namespace) -> Accountant:
    """The accountant of this name, rdp with ``--orders`` and ``--conversion``."""
    if name not in ACCOUNTANTS:
        near = nearest(name, ACCOUNTANTS)
        hint = f"did you mean {near}?" if near else ""
        raise ConfigError("--accountant", name, "one of " + ", ".join(ACCOUNTANTS), hint)
    if name != "rdp":
        return ACCOUNTANTS[name]()
    text = options.orders or "wide"
    listed = [_parsed(part) for part in text.split(",")]
    orders: Any = text if isinstance(listed[0], str) else listed
    return checked(lambda: RdpAccountant(orders, options.conversion or "improved"))
