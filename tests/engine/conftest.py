"""The naive reference: one backward pass per record."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch

from fedpriv.engine import FlatModel


@pytest.fixture(autouse=True, scope="package")
def one_thread():
    """Tensors this small are faster on one thread, most of all on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@dataclass
class Records:
    """Records of several clients: the counts say how many of each."""

    inputs: torch.Tensor
    targets: torch.Tensor
    counts: list[int]

    @property
    def client_of_record(self) -> torch.Tensor:
        return torch.arange(len(self.counts)).repeat_interleave(torch.tensor(self.counts))

    def clipped_sums(self, engine, factors):
        clients = self.client_of_record
        return engine.clipped_sums(self.inputs, self.targets, clients, len(self.counts), factors)


def gradient_of_record(model: FlatModel, loss, records: Records, i: int) -> torch.Tensor:
    value = loss(model(records.inputs[i : i + 1]), records.targets[i : i + 1]).sum()
    trained = model.parameters()
    grads = torch.autograd.grad(value, trained, allow_unused=True, materialize_grads=True)
    return torch.cat([g.reshape(-1) for g in grads])


@pytest.fixture
def records_of():
    return Records


@pytest.fixture
def naive():
    """(model, loss, records, factors) → (sums [clients, d], norms [n]) record by record."""

    def compute(model: FlatModel, loss, records: Records, factors):
        clients = records.client_of_record
        grads = [gradient_of_record(model, loss, records, i) for i in range(len(clients))]
        sums = torch.zeros(len(records.counts), model.size, dtype=model.flat.dtype)
        if not grads:
            return sums, torch.zeros(0, dtype=model.flat.dtype)
        norms = torch.stack(grads).norm(dim=1)
        scale = torch.ones_like(norms) if factors is None else factors(norms, clients)
        sums.index_add_(0, clients, torch.stack(grads) * scale[:, None])
        return sums, norms

    return compute


def relative_difference(a: torch.Tensor, b: torch.Tensor) -> float:
    return ((a - b).norm() / b.norm().clamp(min=1e-30)).item()


@pytest.fixture
def difference():
    return relative_difference


@pytest.fixture
def clip_at():
    """clip_norm → factors min(1, clip_norm / norm)."""

    def factors_of(clip_norm: float):
        return lambda norms, clients: (clip_norm / norms).clamp(max=1)

    return factors_of
