"""What the algorithms with per-record local training share: their settings and their cohort."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.common import checks
from fedpriv.common.errors import ArgumentError
from fedpriv.common.random_streams import numpy_stream
from fedpriv.privacy.claims import Claim
from fedpriv.privacy.sampling import SAMPLING_NAMES, Sampling, make_sampling

if TYPE_CHECKING:
    from fedpriv.algorithms.local_training import LocalTraining, Problem
    from fedpriv.privacy.clippers import Clipper
    from fedpriv.privacy.mechanism import Draw

OPTIMIZERS = ("adam", "sgd")
OPTIMIZER_STATES = ("kept", "reset")
PARTICIPATIONS = ("all", "sampled")


class LocalStepsAlgorithm(ABC):
    """Each round every participant takes ``local_steps`` optimiser steps from the global weights, one
    lot each, and the server averages the results weighted by n_k:  w = Σ p_k w^k.

    ``sample_rate`` q ∈ (0, 1]; ``max_lot_size``: Poisson lots are cut to so many records (charged as
    truncated; ``None``: never); ``optimizer_state``: whether Adam's moments stay with the client over
    rounds (``kept``) or start anew each round (``reset``); ``participation``: ``all``, or ``sampled``:
    ``clients_per_round`` of those who still may, uniformly.
    """

    private: bool
    unit = "record"
    trust = "local"
    claim: Claim | None = None

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
        self.local_steps = checks.whole("local_steps", local_steps, at_least=1)
        self.participation = checks.one_of("participation", participation, PARTICIPATIONS)
        self.clients_per_round = None
        if self.participation == "sampled":
            self.clients_per_round = checks.whole(
                "clients_per_round", clients_per_round, at_least=1
            )
        elif clients_per_round is not None:
            raise ArgumentError(
                "clients_per_round", clients_per_round, "null unless participation=sampled"
            )

    def sampling_of(self, records: int) -> Sampling:
        """How a client with ``records`` records draws its lots."""
        return make_sampling(self.sampling, self.sample_rate, records, self.max_lot_size)

    def cohort(self, seed: int, round_index: int, eligible: np.ndarray) -> np.ndarray:
        """Who takes part in this round: ascending indices among ``eligible`` [K] (bool)."""
        candidates = np.flatnonzero(eligible)
        if self.clients_per_round is None or len(candidates) <= self.clients_per_round:
            return candidates
        stream = numpy_stream(seed, "cohort", round_index)
        return np.sort(stream.choice(candidates, self.clients_per_round, replace=False))

    def check_clients(self, clients: int) -> None:
        """Refuse a cohort larger than the federation."""
        if self.clients_per_round is not None and self.clients_per_round > clients:
            raise ArgumentError(
                "clients_per_round", self.clients_per_round, f"<= {clients}, the number of clients"
            )

    @abstractmethod
    def draw(self, sampling: Sampling, noise_multiplier: float, clipper: Clipper) -> Draw | None:
        """What one participant releases in one local step (``None``: nothing that is accounted)."""

    def start(self, problem: Problem) -> LocalTraining:
        """The work itself, on data and a model."""
        from fedpriv.algorithms.local_training import LocalTraining

        return LocalTraining(self, problem)
