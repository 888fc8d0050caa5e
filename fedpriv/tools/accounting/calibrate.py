"""``fedpriv calibrate``: noise multiplier, sample rate, steps or ε, from the other three.

The search rounds towards more privacy, so the ε of the answer never exceeds the target.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

from dp_accounting import dp_event

from fedpriv.common.errors import ConfigError
from fedpriv.common.files import json_text
from fedpriv.common.words import round_up
from fedpriv.privacy.accountants import Accountant
from fedpriv.privacy.accountants.search import MANY_STEPS
from fedpriv.privacy.calibration import (
    LEAST_NOISE,
    RepeatedRelease,
    calibrate_noise_multiplier,
    calibrate_sample_rate,
    calibrate_steps,
)
from fedpriv.privacy.core.names import RELATION_WORDS
from fedpriv.store.display import console
from fedpriv.store.table import pairs
from fedpriv.tools.accounting import arguments
from fedpriv.tools.accounting.releases import sampling_words

UNKNOWNS = ("epsilon", *arguments.MECHANISM)


def run(options: SimpleNamespace) -> int:
    """Solve for the value that is left out, print it, and return the exit status.

    With ``--accountant`` absent, the tightest one answers that can account for such releases.

    Args:
        options: The values of the flags, None for a flag that is absent.

    Raises:
        ConfigError: Not exactly one value is left out, no accountant can account for such releases, or no
            value reaches the target.
    """
    release = arguments.release(options)
    given, unknown = _given(options, release)
    if options.delta is None:
        raise ConfigError("--delta must be given, such as --delta 1e-5")
    delta = arguments.delta(options.delta)
    accountant = _accountant(options, release)
    target = given.pop("epsilon", None)
    values = given
    if unknown != "epsilon":
        values = dict(given)
        values[unknown] = arguments.checked(
            lambda: _SOLVERS[unknown](accountant, release, epsilon=target, delta=delta, **given)
        )
    at_limit = unknown != "epsilon" and values[unknown] == LIMITS[unknown]
    # The ε of the answer, and not the target: the search stops a little below the target.
    event = arguments.checked(
        lambda: release.event(values["noise_multiplier"], values.get("sample_rate", 1.0))
    )
    epsilon = accountant.epsilon_of({event: values["steps"]}, delta, release.neighbours)
    answer = {
        "solved_for": unknown,
        **{name: values[name] for name in arguments.MECHANISM if name in values},
        "epsilon": epsilon,
        "target_epsilon": target,
        "delta": delta,
        "at_limit": at_limit,
        "accountant": accountant.name,
        "settings": accountant.describe(),
        "sampling": release.sampling,
        "neighbours": release.neighbours,
    }
    if options.json:
        answer["epsilon"] = arguments.plain(epsilon)
        print(json_text(answer, allow_nan=False), end="")
    else:
        console().print(pairs("Calibrated", _lines(answer, release)))
    return 0


_SOLVERS: dict[str, Callable[..., float]] = {
    "noise_multiplier": calibrate_noise_multiplier,
    "sample_rate": calibrate_sample_rate,
    "steps": calibrate_steps,
}


LIMITS = {"noise_multiplier": LEAST_NOISE, "sample_rate": 1.0, "steps": MANY_STEPS}
"""Values at which the search stops, although the target might allow more."""


def _given(options: SimpleNamespace, release: RepeatedRelease) -> tuple[dict[str, Any], str]:
    """Return the values that were given, and the name of the one to solve for."""
    names: tuple[str, ...] = UNKNOWNS
    if release.sampling == "none":
        arguments.refuse(options, ("sample_rate",), "with --sampling none")
        names = tuple(name for name in UNKNOWNS if name != "sample_rate")
    absent = [name for name in names if getattr(options, name) is None]
    known = ", ".join(arguments.flag(name) for name in names)
    if not absent:
        raise ConfigError(f"one of {known} must be left out: it is what is solved for")
    if len(absent) > 1:
        missing = ", ".join(arguments.flag(name) for name in absent)
        raise ConfigError(f"all but one of {known} must be given; missing: {missing}")
    readers = {
        "epsilon": arguments.epsilon,
        "noise_multiplier": arguments.noise_multiplier,
        "sample_rate": arguments.sample_rate,
        "steps": lambda text: arguments.whole("steps", text),
    }
    values = {name: readers[name](getattr(options, name)) for name in names if name not in absent}
    return values, absent[0]


def _accountant(options: SimpleNamespace, release: RepeatedRelease) -> Accountant:
    """Return the accountant of ``--accountant``, or the tightest one that can account for such releases."""
    # Whether an accountant can answer depends on the kind of release, and not on its numbers, one of
    # which is still unknown.
    probe = _probe(release)
    if options.accountant not in (None, "rdp"):
        arguments.refuse(options, ("orders", "conversion"), "unless --accountant rdp")
    if options.accountant is not None:
        chosen = arguments.accountant(options.accountant, options)
        if reason := chosen.supports(probe, release.neighbours):
            alternative = _tightest(release, ("gdp", "pld", "rdp"), options)
            hint = (
                ""
                if alternative is None
                else f"; --accountant {alternative.name} can account for such lots"
            )
            raise ConfigError(f"--accountant {options.accountant}: {reason}{hint}")
        return chosen
    has_rdp_settings = options.orders is not None or options.conversion is not None
    names = ("rdp",) if has_rdp_settings else ("gdp", "pld", "rdp")
    accountant = _tightest(release, names, options)
    if accountant is not None:
        return accountant
    raise ConfigError(
        f"no accountant can account for such lots under {RELATION_WORDS[release.neighbours]}"
    )


def _probe(release: RepeatedRelease) -> dp_event.DpEvent:
    """Return a release of this kind, at a rate that such lots can have."""
    if release.sampling == "without_replacement" and release.records is not None:
        return release.event(1.0, 1.0 / release.records)
    return release.event(1.0, 0.5)


def _tightest(
    release: RepeatedRelease, names: Iterable[str], options: SimpleNamespace
) -> Accountant | None:
    """Return the first of ``names`` that can account for such releases, from the tightest on."""
    accountants = (arguments.accountant(name, options) for name in names)
    event = _probe(release)
    return next((a for a in accountants if not a.supports(event, release.neighbours)), None)


def _shown(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.6g}"


def _lines(answer: dict[str, Any], release: RepeatedRelease) -> list[tuple[str, str]]:
    """Return the rows (name, text) of the answer: first what was solved for, then what was given."""
    unknown = answer["solved_for"]
    texts = {name: _shown(answer[name]) for name in arguments.MECHANISM if name in answer}
    limit = " (the limit of what is searched; the target allows more)" if answer["at_limit"] else ""
    lines = [(unknown.replace("_", " "), _shown(answer[unknown]) + limit)]
    lines += [(name.replace("_", " "), text) for name, text in texts.items() if name != unknown]
    if release != RepeatedRelease():
        lines.append(("sampling", sampling_words(release, answer.get("sample_rate", 1.0))))
    target = answer["target_epsilon"]
    target_words = "" if target is None else f" (target {target:g})"
    if unknown != "epsilon":
        lines.append(("epsilon", f"{round_up(answer['epsilon'], 6)}{target_words}"))
    lines += [
        ("delta", f"{answer['delta']:g}"),
        ("accountant", answer["settings"]),
        ("neighbours", answer["neighbours"]),
    ]
    return lines
