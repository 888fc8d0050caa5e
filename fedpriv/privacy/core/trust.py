"""Trust models: who sees which uploads, and who adds which share of the noise.

local        the server sees every upload; each client adds noise to its own upload
distributed  the server sees only the sum of the uploads; each client adds a share of the sum's noise
central      a trusted server adds all of the noise; others see only its models, and not who took part
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedpriv.privacy.core.names import CLIENT


@dataclass(frozen=True)
class Trust:
    """One trust model.

    Attributes:
        name: ``local``, ``distributed`` or ``central``.
        sees_each_upload: Whether the observer sees each client's upload.
        secret_cohort: Whether the observer does not see who takes part. Sampling clients then amplifies
            privacy, and every client pays for every round.
        observer: The party against whom the guarantee holds, for the headline.
        seen_of_a_client: What that observer sees, for the plan.
        against: The sentence of the privacy statement.
    """

    name: str
    sees_each_upload: bool
    secret_cohort: bool
    observer: str
    seen_of_a_client: str
    against: str

    def shares(self, by: str, reports: int) -> int:
        """Return how many clients add noise to a sum of ``reports`` reports.

        Args:
            by: Who adds the noise: ``client``, ``aggregator`` or ``nobody``.
            reports: Number of reports in the sum.

        Returns:
            ``reports`` if each client adds noise to its own report. 1 if somebody else adds all noise at
            once, which is always so under central trust.
        """
        return reports if by == CLIENT and not self.secret_cohort else 1

    @property
    def noised_by_clients(self) -> bool:
        """True if clients add the noise, because nobody else is trusted with exact values."""
        return not self.secret_cohort

    @property
    def sees_only_a_sum(self) -> bool:
        """True if clients add shares of the noise and the server sees only the sum."""
        return self.noised_by_clients and not self.sees_each_upload

    def charged(self, cohort: np.ndarray, clients: int) -> np.ndarray:
        """Return the clients that pay for a round: those in the cohort, or all if the cohort is secret."""
        return np.arange(clients) if self.secret_cohort else cohort


LOCAL_TRUST = Trust(
    "local",
    sees_each_upload=True,
    secret_cohort=False,
    observer="the server",
    seen_of_a_client="a client's uploads",
    against="against anyone who sees every upload of that client, the server included (local trust).",
)
DISTRIBUTED_TRUST = Trust(
    "distributed",
    sees_each_upload=False,
    secret_cohort=False,
    observer="the server, if it sees only the sum of the uploads",
    seen_of_a_client="the sum of a cohort's uploads",
    against="against anyone who sees the sum of each cohort's uploads and who took part (distributed trust).",
)
CENTRAL_TRUST = Trust(
    "central",
    sees_each_upload=False,
    secret_cohort=True,
    observer="everyone but the server, which is trusted",
    seen_of_a_client="the released models",
    against=(
        "against anyone who sees every released model; the server sees the updates and who took part "
        "and is trusted (central trust)."
    ),
)
TRUSTS = {trust.name: trust for trust in (LOCAL_TRUST, DISTRIBUTED_TRUST, CENTRAL_TRUST)}
