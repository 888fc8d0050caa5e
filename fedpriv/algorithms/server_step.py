"""What the algorithms share in which clients send one upload a round and the server takes the step.

    θ ← server optimiser(θ, (1/m) Σ_k u_k)

u_k is the upload of client k: a gradient, or minus the change of its weights. The unit of privacy is
the client: norms, clipping and noise are those of whole uploads, and one clip norm holds for all.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import TYPE_CHECKING

from fedpriv.algorithms.base import Algorithm, optional_cohort_size
from fedpriv.common import checks
from fedpriv.common.words import records_of
from fedpriv.privacy.names import LOCAL

if TYPE_CHECKING:
    from fedpriv.algorithms.server_training import ServerTraining
    from fedpriv.algorithms.uploads import Uploads
    from fedpriv.algorithms.work import Problem

SERVER_OPTIMIZERS = ("sgd", "adam")


class ServerStepAlgorithm(Algorithm):
    """``optimizer``, ``learning_rate``: the server's; a function of released values, so free."""

    unit = "client"

    def __init__(self, name: str, learning_rate: float, optimizer: str = "sgd"):
        self.name = checks.text("name", name)
        self.learning_rate = checks.number("learning_rate", learning_rate, above=0)
        self.optimizer = checks.one_of("optimizer", optimizer, SERVER_OPTIMIZERS)

    @abstractmethod
    def uploads(self, problem: Problem) -> Uploads:
        """What the clients compute, on data and a model."""

    @abstractmethod
    def denominator(self, cohort: int, clients: int) -> float:
        """By what the sum of the uploads of ``cohort`` of K clients is divided: a public number."""

    def noise_scale(self, cohort: int) -> float:
        """Noise std on the sum of the uploads of ``cohort``, in noise multipliers × clip norms: √m where
        each client of a cohort of m noises its own (the sum of m Gaussians is one), else 1."""
        return math.sqrt(cohort) if self.trust == LOCAL else 1.0

    def start(self, problem: Problem) -> ServerTraining:
        from fedpriv.algorithms.server_training import ServerTraining

        return ServerTraining(self, problem)

    def _server_words(self) -> tuple[str, str]:
        return ("server optimizer", f"{self.optimizer}, learning rate {self.learning_rate:g}")


class GradientAlgorithm(ServerStepAlgorithm):
    """m of K clients, sampled uniformly (``clients_per_round=None``: all), upload the gradient of the
    mean loss of their whole data, or of a Poisson lot of rate ``sample_rate`` < 1 with the public
    denominator q n_k. The server averages over those who came.
    """

    def __init__(
        self,
        name: str,
        learning_rate: float = 0.1,
        optimizer: str = "sgd",
        clients_per_round: int | None = None,
        sample_rate: float = 1.0,
    ):
        super().__init__(name, learning_rate, optimizer)
        self.clients_per_round = optional_cohort_size(clients_per_round)
        self.sample_rate = checks.number("sample_rate", sample_rate, above=0, at_most=1)

    def uploads(self, problem: Problem) -> Uploads:
        from fedpriv.algorithms.uploads import Gradients

        return Gradients(self.sample_rate, problem)

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
