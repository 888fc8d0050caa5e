"""fedpriv: experiments in differentially private federated learning.

>>> import fedpriv
>>> config = fedpriv.compose(["algorithm=dp_fl", "dataset=digits", "rounds=20"])
>>> result = fedpriv.run(config)
>>> result.summary["test_accuracy"], result.privacy["epsilon_sound"]
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fedpriv.common import moved
from fedpriv.common.dp_accounting_shim import put_off_init

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from fedpriv.common.config import compose
    from fedpriv.experiment.run import RunResult

__all__ = ["compose", "run"]

put_off_init()
moved.install()


def run(config: DictConfig) -> RunResult:
    """Run a composed configuration to its end; see :class:`fedpriv.experiment.run.RunResult`."""
    from fedpriv.experiment.run import run as run_experiment

    return run_experiment(config)


def __getattr__(name: str) -> Any:
    """``compose``, which brings Hydra with it: imported when somebody asks for it."""
    if name == "compose":
        from fedpriv.common.config import compose

        return compose
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
