"""Time Opacus and pfl-research beside the rows of ``fedpriv bench``.

    python scripts/bench_peers.py [--repeats 20] [--model mlp] [--threads 1] [--json FILE]

Opacus clips the gradients of the same lots in three ways. pfl-research (``pfl``, Apple) runs the same rounds
of clients that train if it is installed (``pip install '.[bench]'``): its own SimulatedBackend and
FederatedAveraging, with nothing evaluated, clipped or noised. Random records differ from row to row; their
number and their shapes do not.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from itertools import cycle

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedpriv.tools import bench, bench_clients
from fedpriv.tools.bench_clients import RATE, SMALL_BATCHES, WHOLE_DATA
from fedpriv.tools.bench_gradients import CLASSES, CLIP_NORM, FAST, MODELS, SHAPE
from fedpriv.tools.bench_measuring import Bar, Benchmark, TimedStep

HOOKS, GHOST, ENGINE = (
    "Opacus hooks + clip",
    "Opacus ghost clipping",
    "Opacus PrivacyEngine per client",
)
PFL = "pfl-research"


def settings(model: str) -> Iterator[Benchmark]:
    """Yield the settings of ``fedpriv bench``, with the rows and bars of other libraries."""
    lots = {f"{model}, {clients} × 78 records": clients for clients in (10, 1)}
    rounds = {f"{model}, {work}": work for work in (SMALL_BATCHES, *WHOLE_DATA)}
    for setting in bench.own_settings(model):
        rows: tuple[TimedStep, ...] = ()
        bars: tuple[Bar, ...] = ()
        if setting.name in lots:
            rows = tuple(opacus_rows(model, lots[setting.name], 78))
            if setting.bars:
                bars = (Bar(FAST, HOOKS, 1 / 2), Bar(FAST, ENGINE, 1 / 4))
        elif setting.name in rounds and pfl_research():
            work = rounds[setting.name]
            module = MODELS[model].build(SHAPE, CLASSES)
            users = bench_clients.per_client(bench_clients.records_of(work), work)
            rows = (
                TimedStep(PFL, pfl_research_round(module, users, work.epochs, work.batch, RATE)),
            )
            if work == SMALL_BATCHES and model != "cnn":
                bars = (Bar(bench_clients.ROUND, PFL, 1 / 8),)
        yield replace(setting, rows=setting.rows + rows, bars=setting.bars + bars)


def opacus_rows(model: str, clients: int, lot: int) -> Iterator[TimedStep]:
    """Yield Opacus' ways to get the clipped gradient sums of ``clients`` lots of ``lot`` records."""
    inputs = torch.randn(clients * lot, *SHAPE)
    targets = torch.randint(0, CLASSES, (clients * lot,))

    def build() -> nn.Module:
        return MODELS[model].build(SHAPE, CLASSES)

    yield TimedStep(HOOKS, hooks_step(build(), inputs, targets))
    yield TimedStep(GHOST, ghost_step(build(), inputs, targets))
    yield TimedStep(ENGINE, loop_step(build, inputs, targets, clients))


def hooks_step(
    module: nn.Module, inputs: torch.Tensor, targets: torch.Tensor
) -> Callable[[], None]:
    """Opacus's per-record gradients, clipped and summed over all records."""
    from opacus import GradSampleModule

    wrapped = GradSampleModule(module, loss_reduction="sum")

    def step() -> None:
        wrapped.zero_grad()
        functional.cross_entropy(wrapped(inputs), targets, reduction="sum").backward()
        samples = [p.grad_sample for p in wrapped.parameters()]
        norms = torch.stack([s.flatten(1).norm(dim=1) for s in samples]).norm(dim=0)
        scale = (CLIP_NORM / norms).clamp(max=1)
        for s in samples:
            torch.einsum("n,n...->...", scale, s)

    return step


