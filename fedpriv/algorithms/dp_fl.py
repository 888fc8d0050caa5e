"""DP-FL and Adap DP-FL (Fu, Chen, Han 2022): record-level DP, noise added by each client.

    ḡ_i = g_i · factor_i,  ‖ḡ_i‖ ≤ C_t^k
    g̃   = (1/L) (Σ_{i in lot} ḡ_i + N(0, (σ_t C_t^k)² I)),   L = q n_k
    w^k  = optimiser(w, g̃);   w = Σ_k p_k w^k,   p_k = n_k / Σ n

``dp_fl`` has a constant C and σ; ``adap_dpfl`` is the same with an adaptive clipper and schedule. The
server is honest but curious and sees every upload: trust is local, and each client has its own ε.
"""

from __future__ import annotations

from typing import Any

from fedpriv.algorithms.augmentation import make_augmentation
from fedpriv.algorithms.local_steps import LocalStepsAlgorithm
from fedpriv.common import checks
from fedpriv.privacy.claims import ADAP_DPFL_READINGS, adap_dpfl


class DpFl(LocalStepsAlgorithm):
    """Per-record clipping and Gaussian noise on every client."""

    private = True

    def __init__(
        self,
        *args: Any,
        claim: str = "with_log",
        augmentation_multiplicity: int | None = None,
        random_flip: bool | None = None,
        random_crop: int | None = None,
        crop_fill: str | None = None,
        **settings: Any,
    ):
        """``claim``: which reading of theorem 1 is the published view, ``with_log`` or ``as_printed``;
        ``augmentation_multiplicity`` and what follows it: :mod:`fedpriv.algorithms.augmentation`; the rest is
        common to all algorithms with local steps."""
        super().__init__(*args, **settings)
        self.augmentation = make_augmentation(
            augmentation_multiplicity, random_flip, random_crop, crop_fill
        )
        self.claim = self.own_claim(adap_dpfl(checks.one_of("claim", claim, ADAP_DPFL_READINGS)))
