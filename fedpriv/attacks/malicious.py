"""Malicious clients at work: poisoned records, training of their own, boosting and projection.

Attackers are made once a run, with its data. They decide which records they train on and what they send. They
may remember what they see, for instance the global weights of every round.

Their randomness has streams of its own, which follow from ``attack.seed``. Honest clients draw from the
streams of the run. A run with an attack is another run than the same without one: lots, cohorts and noise
differ, unless both runs are ``paired``.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
from torch import Tensor

from fedpriv.algorithms.run_context import RoundWeights, RunContext
from fedpriv.algorithms.uploads import LocalChanges, Projection, project_to_ball
from fedpriv.attacks.names import FIXED, FOLLOW, MALICIOUS_PART, REPLACEMENT
from fedpriv.attacks.triggers import concatenated
from fedpriv.common.errors import ArgumentError, ConfigError, ReleaseError
from fedpriv.common.random_streams import numpy_stream
from fedpriv.common.saved import Saved

if TYPE_CHECKING:
    from fedpriv.attacks.triggers import Trigger
    from fedpriv.data.federated import FederatedData


class AttackSettings(Protocol):
    """The settings that the attackers read.

    :class:`fedpriv.attacks.Backdoor` has them. The type is not that class, whose module imports this one.
    """

    trigger: Trigger
    participation: str
    poisoned_fraction: float
    dp_steps: str
    boost: float | str
    boosted: str
    norm_bound: float | None
    local_epochs: int
    batch_size: int
    learning_rate: float
    seed: int

    def attacks_in(self, round_index: int) -> bool: ...

    def attackers_among(self, clients: int) -> np.ndarray: ...


class MaliciousClients(Saved):
    """The attackers of one run.

    An attack that remembers something extends this class. The subclass overrides ``observe``, ``constrain``
    or ``forge``, and saves what it remembers in ``state_dict`` and ``load_state_dict``. In a round t that is
    attacked, the server receives from attacker k

        u_k = forge(Π_M(γ · constrain(θ_k - θ_t)))

    where θ_k are the weights after the attacker's training, γ is the boost, and Π_M projects onto the ball of
    radius ``norm_bound``. (With training of its own, ``dp_steps=skip``, ``constrain`` applies after every
    batch.)

    Args:
        settings: The settings of the attack.
        data: The data of the run, without poisoned records.

    Attributes:
        settings: The settings of the attack.
        data: The run's data, with the attackers' poisoned records behind the others and without the records
            that the trigger withholds. The record lists of the clients name no poisoned record.
        attackers: Numbers of the clients that attack [a], ascending.
        honest: Mask of the clients that do not attack [K] (bool).
        untouched: Numbers of the data set's own records that are not withheld, ascending.
        test: Records on which the backdoor is tested; the targets are those that the attackers want.
        sees_uploads: Whether attackers see what the server sees of honest clients' uploads, at record level,
            before they send their own. Otherwise they see the global weights alone.

    Raises:
        ConfigError: The data have too few records or clients for the attack.

    Example:
        >>> class Flipped(MaliciousClients):
        ...     def forge(self, round_index, clients, uploads, others):
        ...         return -uploads
    """

    sees_uploads = False

    def __init__(self, settings: AttackSettings, data: FederatedData):
        self.settings = settings
        try:
            self.attackers = settings.attackers_among(data.client_count)
        except ArgumentError as error:
            raise error.within("attack") from None
        self.honest = np.ones(data.client_count, dtype=bool)
        self.honest[self.attackers] = False
        stream = numpy_stream(settings.seed, "trigger")
        planted = settings.trigger.plant(data, np.flatnonzero(self.honest), stream)
        self.test = planted.test
        clients = _without(data.clients, planted.withheld)
        self.untouched = np.setdiff1d(np.arange(len(data.train)), planted.withheld)
        self._clean: dict[int, np.ndarray] = {}
        self._poisoned: dict[int, np.ndarray] = {}
        parts = [data.train]  # then the poisoned records of each attacker
        for k in self.attackers.tolist():
            stream = numpy_stream(settings.seed, "poison", k)
            count = max(1, round(settings.poisoned_fraction * len(clients[k])))
            order = stream.permutation(clients[k])
            self._clean[k] = np.sort(order[count:])
            first = sum(map(len, parts))
            self._poisoned[k] = np.arange(first, first + count)
            parts.append(planted.poison(data.train.subset(order[:count]), stream))
        self.data = replace(data, train=concatenated(parts), clients=clients)
        self._forget_norms()

    def join(self, context: RunContext) -> None:
        """Take part in a run on ``data``.

        Args:
            context: The parts of the run; its attribute ``attack`` becomes this object.

        Raises:
            ConfigError: The attackers count on uploads of honest clients (``sees_uploads``), which nobody
                sees at client level.
        """
        algorithm = context.mechanism.algorithm
        if self.sees_uploads and algorithm.unit != "record":
            raise ConfigError(
                f"attack: {type(self).__name__} sees the uploads of honest clients (sees_uploads), which at "
                f"client level (algorithm={algorithm.name}) nobody sees before they are clipped and noised"
            )
        self._training = _PoisonedTraining(context, self.settings)
        context.attack = self

    # ---- to override

    def observe(self, round_index: int, weights: Tensor) -> None:
        """See the global weights at the start of a round; called in every round. The default does nothing.

        Args:
            round_index: The round, 0-based.
            weights: Global weights θ_t [d], a copy that may be kept.
        """

    def constrain(self, round_index: int, clients: np.ndarray, changes: Tensor) -> Tensor:
        """Return the changes of weights that attackers allow themselves.

        Called after every batch of their own training (``dp_steps=skip``), or once with the changes that the
        algorithm's training gave (``follow``). Boost and norm bound come after it.

        Args:
            round_index: The round, 0-based.
            clients: The attackers that take part [a], ascending.
            changes: Change of the weights of each attacker so far in this round [a, d].

        Returns:
            The allowed changes [a, d]; here all of them.
        """
        return changes

    def forge(
        self, round_index: int, clients: np.ndarray, uploads: Tensor, others: Tensor | None
    ) -> Tensor:
        """Return what attackers send; here what their training gave.

        Args:
            round_index: The round, 0-based.
            clients: The attackers that take part [a], ascending.
            uploads: What they would send by training, boost and norm bound [a, d].
            others: What the server sees of the honest clients of the round [h, d]; None unless
                ``sees_uploads``.

        Returns:
            The uploads of the attackers [a, d].
        """
        return uploads

    # ---- the interface of the round (fedpriv.algorithms.run_context.Attack)

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
        """Return the records that a client trains on.

        Those of an attacker that follows the algorithm's training (``dp_steps=follow``) are partly poisoned
        in attacked rounds. All other clients, and attackers in other rounds, train on their own.

        Args:
            round_index: The round, 0-based.
            client: Number of the client.
        """
        follows = self.settings.dp_steps == FOLLOW and self.settings.attacks_in(round_index)
        if self.honest[client] or not follows:
            return self.data.clients[client]
        return np.concatenate([self._clean[client], self._poisoned[client]])

    def uploads(self, aggregation: RoundWeights, clients: np.ndarray, uploads: Tensor) -> Tensor:
        """Return what some clients of the cohort send.

        In an attacked round the rows of attackers are replaced; other rows stay as they are.

        Args:
            aggregation: The round, and the weight of each upload in it.
            clients: Numbers of the clients [c], ascending.
            uploads: What they would send if all were honest [c, d].

        Returns:
            Their uploads [c, d].

        Raises:
            ReleaseError: An overridden method returned another shape.
        """
        malicious = ~self.honest[clients] & self.settings.attacks_in(aggregation.round_index)
        if malicious.any():
            rows = torch.from_numpy(np.flatnonzero(malicious)).to(uploads.device)
            others = uploads[torch.from_numpy(~malicious)] if self.sees_uploads else None
            uploads = uploads.clone()
            attackers, t = clients[malicious], aggregation.round_index
            trained = self._trained(aggregation, attackers, uploads[rows])
            sent = self.forge(t, attackers, trained, others)
            uploads[rows] = self._of_shape(trained, sent, "forge")
        return uploads

    def _trained(self, aggregation: RoundWeights, clients: np.ndarray, followed: Tensor) -> Tensor:
        """Return what attackers would send by their training, boost and norm bound [a, d].

        Args:
            aggregation: The round, and the weight of each upload in it.
            clients: The attackers that take part [a].
            followed: The changes that the algorithm's own training gave [a, d].
        """
        settings, t = self.settings, aggregation.round_index
        boost = torch.from_numpy(self._boosts(aggregation, clients)).to(followed)[:, None]
        if settings.dp_steps == FOLLOW:
            sent = self._constrained(t, clients, followed) * boost
        else:
            constrains = type(self).constrain is not MaliciousClients.constrain
            radius = None if settings.norm_bound is None else settings.norm_bound / boost

            def project(radius: Tensor | None, weights: Tensor, start: Tensor) -> None:
                # Only where a subclass constrains: (weights - start) + start is not weights, it rounds.
                if constrains:
                    allowed = self._constrained(t, clients, weights - start)
                    weights.copy_(allowed.add(start))
                if radius is not None:
                    project_to_ball(weights, start, radius)

            train, bounded = self._training.changes, partial(project, radius)
            if settings.boosted == MALICIOUS_PART:
                malicious = train(t, clients, {}, self._poisoned, bounded)
                clean = dict(enumerate(self.data.clients))
                benign = train(t, clients, clean, {}, partial(project, None))
                sent = benign.add_(malicious.mul_(boost))
            else:
                sent = train(t, clients, self._clean, self._poisoned, bounded).mul_(boost)
        if settings.norm_bound is not None:
            project_to_ball(sent, torch.zeros_like(sent[0]), settings.norm_bound)
        return sent

    def _constrained(self, round_index: int, clients: np.ndarray, changes: Tensor) -> Tensor:
        allowed = self.constrain(round_index, clients, changes)
        return self._of_shape(changes, allowed, "constrain")

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

    def _boosts(self, aggregation: RoundWeights, clients: np.ndarray) -> np.ndarray:
        """Return γ of each attacker [c]."""
        if self.settings.boost != REPLACEMENT:
            return np.full(len(clients), self.settings.boost)
        attackers = int((~self.honest[aggregation.cohort]).sum())
        assert aggregation.weights is not None  # replacement is refused with another optimiser
        weights = aggregation.weights[np.searchsorted(aggregation.cohort, clients)]
        return 1.0 / (weights * attackers)

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
        malicious = ~self.honest[cohort] & self.settings.attacks_in(round_index)
        for who, chosen in (("honest", ~malicious), ("malicious", malicious)):
            total, count = self._norms[who]
            self._norms[who] = (total + float(norms[chosen].sum()), count + int(chosen.sum()))

    def _forget_norms(self) -> None:
        self._norms = {"honest": (0.0, 0), "malicious": (0.0, 0)}


class _PoisonedTraining(LocalChanges):
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
        project: Projection,
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


def _without(clients: list[np.ndarray], withheld: np.ndarray) -> list[np.ndarray]:
    """Return each client's records without those withheld; ConfigError if a client would have none."""
    remaining = [records[~np.isin(records, withheld)] for records in clients]
    empty = sum(not len(records) for records in remaining)
    if empty:
        raise ConfigError(
            f"attack.trigger withholds all records of {empty} clients; take fewer, or clients with more "
            "records (partition.min_records)"
        )
    return remaining
