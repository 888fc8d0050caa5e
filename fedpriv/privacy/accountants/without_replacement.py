"""Privacy loss of a Gaussian on a lot of fixed size, drawn without replacement, under replace-one.

Let q = m/n, P = N(1, s²) and Q = N(0, s²), with s the noise over the most that replacing a record moves the
sum (2C). Let H_α(X‖Y) = ∫ (X - αY)₊. Two data sets D, D' that differ in one record have

    H_α(M(D)‖M(D')) <= H_α((1-q)Q + qP ‖ Q)      for α >= 1
                       H_α(P ‖ (1-q)P + qQ)      for α < 1

Both sides together are the profile of one pair of distributions. This pair therefore dominates at every α and
composes, also adaptively. Its losses above 0 are those of Poisson sampling when a record is removed. Its
losses below 0 are those of Poisson sampling when a record is added. The rest of the mass lies at 0.

Proof. A lot without the record is a uniform (m-1)-subset L of the others and a uniform y beside it. A lot
with the record is L and the record. So M(D) = (1-q)A + qB and M(D') = (1-q)A + qB', with A, B, B' mixtures
over the same (L, y) of Gaussians whose means are at most 2C apart. For α >= 1 and b = 1 + (α-1)/q, pointwise,

    (1-q)A + qB - α((1-q)A + qB') = q ( B - b((1-t)A + tB') ),    t = α/b,

and H_b is jointly convex. This gives at most q H_b(P‖Q), the bound above. For α < 1 the same holds of (D', D)
at 1/α. Each side alone, composed, is *not* a bound, and neither is Poisson sampling.

Source: Zhu, Dong, Wang, "Optimal accounting of differential privacy via characteristic function", AISTATS
2022, proposition 30. dp_accounting accounts for such lots by RDP alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dp_accounting import dp_event

from fedpriv.privacy.core.names import REPLACE_ONE

if TYPE_CHECKING:
    from dp_accounting.pld.pld_pmf import PLDPmf
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution


def known_here(event: dp_event.DpEvent, neighbours: str) -> bool:
    """Return whether the event is one Gaussian on a lot without replacement, under replace-one."""
    return (
        isinstance(event, dp_event.SampledWithoutReplacementDpEvent)
        and isinstance(event.event, dp_event.GaussianDpEvent)
        and neighbours == REPLACE_ONE
    )


def privacy_loss(
    event: dp_event.SampledWithoutReplacementDpEvent, cell: float
) -> PrivacyLossDistribution:
    """Return the privacy loss of the dominating pair (Zhu, Dong, Wang 2022, proposition 30).

    Args:
        event: The release; its noise multiplier is s.
        cell: Width of a cell of the privacy loss; losses are rounded up.
    """
    from dp_accounting.pld.pld_pmf import create_pmf
    from dp_accounting.pld.privacy_loss_distribution import (
        PrivacyLossDistribution,
        from_gaussian_mechanism,
    )

    multiplier = event.event.noise_multiplier
    rate = event.sample_size / event.source_dataset_size
    if multiplier == 0 or rate == 1.0:
        return from_gaussian_mechanism(multiplier, value_discretization_interval=cell)
    poisson = from_gaussian_mechanism(
        multiplier, value_discretization_interval=cell, sampling_prob=rate
    )
    removed, added = (pmf.to_dense_pmf() for pmf in (poisson._pmf_remove, poisson._pmf_add))
    # Losses above 0 are those of removing a record, losses below 0 those of adding one.
    masses = {loss: mass for loss, mass in _masses(removed) if loss > 0}
    masses.update({loss: mass for loss, mass in _masses(added) if loss < 0})
    infinite = removed._infinity_mass
    masses[0] = max(0.0, 1.0 - infinite - sum(masses.values()))
    return PrivacyLossDistribution(create_pmf(masses, cell, infinite, True))


def _masses(pmf: PLDPmf):  # type: ignore[no-untyped-def]
    """Return pairs of a loss, counted in cells, and its mass."""
    return zip(range(pmf._lower_loss, pmf._lower_loss + pmf.size), pmf._probs, strict=True)
