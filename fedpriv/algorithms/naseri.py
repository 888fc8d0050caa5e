"""Local and central DP of Naseri, Hayes, De Cristofaro: defences against backdoors and inference.

    LDP   m sampled clients run E epochs of DP-SGD (Poisson rate p, so E/p steps; as printed, with
          ``epochs=batches``, E steps of one random batch each), and θ ← Σ (n_k/n) θ_k:
          θ_k ← θ_k - η ( (1/(p n_k)) Σ_i g_i min(1, C/‖g_i‖) + noise ).  Record level, local trust
    CDP   each client comes with probability q, runs E epochs of SGD, and pulls its change back onto the
          ball of radius S after every batch;  θ ← θ + mean Δ_k + noise.  Client level, trusted server

The argument ``noise`` says where the noise is added:

    fixed_denominator   LDP: N(0, (σ C)²) on the clipped sum. CDP: N(0, (z S)²) on the sum over qK
                        (McMahan et al. 2018)
    as_printed          LDP, line 13: N(0, σ²) outside 1/(p n_k), without C: multiplier σ p n_k / C on the
                        sum. CDP, line 13: N(0, (z S/q)²) on the mean over the participating clients, which
                        one client moves by up to S: multiplier z/q, about K times as much noise

Source: Naseri, Hayes, De Cristofaro, "Local and central differential privacy for robustness and privacy in
federated learning", NDSS 2022.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from fedpriv.algorithms.base import cohort_size
from fedpriv.algorithms.cdp_fedavg import CdpFedAvg
from fedpriv.algorithms.record_level import LocalStepsAlgorithm
from fedpriv.common.fields import declared, field, one_of, or_null, same_as, set_apart
from fedpriv.privacy.clippers import ConstantClipper
from fedpriv.privacy.core.sampling import PoissonSampling, Sampling
from fedpriv.privacy.mechanisms.claims import naseri_cdp, naseri_ldp, naseri_ldp_multiplier
from fedpriv.privacy.mechanisms.mechanism import Asking

if TYPE_CHECKING:
    from fedpriv.algorithms.run_context import RunContext
    from fedpriv.algorithms.uploads import Uploads

FIXED, PRINTED = "fixed_denominator", "as_printed"
NOISES = (FIXED, PRINTED)


@declared
class NaseriCdp(CdpFedAvg):
    """CDP: clients project their weights while they train; the noised mean is over qK or the participants.

    Attributes:
        noise: ``fixed_denominator`` or ``as_printed``; see the module.

    See :class:`~fedpriv.algorithms.cdp_fedavg.CdpFedAvg` for the other arguments.
    """

    noise: str = field(
        one_of(NOISES),
        default=FIXED,
        kw_only=True,
        help=(
            "fixed_denominator: noise z S on the sum, divided by q K; as_printed: noise z "
            "S/q on the mean of the participating clients"
        ),
    )

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        self.claim = self.own_claim(naseri_cdp(self.noise))

    def uploads(self, context: RunContext) -> Uploads:
        from fedpriv.algorithms.uploads import ProjectedChanges

        return ProjectedChanges(context, *self._local)

    @property
    def noise_on_the_mean(self) -> bool:
        """True with ``as_printed``: a client that takes part alone moves the mean by up to S."""
        return self.noise == PRINTED

    @property
    def sums_by_bucket(self) -> bool:
        """False with ``as_printed``: the noise of a bucket's mean would follow from its secret size."""
        return self.noise != PRINTED

    def gradient_multiplier(
        self, noise_multiplier: float, sampling: Sampling, clipper: Asking
    ) -> float:
        multiplier = super().gradient_multiplier(noise_multiplier, sampling, clipper)
        return multiplier / self.client_rate if self.noise == PRINTED else multiplier

    def denominator(self, cohort: int, clients: int) -> float:
        if self.noise == PRINTED:
            return float(max(1, cohort))
        return super().denominator(cohort, clients)


@dataclass(frozen=True)
class CountedPoissonSampling(PoissonSampling):
    """Poisson lots of a client whose noise depends on its number of records.

    Attributes:
        records: n_k.
    """

    records: int


@declared
class NaseriLdp(LocalStepsAlgorithm):
    """LDP: E epochs of DP-SGD at sampled clients, E/p local steps with Poisson lots of rate p.

    Attributes:
        local_epochs: E.
        sample_rate: p.
        noise: ``fixed_denominator`` or ``as_printed``; see the module.

    See :class:`fedpriv.algorithms.record_level.LocalStepsAlgorithm` for the other arguments.

    Example:
        >>> algorithm = NaseriLdp(name="naseri_ldp", sample_rate=0.1, local_epochs=2)
        >>> algorithm.local_steps
        20
    """

    private = True

    name: str = same_as(LocalStepsAlgorithm, "name")
    sample_rate: float = same_as(LocalStepsAlgorithm, "sample_rate")
    local_epochs: int = same_as(CdpFedAvg, "local_epochs")
    epochs: str | None = field(
        or_null(one_of(("lots", "batches"))),
        default=None,
        help="an epoch is 1/p lots (lots), or one lot, as printed (batches); null: lots",
    )
    learning_rate: float = same_as(LocalStepsAlgorithm, "learning_rate", default=0.1)
    clients_per_round: int | None = cohort_size()
    noise: str = field(
        one_of(NOISES),
        default=FIXED,
        help=(
            "fixed_denominator: noise on the clipped sum; as_printed: noise outside 1/(p n) "
            "and without the factor C"
        ),
    )

    sampling: str = set_apart("poisson")
    max_lot_size: None = set_apart(None)
    optimizer: str = set_apart("sgd")
    optimizer_state: str = set_apart("kept")
    local_steps: int = set_apart(1)
    participation: str = set_apart("all")
    proximal: float = set_apart(0.0)
    learning_rate_decay: None = set_apart(None)

    def __attrs_post_init__(self) -> None:
        lots = 1.0 if self.epochs == "batches" else self.sample_rate
        self.local_steps = max(1, round(self.local_epochs / lots))
        self.participation = "all" if self.clients_per_round is None else "sampled"
        super().__attrs_post_init__()
        self.cost_depends_on_records = self.noise == PRINTED
        self.claim = self.own_claim(naseri_ldp())

    def sampling_of(self, records: int) -> Sampling:
        if self.noise == PRINTED:
            return CountedPoissonSampling(self.sample_rate, records)
        return PoissonSampling(self.sample_rate)

    def gradient_multiplier(
        self, noise_multiplier: float, sampling: Sampling, clipper: Asking
    ) -> float:
        if isinstance(sampling, CountedPoissonSampling):
            clip_norm = cast("ConstantClipper", clipper).initial
            noise_multiplier = naseri_ldp_multiplier(
                noise_multiplier, self.sample_rate, sampling.records, clip_norm
            )
        return super().gradient_multiplier(noise_multiplier, sampling, clipper)
