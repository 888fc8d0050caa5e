"""DP-SCAFFOLD: record-level DP, noise added by each client, client drift corrected by control variates.

    g̃_k   = (1/L) (Σ_{i in lot} g_i min(1, C/‖g_i‖) + N(0, (σ C)² I)),   L = q n_k
    w^k   ← w^k - η_l (g̃_k - c_k + c)                       K local steps, one lot each, from θ
    c_k⁺  = (1/K) Σ_steps g̃_k                               (their option II: c_k - c + (θ - w^k)/(K η_l))
    θ     ← optimiser(θ, (1/m) Σ_k (w^k - θ));   c ← c + (1/N) Σ_k (c_k⁺ - c_k);   c_k ← c_k⁺

over the m of N clients that take part. A control variate is a mean of noised gradients that the client has
released anyway: post-processing. So ledger and ε are those of DP-FedAvg with as many local steps, which is
``dp_fl`` with ``optimizer=sgd``. Averages are not weighted by records, as in the paper.

``warm_start`` rounds at the beginning move nothing: clients set c_k from their noised gradients at θ_0. These
are releases like others and are charged; the paper's code takes 4 N/m of them.

The paper states ε against a third party that sees the models, with amplification by sampling the clients, and
ε against the server. Trust is local here: the server sees every upload, so sampled clients do not amplify.

Source: Noble, Bellet, Dieuleveut, "Differentially private federated learning on heterogeneous data", AISTATS
2022.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedpriv.algorithms.dp_fl import DpFl
from fedpriv.algorithms.record_level import LocalStepsAlgorithm
from fedpriv.algorithms.server_optimizer import (
    SERVER_OPTIMIZERS,
    ServerOptimizer,
    ServerOptimizerKeys,
)
from fedpriv.common.errors import ArgumentError
from fedpriv.common.fields import declared, field, number, one_of, same_as, set_apart, whole
from fedpriv.privacy.core.sampling import samplings_of

if TYPE_CHECKING:
    from fedpriv.algorithms.run_context import RunContext
    from fedpriv.algorithms.trainer import Trainer


@declared
class DpScaffold(ServerOptimizerKeys, LocalStepsAlgorithm):
    """DP-FedAvg with control variates and a server optimiser; the formulas are in the module.

    Attributes:
        learning_rate: η_l of the clients (the key is ``local_learning_rate``).
        warm_start: First rounds, which set the control variates and move nothing.
        server: The server's optimiser with its settings (keys ``optimizer`` and ``learning_rate``).

    See :class:`fedpriv.algorithms.record_level.LocalStepsAlgorithm` for the other arguments.

    Example:
        >>> algorithm = DpScaffold(name="dp_scaffold", sample_rate=0.1, local_learning_rate=0.5)
        >>> algorithm.samples_per_round, algorithm.server.describe()
        (10, 'sgd, learning rate 1')
    """

    private = True

    name: str = same_as(LocalStepsAlgorithm, "name")
    sample_rate: float = same_as(LocalStepsAlgorithm, "sample_rate")
    local_steps: int = same_as(LocalStepsAlgorithm, "local_steps", default=10)
    learning_rate: float = field(
        number(above=0),
        default=0.1,
        alias="local_learning_rate",
        unit="η_l",
        help="learning rate of the clients",
    )
    _server_learning_rate: float = field(
        number(above=0), default=1.0, alias="learning_rate", help="learning rate of the server"
    )
    _server_optimizer: str = field(
        one_of(SERVER_OPTIMIZERS), default="sgd", alias="optimizer", help="optimizer of the server"
    )
    warm_start: int = field(
        whole(),
        default=1,
        unit="rounds",
        help="number of first rounds that set the control variates and do not change the model",
    )
    sampling: str = same_as(LocalStepsAlgorithm, "sampling")
    max_lot_size: int | None = same_as(LocalStepsAlgorithm, "max_lot_size")
    participation: str = same_as(LocalStepsAlgorithm, "participation")
    clients_per_round: int | None = same_as(LocalStepsAlgorithm, "clients_per_round")

    optimizer: str = set_apart("sgd")
    optimizer_state: str = set_apart("kept")
    proximal: float = set_apart(0.0)
    learning_rate_decay: None = set_apart(None)

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        self.server: ServerOptimizer = self.server_optimizer(
            self._server_optimizer, self._server_learning_rate
        )

    def check_rounds(self, rounds: int) -> None:
        if self.warm_start >= rounds:
            hint = "rounds of warm start move nothing"
            raise ArgumentError(
                "warm_start", self.warm_start, f"< {rounds}, the number of rounds", hint
            )

    def start(self, context: RunContext) -> Trainer:
        from fedpriv.algorithms.control_variates import ControlVariates, ScaffoldStep
        from fedpriv.algorithms.record_computation import RecordComputation
        from fedpriv.algorithms.trainer import Trainer

        samplings = samplings_of(self.sampling_of, context.data.records_per_client)
        variates = ControlVariates(
            self.learning_rate,
            self.local_steps,
            self.warm_start,
            context.data.client_count,
            context.model.size,
            context.model.device,
        )
        server = ScaffoldStep(context.model, variates, self.server)
        computation = RecordComputation(context, samplings, self.local_steps, server)
        return Trainer(context, computation, variates, server)

    def without_variates(self) -> DpFl:
        """Return DP-FedAvg with the same local steps, for audits.

        An observer knows the control variates, so both algorithms tell the observer equally much.
        """
        return DpFl(
            name=self.name,
            sample_rate=self.sample_rate,
            sampling=self.sampling,
            max_lot_size=self.max_lot_size,
            optimizer="sgd",
            learning_rate=self.learning_rate,
            local_steps=self.local_steps,
            participation=self.participation,
            clients_per_round=self.clients_per_round,
        )

    def describe(self, clients: int | None, records: int | None) -> tuple[tuple[str, str], ...]:
        lines = super().describe(clients, records)
        warm = (
            f", set before round {self.warm_start + 1}; until then no weights move"
            if self.warm_start
            else ""
        )
        return (
            lines[0],
            ("local optimizer", f"sgd, learning rate {self.learning_rate:g}"),
            ("control variates", f"one per client{warm}"),
            ("server optimizer", self.server.describe()),
        )
