"""The base class of record-level algorithms whose clients take local steps with per-record clipping."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedpriv.algorithms.base import (
    PROXIMAL_IS_ZERO,
    Algorithm,
    proximal_term,
    proximal_words,
)
from fedpriv.common.errors import ArgumentError, ConfigError
from fedpriv.common.fields import (
    declared,
    field,
    number,
    one_of,
    or_null,
    own_check,
    text,
    when,
    whole,
)
from fedpriv.common.words import counted
from fedpriv.privacy.core.sampling import (
    SAMPLING_NAMES,
    Sampling,
    make_sampling,
    samplings_of,
)

if TYPE_CHECKING:
    from fedpriv.algorithms.optimizers import Optimizer
    from fedpriv.algorithms.run_context import RunContext
    from fedpriv.algorithms.server_steps import ServerStep
    from fedpriv.algorithms.trainer import Trainer

OPTIMIZERS = ("adam", "sgd")
OPTIMIZER_STATES = ("kept", "reset")
PARTICIPATIONS = ("all", "sampled")


def _cuts_lots(part: LocalStepsAlgorithm, value: object) -> bool:
    return value is not None and part.sampling == "poisson"


@declared
class LocalStepsAlgorithm(Algorithm):
    """Local training with one lot a step, averaged by the server.

    In each round every participant takes ``local_steps`` optimiser steps from the global weights θ, each on
    a lot of its own. The server averages the results w^k weighted by the clients' records n_k:

        θ ← Σ_k p_k w^k,    p_k = n_k / Σ n over the cohort

    An algorithm of your own extends :class:`fedpriv.algorithms.DpFl` and overrides :meth:`server_step`, for
    another average of the clients' changes, or :meth:`sampling_of`, for other lots.

    Attributes:
        name: Name in run folders and tables.
        sample_rate: q, the probability with which a record joins a lot.
        sampling: Sampling of the lots, one of ``SAMPLING_NAMES``.
        max_lot_size: Size to which Poisson lots are cut; None: they are not cut.
        optimizer: Optimiser of the clients, ``adam`` or ``sgd``.
        optimizer_state: Whether a client's Adam keeps its moments from round to round (``kept``, ``reset``).
        learning_rate: η of the clients.
        local_steps: Steps of a client in a round.
        participation: ``all`` clients that still may, or ``sampled``.
        clients_per_round: m, the clients of a round where they are sampled.
        proximal: μ of FedProx; 0: no proximal term.
        learning_rate_decay: γ, by which the learning rate is multiplied after each round; None: 1.

    Raises:
        ArgumentError: An argument is out of its range, or has no effect with the others.

    Example:
        >>> from fedpriv.algorithms import DpFl
        >>> algorithm = DpFl(name="mine", sample_rate=0.1, optimizer="sgd", local_steps=5)
        >>> algorithm.sampling_of(100)
        PoissonSampling(sample_rate=0.1)
        >>> algorithm.samples_per_round
        5
    """

    unit = "record"
    uploads_changes = True

    name: str = field(text, help="name in run folders and tables")
    sample_rate: float = field(
        number(above=0, at_most=1), unit="q", help="probability with which a record joins a lot"
    )
    sampling: str = field(one_of(SAMPLING_NAMES), default="poisson", help="sampling of the lots")
    max_lot_size: int | None = field(
        when(_cuts_lots, whole(at_least=1)),
        default=None,
        help="largest size of a Poisson lot, which only accountant=pld can charge; null: no limit",
    )
    optimizer: str = field(one_of(OPTIMIZERS), default="adam", help="optimizer of the clients")
    optimizer_state: str = field(
        one_of(OPTIMIZER_STATES),
        default="kept",
        help=(
            "kept: a client's Adam keeps its moments from round to round; reset: it starts "
            "anew in each round"
        ),
    )
    learning_rate: float = field(number(above=0), default=0.01, help="learning rate of the clients")
    local_steps: int = field(
        whole(at_least=1), default=1, help="steps of a client in a round, one lot each"
    )
    participation: str = field(
        one_of(PARTICIPATIONS),
        default="all",
        help="clients in a round: all that have budget left, or a sample of clients_per_round",
    )
    clients_per_round: int | None = field(
        when(lambda part, value: part.participation == "sampled", whole(at_least=1)),
        default=None,
        unit="m",
        help="clients in a round, with participation=sampled",
    )
    proximal: float = field(
        own_check(proximal_term, "number >= 0"),
        default=None,
        unit="μ",
        help="FedProx: adds μ/2 ‖w - θ‖² to the loss of clients with several steps; null: 0",
    )
    learning_rate_decay: float | None = field(
        or_null(number(above=0, at_most=1)),
        default=None,
        unit="γ",
        help="factor of the learning rate after each round; null: 1",
    )

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        if self.max_lot_size is not None and self.sampling != "poisson":
            raise ArgumentError("max_lot_size", self.max_lot_size, "null unless sampling=poisson")
        if self.proximal and self.local_steps == 1:
            raise ArgumentError(
                "proximal",
                f"{self.proximal:g}",
                "null with local_steps=1",
                PROXIMAL_IS_ZERO,
            )
        if self.participation != "sampled" and self.clients_per_round is not None:
            raise ArgumentError(
                "clients_per_round", self.clients_per_round, "null unless participation=sampled"
            )
        self.samples_per_round = self.local_steps
        self.cost_depends_on_records = self.sampling == "fixed_size"

    def sampling_of(self, records: int) -> Sampling:
        """Return the sampling of the lots of a client with ``records`` records."""
        return make_sampling(self.sampling, self.sample_rate, records, self.max_lot_size)

    def server_step(self, context: RunContext) -> ServerStep:
        """Return the server step: the average of the clients' changes, weighted by records.

        Override it with a :class:`fedpriv.algorithms.server_steps.ServerStep` of your own.

        Args:
            context: What the run works on.
        """
        from fedpriv.algorithms.server_steps import WeightedAverage

        return WeightedAverage(context.model, context.data.records_per_client)

    def start(self, context: RunContext) -> Trainer:
        from fedpriv.algorithms.optimizers import Decayed
        from fedpriv.algorithms.record_computation import RecordComputation
        from fedpriv.algorithms.trainer import Trainer

        samplings = samplings_of(self.sampling_of, context.data.records_per_client)
        server = self.server_step(context)
        if not callable(getattr(server, "apply", None)):
            raise ConfigError(
                f"{type(self).__name__}.server_step must return an object with a method apply(cohort, "
                f"uploads), got {type(server).__name__}"
            )
        optimizer = self._client_optimizer(context)
        if self.learning_rate_decay is not None:
            optimizer = Decayed(optimizer, self.learning_rate_decay)
        computation = RecordComputation(
            context, samplings, self.local_steps, server, self.proximal, self.augmentation
        )
        return Trainer(context, computation, optimizer, server)

    def _client_optimizer(self, context: RunContext) -> Optimizer:
        from fedpriv.algorithms.optimizers import Adam, Sgd

        if self.optimizer == "sgd":
            return Sgd(self.learning_rate)
        return Adam(
            self.learning_rate,
            context.data.client_count,
            context.model.size,
            context.model.device,
            reset=self.optimizer_state == "reset",
        )

    def records_per_step(self, records: float) -> float:
        return self.sample_rate * records

    def describe(self, clients: int | None, records: int | None) -> tuple[tuple[str, str], ...]:
        who, about, decay = "all clients", "", ""
        if records is not None:
            about = f"; about {self.sample_rate * records:.0f} of {records} records"
        if self.clients_per_round is not None:
            who = f"{self.clients_per_round} clients, sampled"
        if self.learning_rate_decay is not None:
            decay = f", times {self.learning_rate_decay:g} after each round"
        return (
            (
                "each round",
                f"{who}, {counted(self.local_steps, 'local step')}, sample rate {self.sample_rate:g} "
                f"({self.sampling}{about})",
            ),
            (
                "optimizer",
                f"{self.optimizer}, learning rate {self.learning_rate:g}{decay}"
                f"{proximal_words(self.proximal)}",
            ),
        )

    def caveats(self) -> tuple[str, ...]:
        return ("fixed_size",) if self.sampling == "fixed_size" else ()
