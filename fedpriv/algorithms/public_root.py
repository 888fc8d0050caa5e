"""The server's own update, trained on public records as a client would train: the root of FLTrust."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from fedpriv.algorithms.client_computation import ClientComputation
from fedpriv.algorithms.run_context import RunContext
from fedpriv.algorithms.uploads import LocalChanges


class PublicRoot:
    """Updates on the public validation split, which holds no client's record.

    Args:
        context: What the run works on. Of its data, the validation split alone is read.
        computation: The clients' computation, which tells whether uploads are gradients, weights or changes.
    """

    def __init__(self, context: RunContext, computation: ClientComputation):
        self._context, uploads = context, computation.uploads
        self._gradients = computation.combines if uploads is None else uploads.sign == 1
        self._weights = uploads is not None and uploads.replaces

    def __call__(self, records: int, steps: int, learning_rate: float) -> Tensor:
        """Return what a client with public records would upload, without clipping and noise [d].

        Args:
            records: Number of records, spread evenly over the split; all, if there are fewer.
            steps: Steps of gradient descent from the global weights, on all of these records.
            learning_rate: Learning rate of the steps.
        """
        public = self._context.data.validation
        assert public is not None  # a rule that reads it has the split held out
        count = len(public)
        root = public.subset(np.linspace(0, count - 1, min(records, count)).astype(np.int64))
        training = LocalChanges(self._context, steps, None, learning_rate)
        change = training.of_records(root.inputs, root.targets)
        if self._gradients:
            return change / -learning_rate
        return change + self._context.model.flat if self._weights else change
