"""The run that is verified: built from a configuration, started as often as needed, in variations of itself.

Its parts, trainer, sampler, clipper, schedule, mechanism and loop are those of ``fedpriv train``. What is
replaced is chance (the keys of the streams), and the data or the upload of one unit.
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

from fedpriv.aggregation.checked import CheckedRule
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
from fedpriv.experiment.machine import choose_threads, resolve_device
from fedpriv.experiment.parts import Parts
from fedpriv.experiment.secrets import run_digest, streams_of_run
from fedpriv.privacy.budget import Budget
from fedpriv.privacy.core.trust import Trust
from fedpriv.privacy.mechanisms.matrix import MatrixMechanism
from fedpriv.store.folder import RunFolder
from fedpriv.tools.verify.interventions import (
    AS_IT_IS,
    Variation,
    follow,
    leave_out,
    replace_upload,
    silence,
    unequal_clients,
)
from fedpriv.tools.verify.probes import Probe, Recording
from fedpriv.tools.verify.synthetic import MadeUp

ROUNDS, FEW_ROUNDS = 8, 4
_MOST = 200_000_000
_ROUNDS_OF_A_BUDGET = 1000  # the last one where a run ends with its budget
_SECONDS_BETWEEN_LINES = 5.0  # about runs of one step
_MANY = 1_000_000  # numbers of a round's releases from which on few rounds are enough


class Steps:
    """The step that a verification is at, and how many runs it has made in it.

    Attributes:
        say: Takes a line; None: nothing is said.
    """

    def __init__(self) -> None:
        self.say: Callable[[str], None] | None = None
        self._name, self._done, self._said = "", 0, 0.0
        self._runs: int | None = None

    def begin(self, name: str, runs: int | None = None) -> None:
        """Begin a step of so many runs (None: not known before)."""
        self._name, self._runs, self._done, self._said = name, runs, 0, 0.0

    def run(self) -> None:
        """Note that a run of the step begins, and say so: of the first one, then now and again."""
        self._done += 1
        now = time.monotonic()
        if self.say is None or now - self._said < _SECONDS_BETWEEN_LINES:
            return
        self._said = now
        of = "" if self._runs is None or self._done > self._runs else f" of {self._runs}"
        self.say(f"{self._name}, run {self._done}{of}")


class Stops:
    """Ends a loop between two rounds."""

    def __init__(self, recording: Recording, rounds: int):
        self._recording, self._rounds = recording, rounds

    @property
    def requested(self) -> bool:
        return len(self._recording.cohorts) >= self._rounds


class Subject:
    """A configuration, ready to be run in variations of itself."""

    def __init__(
        self,
        config: DictConfig,
        seed: int = 0,
        rounds: int | None = None,
        synthetic: bool = False,
        unequal: bool = False,
        later: bool = False,
    ):
        """
        Args:
            rounds: Rounds of each run; None: chosen.
            synthetic: Whether records of the data set's shape are made up.
            unequal: Whether clients lose records until their sizes differ.
            later: Whether the run's last round and three drawn from the seed follow at once.
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
        choose_threads(self.parts.settings.runtime.threads, context.model.size * 256)
        self.context: RunContext = context
        self.budget: Budget | None = None
        if self.parts.private:
            self.budget = make_budget(self.parts, context.data, np.zeros(0, dtype=int))
        consecutive = self._rounds() if rounds is None else rounds
        self.round_numbers = list(range(consecutive))
        self.later = self._later(consecutive) if later else []
        self.round_numbers += self.later
        self._refuse_too_large()
        self.sampling_name = "lots 0"
        self.unit_client, self.unit_record = 0, int(context.data.clients[0][-1])

    # ---- facts

    @property
    def rounds(self) -> int:
        """Number of rounds of each run."""
        return len(self.round_numbers)

    @property
    def per_record(self) -> bool:
        return self.parts.algorithm.unit == "record"

    @property
    def secret_cohort(self) -> bool:
        return self.trust.secret_cohort

    @property
    def whole_numbers(self) -> bool:
        """Whether clients add shares of whole numbers."""
        return self.parts.algorithm.discrete is not None

    @property
    def clients(self) -> int:
        return self.context.data.client_count

    @property
    def trust(self) -> Trust:
        return self.parts.algorithm.trust

    @property
    def unit_words(self) -> str:
        return "record" if self.per_record else "client"

    def layers(self) -> list[tuple[str, slice]]:
        """Return the place of each parameter among the numbers of the model."""
        found, first = [], 0
        for name, parameter in self.context.model.module.named_parameters():
            found.append((name, slice(first, first + parameter.numel())))
            first += parameter.numel()
        return found if first == self.context.model.size else []

    def _numbers(self) -> float:
        """Return how many numbers a round releases."""
        algorithm = self.parts.algorithm
        cohort = algorithm.expected_cohort(self.clients) or self.clients
        apart = algorithm.row_per_client or self.parts.mechanism.uploads_apart
        rows = cohort if apart else 1
        return rows * algorithm.samples_per_round * self.context.model.size

    def _rounds(self) -> int:
        steps = self.parts.algorithm.samples_per_round
        rounds = FEW_ROUNDS if self._numbers() > _MANY or steps > 4 else ROUNDS
        if isinstance(self.parts.algorithm, DpFtrl):  # until a client's turn comes again
            together = cast("MatrixMechanism", self.parts.mechanism).correlation
            rounds = min(together.rounds, max(rounds, together.participation.separation + 2))
        return rounds

    def _later(self, consecutive: int) -> list[int]:
        """Return the last round of the configured run, and three between, ascending. Rounds that are one
        release follow from each other, so none can be left out."""
        if self.parts.mechanism.charged_at_once is not None:
            return []
        planned = self.parts.settings.rounds or self.parts.noise_schedule.planned_rounds
        last = math.ceil(planned or _ROUNDS_OF_A_BUDGET) - 1
        if last < consecutive:
            return []
        drawn = np.random.default_rng([self.seed, 2])
        between = drawn.choice(last - consecutive, min(3, last - consecutive), replace=False)
        return [*sorted((consecutive + between).tolist()), last]

    def _refuse_too_large(self) -> None:
        """Raise ConfigError where there are too many releases to keep and compare."""
        numbers = self.rounds * self._numbers()
        if numbers > _MOST:
            raise ConfigError(
                f"{self.rounds} rounds release {numbers:,.0f} numbers, and fedpriv verify keeps {_MOST:,} at "
                "most: take fewer clients, a smaller model or fewer rounds (--rounds)"
            )

    # ---- chance

    def streams(self, sampling: str, noise: str) -> SecretStreams:
        """Return the streams of a run whose lots and cohorts, and whose noise, have these names."""
        return SecretStreams(
            derived_key(b"verify", self.seed, "sampling", sampling),
            derived_key(b"verify", self.seed, "noise", noise),
        )

    def run_streams(
        self, rounds: int | None, context: RunContext | None = None, folder: RunFolder | None = None
    ) -> SecretStreams:
        """Return the streams that ``fedpriv train`` would give this configuration with so many rounds.

        Args:
            folder: Where the run is published; None: it is not.
        """
        settings = replace(self.parts.settings, publish=folder is not None)
        digest = run_digest(self.config, rounds, context or self.context)
        return streams_of_run(settings, digest, folder)[0]

    # ---- the unit

    def told_apart(self, most: int = 5) -> list[int]:
        """Return clients that are looked at one by one: the first, the last, those with most and fewest
        records, and others at random."""
        sizes = np.array([len(own) for own in self.context.data.clients])
        others = np.random.default_rng(self.seed).permutation(self.clients).tolist()
        chosen = (0, self.clients - 1, int(sizes.argmax()), int(sizes.argmin()), *others)
        return list(dict.fromkeys(chosen))[:most]

    def rounds_drawn(self) -> list[int]:
        """Return the positions of rounds whose noise is drawn many times: the first, the last, and three at
        random."""
        last = self.rounds - 1
        between = list(range(last - len(self.later) + 1, last))
        if not between:
            middle = np.random.default_rng(self.seed).permutation(np.arange(1, max(1, last)))
            between = middle[:3].tolist()
        return sorted({0, last, *between})

    def choose_unit(self, seen: Recording) -> bool:
        """Take the record, or client, that is in most lots of a run, in the first round if it can be, and
        there in several if there are; whether there is one."""
        often: Counter[int] = Counter()
        for t, cohort in enumerate(seen.cohorts):
            members = np.concatenate(seen.reads[t]) if self.per_record and seen.reads[t] else cohort
            for member, lots in Counter(members.tolist()).items():
                often[member] += (100 if t == 0 else 1) * lots
        if not often or (self.per_record and not any(map(len, seen.reads))):
            return False
        chosen = max(often, key=lambda one: (often[one], -one))
        if not self.per_record:
            self.unit_client = chosen
            self.unit_record = int(self.context.data.clients[chosen][-1])
            return True
        for client, own in enumerate(self.context.data.clients):
            if chosen in own:
                self.unit_client, self.unit_record = client, chosen
        return True

    # ---- running

    def loop(self, variation: Variation = AS_IT_IS, parts: Parts | None = None) -> Loop:
        """Return a loop before its first round, with everything its own."""
        if parts is None:
            kept = (self.parts.dataset, self.parts.partition, self.parts.model)
            parts = copy.deepcopy(self.parts, {id(part): part for part in kept})
        data = self.context.data
        if variation.data is not None:
            data = variation.data(data)
        model = FlatModel(copy.deepcopy(self.context.model.module), self.context.model.isolated)
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
            context.rule = CheckedRule(parts.aggregation, model)
        parts.mechanism.join(self.context.data.records_per_client)
        budget = copy.deepcopy(self.budget)
        if variation.absent is not None and budget is not None:
            leave_out(budget, variation.absent)
        loop = Loop(parts, context, budget)
        if variation.upload is not None:
            replace_upload(loop, *variation.upload)
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
        """Run and return what is seen; a failure in the middle of the run is part of that.

        ``cohorts``: who takes part in each round, whatever is sampled.
        """
        streams = self.streams(self.sampling_name, "A") if streams is None else streams
        self.steps.run()
        with ExitStack() as stack:
            changed = variation
            if variation.within is not None:
                stack.enter_context(variation.within(self.context.data))
                changed = replace(variation, data=None)
            loop = self.loop(changed)
            loop.context.streams = streams
            if variation.nobody:
                cohorts = [np.zeros(0, dtype=np.int64)] * (rounds or self.rounds)
            if cohorts is not None:
                place = {t: i for i, t in enumerate(self.round_numbers)}
                algorithm: Any = loop.parts.algorithm
                algorithm.cohort = lambda _, t, eligible: cohorts[place[t]]
            watch = Probe(loop, **probe)
            follow(loop, self.round_numbers)
            # defects of the run as it is given are the user's
            as_given = probe.get("pinned") is None and variation is AS_IT_IS
            expected = FedprivError if as_given else Exception
            try:
                watch.recording.stop = loop.run(
                    [watch], Stops(watch.recording, rounds or self.rounds)
                )
            except ConfigError:
                raise
            except expected as error:
                kind = "" if isinstance(error, FedprivError) else f"{type(error).__name__}: "
                watch.recording.broke = kind + " ".join(str(error).split())
            if loop.budget is not None:
                watch.recording.ledger = loop.budget.ledger
        return watch.recording


def _refuse(parts: Parts) -> None:
    if parts.settings.paired is not None:
        hint = "it checks that no two runs have noise in common, which paired runs have on purpose"
        raise ConfigError("paired", parts.settings.paired, "null with fedpriv verify", hint)
    if dropout := parts.algorithm.dropout:
        raise ConfigError(
            "algorithm.dropout",
            dropout,
            "0 with fedpriv verify, which chooses cohorts",
        )
    if parts.attack is not None:
        raise ConfigError(
            "attack must be none with fedpriv verify, which brings malicious clients of its own"
        )
    together = parts.mechanism.charged_at_once is not None
    if together and not isinstance(parts.algorithm, DpFtrl):
        raise ConfigError(
            f"algorithm={parts.algorithm.name} cannot be verified: all its rounds are one release, and "
            "fedpriv verify knows such releases of dp_ftrl alone"
        )


@contextmanager
def chance_kept() -> Iterator[None]:
    """Leave global generators as they were. They are not set: noise that code of the user's own draws from
    them is not of the run's streams, and the same in every process."""
    state = np.random.get_state()
    with torch.random.fork_rng(devices=[]):
        try:
            yield
        finally:
            np.random.set_state(state)
