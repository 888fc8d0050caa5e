"""Central DP-FedAvg with user-level privacy, with fixed or adaptive quantile clipping.

Each client joins a round independently with probability q, trains from θ for E epochs of SGD, and

    Δ_k ← Δ_k min(1, C_t/‖Δ_k‖);   θ ← θ + η_s (1/(qK)) ( Σ_k Δ_k + N(0, (z_Δ C_t)² I) )

The denominator qK is public and fixed; an empty cohort adds noise only. The server is trusted: it sees
the updates and who took part, and only the noised average leaves it. The unit is the client, neighbours
differ by one client more or less, and all clients have one ε, that of the Poisson-sampled Gaussian.

Sources: McMahan, Ramage, Talwar, Zhang, "Learning differentially private recurrent language models", ICLR
2018; Andrew, Thakkar, McMahan, Ramaswamy, "Differentially private learning with adaptive clipping", NeurIPS
2021.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedpriv.algorithms.base import PROXIMAL_IS_ZERO, local_training, proximal_words
from fedpriv.algorithms.client_level import ServerStepAlgorithm
from fedpriv.algorithms.record_level import LocalStepsAlgorithm
from fedpriv.common.errors import ArgumentError
from fedpriv.common.fields import declared, field, number, or_null, same_as, whole
from fedpriv.privacy.core.sampling import PoissonSampling, Sampling
from fedpriv.privacy.core.trust import CENTRAL_TRUST
from fedpriv.privacy.mechanisms.claims import dp_fedavg

if TYPE_CHECKING:
    from fedpriv.algorithms.run_context import RunContext
    from fedpriv.algorithms.uploads import Uploads


@declared
class CdpFedAvg(ServerStepAlgorithm):
    """Central DP-FedAvg: secret coins decide who takes part; the formulas are in the module.

    Attributes:
        name: Name in run folders and tables.
        client_rate: q, the probability with which a client joins a round.
        learning_rate: η_s of the server.
        local_epochs: E, the epochs of a client in a round.
        batch_size: Records in a batch; None: a client's whole data.
        local_learning_rate: η of the clients.
        proximal: μ of FedProx; 0: no proximal term.

    Example:
        >>> algorithm = CdpFedAvg(name="cdp_fedavg", client_rate=0.1, local_epochs=2, batch_size=32)
        >>> algorithm.client_sampling(clients=1000)
        PoissonSampling(sample_rate=0.1)
        >>> algorithm.expected_cohort(1000)
        100.0
    """

    private = True
    trust = CENTRAL_TRUST
    uploads_changes = True

    name: str = same_as(ServerStepAlgorithm, "name")
    client_rate: float = field(
        number(above=0, at_most=1), unit="q", help="probability with which a client joins a round"
    )
    learning_rate: float = same_as(ServerStepAlgorithm, "learning_rate", default=1.0)
    _optimizer: str = same_as(ServerStepAlgorithm, "_optimizer")
    local_epochs: int = field(
        whole(at_least=1), default=1, unit="E", help="epochs of a client in a round"
    )
    batch_size: int | None = field(
        or_null(whole(at_least=1)),
        default=None,
        help="records in a batch; null: a client's whole data",
    )
    local_learning_rate: float = field(
        number(above=0), default=0.1, unit="η", help="learning rate of the clients"
    )
    proximal: float = same_as(LocalStepsAlgorithm, "proximal")

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        if self.proximal and self.local_epochs == 1 and self.batch_size is None:
            raise ArgumentError(
                "proximal",
                f"{self.proximal:g}",
                "null with one local step",
                PROXIMAL_IS_ZERO,
            )
        self.claim = self.own_claim(dp_fedavg())

    @property
    def sums_by_bucket(self) -> bool:
        """True: the sum of each bucket has a public denominator, qK/B."""
        return True

    def sampling_of(self, records: int) -> Sampling:
        """Return the sampling of the clients: one sum over the cohort is released."""
        return PoissonSampling(self.client_rate)

    def client_sampling(self, clients: int) -> Sampling:
        """Return the sampling of the cohort: each client joins with probability q."""
        return PoissonSampling(self.client_rate)

    def expected_cohort(self, clients: int | None) -> float | None:
        return None if clients is None else self.client_rate * clients

    def uploads(self, context: RunContext) -> Uploads:
        from fedpriv.algorithms.uploads import LocalChanges

        return LocalChanges(context, *self._local)

    @property
    def _local(self) -> tuple[int, int | None, float, float]:
        return self.local_epochs, self.batch_size, self.local_learning_rate, self.proximal

    def denominator(self, cohort: int, clients: int) -> float:
        return self.client_rate * clients

    def records_per_step(self, records: float) -> float:
        return self.client_rate * records

    def describe(self, clients: int | None, records: int | None) -> tuple[tuple[str, str], ...]:
        expected = "" if clients is None else f" (about {self.client_rate * clients:.0f})"
        training = local_training(self.local_epochs, self.batch_size, records)
        return (
            (
                "each round",
                f"every client with probability {self.client_rate:g}{expected}, {training}",
            ),
            (
                "local optimizer",
                f"sgd, learning rate {self.local_learning_rate:g}{proximal_words(self.proximal)}",
            ),
            self._server_words(),
        )
