"""FedAvg (McMahan et al. 2017) with the same lots and optimisers, without clipping and noise."""

from __future__ import annotations

from fedpriv.algorithms.record_level import LocalStepsAlgorithm


class FedAvg(LocalStepsAlgorithm):
    """No privacy: the baseline. No ε is computed or shown."""

    private = False
