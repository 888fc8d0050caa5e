"""Time fedpriv against a plain loop, Opacus and pfl-research, in turn on the same cores.

    python scripts/bench.py --models mlp --pairs 20 --csv bench.csv

Two kinds of work, on random records of 1 × 28 × 28 in float32:

- Clipped sums: the gradients of 10 clients with 78 records each, every record clipped. fedpriv gives one sum
  for each client. Opacus gives one sum of all records, which is less work. Plain torch makes an ordinary pass
  over all records, without privacy.
- A round: 50 clients take five steps of SGD on ten records each, and the server averages. fedpriv's round is
  that of a run of ``cdp_fedavg`` without noise: it also shuffles the records, clips what each client sends,
  and enters the release in the ledger. The plain loop and pfl-research do none of that.

The last row of a model is five rounds of fedpriv, with the threads that it chooses, against the same rounds
beside two busy processes. The bar is a ratio of 3.

A ratio is the time of the other over the time of fedpriv: above 1 fedpriv is faster. The two take turns, so
that other work on the machine slows down both alike. The median over the pairs is printed, with quartiles.
pfl-research is timed if it is installed beside fedpriv: pip install pfl.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from itertools import cycle
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from opacus import GradSampleModule
from opacus.grad_sample import GradSampleModuleFastGradientClipping
from torch import Tensor, nn
from torch.nn import functional

from fedpriv.common import config as configuration
from fedpriv.data.base import Dataset
from fedpriv.data.records import LoadedDataset, Records
from fedpriv.engine import FlatModel, channels_last, make_engine, tune_allocator
from fedpriv.experiment.assemble import assemble
from fedpriv.experiment.build import build_parts
from fedpriv.experiment.machine import cores, processor
from fedpriv.models import Cnn, Logistic, Mlp
from fedpriv.models.own_module import OwnModule
from fedpriv.store.folder import own_commit_words

Step = Callable[[], object]
Lots = list[tuple[Tensor, Tensor]]

SHAPE, CLASSES, CLIP_NORM = (1, 28, 28), 10, 0.5


class Own(nn.Sequential):
    """A model of a user's own, which a run probes."""

    def __init__(self) -> None:
        super().__init__(nn.Flatten(), nn.Linear(784, 64), nn.Tanh(), nn.Linear(64, CLASSES))


MODELS = {
    "cnn": Cnn(seed=0),
    "mlp": Mlp(seed=0),
    "logistic": Logistic(seed=0),
    "own": OwnModule(Own, {"seed": 0}),
}
LOTS, LOT = 10, 78  # clients and records of the clipped sums
CLIENTS, STEPS, BATCH, RATE = 50, 5, 10, 0.1  # of a round


def built(model: str) -> nn.Module:
    """Return a new module, with the same initial weights every time."""
    return MODELS[model].build(SHAPE, CLASSES)


def random_lots(clients: int, records: int) -> Lots:
    """Return random inputs and labels of each client."""
    stream = torch.Generator().manual_seed(1)
    inputs = torch.randn(clients, records, *SHAPE, generator=stream)
    targets = torch.randint(0, CLASSES, (clients, records), generator=stream)
    return list(zip(inputs, targets, strict=True))


def joined(lots: Lots) -> tuple[Tensor, Tensor]:
    """Return the inputs and labels of all clients together."""
    inputs, targets = zip(*lots, strict=True)
    return torch.cat(inputs), torch.cat(targets)


def in_best_layout(model: str, module: nn.Module, lots: Lots) -> tuple[nn.Module, Lots]:
    """Return module and records in the layout in which plain torch is fastest: channels last for the CNN."""
    if model != "cnn":
        return module, lots
    lots = [(channels_last(inputs), targets) for inputs, targets in lots]
    return module.to(memory_format=torch.channels_last), lots


# ---- clipped sums


def sums_of_fedpriv(model: str, lots: Lots) -> Step:
    """Return a step that computes the clipped sum of each client [clients, d]."""
    engine = make_engine(FlatModel(built(model)), engine="fast")
    inputs, targets = joined(lots)
    if model == "cnn":
        inputs = channels_last(inputs)
    clients = torch.arange(len(lots)).repeat_interleave(len(lots[0][1]))

    def factors(norms: Tensor, client_of_record: Tensor) -> Tensor:
        return (CLIP_NORM / norms).clamp(max=1)

    return lambda: engine.clipped_sums(inputs, targets, clients, len(lots), factors).sums


def plain_pass(model: str, lots: Lots) -> Step:
    """Return an ordinary forward and backward pass over all records, which no private method can beat."""
    module, lots = in_best_layout(model, built(model), lots)
    inputs, targets = joined(lots)

    def step() -> None:
        module.zero_grad()
        functional.cross_entropy(module(inputs), targets).backward()

    return step


def sums_of_hooks(model: str, lots: Lots) -> Step:
    """Return a step with Opacus's gradient of each record, clipped and summed over all records."""
    module, (inputs, targets) = GradSampleModule(built(model), loss_reduction="sum"), joined(lots)

    def step() -> list[Tensor]:
        module.zero_grad()
        functional.cross_entropy(module(inputs), targets, reduction="sum").backward()
        samples = [p.grad_sample for p in module.parameters()]
        norms = torch.stack([s.flatten(1).norm(dim=1) for s in samples]).norm(dim=0)
        scale = (CLIP_NORM / norms).clamp(max=1)
        return [torch.einsum("n,n...->...", scale, s) for s in samples]

    return step


