"""Calibration: solve ε(noise multiplier, sample rate, steps) = target for one of the three.

The accountant checks every answer: its ε is at most the target and, where the unknown is continuous, less
than a thousandth below the target.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

from dp_accounting import dp_event

from fedpriv.common import checks
from fedpriv.common.errors import ArgumentError
from fedpriv.common.words import digits_up
from fedpriv.privacy.accountants import Accountant, RdpAccountant
from fedpriv.privacy.core.names import ADD_OR_REMOVE, RELATIONS, RELEASE_SAMPLINGS, REPLACE_ONE
from fedpriv.privacy.core.sampling import FixedSizeSampling, TruncatedPoissonSampling, WholeData

LEAST_NOISE, MOST_NOISE = 1e-3, 1e6  # noise multipliers searched


@dataclass(frozen=True)
class RepeatedRelease:
    """One noised sum of clipped records, to be repeated.

    The noise multiplier is noise std ÷ clip norm in every case. The higher sensitivity 2C of replacing a
    record is part of the event.

    Attributes:
        sampling: How a lot is drawn: ``poisson``, ``without_replacement`` or ``none``.
        neighbours: Adjacency. None becomes ``replace_one`` for lots of a fixed size, else ``add_or_remove``.
        records: n; needed for lots of a fixed size or with a cap.
        max_lot_size: Cap of Poisson lots, or None.

    Raises:
        ArgumentError: A value is out of range, or values contradict each other.

    Example:
        >>> release = RepeatedRelease("poisson")
        >>> release.event(2.0, sample_rate=0.1).sampling_probability
        0.1
    """

    sampling: str = "poisson"
    neighbours: str = None  # type: ignore[assignment]  # never None once it is made
    records: int | None = None
    max_lot_size: int | None = None

    def __post_init__(self) -> None:
        checks.one_of("sampling", self.sampling, RELEASE_SAMPLINGS)
        fixed = self.sampling == "without_replacement"
        if self.neighbours is None:
            object.__setattr__(self, "neighbours", REPLACE_ONE if fixed else ADD_OR_REMOVE)
        checks.one_of("neighbours", self.neighbours, RELATIONS)
        if fixed and self.neighbours != REPLACE_ONE:
            raise ArgumentError(
                "neighbours", self.neighbours, "replace_one for lots without replacement"
            )
        if self.max_lot_size is not None:
            checks.whole("max_lot_size", self.max_lot_size, at_least=1)
            if (self.sampling, self.neighbours) != ("poisson", ADD_OR_REMOVE):
                raise ArgumentError(
                    "max_lot_size",
                    self.max_lot_size,
                    "absent unless lots are Poisson and neighbours add_or_remove",
                )
        sized = fixed or self.max_lot_size is not None
        if sized and self.records is None:
            raise ArgumentError(
                "records",
                None,
                "given, a whole number >= 1: lots of a fixed size or with a cap need n",
            )
        if self.records is not None:
            checks.whole("records", self.records, at_least=1)
        if self.records is not None and not sized:
            raise ArgumentError(
                "records",
                self.records,
                "absent unless lots have a fixed size or a cap",
            )

    def event(self, noise_multiplier: float, sample_rate: float = 1.0) -> dp_event.DpEvent:
        """Return the event of one step.

        Args:
            noise_multiplier: Noise std ÷ clip norm.
            sample_rate: q.

        Raises:
            ArgumentError: q·n is not a whole number of records, where lots have a fixed size.
        """
        if self.sampling == "none":
            return WholeData(self.neighbours).event(noise_multiplier)
        if self.sampling == "without_replacement":
            assert self.records is not None
            lot_size = self.lot_size(sample_rate)
            return FixedSizeSampling(self.records, lot_size).event(noise_multiplier)
        if self.max_lot_size is not None:
            assert self.records is not None
            capped = TruncatedPoissonSampling(sample_rate, self.records, self.max_lot_size)
            return capped.event(noise_multiplier)
        whole = WholeData(self.neighbours).event(noise_multiplier)
        return whole if sample_rate == 1.0 else dp_event.PoissonSampledDpEvent(sample_rate, whole)

    def lot_size(self, sample_rate: float) -> int:
        """Return L = q·n of lots without replacement.

        A q·n within 10^-5 of a whole number counts as whole: q may be written with six digits.

        Args:
            sample_rate: q.

        Raises:
            ArgumentError: q·n is not a whole number >= 1. Rounded down, ε would be too small.
        """
        assert self.records is not None
        exact = sample_rate * self.records
        lot_size = max(1, round(exact))
        if not math.isclose(lot_size, exact, rel_tol=1e-5):
            larger = math.ceil(exact)
            raise ArgumentError(
                "sample_rate",
                sample_rate,
                f"a whole number of {self.records} records, such as {larger}/{self.records} = "
                f"{larger / self.records:.9g}",
            )
        return lot_size


def calibrate_noise_multiplier(
    accountant: Accountant,
    release: RepeatedRelease,
    *,
    epsilon: float,
    delta: float,
    steps: int,
    sample_rate: float = 1.0,
) -> float:
    """Return the smallest noise multiplier, to 6 digits, whose ``steps`` cost at most ``epsilon``.

    Multipliers from 10^-3 to 10^6 are searched, so the answer is never below 10^-3.

    Args:
        accountant: Accountant of the composition.
        release: The repeated release.
        epsilon: Target ε.
        delta: δ.
        steps: Number of steps.
        sample_rate: q.

    Raises:
        ArgumentError: Even the largest noise that is searched costs more.

    Example:
        >>> from fedpriv.privacy.accountants import GdpAccountant
        >>> calibrate_noise_multiplier(
        ...     GdpAccountant(), RepeatedRelease("none"), epsilon=1.0, delta=1e-5, steps=1
        ... )
        3.73064
    """

    def epsilon_of(multiplier: float) -> float:
        event = release.event(multiplier, sample_rate)
        return accountant.epsilon_of({event: steps}, delta, release.neighbours)

    guess = _first_guess(accountant, release, epsilon, delta, steps, sample_rate)
    return least_noise_multiplier(epsilon_of, epsilon, accountant.name, guess)


def least_noise_multiplier(
    epsilon_of: Callable[[float], float],
    epsilon: float,
    accountant: str,
    guess: float = 1.0,
    most: float = math.inf,
) -> float:
    """Return the smallest noise multiplier, to 6 digits, with ``epsilon_of(multiplier)`` ≤ ``epsilon``.

    Args:
        epsilon_of: Decreasing function from noise multiplier to ε.
        epsilon: Target ε.
        accountant: Name of the accountant, for the message.
        guess: Where the search begins.
        most: Upper end of the search, exclusive. Multipliers below 10^-3 and above 10^6 are never tried.

    Raises:
        ArgumentError: Even the largest multiplier costs more.
    """
    top = min(MOST_NOISE, most * (1.0 - 1e-9))

    @functools.cache  # the search comes back to the ends of its bracket
    def known(multiplier: float) -> float:
        return epsilon_of(min(multiplier, top))  # an answer is rounded up, perhaps beyond the top

    if known(top) > epsilon:
        raise ArgumentError(
            "epsilon", epsilon, f">= {digits_up(known(top))}, the least {accountant} can certify"
        )
    # Widen a bracket around the guess in steps of a fifth. With PLD each evaluation takes long, and the
    # guess is close.
    least = min(LEAST_NOISE, top)
    low = high = min(guess, top)
    if known(low) <= epsilon:
        while known(low) <= epsilon:
            if low == least:
                return least
            low, high = max(low / 1.2, least), low
    else:
        while known(high) > epsilon:
            low, high = high, min(high * 1.2, top)
    return min(top, _boundary(known, epsilon, fits=high, exceeds=low, round_to_fit=math.ceil))


def _first_guess(
    accountant: Accountant,
    release: RepeatedRelease,
    epsilon: float,
    delta: float,
    steps: int,
    sample_rate: float,
) -> float:
    """Return RDP's answer, which is computed at once and is close to that of other accountants."""
    rdp = RdpAccountant()
    if accountant.name == rdp.name or rdp.supports(
        release.event(1.0, sample_rate), release.neighbours
    ):
        return 1.0
    try:
        return calibrate_noise_multiplier(
            rdp, release, epsilon=epsilon, delta=delta, steps=steps, sample_rate=sample_rate
        )
    except ArgumentError:
        return 1.0


