"""Malicious clients at work: poisoned records, their own training, boosting, projection.

They are the ``attack`` of an algorithm's problem: which records a client trains on, what it sends. They are
made once a run, with its data, and may remember what they see: the global weights of every round.
Their randomness has streams of its own, which follow from ``attack.seed``. Honest clients draw from the
streams of the run, and a run with an attack is another run than one without: its lots, cohorts and noise are
others, unless both are ``paired``.
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
from fedpriv.common.errors import ArgumentError, ConfigError, ReleaseError
from fedpriv.common.random_streams import numpy_stream
from fedpriv.common.saved import Saved
from fedpriv.data.records import Records

if TYPE_CHECKING:
    from fedpriv.attacks.triggers import Trigger
    from fedpriv.data.federated import FederatedData


class AttackSettings(Protocol):
    """The settings that the attackers read; see :class:`fedpriv.attacks.Backdoor`."""

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

    An attack that remembers something extends this class. It overrides ``observe``, ``constrain`` or
    ``forge``, and saves what it keeps: ``state_dict``, ``load_state_dict``.

    Attributes:
        settings: The settings of the attack.
        data: The run's data with the attackers' poisoned records behind the others (the clients'
            lists name none of them) and without what the trigger withholds.
        attackers: Who attacks, ascending [a].
        honest: Which clients do not attack [K] (bool).
        untouched: The numbers of the records that are the data set's own and not withheld, ascending.
        test: Records on which the backdoor is tested; the targets are what the attackers want.
        sees_uploads: Whether the threat model lets attackers see what the server sees of honest clients'
            uploads, at record level, before they send their own. Else they see the global weights alone.
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
        made = [data.train]
        for k in self.attackers.tolist():
            own, stream = clients[k], numpy_stream(settings.seed, "poison", k)
            count = max(1, round(settings.poisoned_fraction * len(own)))
            order = stream.permutation(own)
            self._clean[k] = np.sort(order[count:])
            first = sum(map(len, made))
            self._poisoned[k] = np.arange(first, first + count)
            made.append(planted.poison(data.train.subset(order[:count]), stream))
        train = Records(
            torch.cat([part.inputs for part in made]), torch.cat([part.targets for part in made])
        )
        self.data = replace(data, train=train, clients=clients)
        self._forget_norms()

    def join(self, context: RunContext) -> None:
        """Take part in a run on ``data``. Raises ConfigError where nobody sees the uploads that the
        threat model counts on."""
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
        """See the global weights [d] that a round (0-based) begins with. Called in every round."""

    def constrain(self, round_index: int, clients: np.ndarray, changes: Tensor) -> Tensor:
        """Return the changes of weights [a, d] that attackers allow themselves.

        Called after every batch of their own training (``dp_steps=skip``), or with the changes that the
        algorithm's training gave (``follow``). Boost and norm bound come after it.
        """
        return changes

    def forge(
        self, round_index: int, clients: np.ndarray, uploads: Tensor, others: Tensor | None
    ) -> Tensor:
        """Return what attackers send [a, d]: here what their training gave.

        Args:
            round_index: The round, 0-based.
            clients: The attackers that take part [a], ascending.
            uploads: What they would send by training, boost and norm bound [a, d].
            others: What the server sees of the honest clients of the round [h, d]; None unless
                ``sees_uploads``.
        """
        return uploads

    # ---- what they do

    def with_attackers(self, round_index: int, cohort: np.ndarray) -> np.ndarray:
        """Who takes part: the clients that the algorithm drew, and the attackers where they come anyway."""
        if self.settings.participation == FIXED and self.settings.attacks_in(round_index):
            return np.union1d(cohort, self.attackers)
        return cohort

    def records_of(self, round_index: int, client: int) -> np.ndarray:
        """What a client's local training reads; poisoned for an attacker that follows the algorithm."""
        follows = self.settings.dp_steps == FOLLOW and self.settings.attacks_in(round_index)
        if self.honest[client] or not follows:
            return self.data.clients[client]
        return np.concatenate([self._clean[client], self._poisoned[client]])

    def uploads(self, aggregation: RoundWeights, clients: np.ndarray, uploads: Tensor) -> Tensor:
        """What ``clients`` [c] send, given what they would if all were honest [c, d]."""
        malicious = ~self.honest[clients] & self.settings.attacks_in(aggregation.round_index)
        if malicious.any():
            where = torch.from_numpy(np.flatnonzero(malicious)).to(uploads.device)
            others = uploads[torch.from_numpy(~malicious)] if self.sees_uploads else None
            uploads = uploads.clone()
            attackers, t = clients[malicious], aggregation.round_index
            trained = self._trained(aggregation, attackers, uploads[where])
            sent = self.forge(t, attackers, trained, others)
            uploads[where] = self._of_shape(trained, sent, "forge")
        return uploads

    def _trained(self, aggregation: RoundWeights, clients: np.ndarray, own: Tensor) -> Tensor:
        """Return what attackers [a] would send by their training, boost and norm bound [a, d]; ``own``: by
        the algorithm's training."""
        settings, local_step = self.settings, aggregation.round_index
        boost = torch.from_numpy(self._boosts(aggregation, clients)).to(own)[:, None]
        if settings.dp_steps == FOLLOW:
            sent = self._constrained(local_step, clients, own) * boost
        else:
            constrains = type(self).constrain is not MaliciousClients.constrain
            radius = None if settings.norm_bound is None else settings.norm_bound / boost

            def project(radius: Tensor | None, weights: Tensor, start: Tensor) -> None:
                if constrains:  # else changes + start would round
                    allowed = self._constrained(local_step, clients, weights - start)
                    weights.copy_(allowed.add(start))
                if radius is not None:
                    project_to_ball(weights, start, radius)

            train, bounded = self._training.changes, partial(project, radius)
            if settings.boosted == MALICIOUS_PART:
                bad = train(local_step, clients, {}, self._poisoned, bounded)
                clean = dict(enumerate(self.data.clients))
                good = train(local_step, clients, clean, {}, partial(project, None))
                sent = good.add_(bad.mul_(boost))
            else:
                sent = train(local_step, clients, self._clean, self._poisoned, bounded).mul_(boost)
        if settings.norm_bound is not None:
            project_to_ball(sent, torch.zeros_like(sent[0]), settings.norm_bound)
        return sent

    def _constrained(self, round_index: int, clients: np.ndarray, changes: Tensor) -> Tensor:
        allowed = self.constrain(round_index, clients, changes)
        return self._of_shape(changes, allowed, "constrain")

    def _of_shape(self, given: Tensor, returned: Tensor, method: str) -> Tensor:
        """Return what a method made of a tensor. Raises ReleaseError where the shape is another one."""
        shape, wanted = getattr(returned, "shape", None), tuple(given.shape)
        if shape != given.shape:
            what = type(returned).__name__ if shape is None else f"shape {tuple(shape)}"
            raise ReleaseError(
                f"{type(self).__name__}.{method} must return a tensor of shape {wanted}, got {what}"
            )
        return returned

    def _boosts(self, aggregation: RoundWeights, clients: np.ndarray) -> np.ndarray:
        """γ of each attacker [c]."""
        if self.settings.boost != REPLACEMENT:
            return np.full(len(clients), self.settings.boost)
        attackers = int((~self.honest[aggregation.cohort]).sum())
        assert aggregation.weights is not None  # replacement is refused with another optimiser
        weights = aggregation.weights[np.searchsorted(aggregation.cohort, clients)]
        return 1.0 / (weights * attackers)

    @property
    def active(self) -> bool:
        """Whether anyone attacked since the norms were last taken."""
        return self._norms["malicious"][1] > 0

    def take_norms(self) -> dict[str, float | None]:
        """Mean ‖u‖ of honest and of malicious uploads since the last call, as columns of a row."""
        means = {
            f"update_norm_{who}": None if not count else total / count
            for who, (total, count) in self._norms.items()
        }
        self._forget_norms()
        return means

    def note_norms(self, round_index: int, cohort: np.ndarray, norms: np.ndarray) -> None:
        """Note the norm of what each client of the cohort sent [c]."""
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
        """Return Δ of each client [c, d] from its records in both (absent: none)."""
        nothing = np.zeros(0, dtype=np.int64)
        own = [(clean.get(int(k), nothing), poisoned.get(int(k), nothing)) for k in clients]
        purpose = "attack_batches" if poisoned else "attack_benign_batches"

        def order(client: int, epoch: int) -> np.ndarray:
            stream = numpy_stream(
                self.settings.seed, purpose, round_index, epoch, int(clients[client])
            )
            return mixed(*own[client], stream)

        sizes = [len(good) + len(bad) for good, bad in own]
        train = self.context.data.train
        return self._train(train.inputs, train.targets, sizes, order, project).uploads


def mixed(clean: np.ndarray, poisoned: np.ndarray, stream: np.random.Generator) -> np.ndarray:
    """Both kinds in random order, the poisoned ones spread evenly, so that every batch has its share."""
    positions = np.concatenate(
        [(np.arange(len(part)) + 0.5) / max(1, len(part)) for part in (clean, poisoned)]
    )
    both = np.concatenate([stream.permutation(clean), stream.permutation(poisoned)])
    return both[np.argsort(positions, kind="stable")]


def _without(clients: list[np.ndarray], withheld: np.ndarray) -> list[np.ndarray]:
    kept = [own[~np.isin(own, withheld)] for own in clients]
    empty = sum(1 for own in kept if not len(own))
    if empty:
        raise ConfigError(
            f"attack.trigger withholds all records of {empty} clients; take fewer, or clients with more "
            "records (partition.min_records)"
        )
    return kept
