"""The base class of all algorithms: sampling, trust, noise, and the trainer of a run.

Algorithms are classes of settings and importable without torch, because a plan needs no more. A mechanism
(:mod:`fedpriv.privacy.mechanisms`) decides what is released and charged. The algorithm says how records and
clients are sampled, whom it trusts, and how much noise a gradient gets for a noise multiplier.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv.common import checks
from fedpriv.common.base_classes import fact
from fedpriv.common.errors import ArgumentError
from fedpriv.common.fields import field, or_null, whole
from fedpriv.common.saved import Saved
from fedpriv.common.secret_streams import SecretStreams
from fedpriv.common.words import counted, records_of
from fedpriv.privacy.core.names import REPLACE_ONE
from fedpriv.privacy.core.sampling import FixedSizeSampling, Sampling, WholeData, sample_cohort
from fedpriv.privacy.core.trust import LOCAL_TRUST, Trust
from fedpriv.privacy.mechanisms.claims import Claim
from fedpriv.privacy.mechanisms.mechanism import Asking, Mechanism

if TYPE_CHECKING:
    from fedpriv.algorithms.augmentation import Augmentation
    from fedpriv.algorithms.rounds_search import RoundsSearch
    from fedpriv.algorithms.run_context import RunContext
    from fedpriv.algorithms.server_optimizer import ServerOptimizer
    from fedpriv.algorithms.trainer import Trainer
    from fedpriv.privacy.clippers import Clipper
    from fedpriv.privacy.matrix.cohorts import Cohorts
    from fedpriv.privacy.mechanisms.shares import DiscreteShares
    from fedpriv.privacy.noise_schedules import NoiseSchedule


"""Private algorithms to recommend in the place of one that is not private, by unit."""


class Algorithm(Saved, ABC):
    """An algorithm of federated learning, as an experiment uses it.

    An algorithm of your own extends :class:`fedpriv.algorithms.DpFl` or another class of
    :mod:`fedpriv.algorithms` and overrides what differs: :meth:`sampling_of`, :meth:`client_sampling`,
    :meth:`mechanism` or :meth:`start`; at record level ``server_step(context)``, at client level
    ``uploads(context)``.

    Attributes:
        name: Name of the algorithm, as in ``algorithm.name``.
        private: Whether the algorithm claims privacy; else nothing is clipped, noised or charged.
        unit: Protected unit, ``record`` or ``client``: the units that are clipped one by one.
        trust: Who sees which uploads, and who adds the noise.
        claim: The published analysis of the work, or None. An algorithm of your own has none unless it sets
            one: it inherits none.
        samples_per_round: Number of samples of its records on which each participant answers in a round.
        clients_per_round: m, the clients of a round, sampled uniformly; None: see :meth:`client_sampling`.
        assumed: Facts of the partition that the published claim relies on: ``clients`` K, ``records`` n.
        uploads_changes: Whether clients send the change of their weights over a round.
        search: The search for the number of rounds before the run; its runs read the same data.
        cost_depends_on_records: Whether clients with more records pay less (lots of a fixed size).
        augmentation: The changed copies of each image, whose mean gradient is clipped; None: no copies.
        releases_feature_statistics: Whether clients can release statistics of features before round 1.
        metrics: Further columns of ``metrics.csv``, which its rounds fill (``OpenRound.facts``).

    Example:
        >>> from fedpriv.algorithms import DpFl
        >>> algorithm = DpFl(name="dp_fl", sample_rate=0.1, local_steps=2)
        >>> algorithm.unit, algorithm.trust.name, algorithm.samples_per_round
        ('record', 'local', 2)
        >>> algorithm.sampling_of(records=600)
        PoissonSampling(sample_rate=0.1)
    """

    name: str
    private: bool
    unit: str
    trust: Trust = LOCAL_TRUST
    claim: Claim | None = None
    samples_per_round: int = 1
    clients_per_round: int | None = None
    assumed: Mapping[str, int] = MappingProxyType({})
    uploads_changes: bool = False
    search: RoundsSearch | None = None
    cost_depends_on_records: bool = False
    augmentation: Augmentation | None = None
    releases_feature_statistics: bool = False
    metrics: tuple[str, ...] = ()

    def __attrs_post_init__(self) -> None:
        """Check rules between declared arguments. A declared subclass calls ``super()`` first."""

    @fact
    def server(self) -> ServerOptimizer | None:
        """The server's optimiser; None where the server has none."""
        return None

    @fact
    def optimizer(self) -> str:
        """The name of the optimiser: the clients' at record level, the server's at client level."""
        return "sgd"

    @fact
    def local_steps(self) -> int:
        """Number of steps of a client in a round, each with a release of its own."""
        return 1

    @fact
    def batch_size(self) -> int | None:
        """Number of records in a batch of a client's plain training; None: all records of the client."""
        return None

    @fact
    def dropout(self) -> float:
        """Probability with which a sampled client does not answer."""
        return 0.0

    @fact
    def discrete(self) -> DiscreteShares | None:
        """The shares of noise of whole numbers that clients add; None: noise is of real numbers."""
        return None

    @fact
    def cohorts(self) -> Cohorts | None:
        """The choice of cohorts where clients take turns or rest; None: they are sampled."""
        return None

    @fact
    def fewest_clients(self) -> int:
        """Smallest number of clients, still allowed to take part, with which a round can run."""
        return 1

    @fact
    def real_noise(self) -> bool:
        """True where the noise is of real numbers in floating point, False where it is of whole numbers."""
        return True

    @fact
    def sums_by_bucket(self) -> bool:
        """True if a sum for each bucket of clients may be released in the place of one sum for all."""
        return False

    @property
    def row_per_client(self) -> bool:
        """True where each client's answer is noised by itself; else the cohort has one answer."""
        return self.unit == "record"

    # ---- sampling

    @abstractmethod
    def sampling_of(self, records: int) -> Sampling:
        """Return the sampling that the accountant charges for one release.

        At record level it draws the lot of a client from its records. Where the unit is the client and the
        cohort is secret, it draws the cohort from the clients.

        Args:
            records: Number of records of the client.
        """

    def client_sampling(self, clients: int) -> Sampling:
        """Return the sampling of the cohort of a round from ``clients`` clients.

        The default takes all clients, or ``clients_per_round`` of them at random without replacement.
        """
        if self.clients_per_round is None:
            return WholeData()
        return FixedSizeSampling(clients, self.clients_per_round)

    def expected_cohort(self, clients: int | None) -> float | None:
        """Return how many of ``clients`` clients take part in a round on average; None: K is not known."""
        return clients if self.clients_per_round is None else self.clients_per_round

    def cohort(self, streams: SecretStreams, round_index: int, eligible: np.ndarray) -> np.ndarray:
        """Sample the clients of a round.

        Args:
            streams: The secret streams of the run.
            round_index: The round.
            eligible: Mask of the clients that may take part [K]; the others have spent their budget.

        Returns:
            Numbers of the sampled clients [c], ascending.
        """
        return sample_cohort(streams, self.client_sampling(len(eligible)), eligible, round_index)

    def check_clients(self, clients: int) -> None:
        """Check that the federation is large enough for a cohort.

        Raises:
            ArgumentError: A round has more clients than the federation.
        """
        if self.clients_per_round is not None and self.clients_per_round > clients:
            raise ArgumentError(
                "clients_per_round", self.clients_per_round, f"<= {clients}, the number of clients"
            )

    def check_rounds(self, rounds: int) -> None:
        """Check that the rounds suffice for what the algorithm does in them; the default accepts any number.

        Raises:
            ArgumentError: There are too few rounds.
        """

    # ---- noise

    def mechanism(self, clipper: Clipper, schedule: NoiseSchedule) -> Mechanism:
        """Return the mechanism, which defines what every round releases.

        Override the method for noise of your own.

        Args:
            clipper: The rule of the clip norms.
            schedule: The noise multiplier of each round.
        """
        return Mechanism(self, clipper, schedule)

    def gradient_multiplier(
        self, noise_multiplier: float, sampling: Sampling, clipper: Asking
    ) -> float:
        """Return the ratio of noise to clip norm that is charged, σ/C of the clipped sum.

        The default is the clipper's answer, which is z unless the clipper spends a part of the noise.

        Args:
            noise_multiplier: The schedule's noise multiplier z.
            sampling: The sampling of the release.
            clipper: The clipper, which may spend a part of the noise on a question of its own.
        """
        return clipper.gradient_multiplier(noise_multiplier)

    def learn_size(self, size: Callable[[], int]) -> None:
        """Take note of the model's size before anything is planned. Does nothing unless overridden.

        Args:
            size: Function that returns the number of weights d. It needs torch, so call it only if needed.
        """

    def own_claim(self, claim: Claim) -> Claim | None:
        """Return the claim for a class of fedpriv, and None for a class of the user's that extends one.

        The published theorem is not about what such a class changes. It may set ``self.claim`` to its own.
        """
        return claim if type(self).__module__.startswith("fedpriv.") else None

    # ---- the work

    @abstractmethod
    def start(self, context: RunContext) -> Trainer:
        """Return the trainer of one run.

        Args:
            context: Data, model, engine, clipper and secret streams of the run.
        """

    @abstractmethod
    def records_per_step(self, records: float) -> float:
        """Return how many of ``records`` records one step of all clients reads on average.

        Args:
            records: Number of records of all clients, or of one client; the answer is about the same data.
        """

    # ---- words

    @abstractmethod
    def describe(self, clients: int | None, records: int | None) -> tuple[tuple[str, str], ...]:
        """Return lines of the plan as (heading, text).

        Args:
            clients: Number of clients K; None: not known yet.
            records: Number of records of each client; None: not known yet, or they differ.
        """

    def caveats(self) -> tuple[str, ...]:
        """Return the names of the caveats of the privacy statement that apply; by default none.

        The names are keys of the sentences in :mod:`fedpriv.store.caveats`.
        """
        return ()

    def own_caveats(self) -> tuple[str, ...]:
        """Return further caveats of the algorithm for the privacy statement, as sentences; by default none.

        They come after those of :meth:`caveats`.
        """
        return ()


