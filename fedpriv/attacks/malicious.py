"""Malicious clients that teach a backdoor: poisoned records, their training, boosting and projection."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
from torch import Tensor

from fedpriv.algorithms.run_context import RoundWeights
from fedpriv.algorithms.uploads import project_to_ball
from fedpriv.attacks.attackers import Attackers, AttackSettings
from fedpriv.attacks.names import FOLLOW, MALICIOUS_PART, REPLACEMENT
from fedpriv.attacks.triggers import concatenated
from fedpriv.common.errors import ConfigError
from fedpriv.common.random_streams import numpy_stream

if TYPE_CHECKING:
    from fedpriv.attacks.triggers import Trigger
    from fedpriv.data.client_records import ClientRecords
    from fedpriv.data.federated import FederatedData
    from fedpriv.data.records import Records


class BackdoorSettings(AttackSettings, Protocol):
    """The settings that these attackers read; :class:`fedpriv.attacks.Backdoor` has them."""

    trigger: Trigger
    poisoned_fraction: float
    boost: float | str
    boosted: str
    norm_bound: float | None


class MaliciousClients(Attackers):
    """The attackers of one run that teach the model a backdoor.

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

    settings: BackdoorSettings
    test: Records

    def __init__(self, settings: BackdoorSettings, data: FederatedData):
        super().__init__(settings, data)
        stream = numpy_stream(settings.seed, "trigger")
        planted = settings.trigger.plant(data, np.flatnonzero(self.honest), stream)
        self.test = planted.test
        clients = _without(data.clients, planted.withheld)
        self.untouched = np.setdiff1d(np.arange(len(data.train)), planted.withheld)
        self._clean: dict[int, np.ndarray] = {}
        self._poisoned: dict[int, np.ndarray] = {}
        parts = [data.train]  # then the poisoned records of each attacker
        for place, k in enumerate(self.attackers.tolist()):
            stream = numpy_stream(settings.seed, "poison", k)
            count = max(1, round(settings.poisoned_fraction * len(clients[k])))
            order = stream.permutation(clients[k])
            self._clean[k] = np.sort(order[count:])
            first = sum(map(len, parts))
            self._poisoned[k] = np.arange(first, first + count)
            poison = planted.poison_of(place)
            parts.append(poison(data.train.subset(order[:count]), stream))
        self.data = replace(data, train=concatenated(parts), clients=clients)

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
                clean = {int(k): self.data.clients[k] for k in clients}
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

    def _boosts(self, aggregation: RoundWeights, clients: np.ndarray) -> np.ndarray:
        """Return γ of each attacker [c]."""
        if self.settings.boost != REPLACEMENT:
            return np.full(len(clients), self.settings.boost)
        attackers = int((~self.honest[aggregation.cohort]).sum())
        assert aggregation.weights is not None  # replacement is refused with another optimiser
        weights = aggregation.weights[np.searchsorted(aggregation.cohort, clients)]
        return 1.0 / (weights * attackers)


def _without(clients: ClientRecords, withheld: np.ndarray) -> ClientRecords:
    """Return each client's records without those withheld; ConfigError if a client would have none."""
    remaining = clients.where(~np.isin(clients.indices, withheld))
    if empty := int((remaining.sizes == 0).sum()):
        raise ConfigError(
            f"attack.trigger withholds all records of {empty} clients; take fewer, or clients with more "
            "records (partition.min_records)"
        )
    return remaining
