"""Local training on the real digits, with what every client uploads caught at the hook for it."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from fedpriv.algorithms import DpFl
from fedpriv.algorithms.base import Algorithm
from fedpriv.algorithms.local_steps import LocalStepsAlgorithm
from fedpriv.algorithms.local_training import LocalTraining
from fedpriv.algorithms.server_training import ServerTraining
from fedpriv.algorithms.problem import Aggregation, Problem, RoundOutcome
from fedpriv.common.secret_streams import SecretStreams
from fedpriv.data.digits import Digits
from fedpriv.data.federated import FederatedData, federate
from fedpriv.data.partitions import Iid
from fedpriv.data.records import Records
from fedpriv.engine import FlatModel, make_engine
from fedpriv.models import Logistic
from fedpriv.models.base import ModelFactory
from fedpriv.privacy.clippers import Clipper, ConstantClipper


def secrets(seed: int, noise_seed: int) -> SecretStreams:
    """Lots that depend on ``seed`` alone and noise that depends on ``noise_seed`` alone."""
    return SecretStreams.simulated(seed, 0).with_noise(noise_seed.to_bytes(32, "big"))


class SeenInputs:
    """An engine that notes the inputs and clients of every call and hands them on."""

    def __init__(self, engine):
        self.engine, self.calls = engine, []

    @property
    def name(self) -> str:
        return self.engine.name

    def clipped_sums(self, inputs, targets, client_of_record, clients, factors):
        self.calls.append((inputs.clone(), client_of_record.clone()))
        return self.engine.clipped_sums(inputs, targets, client_of_record, clients, factors)


Transform = Callable[[Aggregation, np.ndarray, Tensor], Tensor]


@dataclass
class Eavesdropper:
    """Notes what clients upload; ``transform``: what they send instead."""

    data: FederatedData
    uploaded: list[Tensor]
    transform: Transform | None = None

    def records_of(self, round_index: int, client: int) -> np.ndarray:
        return self.data.clients[client]

    def uploads(self, aggregation: Aggregation, clients: np.ndarray, uploads: Tensor) -> Tensor:
        self.uploaded.append(uploads.clone())
        return uploads if self.transform is None else self.transform(aggregation, clients, uploads)


@dataclass
class Caught:
    """What rounds are played on, and what was uploaded in them."""

    problem: Problem
    uploads: list[Tensor]

    def noise_anew(self, noise_seed: int) -> None:
        """Other noise from now on, on the same lots."""
        streams = self.problem.streams
        self.problem.streams = streams.with_noise(noise_seed.to_bytes(32, "big"))

    @property
    def everyone(self) -> np.ndarray:
        return np.arange(self.problem.data.client_count)

    @property
    def weights(self) -> Tensor:
        return self.problem.model.flat


@dataclass
class Work(Caught):
    """A training whose rounds can be repeated from the same state."""

    training: LocalTraining

    @property
    def lot_sizes(self) -> Tensor:
        """q n_k of every client [K]."""
        rate = self.training.algorithm.sample_rate
        return rate * torch.tensor(self.problem.data.records_per_client, dtype=torch.float32)

    def play(
        self, round_index: int = 0, cohort: Sequence[int] | None = None, sigma: float = 0.0
    ) -> tuple[Tensor, RoundOutcome]:
        """A round: (what each participant uploads [m, d], the outcome)."""
        cohort = self.everyone if cohort is None else np.array(cohort)
        outcome = self.training.round(round_index, cohort, sigma)
        return self.uploads[-1], outcome

    def released(
        self, round_index: int = 0, cohort: Sequence[int] | None = None, sigma: float = 0.0
    ) -> tuple[Tensor, RoundOutcome]:
        """A round that leaves the state as it was: (noised gradient sum of each participant [m, d],
        the outcome). For one step of SGD: upload = -η sum / (q n_k)."""
        before = self.training.state_dict()
        uploads, outcome = self.play(round_index, cohort, sigma)
        self.training.load_state_dict(before)
        lots = self.lot_sizes if cohort is None else self.lot_sizes[list(cohort)]
        return uploads * lots[:, None] / -self.training.algorithm.learning_rate, outcome


@pytest.fixture(scope="session")
def digits() -> FederatedData:
    """The 1,437 training digits, dealt out to ten clients."""
    return federate(Digits(), Iid(10), validation=False, seed=0)


@pytest.fixture
def work(digits):
    """(data, clipper, model, engine, seeds, and an algorithm or the settings of DP-FL) → Work."""

    def build(
        *,
        data: FederatedData | None = None,
        clipper: Clipper | None = None,
        model: ModelFactory | None = None,
        engine: str = "auto",
        seed: int = 0,
        noise_seed: int = 0,
        algorithm: LocalStepsAlgorithm | None = None,
        **settings,
    ) -> Work:
        data = digits if data is None else data
        keys = {"sample_rate": 0.5, "optimizer": "sgd", "learning_rate": 1.0, **settings}
        uploads: list[Tensor] = []

        flat = FlatModel((model or Logistic(seed=0)).build(data.input_shape, data.classes))
        problem = Problem(
            data=data,
            model=flat,
            engine=SeenInputs(make_engine(flat, engine=engine)),
            clipper=clipper or ConstantClipper(1.0),
            seed=seed,
            streams=secrets(seed, noise_seed),
            attack=Eavesdropper(data, uploads),
        )
        return Work(problem, uploads, (algorithm or DpFl("dp_fl", **keys)).start(problem))

    return build


@pytest.fixture
def numbered():
    """(records per client) → data whose record i has the input i, so that lots can be read off."""

    def build(*sizes: int) -> FederatedData:
        total = sum(sizes)
        inputs = torch.arange(total, dtype=torch.float32).reshape(total, 1) / total
        records = Records(inputs, torch.arange(total) % 2)
        bounds = np.cumsum([0, *sizes])
        clients = [np.arange(a, b) for a, b in itertools.pairwise(bounds)]
        return FederatedData(records, clients, None, records, 2, (1,))

    return build


@pytest.fixture
def lots_of():
    """(work) → the lots of its last round's first step, a set of record numbers per participant."""

    def read(work: Work) -> list[set[int]]:
        inputs, client = work.problem.engine.calls[-1]
        numbers = (inputs[:, 0] * len(work.problem.data.train)).round().int()
        count = len(work.uploads[-1])
        return [set(numbers[client == k].tolist()) for k in range(count)]

    return read


