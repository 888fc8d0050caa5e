"""DP-FL and Adap DP-FL (Fu, Chen, Han 2022): record-level DP, noise added by each client.

    ḡ_i = g_i · factor_i,  ‖ḡ_i‖ ≤ C_t^k
    g̃   = (1/L) (Σ_{i in lot} ḡ_i + N(0, (σ_t C_t^k)² I)),   L = q n_k
    w^k  = optimiser(w, g̃);   w = Σ_k p_k w^k,   p_k = n_k / Σ n

``dp_fl`` has a constant C and σ; ``adap_dpfl`` is the same with an adaptive clipper and schedule. The
server is honest but curious and sees every upload: trust is local, and each client has its own ε.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fedpriv.algorithms.base import queries
from fedpriv.algorithms.local_steps import LocalStepsAlgorithm
from fedpriv.common import checks
from fedpriv.common.errors import ConfigError
from fedpriv.privacy.claims import ADAP_DPFL_READINGS, adap_dpfl
from fedpriv.privacy.mechanism import Draw, Query, RandomizedBit
from fedpriv.privacy.names import CLIENT
from fedpriv.privacy.sampling import Sampling

if TYPE_CHECKING:
    from fedpriv.privacy.clippers import Clipper


class DpFl(LocalStepsAlgorithm):
    """Per-record clipping and Gaussian noise on every client."""

    private = True

    def __init__(self, *args: Any, claim: str = "with_log", **settings: Any):
        """``claim``: which reading of theorem 1 is the published view, ``with_log`` or
        ``as_printed``; the rest is common to all algorithms with local steps."""
        super().__init__(*args, **settings)
        self.claim = adap_dpfl(checks.one_of("claim", claim, ADAP_DPFL_READINGS))

    def draw(
        self, sampling: Sampling, noise_multiplier: float, clipper: Clipper, round_index: int
    ) -> Draw:
        found = queries(clipper, noise_multiplier, round_index)
        return answered_by_clients(sampling, found, clipper, self.local_steps)


def answered_by_clients(
    sampling: Sampling,
    queries: tuple[Query | RandomizedBit, ...],
    clipper: Clipper,
    local_steps: int,
) -> Draw:
    """A draw in which every answer is noised by the client itself, whose records it is about."""
    if clipper.one_query_a_round and local_steps > 1:
        raise ConfigError("algorithm.local_steps", local_steps, "1 with this clipper")
    return Draw(sampling, tuple(_by_client(query) for query in queries))


def _by_client(query: object) -> Query:
    if not isinstance(query, Query):
        raise ConfigError(
            "clipper.bit_mechanism",
            "randomized_response",
            "gaussian with this algorithm",
            "randomized response is for one bit per client (algorithm=ldp_fedsgd)",
        )
    return replace(query, by=CLIENT)
