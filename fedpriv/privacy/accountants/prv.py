"""Privacy random variables (Gopi, Lee, Wutschitz 2021), by Opacus; Poisson-sampled Gaussians only.

The accountant gives an upper bound on ε, about ``eps_error`` above the true one.

The theorem leaves out rounding. Opacus convolves in double precision, whose error in δ is about 1e-15 for
each draw, so that its ε at a much smaller δ is meaningless. Therefore every ε is checked here. The first
check is the bound of :mod:`~fedpriv.privacy.accountants.rounding`. The second check is δ at this ε, of the
same composition in extended precision. ε stands where both agree to a fiftieth of δ and the true δ is not
more than a thousandth larger. Otherwise ε is computed in extended precision, and refused where even that may
be off by a thousandth of δ.
"""

from __future__ import annotations

import math
import warnings
from collections import Counter
from typing import Any

import numpy as np
from dp_accounting import dp_event
from scipy import special

from fedpriv.common.fields import declared, field, number
from fedpriv.privacy.accountants import rounding
from fedpriv.privacy.accountants.base import CannotAccount, Composition
from fedpriv.privacy.accountants.composition import CompositionAccountant
from fedpriv.privacy.accountants.gaussian import GdpAccountant
from fedpriv.privacy.accountants.rdp import RdpAccountant
from fedpriv.privacy.core.events import event_words
from fedpriv.privacy.core.grid import on_grid
from fedpriv.privacy.core.names import ADD_OR_REMOVE, RELATION_WORDS, REPLACE_ONE
from fedpriv.privacy.core.rdp import without_noise
from fedpriv.privacy.core.sampling import PoissonSampling

_RDP = RdpAccountant()
_DELTA_ERRORS = rounding.SHARE  # Opacus' error in δ is one part in this many
_MOST_POINTS = 4e6  # more points take a minute and gigabytes
_FIFTIETH = 0.02  # share of δ by which double precision may err on the safe side, about .005 in ε
_OTHERS = "; pld and rdp have no such limit, and prv has none at a larger delta"