@pytest.fixture
def lots_drawn(monkeypatch):
    """The positions of the records of every lot, those of all clients together, as they are drawn."""
    drawn: list[set[int]] = []
    subset = Records.subset

    def noted(records: Records, indices: np.ndarray) -> Records:
        drawn.append(set(indices.tolist()))
        return subset(records, indices)

    monkeypatch.setattr(Records, "subset", noted)
    return drawn


class Overheard:
    """A clipper that notes what it is told of every round and hands all on."""

    def __init__(self, clipper: Clipper):
        self._clipper, self.released, self.means, self.denominators = clipper, [], [], []

    def __getattr__(self, name: str):
        return getattr(self._clipper, name)

    def observe(self, clients, released, gradients, lot_sizes):
        self.released.append(None if released is None else released.clone())
        self.means.append(gradients[0].clone())
        self.denominators.append(float(lot_sizes))
        self._clipper.observe(clients, released, gradients, lot_sizes)


@dataclass
class Served(Caught):
    """A training whose server takes the step; a round can be repeated from the same state."""

    training: ServerTraining

    @property
    def heard(self) -> Overheard:
        return self.problem.clipper

    def play(
        self, round_index: int = 0, cohort: Sequence[int] | None = None, sigma: float = 0.0
    ) -> RoundOutcome:
        """A round."""
        cohort = self.everyone if cohort is None else np.array(cohort, dtype=np.int64)
        return self.training.round(round_index, cohort, sigma)

    def released(
        self, round_index: int = 0, cohort: Sequence[int] | None = None, sigma: float = 0.0
    ) -> tuple[Tensor, RoundOutcome]:
        """A round that leaves the state as it was: (the noised sum of the uploads [d], the outcome)."""
        before = self.training.state_dict()
        outcome = self.play(round_index, cohort, sigma)
        self.training.load_state_dict(before)
        return self.heard.means[-1] * self.heard.denominators[-1], outcome


@pytest.fixture
def serve(digits):
    """(algorithm, data, clipper, model, seed, noise_seed, what attackers upload) → Served."""

    def build(
        algorithm: Algorithm,
        *,
        data: FederatedData | None = None,
        clipper: Clipper | None = None,
        model: ModelFactory | None = None,
        seed: int = 0,
        noise_seed: int = 0,
        attack: Transform | None = None,
    ) -> Served:
        data = digits if data is None else data
        uploads: list[Tensor] = []

        flat = FlatModel((model or Logistic(seed=0)).build(data.input_shape, data.classes))
        problem = Problem(
            data=data,
            model=flat,
            engine=make_engine(flat),
            clipper=Overheard(clipper or ConstantClipper(1.0)),
            seed=seed,
            streams=secrets(seed, noise_seed),
            attack=Eavesdropper(data, uploads, attack),
        )
        return Served(problem, uploads, algorithm.start(problem))

    return build


@pytest.fixture
def ragged(digits) -> FederatedData:
    """Clients of 1, 40, 7, 2, 90 and 13 records."""
    order = np.random.default_rng(0).permutation(len(digits.train))
    bounds = np.cumsum([0, 1, 40, 7, 2, 90, 13])
    clients = [np.sort(order[a:b]) for a, b in itertools.pairwise(bounds)]
    return replace(digits, clients=clients)


@pytest.fixture
def gradient_of():
    """(training, positions of records) → gradient of their mean loss [d], by autograd alone."""

    def compute(training: Served, records: np.ndarray) -> Tensor:
        module = copy.deepcopy(training.problem.model.module)
        train = training.problem.data.train
        loss = functional.cross_entropy(module(train.inputs[records]), train.targets[records])
        grads = torch.autograd.grad(loss, list(module.parameters()))
        return torch.cat([grad.reshape(-1) for grad in grads])

    return compute
