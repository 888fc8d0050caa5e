"""Local training on the real digits, with what every client uploads caught at the hook for it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor

from fedpriv.algorithms import DpFl
from fedpriv.algorithms.local_training import LocalTraining
from fedpriv.algorithms.work import Problem, RoundOutcome
from fedpriv.data.digits import Digits
from fedpriv.data.federated import FederatedData, federate
from fedpriv.data.partitions import Iid
from fedpriv.data.records import Records
from fedpriv.engine import FlatModel, make_engine
from fedpriv.models import Logistic
from fedpriv.privacy.clippers import Clipper, ConstantClipper


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


@dataclass
class Work:
    """A training whose rounds can be repeated from the same state."""

    training: LocalTraining
    problem: Problem
    uploads: list[Tensor]

    @property
    def everyone(self) -> np.ndarray:
        return np.arange(self.problem.data.client_count)

    @property
    def weights(self) -> Tensor:
        return self.problem.model.flat

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
    """(data, clipper, seed, noise_seed, and settings of the algorithm) → Work."""

    def build(
        *,
        data: FederatedData | None = None,
        clipper: Clipper | None = None,
        seed: int = 0,
        noise_seed: int = 0,
        **settings,
    ) -> Work:
        data = digits if data is None else data
        keys = {"sample_rate": 0.5, "optimizer": "sgd", "learning_rate": 1.0, **settings}
        uploads: list[Tensor] = []

        def catch(round_index: int, cohort: np.ndarray, changes: Tensor) -> Tensor:
            uploads.append(changes.clone())
            return changes

        model = FlatModel(Logistic(seed=0).build(data.input_shape, data.classes))
        problem = Problem(
            data=data,
            model=model,
            engine=SeenInputs(make_engine(model)),
            clipper=clipper or ConstantClipper(1.0),
            seed=seed,
            noise_seed=noise_seed,
            upload_transform=catch,
        )
        return Work(DpFl("dp_fl", **keys).start(problem), problem, uploads)

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
    """(work) → the lots of its last local step, a set of record numbers for each participant."""

    def read(work: Work, call: int = -1) -> list[set[int]]:
        inputs, client = work.problem.engine.calls[call]
        numbers = (inputs[:, 0] * len(work.problem.data.train)).round().int()
        count = len(work.uploads[-1])
        return [set(numbers[client == k].tolist()) for k in range(count)]

    return read
