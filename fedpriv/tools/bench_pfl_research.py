"""The same round by pfl-research (``pfl``, Apple), if it is installed: ``pip install 'fedpriv[bench]'``.

Its own SimulatedBackend and FederatedAveraging run the round; nothing is evaluated, clipped or noised.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from itertools import cycle

import torch
from torch import Tensor, nn
from torch.nn import functional


def installed() -> str | None:
    """Its version, or None where its row cannot be measured."""
    try:
        return version("pfl")
    except PackageNotFoundError:
        return None


def round_step(
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
