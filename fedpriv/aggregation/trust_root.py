"""The rule that trusts an update of public records: FLTrust."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedpriv.aggregation.robust import RobustAggregation, RoundOfRule
from fedpriv.aggregation.vectors import Vectors
from fedpriv.common.fields import declared, field, number, whole

if TYPE_CHECKING:
    from torch import Tensor


@declared
class FlTrust(RobustAggregation):
    """The mean of uploads at the length of a trusted update g_0, weighted by their cosines with it.

        Σ_i s_i (‖g_0‖ / ‖x_i‖) x_i / Σ_i s_i,   s_i = max(0, cos(x_i, g_0))

    The server trains g_0 from the global weights, in steps of gradient descent on all root records. These are
    records of the data set's public validation split: they were held out before the clients got theirs, and
    the privacy statement names them as public. No key takes other records. If no upload points along g_0, the
    result is zero. f is not used.

    Source: Cao et al., "FLTrust: Byzantine-robust federated learning via trust bootstrapping", NDSS 2021,
    algorithm 2.

    Attributes:
        root_records: Number of root records.
        local_steps: Steps of the server.
        learning_rate: Learning rate of the server's steps.
    """

    needs = (0, 0)
    reads_validation = True

    root_records: int = field(
        whole(at_least=1),
        default=100,
        help="records of the public validation split that the server trains on; all, if there are fewer",
    )
    local_steps: int = field(
        whole(at_least=1), default=1, help="steps of the server from the global weights"
    )
    learning_rate: float = field(number(above=0), default=0.1, help="learning rate of these steps")

    def aggregate(self, vectors: Vectors, of_round: RoundOfRule) -> Tensor:
        assert of_round.root is not None  # the trainer hands it over before the first round
        update = of_round.root(self.root_records, self.local_steps, self.learning_rate).double()
        length, norms = float(update.norm()), vectors.norms
        weights = np.zeros(len(vectors))
        counted = norms > 0
        if np.isfinite(length) and length > 0:
            cosines = vectors.products_with(update)[counted] / (norms[counted] * length)
            trust = np.maximum(cosines, 0.0)
            if trust.sum() > 0:
                weights[counted] = trust / trust.sum() * length / norms[counted]
        return vectors.combination(weights)

    def describe(self) -> str:
        records = f"{self.root_records} public validation records as root"
        return f"{super().describe()}, {records}"
