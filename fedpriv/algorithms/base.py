"""What every algorithm offers: who takes part, how they are sampled, and the work itself.

Settings are importable without torch: a plan needs no more. What is released and charged is the mechanism's
(:mod:`fedpriv.privacy.mechanisms`); an algorithm says how records and clients are sampled, whom it trusts,
and how much noise a gradient gets for a noise multiplier.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv.common import checks
from fedpriv.common.base_classes import fact
from fedpriv.common.conflicts import RELEASED_ONCE, Combination
from fedpriv.common.errors import ArgumentError, ConfigError
from fedpriv.common.fields import field, or_null, whole
from fedpriv.common.saved import Saved
from fedpriv.common.secret_streams import SecretStreams
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


_PRIVATE = {"record": "dp_fl", "client": "ldp_fedsgd or cdp_fedavg"}
"""By unit, private algorithms to use in the place of one that is not."""


class Algorithm(Saved, ABC):
    """What an experiment asks of an algorithm.

    Attributes:
        name: As in ``algorithm.name``.
        private: Whether it claims privacy; else nothing is clipped, noised or charged.
        unit: What is protected, ``record`` or ``client``: what is clipped one by one.
        trust: Who sees which uploads, and who adds the noise.
        claim: The published analysis of the work, or None. An algorithm of your own has none unless it sets
            one: it inherits none.
        samples_per_round: On how many samples of its records each participant answers in a round.
        clients_per_round: m, sampled uniformly; None: see :meth:`client_sampling`.
        assumed: What the published claim takes for known of the partition: ``clients`` K, ``records`` n.
        uploads_changes: Whether clients send the change of their weights over a round.
        search: What finds the number of rounds before the run; its runs read the same data.
        cost_depends_on_records: Whether clients with more records pay less (lots of a fixed size).
        augmentation: The changed copies of each image, whose mean gradient is clipped; None: there are none.
        releases_feature_statistics: Whether its clients can release statistics of features before round 1.
        no_transform: Why no clipper that scales coordinates goes with it; None: one does.
        metrics: Further columns of ``metrics.csv``, which its rounds fill (``OpenRound.facts``).
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
    no_transform: str | None = None
    metrics: tuple[str, ...] = ()

    def __attrs_post_init__(self) -> None:
        """Check rules between declared arguments. A declared subclass calls that of ``super()``."""

    @fact
    def server(self) -> ServerOptimizer | None:
        """The server's optimiser, where the server has one."""
        return None

    @fact
    def optimizer(self) -> str:
        """The name of the optimiser: the clients' at record level, the server's at client level."""
        return "sgd"

    @fact
    def local_steps(self) -> int:
        """Steps of a client in a round, each with a release of its own."""
        return 1

    @fact
    def batch_size(self) -> int | None:
        """Records in a batch of a client's plain training; None: all of the client's."""
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
        """With fewer clients that may take part no round can run."""
        return 1

    @fact
    def real_noise(self) -> bool:
        """True where the noise is of real numbers, in floating point."""
        return True

    @property
    def row_per_client(self) -> bool:
        """Whether each client's answer is noised for itself; else there is one answer for a whole cohort."""
        return self.unit == "record"

    # ---- sampling

    @abstractmethod
    def sampling_of(self, records: int) -> Sampling:
        """How the sample that a client with ``records`` records answers on is drawn: of its records, or,
        where the cohort is secret and the unit is the client, of the clients."""

    def client_sampling(self, clients: int) -> Sampling:
        """How the cohort of a round is sampled of ``clients`` clients."""
        if self.clients_per_round is None:
            return WholeData()
        return FixedSizeSampling(clients, self.clients_per_round)

    def expected_cohort(self, clients: int | None) -> float | None:
        """How many of ``clients`` clients take part in a round on average; None where K is not known."""
        return clients if self.clients_per_round is None else self.clients_per_round

    def cohort(self, streams: SecretStreams, round_index: int, eligible: np.ndarray) -> np.ndarray:
        """Return the clients of this round: ascending numbers k with ``eligible[k]`` [K]."""
        return sample_cohort(streams, self.client_sampling(len(eligible)), eligible, round_index)

    def check_clients(self, clients: int) -> None:
        """Refuse a cohort larger than the federation. Raises ArgumentError."""
        if self.clients_per_round is not None and self.clients_per_round > clients:
            raise ArgumentError(
                "clients_per_round", self.clients_per_round, f"<= {clients}, the number of clients"
            )

    def check_rounds(self, rounds: int) -> None:
        """Refuse fewer rounds than there is something to do in. Raises ArgumentError."""

    def conflicts(self, parts: Combination) -> Iterator[ConfigError]:
        """Refuse noise where nothing is private, and what is of no use to the algorithm's clients."""
        adds_noise = parts.noise_schedule.adds_noise
        if not self.private and (adds_noise or not parts.clipper.unbounded):
            yield ConfigError(
                f"algorithm={self.name} is not private and takes clipper=none and noise_schedule=none; use "
                f"algorithm={_PRIVATE[self.unit]} to clip and add noise"
            )
        if self.unit == "record" and self.trust.secret_cohort:
            yield ConfigError(
                f"algorithm={self.name}: unit=record does not go with {self.trust.name} trust: each client "
                "noises its own sum here, and who took part is seen"
            )
        if self.augmentation is not None:
            yield from self.augmentation.conflicts(parts)
        if self.search is not None:
            yield from self.search.conflicts(parts)
        if parts.released_statistics is not None and self.clients_per_round is not None:
            key, cohort = "algorithm.clients_per_round", self.clients_per_round
            yield ConfigError(key, cohort, "null", RELEASED_ONCE)

    # ---- noise

    def mechanism(self, clipper: Clipper, schedule: NoiseSchedule) -> Mechanism:
        """What every round releases. To override with a mechanism of its own."""
        return Mechanism(self, clipper, schedule)

    def gradient_multiplier(
        self, noise_multiplier: float, sampling: Sampling, clipper: Asking
    ) -> float:
        """Noise std ÷ clip norm of the clipped sum, given the schedule's noise multiplier."""
        return clipper.gradient_multiplier(noise_multiplier)

    def learn_size(self, size: Callable[[], int]) -> None:
        """Called before anything is planned; ``size()``: how many numbers the model has (needs torch)."""

    def own_claim(self, claim: Claim) -> Claim | None:
        """The claim of a work's own algorithm. A class of the user's that extends one inherits none: the
        theorem is not about what it changes. It may set ``self.claim`` to its own."""
        return claim if type(self).__module__.startswith("fedpriv.") else None

    # ---- the work

    @abstractmethod
    def start(self, context: RunContext) -> Trainer:
        """Return the trainer of one run, on data and a model."""

    @abstractmethod
    def records_per_step(self, records: float) -> float:
        """How many of ``records`` records one step of all clients reads."""

    # ---- words

    @abstractmethod
    def describe(self, clients: int | None, records: int | None) -> tuple[tuple[str, str], ...]:
        """Lines of the plan, for K clients of ``records`` records each (``None``: not known yet)."""

    def caveats(self) -> tuple[str, ...]:
        """Names of the caveats of the privacy statement that apply."""
        return ()

    def own_caveats(self) -> tuple[str, ...]:
        """Caveats of its own, in words."""
        return ()


class UnsampledReports:
    """Mixed in where every report is about all of a client's data, against any data in their place."""

    def sampling_of(self, records: int) -> Sampling:
        """Every record, every time."""
        return WholeData(REPLACE_ONE)


def cohort_size() -> Any:
    """Declare m, the number of clients in a round."""
    return field(
        or_null(whole(at_least=1)),
        default=None,
        unit="m",
        help="clients in a round, sampled uniformly, which does not amplify; null: all",
    )


def proximal_term(name: str, value: float | None) -> float:
    """Return μ of FedProx, checked; null: 0."""
    return 0.0 if value is None else checks.number(name, value, at_least=0)


def proximal_words(proximal: float) -> str:
    """It in the plan."""
    return f", proximal term {proximal:g}" if proximal else ""
