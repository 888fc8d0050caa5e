"""The one Hydra entrypoint: composes the configuration and runs it."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.experimental.callback import Callback
from hydra.types import RunMode
from omegaconf import DictConfig

from fedpriv.common.errors import FedprivError
from fedpriv.config import conf_dir
from fedpriv.experiment.run import RunResult, run


class Interrupted(FedprivError):
    """The run was stopped by a signal; its checkpoint is in the run folder."""

    exit_status = 130


def task(config: DictConfig) -> dict[str, Any] | None:
    """Run one composed configuration; the last line of a sweep's job and of a single run alike."""
    hydra_config = HydraConfig.get()
    sweeping = hydra_config.mode == RunMode.MULTIRUN
    folder = Path(hydra_config.runtime.output_dir) if sweeping else None
    result = run(config, overrides=list(hydra_config.overrides.task), default_folder=folder)
    refuse_bad_end(result)
    return result.summary


def refuse_bad_end(result: RunResult) -> None:
    """Raise for runs that ended otherwise than planned, so that the exit status says so."""
    if result.stop_reason == "interrupted":
        raise Interrupted(
            f"interrupted after round {result.summary['rounds']}; continue with "
            f"fedpriv train resume={result.folder}"
        )
    if result.stop_reason == "diverged":
        raise FedprivError(
            f"diverged in round {result.summary['rounds']}: a loss or weight is no longer finite; "
            f"what there is was saved in {result.folder} (try a smaller algorithm.learning_rate)"
        )


def main(arguments: Sequence[str], program: str = "fedpriv train") -> None:
    """``fedpriv train <overrides and Hydra flags>``."""
    previous = sys.argv
    sys.argv = [program, *arguments]
    try:
        hydra.main(version_base="1.3", config_path=str(conf_dir()), config_name="config")(task)()
    finally:
        sys.argv = previous


class SweepTable(Callback):
    """After a sweep (``-m``): a table of its runs, on screen and as ``sweep.csv``."""

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        from fedpriv.results.sweep import show_sweep

        show_sweep(Path(config.hydra.sweep.dir))


def read_summary(folder: Path) -> dict[str, Any] | None:
    """A run's summary, or None if it never finished."""
    path = folder / "summary.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
