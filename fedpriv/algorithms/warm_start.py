"""Plain training of the initial weights before round 1, without clipping and noise."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from fedpriv.algorithms.run_context import RunContext
from fedpriv.algorithms.uploads import LocalChanges
from fedpriv.common.random_streams import numpy_stream
from fedpriv.data.records import Records


def trained(
    context: RunContext, records: Records, epochs: int, batch_size: int, learning_rate: float
) -> Tensor:
    """Return the weights [d] after plain mini-batch SGD from the model's weights, which stay as they are.

    The order of the records follows from the run's public seed.

    Args:
        context: What the run works on. Only its model and its seed are read.
        records: The records.
        epochs: Number of passes over the records.
        batch_size: Number of records of a step.
        learning_rate: Learning rate.
    """

    def order(epoch: int) -> np.ndarray:
        return numpy_stream(context.seed, "warm_start", epoch).permutation(len(records))

    training = LocalChanges(context, epochs, batch_size, learning_rate)
    return context.model.flat + training.of_records(records.inputs, records.targets, order)
