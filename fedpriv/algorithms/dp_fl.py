"""DP-FL and Adap DP-FL (Fu, Chen, Han 2022): record-level DP, noise added by each client.

    ḡ_i = g_i · factor_i,  ‖ḡ_i‖ ≤ C_t^k
    g̃   = (1/L) (Σ_{i in lot} ḡ_i + N(0, (σ_t C_t^k)² I)),   L = q n_k
    w^k  = optimiser(w, g̃);   w = Σ_k p_k w^k,   p_k = n_k / Σ n

``dp_fl`` has a constant C and σ; ``adap_dpfl`` is the same with an adaptive clipper and schedule. The
server is honest but curious and sees every upload: trust is local, and each client has its own ε.
"""

from __future__ import annotations

from fedpriv.algorithms.augmentation import Augmented
from fedpriv.algorithms.record_level import LocalStepsAlgorithm
from fedpriv.common import checks
from fedpriv.common.fields import Allowed, declared, field
from fedpriv.privacy.mechanisms.claims import ADAP_DPFL_READINGS, Claim, adap_dpfl


@declared
class DpFl(Augmented, LocalStepsAlgorithm):
    """Per-record clipping and Gaussian noise on every client; the formulas are in the module.

    Source: Fu, Chen, Han, "Adap DP-FL: differentially private federated learning with adaptive noise",
    TrustCom 2022.

    The argument ``claim`` is the reading of the work's theorem 1, ``with_log`` or ``as_printed``; the
    attribute is the claim. See :class:`fedpriv.algorithms.record_level.LocalStepsAlgorithm` for the other
    arguments.

    Example:
        >>> algorithm = DpFl(name="dp_fl", sample_rate=0.05, optimizer="sgd", learning_rate=0.5)
        >>> algorithm.records_per_step(600)
        30.0
    """

    private = True
    releases_feature_statistics = True

    claim: Claim | None = field(
        Allowed(
            lambda name, value, part: part.own_claim(
                adap_dpfl(checks.one_of(name, value, ADAP_DPFL_READINGS))
            ),
            ", ".join(ADAP_DPFL_READINGS),
        ),
        default="with_log",
        kw_only=True,
        help="how theorem 1 is read for the published ε: with its logarithm, or as printed",
    )
