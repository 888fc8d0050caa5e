"""A round of federated averaging by pfl-research: its SimulatedBackend and FederatedAveraging.

Nothing is evaluated, clipped or noised. Several processes share the users of a round if the environment names
their addresses, as pfl-research documents it.
"""

from __future__ import annotations

from itertools import cycle

import torch
from networks import lots, network
from serve import Step, serve
from torch import Tensor, nn
from torch.nn import functional


def open_row(model: str, clients: int, records: int, batch: int, epochs: int, rate: float) -> Step:
    """Return a round in which every client trains on its records."""
    return federated_averaging(network(model), lots(clients, records), batch, epochs, rate)


def federated_averaging(
    module: nn.Module,
    client_lots: list[tuple[Tensor, Tensor]],
    batch: int,
    epochs: int,
    rate: float,
) -> Step:
    """Return a round in which every client trains the module on its lot."""
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
    users = [Dataset(raw_data=lot, user_id=str(k)) for k, lot in enumerate(client_lots)]
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
            local_batch_size=batch, local_num_epochs=epochs, local_learning_rate=rate
        ),
    )

    def step() -> None:
        statistics, _ = backend.gather_results(model, algorithm, central_context=context)
        algorithm.process_aggregated_statistics(context, Metrics(), model, statistics)

    return step


if __name__ == "__main__":
    serve(open_row, ("pfl", "torch"))