def sums_of_ghost_clipping(model: str, lots: Lots) -> Step:
    """Return a step with Opacus's backward pass for the norms, and another for the clipped sum."""
    inputs, targets = joined(lots)
    module = GradSampleModuleFastGradientClipping(
        built(model), loss_reduction="sum", max_grad_norm=CLIP_NORM, use_ghost_clipping=True
    )

    def step() -> list[Tensor]:
        module.enable_hooks()
        losses = functional.cross_entropy(module(inputs), targets, reduction="none")
        losses.sum().backward(retain_graph=True)
        scale = module.get_clipping_coef()
        module.zero_grad()
        module.disable_hooks()
        (scale * losses).sum().backward()
        return [p.grad for p in module.parameters()]

    return step


# ---- rounds


class RandomImages(Dataset):
    """The records of the clients of a round, as a data set of a run."""

    name, input_shape, classes = "random_images", SHAPE, CLASSES
    train_records, test_records = CLIENTS * STEPS * BATCH, BATCH

    def load(self) -> LoadedDataset:
        """Draw the records. Those of a client lie next to each other."""
        lots = random_lots(CLIENTS, STEPS * BATCH)
        owners = np.repeat(np.arange(CLIENTS), STEPS * BATCH)
        return LoadedDataset(
            Records(*joined(lots)), Records(*random_lots(1, BATCH)[0]), client_ids=owners
        )


def round_of_fedpriv(model: str, threads: int | str, held: ExitStack) -> Step:
    """Return a round of a run as ``fedpriv train`` makes it, without noise, evaluation and files."""
    chosen = f"model._target_={Own.__module__}.Own" if model == "own" else f"model={model}"
    folder = held.enter_context(tempfile.TemporaryDirectory())
    config = configuration.compose([
        "dataset=digits", f"dataset._target_={RandomImages.__module__}.{RandomImages.__name__}",
        "~dataset.normalize", "~dataset.validation_records", "partition=natural", chosen,
        "algorithm=cdp_fedavg", "algorithm.client_rate=1", "algorithm.local_epochs=1",
        f"algorithm.batch_size={BATCH}", f"algorithm.local_learning_rate={RATE}",
        "clipper=constant", f"clipper.clip_norm={CLIP_NORM}", "noise_schedule=none",
        "epsilon=null", "rounds=1000000", f"runtime.run_dir={Path(folder) / 'run'}",
        f"runtime.threads={threads}", "runtime.device=cpu", "runtime.progress=none", "runtime.plots=false",
    ])  # fmt: skip
    loop = assemble(build_parts(config), config, None, None).loop

    def step() -> None:
        announced, eligible, _ = loop._next()
        loop._round(announced, eligible)
        loop.rounds_done += 1

    return step


def five_rounds(model: str, held: ExitStack) -> tuple[Step, Step]:
    """Return five rounds of fedpriv as it chooses its threads, alone and beside two busy processes."""
    held.callback(torch.set_num_threads, torch.get_num_threads())
    step = round_of_fedpriv(model, "null", held)
    forever = [sys.executable, "-c", "import os; os.fork()\nwhile os.getppid() > 1: pass"]
    busy = subprocess.Popen(forever, start_new_session=True).pid
    held.callback(os.killpg, busy, signal.SIGKILL)

    def rounds(beside: signal.Signals) -> None:
        os.killpg(busy, beside)
        for _ in range(5):
            step()
        os.killpg(busy, signal.SIGSTOP)

    return partial(rounds, signal.SIGSTOP), partial(rounds, signal.SIGCONT)


def plain_round(model: str, lots: Lots) -> Step:
    """Return a round of federated averaging that trains one module for one client after the other."""
    module, lots = in_best_layout(model, built(model), lots)
    parameters = list(module.parameters())
    optimizer = torch.optim.SGD(parameters, lr=RATE)

    def step() -> None:
        start = [p.detach().clone() for p in parameters]
        total = [torch.zeros_like(p) for p in start]
        for inputs, targets in lots:
            with torch.no_grad():
                for p, s in zip(parameters, start, strict=True):
                    p.copy_(s)
            for x, y in zip(inputs.split(BATCH), targets.split(BATCH), strict=True):
                optimizer.zero_grad()
                functional.cross_entropy(module(x), y).backward()
                optimizer.step()
            for t, p in zip(total, parameters, strict=True):
                t.add_(p.detach())
        with torch.no_grad():
            for p, t in zip(parameters, total, strict=True):
                p.copy_(t / len(lots))

    return step


