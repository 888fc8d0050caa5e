"""A constant σ that follows from an ε: for the whole run, or for a single draw.

The experiment settles it before anything runs, with its own accountant, sampler and clipper: what is
asked beside the gradient is in the price. σ is the smallest, to 6 digits, that keeps to ε.
"""

from __future__ import annotations

from collections.abc import Callable

from fedpriv.common import checks
from fedpriv.common.errors import ArgumentError
from fedpriv.privacy.noise_schedules.base import NoiseSchedule

SCOPES = ("run", "draw")


class CalibratedNoise(NoiseSchedule):
    """σ_t = σ with ε(σ, draws) = ``epsilon``.

    ``per``: ``run``, ε covers all draws of a client; ``draw``, ε is that of one draw (one local report,
    say), and the run costs what its draws compose to. ``draws``: how many a client makes in a run;
    ``None``: rounds × local steps, times m/K (rounded up) where m of K clients are sampled.
    """

    def __init__(self, epsilon: float | None, per: str = "run", draws: int | None = None):
        self.per = checks.one_of("per", per, SCOPES)
        if epsilon is None:
            raise ArgumentError(
                "epsilon", None, "a number > 0", "the key epsilon of the run gives it for per=run"
            )
        self.epsilon = checks.number("epsilon", epsilon, above=0)
        self.draws = None if draws is None else checks.whole("draws", draws, at_least=1)
        if self.per == "draw" and self.draws is not None:
            raise ArgumentError("draws", draws, "null with per=draw")
        self._sigma: float | None = None

    def settle(self, solve: Callable[[float, int | None], float]) -> None:
        """Fix σ = ``solve(epsilon, draws)``; ``draws`` is None where the run's plan decides."""
        self._sigma = solve(self.epsilon, 1 if self.per == "draw" else self.draws)

    def noise_multiplier(self, round_index: int) -> float:
        if self._sigma is None:
            raise RuntimeError("a calibrated schedule must be settled before it is used")
        return self._sigma
