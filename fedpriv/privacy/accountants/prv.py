"""Privacy random variables (Gopi, Lee, Wutschitz 2021), by Opacus: an upper bound about ``eps_error``
above the true ε. Poisson-sampled Gaussians only."""

from __future__ import annotations

import warnings
from collections.abc import Mapping

from dp_accounting import dp_event

from fedpriv.common import checks
from fedpriv.privacy.accountants.composition import CompositionAccountant
from fedpriv.privacy.names import ADD_OR_REMOVE


class PrvAccountant(CompositionAccountant):
    """``eps_error``: how far the reported upper bound may lie above ε."""

    name = "prv"

    def __init__(self, eps_error: float = 0.01):
        self.eps_error = checks.number("eps_error", eps_error, at_least=1e-4, at_most=1)

    def supports(self, event: dp_event.DpEvent, neighbours: str) -> str | None:
        if isinstance(event, dp_event.NonPrivateDpEvent):
            return None
        if neighbours != ADD_OR_REMOVE:
            return f"prv knows add_or_remove neighbours only, not {neighbours}"
        if _rate_and_multiplier(event) is None:
            return f"prv cannot price {type(event).__name__}: Poisson-sampled Gaussians only"
        return None

    def _price(
        self, composition: Mapping[dp_event.DpEvent, int], delta: float, neighbours: str
    ) -> float:
        from opacus.accountants import PRVAccountant as Library

        library = Library()
        for event, count in composition.items():
            rate, multiplier = _rate_and_multiplier(event)
            library.history.append((multiplier, rate, count))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of its own numerics near the tails
            return max(0.0, float(library.get_epsilon(delta, eps_error=self.eps_error)))

    def describe(self) -> str:
        return f"PRV, error {self.eps_error:g}"


def _rate_and_multiplier(event: dp_event.DpEvent) -> tuple[float, float] | None:
    if isinstance(event, dp_event.GaussianDpEvent):
        return 1.0, event.noise_multiplier
    if isinstance(event, dp_event.PoissonSampledDpEvent) and isinstance(
        event.event, dp_event.GaussianDpEvent
    ):
        return event.sampling_probability, event.event.noise_multiplier
    return None
