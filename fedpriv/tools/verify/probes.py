"""What is seen of a run from outside: its releases, what reaches the server, its state between rounds.

A run may be *pinned* to another one: each of its releases is looked at and then replaced by the other's. So
two runs on different data stay at the same public state, every release is compared with its counterpart, and
whatever still differs between them did not come from the releases.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, cast

import numpy as np
from torch import Tensor

from fedpriv.common.errors import FedprivError
from fedpriv.data.records import ReadRecords
from fedpriv.experiment.loop import Loop, Round
from fedpriv.privacy.ledger import Ledger
from fedpriv.privacy.mechanisms import Announcement, Bounded, OpenRound, Release, Visible
from fedpriv.tools.verify.interventions import uploaders

AFTER, BEFORE = -1, -2
"""The steps of what is asked once the model has moved, and of what is released before the first round: it is
counted to that."""


class Position(int):
    """The position of a round among those that were run; ``number``: as a whole run counts it, from 1."""

    number: int

    @classmethod
    def of(cls, position: int, number: int) -> Position:
        made = cls(position)
        made.number = number
        return made


class ReleasePosition(NamedTuple):
    """One release: the position of its round, 0, 1, …; the local step; what is answered."""

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
    """What left at one place.

    Attributes:
        values: As it left [rows, d].
        exact: Before it was noised [rows, d].
        divided_by: By what the sum was divided before it was noised.
        of_reports: Whether it is a sum of reports, each noised by its client.
    """

    values: Tensor
    exact: Tensor
    divided_by: float
    of_reports: bool


@dataclass
class Recording:
    """All that was seen of a run, a list entry for each round where nothing else is said."""

    seen: dict[ReleasePosition, Seen] = field(default_factory=dict)
    charged: list[tuple[Release, ...]] = field(default_factory=list)
    cohorts: list[np.ndarray] = field(default_factory=list)
    reads: list[list[np.ndarray]] = field(default_factory=list)
    asked: list[list[np.ndarray]] = field(default_factory=list)
    """The clients whose uploads are computed, a list for each time that some are."""
    uploads: list[list[Tensor]] = field(default_factory=list)
    weights: list[Tensor] = field(default_factory=list)
    states: list[dict[str, str]] = field(default_factory=list)
    stop: str | None = None
    broke: str | None = None
    rows_of_clients: bool = False
    uploads_apart: bool = False
    ledger: Ledger | None = None

    @property
    def rounds(self) -> int:
        return len(self.states)

    def clients_of_rows(self, place: ReleasePosition, rows: int) -> np.ndarray:
        """Return the client of each row of a release; -1 where rows are not those of clients."""
        cohort = self.cohorts[place.round_index]
        return cohort if rows == len(cohort) else np.full(rows, -1)

    def places(self, name: str) -> list[ReleasePosition]:
        return [place for place in self.seen if place.name == name]

    @property
    def names(self) -> list[str]:
        """What is released, in the order it first was."""
        return list(dict.fromkeys(place.name for place in self.seen))


Repeat = Callable[[Callable[..., OpenRound], int, int, Mapping[str, Bounded]], None]
"""(how to open the round again, round, local step, answers); called before each release of the uploads."""


class Probe:
    """Looks on at one loop, as an observer of its rounds and around its mechanism.

    ``see``: called with each release before it is pinned; ``repeats``: each is called before each release
    of the uploads with how to open the same round once more.
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
        self.loop, self.recording = loop, Recording()
        self.recording.rows_of_clients = loop.parts.algorithm.row_per_client
        self.recording.uploads_apart = loop.mechanism.uploads_apart
        self._pinned, self._see, self._repeats, self._scale = pinned, see, repeats, scale
        self._keep = keep
        self._step = 0
        self._uploads: list[Tensor] = []
        self._before: tuple[Release, ...] = ()
        self._wrap()

    def _wrap(self) -> None:
        loop, mechanism, trainer = self.loop, self.loop.mechanism, self.loop.trainer
        open_round, computation = mechanism.open, trainer.round
        train = loop.context.data.train

        def opened(
            announcement: Announcement, cohort: np.ndarray, streams: Any, charged: Any = None
        ) -> OpenRound:
            def anew(other: Any) -> OpenRound:
                return open_round(announcement, cohort, other, charged)

            return self._watch(open_round(announcement, cohort, streams, charged), anew)

        for computes in uploaders(loop):
            computes.of = partial(self._note, computes.of)

        def round_of(opening: OpenRound) -> Any:
            object.__setattr__(train, "log", [])
            self.recording.asked.append([])
            try:
                return computation(opening)
            finally:
                self.recording.reads.append(cast("ReadRecords", train).log)
                object.__setattr__(train, "log", None)

        changed: Any = mechanism, trainer
        changed[0].open, changed[1].round = opened, round_of
        server: Any = trainer.server
        apply = server.apply

        def applied(cohort: np.ndarray, uploads: Visible) -> None:
            if isinstance(getattr(uploads, "values", None), Tensor):
                self._uploads.append(uploads.values.detach().clone())
            apply(cohort, uploads)

        server.apply = applied

    def _note(self, compute: Callable[..., Any], round_index: int, clients: np.ndarray) -> Any:
        if self.recording.asked:
            self.recording.asked[-1].append(np.asarray(clients).copy())
        return compute(round_index, clients)

    # ---- releases

    def _watch(self, opening: OpenRound, anew: Callable[..., OpenRound]) -> OpenRound:
        before = self._is_before(opening)
        t = Position.of(len(self.recording.cohorts), opening.round_index + 1)
        if not before:
            self.recording.cohorts.append(np.asarray(opening.cohort).copy())
        self._step, self._uploads = BEFORE if before else 0, []
        release, after, close = opening.release, opening.release_after, opening.close

        def released(answers: Mapping[str, Bounded]) -> dict[str, Visible]:
            for repeat in self._repeats:
                repeat(anew, t, self._step, answers)
            facts = {name: _facts(answer) for name, answer in answers.items()}
            visible = release(answers)
            found = {
                name: self._let_go(ReleasePosition(t, self._step, name), value, facts[name])
                for name, value in visible.items()
            }
            self._step += 1
            return found

        def released_after(name: str, answer: Bounded) -> Visible:
            for repeat in self._repeats:
                repeat(anew, t, AFTER, {name: answer})
            facts = _facts(answer)
            return self._let_go(ReleasePosition(t, AFTER, name), after(name, answer), facts)

        def closed() -> tuple[Release, ...]:
            found = close()
            if before:
                self._before = found
            else:
                self.recording.charged.append((*self._before, *found))
                self._before = ()
            return found

        watched: Any = opening
        watched.release, watched.release_after, watched.close = released, released_after, closed
        return opening

    def _is_before(self, opening: OpenRound) -> bool:
        """Return whether a round is what is released before the first one."""
        query = self.loop.mechanism.before
        groups = opening.announcement.groups
        return query is not None and all(g.upload.joint.names == {query.name} for g in groups)

    def _let_go(
        self, place: ReleasePosition, visible: Visible, facts: tuple[Tensor, float, bool]
    ) -> Visible:
        values = visible.values
        flat = values.detach().reshape(len(values), -1)
        if self._see is not None:
            self._see(place, flat)
        if self._pinned is None:
            self.recording.seen[place] = Seen(flat.clone(), *facts)
            return visible
        other = self._pinned.seen.get(place)
        if other is None or other.values.shape != flat.shape:
            raise FedprivError(
                f"{place} was released in one run and not, or in another shape, in the other"
            )
        wanted = other.values.to(flat.dtype) * self._scale if self._scale != 1 else other.values
        return visible.then(lambda own: wanted.reshape(own.shape).to(own.dtype).clone())

    # ---- between rounds

    def begin(self, rounds_done: int) -> None:
        pass

    def see(self, done: Round) -> None:
        self.recording.uploads.append(self._uploads)
        self.recording.weights.append(self.loop.context.model.flat.detach().clone())
        self.recording.states.append(self._state(done) if self._keep else {})

    def close(self) -> None:
        pass

    def state_dict(self) -> None:
        return None

    def _state(self, done: Round) -> dict[str, str]:
        loop = self.loop
        left_out = ("seconds", "cpu_seconds", "not_finite", "own")
        state: dict[str, Any] = {k: v for k, v in loop.state_dict().items() if k not in left_out}
        if loop.mechanism.charged_at_once is not None:  # noise for later rounds: the server's alone
            state["mechanism"] = {k: state["mechanism"].get(k) for k in ("digest", "clip_norm")}
        buffers = dict(loop.context.model.module.state_dict())
        told: dict[str, Any] = {
            "number": done.number,
            "noise_multiplier": done.noise_multiplier,
            "signal": done.signal,
            "evaluation": repr(done.evaluation),
            "stop": done.stop,
            "healthy": done.outcome.healthy,
            "clip_norms": done.outcome.clip_norms,
        }
        if not loop.parts.algorithm.trust.secret_cohort:
            told["cohort"] = done.cohort
        return digests({**state, "model": buffers, "round": told, "uploads": self._uploads})


