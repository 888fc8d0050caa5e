"""What the algorithms share in which clients send one upload a round and the server takes the step.

    θ ← server optimiser(θ, (1/m) Σ_k u_k)

u_k is the upload of client k: a gradient, or minus the change of its weights. The unit of privacy is
the client: norms, clipping and noise are those of whole uploads, and one clip norm holds for all.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from fedpriv.algorithms.base import Algorithm, cohort_size
from fedpriv.algorithms.server_optimizer import (
    SERVER_OPTIMIZERS,
    ServerOptimizer,
    ServerOptimizerKeys,
)
from fedpriv.common.base_classes import fact
from fedpriv.common.errors import ConfigError
from fedpriv.common.fields import declared, field, number, one_of, same_as, text
from fedpriv.common.words import records_of

if TYPE_CHECKING:
    from fedpriv.algorithms.optimizers import Optimizer
    from fedpriv.algorithms.run_context import RunContext
    from fedpriv.algorithms.trainer import Trainer
    from fedpriv.algorithms.uploads import Uploads


@declared
class ServerStepAlgorithm(ServerOptimizerKeys, Algorithm):
    """Clients upload once a round; the server's optimiser is a function of released values, so free."""

    unit = "client"

    name: str = field(text, help="name in run folders and tables")
    learning_rate: float = field(number(above=0), help="learning rate of the server")
    _optimizer: str = field(
        one_of(SERVER_OPTIMIZERS), default="sgd", help="optimizer of the server"
    )

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        self.server: ServerOptimizer = self.server_optimizer(self._optimizer, self.learning_rate)

    @property
    def optimizer(self) -> str:
        """The name of the server's optimiser."""
        return self.server.name

    @abstractmethod
    def uploads(self, context: RunContext) -> Uploads:
        """What the clients compute, on data and a model."""

    @abstractmethod
    def denominator(self, cohort: int, clients: int) -> float:
        """By what the sum of the uploads of ``cohort`` of K clients is divided: a public number."""

    @fact
    def noise_on_the_mean(self) -> bool:
        """True where noise and sensitivity are of the mean over the participating clients, not of the sum."""
        return False

    def start(self, context: RunContext) -> Trainer:
        from fedpriv.algorithms.server_steps import AddChange, ReplaceWeights
        from fedpriv.algorithms.trainer import Trainer
        from fedpriv.algorithms.upload_computation import UploadComputation

        self._refuse_realised_denominator(context.data.client_count)
        uploads = self.uploads(context)
        weight = None
        if self.optimizer == "sgd" and uploads.sign == -1:
            weight = 1.0 if uploads.replaces else self.learning_rate
        computation = UploadComputation(
            context,
            uploads,
            self.denominator,
            noise_on_the_mean=self.noise_on_the_mean,
            upload_weight=weight,
            combines=context.rule is not None,
        )
        server = ReplaceWeights if uploads.replaces else AddChange
        return Trainer(
            context, computation, self._server_optimizer(context, uploads), server(context.model)
        )

    def _refuse_realised_denominator(self, clients: int) -> None:
        """Raise ConfigError where dividing a noised sum would tell how many took part, which is secret."""
        if not self.trust.secret_cohort or self.noise_on_the_mean:
            return
        if len({self.denominator(cohort, clients) for cohort in (0, 1, clients)}) > 1:
            raise ConfigError(
                f"algorithm={self.name}: denominator depends on how many take part, which is secret with "
                f"{self.trust.name} trust; divide by their expected number"
            )

    def _server_optimizer(self, context: RunContext, uploads: Uploads) -> Optimizer:
        from fedpriv.algorithms.optimizers import NoOptimizer, OfChanges

        if uploads.replaces:
            return NoOptimizer()
        optimizer = self.server.make(context.model)
        return optimizer if uploads.sign == 1 else OfChanges(optimizer)

    def _server_words(self) -> tuple[str, str]:
        return ("server optimizer", self.server.describe())


@declared
class GradientAlgorithm(ServerStepAlgorithm):
    """m of K clients, sampled uniformly (``clients_per_round=None``: all), upload the gradient of the
    mean loss of their whole data, or of a Poisson lot of rate ``sample_rate`` < 1 with the public
    denominator q n_k. The server averages over the participating clients.
    """

    name: str = same_as(ServerStepAlgorithm, "name")
    learning_rate: float = same_as(ServerStepAlgorithm, "learning_rate", default=0.1)
    _optimizer: str = same_as(ServerStepAlgorithm, "_optimizer")
    clients_per_round: int | None = cohort_size()
    sample_rate: float = field(
        number(above=0, at_most=1),
        default=1.0,
        unit="q",
        help="probability with which a record joins a client's lot, which does not amplify; 1: all",
    )

    def uploads(self, context: RunContext) -> Uploads:
        from fedpriv.algorithms.uploads import Gradients

        return Gradients(self.sample_rate, context)

    def denominator(self, cohort: int, clients: int) -> float:
        return float(cohort)

    def records_per_step(self, records: float) -> float:
        return self.sample_rate * records

    def describe(self, clients: int | None, records: int | None) -> tuple[tuple[str, str], ...]:
        who = f"{self.clients_per_round or 'all'} clients"
        lot = "all" if self.sample_rate == 1 else f"a Poisson lot of {self.sample_rate:g}"
        return (
            ("each round", f"{who} send the gradient of {lot} of their {records_of(records, '')}"),
            self._server_words(),
        )
