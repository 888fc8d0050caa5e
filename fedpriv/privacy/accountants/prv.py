"""Privacy random variables (Gopi, Lee, Wutschitz 2021), by Opacus: an upper bound about ``eps_error``
above the true ε. Poisson-sampled Gaussians only."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
from dp_accounting import dp_event

from fedpriv.common import checks
from fedpriv.privacy.accountants.base import CannotAccount, Composition
from fedpriv.privacy.accountants.composition import CompositionAccountant
from fedpriv.privacy.accountants.rdp import RdpAccountant
from fedpriv.privacy.events import event_words
from fedpriv.privacy.grid import on_grid
from fedpriv.privacy.names import ADD_OR_REMOVE, RELATION_WORDS, REPLACE_ONE
from fedpriv.privacy.rdp import without_noise
from fedpriv.privacy.sampling import PoissonSampling

_RDP = RdpAccountant()
_DELTA_ERRORS = 1000.0  # Opacus' error in δ is this part of it
_MOST_POINTS = 4e6  # more take a minute and gigabytes


class PrvAccountant(CompositionAccountant):
    """``eps_error``: how far the reported upper bound may lie above ε."""

    name = "prv"

    def __init__(self, eps_error: float = 0.01):
        self.eps_error = checks.number("eps_error", eps_error, at_least=1e-4, at_most=1)

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
            rate, multiplier = _rate_and_multiplier(event)
            library.history.append((multiplier, rate, count))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of its own numerics near the tails
            try:
                return max(0.0, float(library.get_epsilon(delta, eps_error=self.eps_error)))
            except (ValueError, RuntimeError, MemoryError) as error:
                reason = str(error).splitlines()[0].strip().rstrip(".")
                raise CannotAccount(f"prv (Opacus) fails here: {reason}") from None

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
    """Opacus' accountant with our RDP for the width of its domain: the same numbers, where its own takes
    half a second for each noise multiplier."""
    from opacus.accountants import PRVAccountant as Library
    from opacus.accountants.analysis.prv import Domain
    from opacus.accountants.rdp import RDPAccountant

    rdp = RdpAccountant(RDPAccountant.DEFAULT_ALPHAS)

    class Faster(Library):
        def _get_domain(  # type: ignore[no-untyped-def]
            self, prvs, num_self_compositions, eps_error, delta_error
        ):
            events = (PoissonSampling(p.sample_rate).event(p.noise_multiplier) for p in prvs)
            composition = dict(zip(events, num_self_compositions, strict=True))
            width = _half_width(rdp, composition, delta_error, eps_error)
            draws = sum(num_self_compositions)
            mesh = eps_error / np.sqrt(draws * np.log(12 / delta_error) / 2)
            return Domain.create_aligned(-width, width, mesh)

    return Faster()


def _rate_and_multiplier(event: dp_event.DpEvent) -> tuple[float, float] | None:
    if isinstance(event, dp_event.GaussianDpEvent):
        return 1.0, event.noise_multiplier
    if isinstance(event, dp_event.PoissonSampledDpEvent) and isinstance(
        event.event, dp_event.GaussianDpEvent
    ):
        return event.sampling_probability, event.event.noise_multiplier
    return None
