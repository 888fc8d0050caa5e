"""What an algorithm works on: data, model, engine, clipper, mechanism, and secrets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from torch import Tensor

from fedpriv.common.random_streams import torch_stream
from fedpriv.common.secret_streams import SecretStreams
from fedpriv.engine import Engine, FlatModel
from fedpriv.privacy.clippers.base import Clipper
from fedpriv.privacy.mechanisms.mechanism import Mechanism
from fedpriv.privacy.mechanisms.visible import Foreign

if TYPE_CHECKING:
    from fedpriv.aggregation.checked import CheckedRule
    from fedpriv.data.federated import FederatedData
    from fedpriv.data.records import Records


@dataclass(frozen=True)
class RoundWeights:
    """What becomes of the uploads of a round: θ ← θ + Σ_k weights_k u_k over the ``cohort`` [m], clipping
    and noise aside. ``weights`` [m] is None where the server's optimiser does something else."""

    round_index: int
    cohort: np.ndarray
    weights: np.ndarray | None


class Participants(Protocol):
    """Clients that do as somebody else says: a transform of local data, and one of uploads.

    ``attackers``: the numbers of those whose uploads are not their own.
    """

    attackers: np.ndarray

    def with_attackers(self, round_index: int, cohort: np.ndarray) -> np.ndarray:
        """Who takes part: the clients that the algorithm sampled, and attackers that come anyway."""

    def records_of(self, round_index: int, client: int) -> np.ndarray:
        """Indices of the records that a client trains on [n_k]: always equally many."""

    def uploads(self, aggregation: RoundWeights, clients: np.ndarray, uploads: Tensor) -> Tensor:
        """Return what some ``clients`` [c] of the cohort send [c, d], given what they would if all were
        honest. Pure: it changes nothing, so that clients may be computed in chunks."""


class Attack(Participants, Protocol):
    """Malicious clients."""

    settings: Any
    test: Records

    @property
    def active(self) -> bool: ...

    def observe(self, round_index: int, weights: Tensor) -> None:
        """See the global weights [d] that a round begins with."""

    def state_dict(self) -> dict[str, object]:
        """Return what the next round needs, for the checkpoint."""

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Restore what ``state_dict`` gave."""

    def note_norms(self, round_index: int, cohort: np.ndarray, norms: np.ndarray) -> None:
        """Note the norm of what each client of the cohort sent [c]."""

    def take_norms(self) -> dict[str, float | None]:
        """Mean norms of what was sent since the last call, as columns of a row."""


@dataclass(frozen=True)
class RandomCopies:
    """Records [n · K, …] as K copies each of n (:class:`fedpriv.engine.Copies`)."""

    inputs: Tensor
    copies: int

    def __len__(self) -> int:
        return len(self.inputs) // self.copies

    def __getitem__(self, place: slice) -> Tensor:
        return self.inputs.unflatten(0, (-1, self.copies))[place]


@dataclass
class RunContext:
    """What an algorithm works on.

    ``seed``: of what is public and may be common to several runs; ``streams``: what decides who takes
    part, which records, and the noise; ``mechanism``: what rounds release; ``attack``: the malicious ones
    among the clients, None if all are honest; ``canaries``: of an audit, which has no attack; ``rule``: what
    combines the uploads before the server's optimiser, None: their weighted sum; ``chunk``: how many clients
    compute together, None: the whole cohort.
    """

    data: FederatedData
    model: FlatModel
    engine: Engine
    clipper: Clipper
    seed: int
    streams: SecretStreams
    mechanism: Mechanism
    attack: Attack | None = None
    canaries: Participants | None = None
    rule: CheckedRule | None = None
    private: bool = True
    probed_lots: tuple[int, ...] = ()
    chunk: int | None = None

    @property
    def others(self) -> Participants | None:
        """The clients that do as somebody else says; None: all are honest."""
        return self.attack if self.canaries is None else self.canaries

    def records_of(self, round_index: int, client: int) -> np.ndarray:
        """Return the indices of the records that a client trains on in a round [n_k]."""
        others = self.attack if self.canaries is None else self.canaries
        if others is None:
            return self.data.clients[client]
        return others.records_of(round_index, client)

    def records_asked(self, round_index: int, client: int) -> np.ndarray:
        """Indices of the records whose losses a client reports [n_k]; an attacker answers honestly."""
        if self.canaries is None:
            return self.data.clients[client]
        return self.canaries.records_of(round_index, client)

    def joined_by_attackers(self, round_index: int, sampled: np.ndarray) -> np.ndarray:
        """Who takes part, ascending, given whom the algorithm sampled."""
        others = self.others
        return sampled if others is None else others.with_attackers(round_index, sampled)

    def foreign(
        self, aggregation: RoundWeights, clients: np.ndarray, uploads: Tensor
    ) -> tuple[Tensor, Foreign] | None:
        """(which of ``clients`` [c] are attackers [c] (bool), what they send [c, d]), given what all would
        send if they were honest; None where nobody attacks. Rows of honest clients mean nothing."""
        if self.others is None:
            return None
        sent = self.others.uploads(aggregation, clients, uploads)
        rows = torch.from_numpy(np.isin(clients, self.others.attackers)).to(uploads.device)
        return rows, Foreign(sent)

    def note_sent(self, round_index: int, cohort: np.ndarray, norms: Tensor) -> None:
        """Let the attack note the norm of what each client of the cohort sent [c], for the analyst."""
        if self.canaries is None and self.attack is not None:
            self.attack.note_norms(round_index, cohort, norms.cpu().numpy())

    def prove_engine(self, copies: int | None = None) -> None:
        """Let the engine compare its rules with autograd on records that read no data, each of so many
        ``copies``: a run must not stop, nor change its engine, for what is in private ones. Raises
        ConfigError."""
        inputs, targets = self.random_records(4 * (copies or 1))
        self.engine.clipped_sums(
            inputs if copies is None else RandomCopies(inputs, copies),
            targets[:4],
            torch.zeros(4, dtype=torch.int64),
            1,
            lambda norms, clients: torch.ones_like(norms),
        )

    def random_records(self, records: int) -> tuple[Tensor, Tensor]:
        """(inputs [records, …], targets) that read no data: uniform noise with uniform labels, unless
        the model brings ``random_records``, as one of text does."""
        stream, data = torch_stream(self.seed, "initial_clip_norm"), self.data
        draw = getattr(self.model.module, "random_records", None)
        if draw is not None:
            inputs, targets = draw(records, stream)
        else:
            inputs = torch.rand(records, *data.input_shape, generator=stream)
            targets = torch.randint(data.classes, (records,), generator=stream)
        return inputs.to(self.model.device), targets.to(self.model.device)
