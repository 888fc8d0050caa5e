"""Everything a run is made of. Nothing here needs torch or data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from fedpriv.aggregation import Aggregation
from fedpriv.algorithms.base import Algorithm
from fedpriv.attacks.backdoor import Backdoor
from fedpriv.common.errors import ArgumentError
from fedpriv.data.base import Dataset, Partition
from fedpriv.data.records import ReleasedStatistics
from fedpriv.experiment.costs import Costs
from fedpriv.experiment.settings import Settings
from fedpriv.experiment.trackers import Tracker
from fedpriv.models.fit import model_size
from fedpriv.privacy.accountants import Accountant, PldAccountant, RdpAccountant
from fedpriv.privacy.clippers import Clipper
from fedpriv.privacy.core.sampling import Sampling
from fedpriv.privacy.mechanisms import FEATURE_STATISTICS, GaussianQuery, Group, Mechanism
from fedpriv.privacy.noise_schedules import NoiseSchedule


@dataclass(frozen=True)
class Parts:
    """Everything a run is made of."""

    settings: Settings
    dataset: Dataset
    partition: Partition
    model: Any
    clipper: Clipper
    noise_schedule: NoiseSchedule
    accountant: Accountant
    algorithm: Algorithm
    attack: Backdoor | None = None
    aggregation: Aggregation | None = None
    trackers: Mapping[str, Tracker] = field(default_factory=dict)

    @property
    def private(self) -> bool:
        return self.algorithm.private

    @property
    def adaptive(self) -> bool:
        """Whether σ depends on what was released."""
        return self.noise_schedule.adaptive

    @property
    def unprotected(self) -> Mapping[str, object]:
        """Keys of the data set, with their values, by which something of every client's data is known
        without noise before the first round."""
        return self.dataset.unprotected

    @property
    def without_noise(self) -> bool:
        """Whether nothing is private: by the algorithm, or because its noise is 0."""
        return not (self.private and self.noise_schedule.adds_noise)

    @property
    def released_statistics(self) -> ReleasedStatistics | None:
        """What the clients release of their features before the first round, to normalize them."""
        return self.dataset.released_statistics

    @property
    def split_seed(self) -> int:
        """Seed of the split into public validation records and training records."""
        return self.settings.seed if self.partition.seed is None else self.partition.seed

    @property
    def even_share(self) -> int:
        """Records per client if they were dealt out evenly, or as many as the partition fixes."""
        if self.partition.records:
            return self.partition.records
        records = self.dataset.train_records
        if self.noise_schedule.reads_validation:
            records -= self.dataset.validation_records
        return max(1, records // (self.partition.clients or 1))

    @property
    def shares_known(self) -> bool:
        """Whether :attr:`even_share` is a client's, or the privacy cost is the same for any number of
        records; a natural partition has as many clients as the data has users."""
        fixed = self.partition.clients or self.partition.records
        return bool(fixed) or not self.algorithm.cost_depends_on_records

    @cached_property
    def mechanism(self) -> Mechanism:
        """What every round releases."""
        mechanism = self.algorithm.mechanism(self.clipper, self.noise_schedule)
        if self.aggregation is not None and isinstance(mechanism, Mechanism):
            mechanism.uploads_apart = True
        if (statistics := self.released_statistics) is not None:
            mechanism.before = GaussianQuery(FEATURE_STATISTICS, statistics.noise_multiplier)
        return mechanism

    def release_of(self, sampling: Sampling) -> Group:
        """Return what a participant that samples so releases in a round, with a σ that the run may use.
        Raises ConfigError."""
        sigma = min(
            1.0, self.clipper.largest_noise_multiplier / 2.0
        )  # for one that is not known yet
        if self.noise_schedule.known:
            sigma = self.noise_schedule.noise_multiplier(0)
        self.algorithm.learn_size(lambda: model_size(self.model, self.dataset))
        try:
            return self.mechanism.group(sampling, sigma, 0)
        except ArgumentError as error:
            raise error.within("clipper") from None

    @property
    def other_accountants(self) -> tuple[Accountant, ...]:
        """Accountants that a refused one may be replaced by, the tighter one first."""
        return PldAccountant(), RdpAccountant()

    def costs(self, records: int | None = None) -> Costs:
        """Of what is planned, for a client of ``records`` records (default: an even share)."""
        return Costs(
            mechanism=self.mechanism,
            sampling=self.algorithm.sampling_of(records or self.even_share),
            accountant=self.accountant,
            claim=self.algorithm.claim,
            view=self.settings.budget_view,
            delta=self.settings.delta,
            rounds=self.settings.rounds,
            clients=self.partition.clients,
        )
