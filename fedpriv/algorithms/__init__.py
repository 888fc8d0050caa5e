"""Algorithms: what a round does. Settings and privacy are importable without torch."""

from fedpriv.algorithms.dp_fl import DpFl
from fedpriv.algorithms.fedavg import FedAvg

__all__ = ["DpFl", "FedAvg"]
