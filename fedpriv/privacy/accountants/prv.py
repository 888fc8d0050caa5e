"""Privacy random variables (Gopi, Lee, Wutschitz 2021), by Opacus; Poisson-sampled Gaussians only.

The accountant gives an upper bound on ε, about ``eps_error`` above the true one.

The theorem leaves out rounding. Opacus convolves in double precision, which may move δ by e
(:mod:`~fedpriv.privacy.accountants.rounding`). Therefore e is added to Opacus' ``delta_error``, so that ε is
taken at a δ that is smaller by both. Where e is a quarter of δ or more, ε is refused.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
from dp_accounting import dp_event

from fedpriv.common.fields import declared, field, number
from fedpriv.privacy.accountants.base import CannotAccount, Composition
from fedpriv.privacy.accountants.composition import CompositionAccountant
from fedpriv.privacy.accountants.rdp import RdpAccountant
from fedpriv.privacy.accountants.rounding import convolution_error, self_composition_error
from fedpriv.privacy.core.events import event_words
from fedpriv.privacy.core.grid import on_grid
from fedpriv.privacy.core.names import ADD_OR_REMOVE, RELATION_WORDS, REPLACE_ONE
from fedpriv.privacy.core.rdp import without_noise

_RDP = RdpAccountant()
_SHARE = 1000.0  # Opacus' error in δ is one part in this many
_MOST_POINTS = 4e6  # more points take a minute and gigabytes
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
        width, mesh = self._domain(composition, delta / _SHARE, _RDP)
        if (points := 2.0 * width / mesh) > _MOST_POINTS:
            raise CannotAccount(
                f"prv would need {points:.1g} points at this noise, delta and number of releases, and may "
                f"use at most {_MOST_POINTS:g}; pld has no such limit"
            )
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # Opacus warns of its own numerics near the tails
                composed, error = self._composed(composition, delta / _SHARE)
                if error < delta / 4.0:
                    settings = (delta, delta / _SHARE + error, self.eps_error)
                    return max(0.0, float(composed.compute_epsilon(*settings)[2]))
        except (ValueError, RuntimeError, MemoryError) as failure:
            reason = str(failure).splitlines()[0].strip().rstrip(".")
            raise CannotAccount(f"prv (Opacus) fails here: {reason}{_OTHERS}") from None
        # A calibration begins with so much noise that ε is next to nothing, also by RDP.
        if (epsilon := _RDP.epsilon_of(composition, delta, ADD_OR_REMOVE)) <= self.eps_error:
            return epsilon
        raise CannotAccount(
            f"prv cannot account for {sum(composition.values())} releases at delta {delta:g}: rounding "
            f"in its Fourier transform may move delta by a quarter of it{_OTHERS}"
        )

    def _composed(self, composition: Composition, delta_error: float) -> tuple[Any, float]:
        """Return Opacus' composition of the releases, and the most by which rounding may move δ.

        Our RDP gives the width of the domain. It gives the same numbers, where Opacus' own RDP takes half a
        second for each noise multiplier.
        """
        from opacus.accountants.analysis import prv as numerics
        from opacus.accountants.analysis.prv import compose
        from opacus.accountants.rdp import RDPAccountant

        rdp = RdpAccountant(orders=RDPAccountant.DEFAULT_ALPHAS)
        width, mesh = self._domain(composition, delta_error, rdp)
        domain = numerics.Domain.create_aligned(-width, width, mesh)
        # Distribution functions are rounded near 1, once for each draw.
        error = 2.0 * sum(composition.values()) * float(np.finfo(float).eps)
        parts = []
        for event, count in composition.items():
            prv = numerics.PoissonSubsampledGaussianPRV(*_rate_and_multiplier(event))
            truncated = numerics.TruncatedPrivacyRandomVariable(prv, domain.t_min, domain.t_max)
            single = numerics.discretize(truncated, domain)
            part = compose._compose_fourier(single, count)
            error += self_composition_error(single.pmf, part.pmf, count, len(part.pmf))
            parts.append(part)
        worst = max((part.pmf for part in parts), key=lambda pmf: float(np.dot(pmf, pmf)))
        error += (len(parts) - 1) * convolution_error(worst, worst)
        return compose._compose_convolution_tree(parts), error

    def _domain(
        self, composition: Composition, error: float, rdp: RdpAccountant
    ) -> tuple[float, float]:
        """Return L and the mesh: Opacus lays its points from -L to L (Gopi et al. 2021, remark 5.6)."""
        draws = sum(composition.values())
        whole = rdp.epsilon_of(composition, error / 4.0, ADD_OR_REMOVE)
        single = max(
            rdp.epsilon_of({event: 1}, error / (8.0 * draws), ADD_OR_REMOVE)
            for event in composition
        )
        mesh = self.eps_error / math.sqrt(draws * math.log(12.0 / error) / 2.0)
        return max(whole, single, self.eps_error) + 3.0, mesh

    def bound(self, composition: Composition, delta: float, neighbours: str) -> float:
        """Return RDP's ε plus 2 ``eps_error``, at half of δ.

        Opacus' ε is at most 2 ``eps_error`` above the true ε at a δ that is smaller by twice its error in δ
        (Gopi, Lee, Wutschitz 2021): δ/1000, and less than δ/4 for rounding.
        """
        if any(map(without_noise, composition)):
            return math.inf
        least = delta * (0.5 - 2.0 / _SHARE)
        return _RDP.epsilon_of(on_grid(composition), least, neighbours) + 2.0 * self.eps_error

    def describe(self) -> str:
        return f"PRV, error {self.eps_error:g}"


def _rate_and_multiplier(event: dp_event.DpEvent) -> tuple[float, float]:
    """Return sample rate and noise multiplier of a supported event; the rate is 1 without sampling."""
    if isinstance(event, dp_event.PoissonSampledDpEvent):
        return event.sampling_probability, event.event.noise_multiplier
    return 1.0, event.noise_multiplier
