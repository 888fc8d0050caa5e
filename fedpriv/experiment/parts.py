"""The parts of a run: one object for each group of the configuration, and what follows from them together.

Nothing here needs torch or data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from dp_accounting.dp_event import DpEvent

from fedpriv.aggregation import Aggregation
from fedpriv.algorithms.base import Algorithm
from fedpriv.attacks.base import Attack
from fedpriv.common.attributes import is_own, own_classes
from fedpriv.common.errors import ArgumentError
from fedpriv.data.base import Dataset, Partition
from fedpriv.data.partitions import Natural
from fedpriv.data.records import ReleasedStatistics
from fedpriv.experiment.costs import Costs
from fedpriv.experiment.replaced import replaced_parts
from fedpriv.experiment.settings import Settings
from fedpriv.experiment.starting_point import StartingPoint
from fedpriv.experiment.trackers import Tracker
from fedpriv.models.fit import model_size
from fedpriv.privacy.accountants import Accountant, PldAccountant, RdpAccountant
from fedpriv.privacy.clippers import Clipper
from fedpriv.privacy.core.names import REPLACE_ONE
from fedpriv.privacy.core.sampling import Sampling
from fedpriv.privacy.mechanisms import FEATURE_STATISTICS, GaussianQuery, Group, Mechanism
from fedpriv.privacy.mechanisms.claims import Claim
from fedpriv.privacy.noise_schedules import NoiseSchedule


@dataclass(frozen=True)
class Parts:
    """The objects of all groups of a configuration.

    Attributes:
        settings: The root keys.
        dataset: Public facts of the data set, and how to load it.
        partition: How the training records are dealt out to clients.
        model: A factory of torch modules.
        clipper: The rule that sets clip norms.
        noise_schedule: The rule that sets the noise multiplier σ of each round.
        accountant: Turns releases into ε(δ).
        algorithm: What clients compute and how the server steps.
        attack: Simulated attackers; None where nobody attacks.
        aggregation: A rule that combines the uploads; None for the weighted mean.
        trackers: Other places that show the run, by name.
    """

    settings: Settings
    dataset: Dataset
    partition: Partition
    model: Any
    clipper: Clipper
    noise_schedule: NoiseSchedule
    accountant: Accountant
    algorithm: Algorithm
    attack: Attack | None = None
    aggregation: Aggregation | None = None
    trackers: Mapping[str, Tracker] = field(default_factory=dict)

    @property
    def private(self) -> bool:
        """True if the algorithm claims privacy."""
        return self.algorithm.private

    @property
    def adaptive(self) -> bool:
        """True if σ depends on released values."""
        return self.noise_schedule.adaptive

    @property
    def unprotected(self) -> Mapping[str, object]:
        """Values of every client that are known without noise before round 1, by name, with their cause.

        The data set names keys of its own. Attackers may see uploads that the trust model hides. A warm
        start may train the initial weights on the clients' records.
        """
        hidden = () if self.attack is None else self.attack.hidden(self.algorithm)
        warm = ("warm_start",) if self._warmed_by_clients else ()
        return {
            **self.dataset.unprotected,
            **dict.fromkeys(hidden, "attack.knows"),
            **dict.fromkeys(warm, "warm_start.records"),
        }

    @property
    def _warmed_by_clients(self) -> bool:
        """True if the initial weights are trained on records of clients, without noise."""
        warm_start = self.settings.warm_start
        return warm_start is not None and warm_start.on_clients

    @property
    def claim(self) -> Claim | None:
        """Theorem of the algorithm's paper, or None.

        No theorem is about a warm start on clients' records, weights of an earlier run on them, or parts of
        the user's own in its place.
        """
        parts: tuple[object, ...] = (self.clipper, self.noise_schedule)
        if is_own(self.algorithm):
            parts += (self.mechanism, *self.samplings())
        begun = self._warmed_by_clients or self.earlier
        return None if begun or own_classes(parts) else self.algorithm.claim

    @cached_property
    def earlier(self) -> dict[DpEvent, int]:
        """Events, with numbers, of the earlier run on the same data whose weights this run begins with."""
        start: StartingPoint | None = self.model.starting_point
        if start is None or not self.private:
            return {}
        sampling = self.algorithm.sampling_of(self.even_share)
        return start.releases(self.algorithm.unit, sampling.neighbours, self.adaptive)

    def samplings(self, clients: int | None = None) -> tuple[object, ...]:
        """Return what draws cohorts and lots.

        Args:
            clients: K; None: the number that the partition states, or 1.
        """
        algorithm = self.algorithm
        cohort = algorithm.client_sampling(clients or self.partition.clients or 1)
        return cohort, algorithm.sampling_of(self.even_share), algorithm.cohorts

    @property
    def makers_of_events(self) -> tuple[object, ...]:
        """The objects that state the charged events, beside the queries and samplings in the ledger."""
        correlation: Any = getattr(self.mechanism, "correlation", None)
        strategy = () if correlation is None else (correlation.strategy, correlation.participation)
        capped = self.noise_schedule if self.adaptive else None
        return self.mechanism, *self.samplings(), correlation, *strategy, capped

    @property
    def without_noise(self) -> bool:
        """True if the algorithm claims no privacy, or its noise schedule adds no noise."""
        return not (self.private and self.noise_schedule.adds_noise)

    @property
    def released_statistics(self) -> ReleasedStatistics | None:
        """Statistics of their features that clients release before the first round, to normalize them."""
        return self.dataset.released_statistics

    @property
    def replaced(self) -> list[str]:
        """Sentences on clipper, noise schedule and mean where they are not those of the algorithm's paper."""
        own: dict[str, object] = {"clipper": self.clipper, "noise_schedule": self.noise_schedule}
        rule = self.aggregation
        if rule is not None and not rule.linear and self.claim is not None:
            own["aggregation"] = rule
        return replaced_parts(self.algorithm.name, own) if self.private else []

    @property
    def split_seed(self) -> int:
        """Public seed of the split: that of the partition, or of the coins of files of the user's own."""
        if not self.dataset.known:
            return self.dataset.split_seed
        return self.settings.seed if self.partition.seed is None else self.partition.seed

    @cached_property
    def split_by_count(self) -> list[str]:
        """Settings by which one more record moves others, or changes who is protected.

        Of published files there are none, as their split is public. Parts of the user's own are named as
        such in the statement instead.
        """
        data, partition = self.dataset.without_features(), self.partition
        if data.known:
            return []
        by_record = self.algorithm.unit == "record"
        counted = self.reads_validation and not (data.validation_share or data.validation_path)
        replaced = self.algorithm.sampling_of(self.even_share).neighbours == REPLACE_ONE
        filters = by_record and isinstance(partition, Natural) and partition.min_records > 1
        leaves_out = by_record and getattr(data, "min_records_per_client", 1) > 1
        unnamed = by_record and replaced and not data.names_records
        reasons = {
            f"the partition ({partition.describe()})": not (partition.stable or is_own(partition)),
            "dataset.validation_records": counted,
            "dataset.test_records": getattr(data, "counts_test", False),
            "partition.min_records": filters,
            "dataset.min_records_per_client": leaves_out,
            "lots of a fixed size without dataset.id or dataset.user": unnamed,
        }
        return [reason for reason, holds in reasons.items() if holds]

    @property
    def reads_validation(self) -> bool:
        """True if noise schedule, aggregation rule or warm start reads the public validation split."""
        rule, warm_start = self.aggregation, self.settings.warm_start
        return (
            self.noise_schedule.reads_validation
            or (rule is not None and rule.reads_validation)
            or (warm_start is not None and not warm_start.on_clients)
        )

    @property
    def even_share(self) -> int:
        """Records per client if they were dealt out evenly, or as many as the partition fixes."""
        if self.partition.records:
            return self.partition.records
        return max(1, self.train_records // (self.partition.clients or 1))

    @property
    def train_records(self) -> int:
        """Number of records that clients hold: as declared, or about as many as the split leaves."""
        data = self.dataset
        if data.declared_records is not None:
            return data.declared_records
        held_out = self.reads_validation and data.validation_path is None
        return data.train_records - (data.validation_records if held_out else 0)

    @property
    def shares_known(self) -> bool:
        """True if the privacy cost of a client is known before the data are read.

        It is where :attr:`even_share` is known, or where the cost is the same for any number of records. A
        natural partition has as many clients as the data has users.
        """
        share_is_fixed = bool(self.partition.clients or self.partition.records)
        return share_is_fixed or not self.algorithm.cost_depends_on_records

    @cached_property
    def mechanism(self) -> Mechanism:
        """The mechanism: what every round releases, and with how much noise.

        It is made once, as it keeps a state.
        """
        mechanism = self.algorithm.mechanism(self.clipper, self.noise_schedule)
        after = self.attack is not None and self.attack.sends_after_release(self.algorithm)
        by_upload = self.aggregation is not None and self.aggregation.buckets is None
        if (by_upload or after) and isinstance(mechanism, Mechanism):
            mechanism.uploads_apart = True
        if (statistics := self.released_statistics) is not None:
            mechanism.before = GaussianQuery(FEATURE_STATISTICS, statistics.noise_multiplier)
        return mechanism

    def release_of(self, sampling: Sampling) -> Group:
        """Return what a participant with this ``sampling`` releases in a round, at a σ that the run may use.

        Where the schedule is not calibrated yet, this is any valid σ: the result tells what is released, and
        not what it costs. The algorithm learns the size of the model if it asks for it.

        Raises:
            ConfigError: The clipper's statistic does not go with this σ.
        """
        # Any valid σ serves where the schedule is not calibrated yet.
        sigma = min(1.0, self.clipper.largest_noise_multiplier / 2.0)
        if self.noise_schedule.known:
            sigma = self.noise_schedule.noise_multiplier(0)
        rows = 1 if self.aggregation is None else self.aggregation.buckets or 1
        self.algorithm.learn_size(lambda: rows * model_size(self.model, self.dataset))
        try:
            return self.mechanism.group(sampling, sigma, 0)
        except ArgumentError as error:
            raise error.within("clipper") from None

    @property
    def other_accountants(self) -> tuple[Accountant, ...]:
        """Accountants that a refusal may name instead of the chosen one, the tightest first."""
        return PldAccountant(), RdpAccountant()

    def costs(self, records: int | None = None) -> Costs:
        """Return the planned privacy costs of a client of ``records`` records (default: an even share)."""
        return Costs(
            mechanism=self.mechanism,
            sampling=self.algorithm.sampling_of(records or self.even_share),
            accountant=self.accountant,
            claim=self.claim,
            view=self.settings.budget_view,
            delta=self.settings.delta,
            rounds=self.settings.rounds,
            clients=self.partition.clients,
            earlier=self.earlier,
        )
