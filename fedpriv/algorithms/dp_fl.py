"""DP-FL and Adap DP-FL (Fu, Chen, Han 2022): record-level DP, noise added by each client.

    ḡ_i = g_i · factor_i,  ‖ḡ_i‖ ≤ C_t^k
    g̃   = (1/L) (Σ_{i in lot} ḡ_i + N(0, (σ_t C_t^k)² I)),   L = q n_k
    w^k  = optimiser(w, g̃);   w = Σ_k p_k w^k,   p_k = n_k / Σ n

``dp_fl`` has a constant C and σ; ``adap_dpfl`` is the same with an adaptive clipper and schedule. The
server is honest but curious and sees every upload: trust is local, and each client has its own ε.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedpriv.algorithms.base import LocalStepsAlgorithm
from fedpriv.privacy.claims import ADAP_DPFL
from fedpriv.privacy.mechanism import CLIP_STATISTIC, GRADIENT, Draw, Query
from fedpriv.privacy.sampling import Sampling

if TYPE_CHECKING:
    from fedpriv.privacy.clippers import Clipper


class DpFl(LocalStepsAlgorithm):
    """Per-record clipping and Gaussian noise on every client."""

    private = True
    claim = ADAP_DPFL

    def draw(self, sampling: Sampling, noise_multiplier: float, clipper: Clipper) -> Draw:
        queries = [Query(GRADIENT, noise_multiplier)]
        statistic = clipper.statistic_multiplier(noise_multiplier)
        if statistic is not None:
            queries.append(Query(CLIP_STATISTIC, statistic))
        return Draw(sampling, tuple(queries))
