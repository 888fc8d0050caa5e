"""FedAvg (McMahan et al. 2017) with the same lots and optimisers, without clipping and noise."""

from __future__ import annotations

from fedpriv.algorithms.record_level import LocalStepsAlgorithm


class FedAvg(LocalStepsAlgorithm):
    """FedAvg, the baseline without privacy: no ε is computed or shown."""

    private = False