def calibrate_sample_rate(
    accountant: Accountant,
    release: RepeatedRelease,
    *,
    epsilon: float,
    delta: float,
    steps: int,
    noise_multiplier: float,
) -> float:
    """Return the largest sample rate, to 6 digits, at which ``steps`` cost at most ``epsilon``.

    With lots of a fixed size the rate is an integer number of records over n.

    Args:
        accountant: Accountant of the composition.
        release: The repeated release.
        epsilon: Target ε.
        delta: δ.
        steps: Number of steps.
        noise_multiplier: Noise std ÷ clip norm.

    Raises:
        ArgumentError: Even the smallest rate costs more.

    Example:
        >>> release = RepeatedRelease("poisson")
        >>> rate = calibrate_sample_rate(
        ...     RdpAccountant(), release, epsilon=1.0, delta=1e-5, steps=100, noise_multiplier=1.0
        ... )
        >>> 0.005 < rate < 0.05
        True
    """

    @functools.cache
    def epsilon_of(sample_rate: float) -> float:
        event = release.event(noise_multiplier, sample_rate)
        return accountant.epsilon_of({event: steps}, delta, release.neighbours)

    if release.sampling == "without_replacement":
        assert release.records is not None
        return _largest_lot(epsilon_of, epsilon, release.records) / release.records
    if epsilon_of(1.0) <= epsilon:
        return 1.0
    low, high = 0.5, 1.0
    while epsilon_of(low) > epsilon:
        low, high = low / 2.0, low
        if low < 1e-9:
            certified = digits_up(epsilon_of(low))
            least = f"> {certified}, what {accountant.name} certifies at a vanishing sample rate"
            raise ArgumentError("epsilon", epsilon, least)
    return _boundary(epsilon_of, epsilon, fits=low, exceeds=high, round_to_fit=math.floor)


