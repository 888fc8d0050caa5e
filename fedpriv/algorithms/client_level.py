"""The base classes of client-level algorithms: one upload of each client a round, and a server that steps.

    θ ← server optimiser(θ, (1/m) Σ_k u_k min(1, C/‖u_k‖) + noise)

u_k is the upload of client k: a gradient, or minus the change of its weights. The unit of privacy is
the client: norms, clipping and noise are those of whole uploads, and one clip norm C holds for all.
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
from fedpriv.common.attributes import is_own
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
    """Clients upload once a round, and the server's optimiser steps.

    The server's optimiser is a function of released values, so it costs no privacy. An algorithm of your own
    extends :class:`fedpriv.algorithms.CdpFedAvg` or :class:`fedpriv.algorithms.LdpFedSgd` and overrides
    :meth:`uploads` or :meth:`denominator`.

    Attributes:
        name: Name in run folders and tables.
        learning_rate: Learning rate of the server.
        server: The server's optimiser with its settings.

    Example:
        >>> from fedpriv.algorithms import CdpFedAvg
        >>> algorithm = CdpFedAvg(name="cdp_fedavg", client_rate=0.1)
        >>> algorithm.unit, algorithm.optimizer
        ('client', 'sgd')
        >>> algorithm.denominator(cohort=7, clients=100)  # q K, whoever comes
        10.0
    """

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
        """Name of the server's optimiser."""
        return self.server.name

    @abstractmethod
    def uploads(self, context: RunContext) -> Uploads:
        """Return the computation of the clients' uploads.

        Args:
            context: What the run works on.
        """

    @abstractmethod
    def denominator(self, cohort: int, clients: int) -> float:
        """Return the public number that divides the sum of the clipped uploads.

        Where the server may not know who takes part, the number must not depend on ``cohort``.

        Args:
            cohort: Number of clients that take part.
            clients: Number of all clients K.
        """

    @fact
    def noise_on_the_mean(self) -> bool:
        """True where noise and sensitivity are those of the mean over the participating clients."""
        return False

    def start(self, context: RunContext) -> Trainer:
        from fedpriv.algorithms.optimizers import NoOptimizer, OfChanges
        from fedpriv.algorithms.server_steps import AddChange, ReplaceWeights, ServerStep
        from fedpriv.algorithms.trainer import Trainer
        from fedpriv.algorithms.upload_computation import UploadComputation

        self._refuse_realised_denominator(context.data.client_count)
        uploads = self.uploads(context)
        if is_own(uploads) and self.private and context.data.client_count > 2:
            _refuse_kept(self, context)
        if uploads.replaces and context.attack is not None and context.attack.whole_round:
            raise ConfigError(
                f"attack must be none, or a backdoor, with algorithm={self.name}: its clients send weights, "
                "and not changes of them"
            )
        upload_weight = None  # factor by which the mean upload moves the weights, if there is one
        if self.optimizer == "sgd" and uploads.sign == -1:
            upload_weight = 1.0 if uploads.replaces else self.learning_rate
        optimizer: Optimizer
        server: ServerStep
        if uploads.replaces:
            optimizer, server = NoOptimizer(), ReplaceWeights(context.model)
        else:
            made = self.server.make(context.model)
            optimizer = made if uploads.sign == 1 else OfChanges(made)
            server = AddChange(context.model)
        computation = UploadComputation(
            context,
            uploads,
            self.denominator,
            noise_on_the_mean=self.noise_on_the_mean,
            upload_weight=upload_weight,
            combines=context.rule is not None or context.mechanism.uploads_apart,
            buckets=None if context.rule is None else context.rule.buckets,
        )
        return Trainer(context, computation, optimizer, server)

    def _refuse_realised_denominator(self, clients: int) -> None:
        """Raise ConfigError where dividing the sum would tell how many clients took part, which is secret."""
        if not self.trust.secret_cohort or self.noise_on_the_mean:
            return
        if len({self.denominator(cohort, clients) for cohort in (0, 1, clients)}) > 1:
            raise ConfigError(
                f"algorithm={self.name}: denominator depends on how many take part, which is secret with "
                f"{self.trust.name} trust; divide by their expected number"
            )

    def _server_words(self) -> tuple[str, str]:
        return ("server optimizer", self.server.describe())


@declared
class GradientAlgorithm(ServerStepAlgorithm):
    """Clients upload the gradient of their mean loss, and the server averages over the participants.

        u_k = (1/(q n_k)) Σ_{i in lot k} ∇ℓ_i(θ)

    The lot is the whole data of the client where q = 1, else a Poisson lot of rate q.

    Attributes:
        name: Name in run folders and tables.
        learning_rate: η of the server.
        clients_per_round: m, the clients of a round, sampled uniformly; None: all.
        sample_rate: q.
    """

    name: str = same_as(ServerStepAlgorithm, "name")
    learning_rate: float = same_as(ServerStepAlgorithm, "learning_rate", default=0.1)
    _optimizer: str = same_as(ServerStepAlgorithm, "_optimizer")
    clients_per_round: int | None = cohort_size()
    sample_rate: float = field(
        number(above=0, at_most=1),
        default=1.0,
        unit="q",
        help="probability with which a record joins a client's lot (no amplification); 1: all",
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


def _refuse_kept(algorithm: ServerStepAlgorithm, context: RunContext) -> None:
    """Raise ConfigError if uploads of the user's own keep what they saw of an earlier client.

    Fresh objects compute the uploads of one client in two rounds, after those of different clients.
    """
    import numpy as np
    import torch

    weights, last = context.model.flat.clone(), context.data.client_count - 1
    found = []
    for earlier in (0, 1):
        uploads, later = algorithm.uploads(context), []
        for t, client in enumerate((earlier, last, last)):
            later.append(uploads.of(t, np.array([client])).uploads.clone())
            context.model.set(weights)
        found.append(torch.cat(later[1:]))
    one, other = found
    if not torch.allclose(one, other, 1e-4, 1e-4 * float(one.abs().max()), equal_nan=True):
        raise ConfigError(
            f"algorithm: {type(uploads).__name__}.of gives a client another upload if another client came "
            "before; an upload must be a function of its own client's records, as only then clipping bounds "
            "the influence of a client"
        )