class UnsampledReports:
    """Mixin of algorithms whose reports are about all data of a client, against any other data in place."""

    def sampling_of(self, records: int) -> Sampling:
        """Return the sampling of a report: every record, every time, one replaced in the other data set."""
        return WholeData(REPLACE_ONE)


def cohort_size() -> Any:
    """Declare m, the number of clients in a round."""
    return field(
        or_null(whole(at_least=1)),
        default=None,
        unit="m",
        help="clients in a round, sampled uniformly (no amplification); null: all",
    )


PROXIMAL_IS_ZERO = "the only local step starts at the global weights, where the proximal term is 0"
"""Hint of the errors about a proximal term that has no effect."""


def local_training(epochs: int, batch_size: int | None, records: int | None) -> str:
    """Describe a client's epochs of plain training for the plan."""
    batches = "full batches" if batch_size is None else f"batches of {batch_size}"
    return f"{counted(epochs, 'epoch')} of {batches} over {records_of(records)}"


def proximal_term(name: str, value: float | None) -> float:
    """Return μ of FedProx, checked; null means 0."""
    return 0.0 if value is None else checks.number(name, value, at_least=0)


def proximal_words(proximal: float) -> str:
    """Describe the proximal term for the plan."""
    return f", proximal term {proximal:g}" if proximal else ""
