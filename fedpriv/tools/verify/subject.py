"""The configuration that is verified, which can be run again and again in variations.

Parts, trainer, sampler, clipper, schedule, mechanism and loop are those of ``fedpriv train``. A variation
only replaces the keys of the random streams, or the data or the upload of one unit.
"""

from __future__ import annotations

import copy
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, cast

import numpy as np
import torch
from omegaconf import DictConfig

from fedpriv.aggregation.run_rule import RunRule
from fedpriv.algorithms.dp_ftrl import DpFtrl
from fedpriv.algorithms.run_context import RunContext
from fedpriv.common.errors import ConfigError, FedprivError
from fedpriv.common.secret_streams import SecretStreams, derived_key
from fedpriv.data.federated import with_train
from fedpriv.data.records import ReadRecords
from fedpriv.engine import FlatModel, make_engine
from fedpriv.experiment.assemble import make_budget, make_context
from fedpriv.experiment.build import build_parts
from fedpriv.experiment.loop import Loop
from fedpriv.experiment.machine import resolve_device
from fedpriv.experiment.parts import Parts
from fedpriv.experiment.secrets import run_digest, streams_of_run
from fedpriv.experiment.warm_start import NOT_AUDITED
from fedpriv.privacy.budget import Budget
from fedpriv.privacy.core.trust import Trust
from fedpriv.privacy.mechanisms.matrix import MatrixMechanism
from fedpriv.store.folder import RunFolder
from fedpriv.tools.verify.interventions import (
    AS_IT_IS,
    Variation,
    follow,
    leave_out,
    move,
    replace_upload,
    silence,
    unequal_clients,
)
from fedpriv.tools.verify.probes import Probe, Recording
from fedpriv.tools.verify.synthetic import MadeUp

ROUNDS, FEW_ROUNDS = 8, 4
_MOST_NUMBERS = 200_000_000  # most numbers of releases that are kept and compared
_ROUNDS_OF_A_BUDGET = 1000  # assumed number of rounds of a run that ends with its budget
_SECONDS_BETWEEN_LINES = 5.0  # between lines about the runs of one step
_MANY = 1_000_000  # numbers of a round's releases from which on few rounds are run


class Steps:
    """The progress of a verification: its present step and the number of runs in this step.

    Attributes:
        say: Function that shows a line; None: nothing is shown.
    """

    def __init__(self) -> None:
        self.say: Callable[[str], None] | None = None
        self._name, self._done, self._last_line = "", 0, 0.0
        self._runs: int | None = None

    def begin(self, name: str, runs: int | None = None) -> None:
        """Begin a step of ``runs`` runs; None if the number is not known."""
        self._name, self._runs, self._done, self._last_line = name, runs, 0, 0.0

    def run(self) -> None:
        """Count a run of the step, and show a line about the first run and then every few seconds."""
        self._done += 1
        now = time.monotonic()
        if self.say is None or now - self._last_line < _SECONDS_BETWEEN_LINES:
            return
        self._last_line = now
        of = "" if self._runs is None or self._done > self._runs else f" of {self._runs}"
        self.say(f"{self._name}, run {self._done}{of}")


class Stops:
    """A stop request that ends a loop after some rounds."""

    def __init__(self, recording: Recording, rounds: int):
        self._recording, self._rounds = recording, rounds

    @property
    def requested(self) -> bool:
        """True if the recording has all rounds."""
        return len(self._recording.cohorts) >= self._rounds


