"""DP-FTRL with user-level privacy: noise correlated over rounds (Kairouz et al. 2021; Choquette-Choo et al.
2023; Dvijotham et al. 2024; McMahan, Xu, Zhang 2024).

As central DP-FedAvg, but who takes part is decided by turns, or by rest, and not by secret coins:

    Δ_k ← Δ_k min(1, C/‖Δ_k‖);   x_t = Σ_k Δ_k;   m_t = β m_{t-1} + (1/m) ( x_t + σ C (C_s^-1 Z)_t )
    θ ← θ + η_s r_t m_t

with a strategy matrix C_s, rows of Z standard normal, and a public m. The whole run is one Gaussian release
of noise multiplier σ / sens(C_s, participation). The server is trusted; the unit is the client, and in the
other data set its contributions are zeros.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedpriv.algorithms.base import Algorithm
from fedpriv.common import checks
from fedpriv.common.errors import ArgumentError, ConfigError
from fedpriv.common.secret_streams import SecretStreams
from fedpriv.common.words import counted, records_of
from fedpriv.privacy.clippers import Clipper
from fedpriv.privacy.clippers.fixed import ConstantClipper, NoClipper
from fedpriv.privacy.matrix import MOST_BUFFERS
from fedpriv.privacy.matrix.cohorts import (
    BMinSep,
    Cohorts,
    CyclicPoisson,
    Rested,
    ShuffledEpochs,
    Turns,
)
from fedpriv.privacy.names import ZERO_OUT
from fedpriv.privacy.sampling import Sampling, WholeData
from fedpriv.privacy.trust import CENTRAL_TRUST

if TYPE_CHECKING:
    from fedpriv.algorithms.problem import Problem
    from fedpriv.algorithms.trainer import Trainer
    from fedpriv.privacy.matrix.strategy import Strategy
    from fedpriv.privacy.matrix.workload import Workload
    from fedpriv.privacy.mechanisms.matrix import MatrixMechanism
    from fedpriv.privacy.noise_schedules import NoiseSchedule

STRATEGIES = ("identity", "tree", "banded_toeplitz", "banded", "blt")
CYCLIC, MIN_SEPARATION, ONCE_PER_EPOCH = "cyclic", "min_separation", "once_per_epoch"
CYCLIC_POISSON, B_MIN_SEP = "cyclic_poisson", "b_min_sep"
PARTICIPATIONS = (CYCLIC, MIN_SEPARATION, ONCE_PER_EPOCH, CYCLIC_POISSON, B_MIN_SEP)
OBJECTIVES = ("mean", "max")


class DpFtrl(Algorithm):
    """``rounds`` n; ``min_separation`` b; ``max_participations`` k (``None``: as many as b allows);
    ``clients_per_round`` m (``participation=min_separation``); ``client_rate`` (``cyclic_poisson``,
    ``b_min_sep``); ``warm_start`` (``b_min_sep``; ``None``: true);
    ``bands``, ``buffers``, ``tree_rounds``: the size of a strategy (``None``: chosen); ``objective``: which
    squared error the strategy is optimised for; ``momentum`` β and ``cooldown``: of the server.
    """

    private = True
    unit = "client"
    trust = CENTRAL_TRUST
    uploads_changes = True

    def __init__(
        self,
        name: str,
        rounds: int,
        strategy: str = "banded_toeplitz",
        participation: str = CYCLIC,
        min_separation: int = 10,
        max_participations: int | None = None,
        clients_per_round: int | None = None,
        client_rate: float | None = None,
        bands: int | None = None,
        buffers: int | None = None,
        tree_rounds: int | None = None,
        objective: str = "mean",
        learning_rate: float = 1.0,
        momentum: float = 0.0,
        cooldown: int = 0,
        local_epochs: int = 1,
        batch_size: int | None = None,
        local_learning_rate: float = 0.1,
        warm_start: bool | None = None,
    ):
        self.name = checks.text("name", name)
        self.rounds = checks.whole("rounds", rounds, at_least=1)
        self.strategy = checks.one_of("strategy", strategy, STRATEGIES)
        self.participation = checks.one_of("participation", participation, PARTICIPATIONS)
        self.separation = checks.whole(
            "min_separation", min_separation, at_least=1, at_most=self.rounds
        )
        self.most = None
        if max_participations is not None:
            self.most = checks.whole("max_participations", max_participations, at_least=1)
        self.cohorts = self._cohorts(clients_per_round, client_rate, warm_start)
        self.size = self._size({"bands": bands, "buffers": buffers, "tree_rounds": tree_rounds})
        self._refuse_shared_bands()
        self.objective = checks.one_of("objective", objective, OBJECTIVES)
        self.learning_rate = checks.number("learning_rate", learning_rate, above=0)
        self.momentum = checks.number("momentum", momentum, at_least=0, at_most=0.9999)
        self.cooldown = checks.whole("cooldown", cooldown, at_most=self.rounds)
        self.optimizer = "momentum" if self.momentum or self.cooldown else "sgd"
        self.local_epochs = checks.whole("local_epochs", local_epochs, at_least=1)
        self.batch_size = (
            None if batch_size is None else checks.whole("batch_size", batch_size, at_least=1)
        )
        self.local_learning_rate = checks.number(
            "local_learning_rate", local_learning_rate, above=0
        )
        self._mechanism: MatrixMechanism | None = None

    # ---- settings

    def _cohorts(self, size: int | None, rate: float | None, warm_start: bool | None) -> Cohorts:
        coins = self.participation in (CYCLIC_POISSON, B_MIN_SEP)
        self._refuse_given(
            "clients_per_round", size, self.participation == MIN_SEPARATION, "a whole number >= 1"
        )
        self._refuse_given("client_rate", rate, coins, "a number > 0 and <= 1")
        if self.participation == MIN_SEPARATION:
            size = checks.whole("clients_per_round", size, at_least=1)
            return Rested(self.separation, self.most, size)
        if self.participation != B_MIN_SEP and warm_start is not None:
            raise ArgumentError(
                "warm_start", warm_start, f"null with participation={self.participation}"
            )
        if coins:
            if self.most is not None:
                allowed = f"null with {self.participation}"
                raise ArgumentError("max_participations", self.most, allowed)
            rate = checks.number("client_rate", rate, above=0, at_most=1)
            if self.participation == CYCLIC_POISSON:
                return CyclicPoisson(self.separation, rate)
            warm = True if warm_start is None else checks.boolean("warm_start", warm_start)
            return BMinSep(self.separation, rate, warm)
        kind = Turns if self.participation == CYCLIC else ShuffledEpochs
        return kind(self.separation, self.most)

    def _refuse_given(self, key: str, value: float | None, wanted: bool, allowed: str) -> None:
        """Raise ArgumentError where it is given and not wanted, or the other way round."""
        if (value is None) == wanted:
            allowed = f"{allowed if wanted else 'null'} with participation={self.participation}"
            raise ArgumentError(key, value, allowed)

    def _size(self, sizes: dict[str, int | None]) -> int | None:
        """The one that the strategy has, or None."""
        own = {"tree": "tree_rounds", "blt": "buffers", "identity": ""}.get(self.strategy, "bands")
        for key, value in sizes.items():
            if value is not None and key != own:
                raise ArgumentError(key, value, f"null with strategy={self.strategy}")
        if own == "" or sizes[own] is None:
            return None
        most = MOST_BUFFERS if own == "buffers" else self.rounds
        return checks.whole(own, sizes[own], at_least=1, at_most=most)

    @property
    def _amplified(self) -> bool:
        """Whether secret coins decide who joins."""
        rate = getattr(self.cohorts, "rate", 1.0)
        return rate < 1.0 or bool(getattr(self.cohorts, "warm_start", False))

    def _refuse_shared_bands(self) -> None:
        """A dense banded strategy, and amplification, count on columns that no pattern shares."""
        able = ("identity", "banded_toeplitz", "banded")
        able = able[:2] if self.participation == B_MIN_SEP else able
        if self._amplified and self.strategy not in able:
            raise ArgumentError(
                "strategy",
                self.strategy,
                f"{', '.join(able[:-1])} or {able[-1]} with participation={self.participation}",
                "sampling amplifies banded strategies"
                + (" whose columns are alike" if self.participation == B_MIN_SEP else ""),
            )
        if self.strategy == "banded" and self.participation == ONCE_PER_EPOCH:
            raise ArgumentError(
                "participation",
                ONCE_PER_EPOCH,
                "cyclic, min_separation or cyclic_poisson with strategy=banded",
                "the last round of an epoch is next to the first of the following one",
            )
        apart = self.strategy == "banded" or (
            self._amplified and self.strategy == "banded_toeplitz"
        )
        if apart and self.size is not None and self.size > self.separation:
            raise ArgumentError("bands", self.size, f"<= {self.separation}, min_separation")

    @property
    def workload(self) -> Workload:
        """What the server's optimiser makes of the sums."""
        from fedpriv.privacy.matrix.workload import Workload

        return Workload(self.rounds, self.momentum, self.cooldown)

    def find_strategy(self) -> Strategy:
        """The optimised strategy: in seconds; a dense banded one of 1,000 rounds in a minute, then cached."""
        from fedpriv.privacy.matrix.make import make_strategy

        participation = self.cohorts.participation
        return make_strategy(self.strategy, self.workload, participation, self.size, self.objective)

    # ---- sampling

    def sampling_of(self, records: int) -> Sampling:
        """Nothing is sampled: the whole run is one release of everything a client contributes."""
        return WholeData(ZERO_OUT)

    def cohort(self, streams: SecretStreams, round_index: int, eligible: np.ndarray) -> np.ndarray:
        allowed = eligible & self._mechanism.attendance.may(round_index)
        return self.cohorts.choose(streams, round_index, allowed)

    def expected_cohort(self, clients: int | None) -> float | None:
        return None if clients is None else self.cohorts.expected(clients)

    def check_clients(self, clients: int) -> None:
        self.cohorts.refuse_too_few(clients, self.rounds)

    # ---- noise

    def mechanism(self, clipper: Clipper, schedule: NoiseSchedule) -> MatrixMechanism:
        from fedpriv.privacy.mechanisms.matrix import Correlation, MatrixMechanism

        correlation = Correlation(
            self.rounds,
            self.cohorts.participation,
            self.find_strategy,
            getattr(self.cohorts, "rate", 1.0),
            getattr(self.cohorts, "warm_start", None),
        )
        self._mechanism = MatrixMechanism(self, clipper, schedule, correlation)
        return self._mechanism

    def refuse_clipper(self, clipper: Clipper) -> None:
        if not isinstance(clipper, ConstantClipper | NoClipper):
            raise ConfigError(
                f"algorithm={self.name} takes one clip norm fixed in advance (clipper=constant), because one "
                "release is charged for all rounds"
            )

    # ---- the work

    def start(self, problem: Problem) -> Trainer:
        from fedpriv.algorithms.client_work import ClientWork
        from fedpriv.algorithms.cooled_sgd import CooledSgd
        from fedpriv.algorithms.server_steps import AddChange
        from fedpriv.algorithms.trainer import Trainer
        from fedpriv.algorithms.uploads import LocalChanges

        uploads = LocalChanges(
            problem, self.local_epochs, self.batch_size, self.local_learning_rate
        )
        work = ClientWork(
            problem,
            uploads,
            lambda cohort, clients: self.cohorts.expected(clients),
            noise_on_the_mean=False,
            upload_weight=self.learning_rate if self.optimizer == "sgd" else None,
        )
        optimizer = CooledSgd(self.learning_rate, self.momentum, self.workload.rates)
        return Trainer(problem, work, optimizer, AddChange(problem.model))

    def records_per_step(self, records: float) -> float:
        if isinstance(self.cohorts, BMinSep):
            return self.cohorts.expected(records)
        return records / self.separation

    # ---- words

    def describe(self, clients: int | None, records: int | None) -> tuple[tuple[str, str], ...]:
        batches = "whole data" if self.batch_size is None else f"batches of {self.batch_size}"
        server = f"sgd, learning rate {self.learning_rate:g}"
        if self.momentum:
            server += f", momentum {self.momentum:g}"
        if self.cooldown:
            server += f", falling over the last {counted(self.cooldown, 'round')}"
        return (
            (
                "each round",
                f"{self.cohorts.describe(clients)}; {counted(self.local_epochs, 'epoch')} of {batches} over "
                f"{records_of(records)}",
            ),
            ("local optimizer", f"sgd, learning rate {self.local_learning_rate:g}"),
            ("server optimizer", server),
            ("noise over rounds", f"correlated by strategy={self.strategy}"),
        )

    def caveats(self) -> tuple[str, ...]:
        if not self._amplified:
            return ("correlated",)
        secret = "secret_rests" if self.participation == B_MIN_SEP else "secret_turns"
        return ("correlated", secret)