def _facts(answer: Bounded) -> tuple[Tensor, float, bool]:
    values = answer.values.detach()
    return (
        values.double().reshape(len(values), -1).clone(),
        float(answer.divided_by),
        bool(answer.of_reports),
    )


def digests(tree: Any, path: str = "") -> dict[str, str]:
    """Return a digest of each leaf of nested dicts and lists, by its path; tensors bit for bit."""
    if isinstance(tree, Mapping):
        found: dict[str, str] = {}
        for key, value in tree.items():
            found |= digests(value, f"{path}.{key}" if path else str(key))
        return found
    if isinstance(tree, (list, tuple)) and len(tree) <= 64:
        found = {path: str(len(tree))}
        for place, value in enumerate(tree):
            found |= digests(value, f"{path}[{place}]")
        return found
    if isinstance(tree, Tensor):
        tree = tree.detach().cpu().numpy()
    if isinstance(tree, np.ndarray):
        return {path: _digest(f"{tree.dtype}{tree.shape}".encode(), tree.tobytes())}
    return {path: _digest(repr(tree).encode())}


def _digest(*parts: bytes) -> str:
    found = hashlib.blake2b(digest_size=16)
    for part in parts:
        found.update(part)
    return found.hexdigest()


def first_difference(one: Recording, other: Recording) -> tuple[int, list[str]] | None:
    """Return (the first round, from 1, after which two runs differ; in what); None: they are the same."""
    for t, (a, b) in enumerate(zip(one.states, other.states, strict=False)):
        differing = sorted(k for k in {*a, *b} if a.get(k) != b.get(k))
        if differing:
            return t + 1, differing
    if one.rounds != other.rounds or one.stop != other.stop:
        return min(one.rounds, other.rounds) + 1, ["the end of the run"]
    return None
