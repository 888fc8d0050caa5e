"""DP-FTRL with user-level privacy: noise that is correlated over rounds.

As central DP-FedAvg, but turns or rest decide who takes part, not secret coins:

    Δ_k ← Δ_k min(1, C/‖Δ_k‖);   x_t = Σ_k Δ_k;   m_t = β m_{t-1} + (1/m) ( x_t + σ C (C_s^-1 Z)_t )
    θ ← θ + η_s r_t m_t

with a strategy matrix C_s, rows of Z standard normal, and a public m. The whole run is one Gaussian release
of noise multiplier σ / sens(C_s, participation). The server is trusted; the unit is the client, and in the
other data set its contributions are zeros.

Sources: Kairouz et al., "Practical and private (deep) learning without sampling or shuffling", ICML 2021;
Choquette-Choo et al., "(Amplified) banded matrix factorization", NeurIPS 2023; Dvijotham et al., "Efficient
and near-optimal noise generation for streaming differential privacy", FOCS 2024; McMahan, Xu, Zhang,
"A hassle-free algorithm for strong differential privacy in federated learning systems", 2024.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

import numpy as np

from fedpriv.algorithms.base import Algorithm, local_training
from fedpriv.algorithms.cdp_fedavg import CdpFedAvg
from fedpriv.common.errors import ArgumentError
from fedpriv.common.fields import (
    declared,
    field,
    number,
    one_of,
    or_null,
    same_as,
    text,
    when,
    whole,
)
from fedpriv.common.secret_streams import SecretStreams
from fedpriv.common.words import counted
from fedpriv.privacy.clippers import Clipper
from fedpriv.privacy.core.names import ZERO_OUT
from fedpriv.privacy.core.sampling import Sampling, WholeData
from fedpriv.privacy.core.trust import CENTRAL_TRUST
from fedpriv.privacy.matrix import MOST_BUFFERS
from fedpriv.privacy.matrix.cohorts import (
    DEFAULT_SEPARATION,
    Cohorts,
    CyclicPoisson,
    Rested,
    ShuffledEpochs,
    Turns,
)

if TYPE_CHECKING:
    from fedpriv.algorithms.run_context import RunContext
    from fedpriv.algorithms.trainer import Trainer
    from fedpriv.privacy.matrix.strategy import Strategy
    from fedpriv.privacy.matrix.workload import Workload
    from fedpriv.privacy.mechanisms.matrix import MatrixMechanism
    from fedpriv.privacy.noise_schedules import NoiseSchedule

STRATEGIES = ("identity", "tree", "banded_toeplitz", "banded", "blt")
CYCLIC, MIN_SEPARATION, ONCE_PER_EPOCH = "cyclic", "min_separation", "once_per_epoch"
CYCLIC_POISSON = "cyclic_poisson"
PARTICIPATIONS = (CYCLIC, MIN_SEPARATION, ONCE_PER_EPOCH, CYCLIC_POISSON)
OBJECTIVES = ("mean", "max")
_SIZE_OF = {
    "tree": "tree_rounds",
    "banded_toeplitz": "bands",
    "banded": "bands",
    "blt": "buffers",
}
"""Name of the argument with the size of a strategy, by strategy."""


def _rests(part: DpFtrl, value: object) -> bool:
    return value is not None and part.participation == MIN_SEPARATION


def _tosses_coins(part: DpFtrl, value: object) -> bool:
    return value is not None and part.participation == CYCLIC_POISSON


def _is_of(size: str) -> Callable[[DpFtrl, object], bool]:
    return lambda part, value: value is not None and _SIZE_OF.get(part.strategy) == size


@declared
class DpFtrl(Algorithm):
    """Central DP-FedAvg with noise that is correlated over rounds; the formulas are in the module.

    Attributes:
        name: Name in run folders and tables.
        rounds: n, the rounds of the run.
        strategy: Kind of the strategy matrix C_s.
        participation: Rule that decides who takes part in which rounds.
        separation: b, the rounds from one participation of a client to its next.
        most: k, the participations of a client; None: as many as b allows.
        objective: Squared error that the strategy minimises: its ``mean`` or ``max`` over rounds.
        learning_rate: η_s of the server.
        momentum: β of the server.
        cooldown: Last rounds, over which the server's learning rate falls.
        local_epochs: Epochs of a client in a round.
        batch_size: Records in a batch; None: a client's whole data.
        local_learning_rate: Learning rate of the clients.
        cohorts: The choice of the cohorts.
        size: Bands, buffers or rounds of the strategy; None: chosen by its optimisation.
        optimizer: ``momentum`` or ``sgd``, the server's optimiser.

    Raises:
        ArgumentError: An argument is out of its range, or does not go with the others.

    Example:
        >>> algorithm = DpFtrl(name="dp_ftrl", rounds=64, strategy="tree", min_separation=8, momentum=0.9)
        >>> algorithm.optimizer, algorithm.expected_cohort(800)
        ('momentum', 100.0)
    """

    private = True
    unit = "client"
    trust = CENTRAL_TRUST
    uploads_changes = True

    name: str = field(text, help="name in run folders and tables")
    rounds: int = field(
        whole(at_least=1), unit="n", help="rounds of the run, for which the strategy is made"
    )
    strategy: str = field(
        one_of(STRATEGIES),
        default="banded_toeplitz",
        help="strategy matrix C_s, which correlates the noise",
    )
    participation: str = field(
        one_of(PARTICIPATIONS), default=CYCLIC, help="who takes part in which rounds"
    )
    separation: int = field(
        whole(at_least=1, at_most="rounds"),
        default=DEFAULT_SEPARATION,
        alias="min_separation",
        unit="b",
        help="least number of rounds from one participation of a client to its next",
    )
    most: int | None = field(
        or_null(whole(at_least=1)),
        default=None,
        alias="max_participations",
        unit="k",
        help="largest number of participations of a client; null: as many as b allows",
    )
    _clients_per_round: int | None = field(
        when(_rests, whole(at_least=1)),
        default=None,
        unit="m",
        help="clients in a round with participation=min_separation; otherwise one of b groups takes part",
    )
    _client_rate: float | None = field(
        when(_tosses_coins, number(above=0, at_most=1)),
        default=None,
        help="probability with which a client joins a round, with participation=cyclic_poisson",
    )
    _bands: int | None = field(
        when(_is_of("bands"), whole(at_least=1, at_most="rounds")),
        default=None,
        help="number of bands of a banded strategy; null: min_separation",
    )
    _buffers: int | None = field(
        when(_is_of("buffers"), whole(at_least=1, at_most=MOST_BUFFERS)),
        default=None,
        help="number of buffers of strategy=blt; null: as many as lower the error",
    )
    _tree_rounds: int | None = field(
        when(_is_of("tree_rounds"), whole(at_least=1, at_most="rounds")),
        default=None,
        help="rounds of a tree, after which a new tree begins; null: min_separation",
    )
    objective: str = field(
        one_of(OBJECTIVES),
        default="mean",
        help="squared error that the strategy is optimised for: mean or max over rounds",
    )
    learning_rate: float = same_as(CdpFedAvg, "learning_rate")
    momentum: float = field(
        number(at_least=0, at_most=0.9999),
        default=0.0,
        unit="β",
        help="momentum of the server, also in the objective",
    )
    cooldown: int = field(
        whole(at_most="rounds"),
        default=0,
        unit="rounds",
        help="number of last rounds in which the server's learning rate falls, also in the objective",
    )
    local_epochs: int = same_as(CdpFedAvg, "local_epochs")
    batch_size: int | None = same_as(CdpFedAvg, "batch_size")
    local_learning_rate: float = same_as(CdpFedAvg, "local_learning_rate")

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        self.cohorts: Cohorts = self._cohorts()
        self.size = self._size()
        self._refuse_shared_bands()
        self.optimizer: str = "momentum" if self.momentum or self.cooldown else "sgd"
        self._mechanism: MatrixMechanism | None = None

    # ---- settings

    def _cohorts(self) -> Cohorts:
        kind = self.participation
        self._refuse_given(
            "clients_per_round",
            self._clients_per_round,
            kind == MIN_SEPARATION,
            "a whole number >= 1",
        )
        self._refuse_given(
            "client_rate", self._client_rate, kind == CYCLIC_POISSON, "a number > 0 and <= 1"
        )
        if self._clients_per_round is not None:
            return Rested(self.separation, self.most, self._clients_per_round)
        if self._client_rate is None:
            turns = Turns if kind == CYCLIC else ShuffledEpochs
            return turns(self.separation, self.most)
        if self.most is not None:
            raise ArgumentError("max_participations", self.most, f"null with {kind}")
        return CyclicPoisson(self.separation, self._client_rate)

    def _refuse_given(self, key: str, value: float | None, needed: bool, allowed: str) -> None:
        """Raise ArgumentError where a value is missing and needed, or given and not needed."""
        if (value is None) == needed:
            allowed = f"{allowed if needed else 'null'} with participation={self.participation}"
            raise ArgumentError(key, value, allowed)

    def _size(self) -> int | None:
        """Return the size of the strategy, or None where its optimisation chooses one."""
        size_key = _SIZE_OF.get(self.strategy)
        for key in ("bands", "buffers", "tree_rounds"):
            value = getattr(self, f"_{key}")
            if value is not None and key != size_key:
                raise ArgumentError(key, value, f"null with strategy={self.strategy}")
        return None if size_key is None else getattr(self, f"_{size_key}")

    @property
    def _amplified(self) -> bool:
        """True where secret coins decide who joins, so that sampling amplifies."""
        return self.cohorts.rate < 1.0

    def _refuse_shared_bands(self) -> None:
        """Raise ArgumentError where two participations of a client may fall within one band.

        The sensitivity of a dense banded strategy, and amplification, are proven for columns of the strategy
        that do not overlap within a participation pattern.
        """
        if self._amplified and self.strategy in ("tree", "blt"):
            raise ArgumentError(
                "strategy",
                self.strategy,
                f"identity, banded_toeplitz or banded with participation={self.participation}",
                "sampling amplifies banded strategies",
            )
        if self.strategy == "banded" and self.participation == ONCE_PER_EPOCH:
            raise ArgumentError(
                "participation",
                ONCE_PER_EPOCH,
                "cyclic, min_separation or cyclic_poisson with strategy=banded",
                "a client may take part in the last round of an epoch and in the first round of the next",
            )
        bounded = self.strategy == "banded" or (
            self._amplified and self.strategy == "banded_toeplitz"
        )
        if bounded and self.size is not None and self.size > self.separation:
            raise ArgumentError("bands", self.size, f"<= {self.separation}, min_separation")

    @property
    def workload(self) -> Workload:
        """The linear function of the rounds' sums that the server's optimiser computes."""
        from fedpriv.privacy.matrix.workload import Workload

        return Workload(self.rounds, self.momentum, self.cooldown)

    def find_strategy(self) -> Strategy:
        """Return the optimised strategy.

        It takes seconds; a dense banded strategy of 1,000 rounds takes a minute.
        """
        from fedpriv.privacy.matrix.make import make_strategy

        participation = self.cohorts.participation
        return make_strategy(self.strategy, self.workload, participation, self.size, self.objective)

    # ---- sampling

    def sampling_of(self, records: int) -> Sampling:
        """Return the trivial sampling: the whole run is one release of everything a client contributes."""
        return WholeData(ZERO_OUT)

    def cohort(self, streams: SecretStreams, round_index: int, eligible: np.ndarray) -> np.ndarray:
        assert self._mechanism is not None
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
            self.cohorts.rate,
        )
        made = MatrixMechanism(self, clipper, schedule, correlation)
        self._mechanism = (
            self._mechanism or made
        )  # until a run begins, whose cohorts follow its own
        return made

    # ---- the work

    def start(self, context: RunContext) -> Trainer:
        from fedpriv.algorithms.cooled_sgd import CooledSgd
        from fedpriv.algorithms.server_steps import AddChange
        from fedpriv.algorithms.trainer import Trainer
        from fedpriv.algorithms.upload_computation import UploadComputation
        from fedpriv.algorithms.uploads import LocalChanges

        self._mechanism = cast("MatrixMechanism", context.mechanism)
        uploads = LocalChanges(
            context, self.local_epochs, self.batch_size, self.local_learning_rate
        )
        computation = UploadComputation(
            context,
            uploads,
            lambda cohort, clients: self.cohorts.expected(clients),
            noise_on_the_mean=False,
            upload_weight=self.learning_rate if self.optimizer == "sgd" else None,
        )
        optimizer = CooledSgd(self.learning_rate, self.momentum, self.workload.rates)
        return Trainer(context, computation, optimizer, AddChange(context.model))

    def records_per_step(self, records: float) -> float:
        return records / self.separation

    # ---- words

    def describe(self, clients: int | None, records: int | None) -> tuple[tuple[str, str], ...]:
        training = local_training(self.local_epochs, self.batch_size, records)
        server = f"sgd, learning rate {self.learning_rate:g}"
        if self.momentum:
            server += f", momentum {self.momentum:g}"
        if self.cooldown:
            server += f", falling over the last {counted(self.cooldown, 'round')}"
        return (
            ("each round", f"{self.cohorts.describe(clients)}; {training}"),
            ("local optimizer", f"sgd, learning rate {self.local_learning_rate:g}"),
            ("server optimizer", server),
            ("noise over rounds", f"correlated by strategy={self.strategy}"),
        )

    def caveats(self) -> tuple[str, ...]:
        return ("correlated", "secret_turns") if self._amplified else ("correlated",)
