"""FedSGD (McMahan et al. 2017) and LDP-FedSGD (LDP-FedSGD and the clipping size, DEIM 2023).

    FedSGD        g_k = ∇ℓ(B_k; θ);   θ ← θ - (η/m) Σ_k g_k
    LDP-FedSGD    g_k ← g_k min(1, C_t/‖g_k‖);   g_k ← g_k + N(0, (C_t σ)² I)

B_k is the whole data of client k. The server sees every noisy gradient, so trust is local, the unit is
the client, and neighbours are *any* two inputs: a report moves by up to 2C, and the μ of one report is
2/σ. Sampling clients does not amplify against a server that sees who reports; the reports of a client
compose, μ_k = 2 √R_k / σ over its R_k reports.

Only the sum of the reports is used here, so one Gaussian N(0, m (C_t σ)² I) is drawn for it: the same
distribution as the sum of m, and the ledger still has one release for each client.
"""

from __future__ import annotations

from fedpriv.algorithms.base import UnsampledReports
from fedpriv.algorithms.client_level import GradientAlgorithm
from fedpriv.privacy.core.names import REPLACE_ONE
from fedpriv.privacy.core.sampling import Sampling, WholeData
from fedpriv.privacy.mechanisms.claims import ldp_fedsgd


class FedSgd(GradientAlgorithm):
    """FedSGD, the baseline of LDP-FedSGD without privacy: no ε is computed or shown."""

    private = False

    def sampling_of(self, records: int) -> Sampling:
        return WholeData(REPLACE_ONE)


class LdpFedSgd(UnsampledReports, GradientAlgorithm):
    """LDP-FedSGD: every report is clipped and noised by its client; the formulas are in the module.

    Example:
        >>> algorithm = LdpFedSgd(name="ldp_fedsgd", clients_per_round=10)
        >>> algorithm.sampling_of(records=600)  # all records, one of them replaced in the other data set
        WholeData(neighbours='replace_one')
    """

    private = True

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        self.claim = self.own_claim(ldp_fedsgd())
