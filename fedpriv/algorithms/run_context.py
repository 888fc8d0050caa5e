"""Everything an algorithm works on: data, model, engine, clipper, mechanism and secret streams."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from fedpriv.common.errors import ConfigError
from fedpriv.common.random_streams import torch_stream
from fedpriv.common.secret_streams import SecretStreams
from fedpriv.data.records import LANGUAGE_MODEL
from fedpriv.engine import Engine, FlatModel
from fedpriv.privacy.clippers.base import Clipper
from fedpriv.privacy.core.sampling import PoissonSampling, Sampling, poisson_lots, sample_lot
from fedpriv.privacy.mechanisms.mechanism import Mechanism
from fedpriv.privacy.mechanisms.visible import Foreign

if TYPE_CHECKING:
    from fedpriv.aggregation.run_rule import RunRule
    from fedpriv.data.federated import FederatedData
    from fedpriv.data.records import Records


Task = TypeVar("Task")
Answer = TypeVar("Answer")

_MANY_LOTS = 64  # from so many lots on, those of clients that sample alike are drawn together

RECORDS_OF_NOISE = 256
"""Number of random records on which the initial norm of a unit is measured."""


@dataclass(frozen=True)
class RoundWeights:
    """Effect of the uploads of a round on the global weights, clipping and noise aside; attackers know it.

        θ ← θ + Σ_k weights_k u_k

    Attributes:
        round_index: The round.
        cohort: Clients that take part [m].
        weights: Weight of each upload [m]; None where the server step is not linear in the uploads.
        forgers: Attackers that forged their uploads together before the cohort computes [a], ascending;
            None: they did not.
        forged: What they forged [a, d].
    """

    round_index: int
    cohort: np.ndarray
    weights: np.ndarray | None
    forgers: np.ndarray | None = None
    forged: Tensor | None = None

    def forged_by(self, clients: np.ndarray) -> Tensor | None:
        """Return what some of the forgers forged [c, d]; None where nobody forged before the cohort computes.

        Args:
            clients: Some of ``forgers`` [c].
        """
        if self.forgers is None or self.forged is None:
            return None
        return self.forged[torch.from_numpy(np.searchsorted(self.forgers, clients))]

    def of_chunk(self, clients: np.ndarray) -> RoundWeights:
        """Return the same with the forged uploads of some clients alone.

        Args:
            clients: The clients of a chunk [c].
        """
        if self.forgers is None:
            return self
        forgers = self.forgers[np.isin(self.forgers, clients)]
        return replace(self, forgers=forgers, forged=self.forged_by(forgers))


class Participants(Protocol):
    """Clients under somebody else's control: a transform of local data, and one of uploads.

    Attributes:
        attackers: Numbers of the clients whose uploads are replaced.
    """

    attackers: np.ndarray

    def with_attackers(self, round_index: int, cohort: np.ndarray) -> np.ndarray:
        """Return the clients that take part: those the algorithm sampled, and attackers that come anyway.

        Args:
            round_index: The round, 0-based.
            cohort: Clients that the algorithm sampled, ascending [c].

        Returns:
            Client numbers, ascending. Absent canary clients are not among them.
        """

    def records_of(self, round_index: int, client: int) -> np.ndarray:
        """Return the indices of the records that a client trains on in a round.

        Args:
            round_index: The round, 0-based.
            client: Number of the client.

        Returns:
            Indices [n_k], equally many in every round of a run.
        """

    def uploads(self, aggregation: RoundWeights, clients: np.ndarray, uploads: Tensor) -> Tensor:
        """Return what some clients of the cohort send.

        The method is pure, so that clients may be computed in chunks.

        Args:
            aggregation: What becomes of the uploads.
            clients: Some clients of the cohort [c].
            uploads: What they would send if all were honest [c, d].

        Returns:
            What they send [c, d].
        """


class MaliciousParticipants(Participants, Protocol):
    """Malicious clients, with the state and the records of their attack.

    Attributes:
        settings: Settings of the attack.
        test: Records on which the success of a backdoor is measured; None: the attack is no backdoor.
        whole_round: Whether all attackers of a round forge together, from the uploads of that round.
        sees_uploads: Whether they see uploads of honest clients before they send their own.
        sees_raw_uploads: Whether these are the uploads before noise.
    """

    settings: Any
    sees_uploads: bool
    sees_raw_uploads: bool

    @property
    def test(self) -> Records | None: ...

    @property
    def whole_round(self) -> bool: ...

    @property
    def active(self) -> bool:
        """True if the attack takes place in some round."""

    def sends_after_release(self, algorithm: Any) -> bool:
        """Return whether attackers put uploads into the place of released ones."""

    def malicious_among(self, round_index: int, clients: np.ndarray) -> np.ndarray:
        """Return a mask of the clients that attack in a round [c]."""

    def observe(self, round_index: int, weights: Tensor) -> None:
        """Take note of the global weights [d] that a round begins with."""

    def state_dict(self) -> dict[str, object]:
        """Return what the next round needs, for the checkpoint."""

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Restore what ``state_dict`` returned."""

    def note_norms(self, round_index: int, cohort: np.ndarray, norms: np.ndarray) -> None:
        """Note the norm of what each client of the cohort sent, for the analyst.

        Args:
            round_index: The round, 0-based.
            cohort: The clients of the round [c].
            norms: Norm of each upload [c].
        """

    def take_norms(self) -> dict[str, float | None]:
        """Return mean norms of what was sent since the last call, as columns of a row."""


