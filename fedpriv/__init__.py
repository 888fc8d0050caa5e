"""Experiments in differentially private federated learning.

A run from Python::

    import fedpriv

    config = fedpriv.compose(["algorithm=dp_fl", "dataset=digits", "rounds=20"])
    result = fedpriv.run(config)
    print(result.summary["test_accuracy"], result.privacy["epsilon_sound"])
    result.metrics.plot(x="round", y="epsilon")

``dir(fedpriv)`` lists what is public. Hydra, torch and pandas are imported when they are first used.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fedpriv.common.dp_accounting_shim import put_off_init

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd
    from omegaconf import DictConfig

    from fedpriv.common.config import compose
    from fedpriv.common.errors import ConfigError, DataError, FedprivError
    from fedpriv.experiment.run import RunResult
    from fedpriv.tools.evaluate import load

__all__ = [
    "ConfigError",
    "DataError",
    "FedprivError",
    "RunResult",
    "compose",
    "load",
    "run",
    "runs",
    "sweep",
]

_HOMES = {
    "ConfigError": "fedpriv.common.errors",
    "DataError": "fedpriv.common.errors",
    "FedprivError": "fedpriv.common.errors",
    "RunResult": "fedpriv.experiment.run",
    "compose": "fedpriv.common.config",
    "load": "fedpriv.tools.evaluate",
}
"""Modules that are imported when somebody asks for one of these names, because they take long to import."""

put_off_init()
# torch's threads wait for one another awake, by default for 3 ms and more: on a busy machine they keep each
# other from computing. Now 0.2 ms. GNU's OpenMP reads it when torch is imported, here and in child processes.
if not {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & os.environ.keys():
    os.environ["GOMP_SPINCOUNT"] = "20000"


def run(
    config: DictConfig, *, on_round: Callable[[dict[str, Any]], object] | None = None
) -> RunResult:
    """Run a composed configuration to its end and write its run folder.

    Args:
        config: A configuration of :func:`compose`. With ``dry_run=true`` only the plan is made and shown.
        on_round: Called after every round with the round's row of ``metrics.csv``, as a dictionary. It
            changes nothing in the run. An exception that it raises ends the run.

    Returns:
        The plan, the folder, the summary, the privacy facts, the metrics and the ledger: see
        :class:`fedpriv.RunResult`.

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

    if isinstance(config, (str, list, tuple)):
        from fedpriv.common.errors import ConfigError

        allowed = "a configuration: fedpriv.run(fedpriv.compose([...]))"
        raise ConfigError("config", config if isinstance(config, str) else list(config), allowed)
    return run_experiment(config, on_round=on_round)


def runs(*folders: str | Path) -> pd.DataFrame:
    """Return a data frame of stored runs, one row each: what ``fedpriv runs`` shows, with every key.

    Args:
        folders: Run folders, or folders that have run folders below them; ``outputs`` if none is given.

    Returns:
        A frame with numbers as numbers. Its columns are ``run``, ``state``, ``folder`` and ``problem`` (the
        damage of a damaged run), the results of ``summary.json`` by name, and the keys of ``config.yaml``,
        such as ``clipper.clip_norm``. A key that names a result too has the prefix ``config.``:
        ``config.epsilon`` is the ε that was asked for, ``epsilon`` the ε that was spent.

    Raises:
        ConfigError: There is no such folder, or no run is in it.
    """
    from fedpriv.tools.run_table import frame_of_runs

    return frame_of_runs([str(folder) for folder in folders or ("outputs",)])


def sweep(
    overrides: Sequence[str] = (),
    over: Mapping[str, Iterable[object]] | None = None,
    *,
    folder: str | Path | None = None,
    config_dir: str | Path | None = None,
) -> pd.DataFrame:
    """Run one experiment for each combination of values, as ``fedpriv train -m`` does.

    A sweep that is repeated in the same folder goes on: finished runs are not run again.

    Args:
        overrides: Arguments as on the command line. ``epsilon=1,2`` gives several values.
        over: Key → its values, such as ``{"epsilon": [1, 2], "seed": range(3)}``.
        folder: Folder of the sweep; None for a new one below ``outputs/multirun``.
        config_dir: Folder with the user's own YAML files, as for ``--config-dir``.

    Returns:
        The runs of the sweep, as :func:`runs` returns them.

    Raises:
        ConfigError: An argument is wrong, or a job could not begin.
        FedprivError: A job failed. The other jobs were run; :func:`runs` reads them from ``folder``.

    Example:
        >>> import fedpriv
        >>> frame = fedpriv.sweep(
        ...     ["algorithm=fedavg", "rounds=1", "runtime.progress=none", "runtime.plots=false"],
        ...     {"seed": [0, 1]},
        ... )  # doctest: +ELLIPSIS
        Sweep...
        >>> list(frame["seed"])
        [0, 1]
    """
    from fedpriv.experiment.train_arguments import swept_arguments
    from fedpriv.train import main

    made = main(swept_arguments(overrides, over or {}, folder, config_dir), program="fedpriv.sweep")
    assert made is not None
    return runs(made)


def __dir__() -> list[str]:
    """Return the public names, whether or not they have been imported."""
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    """Import a public name when somebody asks for it."""
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
