"""A federation of real digits with malicious clients, and what each of its parts uploads."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from torch import Tensor

from fedpriv.algorithms.base import Algorithm
from fedpriv.algorithms.run_context import RoundWeights, RunContext
from fedpriv.algorithms.trainer import Trainer
from fedpriv.attacks import Backdoor, PixelPattern
from fedpriv.attacks.malicious import MaliciousClients
from fedpriv.common.secret_streams import SecretStreams
from fedpriv.data.digits import Digits
from fedpriv.data.federated import FederatedData, federate
from fedpriv.data.partitions import Iid
from fedpriv.engine import FlatModel, make_engine
from fedpriv.models import Logistic
from fedpriv.privacy.clippers import Clipper, ConstantClipper
from fedpriv.privacy.mechanisms import Mechanism
from fedpriv.privacy.noise_schedules import ConstantNoise, NoNoise


@pytest.fixture(scope="session")
def digits() -> FederatedData:
    """1,437 real images of 8x8 pixels at 12 clients."""
    return federate(Digits(), Iid(12, seed=0), validation=False, seed=0)


def mechanism_of(algorithm: Algorithm, clipper: Clipper, sigma: float) -> Mechanism:
    """What the algorithm releases with a constant noise multiplier; 0: without noise."""
    return Mechanism(algorithm, clipper, ConstantNoise(sigma) if sigma else NoNoise())


@dataclass
class Nobody:
    """Attackers of whom there are none: what clients send can be seen all the same."""

    data: FederatedData
    attackers = np.zeros(0, dtype=int)
    whole_round = False

    def observe(self, round_index: int, weights: Tensor) -> None:
        pass

    def note_norms(self, round_index: int, cohort: np.ndarray, norms: np.ndarray) -> None:
        pass

    def records_of(self, round_index: int, client: int) -> np.ndarray:
        return self.data.clients[client]

    def uploads(self, aggregation: RoundWeights, clients: np.ndarray, uploads: Tensor) -> Tensor:
        return uploads


@dataclass
class Federation:
    """A training with attackers (or without), and everything that was sent to the server."""

    context: RunContext
    algorithm: Algorithm
    trainer: Trainer | None
    malicious: MaliciousClients | None
    sent: list[tuple[np.ndarray, Tensor]] = field(default_factory=list)

    @property
    def weights(self) -> Tensor:
        return self.context.model.flat

    def play(self, round_index: int = 0, cohort: list[int] | None = None, sigma: float = 0.0):
        """A round; what each client of the cohort sent, by client."""
        self.sent.clear()
        cohort = np.arange(self.context.data.client_count) if cohort is None else np.array(cohort)
        if self.malicious is not None:
            cohort = self.malicious.with_attackers(round_index, cohort)
        context = self.context
        mechanism = mechanism_of(self.algorithm, context.clipper, sigma)
        mechanism.join(context.data.records_per_client)
        context.mechanism = mechanism
        opened = mechanism.open(mechanism.announce(round_index), cohort, context.streams)
        self.trainer.round(opened)
        opened.close()
        return {
            int(k): u for clients, sent in self.sent for k, u in zip(clients, sent, strict=True)
        }


@pytest.fixture
def federation(digits):
    """(algorithm, an attack, its settings, or None, …) → Federation."""

    def build(
        algorithm: Algorithm,
        attack: dict | Backdoor | None = None,
        *,
        clipper: Clipper | None = None,
        data: FederatedData = digits,
        noise_seed: int = 0,
    ) -> Federation:
        malicious = None
        if attack is not None:
            if isinstance(attack, dict):
                attack = Backdoor(**{"trigger": PixelPattern(size=2), "attackers": 2, **attack})
            malicious = attack.start(data)
            data = malicious.data
        clipper = clipper or ConstantClipper(1.0)
        model = FlatModel(Logistic(seed=0).build(data.input_shape, data.classes))
        context = RunContext(
            data=data,
            model=model,
            engine=make_engine(model),
            clipper=clipper,
            seed=0,
            streams=SecretStreams.simulated(0, 0).with_noise(noise_seed.to_bytes(32, "big")),
            mechanism=mechanism_of(algorithm, clipper, 0.0),
        )
        if malicious is None:
            context.attack = Nobody(data)
        else:
            malicious.join(context)
        made = Federation(context, algorithm, None, malicious)
        original = context.foreign

        def noted(aggregation, clients, uploads):
            rows, foreign = original(aggregation, clients, uploads)
            sent = foreign.values.where(rows[:, None], uploads)
            made.sent.append((clients.copy(), sent.clone()))
            return rows, foreign

        context.foreign = noted
        made.trainer = algorithm.start(context)
        return made

    return build


@pytest.fixture
def norm():
    return lambda upload: float(torch.linalg.vector_norm(upload))