def _largest_lot(epsilon_of: Callable[[float], float], epsilon: float, records: int) -> int:
    low, high = 0, records + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if epsilon_of(middle / records) <= epsilon else (low, middle)
    if low == 0:
        raise ArgumentError(
            "epsilon",
            epsilon,
            f">= {digits_up(epsilon_of(1 / records))}, the cost with lots of one record",
        )
    return low


def calibrate_steps(
    accountant: Accountant,
    release: RepeatedRelease,
    *,
    epsilon: float,
    delta: float,
    noise_multiplier: float,
    sample_rate: float = 1.0,
) -> int:
    """Return the largest number of steps that cost at most ``epsilon``.

    Args:
        accountant: Accountant of the composition.
        release: The repeated release.
        epsilon: Target ε.
        delta: δ.
        noise_multiplier: Noise std ÷ clip norm.
        sample_rate: q.

    Raises:
        ArgumentError: A single step costs more.

    Example:
        >>> from fedpriv.privacy.accountants import GdpAccountant
        >>> calibrate_steps(
        ...     GdpAccountant(), RepeatedRelease("none"), epsilon=1.0, delta=1e-5, noise_multiplier=20.0
        ... )
        28
    """
    event = release.event(noise_multiplier, sample_rate)
    steps = accountant.steps_allowed(event, epsilon, delta, release.neighbours)
    if steps == 0:
        single = accountant.epsilon_of({event: 1}, delta, release.neighbours)
        raise ArgumentError(
            "epsilon", epsilon, f">= {digits_up(single)}, the cost of a single step"
        )
    return steps


def _boundary(
    epsilon_of: Callable[[float], float],
    epsilon: float,
    fits: float,
    exceeds: float,
    round_to_fit: Callable[[float], int],
) -> float:
    """Return the value between ``fits`` and ``exceeds`` where ε meets the target, rounded to fit."""
    # exp(log(end)) need not be the end to the last bit, and ε at the ends is cached.
    known = {math.log(end): end for end in (fits, exceeds)}

    def excess(log_value: float) -> float:
        value = known.get(log_value, math.exp(log_value))
        return math.log(max(epsilon_of(value), 1e-300) / epsilon)

    ends = sorted(known)
    from scipy import optimize

    root = math.exp(optimize.brentq(excess, *ends, xtol=1e-6, rtol=1e-6))
    value, digit = _rounded(root, round_to_fit)
    toward = 1.0 if fits > exceeds else -1.0
    while epsilon_of(value) > epsilon:  # because the root is found to 1e-6 only
        value, digit = _rounded(value + toward * digit, round_to_fit)
    return value


def _rounded(value: float, round_to: Callable[[float], int]) -> tuple[float, float]:
    """Return the value with 6 significant digits, and the value of its last digit."""
    exponent = math.floor(math.log10(value)) - 5
    digits = round_to(
        value / 10.0**exponent - 1e-9 if round_to is math.ceil else value / 10.0**exponent + 1e-9
    )
    return float(f"{digits}e{exponent}"), 10.0**exponent
