"""Experiments in differentially private federated learning.

A run from Python::

    import fedpriv

    config = fedpriv.compose(["algorithm=dp_fl", "dataset=digits", "rounds=20"])
    result = fedpriv.run(config)
    print(result.summary["test_accuracy"], result.privacy["epsilon_sound"])
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
    """Run a composed configuration to its end and write its run folder.

    Args:
        config: A configuration of :func:`compose`. With ``dry_run=true`` only the plan is made and shown.

    Returns:
        The plan, the folder, the summary and the privacy facts: see
        :class:`fedpriv.experiment.run.RunResult`.

    Raises:
        ConfigError: A key is wrong, or two choices do not go together. Nothing was run.
        DataError: The data cannot be read. Nothing was run.
        FedprivError: Any other known failure, in a sentence.

    Example:
        >>> import fedpriv
        >>> config = fedpriv.compose(["algorithm=dp_fl", "dataset=digits", "rounds=20", "dry_run=true"])
        >>> result = fedpriv.run(config)  # doctest: +ELLIPSIS
        Plan...
        >>> result.plan.rounds, round(result.plan.epsilon, 2)
        (20, 0.75)
    """
    from fedpriv.experiment.run import run as run_experiment

    return run_experiment(config)


def __getattr__(name: str) -> Any:
    """Import ``compose`` when somebody asks for it: it brings Hydra with it, which takes long to import."""
    if name == "compose":
        from fedpriv.common.config import compose

        return compose
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