def ghost_step(
    module: nn.Module, inputs: torch.Tensor, targets: torch.Tensor
) -> Callable[[], None]:
    """Opacus's ghost clipping: a backward pass for the norms, another for the clipped sum."""
    from opacus.grad_sample import GradSampleModuleFastGradientClipping

    wrapped = GradSampleModuleFastGradientClipping(
        module, loss_reduction="sum", max_grad_norm=CLIP_NORM, use_ghost_clipping=True
    )

    def step() -> None:
        wrapped.enable_hooks()
        losses = functional.cross_entropy(wrapped(inputs), targets, reduction="none")
        losses.sum().backward(retain_graph=True)
        scale = wrapped.get_clipping_coef()
        wrapped.zero_grad()
        wrapped.disable_hooks()
        (scale * losses).sum().backward()

    return step


def loop_step(
    build: Callable[[], nn.Module], inputs: torch.Tensor, targets: torch.Tensor, clients: int
) -> Callable[[], None]:
    """One step of a private optimizer, without noise, for one client after the other. Wrapping the
    clients' models is not counted."""
    from opacus import PrivacyEngine
    from torch.utils.data import DataLoader, TensorDataset

    prepared = []
    for x, y in zip(inputs.chunk(clients), targets.chunk(clients), strict=True):
        module = build()
        wrapped, optimizer, _ = PrivacyEngine().make_private(
            module=module,
            optimizer=torch.optim.SGD(module.parameters(), lr=0.1),
            data_loader=DataLoader(TensorDataset(x, y), batch_size=len(x)),
            noise_multiplier=0.0,
            max_grad_norm=CLIP_NORM,
        )
        prepared.append((wrapped, optimizer, x, y))

    def step() -> None:
        for wrapped, optimizer, x, y in prepared:
            optimizer.zero_grad()
            functional.cross_entropy(wrapped(x), y).backward()
            optimizer.step()

    return step


def pfl_research() -> str | None:
    """Return the version of pfl-research, or None where its row cannot be measured."""
    try:
        return version("pfl")
    except PackageNotFoundError:
        return None


def pfl_research_round(
    module: nn.Module,
    lots: list[tuple[Tensor, Tensor]],
    epochs: int,
    batch: int,
    learning_rate: float,
) -> Callable[[], None]:
    """A round of federated averaging in which every client trains on its lot, one of ``lots``."""
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.common_types import Population
    from pfl.context import CentralContext
    from pfl.data.dataset import Dataset
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.hyperparam import NNTrainHyperParams
    from pfl.metrics import Metrics
    from pfl.model.pytorch import PyTorchModel

    vars(module).update(
        loss=lambda inputs, targets: functional.cross_entropy(module(inputs), targets),
        metrics=lambda inputs, targets: {},
    )
    model = PyTorchModel(module, torch.optim.SGD, torch.optim.SGD(module.parameters(), lr=1.0))
    users = [Dataset(raw_data=lot, user_id=str(k)) for k, lot in enumerate(lots)]
    turns = cycle(range(len(users)))
    federation = FederatedDataset(users.__getitem__, lambda: next(turns))
    backend, algorithm = SimulatedBackend(federation, federation), FederatedAveraging()
    context = CentralContext(
        current_central_iteration=1,
        do_evaluation=False,
        cohort_size=len(users),
        population=Population.TRAIN,
        algorithm_params=NNAlgorithmParams(1, 1, len(users), 0),
        model_train_params=NNTrainHyperParams(
            local_batch_size=batch, local_num_epochs=epochs, local_learning_rate=learning_rate
        ),
    )

    def step() -> None:
        statistics, _ = backend.gather_results(model, algorithm, central_context=context)
        algorithm.process_aggregated_statistics(context, Metrics(), model, statistics)

    return step


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=20, help="timed runs of each row")
    parser.add_argument("--model", action="append", choices=tuple(MODELS), help="default: all")
    parser.add_argument("--threads", type=int, help="default: torch's choice")
    parser.add_argument("--json", help="also write the figures here")
    given = parser.parse_args()
    sys.stdout.write(
        f"Opacus {version('opacus')}, pfl-research {pfl_research() or 'not installed'}\n"
    )
    models = given.model or tuple(MODELS)
    return bench.run(given.repeats, models, given.threads, given.json, settings)


if __name__ == "__main__":
    sys.exit(main())