class SharesChunks(Protocol):
    """Processes that share the chunks of a step; whoever computes a chunk, its answer has the same bits.

    Attributes:
        line: Prints a line for the user.
        cpu_seconds: Processor time of the other processes.
    """

    line: Callable[[str], None]
    cpu_seconds: float

    def map(self, compute: Callable[[Any], Any], tasks: Sequence[Any]) -> Iterator[Any]:
        """Compute the tasks of one step, and yield their answers in the order of the tasks."""


@dataclass(frozen=True)
class RandomCopies:
    """Random records [n · K, …] taken as K copies each of n records (:class:`fedpriv.engine.Copies`)."""

    inputs: Tensor
    copies: int

    def __len__(self) -> int:
        return len(self.inputs) // self.copies

    def __getitem__(self, place: slice) -> Tensor:
        return self.inputs.unflatten(0, (-1, self.copies))[place]


@dataclass
class RunContext:
    """Everything an algorithm works on in one run.

    Attributes:
        data: Records, and their partition over K clients.
        model: The model with its flat weights θ [d].
        engine: The engine that computes clipped sums of per-record gradients.
        clipper: The rule of the clip norms.
        seed: Seed of what is public and may be common to several runs.
        streams: Secret streams, which decide who takes part, with which records, and the noise.
        mechanism: The releases of each round.
        attack: The malicious clients; None if all are honest.
        canaries: The canaries of an audit, which has no attack; None: no audit.
        rule: The rule that combines uploads before the server's optimiser; None: their weighted sum.
        private: Whether the run claims privacy.
        chunk: Number of clients that compute together; None: the whole cohort.
        shares: The processes that share the chunks; None: this process computes all of them.
        original: The data before attackers and canaries changed them, for a warm start that is still to come;
            None: no warm start reads them.

    Example:
        >>> from fedpriv.algorithms import DpFl
        >>> from fedpriv.algorithms.server_steps import WeightedAverage
        >>> class Mine(DpFl):
        ...     def server_step(self, context):
        ...         return WeightedAverage(context.model, context.data.records_per_client)
    """

    data: FederatedData
    model: FlatModel
    engine: Engine
    clipper: Clipper
    seed: int
    streams: SecretStreams
    mechanism: Mechanism
    attack: MaliciousParticipants | None = None
    canaries: Participants | None = None
    rule: RunRule | None = None
    private: bool = True
    chunk: int | None = None
    shares: SharesChunks | None = None
    original: FederatedData | None = None

    @property
    def others(self) -> Participants | None:
        """Clients under somebody else's control: attackers or canaries; None if all are honest."""
        return self.attack if self.canaries is None else self.canaries

    def records_of(self, round_index: int, client: int) -> np.ndarray:
        """Return the indices of the records that a client trains on in a round [n_k]."""
        if self.others is None:
            return self.data.clients[client]
        return self.others.records_of(round_index, client)

    def records_asked(self, round_index: int, client: int) -> np.ndarray:
        """Return the indices of the records whose losses a client reports [n_k].

        An attacker answers this question honestly; a canary does not.
        """
        if self.canaries is None:
            return self.data.clients[client]
        return self.canaries.records_of(round_index, client)

    def map_chunks(
        self, compute: Callable[[Task], Answer], tasks: Sequence[Task]
    ) -> Iterator[Answer]:
        """Yield the answer of each chunk of a step, in the order of the chunks."""
        return map(compute, tasks) if self.shares is None else self.shares.map(compute, tasks)

    def sample_lots(
        self, samplings: Sequence[Sampling], round_index: int, step: int, clients: np.ndarray
    ) -> list[np.ndarray]:
        """Sample the lot of each client in a local step, from the secret streams.

        Args:
            samplings: Sampling of each client's lot [c].
            round_index: The round.
            step: The local step of the round.
            clients: Numbers of the clients [c].

        Returns:
            Indices of the records in each client's lot [c].
        """
        records = [self.records_of(round_index, int(k)) for k in clients]
        first = samplings[0] if len(samplings) >= _MANY_LOTS else None
        # Lots are drawn one by one where a sampling is the user's own, and where verification wraps records.
        if (
            isinstance(first, PoissonSampling)
            and all(type(other) is PoissonSampling and other == first for other in samplings)
            and all(type(indices) is np.ndarray for indices in records)
        ):
            return poisson_lots(self.streams, first, records, round_index, step, clients)
        lots = zip(map(int, clients), samplings, records, strict=True)
        return [
            sample_lot(self.streams, sampling, indices, round_index, step, k)
            for k, sampling, indices in lots
        ]

    def joined_by_attackers(self, round_index: int, sampled: np.ndarray) -> np.ndarray:
        """Return the clients that take part, ascending, given those that the algorithm sampled."""
        others = self.others
        return sampled if others is None else others.with_attackers(round_index, sampled)

    def foreign(
        self, aggregation: RoundWeights, clients: np.ndarray, uploads: Tensor
    ) -> tuple[Tensor, Foreign]:
        """Return what attackers send in the place of honest uploads, where ``others`` is not None.

        Args:
            aggregation: What becomes of the uploads.
            clients: Some clients of the cohort [c].
            uploads: What they would send if all were honest [c, d].

        Returns:
            (mask of the attackers among ``clients`` [c], what they send [c, d]). Rows of honest clients in
            the second have no meaning.
        """
        others = self.others
        assert others is not None
        sent = others.uploads(aggregation, clients, uploads)
        mask = torch.from_numpy(np.isin(clients, others.attackers)).to(uploads.device)
        return mask, Foreign(sent)

    def note_sent(self, round_index: int, cohort: np.ndarray, norms: Tensor) -> None:
        """Let the attack note the norm of what each client of the cohort sent [c], for the analyst."""
        if self.canaries is None and self.attack is not None:
            self.attack.note_norms(round_index, cohort, norms.cpu().numpy())

    def prove_engine(self, copies: int | None = None) -> None:
        """Let the engine compare its per-record gradients with autograd's, on four random records.

        This comes before any private record: later a run must neither stop nor change its engine because of
        what is in the records. With ``runtime.engine=auto`` the engine may change to Opacus here.

        Args:
            copies: Number of copies of each record; None: records are no copies.

        Raises:
            ConfigError: The engine cannot treat the model.
        """
        inputs, targets = self.random_records(4 * (copies or 1))
        try:
            self.engine.clipped_sums(
                inputs if copies is None else RandomCopies(inputs, copies),
                targets[:4],
                torch.zeros(4, dtype=torch.int64),
                1,
                lambda norms, clients: torch.ones_like(norms),
            )
        except RuntimeError as error:
            if "dtype" not in str(error):
                raise
            raise ConfigError(
                f"model: fedpriv computes in float32, and its gradients are not ({error}); leave out "
                "torch.autocast, .half() and torch.bfloat16"
            ) from None

    def mean_norm_on_noise(self) -> float:
        """Return the mean gradient norm of the model on random records.

        No data is read, so it costs no privacy (Fu, Chen, Han 2022: "training on random noise for one
        round").
        """
        inputs, targets = self.random_records(RECORDS_OF_NOISE)
        owners = torch.zeros(len(targets), dtype=torch.int64)
        result = self.engine.clipped_sums(
            inputs, targets, owners, 1, lambda norms, clients: torch.ones_like(norms)
        )
        return float(result.norms.mean())

    def random_records(self, records: int) -> tuple[Tensor, Tensor]:
        """Return (inputs [records, …], targets [records, …]) that are random and read no data.

        These are uniform noise or tokens with uniform labels, or the next tokens, unless the model has a
        method ``random_records``. They follow from the run's seed: each call returns the same ones.
        """
        stream, data = torch_stream(self.seed, "initial_clip_norm"), self.data
        draw = getattr(self.model.module, "random_records", None)
        if draw is not None:
            inputs, targets = draw(records, stream)
        else:
            shape = (records, *data.input_shape)
            if data.vocabulary_size is None:
                inputs = torch.rand(*shape, generator=stream)
            else:
                inputs = torch.randint(1, data.vocabulary_size, shape, generator=stream)
            targets = torch.randint(data.classes, (records,), generator=stream)
            if data.task == LANGUAGE_MODEL:
                targets = torch.nn.functional.pad(inputs[:, 1:], (0, 1))
        return inputs.to(self.model.device), targets.to(self.model.device)