@declared
class PrvAccountant(CompositionAccountant):
    """Numerical composition of privacy random variables (Gopi, Lee, Wutschitz 2021), an upper bound on ε.

    Mesh and domain follow remark 5.6 of that paper: with n draws, ``eps_error`` and an error of δ/1000 in δ,
    the FFT has points from -L to L at a distance of eps_error / (n log(12/δ_error) / 2)^(1/2).

    Attributes:
        eps_error: Most that the reported bound may lie above ε.

    Example:
        >>> from fedpriv.privacy.core.sampling import PoissonSampling
        >>> step = PoissonSampling(sample_rate=0.01).event(noise_multiplier=1.0)
        >>> round(PrvAccountant().epsilon_of({step: 1000}, 1e-5, "add_or_remove"), 2)
        1.84
    """

    name = "prv"

    eps_error: float = field(
        number(at_least=1e-4, at_most=1),
        default=0.01,
        help="how far the reported upper bound may lie above ε",
    )

    def supports(self, event: dp_event.DpEvent, neighbours: str) -> str | None:
        if isinstance(event, dp_event.NonPrivateDpEvent):
            return None
        if neighbours == REPLACE_ONE:
            supported, requested = RELATION_WORDS[ADD_OR_REMOVE], RELATION_WORDS[neighbours]
            return f"prv supports {supported} only, not {requested}"
        lot = event.event if isinstance(event, dp_event.PoissonSampledDpEvent) else event
        if not isinstance(lot, dp_event.GaussianDpEvent):
            return f"prv cannot account for {event_words(event)}: Poisson-sampled Gaussians only"
        return None

    def _epsilon_of(self, composition: Composition, delta: float, neighbours: str) -> float:
        points = self._points(composition, delta)
        if points > _MOST_POINTS:
            raise CannotAccount(
                f"prv would need {points:.1g} points at this noise, delta and number of releases, and may "
                f"use at most {_MOST_POINTS:g}; pld has no such limit"
            )
        library = _library()
        for event, count in composition.items():
            rate, multiplier = _rate_and_multiplier(event)
            library.history.append((multiplier, rate, count))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Opacus warns of its own numerics near the tails
            try:
                epsilon, confirmed = library.checked_epsilon(delta, self.eps_error)
            except (ValueError, RuntimeError, MemoryError) as error:
                reason = str(error).splitlines()[0].strip().rstrip(".")
                raise CannotAccount(f"prv (Opacus) fails here: {reason}{_OTHERS}") from None
        if not (confirmed or self._near_a_bound(epsilon, composition, delta)):
            raise CannotAccount(
                f"prv cannot account for {sum(composition.values())} releases at delta {delta:g}: rounding "
                f"in its Fourier transform may move delta by more than a thousandth{_OTHERS}"
            )
        return max(0.0, epsilon)

    def _near_a_bound(self, epsilon: float, composition: Composition, delta: float) -> bool:
        """Return whether ε holds by another theorem and is close to that theorem's ε.

        Close means at most 2 ``eps_error`` above. This is the case where noise is large and ε next to
        nothing, which a calibration tries first. The theorems are RDP (Mironov 2017) and GDP without sampling
        (Dong, Roth, Su 2022; sampling never raises the cost).
        """
        counts: Counter[dp_event.DpEvent] = Counter()
        for event, count in composition.items():
            counts[dp_event.GaussianDpEvent(_rate_and_multiplier(event)[1])] += count
        bounds = (
            _RDP.epsilon_of(composition, delta, ADD_OR_REMOVE),
            GdpAccountant().epsilon_of(
                counts, delta, ADD_OR_REMOVE
            ),  # sampling never raises the cost
        )
        return any(bound <= epsilon <= bound + 2.0 * self.eps_error for bound in bounds)

    def bound(self, composition: Composition, delta: float, neighbours: str) -> float:
        """Return RDP's ε plus 2 ``eps_error``, at a δ that is smaller by 2 δ/1000.

        Opacus' ε at δ is at most 2 ``eps_error`` above the true ε at that smaller δ (Gopi, Lee, Wutschitz
        2021).
        """
        if any(map(without_noise, composition)):
            return math.inf
        least = delta * (1.0 - 2.0 / _DELTA_ERRORS)
        return _RDP.epsilon_of(on_grid(composition), least, neighbours) + 2.0 * self.eps_error

    def _points(self, composition: Composition, delta: float) -> float:
        """Return how many points Opacus would lay out by its own rule (Gopi et al. 2021, remark 5.6)."""
        draws, error = sum(composition.values()), delta / _DELTA_ERRORS
        mesh = self.eps_error / math.sqrt(draws * math.log(12.0 / error) / 2.0)
        return 2.0 * _half_width(_RDP, composition, error, self.eps_error) / mesh

    def describe(self) -> str:
        return f"PRV, error {self.eps_error:g}"


def _half_width(
    rdp: RdpAccountant, composition: Composition, error: float, eps_error: float
) -> float:
    """Return L: Opacus lays its points from -L to L (Gopi et al. 2021, remark 5.6)."""
    draws = sum(composition.values())
    whole = rdp.epsilon_of(composition, error / 4.0, ADD_OR_REMOVE)
    single = max(
        rdp.epsilon_of({event: 1}, error / (8.0 * draws), ADD_OR_REMOVE) for event in composition
    )
    return max(whole, single, eps_error) + 3.0


