"""The adapter as the subject of checks: runs of a few rounds, on data that fedpriv chooses.

*Quiet* data, whose vectors are almost zero, show the noise alone. *Fingerprints* show who takes part: each
unit's upload lies along a coordinate of its own. The difference between two runs with the same seed, one on
fingerprints and one on quiet data, is what the units contribute, without noise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedpriv.tools.adapters.claim import RECORD_UNIT, AdapterClaim, ClaimedValue
from fedpriv.tools.adapters.process import (
    AdapterError,
    AdapterProcess,
    RoundRaised,
    RunRequest,
)

Data = list[np.ndarray]
"""The array of each client: a vector [d], or records [n, d]."""

_BATCH = 50  # runs that are sent in one message
RUNS = 250
"""Number of runs that the noise is taken from. With 48 numbers a round these are 48,000 numbers."""
ROUNDS = 4
"""Number of rounds of such a run, if the claim has as many."""
QUIET = 1e-9
"""Length of a vector that is almost zero, in clip norms."""
FINGERPRINT = 10.0
"""Length of a fingerprint, in clip norms: so long that it is clipped."""


@dataclass(frozen=True)
class RoundSeen:
    """The values and charges of one round, as the observer sees them.

    Attributes:
        values: The values, by name, as they left.
        charged: The values with noise, as the adapter charges them for this round.
    """

    values: Mapping[str, np.ndarray]
    charged: Mapping[str, ClaimedValue]

    def rows(self, name: str, size: int) -> np.ndarray:
        """Return a value as rows [rows, d]: an upload a row, or one row for any other shape."""
        value = self.values[name]
        return value.reshape(-1, size) if value.shape[-1:] == (size,) else value.reshape(1, -1)


class AdapterSubject:
    """An adapter with its claim.

    Args:
        process: The running adapter.
        claim: Its claim.
        seed: Seed of all data and of the seeds of runs.

    Attributes:
        can_repeat: Whether a run with the same seed and data can be repeated, which a check finds out.
        rounds: Number of rounds of a run.
        quiet_vector: A vector that is almost zero [d].
        quiet: Data of such vectors.
    """

    def __init__(self, process: AdapterProcess, claim: AdapterClaim, seed: int):
        self.process, self.claim, self.seed = process, claim, seed
        holds = process.facts["holds_still"]
        self.can_repeat = "seed" in holds
        self.chooses_members = "participation" in holds
        self._examples = "examples" in holds
        self.random = np.random.default_rng([seed, 1])
        self._seeds = np.random.default_rng([seed, 2])
        self.rounds = min(ROUNDS, claim.rounds)
        self.per_record = claim.unit == RECORD_UNIT
        shape = (claim.records, claim.size) if self.per_record else (claim.size,)
        # Exact zeros are one of the things that a unit is replaced by; some code divides by their norm.
        self.quiet_vector = np.full(claim.size, QUIET * self.clip_norm / claim.size**0.5)
        self.quiet: Data = [
            np.broadcast_to(self.quiet_vector, shape).copy() for _ in range(claim.clients)
        ]
        self._shapes: dict[str, tuple[int, ...]] = {}

    def new_seed(self) -> int:
        """Return the seed of another run."""
        return int(self._seeds.integers(1, 2**31 - 1))

    def run(
        self, seed: int, data: Sequence[Data], members: Sequence[int] | None = None
    ) -> list[RoundSeen]:
        """Run rounds from the beginning; see :meth:`runs`."""
        (answers,) = self.runs([(seed, data)], members)
        if isinstance(answers, RoundRaised):
            raise answers
        return answers

    def runs(
        self, runs: Sequence[tuple[int, Sequence[Data]]], members: Sequence[int] | None = None
    ) -> list[list[RoundSeen] | RoundRaised]:
        """Run several runs from the beginning.

        Args:
            runs: Seed of each run, and data of each of its rounds.
            members: Units that take part, where participation can be held still; None: as it comes.

        Returns:
            The rounds of each run, or the exception that one of them raised.

        Raises:
            AdapterError: The adapter ended, hung, or gave an answer that cannot be read.
        """
        more: dict[str, Any] = {}
        if members is not None and self.chooses_members:
            more["participants"] = self._participants(members)
        requests = []
        for seed, data in runs:
            if self._examples:
                # Very unequal numbers: a weighting by examples would show.
                examples = [1000, *range(10, 10 + self.claim.clients - 1)]
                more = {**more, "examples": examples[: len(data[0])]}
            requests.append(RunRequest(seed, data, more))
        result: list[list[RoundSeen] | RoundRaised] = []
        for first in range(0, len(requests), _BATCH):
            for answers in self.process.runs(requests[first : first + _BATCH]):
                if isinstance(answers, RoundRaised):
                    result.append(answers)
                else:
                    under = self.claim.under
                    result.append([RoundSeen(values, under(more)) for values, more in answers])
        return result

    def all_runs(
        self, runs: Sequence[tuple[int, Sequence[Data]]], members: Sequence[int] | None = None
    ) -> list[list[RoundSeen]]:
        """Run several runs, none of which may raise; see :meth:`runs`.

        Raises:
            RoundRaised: A round raised an exception.
        """
        result = []
        for answers in self.runs(runs, members):
            if isinstance(answers, RoundRaised):
                raise answers
            result.append(answers)
        return result

    def _participants(self, members: Sequence[int]) -> list[Any]:
        if not self.per_record:
            return [int(member) for member in members]
        n = self.claim.records
        return [[int(m) % n for m in members if m // n == k] for k in range(self.claim.clients)]

    def steady(self, seen: RoundSeen, length: int) -> None:
        """Hold the names and shapes of what leaves against those of the first round.

        Args:
            seen: What left.
            length: Number of the round, for the sentence.

        Raises:
            AdapterError: A shape changed.
        """
        for name, value in seen.values.items():
            shape = self._shapes.setdefault(name, value.shape)
            if shape != value.shape:
                raise AdapterError(
                    f"{self.process.file.name}: {name} has the shape {value.shape} in round {length}, and "
                    f"had {shape} before; what the observer sees must keep its shape"
                )

    # ---- data

    def set_unit(self, data: Data, unit: int, vector: np.ndarray) -> Data:
        """Return data with the upload (or the record) of one unit replaced."""
        changed = list(data)
        if self.per_record:
            client, record = divmod(unit, self.claim.records)
            changed[client] = data[client].copy()
            changed[client][record] = vector
        else:
            changed[unit] = np.asarray(vector, dtype=float)
        return changed

    def without(self, data: Data, unit: int) -> Data:
        """Return data without one unit."""
        if not self.per_record:
            return [*data[:unit], *data[unit + 1 :]]
        client, record = divmod(unit, self.claim.records)
        changed = list(data)
        changed[client] = np.delete(data[client], record, axis=0)
        return changed

    @property
    def clip_norm(self) -> float:
        """The clip norm of the value that uploads enter: the first claimed one."""
        return next(iter(self.claim.values.values())).clip_norm

    @property
    def read_units(self) -> int:
        """Number of units that have a fingerprint: half of the coordinates stay free."""
        return min(self.claim.units, max(1, self.claim.size // 2))

    def fingerprints(self) -> Data:
        """Return data in which each unit's upload lies along a coordinate of its own."""
        data = self.quiet
        for unit in range(self.read_units):
            vector = np.zeros(self.claim.size)
            vector[unit] = FINGERPRINT * self.clip_norm
            data = self.set_unit(data, unit, vector)
        return data

    def ordinary(self) -> Data:
        """Return random data with norms from 0.3 to 3 clip norms."""
        data = []
        for quiet in self.quiet:
            vectors = self.random.standard_normal(quiet.shape)
            norms = np.linalg.norm(vectors, axis=-1, keepdims=True)
            lengths = self.random.uniform(0.3, 3.0, norms.shape) * self.clip_norm
            data.append(vectors / norms * lengths)
        return data

    def direction(self) -> np.ndarray:
        """Return a random unit vector [d]."""
        vector = self.random.standard_normal(self.claim.size)
        return vector / np.linalg.norm(vector)
