"""The claim of an adapter about its mechanism, a dictionary of plain values.

unit               client: ``data`` holds a vector for each client; record: an array [n, d] for each client
neighbours         add_or_remove, replace_one or zero_out
sampling           none, poisson (with sample_rate) or without_replacement (with sample_size)
clip_norm          the most that one unit adds to the sum
noise_multiplier   standard deviation of the noise ÷ the most that one unit moves the value: clip_norm,
                   or 2 clip_norm under replace_one
denominator        what the sum is divided by before it leaves, default 1
epsilon, delta     the guarantee for ``rounds``; without noise_multiplier, the least noise follows from it
rounds             T, which must be given
releases           instead of clip_norm, noise_multiplier and denominator: these three for each value that
                   leaves, by its name, where several leave
public             names of values that leave and depend on no data
observer           who sees what, for the table
finite             true: data that are no numbers do not occur, and are not tried
    clients, records, size    numbers of clients, of records of a client, and d, if they are not free
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dp_accounting import dp_event

from fedpriv.common.errors import ConfigError, did_you_mean
from fedpriv.privacy.accountants import PldAccountant
from fedpriv.privacy.calibration import RepeatedRelease, calibrate_noise_multiplier
from fedpriv.privacy.core.names import ADD_OR_REMOVE, RELEASE_SAMPLINGS, REPLACE_ONE, ZERO_OUT
from fedpriv.tools.verify.sampling import Law

CLIENT_UNIT, RECORD_UNIT = "client", "record"
HOLDS_STILL = ("seed", "participation", "examples")
_ONE_RELEASE = ("clip_norm", "noise_multiplier", "denominator")
_KEYS = (
    "unit", "neighbours", "sampling", "sample_rate", "sample_size", *_ONE_RELEASE, "epsilon", "delta",
    "rounds", "releases", "public", "observer", "finite", "clients", "records", "size",
)  # fmt: skip
_MOST_NUMBERS = 4_000_000


@dataclass(frozen=True)
class ClaimedValue:
    """One value that leaves with noise.

    Attributes:
        name: Its name.
        sensitivity: The most that one unit moves it, after division by the denominator.
        std: Claimed standard deviation of the noise of each number.
        clip_norm: The most that one unit adds to the sum.
        denominator: What the sum is divided by.
        noise_multiplier: ``std`` ÷ ``sensitivity``.
    """

    name: str
    clip_norm: float
    denominator: float
    noise_multiplier: float
    replaces: bool

    @property
    def sensitivity(self) -> float:
        return (2.0 if self.replaces else 1.0) * self.clip_norm / abs(self.denominator)

    @property
    def std(self) -> float:
        return self.noise_multiplier * self.sensitivity


@dataclass(frozen=True)
class AdapterClaim:
    """A claim that was checked for its form.

    Attributes:
        unit: ``client`` or ``record``.
        neighbours: The neighbouring relation.
        sampling: How units are sampled.
        sample_rate: q of Poisson sampling, else 1.
        sample_size: Size of a sample without replacement, else None.
        values: The values that leave with noise, by name.
        least: True if the noise multiplier follows from (ε, δ): more noise is right, too.
        epsilon: Claimed ε for all rounds; None where none is claimed.
        delta: δ.
        rounds: T.
        public: Names of values that leave and depend on no data.
        observer: Who sees what.
        finite: True if data that are no numbers do not occur.
        clients: Number of clients.
        records: Number of records of a client; 1 where the unit is a client.
        size: Number d of numbers of an upload.
    """

    unit: str
    neighbours: str
    sampling: str
    sample_rate: float
    sample_size: int | None
    values: Mapping[str, ClaimedValue]
    least: bool
    epsilon: float | None
    delta: float | None
    rounds: int
    public: tuple[str, ...]
    observer: str
    finite: bool
    clients: int
    records: int
    size: int

    @property
    def stated(self) -> str:
        """The guarantee in words: its unit, neighbours and rounds, and ε, if it is claimed."""
        epsilon = "" if self.epsilon is None else f", ε = {self.epsilon:g} at δ = {self.delta:g}"
        rounds = f"{self.rounds:,} round{'s' if self.rounds > 1 else ''}"
        return f"{self.unit} level, {self.neighbours}, {rounds}{epsilon}"

    @property
    def units(self) -> int:
        """Number of units of all clients together."""
        return self.clients * self.records

    @property
    def law(self) -> Law:
        """The sampling of a round, for its tests."""
        if self.sampling == "poisson":
            return Law(rate=self.sample_rate)
        return Law(rate=1.0) if self.sample_size is None else Law(size=self.sample_size)

    def under(self, charged: Mapping[str, Any]) -> Mapping[str, ClaimedValue]:
        """Return the values with what the adapter charges for one round instead of its claim."""
        if not charged:
            return self.values
        if not isinstance(charged, Mapping):
            raise ConfigError("charged(state) must return a dictionary")
        if set(charged) <= set(_ONE_RELEASE) and len(self.values) == 1:
            charged = {next(iter(self.values)): charged}
        values = dict(self.values)
        for name, changes in charged.items():
            if name not in values or not isinstance(changes, Mapping):
                known = ", ".join(self.values)
                raise ConfigError("charged(state)", name, f"the name of a release: {known}")
            if unknown := [key for key in changes if key not in _ONE_RELEASE]:
                raise ConfigError("charged(state)", unknown[0], f"of {', '.join(_ONE_RELEASE)}")
            numbers: dict[str, Any] = {
                key: _number(f"charged.{name}.{key}", changes[key], key == "denominator")
                for key in changes
            }
            values[name] = replace(values[name], **numbers)
        return values

    def computed_epsilon(self, delta: float, rounds: int) -> float | None:
        """Return ε of the claimed noise for ``rounds``; None where no accountant has this sampling."""
        release = _release(self)
        multipliers = [value.noise_multiplier for value in self.values.values()]
        joint = sum(z**-2.0 for z in multipliers) ** -0.5
        if release is None:
            return None
        doubled = 2.0 if release.neighbours == REPLACE_ONE else 1.0
        event: dp_event.DpEvent = release.event(joint * doubled, self.event_rate)
        return PldAccountant().epsilon_of({event: rounds}, delta, release.neighbours)

    @property
    def event_rate(self) -> float:
        """The rate of sampling, whether it is Poisson or of a fixed size."""
        if self.sample_size is not None:
            return self.sample_size / (self.clients if self.unit == CLIENT_UNIT else self.records)
        return self.sample_rate


def _release(claim: AdapterClaim) -> RepeatedRelease | None:
    """Return the release that accountants price; None for samples of a fixed size under add or remove."""
    if claim.sampling == "without_replacement":
        if claim.neighbours != REPLACE_ONE:
            return None
        population = claim.clients if claim.unit == CLIENT_UNIT else claim.records
        return RepeatedRelease(claim.sampling, REPLACE_ONE, records=population)
    neighbours = REPLACE_ONE if claim.neighbours == REPLACE_ONE else ADD_OR_REMOVE
    return RepeatedRelease(claim.sampling, neighbours)


def read_claim(claim: object, holds_still: Sequence[object]) -> AdapterClaim:
    """Return the claim of an adapter.

    Args:
        claim: The adapter's dictionary.
        holds_still: What the adapter can hold still.

    Raises:
        ConfigError: A field is missing, unknown or out of range.
    """
    if not isinstance(claim, Mapping):
        raise ConfigError("claim", type(claim).__name__, "a dictionary")
    for key in claim:
        if key not in _KEYS:
            raise ConfigError(
                "claim has a key that is unknown: " + str(key), hint=did_you_mean(str(key), _KEYS)
            )
    for name in holds_still:
        if name not in HOLDS_STILL:
            raise ConfigError("holds_still", name, f"a list of some of {', '.join(HOLDS_STILL)}")
    unit = _one_of(claim, "unit", (CLIENT_UNIT, RECORD_UNIT))
    neighbours = _one_of(claim, "neighbours", (ADD_OR_REMOVE, REPLACE_ONE, ZERO_OUT))
    sampling = _one_of(claim, "sampling", RELEASE_SAMPLINGS)
    per_record = unit == RECORD_UNIT
    clients = _whole(claim, "clients", 1 if per_record else 20)
    records = _whole(claim, "records", 20 if per_record else 1)
    if not per_record and records != 1:
        raise ConfigError("claim.records", records, "absent where the unit is a client")
    size = _whole(claim, "size", 2 * clients * records + 8)
    if clients * records * size > _MOST_NUMBERS:
        raise ConfigError(
            "claim.size", size, f"small: at most {_MOST_NUMBERS:,} numbers of all units"
        )
    rate, lot = _sample(claim, sampling, records if per_record else clients)
    draft = AdapterClaim(
        unit, neighbours, sampling, rate, lot, {}, False, None, None,
        _whole(claim, "rounds"), tuple(map(str, claim.get("public", ()))),
        str(claim.get("observer", "not stated")), claim.get("finite") is True, clients, records, size,
    )  # fmt: skip
    draft = replace(draft, **_guarantee(claim))
    if draft.epsilon is not None and _release(draft) is None:
        raise ConfigError(
            f"claim.epsilon cannot be checked: no accountant has {sampling} under {neighbours}; claim "
            f"neighbours {REPLACE_ONE}, or leave out epsilon and delta and let only the mechanism be tested"
        )
    return _with_values(draft, claim)


def _sample(claim: Mapping[str, Any], sampling: str, population: int) -> tuple[float, int | None]:
    """Return the rate of Poisson sampling, else 1, and the size of a sample, else None."""
    if sampling == "poisson":
        rate = _number("claim.sample_rate", _given(claim, "sample_rate"))
        if rate > 1:
            raise ConfigError("claim.sample_rate", rate, "> 0 and <= 1")
        return rate, None
    if sampling == "without_replacement":
        size = _whole(claim, "sample_size")
        if size > population:
            raise ConfigError(
                "claim.sample_size", size, f"at most {population}, the number to draw from"
            )
        return 1.0, size
    return 1.0, None


def _guarantee(claim: Mapping[str, Any]) -> dict[str, Any]:
    """Return the claimed ε and δ, where they are given."""
    if "epsilon" not in claim and "delta" not in claim:
        return {}
    epsilon = _number("claim.epsilon", _given(claim, "epsilon"))
    delta = _given(claim, "delta")
    if delta == 0:
        allowed = "a number > 0: verify --adapter judges Gaussian noise only, which has no δ = 0"
        raise ConfigError("claim.delta", delta, allowed)
    delta = _number("claim.delta", delta)
    if delta >= 1:
        raise ConfigError("claim.delta", delta, "> 0 and < 1")
    return {"epsilon": epsilon, "delta": delta}


def _with_values(draft: AdapterClaim, claim: Mapping[str, Any]) -> AdapterClaim:
    releases = claim.get("releases", {"update": {k: claim[k] for k in _ONE_RELEASE if k in claim}})
    if not isinstance(releases, Mapping) or not releases:
        raise ConfigError(
            "claim.releases", releases, "a dictionary: name → clip_norm, noise_multiplier"
        )
    least = all(isinstance(r, Mapping) and "noise_multiplier" not in r for r in releases.values())
    if least and draft.epsilon is None:
        raise ConfigError("claim.noise_multiplier must be given, or epsilon, delta and rounds")
    values = {}
    for name, release in releases.items():
        key = "claim" if "releases" not in claim else f"claim.releases.{name}"
        if not isinstance(release, Mapping):
            raise ConfigError(
                key, release, "a dictionary: clip_norm, noise_multiplier, denominator"
            )
        for field in release:
            if field not in _ONE_RELEASE:
                raise ConfigError(f"{key}.{field}", release[field], "absent")
        clip_norm = _number(f"{key}.clip_norm", _given(release, "clip_norm", key))
        denominator = _number(f"{key}.denominator", release.get("denominator", 1.0), signed=True)
        multiplier = (
            _least_multiplier(draft, len(releases))
            if least
            else _number(f"{key}.noise_multiplier", _given(release, "noise_multiplier", key))
        )
        replaces = draft.neighbours == REPLACE_ONE
        values[str(name)] = ClaimedValue(str(name), clip_norm, denominator, multiplier, replaces)
    return replace(draft, values=values, least=least)


def _least_multiplier(claim: AdapterClaim, releases: int) -> float:
    """Return the noise multiplier that (ε, δ) needs, shared equally by several values."""
    release = _release(claim)
    assert release is not None
    assert claim.epsilon is not None
    assert claim.delta is not None
    multiplier = calibrate_noise_multiplier(
        PldAccountant(), release, epsilon=claim.epsilon, delta=claim.delta, steps=claim.rounds,
        sample_rate=claim.event_rate,
    )  # fmt: skip
    halved = 2.0 if release.neighbours == REPLACE_ONE else 1.0
    return multiplier / halved * math.sqrt(releases)


def _given(claim: Mapping[str, Any], key: str, where: str = "claim") -> Any:
    if key not in claim:
        raise ConfigError(f"{where}.{key} must be given")
    return claim[key]


def _one_of(claim: Mapping[str, Any], key: str, allowed: tuple[str, ...]) -> str:
    value = _given(claim, key)
    if value not in allowed:
        raise ConfigError(
            f"claim.{key}", value, f"one of {', '.join(allowed)}", did_you_mean(str(value), allowed)
        )
    return str(value)


def _number(key: str, value: Any, signed: bool = False) -> float:
    good = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    if not good or value == 0 or (value < 0 and not signed):
        shown = repr(value) if isinstance(value, str) else value
        raise ConfigError(key, shown, "a number, not 0" if signed else "a number > 0")
    return float(value)


def _whole(claim: Mapping[str, Any], key: str, default: int | None = None) -> int:
    value = _given(claim, key) if default is None else claim.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= 1_000_000:
        raise ConfigError(f"claim.{key}", value, "a whole number from 1 to 1,000,000")
    return value