def _library() -> Any:
    """Return Opacus' accountant, extended by a check of its rounding.

    Our RDP gives the width of its domain. It gives the same numbers, where Opacus' own RDP takes half a
    second for each noise multiplier.
    """
    from opacus.accountants import PRVAccountant as Library
    from opacus.accountants.analysis import prv as numerics
    from opacus.accountants.analysis.prv import compose
    from opacus.accountants.rdp import RDPAccountant

    rdp = RdpAccountant(orders=RDPAccountant.DEFAULT_ALPHAS)

    class Checked(Library):
        def _get_domain(  # type: ignore[no-untyped-def]
            self, prvs, num_self_compositions, eps_error, delta_error
        ):
            events = (PoissonSampling(p.sample_rate).event(p.noise_multiplier) for p in prvs)
            composition = dict(zip(events, num_self_compositions, strict=True))
            width = _half_width(rdp, composition, delta_error, eps_error)
            draws = sum(num_self_compositions)
            mesh = eps_error / np.sqrt(draws * np.log(12 / delta_error) / 2)
            return numerics.Domain.create_aligned(-width, width, mesh)

        def _get_dprv(self, eps_error, delta_error):  # type: ignore[no-untyped-def]
            """Repeat Opacus' method step by step, and keep every step for the bound of its rounding."""
            prvs = [numerics.PoissonSubsampledGaussianPRV(q, z) for z, q, _ in self.history]
            self.counts = [count for _, _, count in self.history]
            self.domain = self._get_domain(prvs, self.counts, eps_error, delta_error)
            ends = self.domain.t_min, self.domain.t_max
            truncated = [numerics.TruncatedPrivacyRandomVariable(prv, *ends) for prv in prvs]
            self.singles = [numerics.discretize(prv, self.domain) for prv in truncated]
            return self._composed(self.singles)

        def _composed(self, singles):  # type: ignore[no-untyped-def]
            """Return the composition, and note by how much the transforms may move δ."""
            parts = list(map(compose._compose_fourier, singles, self.counts))
            self.error = sum(
                rounding.self_composition_error(single.pmf, part.pmf, count)
                for single, part, count in zip(singles, parts, self.counts, strict=True)
            )
            worst = max((part.pmf for part in parts), key=lambda pmf: float(np.dot(pmf, pmf)))
            self.error += (len(parts) - 1) * rounding.convolution_error(worst, worst)
            self.composed = compose._compose_convolution_tree(parts)
            return self.composed

        def checked_epsilon(self, delta: float, eps_error: float) -> tuple[float, bool]:
            """Return Opacus' upper bound on ε, and whether the check of its rounding confirms it."""
            upper = float(self.get_epsilon(delta, eps_error=eps_error))
            draws, unit = sum(self.counts), float(np.finfo(float).eps)
            # Distribution functions are rounded near 1, once for each draw.
            if self.error + 2.0 * draws * unit <= delta / rounding.SHARE:
                return upper, True
            if np.finfo(np.longdouble).eps >= unit:
                return upper, False
            composed = self._composed(
                [
                    numerics.DiscretePRV(_tail_differences(q, z, self.domain), single.domain)
                    for (z, q, _), single in zip(self.history, self.singles, strict=True)
                ]
            )
            if not self.error <= delta / rounding.SHARE:
                return upper, False
            for candidate in (lambda: upper, lambda: self._precise_epsilon(delta, eps_error)):
                epsilon = candidate()
                delta_here, mass = rounding.delta_of(
                    composed.domain.ts, composed.pmf, epsilon - eps_error
                )
                # The rounding error of a tail probability is in proportion to that probability.
                error = self.error + 8.0 * draws * unit * mass
                if (1.0 - _FIFTIETH) * delta <= delta_here and delta_here + error <= delta:
                    return epsilon, True
            return upper, False

        def _precise_epsilon(self, delta: float, eps_error: float) -> float:
            return float(self.composed.compute_epsilon(delta, delta / _DELTA_ERRORS, eps_error)[2])

    return Checked()


def _tail_differences(rate: float, multiplier: float, domain: Any) -> np.ndarray:
    """Return the mass of the truncated privacy loss in each cell of ``domain``, in extended precision.

    The masses are differences of tail probabilities, where Opacus has differences of numbers near 1, which
    lose digits (Gopi et al. 2021, proposition B.4).
    """

    def tail(t: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            shifted = np.log(np.maximum(np.exp(t) + rate - 1.0, 0.0) / rate)
            z = multiplier * shifted / math.sqrt(2.0)
            half = 1.0 / (2.0 * math.sqrt(2.0) * multiplier)
            return (rate * special.erfc(z - half) + (1.0 - rate) * special.erfc(z + half)) / 2.0

    centres = domain.ts
    edges = np.append(centres - domain.dt / 2.0, centres[-1] + domain.dt / 2.0)
    tails = tail(np.clip(edges, domain.t_min, domain.t_max)).astype(np.longdouble)
    return (tails[:-1] - tails[1:]) / (tails[0] - tails[-1])


def _rate_and_multiplier(event: dp_event.DpEvent) -> tuple[float, float]:
    """Return sample rate and noise multiplier of a supported event; the rate is 1 without sampling."""
    if isinstance(event, dp_event.PoissonSampledDpEvent):
        return event.sampling_probability, event.event.noise_multiplier
    return 1.0, event.noise_multiplier
