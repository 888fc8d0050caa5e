"""Trackers: what is shown of a run elsewhere, beside its folder. Each looks on and changes nothing.

The packages behind them are extras and are imported when a run begins.
"""

from fedpriv.trackers.base import TrackedRun, Tracker
from fedpriv.trackers.csv_files import CsvTracker
from fedpriv.trackers.mlflow import MlflowTracker
from fedpriv.trackers.tensorboard import TensorBoardTracker
from fedpriv.trackers.wandb import WandbTracker

__all__ = [
    "CsvTracker",
    "MlflowTracker",
    "TensorBoardTracker",
    "TrackedRun",
    "Tracker",
    "WandbTracker",
]
