"""Recordings of a run from outside: its releases, what reaches the server, and its state between rounds.

A run may be *pinned* to another run. Then each of its releases is recorded and replaced by the release of the
other run. Two runs on different data thereby stay at the same public state, and every release can be compared
with its counterpart. Whatever still differs between the runs did not come from the releases.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple, cast

import numpy as np
from torch import Tensor

from fedpriv.common.errors import FedprivError
from fedpriv.common.secret_streams import SecretStreams
from fedpriv.data.records import ReadRecords
from fedpriv.experiment.loop import Loop, Round
from fedpriv.experiment.observers import Quiet
from fedpriv.privacy.ledger import Ledger
from fedpriv.privacy.mechanisms import Announcement, Bounded, OpenRound, Release, Visible
from fedpriv.tools.verify.interventions import uploaders

AFTER, BEFORE = -1, -2
"""Steps that are no local steps: queries after the model has moved, and the release before the first round.

The latter is counted as part of the first round.
"""


class Position(int):
    """The position of a round among the rounds that were run.

    Attributes:
        number: Number of the round in a whole run, from 1. It is larger where rounds were left out.
    """

    number: int

    @classmethod
    def of(cls, position: int, number: int) -> Position:
        """Return the position of a round with its number."""
        result = cls(position)
        result.number = number
        return result


class ReleasePosition(NamedTuple):
    """The position of a release in a run.

    Attributes:
        round_index: Position of the round among the rounds that were run, from 0.
        step: Local step, ``AFTER`` or ``BEFORE``.
        name: Name of the query.
    """

    round_index: int
    step: int
    name: str

    @property
    def number(self) -> int:
        """The number of the round, from 1."""
        return getattr(self.round_index, "number", self.round_index + 1)

    def __str__(self) -> str:
        if self.step == BEFORE:
            return f"{self.name} before the first round"
        step = f", step {self.step + 1}" if self.step > 0 else ""
        return f"{self.name} in round {self.number}{step}"


@dataclass(frozen=True)
class Seen:
    """One release.

    Attributes:
        values: Released values [rows, d].
        exact: Values before the noise was added [rows, d].
        divided_by: Number by which the sum was divided before the noise was added.
        of_reports: True for a sum of reports, each noised by its client.
    """

    values: Tensor
    exact: Tensor
    divided_by: float
    of_reports: bool


@dataclass
class Recording:
    """All that was seen of a run. Lists have an entry for each round.

    Attributes:
        seen: The releases.
        charged: What the ledger was charged.
        cohorts: Clients who took part.
        reads: Indices of the training records that were read, an array for each read.
        upload_clients: Clients whose uploads were computed, an array for each computation.
        uploads: What reached the server.
        weights: Global weights after the round.
        states: Digests of everything that an observer sees after the round.
        stop: Reason why the run stopped.
        failure: Error that ended the run; None where it did not end.
        rows_of_clients: True if releases have a row for each client.
        uploads_apart: True if the server sees each upload.
        ledger: The ledger after the run.
    """

    seen: dict[ReleasePosition, Seen] = field(default_factory=dict)
    charged: list[tuple[Release, ...]] = field(default_factory=list)
    cohorts: list[np.ndarray] = field(default_factory=list)
    reads: list[list[np.ndarray]] = field(default_factory=list)
    upload_clients: list[list[np.ndarray]] = field(default_factory=list)
    uploads: list[list[Tensor]] = field(default_factory=list)
    weights: list[Tensor] = field(default_factory=list)
    states: list[dict[str, str]] = field(default_factory=list)
    stop: str | None = None
    failure: str | None = None
    rows_of_clients: bool = False
    uploads_apart: bool = False
    ledger: Ledger | None = None

    @property
    def rounds(self) -> int:
        """Number of rounds that were completed."""
        return len(self.states)

    def clients_of_rows(self, position: ReleasePosition, rows: int) -> np.ndarray:
        """Return the client of each row of a release; -1 where a row is not about one client."""
        cohort = self.cohorts[position.round_index]
        return cohort if rows == len(cohort) else np.full(rows, -1)

    def positions(self, name: str) -> list[ReleasePosition]:
        """Return the positions of all releases of a query."""
        return [position for position in self.seen if position.name == name]

    @property
    def names(self) -> list[str]:
        """Names of the queries, in the order of their first release."""
        return list(dict.fromkeys(position.name for position in self.seen))


Reopen = Callable[[SecretStreams], OpenRound]
"""Function that opens the same round once more, with the given streams."""

Repeat = Callable[[Reopen, int, int, Mapping[str, Bounded]], None]
"""Function (reopen, round, local step, answers) that is called before each release of a round."""


class Probe(Quiet):
    """An observer of a loop, which also wraps the loop's mechanism and trainer.

    Attributes:
        loop: The loop.
        recording: What was seen so far.
    """

    name = "verify"

    def __init__(
        self,
        loop: Loop,
        pinned: Recording | None = None,
        see: Callable[[ReleasePosition, Tensor], None] | None = None,
        repeats: Sequence[Repeat] = (),
        scale: float = 1.0,
        keep: bool = True,
    ):
        """Wrap the mechanism and the trainer of a loop.

        Args:
            loop: A loop before its first round.
            pinned: Recording whose releases replace those of the loop; None: releases stay.
            see: Function that is called with each release [rows, d] before the release is replaced.
            repeats: Functions that are called before each release and may open the round again.
            scale: Factor of the releases that replace those of the loop.
            keep: Record the state after each round.
        """
        self.loop, self.recording = loop, Recording()
        self.recording.rows_of_clients = loop.parts.algorithm.row_per_client
        self.recording.uploads_apart = loop.mechanism.uploads_apart
        self._pinned, self._see, self._repeats, self._scale = pinned, see, repeats, scale
        self._keep = keep
        self._step = 0
        self._uploads: list[Tensor] = []
        # Releases before the first round, which are charged together with it.
        self._before: tuple[Release, ...] = ()
        mechanism, trainer = loop.mechanism, loop.trainer
        open_round, computation = mechanism.open, trainer.round
        train = loop.context.data.train

        def opened(
            announcement: Announcement, cohort: np.ndarray, streams: Any, charged: Any = None
        ) -> OpenRound:
            def reopen(other_streams: SecretStreams) -> OpenRound:
                return open_round(announcement, cohort, other_streams, charged)

            return self._watch(open_round(announcement, cohort, streams, charged), reopen)

        # The methods of these very objects are replaced, so that the code of a run stays as it is.
        for computes in uploaders(loop):
            computes.of = partial(self._note, computes.of)

        def round_of(opening: OpenRound) -> Any:
            # Reads are logged during a round only. The class of the records is frozen.
            object.__setattr__(train, "log", [])
            self.recording.upload_clients.append([])
            try:
                return computation(opening)
            finally:
                self.recording.reads.append(cast("ReadRecords", train).log)
                object.__setattr__(train, "log", None)

        wrapped: Any = mechanism, trainer
        wrapped[0].open, wrapped[1].round = opened, round_of
        server: Any = trainer.server
        apply = server.apply

        def applied(cohort: np.ndarray, uploads: Visible) -> None:
            if isinstance(getattr(uploads, "values", None), Tensor):
                self._uploads.append(uploads.values.detach().clone())
            apply(cohort, uploads)

        server.apply = applied

    def _note(self, compute: Callable[..., Any], round_index: int, clients: np.ndarray) -> Any:
        if self.recording.upload_clients:
            self.recording.upload_clients[-1].append(np.asarray(clients).copy())
        return compute(round_index, clients)

    # ---- releases

    def _watch(self, opening: OpenRound, reopen: Reopen) -> OpenRound:
        """Wrap the methods of an open round, so that its releases are recorded and pinned."""
        # An opening before the first round asks only for the query of that time.
        query, groups = self.loop.mechanism.before, opening.announcement.groups
        before = query is not None and all(g.upload.joint.names == {query.name} for g in groups)
        t = Position.of(len(self.recording.cohorts), opening.round_index + 1)
        if not before:
            self.recording.cohorts.append(np.asarray(opening.cohort).copy())
        self._step, self._uploads = BEFORE if before else 0, []
        release, after, close = opening.release, opening.release_after, opening.close

        def released(answers: Mapping[str, Bounded]) -> dict[str, Visible]:
            for repeat in self._repeats:
                repeat(reopen, t, self._step, answers)
            # Repetitions and exact values come first, because the release overwrites the answers.
            facts = {name: _facts(answer) for name, answer in answers.items()}
            visible = release(answers)
            outgoing = {
                name: self._pin(ReleasePosition(t, self._step, name), value, facts[name])
                for name, value in visible.items()
            }
            self._step += 1
            return outgoing

        def released_after(name: str, answer: Bounded) -> Visible:
            for repeat in self._repeats:
                repeat(reopen, t, AFTER, {name: answer})
            facts = _facts(answer)
            return self._pin(ReleasePosition(t, AFTER, name), after(name, answer), facts)

        def closed() -> tuple[Release, ...]:
            releases = close()
            if before:
                self._before = releases
            else:
                self.recording.charged.append((*self._before, *releases))
                self._before = ()
            return releases

        watched: Any = opening
        watched.release, watched.release_after, watched.close = released, released_after, closed
        return opening

    def _pin(
        self, position: ReleasePosition, visible: Visible, facts: tuple[Tensor, float, bool]
    ) -> Visible:
        """Show a release to ``see``, then record it or replace it by the release of the pinned run."""
        values = visible.values
        flat = values.detach().reshape(len(values), -1)
        if self._see is not None:
            self._see(position, flat)
        if self._pinned is None:
            self.recording.seen[position] = Seen(flat.clone(), *facts)
            return visible
        other = self._pinned.seen.get(position)
        if other is None or other.values.shape != flat.shape:
            raise FedprivError(
                f"{position} was released in only one of two runs, or in different shapes"
            )
        pinned = other.values.to(flat.dtype) * self._scale if self._scale != 1 else other.values
        return visible.then(lambda own: pinned.reshape(own.shape).to(own.dtype).clone())

    # ---- between rounds

    def see(self, done: Round) -> None:
        self.recording.uploads.append(self._uploads)
        self.recording.weights.append(self.loop.context.model.flat.detach().clone())
        self.recording.states.append(self._state(done) if self._keep else {})

    def _state(self, done: Round) -> dict[str, str]:
        """Return digests of everything that an observer sees after a round."""
        loop = self.loop
        # Times differ between any two runs, and exact statistics are for the analyst alone.
        left_out = ("seconds", "cpu_seconds", "not_finite", "own")
        state: dict[str, Any] = {k: v for k, v in loop.state_dict().items() if k not in left_out}
        if (
            loop.mechanism.charged_at_once is not None
        ):  # only the server has the noise of later rounds
            state["mechanism"] = {k: state["mechanism"].get(k) for k in ("digest", "clip_norm")}
        evaluation = done.evaluation
        if evaluation is not None:  # what is measured of each client is for the analyst alone
            evaluation = replace(evaluation, client_accuracy=None, worst_decile=None)
        buffers = dict(loop.context.model.module.state_dict())
        public: dict[str, Any] = {
            "number": done.number,
            "noise_multiplier": done.noise_multiplier,
            "signal": done.signal,
            "evaluation": repr(evaluation),
            "stop": done.stop,
            "healthy": done.outcome.healthy,
            "clip_norms": done.outcome.clip_norms,
        }
        if not loop.parts.algorithm.trust.secret_cohort:
            public["cohort"] = done.cohort
        return digests({**state, "model": buffers, "round": public, "uploads": self._uploads})


def _facts(answer: Bounded) -> tuple[Tensor, float, bool]:
    values = answer.values.detach()
    return (
        values.double().reshape(len(values), -1).clone(),
        float(answer.divided_by),
        bool(answer.of_reports),
    )


def digests(tree: Any, path: str = "") -> dict[str, str]:
    """Return a digest of each leaf of nested dicts and lists, by its path. Tensors count bit for bit."""
    if isinstance(tree, Mapping):
        result: dict[str, str] = {}
        for key, value in tree.items():
            result |= digests(value, f"{path}.{key}" if path else str(key))
        return result
    # Long lists get one digest for all of their items.
    if isinstance(tree, (list, tuple)) and len(tree) <= 64:
        result = {path: str(len(tree))}
        for index, value in enumerate(tree):
            result |= digests(value, f"{path}[{index}]")
        return result
    if isinstance(tree, Tensor):
        tree = tree.detach().cpu().numpy()
    if isinstance(tree, np.ndarray):
        content = f"{tree.dtype}{tree.shape}".encode() + tree.tobytes()
    else:
        content = repr(tree).encode()
    return {path: hashlib.blake2b(content, digest_size=16).hexdigest()}


def first_difference(one: Recording, other: Recording) -> tuple[int, list[str]] | None:
    """Return the first round, from 1, after which two runs differ and the names of what differs.

    Equal runs give None.
    """
    for t, (a, b) in enumerate(zip(one.states, other.states, strict=False)):
        differing = sorted(k for k in {*a, *b} if a.get(k) != b.get(k))
        if differing:
            return t + 1, differing
    if one.rounds != other.rounds or one.stop != other.stop:
        return min(one.rounds, other.rounds) + 1, ["the end of the run"]
    return None
