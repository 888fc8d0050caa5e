"""The rows of a setting do the same work: they end at the same weights."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedpriv.common.secret_streams import SecretStreams
from fedpriv.engine import FlatModel, StackedModel
from fedpriv.models import Cnn, Mlp
from fedpriv.tools import bench_clients as clients
from fedpriv.tools.bench_clients import LocalTraining

MODELS = {"mlp": Mlp(seed=0), "cnn": Cnn(seed=0)}
WORK = LocalTraining(records=6, batch=3, epochs=2)


class InOrder:
    """A stream that leaves records in their order, the order in which the loop visits them."""

    def permutation(self, n: int) -> np.ndarray:
        return np.arange(n)


@pytest.fixture(autouse=True)
def few_clients(monkeypatch):
    """Three, whose uploads are never clipped and whose records stay in order."""
    torch.manual_seed(0)
    monkeypatch.setattr(clients, "CLIENTS", 3)
    monkeypatch.setattr(clients, "CLIP_NORM", 1e9)
    monkeypatch.setattr(SecretStreams, "sampling", lambda *_: InOrder())


@pytest.fixture(params=MODELS)
def models(request):
    """The same model again and again."""
    factory = MODELS[request.param]
    return lambda: FlatModel(factory.build(clients.SHAPE, clients.CLASSES))


def assert_moved_alike(one: FlatModel, other: FlatModel, start: torch.Tensor) -> None:
    moved = (one.flat - start).norm()
    assert moved > 1e-3
    assert (one.flat - other.flat).norm() < 1e-4 * moved


@pytest.mark.thorough
def test_side_by_side_and_the_loop_end_at_the_same_weights(models):
    records, stacked, loop = clients.records_of(WORK), models(), models()
    start = stacked.flat.clone()
    for step in (
        clients.stacked_round(stacked, records, WORK),
        clients.loop_round(loop.module, records, WORK),
    ):
        step()
        step()
    assert_moved_alike(stacked, loop, start)


def test_clipped_steps_side_by_side_are_those_of_the_loop(monkeypatch):
    monkeypatch.setattr(clients, "CLIP_NORM", 0.5)
    model = FlatModel(MODELS["mlp"].build(clients.SHAPE, clients.CLASSES))
    records = clients.records_of(WORK)
    loop = clients.clipped_round(model, records, WORK, clients.clipped_one_by_one(model))
    stacked = clients.clipped_round(model, records, WORK, StackedModel(model).clipped_sums)
    torch.testing.assert_close(stacked(), loop(), rtol=1e-4, atol=1e-7)


def test_a_setting_is_named_by_the_work_of_a_client():
    assert str(LocalTraining(records=50, batch=10)) == "3 clients × 5 steps × 10 records"
    assert str(LocalTraining(records=128, batch=128)) == "3 clients × 1 step × 128 records"
