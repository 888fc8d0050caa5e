"""Local and central DP of Naseri, Hayes, De Cristofaro, against backdoors and inference.

    LDP   m sampled clients run E epochs of DP-SGD (Poisson rate p, so E/p steps), and θ ← Σ (n_k/n) θ_k:
          θ_k ← θ_k - η ( (1/(p n_k)) Σ_i g_i min(1, C/‖g_i‖) + noise ).  Record level, local trust
    CDP   each client comes with probability q, runs E epochs of SGD, and pulls its change back onto the
          ball of radius S after every batch;  θ ← θ + mean Δ_k + noise.  Client level, trusted server

``noise`` says where it stands:

    fixed_denominator   LDP: N(0, (σ C)²) on the clipped sum. CDP: N(0, (z S)²) on the sum over qK
                        (McMahan et al. 2018)
    as_printed          LDP, line 13: N(0, σ²) outside 1/(p n_k), without C: multiplier σ p n_k / C on the
                        sum. CDP, line 13: N(0, (z S/q)²) on the mean over the participating clients, which
                        one client moves by up to S: multiplier z/q, about K times as much noise
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedpriv.algorithms.cdp_fedavg import CdpFedAvg
from fedpriv.algorithms.local_steps import LocalStepsAlgorithm
from fedpriv.common import checks
from fedpriv.common.errors import ConfigError
from fedpriv.privacy.claims import naseri_cdp, naseri_ldp, naseri_ldp_multiplier
from fedpriv.privacy.clippers import ConstantClipper
from fedpriv.privacy.sampling import PoissonSampling, Sampling

if TYPE_CHECKING:
    from fedpriv.algorithms.problem import Problem
    from fedpriv.algorithms.uploads import Uploads
    from fedpriv.privacy.clippers import Clipper

FIXED, PRINTED = "fixed_denominator", "as_printed"
NOISES = (FIXED, PRINTED)


class NaseriCdp(CdpFedAvg):
    """CDP; the settings are those of :class:`~fedpriv.algorithms.cdp_fedavg.CdpFedAvg`."""

    def __init__(self, *args: Any, noise: str = FIXED, **settings: Any):
        super().__init__(*args, **settings)
        self.noise = checks.one_of("noise", noise, NOISES)
        self.claim = self.own_claim(naseri_cdp(noise))

    def uploads(self, problem: Problem) -> Uploads:
        from fedpriv.algorithms.uploads import ProjectedChanges

        return ProjectedChanges(problem, *self._local)

    @property
    def noise_on_the_mean(self) -> bool:
        """As printed: one client moves the mean over the participating clients by up to S, when it is
        alone."""
        return self.noise == PRINTED

    def gradient_multiplier(
        self, noise_multiplier: float, sampling: Sampling, clipper: Clipper
    ) -> float:
        multiplier = super().gradient_multiplier(noise_multiplier, sampling, clipper)
        return multiplier / self.client_rate if self.noise == PRINTED else multiplier

    def refuse_clipper(self, clipper: Clipper) -> None:
        if self.noise == PRINTED and clipper.asks_ever():
            # its answer is divided by how many took part, which nobody noises
            raise ConfigError(
                "clipper", type(clipper).__name__, "one that asks nothing with noise=as_printed"
            )

    def denominator(self, cohort: int, clients: int) -> float:
        if self.noise == PRINTED:
            return float(max(1, cohort))
        return super().denominator(cohort, clients)


@dataclass(frozen=True)
class CountedPoissonSampling(PoissonSampling):
    """Poisson lots of a client whose number of records its noise depends on."""

    records: int


class NaseriLdp(LocalStepsAlgorithm):
    """LDP: ``local_epochs`` E, ``sample_rate`` p, ``learning_rate`` η, ``clients_per_round`` m or all."""

    private = True

    def __init__(
        self,
        name: str,
        sample_rate: float,
        local_epochs: int = 1,
        learning_rate: float = 0.1,
        clients_per_round: int | None = None,
        noise: str = FIXED,
    ):
        epochs = checks.whole("local_epochs", local_epochs, at_least=1)
        rate = checks.number("sample_rate", sample_rate, above=0, at_most=1)
        super().__init__(
            name,
            rate,
            optimizer="sgd",
            learning_rate=learning_rate,
            local_steps=max(1, round(epochs / rate)),
            participation="all" if clients_per_round is None else "sampled",
            clients_per_round=clients_per_round,
        )
        self.noise = checks.one_of("noise", noise, NOISES)
        self.cost_depends_on_records = self.noise == PRINTED
        self.claim = self.own_claim(naseri_ldp())

    def sampling_of(self, records: int) -> Sampling:
        if self.noise == PRINTED:
            return CountedPoissonSampling(self.sample_rate, records)
        return PoissonSampling(self.sample_rate)

    def gradient_multiplier(
        self, noise_multiplier: float, sampling: Sampling, clipper: Clipper
    ) -> float:
        if isinstance(sampling, CountedPoissonSampling):
            noise_multiplier = naseri_ldp_multiplier(
                noise_multiplier, self.sample_rate, sampling.records, clipper.initial
            )
        return super().gradient_multiplier(noise_multiplier, sampling, clipper)

    def refuse_clipper(self, clipper: Clipper) -> None:
        if self.noise == PRINTED and not isinstance(clipper, ConstantClipper):
            raise ConfigError("clipper", type(clipper).__name__, "constant with noise=as_printed")
