"""An upper bound on δ(ε) from samples that fails with a probability fixed in advance.

With L the privacy loss and samples from the tilted distribution R_α (α = 1: no tilt),

    δ(ε) = E X,   X = Z_α e^{-(α-1) L} (1 - e^{ε-L})_+,   0 ≤ X ≤ M(ε) = Z_α max_l e^{-(α-1) l} (1 - e^{ε-l})

The range M is known whatever the samples are, so no large weight can have been missed. The bound is a bet
that the mean is below δ (Waudby-Smith & Ramdas 2023, arXiv 2010.09686). For a stake κ ≤ 1/M the wealth

    K_κ = Π_i (1 + κ (δ - X_i))

has mean at most 1 if E X ≥ δ, and so has the mean of K_κ over stakes. By Markov's inequality this mean
exceeds 1/β with probability at most β. Where it does, E X < δ is certified.

Wealth grows with ε, because X falls and more stakes are allowed. So the smallest certified ε is below the
true ε only if the true ε was certified too, wrongly. The probability of that is β, however many ε are tried.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp

from fedpriv.privacy.accountants.monte_carlo_patterns import log_peak

LARGEST, WIDTH = 64.0, 5e-4
"""The largest loss that has a cell of its own, and the width of a cell."""

ROUNDING = 2.5e-4
"""The most by which single precision may change a loss."""

_STAKES = 2.0 ** np.arange(-6, 31)


@dataclass(frozen=True)
class Losses:
    """A histogram of sampled privacy losses, from the tilted distribution R_α.

    Attributes:
        samples: Number of samples.
        order: α, the order of the tilt.
        log_total: log Z_α.
        cells: Indices of the cells that hold samples; a cell begins at index × ``WIDTH``.
        counts: Number of samples in each of ``cells``.
        beyond: Number of samples above ``LARGEST``. All samples that are not counted are at most 0.
    """

    samples: int
    order: int
    log_total: float
    cells: np.ndarray
    counts: np.ndarray
    beyond: int

    def certifies(self, epsilon: float, delta: float, log_failure: float) -> bool:
        """Return whether the samples certify δ(ε) < ``delta``.

        The certificate is wrong with probability at most β. Each loss counts as the most that a loss in its
        cell can (Waudby-Smith & Ramdas 2023, arXiv 2010.09686).

        Args:
            epsilon: ε.
            delta: The bound on δ(ε) to certify.
            log_failure: log β.
        """
        tilt = self.order - 1
        high = (self.cells + 1) * WIDTH + ROUNDING
        above = high > epsilon
        high, counts = high[above], self.counts[above]
        slack = tilt * (WIDTH + 2.0 * ROUNDING)
        log_largest = self.log_total - tilt * epsilon + log_peak(tilt) + slack
        values = np.exp(self.log_total + slack - tilt * high) * -np.expm1(epsilon - high)
        stakes = _STAKES[np.log(_STAKES) <= -log_largest]
        if not len(stakes):
            return False
        largest = math.exp(min(log_largest, 700.0))
        wealth = np.log1p(stakes[:, None] * (delta - values)) @ counts
        with np.errstate(divide="ignore"):
            wealth += self.beyond * np.log1p(stakes * (delta - largest))
        wealth += (self.samples - counts.sum() - self.beyond) * np.log1p(stakes * delta)
        return bool(logsumexp(wealth) - math.log(len(_STAKES)) >= -log_failure)
