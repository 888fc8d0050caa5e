"""Local training on the real digits, with what every client uploads caught at the hook for it."""

from __future__ import annotations

import copy
import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from fedpriv.algorithms import DpFl
from fedpriv.algorithms.base import Algorithm
from fedpriv.algorithms.record_level import LocalStepsAlgorithm
from fedpriv.algorithms.run_context import RoundWeights, RunContext
from fedpriv.algorithms.trainer import RoundOutcome, Trainer
from fedpriv.common.secret_streams import SecretStreams
from fedpriv.data.digits import Digits
from fedpriv.data.federated import FederatedData, federate
from fedpriv.data.partitions import Iid
from fedpriv.data.records import Records
from fedpriv.engine import FlatModel, make_engine
from fedpriv.models import Logistic
from fedpriv.models.base import ModelFactory
from fedpriv.privacy.clippers import Clipper, ConstantClipper
from fedpriv.privacy.core.sampling import Sampling
from fedpriv.privacy.mechanisms import JointQuery, Mechanism, Release
from fedpriv.privacy.noise_schedules import ConstantNoise, NoNoise


def secrets(seed: int, noise_seed: int) -> SecretStreams:
    """Lots that depend on ``seed`` alone and noise that depends on ``noise_seed`` alone."""
    return SecretStreams.simulated(seed, 0).with_noise(noise_seed.to_bytes(32, "big"))


def mechanism_of(algorithm: Algorithm, clipper: Clipper, sigma: float) -> Mechanism:
    """What the algorithm releases with a constant noise multiplier; 0: without noise."""
    return Mechanism(algorithm, clipper, ConstantNoise(sigma) if sigma else NoNoise())


class SeenInputs:
    """An engine that notes the inputs and clients of every call and hands them on."""

    def __init__(self, engine):
        self.engine, self.calls = engine, []

    @property
    def name(self) -> str:
        return self.engine.name

    def clipped_sums(self, inputs, targets, client_of_record, clients, factors):
        self.calls.append((inputs[:].clone(), client_of_record.clone()))
        return self.engine.clipped_sums(inputs, targets, client_of_record, clients, factors)


Transform = Callable[[RoundWeights, np.ndarray, Tensor], Tensor]


@dataclass
class Eavesdropper:
    """Notes what clients upload; ``transform``: what they send instead."""

    whole_round = sees_uploads = sees_raw_uploads = False

    data: FederatedData
    uploaded: list[Tensor]
    transform: Transform | None = None

    @property
    def attackers(self) -> np.ndarray:
        """Whoever it likes."""
        return np.arange(self.data.client_count)

    def records_of(self, round_index: int, client: int) -> np.ndarray:
        return self.data.clients[client]

    def observe(self, round_index: int, weights: Tensor) -> None:
        pass

    def note_norms(self, round_index: int, cohort: np.ndarray, norms: np.ndarray) -> None:
        pass

    def uploads(self, aggregation: RoundWeights, clients: np.ndarray, uploads: Tensor) -> Tensor:
        self.uploaded.append(uploads.clone())
        return uploads if self.transform is None else self.transform(aggregation, clients, uploads)


@dataclass
class Caught:
    """A training whose rounds can be repeated from the same state, and what was uploaded in them.

    ``releases``: what the last round says it released.
    """

    context: RunContext
    uploads: list[Tensor]
    algorithm: Algorithm
    trainer: Trainer
    releases: tuple[Release, ...] = ()

    def round(self, round_index: int, cohort: np.ndarray, sigma: float) -> RoundOutcome:
        """A round as a run makes it, and its record."""
        context = self.context
        mechanism = mechanism_of(self.algorithm, context.clipper, sigma)
        mechanism.join(context.data.records_per_client)
        context.mechanism = mechanism
        opened = mechanism.open(mechanism.announce(round_index), cohort, context.streams)
        outcome = self.trainer.round(opened)
        self.releases = opened.close()
        return outcome

    def sensitivity(self, query: str, step: int = 0) -> np.ndarray:
        """What the ledger enters for the last round: of every participant [m], or of the cohort [1]."""
        return self._entered([release.sensitivity[query] for release in self._of(step)], step)

    def noise_std(self, query: str, step: int = 0) -> np.ndarray:
        """Likewise the standard deviation of the noise that each share added."""
        return self._entered([release.noise_std[query] for release in self._of(step)], step)

    def _of(self, step: int) -> list[Release]:
        """One local step's releases: a group of clients each, and a group has a release for each step."""
        seen: Counter[JointQuery] = Counter()
        found = []
        for release in self.releases:
            if seen[release.joint] == step:
                found.append(release)
            seen[release.joint] += 1
        return found

    def _entered(self, values: list[np.ndarray], step: int) -> np.ndarray:
        clients = np.concatenate([release.clients for release in self._of(step)])
        entered = np.concatenate(values)
        return entered[np.argsort(clients)] if len(entered) == len(clients) else entered

    def noise_anew(self, noise_seed: int) -> None:
        """Other noise from now on, on the same lots."""
        streams = self.context.streams
        self.context.streams = streams.with_noise(noise_seed.to_bytes(32, "big"))

    @property
    def everyone(self) -> np.ndarray:
        return np.arange(self.context.data.client_count)

    @property
    def weights(self) -> Tensor:
        return self.context.model.flat