class Subject:
    """A configuration that is ready to be run in variations.

    Attributes:
        config: The configuration.
        seed: Seed of all random choices of the verification.
        synthetic: True if records are made up.
        steps: Progress of the verification.
        parts: Parts of the configuration.
        context: Data, model, mechanism and the other objects of a run.
        budget: Budget before the first round; None where no privacy is claimed.
        round_numbers: Round indices t that are run, ascending.
        later: The last of these indices, which do not follow at once on the round before.
        sampling_name: Name of the streams of lots and cohorts of the reference.
        unit_client: Client that is, or has, the unit that is changed.
        unit_record: Index of the record that is changed where the unit is a record.
    """

    def __init__(
        self,
        config: DictConfig,
        seed: int = 0,
        rounds: int | None = None,
        synthetic: bool = False,
        unequal: bool = False,
        later: bool = False,
    ):
        """Build the parts and the data of the configuration.

        Args:
            config: The configuration.
            seed: Seed of all random choices of the verification.
            rounds: Number of first rounds of each run; None chooses a number.
            synthetic: Make up records of the data set's shape.
            unequal: Let clients lose records until their sizes differ.
            later: Also run the last round of the configuration and three random rounds before it.

        Raises:
            ConfigError: The configuration cannot be verified.
        """
        self.config, self.seed, self.synthetic = config, seed, synthetic
        self.steps = Steps()
        parts = build_parts(config)
        self.parts = replace(parts, dataset=MadeUp(parts.dataset)) if synthetic else parts
        _refuse(self.parts)
        device = resolve_device(self.parts.settings.runtime.device)
        context = make_context(self.parts, device)
        if unequal:
            context.data = unequal_clients(context.data, seed)
        self.context: RunContext = context
        self.budget: Budget | None = None
        if self.parts.private:
            self.budget = make_budget(self.parts, context.data, np.zeros(0, dtype=int))
        # The first rounds follow each other. Later rounds are tried as well, because a schedule or
        # a clipper may do something else late in a run.
        consecutive = self._rounds() if rounds is None else rounds
        self.round_numbers = list(range(consecutive))
        self.later = self._later(consecutive) if later else []
        self.round_numbers += self.later
        if (numbers := self.rounds * self._numbers()) > _MOST_NUMBERS:
            raise ConfigError(
                f"{self.rounds} rounds release {numbers:,.0f} numbers, and fedpriv verify keeps at most "
                f"{_MOST_NUMBERS:,}: take fewer clients, a smaller model or fewer rounds (--rounds)"
            )
        self.sampling_name = "lots 0"
        self.unit_client, self.unit_record = 0, int(context.data.clients[0][-1])

    # ---- facts

    @property
    def rounds(self) -> int:
        """Number of rounds of each run."""
        return len(self.round_numbers)

    @property
    def per_record(self) -> bool:
        """True if the unit of privacy is a record."""
        return self.parts.algorithm.unit == "record"

    @property
    def secret_cohort(self) -> bool:
        """True if no observer sees which clients take part."""
        return self.trust.secret_cohort

    @property
    def whole_numbers(self) -> bool:
        """True if clients add noise as shares of whole numbers."""
        return self.parts.algorithm.discrete is not None

    @property
    def clients(self) -> int:
        """Number of clients."""
        return self.context.data.client_count

    @property
    def trust(self) -> Trust:
        """Trust model of the algorithm."""
        return self.parts.algorithm.trust

    @property
    def unit_words(self) -> str:
        """Name of the unit of privacy: record or client."""
        return "record" if self.per_record else "client"

    def layers(self) -> list[tuple[str, slice]]:
        """Return the name and the slice of each layer among the numbers of the model."""
        model = self.context.model
        named = model.module.named_parameters()
        return [(name, model.columns[p]) for name, p in named if p in model.columns]

    def _numbers(self) -> float:
        """Return the number of numbers that a round releases."""
        algorithm = self.parts.algorithm
        cohort = algorithm.expected_cohort(self.clients) or self.clients
        apart = algorithm.row_per_client or self.parts.mechanism.uploads_apart
        rows = cohort if apart else 1
        return rows * algorithm.samples_per_round * self.context.model.size

    def _rounds(self) -> int:
        """Choose the number of first rounds."""
        steps = self.parts.algorithm.samples_per_round
        rounds = FEW_ROUNDS if self._numbers() > _MANY or steps > 4 else ROUNDS
        if isinstance(self.parts.algorithm, DpFtrl):  # run until a client's second turn
            correlation = cast("MatrixMechanism", self.parts.mechanism).correlation
            separation = correlation.participation.separation
            rounds = min(correlation.rounds, max(rounds, separation + 2))
        return rounds

    def _later(self, consecutive: int) -> list[int]:
        """Return three random later rounds and the last round of the configured run, ascending.

        Rounds that are one release follow from each other, so none of them can be left out.
        """
        if self.parts.mechanism.charged_at_once is not None:
            return []
        planned = self.parts.settings.rounds or self.parts.noise_schedule.planned_rounds
        last = math.ceil(planned or _ROUNDS_OF_A_BUDGET) - 1
        if last < consecutive:
            return []
        drawn = np.random.default_rng([self.seed, 2])
        between = drawn.choice(last - consecutive, min(3, last - consecutive), replace=False)
        return [*sorted((consecutive + between).tolist()), last]

    # ---- chance

    def streams(self, sampling: str, noise: str) -> SecretStreams:
        """Return the streams of a run, by a name for lots and cohorts and a name for noise."""
        return SecretStreams(
            derived_key(b"verify", self.seed, "sampling", sampling),
            derived_key(b"verify", self.seed, "noise", noise),
        )

    def run_streams(
        self, rounds: int | None, context: RunContext | None = None, folder: RunFolder | None = None
    ) -> SecretStreams:
        """Return the streams that ``fedpriv train`` would give this configuration.

        Args:
            rounds: Number of rounds of the run.
            context: Context of the run; None: that of this subject.
            folder: Folder of a published run; None: the run is not published.
        """
        settings = replace(self.parts.settings, publish=folder is not None)
        digest = run_digest(self.config, rounds, context or self.context)
        return streams_of_run(settings, digest, folder)[0]

    # ---- the unit

    def clients_to_try(self, most: int = 5) -> list[int]:
        """Return at most ``most`` clients that are tested one by one.

        They are the first and the last client, the clients with most and fewest records, and random clients.
        """
        sizes = self.context.data.clients.sizes
        others = np.random.default_rng(self.seed).permutation(self.clients).tolist()
        chosen = (0, self.clients - 1, int(sizes.argmax()), int(sizes.argmin()), *others)
        return list(dict.fromkeys(chosen))[:most]

    def rounds_drawn(self) -> list[int]:
        """Return the positions of rounds whose noise is drawn many times.

        They are the first round, the last round and three random rounds.
        """
        last = self.rounds - 1
        between = list(range(last - len(self.later) + 1, last))
        if not between:
            middle = np.random.default_rng(self.seed).permutation(np.arange(1, max(1, last)))
            between = middle[:3].tolist()
        return sorted({0, last, *between})

    def choose_unit(self, seen: Recording) -> bool:
        """Choose the record or client that is in most lots of a run, and return whether there is one.

        Lots of the first round count most, because some checks run that round only.
        """
        scores: Counter[int] = Counter()
        for t, cohort in enumerate(seen.cohorts):
            members = np.concatenate(seen.reads[t]) if self.per_record and seen.reads[t] else cohort
            for member, lots in Counter(members.tolist()).items():
                scores[member] += (100 if t == 0 else 1) * lots
        if not scores or (self.per_record and not any(map(len, seen.reads))):
            return False
        chosen = max(scores, key=lambda member: (scores[member], -member))
        if not self.per_record:
            self.unit_client = chosen
            self.unit_record = int(self.context.data.clients[chosen][-1])
            return True
        clients = self.context.data.clients
        for place in np.flatnonzero(clients.indices == chosen).tolist():
            self.unit_client, self.unit_record = int(clients.owners[place]), chosen
        return True

    # ---- running

    def loop(self, variation: Variation = AS_IT_IS, parts: Parts | None = None) -> Loop:
        """Return a loop before its first round. It shares no state with other loops.

        Args:
            variation: Change of the unit.
            parts: Parts of the run; None: copies of the parts of this subject.
        """
        if parts is None:
            shared = (self.parts.dataset, self.parts.partition, self.parts.model)
            # Data set, partition and model settings are large or shared, and no run changes them.
            # All other parts are copied.
            parts = copy.deepcopy(self.parts, {id(part): part for part in shared})
        data = self.context.data
        if variation.data is not None:
            data = variation.data(data)
        model = FlatModel(copy.deepcopy(self.context.model.module))
        context = RunContext(
            data=with_train(data, ReadRecords.of(data.train)),
            model=model,
            engine=make_engine(model, engine=parts.settings.runtime.engine),
            clipper=parts.clipper,
            seed=parts.settings.seed,
            streams=self.streams(self.sampling_name, "A"),
            mechanism=parts.mechanism,
        )
        if parts.aggregation is not None:
            context.rule = RunRule(parts.aggregation, model)
        # The numbers of records are public, so the variation of a unit does not change them.
        parts.mechanism.join(self.context.data.records_per_client)
        budget = copy.deepcopy(self.budget)
        if variation.absent is not None and budget is not None:
            leave_out(budget, variation.absent)
        loop = Loop(parts, context, budget)
        # Only now is there a computation whose uploads can be replaced.
        if variation.upload is not None:
            replace_upload(loop, *variation.upload)
        if variation.moved is not None:
            move(loop, *variation.moved)
        if variation.silent is not None:
            silence(loop, variation.silent)
        return loop

    def run(
        self,
        streams: SecretStreams | None = None,
        variation: Variation = AS_IT_IS,
        rounds: int | None = None,
        cohorts: Sequence[np.ndarray] | None = None,
        **probe: Any,
    ) -> Recording:
        """Run and return what was seen. A failure in the middle of the run is part of the recording.

        Args:
            streams: Streams of lots, cohorts and noise; None: those of the reference.
            variation: Change of the unit.
            rounds: Number of rounds; None: all rounds of this subject.
            cohorts: Clients who take part in each round, whatever is sampled; None: those sampled.
            **probe: Arguments of :class:`~fedpriv.tools.verify.probes.Probe`.

        Raises:
            ConfigError: The configuration is not allowed.
        """
        streams = self.streams(self.sampling_name, "A") if streams is None else streams
        self.steps.run()
        with ExitStack() as stack:
            # Data that can be changed in place are not copied for each run.
            changed = variation
            if variation.within is not None:
                stack.enter_context(variation.within(self.context.data))
                changed = replace(variation, data=None)
            loop = self.loop(changed)
            loop.context.streams = streams
            if variation.nobody:
                cohorts = [np.zeros(0, dtype=np.int64)] * (rounds or self.rounds)
            if cohorts is not None:
                position = {t: i for i, t in enumerate(self.round_numbers)}
                algorithm: Any = loop.parts.algorithm
                algorithm.cohort = lambda _, t, eligible: cohorts[position[t]]
            watcher = Probe(loop, **probe)
            follow(loop, self.round_numbers)
            # An error of the configuration itself belongs to the user. An error that only a variation
            # causes is a finding, of whatever class it is.
            as_given = probe.get("pinned") is None and variation is AS_IT_IS
            expected = FedprivError if as_given else Exception
            try:
                stop = Stops(watcher.recording, rounds or self.rounds)
                watcher.recording.stop = loop.run([watcher], stop)
            except ConfigError:
                raise
            except expected as error:
                kind = "" if isinstance(error, FedprivError) else f"{type(error).__name__}: "
                watcher.recording.failure = kind + " ".join(str(error).split())
            if loop.budget is not None:
                watcher.recording.ledger = loop.budget.ledger
        return watcher.recording


