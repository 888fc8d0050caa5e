"""What the algorithms with per-record local training share: their settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedpriv.algorithms.base import (
    Algorithm,
    optional_cohort_size,
    optional_proximal,
    proximal_words,
)
from fedpriv.common import checks
from fedpriv.common.errors import ArgumentError, ConfigError
from fedpriv.common.words import counted
from fedpriv.privacy.sampling import SAMPLING_NAMES, Sampling, make_sampling

if TYPE_CHECKING:
    from fedpriv.algorithms.optimizers import Optimizer
    from fedpriv.algorithms.problem import Problem
    from fedpriv.algorithms.server_steps import ServerStep
    from fedpriv.algorithms.trainer import Trainer

OPTIMIZERS = ("adam", "sgd")
OPTIMIZER_STATES = ("kept", "reset")
PARTICIPATIONS = ("all", "sampled")


class LocalStepsAlgorithm(Algorithm):
    """Each round every participant takes ``local_steps`` optimiser steps from the global weights, one
    lot each, and the server averages the results weighted by n_k:  w = Σ p_k w^k.

    ``sample_rate`` q ∈ (0, 1]; ``max_lot_size``: Poisson lots are cut to so many records (charged as
    truncated; ``None``: never); ``optimizer_state``: whether Adam's moments stay with the client over
    rounds (``kept``) or start anew each round (``reset``); ``participation``: ``all``, or ``sampled``:
    ``clients_per_round`` of those who still may, uniformly; ``proximal``: μ of FedProx (Li et al. 2020),
    whose term μ/2 ‖w - θ‖² reads no record and joins after the noise; ``learning_rate_decay``: γ ∈ (0, 1],
    by which the learning rate is multiplied after each round, η_t = η γ^(t-1) (``None``: 1).
    """

    unit = "record"
    uploads_changes = True

    def __init__(
        self,
        name: str,
        sample_rate: float,
        sampling: str = "poisson",
        max_lot_size: int | None = None,
        optimizer: str = "adam",
        optimizer_state: str = "kept",
        learning_rate: float = 0.01,
        local_steps: int = 1,
        participation: str = "all",
        clients_per_round: int | None = None,
        proximal: float | None = None,
        learning_rate_decay: float | None = None,
    ):
        self.name = checks.text("name", name)
        self.sample_rate = checks.number("sample_rate", sample_rate, above=0, at_most=1)
        self.sampling = checks.one_of("sampling", sampling, SAMPLING_NAMES)
        self.max_lot_size = None
        if max_lot_size is not None:
            if self.sampling != "poisson":
                raise ArgumentError("max_lot_size", max_lot_size, "null unless sampling=poisson")
            self.max_lot_size = checks.whole("max_lot_size", max_lot_size, at_least=1)
        self.optimizer = checks.one_of("optimizer", optimizer, OPTIMIZERS)
        self.optimizer_state = checks.one_of("optimizer_state", optimizer_state, OPTIMIZER_STATES)
        self.learning_rate = checks.number("learning_rate", learning_rate, above=0)
        self.learning_rate_decay = None
        if learning_rate_decay is not None:
            self.learning_rate_decay = checks.number(
                "learning_rate_decay", learning_rate_decay, above=0, at_most=1
            )
        self.local_steps = checks.whole("local_steps", local_steps, at_least=1)
        self.samples_per_round = self.local_steps
        self.proximal = optional_proximal(proximal)
        if self.proximal and self.local_steps == 1:
            raise ArgumentError(
                "proximal", proximal, "null with local_steps=1, which begins where it would pull to"
            )
        self.cost_depends_on_records = self.sampling == "fixed_size"
        self.participation = checks.one_of("participation", participation, PARTICIPATIONS)
        self.clients_per_round = None
        if self.participation == "sampled":
            if clients_per_round is None:
                raise ArgumentError("clients_per_round", None, "a whole number >= 1")
            self.clients_per_round = optional_cohort_size(clients_per_round)
        elif clients_per_round is not None:
            raise ArgumentError(
                "clients_per_round", clients_per_round, "null unless participation=sampled"
            )

    def sampling_of(self, records: int) -> Sampling:
        """How a client with ``records`` records samples its lots."""
        return make_sampling(self.sampling, self.sample_rate, records, self.max_lot_size)

    def server_step(self, problem: Problem) -> ServerStep:
        """What the server does with the changes: their average, weighted by records. To override."""
        from fedpriv.algorithms.server_steps import WeightedAverage

        return WeightedAverage(problem.model, problem.data.records_per_client)

    def start(self, problem: Problem) -> Trainer:
        from fedpriv.algorithms.record_work import RecordWork
        from fedpriv.algorithms.trainer import Trainer

        samplings = [self.sampling_of(int(n)) for n in problem.data.records_per_client]
        server = self.server_step(problem)
        if not callable(getattr(server, "apply", None)):
            raise ConfigError(
                f"{type(self).__name__}.server_step must return an object with a method apply(cohort, "
                f"uploads), got {type(server).__name__}"
            )
        optimizer = self._decayed(self._client_optimizer(problem))
        work = RecordWork(
            problem, samplings, self.local_steps, server, self.proximal, self.augmentation
        )
        return Trainer(problem, work, optimizer, server)

    def _client_optimizer(self, problem: Problem) -> Optimizer:
        from fedpriv.algorithms.optimizers import Adam, Sgd

        if self.optimizer == "sgd":
            return Sgd(self.learning_rate)
        return Adam(
            self.learning_rate,
            problem.data.client_count,
            problem.model.size,
            problem.model.device,
            reset=self.optimizer_state == "reset",
        )

    def _decayed(self, optimizer: Optimizer) -> Optimizer:
        from fedpriv.algorithms.optimizers import Decayed

        if self.learning_rate_decay is None:
            return optimizer
        return Decayed(optimizer, self.learning_rate_decay)

    def records_per_step(self, records: float) -> float:
        return self.sample_rate * records

    def describe(self, clients: int | None, records: int | None) -> tuple[tuple[str, str], ...]:
        who, about = "all clients", ""
        if records is not None:
            about = f"; about {self.sample_rate * records:.0f} of {records} records"
        if self.clients_per_round is not None:
            who = f"{self.clients_per_round} clients, sampled"
        return (
            (
                "each round",
                f"{who}, {counted(self.local_steps, 'local step')}, sample rate {self.sample_rate:g} "
                f"({self.sampling}{about})",
            ),
            (
                "optimizer",
                f"{self.optimizer}, learning rate {self.learning_rate:g}{self._decay_words()}"
                f"{proximal_words(self.proximal)}",
            ),
        )

    def _decay_words(self) -> str:
        decay = self.learning_rate_decay
        return "" if decay is None else f", times {decay:g} after each round"

    def caveats(self) -> tuple[str, ...]:
        return ("fixed_size",) if self.sampling == "fixed_size" else ()
