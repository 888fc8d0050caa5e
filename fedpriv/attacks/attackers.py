"""The attackers of one run: who takes part, what they see, and the uploads that they send.

Attackers are made once a run, with its data. They decide which records they train on and what they send. They
may remember what they see, for instance the global weights of every round.

Their randomness has streams of its own, which follow from ``attack.seed``. Honest clients draw from the
streams of the run. A run with an attack is another run than the same without one: lots, cohorts and noise
differ, unless both runs are ``paired``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor

from fedpriv.algorithms.run_context import RoundWeights, RunContext
from fedpriv.algorithms.uploads import LocalChanges, Projection
from fedpriv.attacks.names import FIXED, NOISED_UPLOADS, RAW_UPLOADS
from fedpriv.common.errors import ArgumentError, ConfigError, ReleaseError
from fedpriv.common.random_streams import numpy_stream
from fedpriv.common.saved import Saved

if TYPE_CHECKING:
    from fedpriv.data.federated import FederatedData
    from fedpriv.data.records import Records


class AttackSettings(Protocol):
    """The settings that all attackers read.

    :class:`fedpriv.attacks.Attack` has them. The type is not that class, whose module imports this one.
    """

    participation: str
    dp_steps: str
    local_epochs: int
    batch_size: int
    learning_rate: float
    seed: int

    def attacks_in(self, round_index: int) -> bool: ...

    def attackers_among(self, clients: int) -> np.ndarray: ...

    def knowledge(self, algorithm: Any) -> tuple[str, ...]: ...

    def sends_after_release(self, algorithm: Any) -> bool: ...


class Attackers(Saved):
    """The attackers of one run; a class of your own extends this one or a class below it.

    An attack that remembers something overrides ``observe``, and saves what it remembers in ``state_dict``
    and ``load_state_dict``.

    Args:
        settings: The settings of the attack.
        data: The data of the run.

    Attributes:
        settings: The settings of the attack.
        data: The data that the run is to use.
        attackers: Numbers of the clients that attack [a], ascending.
        honest: Mask of the clients that do not attack [K] (bool).
        untouched: Numbers of the data set's own records that the run may use, ascending.
        test: Records on which a backdoor is tested, with the targets that the attackers want; None where
            there is no backdoor.
        whole_round: Whether all attackers of a round forge together, from the uploads of that round. Else
            each attacker's upload follows from its own training.
        sees_uploads: Whether attackers see uploads of honest clients before they send their own.
        sees_raw_uploads: Whether they see these uploads before noise.

    Raises:
        ConfigError: The data have too few records or clients for the attack.

    Example:
        >>> class Flipped(Attackers):
        ...     whole_round = True
        ...
        ...     def forge(self, round_index, clients, uploads, others):
        ...         return -uploads
    """

    whole_round: ClassVar[bool] = False
    sees_uploads = False
    sees_raw_uploads = False
    test: Records | None = None

    def __init__(self, settings: AttackSettings, data: FederatedData):
        self.settings, self.data = settings, data
        try:
            self.attackers = settings.attackers_among(data.client_count)
        except ArgumentError as error:
            raise error.within("attack") from None
        self.honest = np.ones(data.client_count, dtype=bool)
        self.honest[self.attackers] = False
        self.untouched = np.arange(len(data.train))
        self._forget_norms()

    def join(self, context: RunContext) -> None:
        """Take part in a run on ``data``.

        Args:
            context: The parts of the run; its attribute ``attack`` becomes this object.

        Raises:
            ConfigError: The attackers count on uploads of honest clients (``sees_uploads``), which nobody
                sees where they act.
        """
        algorithm = context.mechanism.algorithm
        if self.sees_uploads and not self.whole_round and algorithm.unit != "record":
            raise ConfigError(
                f"attack: {type(self).__name__} sees the uploads of honest clients (sees_uploads), which at "
                f"client level (algorithm={algorithm.name}) nobody sees before they are clipped and noised"
            )
        # Held here as well, since a class of the user's own may say that it sees uploads.
        known = self.settings.knowledge(algorithm)
        afterwards = algorithm.unit == "record" or self.sends_after_release(algorithm)
        needed = RAW_UPLOADS if self.sees_raw_uploads or not afterwards else NOISED_UPLOADS
        if (self.sees_uploads or self.sees_raw_uploads) and needed not in known:
            raise ConfigError(
                "attack.knows",
                list(known),
                f"a list with {needed}",
                f"{type(self).__name__} sees the uploads of honest clients (sees_uploads)",
            )
        self._training = PoisonedTraining(context, self.settings)
        context.attack = self

    # ---- to override

    def observe(self, round_index: int, weights: Tensor) -> None:
        """See the global weights at the start of a round; called in every round. The default does nothing.

        Args:
            round_index: The round, 0-based.
            weights: Global weights θ_t [d], a copy that may be kept.
        """

    def forge(
        self, round_index: int, clients: np.ndarray, uploads: Tensor, others: Tensor | None
    ) -> Tensor:
        """Return what attackers send; here what their training gave.

        Args:
            round_index: The round, 0-based.
            clients: The attackers that take part [a], ascending.
            uploads: What they would send otherwise [a, d].
            others: The uploads of the honest clients of the round that the attackers see [h, d]; None unless
                ``sees_uploads``.

        Returns:
            The uploads of the attackers [a, d].
        """
        return uploads

    # ---- the interface of the round (fedpriv.algorithms.run_context.MaliciousParticipants)

    def with_attackers(self, round_index: int, cohort: np.ndarray) -> np.ndarray:
        """Return who takes part in a round.

        Args:
            round_index: The round, 0-based.
            cohort: Clients that the algorithm sampled, ascending.

        Returns:
            The cohort, with all attackers if they join every attacked round, ascending.
        """
        if self.settings.participation == FIXED and self.settings.attacks_in(round_index):
            return np.union1d(cohort, self.attackers)
        return cohort

    def records_of(self, round_index: int, client: int) -> np.ndarray:
        """Return the records that a client trains on; here its own.

        Args:
            round_index: The round, 0-based.
            client: Number of the client.
        """
        return self.data.clients[client]

    def sends_after_release(self, algorithm: Any) -> bool:
        """Return whether attackers put uploads into the place of released ones.

        Args:
            algorithm: The algorithm of the run.
        """
        return self.whole_round and self.settings.sends_after_release(algorithm)

    def malicious_among(self, round_index: int, clients: np.ndarray) -> np.ndarray:
        """Return a mask of the clients that attack in a round [c].

        Args:
            round_index: The round, 0-based.
            clients: Numbers of clients [c].
        """
        return ~self.honest[clients] & self.settings.attacks_in(round_index)

    def uploads(self, aggregation: RoundWeights, clients: np.ndarray, uploads: Tensor) -> Tensor:
        """Return what some clients of the cohort send.

        In an attacked round the rows of attackers are replaced; other rows stay as they are. Where the
        attackers forged their uploads together before (``aggregation.forged``), these are their rows.

        Args:
            aggregation: The round, and the weight of each upload in it.
            clients: Numbers of the clients [c], ascending.
            uploads: What they would send if all were honest [c, d].

        Returns:
            Their uploads [c, d].

        Raises:
            ReleaseError: An overridden method returned another shape.
        """
        malicious = self.malicious_among(aggregation.round_index, clients)
        if malicious.any():
            rows = torch.from_numpy(np.flatnonzero(malicious)).to(uploads.device)
            attackers = clients[malicious]
            forged = aggregation.forged_by(attackers)
            if forged is None:
                others = uploads[torch.from_numpy(~malicious)] if self.sees_uploads else None
                trained = self._trained(aggregation, attackers, uploads[rows])
                forged = self._sent(aggregation, attackers, trained, others)
            uploads = uploads.clone()
            uploads[rows] = forged
        return uploads

    def _trained(self, aggregation: RoundWeights, clients: np.ndarray, followed: Tensor) -> Tensor:
        """Return what attackers would send by their training alone [a, d].

        Args:
            aggregation: The round, and the weight of each upload in it.
            clients: The attackers that take part [a].
            followed: What the algorithm's own training gave [a, d].
        """
        return followed

    def _sent(
        self,
        aggregation: RoundWeights,
        clients: np.ndarray,
        trained: Tensor,
        others: Tensor | None,
    ) -> Tensor:
        """Return what attackers send in the end [a, d]; the arguments are those of :meth:`forge`."""
        sent = self.forge(aggregation.round_index, clients, trained, others)
        return self._of_shape(trained, sent, "forge")

    def _of_shape(self, given: Tensor, returned: Tensor, method: str) -> Tensor:
        """Return the tensor that an overridden method returned; ReleaseError if its shape is wrong."""
        shape = getattr(returned, "shape", None)
        if shape != given.shape:
            actual = type(returned).__name__ if shape is None else f"shape {tuple(shape)}"
            raise ReleaseError(
                f"{type(self).__name__}.{method} must return a tensor of shape {tuple(given.shape)}, "
                f"got {actual}"
            )
        return returned

    @property
    def active(self) -> bool:
        """True if any upload was malicious since the norms were last taken."""
        return self._norms["malicious"][1] > 0

    def take_norms(self) -> dict[str, float | None]:
        """Return the mean ‖u‖ of honest and of malicious uploads since the last call, as CSV columns.

        A mean is None where there was no such upload. The call forgets the norms.
        """
        means = {
            f"update_norm_{who}": None if not count else total / count
            for who, (total, count) in self._norms.items()
        }
        self._forget_norms()
        return means

    def note_norms(self, round_index: int, cohort: np.ndarray, norms: np.ndarray) -> None:
        """Note the norms of a round's uploads, for the analyst.

        Args:
            round_index: The round, 0-based.
            cohort: The clients of the round [c].
            norms: Norm of what each client sent [c].
        """
        malicious = self.malicious_among(round_index, cohort)
        for who, chosen in (("honest", ~malicious), ("malicious", malicious)):
            total, count = self._norms[who]
            self._norms[who] = (total + float(norms[chosen].sum()), count + int(chosen.sum()))

    def _forget_norms(self) -> None:
        self._norms = {"honest": (0.0, 0), "malicious": (0.0, 0)}


class PoisonedTraining(LocalChanges):
    """The attackers' plain SGD on clean and poisoned records."""

    def __init__(self, context: RunContext, settings: AttackSettings):
        super().__init__(
            context, settings.local_epochs, settings.batch_size, settings.learning_rate
        )
        self.settings = settings

    def changes(
        self,
        round_index: int,
        clients: np.ndarray,
        clean: dict[int, np.ndarray],
        poisoned: dict[int, np.ndarray],
        project: Projection | None,
    ) -> Tensor:
        """Return the change Δ of each client [c, d] from training on its clean and its poisoned records."""
        nothing = np.zeros(0, dtype=np.int64)
        records = [(clean.get(int(k), nothing), poisoned.get(int(k), nothing)) for k in clients]
        purpose = "attack_batches" if poisoned else "attack_benign_batches"

        def order(client: int, epoch: int) -> np.ndarray:
            stream = numpy_stream(
                self.settings.seed, purpose, round_index, epoch, int(clients[client])
            )
            return mixed(*records[client], stream)

        sizes = [len(clean_part) + len(poisoned_part) for clean_part, poisoned_part in records]
        train = self.context.data.train
        return self._train(train.inputs, train.targets, sizes, order, project).uploads


def mixed(clean: np.ndarray, poisoned: np.ndarray, stream: np.random.Generator) -> np.ndarray:
    """Return both kinds of records in random order, the poisoned ones spread evenly over the batches.

    Args:
        clean: Numbers of clean records.
        poisoned: Numbers of poisoned records.
        stream: Random stream of the order within each kind.

    Example:
        >>> order = mixed(np.arange(4), np.array([10, 11]), np.random.default_rng(0))
        >>> (order >= 10).tolist()
        [False, True, False, False, True, False]
    """
    positions = np.concatenate(
        [(np.arange(len(part)) + 0.5) / max(1, len(part)) for part in (clean, poisoned)]
    )
    both = np.concatenate([stream.permutation(clean), stream.permutation(poisoned)])
    return both[np.argsort(positions, kind="stable")]