def _refuse(parts: Parts) -> None:
    """Raise ConfigError for a configuration that cannot be verified."""
    if parts.settings.paired is not None:
        hint = "it checks that no two runs have noise in common, which paired runs have on purpose"
        raise ConfigError("paired", parts.settings.paired, "null with fedpriv verify", hint)
    if dropout := parts.algorithm.dropout:
        allowed = "0 with fedpriv verify, which chooses cohorts"
        raise ConfigError("algorithm.dropout", dropout, allowed)
    if parts.attack is not None:
        raise ConfigError(
            "attack must be none with fedpriv verify, which brings malicious clients of its own"
        )
    warm_start = parts.settings.warm_start
    if warm_start is not None and warm_start.on_clients and parts.private:
        allowed = "public or null with fedpriv verify"
        raise ConfigError("warm_start.records", warm_start.records, allowed, NOT_AUDITED)
    one_release = parts.mechanism.charged_at_once is not None
    if one_release and not isinstance(parts.algorithm, DpFtrl):
        raise ConfigError(
            f"algorithm={parts.algorithm.name} cannot be verified: all its rounds are one release, and "
            "fedpriv verify can test such a release for dp_ftrl only"
        )


@contextmanager
def keep_global_generators() -> Iterator[None]:
    """Restore the global random generators at the end.

    They are not seeded at the beginning. If code of the user's own draws noise from them, the noise must
    differ between two runs, so that the checks find that it does not follow from the run's streams.
    """
    state = np.random.get_state()
    with torch.random.fork_rng(devices=[]):
        try:
            yield
        finally:
            np.random.set_state(state)
