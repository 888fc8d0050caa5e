"""The programs of other libraries do the work of fedpriv's rows."""

from __future__ import annotations

import importlib
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np
import pytest
import torch

from fedpriv.engine import FlatModel
from fedpriv.tools import bench_clients as clients
from fedpriv.tools import bench_gradients as gradients
from fedpriv.tools import peers
from fedpriv.tools.bench_clients import LocalTraining


@pytest.fixture
def programs(monkeypatch):
    """(name) → the module of a program, as its interpreter sees it."""
    folder = Path(peers.__file__).with_name("programs")
    monkeypatch.syspath_prepend(str(folder))

    def load(name: str):  # type: ignore[no-untyped-def]
        for module in ("serve", "networks", name):
            monkeypatch.delitem(sys.modules, module, raising=False)
        return importlib.import_module(name)

    return load


def needs(package: str) -> None:
    try:
        version(package)
    except PackageNotFoundError:
        pytest.skip(f"needs {package}")


@pytest.mark.parametrize("model", ["cnn", "mlp"])
def test_the_networks_are_those_of_fedpriv(programs, model):
    theirs = programs("networks").network(model)
    ours = gradients.MODELS[model].build(gradients.SHAPE, gradients.CLASSES)
    assert [p.shape for p in theirs.parameters()] == [p.shape for p in ours.parameters()]
    ours.load_state_dict(theirs.state_dict())
    inputs = torch.randn(3, *gradients.SHAPE)
    assert torch.equal(theirs(inputs), ours(inputs))


def test_the_constants_are_those_of_fedpriv(programs):
    networks = programs("networks")
    assert (networks.SHAPE, networks.CLASSES) == (gradients.SHAPE, gradients.CLASSES)
    assert networks.CLIP_NORM == gradients.CLIP_NORM


@pytest.mark.parametrize("way", ["hooks", "ghost"])
def test_opacus_sums_the_same_clipped_gradients(programs, way):
    program, networks = programs("opacus_program"), sys.modules["networks"]
    theirs = program.open_row(way, "mlp", 2, 3)()
    lots = networks.lots(2, 3)
    inputs, targets = (torch.cat(part) for part in zip(*lots, strict=True))
    step = gradients.fast_step(FlatModel(networks.network("mlp")), inputs, targets, [3, 3])
    assert torch.allclose(torch.cat([t.flatten() for t in theirs]), step().sum(0), atol=1e-5)


@pytest.mark.thorough
def test_opacus_steps_for_one_client_after_the_other(programs):
    programs("opacus_program").open_row("engine", "mlp", 2, 3)()


def test_jax_sums_the_clipped_gradients_of_each_client(programs):
    needs("jax")
    program = programs("jax_program")
    sums = [np.asarray(s) for s in program.open_row("cnn", 2, 3)()]
    assert all(len(s) == 2 for s in sums)
    norms = np.sqrt(sum((s.reshape(2, -1) ** 2).sum(1) for s in sums))
    assert (norms <= 3 * program.CLIP_NORM).all()


def test_pfl_research_ends_at_the_same_weights(programs, monkeypatch):
    needs("pfl")
    monkeypatch.setattr(clients, "CLIENTS", 3)
    program, networks = programs("pfl_program"), sys.modules["networks"]
    work = LocalTraining(records=6, batch=3, epochs=2)
    lots = networks.lots(3, 6)
    records = clients.Records(*(torch.cat(part) for part in zip(*lots, strict=True)))
    loop, pfl = FlatModel(networks.network("mlp")), FlatModel(networks.network("mlp"))
    start = loop.flat.clone()
    steps = (
        clients.loop_round(loop.module, records, work),
        program.federated_averaging(pfl.module, lots, 3, 2, clients.RATE),
    )
    for step in steps:
        step()
        step()
    moved = (loop.flat - start).norm()
    assert moved > 1e-3
    assert (pfl.flat - loop.flat).norm() < 1e-4 * moved