class ClientComputation(Caught):
    """A training whose clients take the steps."""

    @property
    def lot_sizes(self) -> Tensor:
        """q n_k of every client [K]."""
        rate = self.algorithm.sample_rate
        return rate * torch.tensor(self.context.data.records_per_client, dtype=torch.float32)

    def play(
        self, round_index: int = 0, cohort: Sequence[int] | None = None, sigma: float = 0.0
    ) -> tuple[Tensor, RoundOutcome]:
        """A round: (what each participant uploads [m, d], the outcome)."""
        cohort = self.everyone if cohort is None else np.array(cohort)
        outcome = self.round(round_index, cohort, sigma)
        return self.uploads[-1], outcome

    def released(
        self, round_index: int = 0, cohort: Sequence[int] | None = None, sigma: float = 0.0
    ) -> tuple[Tensor, RoundOutcome]:
        """A round that leaves the state as it was: (noised gradient sum of each participant [m, d],
        the outcome). For one step of SGD: upload = -η sum / (q n_k)."""
        before = self.trainer.state_dict()
        uploads, outcome = self.play(round_index, cohort, sigma)
        self.trainer.load_state_dict(before)
        lots = self.lot_sizes if cohort is None else self.lot_sizes[list(cohort)]
        return uploads * lots[:, None] / -self.algorithm.learning_rate, outcome


@pytest.fixture(scope="session")
def digits() -> FederatedData:
    """The 1,437 training digits, dealt out to ten clients."""
    return federate(Digits(), Iid(10), validation=False, seed=0)


@pytest.fixture
def computation(digits):
    """(data, clipper, model, engine, seeds, an algorithm or the settings of DP-FL) → its computation."""

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
    ) -> ClientComputation:
        data = digits if data is None else data
        keys = {"sample_rate": 0.5, "optimizer": "sgd", "learning_rate": 1.0, **settings}
        uploads: list[Tensor] = []

        flat = FlatModel((model or Logistic(seed=0)).build(data.input_shape, data.classes))
        clipper = clipper or ConstantClipper(1.0)
        algorithm = algorithm or DpFl("dp_fl", **keys)
        context = RunContext(
            data=data,
            model=flat,
            engine=SeenInputs(make_engine(flat, engine=engine)),
            clipper=clipper,
            seed=seed,
            streams=secrets(seed, noise_seed),
            mechanism=mechanism_of(algorithm, clipper, 0.0),
            attack=Eavesdropper(data, uploads),
        )
        return ClientComputation(context, uploads, algorithm, algorithm.start(context))

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

    def read(computation: ClientComputation) -> list[set[int]]:
        inputs, client = computation.context.engine.calls[-1]
        numbers = (inputs[:, 0] * len(computation.context.data.train)).round().int()
        count = len(computation.uploads[-1])
        return [set(numbers[client == k].tolist()) for k in range(count)]

    return read


@pytest.fixture
def lots_sampled(monkeypatch):
    """The positions of the records of every lot, those of all clients together, as they are sampled."""
    sampled: list[set[int]] = []
    subset = Records.subset

    def noted(records: Records, indices: np.ndarray) -> Records:
        sampled.append(set(indices.tolist()))
        return subset(records, indices)

    monkeypatch.setattr(Records, "subset", noted)
    return sampled


class Overheard:
    """A clipper that notes what it is told of every round and hands all on; a copy begins anew."""

    __slots__ = (
        "__dict__",
        "denominators",
        "means",
        "released",
    )  # notes are no state of the clipper

    def __init__(self, clipper: Clipper):
        self._clipper, self.released, self.means, self.denominators = clipper, [], [], []

    def __getattr__(self, name: str):
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._clipper, name)

    def __deepcopy__(self, memo: dict) -> Overheard:
        return Overheard(copy.deepcopy(self._clipper, memo))

    def observe(self, holders, statistic, gradients, denominators):
        self.released.append(None if statistic is None else statistic.values.clone())
        self.means.append(gradients.values[0].clone())
        self.denominators.append(float(denominators))
        self._clipper.observe(holders, statistic, gradients, denominators)


class Served(Caught):
    """A training whose server takes the step."""

    @property
    def heard(self) -> Overheard:
        return self.context.clipper

    def play(
        self, round_index: int = 0, cohort: Sequence[int] | None = None, sigma: float = 0.0
    ) -> RoundOutcome:
        """A round."""
        cohort = self.everyone if cohort is None else np.array(cohort, dtype=np.int64)
        return self.round(round_index, cohort, sigma)

    def released(
        self, round_index: int = 0, cohort: Sequence[int] | None = None, sigma: float = 0.0
    ) -> tuple[Tensor, RoundOutcome]:
        """A round that leaves the state as it was: (the noised sum of the uploads [d], the outcome)."""
        before = self.trainer.state_dict()
        outcome = self.play(round_index, cohort, sigma)
        self.trainer.load_state_dict(before)
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
        overheard = Overheard(clipper or ConstantClipper(1.0))
        context = RunContext(
            data=data,
            model=flat,
            engine=make_engine(flat),
            clipper=overheard,
            seed=seed,
            streams=secrets(seed, noise_seed),
            mechanism=mechanism_of(algorithm, overheard, 0.0),
            attack=Eavesdropper(data, uploads, attack),
        )
        return Served(context, uploads, algorithm, algorithm.start(context))

    return build


@pytest.fixture
def joint_of():
    """(algorithm, sampling, sigma, clipper) → what a participant answers on one sample of a round."""

    def build(
        algorithm: Algorithm, sampling: Sampling, sigma: float, clipper: Clipper
    ) -> JointQuery:
        return mechanism_of(algorithm, clipper, sigma).joint(sampling, sigma, 0)

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
        module = copy.deepcopy(training.context.model.module)
        train = training.context.data.train
        loss = functional.cross_entropy(module(train.inputs[records]), train.targets[records])
        grads = torch.autograd.grad(loss, list(module.parameters()))
        return torch.cat([grad.reshape(-1) for grad in grads])

    return compute
