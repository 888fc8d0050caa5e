"""Privacy random variables (Gopi, Lee, Wutschitz 2021), by Opacus: an upper bound about ``eps_error``
above the true ε. Poisson-sampled Gaussians only.

The theorem leaves out rounding. Opacus convolves in double precision, whose error in δ is about 1e-15 for
each draw, so that an ε at a much smaller δ is meaningless. Here every ε is checked, first with the bound of
:mod:`rounding`, then by δ at this ε of the same composition in extended precision. It stands where both agree
to a fiftieth of δ and the true δ is not above by more than a thousandth; else it is computed in extended
precision, and refused where that may be off by a thousandth of δ as well.
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
_DELTA_ERRORS = rounding.SHARE  # Opacus' error in δ is this part of it
_MOST_POINTS = 4e6  # more take a minute and gigabytes
_FIFTIETH = 0.02  # of δ: how far double precision may err on the safe side, about .005 in ε
_OTHERS = "; pld and rdp have no such limit, nor has prv at a larger delta"


@declared
class PrvAccountant(CompositionAccountant):
    """Privacy random variables, as Opacus composes them: an upper bound on ε."""

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
            words = RELATION_WORDS
            return f"prv knows {words[ADD_OR_REMOVE]} only, not {words[neighbours]}"
        if _rate_and_multiplier(event) is None:
            return f"prv cannot account for {event_words(event)}: Poisson-sampled Gaussians only"
        return None

    def _epsilon_of(self, composition: Composition, delta: float, neighbours: str) -> float:
        points = self._points(composition, delta)
        if points > _MOST_POINTS:
            raise CannotAccount(
                f"prv would need {points:.1g} points at this noise, delta and number of releases "
                f"(at most {_MOST_POINTS:g}); pld has no such limit"
            )
        library = _library()
        for event, count in composition.items():
            known = _rate_and_multiplier(event)
            assert known is not None  # it is supported
            rate, multiplier = known
            library.history.append((multiplier, rate, count))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of its own numerics near the tails
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
        """Return whether ε holds by another theorem and is above it by no more than the error of this one.

        So it is where noise is much and ε next to nothing, which a calibration tries first.
        """
        counts: Counter[dp_event.DpEvent] = Counter()
        for event, count in composition.items():
            known = _rate_and_multiplier(event)
            assert known is not None  # it is supported
            counts[dp_event.GaussianDpEvent(known[1])] += count
        bounds = (
            _RDP.epsilon_of(composition, delta, ADD_OR_REMOVE),
            GdpAccountant().epsilon_of(counts, delta, ADD_OR_REMOVE),  # sampling never costs
        )
        return any(bound <= epsilon <= bound + 2.0 * self.eps_error for bound in bounds)

    def bound(self, composition: Composition, delta: float, neighbours: str) -> float:
        """Opacus' ε is at most 2 ``eps_error`` above the true one, at a δ that is 2 δ/1000 smaller (Gopi et
        al. 2021)."""
        if any(map(without_noise, composition)):
            return math.inf
        least = delta * (1.0 - 2.0 / _DELTA_ERRORS)
        return _RDP.epsilon_of(on_grid(composition), least, neighbours) + 2.0 * self.eps_error

    def _points(self, composition: Composition, delta: float) -> float:
        """How many points Opacus would lay out: its own rule (Gopi et al. 2021, remark 5.6)."""
        draws, error = sum(composition.values()), delta / _DELTA_ERRORS
        mesh = self.eps_error / math.sqrt(draws * math.log(12.0 / error) / 2.0)
        return 2.0 * _half_width(_RDP, composition, error, self.eps_error) / mesh

    def describe(self) -> str:
        return f"PRV, error {self.eps_error:g}"


def _half_width(
    rdp: RdpAccountant, composition: Composition, error: float, eps_error: float
) -> float:
    """L: Opacus lays its points from -L to L (Gopi et al. 2021, remark 5.6)."""
    draws = sum(composition.values())
    whole = rdp.epsilon_of(composition, error / 4.0, ADD_OR_REMOVE)
    single = max(
        rdp.epsilon_of({event: 1}, error / (8.0 * draws), ADD_OR_REMOVE) for event in composition
    )
    return max(whole, single, eps_error) + 3.0


def _library() -> Any:
    """Return Opacus' accountant, its rounding checked. Our RDP gives the width of its domain: the same
    numbers where its own takes half a second for each noise multiplier."""
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
            """Opacus' own, step by step, so that every step is at hand for its rounding."""
            prvs = [numerics.PoissonSubsampledGaussianPRV(q, z) for z, q, _ in self.history]
            self.counts = [count for _, _, count in self.history]
            self.domain = self._get_domain(prvs, self.counts, eps_error, delta_error)
            ends = self.domain.t_min, self.domain.t_max
            truncated = [numerics.TruncatedPrivacyRandomVariable(prv, *ends) for prv in prvs]
            self.singles = [numerics.discretize(prv, self.domain) for prv in truncated]
            return self._composed(self.singles)

        def _composed(self, singles):  # type: ignore[no-untyped-def]
            """Return the composition, and note how far the transforms may be off."""
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
            """Return Opacus' upper bound of ε with rounding accounted for, and whether that is settled."""
            upper = float(self.get_epsilon(delta, eps_error=eps_error))
            draws, unit = sum(self.counts), float(np.finfo(float).eps)
            # a distribution function is rounded near 1, once for each draw
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
                found, mass = rounding.delta_of(
                    composed.domain.ts, composed.pmf, epsilon - eps_error
                )
                # tail probabilities are known relatively: their rounding is in proportion to the tail
                error = self.error + 8.0 * draws * unit * mass
                if (1.0 - _FIFTIETH) * delta <= found and found + error <= delta:
                    return epsilon, True
            return upper, False

        def _precise_epsilon(self, delta: float, eps_error: float) -> float:
            return float(self.composed.compute_epsilon(delta, delta / _DELTA_ERRORS, eps_error)[2])

    return Checked()


def _tail_differences(rate: float, multiplier: float, domain: Any) -> np.ndarray:
    """Return the mass of the truncated privacy loss in each cell of ``domain`` in extended precision, from
    tail probabilities, where Opacus has differences of numbers near 1 (Gopi et al. 2021, proposition B.4)."""

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


def _rate_and_multiplier(event: dp_event.DpEvent) -> tuple[float, float] | None:
    if isinstance(event, dp_event.GaussianDpEvent):
        return 1.0, event.noise_multiplier
    if isinstance(event, dp_event.PoissonSampledDpEvent) and isinstance(
        event.event, dp_event.GaussianDpEvent
    ):
        return event.sampling_probability, event.event.noise_multiplier
    return None
