"""Privacy claims of published works, one function for each work.

A claim turns a release into the event that the work's own theorem charges, and names the accountant of that
theorem. ``epsilon_published`` is the result. ``budget_view=published`` enforces this event, and
``accountant=published`` composes it with the theorem's own accountant. docs/published_epsilon.md derives how
each claim differs from what is true; ``tests/printed_formulas.py`` has the printed formulas for comparison.

Throughout, the multiplier of a query is noise std ÷ clip norm, the add/remove sensitivity.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from dp_accounting import dp_event

from fedpriv.privacy.accountants.base import Accountant
from fedpriv.privacy.accountants.gaussian import GaussianAccountant, GdpAccountant
from fedpriv.privacy.accountants.rdp import RdpAccountant
from fedpriv.privacy.core.names import ADD_OR_REMOVE, REPLACE_ONE
from fedpriv.privacy.core.sampling import FixedSizeSampling, Sampling
from fedpriv.privacy.mechanisms.joint import GRADIENT, JointQuery, joint_noise_multiplier


@dataclass(frozen=True)
class Claim:
    """A published privacy claim: its wording, its adjacency, and the event that its theorem charges.

    Attributes:
        source: The work and its theorem, for the privacy statement.
        statement: What the theorem charges, in a sentence for the privacy statement.
        unit: Unit of privacy, ``record`` or ``client``.
        trust: Trust model that the work assumes: ``local`` or ``central``.
        neighbours: Adjacency of the theorem: ``add_or_remove`` or ``replace_one``.
        accountant: Function that makes the theorem's accountant.
        charge: Function (q, z) → the event that the theorem charges for one sample.
        joint: Whether z is the multiplier of all queries together rather than of the gradient alone.
        sensitivity: Number of clip norms by which the unit is said to move the answer.
        client_rate: q = m/K where the theorem charges every client in every round at that rate, present or
            not; otherwise None.
    """

    source: str
    statement: str
    unit: str
    trust: str
    neighbours: str
    accountant: Callable[[], Accountant]
    charge: Callable[[float, float], dp_event.DpEvent]
    joint: bool = False
    sensitivity: float = 1.0
    client_rate: float | None = None

    def covers(self, joint: JointQuery) -> bool:
        """Return whether the claim speaks about this release: about uploads, not about later queries."""
        return GRADIENT in joint.names

    def event(self, joint: JointQuery) -> dp_event.DpEvent:
        """Return the event that the claim charges for one sample.

        Args:
            joint: The sample and the queries answered on it. All of them are charged if the claim is
                ``joint``, else the gradient alone.

        Returns:
            The event by ``charge``; ``NonPrivateDpEvent`` where no query is charged or a charged one has no
            noise.
        """
        queries = [query for query in joint.queries if self.joint or query.name == GRADIENT]
        multiplier = joint_noise_multiplier(query.noise_multiplier for query in queries)
        if not queries or multiplier == 0:
            return dp_event.NonPrivateDpEvent()
        return self.charge(_rate(joint.sampling), multiplier)


def _rate(sampling: Sampling) -> float:
    """Return q as the theorems know it: L/n for lots of a fixed size, 1 without sampling, no cap counted."""
    if isinstance(sampling, FixedSizeSampling):
        return sampling.lot_size / sampling.records
    return sampling.poisson_rate


def _sampled(sample_rate: float, noise_multiplier: float) -> dp_event.DpEvent:
    gaussian = dp_event.GaussianDpEvent(noise_multiplier)
    return dp_event.PoissonSampledDpEvent(sample_rate, gaussian) if sample_rate < 1 else gaussian


# --- Fu, Chen, Han 2022: Adap DP-FL -----------------------------------------------------------------

ADAP_DPFL_ORDERS = "2..64"
ADAP_DPFL_READINGS = ("with_log", "as_printed")


def adap_dpfl(reading: str = "with_log") -> Claim:
    """Return the claim of Adap DP-FL, theorem 1.

        ε = min over α = 2 … 64 of Σ_t ε_α(q, σ_t) + log(1/δ)/(α-1)
        A_α = Σ_{i=0}^α C(α,i) (1-q)^{α-i} q^i exp((i²-i)/(2σ_t²))

    q is the sample rate of records and σ_t the noise multiplier of step t.

    Args:
        reading: ``with_log``: ε_α = log(A_α)/(α-1), the theorem of Mironov et al. 2019 that the proof cites.
            ``as_printed``: ε_α = A_α/(α-1), eqs. (10) and (15) to the letter, where a round without any
            privacy loss (A_α = 1) already costs 1/(α-1).
    """
    wording = {
        "with_log": "read with the logarithm that eqs. (10) and (15) leave out",
        "as_printed": "eqs. (10) and (15) to the letter, without a logarithm",
    }
    accountants: dict[str, Callable[..., RdpAccountant]] = {
        "with_log": RdpAccountant,
        "as_printed": RdpWithoutLogarithm,
    }
    return Claim(
        source="Fu, Chen, Han 2022, Adap DP-FL, theorem 1",
        statement=(
            f"{wording[reading]}; RDP of the Poisson-sampled Gaussian with noise multiplier sigma_t, "
            "composed over the rounds as if sigma_t were fixed in advance; the clipping statistic of eq. (6) "
            "is not charged"
        ),
        unit="record",
        trust="local",
        neighbours=ADD_OR_REMOVE,
        accountant=lambda: accountants[reading](ADAP_DPFL_ORDERS, "classical"),
        charge=_sampled,
    )


class RdpWithoutLogarithm(RdpAccountant):
    """Composition by eqs. (10) and (15) of Adap DP-FL as printed: A_α/(α-1) for every round."""

    name = "rdp_without_logarithm"

    def rdp(self, event: dp_event.DpEvent, neighbours: str) -> np.ndarray:
        less_one = self._order_array - 1.0
        with np.errstate(over="ignore"):
            return np.exp(less_one * super().rdp(event, neighbours)) / less_one

    def _rdp_of_composition(
        self, composition: Mapping[dp_event.DpEvent, int], neighbours: str
    ) -> np.ndarray:
        return sum(
            (n * self.rdp(event, neighbours) for event, n in composition.items() if n),
            np.zeros(len(self.orders)),
        )

    def describe(self) -> str:
        return super().describe() + ", without the logarithm"


# --- Wei et al.: CDP with communication rounds discounting -------------------------------------------


def wei(sensitivity: float, client_rate: float | None = None) -> Claim:
    """Return the claim of Wei et al., eqs. (14), (15) and (19).

    One record is said to move an upload clipped to C by D. With noise of standard deviation s_t on each
    weight in round t and a share q of the clients in each of T rounds, the rounds are said to cost

        ε = D (2 q T log(1/δ))^(1/2) / s        eq. (15), where s_t = s
        ε = (2 q Σ_t (D/s_t)² log(1/δ))^(1/2)   for the noise of eq. (19), which changes over rounds

    Args:
        sensitivity: D/C, printed as 2/n_i (eq. 14).
        client_rate: q, the same for every client. None charges a client for the rounds that it took part in,
            without q.
    """
    scale = math.sqrt(client_rate or 1.0) * sensitivity
    return Claim(
        source="Wei et al., CDP with communication rounds discounting, eqs. (14), (15), (19)",
        statement=(
            f"one record is said to move an upload by {sensitivity:.4g} clip norms, and the moments bound "
            "to hold without the condition it needs"
            + ("" if client_rate in (None, 1) else f", with amplification by q = {client_rate:g}")
        ),
        unit="record",
        trust="local",
        neighbours=REPLACE_ONE,
        accountant=MomentsBound,
        charge=lambda _, multiplier: dp_event.GaussianDpEvent(multiplier / scale),
        sensitivity=sensitivity,
        client_rate=client_rate,
    )


class MomentsBound(GaussianAccountant):
    """Composition by eq. (15) of Wei et al., which gives too small an ε once ε is large.

        ε = (2 Σ z^-2 log(1/δ))^(1/2)

    Each z is a noise multiplier under the sensitivity and the sample rate that the claim states.
    """

    name = "wei_moments"
    has_filter = False

    def epsilon_of_sum(self, inverse_squares: float, delta: float) -> float:
        return math.sqrt(2.0 * inverse_squares * math.log(1.0 / delta))

    def describe(self) -> str:
        return "moments bound of eq. (15)"


def wei_budget(epsilon: float, delta: float, sensitivity: float, sample_rate: float) -> float:
    """Return ε² / (2 q D² log(1/δ)), the limit of Σ_t s_t^-2 over all rounds by eqs. (15) and (19).

    s_t is the standard deviation of the noise of round t.

    Args:
        epsilon: ε > 0.
        delta: δ in (0, 1).
        sensitivity: D, in the unit of the s_t.
        sample_rate: q = m/K, for m of K clients in a round.
    """
    return epsilon**2 / (2.0 * sample_rate * sensitivity**2 * math.log(1.0 / delta))


# --- LDP-FedSGD, DEIM 2023: the clipping size --------------------------------------------------------


def ldp_fedsgd() -> Claim:
    """Return the claim of LDP-FedSGD: noise N(0, (Cσ)² I) on a gradient clipped to C has multiplier σ.

    The work takes C for the sensitivity, where replacing a client moves the gradient by up to 2C.
    """
    return Claim(
        source="LDP-FedSGD and the clipping size, DEIM 2023",
        statement=(
            "noise C sigma on an upload clipped to C is charged with noise multiplier sigma, that is, with "
            "sensitivity C, although any two inputs may be 2C apart; a query of the clipper is not charged"
        ),
        unit="client",
        trust="local",
        neighbours=REPLACE_ONE,
        accountant=GdpAccountant,
        charge=lambda _, multiplier: dp_event.GaussianDpEvent(multiplier),
    )


# --- McMahan et al. 2018, Andrew et al. 2021: central DP-FedAvg ---------------------------------------


def dp_fedavg() -> Claim:
    """Return the claim of DP-FedAvg: the Poisson-sampled Gaussian of multiplier z, noised bits included.

    With z_Δ for the updates, the pair of updates and bits costs what z costs. The published and the sound ε
    agree up to the difference between RDP and PLD.
    """
    return Claim(
        source="McMahan et al. 2018 and Andrew et al. 2021, DP-FedAvg with adaptive clipping",
        statement="RDP of the Poisson-sampled Gaussian over clients, updates and bits charged jointly",
        unit="client",
        trust="central",
        neighbours=ADD_OR_REMOVE,
        accountant=RdpAccountant,
        charge=_sampled,
        joint=True,
    )


# --- Naseri, Hayes, De Cristofaro: local and central DP ----------------------------------------------


def naseri_cdp(noise: str = "fixed_denominator") -> Claim:
    """Return the claim of Naseri et al. for CDP: client sampling at rate q, updates clipped to S, σ = z S/q.

    Args:
        noise: ``as_printed``: the mean over the participating clients gets σ. A client moves this mean by up
            to S (in a cohort of one), so the query's multiplier is z/q, where the work charges z.
            ``fixed_denominator``: the sum over qK gets z S, and z is charged.
    """

    def charge(sample_rate: float, multiplier: float) -> dp_event.DpEvent:
        printed = noise == "as_printed"
        return _sampled(sample_rate, multiplier * sample_rate if printed else multiplier)

    return Claim(
        source="Naseri, Hayes, De Cristofaro, CDP",
        statement=(
            "the multiplier z of sigma = z S / q, with the noise on a mean of the realised cohort"
            if noise == "as_printed"
            else "the multiplier z, with a fixed denominator"
        ),
        unit="client",
        trust="central",
        neighbours=ADD_OR_REMOVE,
        accountant=RdpAccountant,
        charge=charge,
    )


def naseri_ldp() -> Claim:
    """Return the claim of Naseri et al. for LDP: DP-SGD at each client.

    A client takes E/p steps in a round (E local epochs at the sample rate p), and is charged for the rounds
    that it took part in.
    """
    return Claim(
        source="Naseri, Hayes, De Cristofaro, LDP",
        statement="DP-SGD of each client on its own records, composed over all rounds it took part in",
        unit="record",
        trust="local",
        neighbours=ADD_OR_REMOVE,
        accountant=RdpAccountant,
        charge=_sampled,
    )


def naseri_ldp_multiplier(
    noise_std: float, sample_rate: float, records: int, clip_norm: float
) -> float:
    """Return σ p D / C, the noise multiplier that the printed noise σ has on the clipped sum (LDP, line 13).

    The work adds N(0, σ²) to the mean of the clipped gradients over p D records, so the sum has noise σ p D.

    Args:
        noise_std: σ, in units of the mean.
        sample_rate: p.
        records: D, number of the client's records.
        clip_norm: C.
    """
    return noise_std * sample_rate * records / clip_norm