def round_of_pfl(model: str, lots: Lots) -> Step:
    """Return a round of pfl-research's ``FederatedAveraging`` in its ``SimulatedBackend``."""
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.common_types import Population
    from pfl.context import CentralContext
    from pfl.data.dataset import Dataset as PflDataset
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.hyperparam import NNTrainHyperParams
    from pfl.metrics import Metrics
    from pfl.model.pytorch import PyTorchModel

    module = built(model)
    vars(module).update(
        loss=lambda inputs, targets: functional.cross_entropy(module(inputs), targets),
        metrics=lambda inputs, targets: {},
    )
    wrapped = PyTorchModel(module, torch.optim.SGD, torch.optim.SGD(module.parameters(), lr=1.0))
    users = [PflDataset(raw_data=lot, user_id=str(k)) for k, lot in enumerate(lots)]
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
            local_batch_size=BATCH, local_num_epochs=1, local_learning_rate=RATE
        ),
    )

    def step() -> None:
        gathered, _ = backend.gather_results(wrapped, algorithm, central_context=context)
        algorithm.process_aggregated_statistics(context, Metrics(), wrapped, gathered)

    return step


# ---- measuring


def comparisons(
    model: str, threads: int, held: ExitStack
) -> Iterator[tuple[str, str, Step, Callable[[], Step]]]:
    """Yield each work, who else does it, fedpriv's step, and the function that makes the other's step."""
    lots = random_lots(LOTS, LOT)
    work, ours = f"clipped sums of {LOTS} clients × {LOT} records", sums_of_fedpriv(model, lots)
    yield work, "plain torch, no privacy", ours, partial(plain_pass, model, lots)
    yield work, "Opacus, hooks", ours, partial(sums_of_hooks, model, lots)
    yield work, "Opacus, ghost clipping", ours, partial(sums_of_ghost_clipping, model, lots)
    lots = random_lots(CLIENTS, STEPS * BATCH)
    work = f"round of {CLIENTS} clients × {STEPS} steps × {BATCH} records"
    ours = round_of_fedpriv(model, threads, held)
    yield work, "plain torch, no privacy", ours, partial(plain_round, model, lots)
    if importlib.util.find_spec("pfl"):
        yield work, "pfl-research", ours, partial(round_of_pfl, model, lots)
    alone, beside = five_rounds(model, held)
    yield f"5 × {work}", "itself beside two busy processes", alone, lambda: beside


def pairs_of_times(ours: Step, other: Step, pairs: int) -> np.ndarray:
    """Return milliseconds of both [2, pairs].

    A timed step follows an untimed one of the same side, whose data then fill the caches. The side that
    begins changes from pair to pair.
    """
    times: tuple[list[float], list[float]] = ([], [])
    for pair in range(pairs):
        for side in (0, 1) if pair % 2 == 0 else (1, 0):
            step = (ours, other)[side]
            step()
            start = time.perf_counter()
            step()
            times[side].append(1e3 * (time.perf_counter() - start))
    return np.array(times)


def measured(models: list[str], pairs: int, threads: int) -> pd.DataFrame:
    """Time all comparisons, and print each when it was timed."""
    rows = []
    print("\n| model | work | against | fedpriv | other | ratio (quartiles) |")
    print("| --- | --- | --- | ---: | ---: | ---: |")
    for model in models:
        with ExitStack() as held:
            for work, name, ours, make in comparisons(model, threads, held):
                times = pairs_of_times(ours, make(), pairs)
                fedpriv_ms, other_ms = np.median(times, axis=1)
                low, ratio, high = np.quantile(times[1] / times[0], [0.25, 0.5, 0.75])
                print(
                    f"| {model} | {work} | {name} | {fedpriv_ms:.1f} ms | {other_ms:.1f} ms "
                    f"| {ratio:.2f} ({low:.2f} to {high:.2f}) |",
                    flush=True,
                )
                rows.append((model, work, name, pairs, fedpriv_ms, other_ms, ratio, low, high))
    columns = "model work against pairs fedpriv_ms other_ms ratio lower_quartile upper_quartile"
    return pd.DataFrame(rows, columns=columns.split())


def main(arguments: list[str] | None = None) -> None:
    """Print the table, and write it if asked."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--models", nargs="+", choices=MODELS, default=["cnn", "mlp", "own"])
    parser.add_argument(
        "--pairs", type=int, default=20, help="timed steps of each side, default 20"
    )
    parser.add_argument("--threads", type=int, default=cores(), help="of torch; default: all cores")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="also write the table here")
    given = parser.parse_args(arguments)
    if given.pairs < 1:
        parser.error(f"--pairs must be >= 1, got {given.pairs}")
    if not 1 <= given.threads <= cores():
        parser.error(f"--threads must be from 1 to {cores()}, the cores, got {given.threads}")
    torch.set_num_threads(given.threads)
    tune_allocator()
    warnings.simplefilter("ignore")  # Opacus warns about its hooks
    used = f"{processor()}, {given.threads} of {cores()} cores, torch {torch.__version__}"
    print(f"{datetime.date.today()}, {own_commit_words()}, {used}")
    if not importlib.util.find_spec("pfl"):
        print("pfl-research is left out: it is not installed here (pip install pfl).")
    rows = measured(given.models, given.pairs, given.threads)
    if given.csv is not None:
        rows.to_csv(given.csv, index=False, float_format="%.4g")


if __name__ == "__main__":
    main()
